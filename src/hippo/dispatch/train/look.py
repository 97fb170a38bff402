"""How good a dispatch policy is on worlds that it does not learn from: how much shorter than its base hint."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hippo.dispatch.env.generator import DispatchWorld, asked_problem, drawn_world
from hippo.dispatch.network import DispatchWeights, follower
from hippo.dispatch.noise.fluctuation import Fluctuation
from hippo.dispatch.noise.learned_play import spread_learned
from hippo.dispatch.train.settings import Settings

_SEED = 1_000_003  # of validation, far from those of learning


@dataclass(frozen=True)
class Look:
    """Worlds to look at, and of which kind each of them is."""

    worlds: tuple[DispatchWorld, ...]
    kinds: tuple[str, ...]
    draws: int

    @cached_property
    def usual(self) -> list[NDArray[np.float64]]:
        """Makespans (draws,) of each world under its base hint."""
        return self._plays(follower())

    def gains(self, weights: DispatchWeights) -> NDArray[np.float64]:
        """Percent by which the mean makespan of each world is below its base hint's, on the same draws."""
        pairs = zip(self.usual, self._plays(weights), strict=True)
        return np.array([100 * (usual.mean() - found.mean()) / usual.mean() for usual, found in pairs])

    def figures(self, weights: DispatchWeights) -> dict[str, float]:
        """Mean gain of each kind of worlds, the least gain, and the mean over kinds (what policies are chosen by)."""
        gains, kinds = self.gains(weights), np.array(self.kinds)
        means = {f"validation/{kind}": float(gains[kinds == kind].mean()) for kind in dict.fromkeys(self.kinds)}
        return means | {"validation/least": float(gains.min()), "validation/gain": float(np.mean(list(means.values())))}

    def _plays(self, weights: DispatchWeights) -> list[NDArray[np.float64]]:
        return [
            spread_learned(
                world.problem,
                world.fluctuation,
                weights=weights,
                samples=self.draws,
                seed=_SEED + number,
                guarded=False,
            ).makespans
            for number, world in enumerate(self.worlds)
        ]


def look_of(settings: Settings) -> Look:
    """The asked worlds, with both memories and both kinds of fluctuation; worlds on the grid; drawn worlds."""
    given, rng = settings.worlds, np.random.default_rng([_SEED, settings.run.seed])
    worlds = [
        DispatchWorld(asked_problem(limit), Fluctuation(0.3, kind))
        for limit in (8, 16)
        for kind in ("normal", "uniform")
    ]
    kinds = ["asked"] * len(worlds)
    for kind, share, count in (("grid", 1.0, given.validation // 2), ("drawn", 0.0, given.validation)):
        worlds += [drawn_world(rng, asked=0.0, grid=share, most_ranks=given.most_ranks) for _ in range(count)]
        kinds += [kind] * count
    return Look(tuple(worlds), tuple(kinds), given.validation_draws)
