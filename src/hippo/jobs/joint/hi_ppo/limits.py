"""What limits cost under the rule alone: dual ascent without anything learned, on worlds that the compiled rule plays.

The agents begin as the rule that advises them, and it pays the same charges, so they begin with what it came to.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.jobs.joint.advice import Charges
from hippo.jobs.joint.env import COSTS
from hippo.jobs.joint.hi_ppo.settings import BEGIN, Ascending, Limits
from hippo.jobs.joint.hi_ppo.worlds import Scenes, WorldEnd, by_rule

Floats = NDArray[np.float64]


class Ascent(NamedTuple):
    """A dual ascent of N steps."""

    multipliers: Floats  # (N, COSTS) under which each step was played
    over: Floats  # (N, COSTS) what was used then over the limit; 0 where there is none

    @property
    def found(self) -> Floats:
        """(COSTS,) the mean of the second half of the multipliers (Polyak and Juditsky 1992); none: 0."""
        half = self.multipliers[len(self.multipliers) // 2 :]
        return half.mean(axis=0) if len(half) else np.zeros(len(COSTS))


def played_by_rule(scenes: Scenes, number: int, charges: Charges) -> WorldEnd:
    """A world under the rule."""
    scene = replace(scenes.scene(number), charges=charges)
    curve = by_rule(scene)
    hours = float(curve.time_s[-1] - curve.time_s[0]) / 3600.0
    return WorldEnd(1.0, curve.used, hours, len(scene.workload))


def over_limits(limits: Limits, ended: list[WorldEnd]) -> Floats:
    """(COSTS,) what worlds used together over what they may."""
    used = np.sum([each.used for each in ended], axis=0)
    found: Floats = limits.over(used, sum(each.hours for each in ended), sum(each.jobs for each in ended))
    return found


def ascent_by_rule(scenes: Scenes, limits: Limits) -> Ascent:
    """``limits.by_rule`` steps of ``limits.worlds`` worlds each, from next to nothing on."""
    steps, now = limits.by_rule, Ascending.at(np.where(np.isfinite(limits.each), BEGIN, 0.0))
    found = Ascent(np.zeros((steps, len(COSTS))), np.zeros((steps, len(COSTS))))
    for step in range(steps):
        charges, numbers = limits.charges(now.value.tolist()), range(step * limits.worlds, (step + 1) * limits.worlds)
        found.multipliers[step] = now.value
        found.over[step] = over_limits(limits, [played_by_rule(scenes, each, charges) for each in numbers])
        now = limits.ascended(now, found.over[step])
    return found
