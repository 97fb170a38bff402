"""Warm-ups keep their pace when played, and shallower ones do not."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from hippo.planners.run_ahead import ChainTimes, deeper, fitting_warm_up, least_warm_up, warm_ups
from hippo.schedule.schedule import order
from hippo.simulate import fast
from hippo.simulate.abstract import abstract_program

WAVES = 120


def played_s(forward: np.ndarray, seconds: np.ndarray, delays: np.ndarray, ahead: np.ndarray) -> float:
    """Step time of the waves with these warm-ups on links that delay only."""
    schedule = order("cross-domain", stages=len(ahead), micro_batches=WAVES, warm_up=tuple(int(each) for each in ahead))
    program = abstract_program(
        schedule,
        forward_s=forward.tolist(),
        backward_s=(seconds - forward).tolist(),
        delay_s=(delays[1:] / 2).tolist(),
    )
    return fast.step_time(program)


def random_chain(seed: int, p: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    seconds = rng.uniform(0.5, 1.5, p)
    delays = rng.uniform(0.0, 6.0, p)
    delays[0] = 0.0
    return seconds * rng.uniform(0.2, 0.5, p), seconds, delays


@pytest.mark.parametrize("seed", range(10))
def test_the_least_warm_up_keeps_the_pace(seed: int) -> None:
    forward, seconds, delays = random_chain(seed, 4)
    pace, ahead = float(seconds.max()), np.empty(4)
    least_warm_up(seconds, delays, pace, WAVES, ahead)
    assert (np.diff(ahead) <= 0).all()
    fill_and_drain = 2 * (seconds.sum() + delays.sum())
    assert played_s(forward, seconds, delays, ahead) <= WAVES * pace + fill_and_drain


def test_one_wave_less_ahead_and_the_border_sets_the_pace() -> None:
    # Two stages of 1 s, a round trip of 3 s between them: a wave is away for 5 s, so 5 must be under way.
    forward, seconds, delays = np.array([0.4, 0.4]), np.ones(2), np.array([0.0, 3.0])
    ahead = np.empty(2)
    least_warm_up(seconds, delays, 1.0, WAVES, ahead)
    assert ahead.tolist() == [5.0, 1.0]
    kept, lost = (played_s(forward, seconds, delays, np.array([first, 1])) for first in (5, 4))
    assert kept < WAVES * 1.0 + 10
    assert lost > WAVES * 1.0 * 5 / 4 - 10


@pytest.mark.parametrize("seed", range(6))
def test_where_memory_is_short_the_pace_is_the_best_that_fits(seed: int) -> None:
    _, seconds, delays = random_chain(seed, 3)
    room, found, shallow = np.array([3.0, 2.0, 2.0]), np.empty(3), np.empty(3)
    pace = fitting_warm_up(seconds, delays, float(seconds.max()), WAVES, room, found)
    assert (found <= room).all()
    least_warm_up(seconds, delays, pace * 0.999, WAVES, shallow)
    assert pace == pytest.approx(seconds.max()) or (shallow > room).any()
    assert fitting_warm_up(seconds, delays, 1.0, WAVES, np.array([3.0, 0.0, 2.0]), found) == np.inf


def test_deeper_ones_fit_fall_and_end_with_the_least() -> None:
    least, wanted, room = np.array([4.0, 2.0, 1.0]), np.array([9.0, 8.0, 2.0]), np.array([8.0, 8.0, 3.0])
    found = deeper(least, wanted, room)
    assert found[-1] == (4, 2, 1)
    assert len(set(found)) == len(found)
    for each in found:
        assert all(a >= b for a, b in pairwise(each))
        assert (np.array(each) <= room).all()


def test_warm_ups_worth_a_play() -> None:
    forward, seconds, delays = random_chain(1, 3)
    chain = ChainTimes(forward, seconds, delays, np.array([9.0, 7.0, 8.0]), 6, 1.2)
    found = warm_ups(chain)
    assert 1 <= len(found) <= 3
    assert all(6 >= a >= b >= 1 for each in found for a, b in pairwise(each))
    assert warm_ups(ChainTimes(forward, seconds, delays, np.array([9.0, 0.0, 8.0]), 6, 1.2)) == []
    assert warm_ups(ChainTimes(forward[:1], seconds[:1], delays[:1], np.ones(1), 6, 0.0)) == [()]


def test_a_stage_whose_forward_takes_no_time_is_never_idle() -> None:
    """As a profile may have it of an embedding alone: it runs as far ahead as memory allows."""
    forward, seconds, delays = np.array([0.0, 0.4, 0.0]), np.array([0.1, 1.0, 0.1]), np.array([0.0, 3.0, 3.0])
    found = warm_ups(ChainTimes(forward, seconds, delays, np.array([20.0, 9.0, 9.0]), 16, 0.0))
    assert found[0] == (15, 8, 1)  # nine tenths of the way from the least, (9, 5, 1) here, to 16 waves and to memory
    assert all(first >= second for ways in found for first, second in pairwise(ways))
