"""No play looks ahead: what has not happened by some moment changes nothing of what was done until then."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from hippo.dispatch.base import base_of
from hippo.dispatch.dispatch import Draws, one_play
from hippo.dispatch.env.generator import drawn_world
from hippo.dispatch.network import DispatchWeights, shipped
from hippo.dispatch.noise.fluctuation import drawn
from hippo.dispatch.noise.timed_play import TimedPlay, timed
from hippo.schedule.problem import ScheduleProblem

Array = NDArray[np.float64]


def noisy(rng: np.random.Generator) -> DispatchWeights:
    """The policy that ships, shaken until it does other things."""
    return DispatchWeights(*(each + rng.normal(0, 0.3, each.shape).astype(np.float32) for each in shipped()))


def starts(problem: ScheduleProblem, weights: DispatchWeights, draws: Draws) -> Array:
    found = np.empty((3, problem.ranks, problem.micro_batches))
    one_play(problem, base_of(problem), weights, draws, found)
    return found


def other_future(play: TimedPlay, draws: Draws, now: float, rng: np.random.Generator) -> Draws:
    """Draws that nobody could tell from these by ``now``: anything for what had not begun by then, a longer rest for
    what was under way."""
    operations, messages = draws[0].reshape(play.start.shape).copy(), draws[1].reshape(2, *play.start.shape[1:]).copy()
    begun, ended = play.start <= now, play.end <= now
    operations[~begun] = rng.uniform(0.1, 3, (~begun).sum())
    operations[begun & ~ended] *= rng.uniform(1, 3, (begun & ~ended).sum())
    arrived = np.zeros(messages.shape)
    arrived[0, :-1], arrived[1, 1:] = play.arrived[0, 1:], play.arrived[1, :-1]
    sent = ended[:2]
    messages[~sent] = rng.uniform(0.1, 5, (~sent).sum())
    messages[sent & (arrived > now)] *= rng.uniform(1, 4, (sent & (arrived > now)).sum())
    return operations.ravel().astype(np.float32), messages.ravel().astype(np.float32), draws[2]


@pytest.mark.parametrize("seed", range(30))
def test_what_is_done_by_a_moment_does_not_depend_on_what_comes_later(seed: int) -> None:
    rng = np.random.default_rng([77, seed])
    world = drawn_world(rng, most_ranks=8)
    problem = world.problem
    factors = next(drawn(problem, world.fluctuation, samples=1, rng=rng))
    draws = factors.operations[0], factors.messages[0], factors.ranks[0]
    for weights in (shipped(), noisy(rng)):
        usual = starts(problem, weights, draws)
        play = timed(problem, factors, 0, usual)
        now = rng.uniform(0.1, 0.9) * play.makespan
        again = starts(problem, weights, other_future(play, draws, now, rng))
        early = usual <= now
        assert 0 < early.sum() < early.size
        assert np.array_equal(usual[early], again[early])
        assert (again[~early] > now).all()
        assert not np.array_equal(usual, again)  # later on it did matter
