"""The optimum of single plays: by hand, by enumeration, and between the floor and what is played."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.schedule.drawn import schedule_problems
from tests.scripts import script

from hippo.dispatch.noise.fluctuation import Factors, Fluctuation, drawn, play
from hippo.dispatch.noise.hindsight import floors
from hippo.errors import InputError
from hippo.schedule.check import violations
from hippo.schedule.methods import checked
from hippo.schedule.optimal import one_by_one
from hippo.schedule.problem import MicroBatchMemory, RankLink, ScheduleProblem
from hippo.schedule.schedule import Schedule, Shape

pytest.importorskip("ortools")

_CLAIRVOYANT = script("benchmarks/_clairvoyant.py")
clairvoyant, searched_run = _CLAIRVOYANT.clairvoyant, _CLAIRVOYANT.searched_run

NOISE = Fluctuation(0.3, rank_level=0.2, abnormal_share=0.1)


def draws(problem: ScheduleProblem, noise: Fluctuation = NOISE, seed: int = 3) -> Factors:
    return next(drawn(problem, noise, samples=2, rng=np.random.default_rng(seed)))


def found(problem: ScheduleProblem, factors: Factors, index: int = 1) -> Any:
    serial = checked("serial", problem, one_by_one(problem))
    return clairvoyant(problem, factors, index, serial, time_limit_s=20.0)


def letters(m: int) -> list[str]:
    """Every order of a rank: kinds in order, F before B before W."""
    words = [""]
    for _ in range(3 * m):
        words = [
            word + kind
            for word in words
            for kind, room in zip("FBW", (m, word.count("F"), word.count("B")), strict=True)
            if word.count(kind) < room
        ]
    return words


def enumerated(problem: ScheduleProblem, factors: Factors) -> float:
    """The least makespan of the play over all orders that keep within memory."""
    p, m, best = problem.ranks, problem.micro_batches, np.inf
    for words in product(letters(m), repeat=p):
        rows = [("FBW".index(kind), 0, word[:at].count(kind)) for word in words for at, kind in enumerate(word)]
        schedule = Schedule("", Shape(p, m), False, np.array(rows), 3 * m * np.arange(p + 1))
        if not violations(problem, schedule):
            best = min(best, float(play(problem, schedule, factors)[0]))
    return best


@pytest.mark.parametrize("live", [1, 2, 3])
@pytest.mark.parametrize("transfer", [0.0, 0.8])
def test_no_order_of_all_is_shorter(live: int, transfer: float) -> None:
    links = (RankLink(0.7, transfer),)
    problem = replace(ScheduleProblem.uniform(2, 3, (1.0, 1.2, 0.5), live_limit=live), down=links, up=links)
    factors = draws(problem)
    one = Factors(*(each[1:] for each in factors))
    assert found(problem, factors).makespan == pytest.approx(enumerated(problem, one), rel=1e-4)


@pytest.mark.parametrize(("live", "optimum"), [(None, 32), (1, 70)])
def test_by_hand_without_fluctuation(live: int | None, optimum: float) -> None:
    """As in the test of the floors: three ranks, ten micro-batches, F = B = W = 1, no delay."""
    problem = ScheduleProblem.uniform(3, 10, live_limit=live)
    best = found(problem, draws(problem, Fluctuation(0.0)))
    assert best.makespan == pytest.approx(optimum)
    assert best.proved


@given(schedule_problems(most_ranks=3, most_micro_batches=4), st.integers(0, 100))
def test_it_lies_between_the_floor_and_what_is_played(problem: ScheduleProblem, seed: int) -> None:
    problem = replace(problem, memory=(), limit=tuple(max(1.0, each) for each in problem.limit))
    factors = draws(problem, seed=seed)
    best = found(problem, factors)
    assert not violations(problem, best.schedule)
    floor = floors(problem, NOISE, samples=2, rng=np.random.default_rng(seed))[1]
    assert best.lower_bound <= best.makespan <= play(problem, checked("", problem, one_by_one(problem)), factors)[1]
    assert best.makespan >= floor * (1 - 1e-6)


@pytest.mark.parametrize("transfer", [0.0, 0.8])
def test_a_search_knows_the_draws(transfer: float) -> None:
    """From a legal order, whose own makespan it begins with, to the shortest of all where there are few."""
    links = (RankLink(0.7, transfer),)
    problem = replace(ScheduleProblem.uniform(2, 3, (1.0, 1.2, 0.5), live_limit=2), down=links, up=links)
    factors, serial = draws(problem), checked("serial", problem, one_by_one(problem))
    one = Factors(*(each[1:] for each in factors))
    assert searched_run(problem, factors, 1, serial, steps=0) == pytest.approx(float(play(problem, serial, one)[0]))
    assert searched_run(problem, factors, 1, serial, steps=500) == pytest.approx(enumerated(problem, one), rel=1e-6)


def test_memory_that_comes_back_at_b_is_refused() -> None:
    problem = ScheduleProblem.uniform(2, 3)
    early = replace(problem, memory=(MicroBatchMemory(1.0, 0.5),) * 2)
    with pytest.raises(InputError, match="comes back at W"):
        found(early, draws(early))
