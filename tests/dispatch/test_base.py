"""The base hint of a problem: the best pair of order and patience at the unsteadiness that steps before have shown."""

from __future__ import annotations

import gc
import weakref
from itertools import product

import pytest

from hippo.dispatch.base import HINTS, LEVELS, PATIENCES, base_of, nearest_level, pair_name, pairs_of
from hippo.dispatch.network import follower
from hippo.dispatch.noise.fluctuation import Fluctuation, spread
from hippo.dispatch.noise.learned_play import spread_learned
from hippo.errors import InfeasibleError
from hippo.schedule.methods import generate
from hippo.schedule.problem import ScheduleProblem

SLOW = ScheduleProblem.uniform(6, 18, (1.0, 1.05, 0.75), comm=1.0, live_limit=6)  # zb-h2 does not fit


@pytest.mark.parametrize("level", LEVELS)
def test_the_base_is_near_the_best_pair_on_other_draws(level: float) -> None:
    """A few plays choose it; on two hundred others it is at most .5 % behind the best of all pairs."""
    noise, means = Fluctuation(level), {}
    samples = 200 if level else 1
    for name, patience in product(HINTS, PATIENCES):
        try:
            hint = generate(name, SLOW)
        except InfeasibleError:
            continue
        played = spread(SLOW, hint, noise, samples=samples, seed=7, by_hint=True, patience=patience)
        means[name, patience] = played.mean
    hint, patience = pairs_of(SLOW, level)[0]
    own = means[hint.name, patience]
    assert own <= 1.005 * min(means.values())
    untrained = spread_learned(SLOW, noise, weights=follower(), samples=samples, seed=7, guarded=False)
    assert untrained.mean == pytest.approx(own)


def test_what_is_told_is_rounded_to_a_level() -> None:
    told = {0.0: 0.0, 0.02: 0.0, 0.03: 0.05, 0.06: 0.05, 0.17: 0.2, 0.36: 0.3, 1.0: 0.3}
    assert {each: nearest_level(each) for each in told} == told
    assert base_of(SLOW, 0.36).patience == base_of(SLOW, 0.3).patience


def test_the_level_matters_where_links_are_slow() -> None:
    names = {pair_name(*pairs_of(SLOW, level)[0]) for level in LEVELS}
    assert len(names) > 1, names


def test_nothing_of_the_callers_is_kept() -> None:
    """A method that does not fit raises on the way; its error must not keep the frames above it."""

    class Held:
        pass

    def caller() -> weakref.ref[Held]:
        held = Held()
        base_of(ScheduleProblem.uniform(3, 7, (1.0, 1.0, 0.5), comm=0.3, live_limit=3))
        return weakref.ref(held)

    gc.disable()  # it would find the circle, some time
    try:
        assert caller()() is None
    finally:
        gc.enable()
