from __future__ import annotations

from dataclasses import replace

import pytest

from hippo.plan.plan import ScheduleChoice
from hippo.planners.baselines.even import Even, interleaved
from hippo.score.judge import evaluate

from ..worlds import STOP, assert_sound, cluster, domain, gpt, problem


def test_stages_follow_the_cluster_file_whatever_the_links_are() -> None:
    # a-c is the slow pair, yet the order a, b, c is what the file says.
    for order in ("abc", "acb"):
        where = cluster(*(domain(name, 1, 4) for name in order), others={("a", "c"): 0.1}, memory_gb=4.0)
        asked = problem(where, gpt(12, 2048), batch=32)
        answer = Even().propose(asked, STOP)
        assert_sound(asked, answer)
        assert answer.plan is not None
        assert answer.plan.pipelines[0].domains == tuple(order)
        assert answer.plan.gpus == 12


def test_blocks_are_dealt_evenly_and_every_stage_is_alike() -> None:
    asked = problem(cluster(domain("a", 2, 4), domain("b", 2, 4)), gpt(8), batch=64, runtime="megatron")
    answer = Even().propose(asked, STOP)
    assert_sound(asked, answer)
    assert answer.plan is not None
    for pipeline in answer.plan.pipelines:
        assert len({(stage.tp, stage.dp) for stage in pipeline.stages}) == 1
        blocks = [min(stop, 9) - max(start, 1) for start, stop in (stage.layers for stage in pipeline.stages)]
        assert len(set(blocks)) == 1


def test_ranks_are_tp_dp_pp() -> None:
    # Memory for two stages of the whole node: stage 0 in a, stage 1 in b, tensor parallel ranks side by side.
    where = cluster(domain("a", 1, 4), domain("b", 1, 4), memory_gb=2.5)
    answer = Even().propose(problem(where, gpt(8, 2048)), STOP)
    assert answer.plan is not None
    (pipeline,) = answer.plan.pipelines
    assert [stage.devices for stage in pipeline.stages] == [
        tuple(f"{name}/0/{gpu}" for gpu in range(4)) for name in ("a", "b")
    ]


@pytest.mark.parametrize("gbps", [0.1, 100.0])
def test_the_network_is_not_looked_at(gbps: float) -> None:
    where = cluster(domain("a", 1, 4), domain("b", 1, 4), gbps=gbps, memory_gb=2.5)
    answer = Even().propose(problem(where, gpt(8, 2048)), STOP)
    assert answer.plan is not None
    assert answer.plan.domains == ("a", "b")


def test_chunks_are_tried_on_the_best_plan() -> None:
    # Fast links, few waves, a deep pipeline: two chunks a rank halve the bubble (SC'21, section 2.2.2).
    where = cluster(*(domain(name, 1, 1) for name in "abcd"), gbps=4000.0, latency_s=1e-6, memory_gb=4.0)
    asked = problem(where, gpt(16, 1536), batch=8)
    answer = Even().propose(asked, STOP)
    assert_sound(asked, answer)
    assert answer.plan is not None
    assert answer.plan.schedule.name == "interleaved"
    plain = replace(answer.plan, interleave=1, schedule=ScheduleChoice("1f1b"))
    assert answer.score is not None
    assert answer.score.step_time_s < evaluate(asked, plain).step_time_s
    assert (
        list(
            interleaved(replace(plain, pipelines=(replace(plain.pipelines[0], stages=plain.pipelines[0].stages[:1]),)))
        )
        == []
    )
