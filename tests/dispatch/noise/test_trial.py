"""Everybody on the same draws: the figures are those of the plays, and verdicts need intervals apart."""

from __future__ import annotations

import numpy as np
import pytest

from hippo.dispatch.noise.fluctuation import Fluctuation, MakespanSpread, spread
from hippo.dispatch.noise.learned_play import spread_learned
from hippo.dispatch.noise.robust_order import FIXED, HINT
from hippo.dispatch.noise.trial import ORDERS, PATIENT, FluctuationTrial, TriedOrder, trial
from hippo.errors import InputError
from hippo.schedule.methods import generate
from hippo.schedule.problem import ScheduleProblem

PROBLEM = ScheduleProblem.uniform(4, 8, (1.0, 1.05, 0.75), comm=[0.05, 5.0, 0.05], live_limit=8)
NOISE = Fluctuation(0.3)


@pytest.fixture(scope="module")
def found() -> FluctuationTrial:
    return trial(PROBLEM, NOISE, samples=20, seeds=(1, 2, 3))


def test_everybody_played_the_draws_of_every_seed(found: FluctuationTrial) -> None:
    schedule = generate("zb-h2", PROBLEM)
    for by_hint, kind in ((False, "fixed"), (True, "hint")):
        apart = [
            spread(PROBLEM, schedule, NOISE, samples=20, seed=seed, by_hint=by_hint).makespans for seed in (1, 2, 3)
        ]
        baseline = found.of("zb-h2", kind)
        assert baseline is not None
        np.testing.assert_array_equal(baseline.spread.makespans, np.concatenate(apart))
    learned = [spread_learned(PROBLEM, NOISE, samples=20, seed=seed).makespans for seed in (1, 2, 3)]
    np.testing.assert_array_equal(found.learned.makespans, np.concatenate(learned))


def test_nobody_is_below_the_floor_of_a_play(found: FluctuationTrial) -> None:
    for each in (found.learned, *(one.spread for one in found.baselines)):
        assert (each.makespans >= found.floor * (1 - 1e-6)).all()
    assert found.above_floor[0] >= 0


def test_the_best_of_a_kind_is_the_least_mean(found: FluctuationTrial) -> None:
    assert len(found.baselines) == len(ORDERS) * (2 + len(PATIENT))
    for kind, announces in (("hint", False), ("patient", True)):
        means = [each.spread.mean for each in found.baselines if each.way.by_hint and each.way.announces == announces]
        assert found.best(kind).spread.mean == min(means)
    assert found.best().spread.mean == min(each.spread.mean for each in found.baselines)


def test_an_order_above_the_memory_advises_only() -> None:
    tight = ScheduleProblem.uniform(4, 8, (1.0, 1.05, 0.75), live_limit=4)
    short = trial(tight, NOISE, samples=2)
    assert short.of("zb-h2", "fixed") is None
    assert short.of("zb-h2", "hint") is not None


def test_where_nothing_moves_one_play_says_all() -> None:
    still = trial(PROBLEM, Fluctuation(0.0), samples=50, seeds=(1, 2))
    assert len(still.learned.makespans) == 1
    assert len(trial(PROBLEM, Fluctuation(0.0, abnormal_share=0.1), samples=3, seeds=(1, 2)).floor) == 6


def made(learned: list[float], fixed: list[float], hint: list[float]) -> FluctuationTrial:
    spreads = [MakespanSpread(np.array(each)) for each in (fixed, hint, learned)]
    baselines = (TriedOrder("zb-h1", FIXED, spreads[0]), TriedOrder("zb-h1", HINT, spreads[1]))
    return FluctuationTrial(PROBLEM, NOISE, baselines, spreads[2], np.ones(len(learned)), 2)


@pytest.mark.parametrize(
    ("learned", "verdict"),
    [
        ([9.0, 19.1, 28.9, 39.0], "learned"),  # ahead of both on each play
        ([11.0, 19.0, 30.5, 39.5], "even"),  # ahead and behind
        ([11.0, 21.1, 31.0, 40.9], "hint"),  # behind the better one
    ],
)
def test_verdicts_by_hand(learned: list[float], verdict: str) -> None:
    hint = [10.0, 20.0, 30.0, 40.0]
    assert made(learned, [each + 5 for each in hint], hint).verdict == verdict


def test_a_fixed_order_may_be_the_best_baseline() -> None:
    assert made([11.0, 21.0, 31.0, 41.0], [10.0, 20.0, 30.0, 40.0], [12.0, 22.0, 32.0, 42.0]).verdict == "fixed"


def test_sums_in_another_order_put_nobody_ahead() -> None:
    fixed = [10.0, 20.0, 30.0, 40.0]
    each = made([one * (1 - 1e-12) for one in fixed], fixed, [one + 5 for one in fixed])
    assert [each.side(other) for other in each.baselines] == [0, 1]
    for gain, side in ((1e-11, 0), (1.0, -1)):
        behind = made(fixed, [one - gain for one in fixed], fixed)
        assert behind.side(behind.best()) == side


def test_what_is_saved_is_taken_play_by_play() -> None:
    each = made([9.0, 18.0, 27.0, 36.0], [10.0, 20.0, 30.0, 40.0], [99.0] * 4)
    share, error = each.saved(each.best())
    assert share == pytest.approx(0.1)
    assert error == pytest.approx(1.96 * np.std([1, 2, 3, 4], ddof=1) / 2 / 25)
    assert each.seeds_ahead(each.best()) == (2, 2)


def test_no_seed_is_refused() -> None:
    with pytest.raises(InputError, match="seed"):
        trial(PROBLEM, NOISE, samples=2, seeds=())


@pytest.mark.parametrize("live", [8, pytest.param(16, marks=pytest.mark.slow)])
def test_the_policy_that_ships_beats_every_baseline_where_one_link_is_slow(live: int) -> None:
    """p 8, m 32, one middle link of 5 F, 30 %: plays that it was not trained on."""
    delays = [0.05] * 3 + [5.0] + [0.05] * 3
    problem = ScheduleProblem.uniform(8, 32, (1.0, 1.05, 0.75), comm=delays, live_limit=live)
    found = trial(problem, NOISE, samples=60, seeds=(4321,))
    assert found.verdict == "learned", found.saved(found.best())
