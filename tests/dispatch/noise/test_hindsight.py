"""The floor of each play: by hand, and below whatever is played."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.schedule.drawn import schedule_problems

from hippo.dispatch.noise.fluctuation import Fluctuation, makespans
from hippo.dispatch.noise.hindsight import floors
from hippo.errors import InfeasibleError, InputError
from hippo.schedule.best import best
from hippo.schedule.bound.lower_bound import lower_bound
from hippo.schedule.methods import generate
from hippo.schedule.problem import ScheduleProblem


def seeded() -> np.random.Generator:
    return np.random.default_rng(5)


def floor(problem: ScheduleProblem) -> float:
    return float(floors(problem, Fluctuation(0.0), samples=1, rng=seeded())[0])


@pytest.mark.parametrize(
    ("live", "optimum"),
    [
        (None, 32),  # work: F reaches the last of three ranks at 2, which then works without a pause
        (1, 70),  # one at a time: 3 F and 3 B until home and W of rank 0, ten times
    ],
)
def test_by_hand_without_fluctuation(live: int | None, optimum: float) -> None:
    """Three ranks, ten micro-batches, F = B = W = 1, no delay."""
    assert floor(ScheduleProblem.uniform(3, 10, live_limit=live)) == pytest.approx(optimum)


def test_what_goes_home_after_the_last_backward_counts() -> None:
    """Two ranks, one micro-batch, delay 5: F F B B W and the way there and back."""
    assert floor(ScheduleProblem.uniform(2, 1, (1.0, 2.0, 4.0), comm=5.0)) == 1 + 5 + 1 + 2 + 5 + 2 + 4


@given(schedule_problems(), st.sampled_from(["gpipe", "1f1b", "zb-h1", "zb-h2"]), st.booleans())
def test_no_play_is_below_its_floor(problem: ScheduleProblem, method: str, by_hint: bool) -> None:
    try:
        schedule = generate(method, problem)
    except InfeasibleError:
        return
    moves = Fluctuation(0.3, rank_level=0.2, abnormal_share=0.1)
    played = makespans(problem, schedule, moves, samples=8, rng=seeded(), by_hint=by_hint)
    assert (floors(problem, moves, samples=8, rng=seeded()) <= played * (1 + 1e-6)).all()


@given(schedule_problems(most_ranks=4, most_micro_batches=6))
def test_without_fluctuation_it_is_a_bound_on_the_best(problem: ScheduleProblem) -> None:
    assert floor(problem) <= best(problem, time_limit_s=0.02).makespan * (1 + 1e-6)


def test_it_is_near_the_bound_of_the_problem() -> None:
    comm = [0.05, 0.05, 0.05, 5.0, 0.05, 0.05, 0.05]
    problem = ScheduleProblem.uniform(8, 32, (1.0, 1.05, 0.75), comm=comm, live_limit=16)
    assert 0.98 * lower_bound(problem) < floor(problem) <= lower_bound(problem)


def test_chunks_have_no_floor() -> None:
    with pytest.raises(InputError, match="placement"):
        floors(ScheduleProblem.uniform(2, 4).placed("v"), Fluctuation(), samples=1, rng=seeded())
