"""What waits long while everything moves is not given up; what never moves is."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace

import pytest

from hippo.plan.plan import Plan, Sync
from hippo.run.change import PlanChange, Planned
from hippo.run.job import RunJob, RunOptions
from hippo.run.lost import LostError, RunError
from hippo.run.run import Conductor, Here, RunStep, run

from .test_run import _none_left, workers  # noqa: F401
from .worlds import GPT2, TWINS, pipelines, problem

LEFT = Plan(pipelines((4, [("a", 0, 3, 1, 1), ("b", 3, 6, 1, 1)])), 2)
SHORT_S = 2.0
"""No step stands still for so long, however busy the machine is."""


def slow(step: RunStep) -> None:
    """Steps take longer than no timeout, all of them together longer than twice as long."""
    time.sleep(0.6 * SHORT_S)


def test_replicas_may_train_alone_for_longer_than_the_timeout():
    plan = replace(TWINS, sync=Sync("local_sgd", 5))
    job = RunJob(
        replace(problem(GPT2), allow_local_sgd=True), plan, RunOptions(steps=6, stand_in=True, timeout_s=SHORT_S)
    )
    assert len(run(job, watch=slow).steps) == 6


@pytest.mark.slow
def test_processes_of_the_next_plan_may_wait_for_longer_than_the_timeout():
    job = RunJob(problem(GPT2), LEFT, RunOptions(steps=9, stand_in=True, timeout_s=SHORT_S))
    assert len(run(job, changes=Planned(PlanChange(TWINS, 8)), watch=slow).steps) == 9


class Hanging(Here):
    """Processes of the second plan never start."""

    def command(self, domain: str, argv: list[str]) -> list[str]:
        """The worker, or something that sleeps."""
        return argv if int(argv[-1]) < 2 else ["sleep", "1000"]


def test_a_death_while_the_next_plan_starts_ends_the_run_at_once():
    job = RunJob(problem(GPT2), LEFT, RunOptions(steps=4, stand_in=True, timeout_s=60.0))
    began: list[float] = []

    def strike(step: RunStep) -> None:
        began.append(time.monotonic())
        os.kill(workers()[0], signal.SIGKILL)

    with pytest.raises(RunError, match="signal 9"):
        run(job, changes=Planned(PlanChange(TWINS, 3)), place=Hanging(), watch=strike)
    assert time.monotonic() - began[0] < 40.0  # of the 60 s and more that it would have waited


def test_a_step_in_which_nobody_dies_and_nothing_moves_is_not_begun_for_ever(monkeypatch: pytest.MonkeyPatch):
    """A link that is too slow for the patience, not dead: every try breaks off, and none has lost anybody."""
    tries: list[int] = []

    class Slow:
        def begin(self, number: int, version: object, take: object) -> None:
            tries.append(number)
            raise LostError("nothing moved for 5 s while waiting for all processes to end the step", [], stuck=True)

    conductor = object.__new__(Conductor)
    conductor.crew, conductor.version = Slow(), None
    monkeypatch.setattr(Conductor, "_go_on_without", lambda self, error, number: None)
    with pytest.raises(LostError, match=r"step 3 was begun 8 times: nothing moved .* A message may take longer than"):
        conductor.step(3)
    assert tries == [3] * 8
