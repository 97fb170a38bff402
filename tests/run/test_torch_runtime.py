"""Under torch's own pipeline runtime a plan has the losses of one process, too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hippo.errors import InexpressibleError
from hippo.plan.plan import Compression, Plan, ScheduleChoice
from hippo.run import checkpoint
from hippo.run.change import Planned
from hippo.run.fits import built_in, check_torch
from hippo.run.job import RunJob, RunOptions
from hippo.run.model.reference import losses
from hippo.run.model.stage import settings_of
from hippo.run.orders import RunOrder, change_of
from hippo.run.run import run
from hippo.run.saving import Saving

from .worlds import GPT2, LLAMA, PLANS, pipelines, problem, relaying

WIDE = Plan(
    pipelines((2, [("a", 0, 3, 2, 1), ("b", 3, 6, 2, 1)]), (2, [("a", 0, 2, 1, 1), ("b", 2, 6, 1, 1)])),
    2,
    recompute="full",
)
RUNS = {
    "1f1b": PLANS["stages"],
    "zb-h1 as a file": PLANS["split backwards"],
    "chunks": PLANS["chunks"],
    "replicas of other tp": (LLAMA, WIDE),
}
CASES = [pytest.param(name, marks=[pytest.mark.slow] if at else []) for at, name in enumerate(RUNS)]


@pytest.mark.parametrize("name", CASES)
def test_the_loss_is_that_of_one_process(name: str):
    model, plan = RUNS[name]
    job = RunJob(problem(model), plan, RunOptions(steps=2, precision="fp64", timeout_s=30.0, runtime="torch"))
    check_torch(job)
    expected = list(losses(job.problem, settings_of(job), steps=2, micro_batch=2))
    assert [step.loss for step in run(job).steps] == pytest.approx(expected, abs=1e-9)


@pytest.mark.slow
def test_another_order_of_micro_batches_keeps_the_loss():
    """Torch's runtime begins anew at the border, with the layers and moments of before."""
    model, plan = PLANS["stages"]
    job = RunJob(problem(model), plan, RunOptions(steps=4, precision="fp64", timeout_s=30.0, runtime="torch"))
    change = change_of(RunOrder("schedule", {"name": "gpipe"}, after_step=2), job, done=0)
    made = run(job, changes=Planned(change))
    assert [each.job.plan.schedule.name for each in made.stretches] == ["1f1b", "gpipe"]
    assert [len(each.steps) for each in made.stretches] == [2, 2]
    expected = list(losses(job.problem, settings_of(job), steps=4, micro_batch=2))
    assert [step.loss for step in made.steps] == pytest.approx(expected, abs=1e-9)


@pytest.mark.slow
def test_it_goes_on_from_a_checkpoint(tmp_path: Path):
    options = RunOptions(steps=2, precision="fp64", timeout_s=20.0)
    job = RunJob(problem(GPT2), PLANS["stages"][1], options)
    first = run(job, saving=Saving(tmp_path, every=2))
    found = checkpoint.last(tmp_path, GPT2)
    again = replace(options, steps=1, first_step=3, resume_from=str(found.folder), runtime="torch")
    steps = [*first.steps, *run(replace(job, options=again)).steps]
    expected = list(losses(job.problem, settings_of(job), steps=3, micro_batch=2))
    assert [step.loss for step in steps] == pytest.approx(expected, abs=1e-9)


def test_what_it_has_itself_is_not_handed_over_as_a_file():
    _, plan = PLANS["stages"]
    assert built_in(plan, plan.pipelines[0]) == "Schedule1F1B"
    assert built_in(replace(plan, schedule=ScheduleChoice("zb-h1")), plan.pipelines[0]) is None
    assert built_in(plan, replace(plan.pipelines[0], num_micro_batches=1)) is None


def test_it_refuses_what_it_cannot_say():
    model, unlike = PLANS["unlike dp"]
    with pytest.raises(InexpressibleError, match="same tp and dp"):
        check_torch(RunJob(problem(model), unlike))
    check_torch(RunJob(problem(model), unlike, RunOptions(stand_in=True)))
    _, plan = PLANS["stages"]
    with pytest.raises(InexpressibleError, match="compression"):
        check_torch(RunJob(problem(GPT2), replace(plan, compression=(Compression("a", "b", "fp8"),))))
    with pytest.raises(InexpressibleError, match="nothing through a third domain"):
        check_torch(RunJob(problem(GPT2, names="abc"), relaying(plan, "abc")))
