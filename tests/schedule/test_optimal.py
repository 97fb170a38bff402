"""The exact method: against looking at everything, published optima, its own bound; refusals."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest
from tests.schedule.bound.test_lower_bound import REAL, published

from hippo.errors import InfeasibleError, InputError
from hippo.schedule.bound.lower_bound import lower_bound
from hippo.schedule.check import violations
from hippo.schedule.methods import checked
from hippo.schedule.optimal import one_by_one, optimal
from hippo.schedule.problem import PLACEMENTS, ScheduleProblem
from hippo.schedule.replay import makespan
from hippo.schedule.schedule import Schedule

from .judges import random_problem, shortest, with_reduction

LONG = 600.0
"""Seconds: never reached; every problem here is solved in one or two."""


def serial(problem: ScheduleProblem) -> Schedule:
    """One micro-batch after the other: a hint that says nothing."""
    return checked("serial", problem, one_by_one(problem))


@pytest.mark.parametrize("reduces", [False, True])
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_as_short_as_what_looking_at_everything_finds(placement: str, reduces: bool) -> None:
    for seed in range(100, 112):
        problem = random_problem(seed, placement)
        problem = with_reduction(problem, seed) if reduces else problem
        found = optimal(problem, time_limit_s=LONG, hint=serial(problem))
        best = shortest(problem)
        assert found.proved, seed
        assert found.schedule is not None
        assert violations(problem, found.schedule) == ()
        assert found.makespan == pytest.approx(best, rel=1e-6), seed
        assert makespan(problem, found.schedule) == found.makespan
        assert found.lower_bound <= best * (1 + 1e-9)


@pytest.mark.parametrize(
    ("p", "m", "times", "comm", "live", "optimum"),
    [
        (2, 4, (1, 1, 1), 0, 2, 13),
        (3, 5, REAL, 1, 3, 24.6),
        (3, 5, REAL, 1, None, 19.1),
        (3, 6, (1, 1, 1), [0.05, 2], 3, 28.2),
        (3, 6, (1, 1, 1), [0.05, 2], None, 22.05),
        *((4, 8, (1, 1, 1), comm, 4, best) for comm, best in ((0, 27), (0.1, 28.2), (1, 39), (5, 87))),
        *((4, 8, (1, 1, 1), comm, 8, best) for comm, best in ((0, 27), (0.1, 27.3), (1, 30), (5, 53))),
        *((4, 8, REAL, comm, 4, best) for comm, best in ((0, 26.3), (0.1, 27.5), (1, 38.3), (5, 86.3))),
        *((4, 8, REAL, comm, 8, best) for comm, best in ((0, 25.4), (0.1, 25.7), (1, 29.3), (5, 53.3))),
        (4, 8, REAL, [0.05, 1, 0.05], 4, 30.7),
        (4, 8, REAL, [0.05, 1, 0.05], 8, 26.5),
        (4, 8, REAL, [0.05, 5, 0.05], 4, 46.7),
        (4, 8, REAL, [0.05, 5, 0.05], 8, 33.5),
    ],
)
def test_published_optima(p: int, m: int, times: tuple[float, ...], comm: float, live: int | None, optimum: float):
    problem = ScheduleProblem.uniform(p, m, times, comm=comm, live_limit=live)
    found = optimal(problem, time_limit_s=LONG)
    assert found.proved
    assert found.makespan == pytest.approx(optimum, abs=1e-9)


@pytest.mark.slow  # that it proves what it finds is quickly seen of small problems
def test_above_the_bound_where_the_bound_is_not_met(data: Path) -> None:
    """O013 of the open problems: the solver has to prove more than heads and tails do."""
    problems = json.loads((data / "schedules_open.json").read_text())["problems"]
    problem = published(next(each for each in problems if each["id"] == "O013"))
    found = optimal(problem, time_limit_s=LONG)
    assert found.proved
    assert found.makespan == pytest.approx(53.317, abs=1e-9)
    assert found.lower_bound == pytest.approx(53.317, abs=1e-4)


def test_times_without_a_common_grid() -> None:
    """Times rounded down for the solver; the answer is in the times as given."""
    problem = ScheduleProblem.uniform(3, 4, (3**-0.5, 2**-0.5, 1 / 7), comm=[0.1, 1 / 3], live_limit=3)
    found = optimal(problem, time_limit_s=LONG)
    assert lower_bound(problem) * (1 - 1e-9) <= found.lower_bound <= found.makespan
    assert found.makespan == pytest.approx(found.lower_bound, rel=1e-4)


def test_never_longer_than_the_hint() -> None:
    problem = ScheduleProblem.uniform(8, 40, REAL, comm=[0.05] * 3 + [2] + [0.05] * 3, live_limit=8)
    hint = optimal(problem, time_limit_s=0.01).schedule
    assert hint is not None
    found = optimal(problem, time_limit_s=0.01, hint=hint)
    assert found.makespan <= makespan(problem, hint)
    assert found.lower_bound >= lower_bound(problem)
    assert not found.proved


def test_a_hint_that_breaks_the_limit_is_refused() -> None:
    free = ScheduleProblem.uniform(2, 4)
    hint = optimal(free, time_limit_s=LONG).schedule
    with pytest.raises(InputError, match="the hint is no schedule of the problem"):
        optimal(replace(free, limit=(1.0, 1.0)), time_limit_s=1, hint=hint)


def test_too_little_memory() -> None:
    problem = replace(ScheduleProblem.uniform(2, 2).placed("v"), limit=(inf, 0.75))
    with pytest.raises(InfeasibleError, match="needs 1 on rank 1, the limit is 0.75"):
        optimal(problem, time_limit_s=1)


def test_without_the_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ortools.sat.python", None)
    easy = ScheduleProblem.uniform(2, 4)
    assert optimal(easy, time_limit_s=1).proved  # the bound is met without it
    hard = ScheduleProblem.uniform(4, 8, REAL, comm=1, live_limit=4)
    with pytest.raises(InputError, match=r"pip install .*\[solve\]"):
        optimal(hard, time_limit_s=1, hint=serial(hard))
