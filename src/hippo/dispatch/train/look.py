"""How good a dispatch policy is on worlds that it does not learn from: how much shorter than its base hint."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hippo.dispatch.env.generator import LOOK, DispatchWorld, drawn_world
from hippo.dispatch.network import DispatchWeights, follower
from hippo.dispatch.noise.learned_play import spread_learned
from hippo.dispatch.train.settings import Settings

_SEED = 1_000_003  # of validation, far from those of learning


@dataclass(frozen=True)
class Look:
    """Worlds to look at."""

    worlds: tuple[DispatchWorld, ...]
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
        """The mean gain (what policies are chosen by), and the least."""
        gains = self.gains(weights)
        return {"validation/least": float(gains.min()), "validation/gain": float(gains.mean())}

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
    """Worlds of shapes that nothing is learned on, the same for every seed of a run."""
    given, rng = settings.worlds, np.random.default_rng(_SEED)
    worlds = [drawn_world(rng, side=LOOK, most_ranks=given.most_ranks) for _ in range(given.validation)]
    return Look(tuple(worlds), given.validation_draws)
