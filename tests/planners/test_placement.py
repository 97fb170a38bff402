"""Placement on domains small enough to draw by hand."""

from __future__ import annotations

import pytest

from hippo.errors import InfeasibleError
from hippo.planners.placement import PipelineSketch, StageSketch, pipelines_of_lanes, place, rank_order_lanes
from hippo.problem.cluster import Cluster, Domain, Gpu

GPU = Gpu("toy", {"bf16": 1e14}, 8e10, 1e12, 3e11, 1.0)


def domain(name: str, nodes: int, gpus_per_node: int) -> Domain:
    return Domain(name, nodes, gpus_per_node, 3e11, 2.5e10, 5e-6)


CLUSTER = Cluster("toy", GPU, (domain("a", 2, 4), domain("b", 4, 2)), ())


def test_stages_fill_the_domain_node_by_node() -> None:
    sketch = PipelineSketch(
        (StageSketch("a", (0, 2), 2, 1), StageSketch("a", (2, 4), 2, 2), StageSketch("b", (4, 5), 1, 2)), 8
    )
    (pipeline,) = place(CLUSTER, [sketch])
    assert [stage.devices for stage in pipeline.stages] == [
        ("a/0/0", "a/0/1"),
        ("a/0/2", "a/0/3", "a/1/0", "a/1/1"),
        ("b/0/0", "b/0/1"),
    ]
    assert pipeline.num_micro_batches == 8
    assert pipeline.domains == ("a", "b")


def test_pipelines_in_one_domain_share_no_device() -> None:
    stages = (StageSketch("a", (0, 5), 4, 1),)
    first, second = place(CLUSTER, [PipelineSketch(stages, 4), PipelineSketch(stages, 4)])
    assert first.stages[0].devices == ("a/0/0", "a/0/1", "a/0/2", "a/0/3")
    assert second.stages[0].devices == ("a/1/0", "a/1/1", "a/1/2", "a/1/3")


def test_wide_groups_choose_first_and_never_straddle() -> None:
    sketch = PipelineSketch(
        (StageSketch("a", (0, 1), 1, 1), StageSketch("a", (1, 4), 4, 1), StageSketch("a", (4, 5), 3, 1)), 1
    )
    (pipeline,) = place(CLUSTER, [sketch])
    assert pipeline.stages[0].devices == ("a/1/3",)
    assert pipeline.stages[1].devices == tuple(f"a/0/{gpu}" for gpu in range(4))
    assert pipeline.stages[2].devices == ("a/1/0", "a/1/1", "a/1/2")


def test_a_group_wider_than_a_node_takes_nodes_in_a_row() -> None:
    (pipeline,) = place(CLUSTER, [PipelineSketch((StageSketch("b", (0, 5), 4, 2),), 1)])
    assert pipeline.stages[0].devices == tuple(f"b/{node}/{gpu}" for node in range(4) for gpu in range(2))


def test_too_many_groups_are_infeasible() -> None:
    stages = (StageSketch("a", (0, 5), 3, 2),)
    with pytest.raises(InfeasibleError, match="no room left"):
        place(CLUSTER, [PipelineSketch(stages, 1), PipelineSketch((StageSketch("a", (0, 5), 3, 1),), 1)])


TWO_DOMAINS = Cluster("toy", GPU, (domain("a", 2, 4), domain("b", 1, 4)), ())


def test_rank_order_is_tp_dp_pp() -> None:
    # Six pairs of GPUs, a a a a b b; with pp outermost stage 0 takes the first two, and so on (Megatron-LM's order).
    assert rank_order_lanes(TWO_DOMAINS, tp=2, dp=2, pp=3) == (("a", "a", "b"), ("a", "a", "b"))
    assert rank_order_lanes(TWO_DOMAINS, tp=2, dp=3, pp=2) == (("a", "a"), ("a", "b"), ("a", "b"))


def test_too_few_groups_are_refused() -> None:
    with pytest.raises(ValueError, match="8 lanes of 2 GPUs do not fit on 6"):
        rank_order_lanes(TWO_DOMAINS, tp=2, dp=4, pp=2)


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
