"""The world as a Gymnasium environment: one agent makes all choices, one after another.

Many side by side: ``gymnasium.vector.SyncVectorEnv`` or, in processes of their own, ``AsyncVectorEnv``.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from hippo.jobs.joint.turns import ANSWERS, UPPER, SiteTurns
from hippo.learn.turns import ALLOWED, allowed

Choices = dict[str, NDArray[Any]]


class SiteGym(gymnasium.Env[Choices, np.int64]):
    """``SiteTurns`` for Gymnasium: a job, then a place, then a shape, each an answer of its own (``asked`` says which).

    A masked answer counts as the first that is allowed, so that Gymnasium's checker may answer at random;
    ``info["action_mask"]`` says what is allowed, as ``sb3_contrib`` wants it, too. The reward is the upper agent's.
    ``reset(seed=..)`` plays the world of that number. At the end the observation is zeros, and an answer is
    allowed that nobody hears.
    """

    metadata = {"render_modes": []}

    def __init__(self, turns: SiteTurns) -> None:
        self.turns = turns
        parts: dict[str, spaces.Space[Any]] = {**turns.sight_spaces, ALLOWED: spaces.MultiBinary(ANSWERS)}
        self.observation_space: spaces.Space[Any] = spaces.Dict(parts)
        self.action_space = spaces.Discrete(ANSWERS)
        self._parts = parts

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Choices, dict[str, Any]]:
        """The next world, or world number ``seed``."""
        super().reset(seed=seed)
        self.turns.reset(seed)
        return self._told()

    def step(self, action: np.int64) -> tuple[Choices, float, bool, bool, dict[str, Any]]:
        """One choice, and whatever time passes before the next."""
        answer = allowed(self.action_masks(), int(action))
        _, rewards, over = self.turns.step({self.turns.who: answer})
        if not over:
            seen, info = self._told()
            return seen, rewards[UPPER], False, False, info
        seen = {name: np.zeros(each.shape or (), each.dtype) for name, each in self._parts.items()}
        seen[ALLOWED][0] = 1
        return seen, rewards[UPPER], True, False, {**self.turns.figures, ALLOWED: seen[ALLOWED].astype(bool)}

    def action_masks(self) -> NDArray[np.bool_]:
        """What may be answered now."""
        now = self.turns.mask
        return np.append(now, np.zeros(ANSWERS - len(now), np.bool_))

    def _told(self) -> tuple[Choices, dict[str, Any]]:
        mask = self.action_masks()
        return {**self.turns.sight(), ALLOWED: mask.astype(np.int8)}, {ALLOWED: mask}
