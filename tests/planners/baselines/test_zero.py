"""Rajbhandari et al., SC'20: 16 bytes a parameter, of which a stage keeps 4, 2 and 0 whole (figure 1)."""

from __future__ import annotations

import pytest

from hippo.planners.baselines.zero import Zero, dealable_world
from hippo.planners.recipe import Recipe
from hippo.simulate.costs import cost_model

from ..worlds import STOP, assert_sound, cluster, domain, gpt, problem

WHERE = cluster(domain("a", 1, 4), domain("b", 1, 4))


@pytest.mark.parametrize(
    ("sharding", "bytes_per_parameter"),
    [("none", 16.0), ("optimizer", 4 + 12 / 4), ("gradients", 2 + 14 / 4), ("full", 16 / 8)],
)
def test_what_a_rank_keeps(sharding: str, bytes_per_parameter: float) -> None:
    # Stages 1 and 2 share among the four ranks of a domain, stage 3 among the eight of both.
    asked = problem(WHERE)
    layout = Recipe(1, sharding=sharding).layout(asked, tp=1, dp=4, replicas=8)
    kept = cost_model(asked).memory("a", 0, asked.model.num_layers, layout, live=0.0)
    held = kept.weights_bytes + kept.gradients_bytes + kept.optimizer_bytes
    assert held == pytest.approx(bytes_per_parameter * asked.model.parameters)


@pytest.mark.parametrize(
    ("memory_gb", "allowed"),
    [(80.0, {"optimizer", "gradients", "full"}), (3.5, {"gradients", "full"}), (2.5, {"full"})],
)
def test_a_higher_stage_where_memory_asks_for_it(memory_gb: float, allowed: set[str]) -> None:
    where = cluster(domain("a", 1, 4), domain("b", 1, 4), memory_gb=memory_gb)
    asked = problem(where, gpt(8, 2048, vocab=512), batch=32, seq=256)
    answer = Zero().propose(asked, STOP)
    assert_sound(asked, answer)
    assert answer.plan is not None
    assert answer.plan.sharding in allowed


def test_every_gpu_of_every_domain_is_a_rank_of_its_own() -> None:
    answer = Zero().propose(problem(WHERE, batch=32), STOP)
    assert answer.plan is not None
    assert answer.plan.gpus == 8
    assert {stage.tp for pipeline in answer.plan.pipelines for stage in pipeline.stages} == {1}
    assert {len(pipeline.stages) for pipeline in answer.plan.pipelines} == {1}
    assert answer.plan.domains == ("a", "b")


def test_where_the_batch_cannot_be_dealt_to_all_some_idle() -> None:
    asked = problem(cluster(domain("a", 1, 4), domain("b", 1, 3)), batch=16)
    assert (
        dealable_world(asked, ["a", "b"]) == (("a", 4), ("b", 3))
        or sum(n for _, n in dealable_world(asked, ["a", "b"])) < 7
    )
    uniform = problem(cluster(domain("a", 1, 4), domain("b", 1, 3)), batch=16, runtime="deepspeed")
    assert dealable_world(uniform, ["a", "b"]) == (("a", 2), ("b", 2))


def test_pipelines_are_no_part_of_it() -> None:
    asked = problem(cluster(domain("a", 1, 4), memory_gb=1.0), gpt(8, 2048))
    answer = Zero().propose(asked, STOP)
    assert_sound(asked, answer)
    assert answer.plan is None


def test_where_nothing_is_sharded_there_is_none() -> None:
    answer = Zero().propose(problem(WHERE, batch=32, runtime="hippo"), STOP)
    assert answer.plan is None
    assert answer.notes[-1] == "No stage of ZeRO runs under hippo's executor, which shards nothing."
