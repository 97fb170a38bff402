from __future__ import annotations

import pytest

from hippo.errors import InputError
from hippo.plan.check import check
from hippo.planners.by_hand import Degrees, as_options, nearest_change, one_layout, site
from hippo.problem.problem import Problem
from hippo.problem.workload import Workload

from .worlds import gpt


def problem(gpus: int, batch: int = 16) -> Problem:
    return Problem(gpt(8), site("A100-SXM-80GB", gpus), Workload(global_batch=batch, seq=512))


def test_a_site_has_just_enough_nodes() -> None:
    (only,) = site("A100-SXM-80GB", 20).domains
    assert (only.nodes, only.gpus_per_node) == (3, 8)
    (only,) = site("A100-SXM-80GB", 4, inter_node_gbps=100).domains
    assert (only.nodes, only.gpus_per_node, only.inter_node_bytes_per_s) == (1, 4, 12.5e9)


def test_the_layout_is_the_one_asked_for() -> None:
    asked = problem(16)
    plan = one_layout(asked, Degrees(tp=2, dp=2, pp=4, micro_batch=2, recompute="full", sharding="optimizer"))
    assert check(asked, plan) == ()
    (pipeline,) = plan.pipelines
    assert [stage.layers for stage in pipeline.stages] == [(0, 3), (3, 5), (5, 7), (7, 10)]
    assert {(stage.tp, stage.dp) for stage in pipeline.stages} == {(2, 2)}
    assert (pipeline.num_micro_batches, plan.schedule.name) == (4, "1f1b")
    assert (plan.recompute, plan.sharding) == ("full", "optimizer")


def test_chunks_are_interleaved() -> None:
    assert one_layout(problem(4), Degrees(pp=4, interleave=2)).schedule.name == "interleaved"


@pytest.mark.parametrize(
    ("degrees", "message"),
    [
        ({"pp": 16}, "--pp: exceeds the 8 blocks"),
        ({"pp": 4, "interleave": 3}, "--interleave: makes 12 chunks on --pp 4, more than the 8 blocks"),
        ({"dp": 3}, "--global-batch: is not dealt evenly"),
    ],
)
def test_wrong_degrees_are_named(degrees: dict[str, int], message: str) -> None:
    with pytest.raises(InputError) as refused:
        one_layout(problem(16), Degrees(**degrees))
    assert message in str(refused.value)


@pytest.mark.parametrize(("key", "value"), [("tp", 0), ("micro_batch", -1), ("recompute", "some"), ("sharding", "x")])
def test_degrees_are_checked_when_made(key: str, value: object) -> None:
    with pytest.raises(InputError):
        Degrees(**{key: value})  # type: ignore[arg-type]


def test_the_nearest_change_keeps_the_gpus_and_changes_least() -> None:
    before = Degrees(tp=2, dp=2)
    assert nearest_change(before, lambda one: one.recompute == "full") == Degrees(tp=2, dp=2, recompute="full")
    assert nearest_change(before, lambda one: one.gpus >= 8) == Degrees(tp=4, dp=2)
    assert nearest_change(before, lambda one: False) is None
    wider = nearest_change(before, lambda one: one.gpus > 4 and one.sharding == "optimizer")
    assert wider is not None
    assert as_options(wider, before) == "--tp 4 --sharding optimizer"
