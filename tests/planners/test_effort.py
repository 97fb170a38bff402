"""Work that is counted: equal questions get equal answers, however slow the clock makes the machine look."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hippo.decide.choose import Panel, choose
from hippo.decide.decision import Decision
from hippo.planners import effort as efforts
from hippo.planners.base import Stop
from hippo.planners.effort import CLOCK_SLACK, SLACK, Effort
from hippo.planners.exact.search import Exact
from hippo.problem.load import load_problem


def test_a_share_of_the_limit_is_over_before_the_whole() -> None:
    effort = Effort(10.0)
    effort.spend(6.0)
    assert effort.over(0.5)
    assert not Effort(10.0, 6.0).over()
    assert effort.left_s == 4.0


def test_what_ended_it_is_told_and_work_is_told_first(monkeypatch: pytest.MonkeyPatch) -> None:
    now = {"process_time": 0.0, "monotonic": 0.0}
    monkeypatch.setattr(efforts, "process_time", lambda: now["process_time"])
    monkeypatch.setattr(efforts, "monotonic", lambda: now["monotonic"])
    slow, busy = Effort(2.0), Effort(2.0)
    now["process_time"], now["monotonic"] = SLACK * 2.0 - 1e-9, CLOCK_SLACK * 2.0 - 1e-9
    assert not slow.over()
    assert slow.cut == ""
    now["monotonic"] = CLOCK_SLACK * 2.0
    assert busy.over()
    assert busy.cut.startswith("Cut short by the clock after 20 times its time limit")
    now["process_time"] = SLACK * 2.0
    assert slow.over()
    assert slow.cut.startswith("Cut short after 4 times its time limit in CPU seconds")
    done = Effort(2.0, 2.0)
    assert done.over()
    assert done.cut.startswith("Cut short by its time limit")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], Decision]:
    """Asks the exact search, with a limit that binds, on a machine so many times as slow as the rates say."""
    problem, now, spend = load_problem(model="llama-3-8b", cluster="toy", global_batch=64), [0.0], Effort.spend

    def ask(slowness: float) -> Decision:
        def spend_slowly(effort: Effort, seconds: float) -> None:
            now[0] += slowness * seconds
            spend(effort, seconds)

        for clock in ("process_time", "monotonic"):
            monkeypatch.setattr(efforts, clock, lambda: now[0])
        monkeypatch.setattr(Effort, "spend", spend_slowly)
        return choose(problem, Panel((Exact(),)), Stop(time_limit_s=0.3))

    return ask


def test_a_machine_three_times_as_slow_finds_the_same_plan(machine: Callable[[float], Decision]) -> None:
    usual, slow = machine(0.5), machine(3.0)
    assert usual.cut_short.startswith("Cut short by its time limit")
    assert (slow.plan, slow.gap, slow.cut_short) == (usual.plan, usual.gap, usual.cut_short)


def test_a_machine_that_hardly_moves_gives_what_it_has_and_says_so(machine: Callable[[float], Decision]) -> None:
    found = machine(100.0)
    assert found.plan is not None
    assert found.cut_short.startswith("Cut short after 4 times its time limit in CPU seconds")
