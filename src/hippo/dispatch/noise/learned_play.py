"""Learned dispatch under fluctuation, on the same draws as ``fluctuation.spread``: differences are paired.

Letters: p ranks, m micro-batches, n plays.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hippo.dispatch.base import UNKNOWN, Base, base_of
from hippo.dispatch.guard import settled
from hippo.dispatch.network import DispatchWeights, shipped
from hippo.dispatch.noise.fluctuation import Factors, Fluctuation, MakespanSpread, drawn
from hippo.dispatch.play import play_all
from hippo.dispatch.state import new_state
from hippo.schedule.problem import ScheduleProblem


def play_learned(
    problem: ScheduleProblem,
    weights: DispatchWeights,
    factors: Factors,
    *,
    level: float = UNKNOWN,
    base: Base | None = None,
    guarded: bool = True,
) -> NDArray[np.float64]:
    """Makespans (n,) under draws that are there already; errors as of ``dispatch.dispatch``.

    ``level``: how unsteady operations were in the steps before. ``base``: the hint that the policy looks at; the
    problem's own when it is left out. ``guarded``: which of its bases it is, and whether the policy is followed, trial
    plays say (``dispatch.guard``).
    """
    found = np.empty(len(factors.ranks))
    if base is None and guarded:
        chosen = settled(problem, weights, level)
        base, weights = chosen.base, chosen.weights
    play_all(new_state(problem), base_of(problem, level) if base is None else base, weights, *factors, found)
    return found


def spread_learned(
    problem: ScheduleProblem,
    fluctuation: Fluctuation,
    *,
    weights: DispatchWeights | None = None,
    samples: int = 1000,
    seed: int = 0,
    told: float | None = None,
    base: Base | None = None,
    guarded: bool = True,
) -> MakespanSpread:
    """Expected makespan and percentiles of a policy (the shipped one); equal seeds mean the draws of ``spread``.

    ``told``: how unsteady the steps before were; left out, as unsteady as these are.
    """
    level = fluctuation.deviation if told is None else told
    weights, rng = shipped() if weights is None else weights, np.random.default_rng(seed)
    played = [
        play_learned(problem, weights, each, level=level, base=base, guarded=guarded)
        for each in drawn(problem, fluctuation, samples=samples, rng=rng)
    ]
    return MakespanSpread(np.concatenate(played))
