"""The time that an export tells: that of the runtime it starts, and one domain where that does as well."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from hippo.export import expected as module
from hippo.export.base import Wishes
from hippo.export.expected import expected
from hippo.plan.plan import Plan
from hippo.problem import runtimes
from hippo.problem.problem import Problem
from hippo.score.judge import judge

from .conftest import exported
from .examples import example

RUNTIME_OF = {"megatron": "megatron", "deepspeed": "deepspeed", "torchtitan": "torch"}


def hippos() -> tuple[Problem, Plan]:
    """The example, planned for hippo's executor."""
    problem, plan = example()
    return replace(problem, runtime="hippo"), plan


@pytest.mark.parametrize(("target", "runtime"), RUNTIME_OF.items())
def test_a_target_tells_the_time_of_its_own_runtime(target: str, runtime: str):
    problem, plan = hippos()
    made = exported(target, problem, plan)
    step = judge(replace(problem, runtime=runtime), plan).step_time_s
    told = made.expected.document()["expected"]
    assert told["step_time_s"] == step
    assert (told["runtime"], told["planned"]["runtime"]) == (runtime, "hippo")
    assert told["planned"]["step_time_s"] == judge(problem, plan).step_time_s
    assert json.loads(str(made.files["expected.json"])) == made.expected.document()
    for sentence in made.expected.sentences():
        assert sentence in str(made.files["README.md"])


@pytest.mark.parametrize(("program", "runtime"), [*RUNTIME_OF.items(), ("own", "hippo")])
def test_a_launcher_tells_the_time_of_what_every_rank_runs(program: str, runtime: str):
    programs = {"torchtitan": "torchtitan"}
    made = exported("slurm", *hippos(), Wishes(programs.get(program, program)))
    assert made.expected.run.problem.runtime == runtime


def test_the_plans_own_time_stands_there_only_where_it_differs():
    problem, plan = hippos()
    told = expected(problem, plan, "hippo")
    assert told.document()["expected"]["planned"] is None
    assert not any("The plan was made" in sentence for sentence in told.sentences())


def test_a_program_of_ones_own_may_run_what_hippos_executor_cannot():
    problem, plan = example()
    assert expected(problem, plan, "hippo").problem.runtime == "hippo"
    wide = replace(plan, context_parallel=2, pipelines=tuple(map(_halved, plan.pipelines)))
    assert expected(problem, wide, "hippo").problem.runtime == "ideal"


def _halved(pipeline):
    return replace(pipeline, stages=tuple(replace(stage, dp=1) for stage in pipeline.stages))


def test_what_is_assumed_is_said(monkeypatch: pytest.MonkeyPatch):
    known = {**runtimes.RUNTIMES, "torch": replace(runtimes.RUNTIMES["torch"], assumed=("NCCL reaches its link.",))}
    monkeypatch.setattr(runtimes, "RUNTIMES", known)
    made = exported("torchtitan", *hippos())
    assert "Assumed: NCCL reaches its link." in str(made.files["README.md"])
    assert made.expected.document()["expected"]["assumed"] == ["NCCL reaches its link."]


def test_both_ends_of_what_is_assumed_stand_beside_it():
    made = exported("torchtitan", *hippos()).expected
    told = made.document()["expected"]
    quick, slow = told["assumed_span_s"]
    assert quick <= told["step_time_s"] <= slow
    assert "s as assumed (no time for gloo's copies and wake-ups; " in made.sentences()[-1]


def test_one_domain_that_does_as_well_comes_first_with_its_price():
    """Eight GPUs of one centre need 1.6 s where sixteen over 10 Gbit/s need 2.7 s."""
    made = exported("torchtitan", *hippos())
    first = made.expected.sentences()[0]
    assert first.startswith("Better inside one domain: 1.57 s and $")
    text = str(made.files["README.md"])
    assert text.index(first) < text.index("Expected: ")
    told = made.expected.document()["one_domain"]
    assert (told["domain"], told["gpus"]) == ("dc-a", 8)
    assert told["step_time_s"] < made.expected.run.step_time_s
    assert 0 < told["usd_per_step"] < made.expected.run.score.usd_per_step


@pytest.mark.parametrize(("slower", "said"), [(1.004, True), (1.006, False), (0.997, True)])
def test_as_good_is_half_a_per_cent(slower: float, said: bool, monkeypatch: pytest.MonkeyPatch):
    problem, plan = hippos()
    own = judge(problem, plan)
    score = replace(own.score, step_time_s=slower * own.step_time_s)
    monkeypatch.setattr(module, "inside_one_domain", lambda problem: replace(own, score=score))
    told = expected(problem, plan, "hippo")
    assert (told.one_domain is not None) == said
    assert told.sentences()[0].startswith("As good inside one domain") == said


def test_a_plan_inside_one_domain_is_not_held_against_itself():
    problem, _ = hippos()
    found = module.inside_one_domain(problem)
    assert found is not None
    assert expected(problem, found.plan, "megatron").document()["one_domain"] is None
