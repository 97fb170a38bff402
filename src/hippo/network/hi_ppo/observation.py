"""What a decision looks at, worked out once: the upper agent's observation and the receding horizon's first steps.

Both rest on one table of what every configuration would do under the forecast (``hippo.network.observation.scene``),
by the planes of step times, and on one look ahead over sequences of moves.

Letters: C configurations, P places.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hippo.network.methods.receding_horizon import Firsts
from hippo.network.observation.features import Observation
from hippo.network.observation.observe import observe, scene_of
from hippo.network.observation.scene import Scene
from hippo.network.rules.move import STILL
from hippo.network.rules.view import Action, View


class Observed(NamedTuple):
    """One view as the agents observe it."""

    observation: Observation
    answers: tuple[Action, ...]  # of each option
    firsts: Firsts | None = None  # None: whoever needs them looks ahead


def observed(view: View, *, quiet: float) -> Observed:
    """From a view to what the upper agent sees; ``quiet``: epochs since the last decision that changed something."""
    scene = scene_of(view)
    observation, answers = observe(view, quiet=quiet, scene=scene)
    return Observed(observation, answers, firsts_in(scene, view))


def firsts_in(scene: Scene, view: View) -> Firsts | None:
    """First steps from where the view's run stands; None: it stands nowhere, or a move is under way."""
    if view.running < 0 or view.phase != STILL:
        return None
    worth = 1.0 - scene.usd / view.usd_per_token if view.usd_per_token > 0 else np.ones(len(scene.usd))
    rates = np.asarray(scene.tokens[0, 0] * worth, dtype=np.float64)
    first, member = scene.first, scene.member
    leads = np.array(
        [member[a:b][np.argmax(rates[member[a:b]])] for a, b in zip(first[:-1], first[1:], strict=True)],
        dtype=np.int64,
    )
    here = int(scene.place[view.running])
    gains = np.array(scene.ahead[0, here], dtype=np.float64).reshape(-1, 2)
    gains[here] = -np.inf  # holds what standing there gives
    return Firsts(rates, leads, gains)
