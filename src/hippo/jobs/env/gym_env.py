"""The queue as a Gymnasium environment: one agent for the whole site."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from hippo.jobs.env.env import LARGEST, MOST_CANDIDATES, C, F, Queue, QueueEnv, QueueObservation

Seen = dict[str, NDArray[Any]]


def _as_dictionary(seen: QueueObservation) -> Seen:
    return {"candidates": seen.candidates, "context": seen.context, "action_mask": seen.mask.astype(np.int8)}


class JobsEnv(gymnasium.Env[Seen, np.int64]):
    """``QueueEnv`` for Gymnasium. A masked answer counts as the first that is allowed, so that its checker may answer
    at random; ``info["action_mask"]`` says what is allowed, as ``sb3_contrib`` wants it, too."""

    metadata = {"render_modes": []}

    def __init__(self, queue: Queue, *, candidates: int = MOST_CANDIDATES) -> None:
        self.env = QueueEnv(queue, candidates=candidates)
        parts: dict[str, spaces.Space[Any]] = {
            "candidates": spaces.Box(-LARGEST, LARGEST, (candidates, F), np.float32),
            "context": spaces.Box(-LARGEST, LARGEST, (C,), np.float32),
            "action_mask": spaces.MultiBinary(candidates + 1),
        }
        self.observation_space: spaces.Space[Any] = spaces.Dict(parts)
        self.action_space = spaces.Discrete(candidates + 1)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Seen, dict[str, Any]]:
        """A workload that is drawn."""
        super().reset(seed=seed)
        self._seen = self.env.reset(seed)
        return self._told(self._seen)

    def step(self, action: np.int64) -> tuple[Seen, float, bool, bool, dict[str, Any]]:
        """One answer, and whatever time passes before the next."""
        allowed = self._seen.mask
        came = self.env.step(int(action) if allowed[action] else int(np.argmax(allowed)))
        self._seen = came.observation
        seen, info = self._told(came.observation)
        return seen, came.reward, came.done, False, info

    def action_masks(self) -> NDArray[np.bool_]:
        """What may be answered now."""
        return self._seen.mask

    def _told(self, seen: QueueObservation) -> tuple[Seen, dict[str, Any]]:
        return _as_dictionary(seen), {"action_mask": seen.mask}
