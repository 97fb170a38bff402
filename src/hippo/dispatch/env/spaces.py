"""What a free rank sees and may answer, as Gymnasium's spaces; the legend is in ``dispatch.features``."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from hippo.dispatch.features import CHOICES, FEATURES


def observation_space() -> spaces.Dict:
    """``seen`` (FEATURES,), ``mask`` (4,) of F, B, W, WAIT; ``says``: what the base hint would do."""
    found: dict[str, gymnasium.Space[Any]] = {
        "seen": spaces.Box(-np.inf, np.inf, (FEATURES,), np.float32),
        "mask": spaces.MultiBinary(CHOICES),
        "says": spaces.Discrete(CHOICES),
    }
    return spaces.Dict(found)


def action_space() -> spaces.Discrete:
    """F, B, W = 0, 1, 2 and WAIT = 3."""
    return spaces.Discrete(CHOICES)
