"""The loss of every plan is that of one process: workers as threads of this process, messages over the loopback."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from hippo.plan.plan import Sync
from hippo.run.job import RunJob, RunOptions
from hippo.run.model.reference import losses
from hippo.run.model.stage import settings_of
from hippo.run.seat import Seat
from hippo.run.version import Version
from hippo.run.work import Work

from ..worlds import PLANS, problem

STEPS = 2
CASES = [
    *((name, "fixed") for name in PLANS),
    ("unlike dp", "ready"),
    *(pytest.param(name, "ready", marks=pytest.mark.slow) for name in ("split backwards", "unlike shares")),
]


def trained(job: RunJob, folder: Path) -> list[float]:
    """The losses of a run."""
    world = len(Work(job.problem.model, job.plan).workers)
    Version.first(job).write(folder)

    def worker(rank: int) -> list[float]:
        seat = Seat(folder, rank, lambda _: None)
        seat.prepare(0)
        runner, found = seat.runner, []
        assert runner is not None
        for step in range(1, job.options.steps + 1):
            runner.post()
            runner.run(step, 0.0)
            runner.update(step, 0.0)
            seat.use()
            found.append(runner.compute.loss())
        seat.close()
        return found

    with ThreadPoolExecutor(world) as pool:
        shares = list(pool.map(worker, range(world)))
    return [sum(each) for each in zip(*shares, strict=True)]


@pytest.mark.parametrize(("name", "order"), CASES)
def test_the_loss_is_that_of_one_process(name: str, order: str, tmp_path: Path):
    model, plan = PLANS[name]
    job = RunJob(problem(model), plan, RunOptions(steps=STEPS, precision="fp64", timeout_s=20.0, order=order))
    expected = list(losses(job.problem, settings_of(job), steps=STEPS, micro_batch=2))
    assert trained(job, tmp_path) == pytest.approx(expected, abs=1e-9)
    assert expected[-1] < expected[0]


@pytest.mark.parametrize(
    "name", ["two lanes a domain", "unlike lanes", pytest.param("everything", marks=pytest.mark.slow)]
)
def test_the_loss_over_a_flat_ring_too(name: str, tmp_path: Path):
    model, plan = PLANS[name]
    flat = replace(plan, sync=Sync(all_reduce="ring"))
    job = RunJob(problem(model), flat, RunOptions(steps=STEPS, precision="fp64", timeout_s=20.0))
    expected = list(losses(job.problem, settings_of(job), steps=STEPS, micro_batch=2))
    assert trained(job, tmp_path) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("name", ["stages", pytest.param("everything", marks=pytest.mark.slow)])
def test_in_single_precision_too(name: str, tmp_path: Path):
    model, plan = PLANS[name]
    job = RunJob(problem(model), plan, RunOptions(steps=STEPS, timeout_s=20.0))
    expected = list(losses(job.problem, settings_of(job), steps=STEPS, micro_batch=2))
    assert trained(job, tmp_path) == pytest.approx(expected, rel=0.0, abs=1e-6)
