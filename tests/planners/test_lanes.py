from __future__ import annotations

import pytest

from hippo.planners.lanes import pipelines_of_lanes, rank_order_lanes

from .worlds import cluster, domain

CLUSTER = cluster(domain("a", 2, 4), domain("b", 1, 4))


def test_rank_order_is_tp_dp_pp() -> None:
    # Six pairs of GPUs, a a a a b b; with pp outermost stage 0 takes the first two, and so on (Megatron-LM's order).
    assert rank_order_lanes(CLUSTER, tp=2, dp=2, pp=3) == (("a", "a", "b"), ("a", "a", "b"))
    assert rank_order_lanes(CLUSTER, tp=2, dp=3, pp=2) == (("a", "a"), ("a", "b"), ("a", "b"))


def test_too_few_groups_are_refused() -> None:
    with pytest.raises(ValueError, match="8 groups of 2 GPUs do not fit on 6"):
        rank_order_lanes(CLUSTER, tp=2, dp=4, pp=2)


def test_lanes_that_visit_the_same_domains_form_one_pipeline() -> None:
    first, second = pipelines_of_lanes([("a", "a"), ("a", "b"), ("a", "b")], (0, 3, 6), (2, 1), 5)
    assert [(stage.domain, stage.layers, stage.tp, stage.dp) for stage in second.stages] == [
        ("a", (0, 3), 2, 2),
        ("b", (3, 6), 1, 2),
    ]
    assert [stage.dp for stage in first.stages] == [1, 1]
    assert first.num_micro_batches == second.num_micro_batches == 5


def test_pipelines_are_split_until_they_are_alike() -> None:
    lanes = [("a", "b")] * 4 + [("b", "a")] * 6
    sketches = pipelines_of_lanes(lanes, (0, 3, 6), (1, 1), 2, alike=True)
    assert [(sketch.stages[0].domain, sketch.stages[0].dp) for sketch in sketches] == [("a", 2)] * 2 + [("b", 2)] * 3
