"""Work that is counted: equal questions get equal answers, however slow the clock makes the machine look."""

from __future__ import annotations

from itertools import count

import pytest

from hippo.decide.choose import Panel, choose
from hippo.planners import effort as efforts
from hippo.planners.base import Stop
from hippo.planners.effort import SLACK, Effort
from hippo.planners.exact.search import Exact
from hippo.problem.load import load_problem
from hippo.problem.problem import Problem


def test_a_share_of_the_limit_is_over_before_the_whole() -> None:
    effort = Effort(10.0)
    effort.spend(6.0)
    assert effort.over(0.5)
    assert not Effort(10.0, 6.0).over()
    assert effort.left_s == 4.0


def test_what_ended_it_is_told_and_work_is_told_first(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter((0.0, SLACK * 2.0 - 1e-9, SLACK * 2.0))
    monkeypatch.setattr(efforts, "monotonic", lambda: next(now))
    effort = Effort(2.0)
    assert not effort.over()
    assert effort.cut == ""
    assert effort.over()
    assert effort.cut.startswith("Cut short by the clock after 4 times its limit of 2 s")


def problem() -> Problem:
    return load_problem(model="llama-3-8b", cluster="toy", global_batch=64)


def test_a_machine_three_times_as_slow_finds_the_same_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit binds: work ends the search, long before the clock does."""
    asked, stop = problem(), Stop(time_limit_s=LITTLE_S)
    usual = choose(asked, Panel((Exact(),)), stop)
    assert usual.cut_short.startswith("Cut short by its limit of work")
    ticks = count()
    monkeypatch.setattr(efforts, "monotonic", lambda: 1e-6 * next(ticks) * stop.time_limit_s)
    slow = choose(asked, Panel((Exact(),)), stop)
    assert (slow.plan, slow.gap, slow.cut_short) == (usual.plan, usual.gap, usual.cut_short)


def test_a_machine_that_stands_still_gives_what_it_has_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = count()
    monkeypatch.setattr(efforts, "monotonic", lambda: 100.0 * next(ticks))
    found = choose(problem(), Panel((Exact(),)), Stop(time_limit_s=10.0))
    assert found.plan is not None
    assert found.cut_short.startswith("Cut short by the clock")


LITTLE_S = 0.05
