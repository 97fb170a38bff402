"""What all baselines have in common: sound answers for every runtime, model and shortage; the same twice."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from tests.strategies import problems

from hippo.planners.base import Stop
from hippo.problem.model import Experts, gpt_model
from hippo.problem.objective import objective_from_text
from hippo.problem.problem import Problem
from hippo.problem.profile import Profile, ProfileRow
from hippo.registry import PLANNERS, planner

from ..worlds import STOP, assert_sound, cluster, domain, gpt, problem

BASELINES = tuple(name for name in PLANNERS if name not in ("exact", "brute"))
RUNTIMES = ("any", "megatron", "torch", "deepspeed")
UNEVEN = cluster(domain("a", 2, 4), domain("b", 1, 4), domain("c", 3, 2), others={("a", "b"): 1.0}, memory_gb=12.0)
MOE = gpt_model(
    "moe",
    layers=6,
    hidden=512,
    heads=8,
    kv_heads=4,
    ffn=1024,
    vocab=4096,
    seq=1024,
    gated=True,
    experts=Experts(8, 2, 512),
)


def test_every_baseline_of_the_specification_is_there() -> None:
    asked = {"single_domain", "even", "zero", "alpa", "mast", "sailor", "crosspipe", "diloco", "dtfm", "ray"}
    assert asked <= set(BASELINES)


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("name", BASELINES)
def test_unequal_domains(name: str, runtime: str) -> None:
    asked = problem(UNEVEN, gpt(6), batch=24, runtime=runtime, allow_local_sgd=True)
    answer = planner(name).propose(asked, STOP)
    assert answer.planner == name
    assert_sound(asked, answer)


@pytest.mark.parametrize("name", BASELINES)
def test_mixture_of_experts(name: str) -> None:
    asked = problem(UNEVEN, MOE, batch=48, allow_local_sgd=True)
    answer = planner(name).propose(asked, STOP)
    assert_sound(asked, answer)
    assert answer.plan is not None


@pytest.mark.parametrize("name", BASELINES)
@pytest.mark.parametrize("objective", ["cost", "0.5,0.3,0.2"])
def test_other_objectives_and_even_cuts(name: str, objective: str) -> None:
    asked = problem(UNEVEN, batch=24, objective=objective_from_text(objective), uniform_cuts=True, allow_local_sgd=True)
    assert_sound(asked, planner(name).propose(asked, STOP))


@pytest.mark.parametrize("name", BASELINES)
def test_too_little_memory_is_an_answer(name: str) -> None:
    asked = problem(cluster(domain("a", 1, 2), domain("b", 1, 2), memory_gb=0.5), allow_local_sgd=True)
    answer = planner(name).propose(asked, STOP)
    assert_sound(asked, answer)
    assert answer.plan is None
    assert "lacks" in answer.notes[0]


@pytest.mark.parametrize("name", BASELINES)
def test_awkward_batches(name: str) -> None:
    for batch in (1, 7):
        asked = problem(UNEVEN, batch=batch, allow_local_sgd=True)
        assert_sound(asked, planner(name).propose(asked, STOP))


def profile(*layouts: tuple[int, int]) -> Profile:
    """Made-up measurements of every kind of layer at these (tp, micro-batch)."""
    rows = tuple(
        ProfileRow(
            kind,
            None,
            "A100-SXM-80GB",
            tp,
            size,
            1e-3 * size / tp,
            2e-3 * size / tp,
            None,
            3e7 / tp,
            1e7 * size / tp,
            1e6 * size,
        )
        for kind in ("embedding", "block", "head")
        for tp, size in layouts
    )
    return Profile("bf16", 16.0, rows, source="made up")


@pytest.mark.parametrize("name", BASELINES)
def test_only_measured_layouts_are_used(name: str) -> None:
    layouts = {(2, 2), (4, 1)} if name not in ("zero", "ray") else {(1, 2)}
    where = cluster(domain("a", 2, 4), domain("b", 2, 4), memory_gb=80.0)
    asked = problem(where, gpt(6), batch=64, profile=profile(*layouts), allow_local_sgd=True)
    answer = planner(name).propose(asked, STOP)
    assert_sound(asked, answer)
    assert answer.plan is not None
    wave = {
        stage.dp: answer.plan.micro_batch * pipeline.stages[0].dp
        for pipeline in answer.plan.pipelines
        for stage in pipeline.stages
    }
    used = {(stage.tp, wave[stage.dp] // stage.dp) for pipeline in answer.plan.pipelines for stage in pipeline.stages}
    assert used <= layouts


@pytest.mark.parametrize("name", BASELINES)
def test_one_gpu(name: str) -> None:
    asked = problem(cluster(domain("a", 1, 1)), gpt(2, 256), batch=2, allow_local_sgd=True)
    assert_sound(asked, planner(name).propose(asked, STOP))


@pytest.mark.parametrize("name", BASELINES)
def test_the_same_question_gets_the_same_plan(name: str) -> None:
    plans = [
        planner(name).propose(problem(UNEVEN, gpt(6), batch=24, allow_local_sgd=True), STOP, seed=1).plan
        for _ in range(2)
    ]
    assert plans[0] == plans[1]


@pytest.mark.parametrize("name", BASELINES)
def test_no_time_still_gives_an_answer(name: str) -> None:
    asked = problem(UNEVEN, gpt(6), batch=24, allow_local_sgd=True)
    assert_sound(asked, planner(name).propose(asked, Stop(0.0)))


@pytest.mark.parametrize("name", BASELINES)
@settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(asked=problems())
def test_any_problem_has_a_sound_answer(name: str, asked: Problem) -> None:
    asked = replace(asked, allow_local_sgd=True)
    assert_sound(asked, planner(name).propose(asked, Stop(2.0)))


def test_no_group_is_wider_than_the_smallest_node() -> None:
    where = cluster(domain("a", 2, 8), domain("b", 2, 2))
    for name in BASELINES:
        assert_sound(problem(where, gpt(2)), planner(name).propose(problem(where, gpt(2)), STOP))


@pytest.mark.parametrize("name", BASELINES)
def test_notes_say_what_is_left_out_of_the_paper(name: str) -> None:
    asked = problem(UNEVEN, gpt(6), batch=24, allow_local_sgd=True)
    answer = planner(name).propose(asked, STOP)
    if answer.plan is not None and name != "single_domain":
        assert any("Left out: " in note for note in answer.notes)
