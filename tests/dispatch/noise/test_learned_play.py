"""Learned dispatch on the draws of ``spread``."""

from __future__ import annotations

import numpy as np

from hippo.dispatch.base import base_from
from hippo.dispatch.network import follower
from hippo.dispatch.noise.fluctuation import Fluctuation, spread
from hippo.dispatch.noise.hindsight import floors
from hippo.dispatch.noise.learned_play import spread_learned
from hippo.schedule.methods import generate
from hippo.schedule.problem import ScheduleProblem

PROBLEM = ScheduleProblem.uniform(4, 12, (1.0, 1.05, 0.75), comm=[0.05, 3.0, 0.05], live_limit=6)
MOVES = Fluctuation(0.3, "uniform", rank_level=0.1, abnormal_share=0.02)


def test_plays_are_those_of_the_hint_on_the_same_draws() -> None:
    hint = generate("cross-domain", PROBLEM)
    base = base_from(PROBLEM, hint, 0.5)
    usual = spread(PROBLEM, hint, MOVES, samples=70, seed=4, by_hint=True, patience=0.5)
    found = spread_learned(PROBLEM, MOVES, weights=follower(), samples=70, seed=4, base=base)
    assert np.array_equal(usual.makespans, found.makespans)


def test_the_shipped_policy_never_beats_hindsight() -> None:
    found = spread_learned(PROBLEM, MOVES, samples=70, seed=4)
    assert (found.makespans >= floors(PROBLEM, MOVES, samples=70, rng=np.random.default_rng(4)) * (1 - 1e-9)).all()
