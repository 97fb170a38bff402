"""Dispatch as Gymnasium's environments: one play, and several side by side.

A play that ends is told in ``terminations``, and the observation that comes with it is the first of the next play
(``AutoresetMode.SAME_STEP``; ``info["final_obs"]`` holds zeros: after its last operation a play has nothing to decide).
Choices that are masked count as what the base hint would do, so that a checker's random actions are allowed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from hippo.dispatch.env.env import DispatchEnv, DispatchObservation
from hippo.dispatch.env.generator import DispatchWorld, drawn_world
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


Seen = dict[str, Any]
Worlds = Callable[[np.random.Generator], DispatchWorld]


def as_dictionary(observation: DispatchObservation) -> Seen:
    """Masks as the integers that ``MultiBinary`` holds."""
    return {
        "seen": observation.seen,
        "mask": observation.mask.astype(np.int8),
        "says": np.int64(observation.says),
    }


class DispatchGym(gymnasium.Env[Seen, np.int64]):
    """A single play at a time. At its end the observation is zeros."""

    metadata = {"render_modes": []}

    def __init__(self, world: Worlds = drawn_world) -> None:
        self.plays = DispatchEnv(world)
        self.observation_space, self.action_space = observation_space(), action_space()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Seen, dict[str, Any]]:
        """A new play."""
        super().reset(seed=seed)
        return as_dictionary(self.plays.begin(seed=seed)), {}

    def step(self, action: np.int64) -> tuple[Seen, float, bool, bool, dict[str, Any]]:
        """One decision, and what happens until the next."""
        came = self.plays.act(int(action))
        info = {"makespan": self.plays.makespan} if came.done else {}
        return as_dictionary(came.observation), came.reward, came.done, False, info


class DispatchVectorEnv(VectorEnv[Seen, NDArray[np.int64], NDArray[Any]]):
    """``num_envs`` plays, each of worlds of its own."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": []}

    def __init__(self, num_envs: int, world: Worlds = drawn_world, *, seed: int = 0) -> None:
        self.num_envs = num_envs
        self.plays = [DispatchEnv(world, seed=seed + number) for number in range(num_envs)]
        self.single_observation_space, self.single_action_space = observation_space(), action_space()
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Seen, dict[str, Any]]:
        """New plays; a number seeds the first, the others take the numbers that follow."""
        seeds = seed if isinstance(seed, list) else [None if seed is None else seed + i for i in range(self.num_envs)]
        return _stacked([env.begin(seed=one) for env, one in zip(self.plays, seeds, strict=True)]), {}

    def step(
        self, actions: NDArray[np.int64]
    ) -> tuple[Seen, NDArray[Any], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """One decision in each play."""
        came = [env.act(int(action)) for env, action in zip(self.plays, actions, strict=True)]
        done = np.array([each.done for each in came])
        info: dict[str, Any] = {}
        if done.any():
            final = np.full(self.num_envs, None, dtype=object)
            for play in np.flatnonzero(done):
                final[play] = as_dictionary(came[play].observation)
            info = {"final_obs": final, "_final_obs": done.copy()}
        seen = [env.begin() if each.done else each.observation for env, each in zip(self.plays, came, strict=True)]
        return _stacked(seen), np.array([each.reward for each in came]), done, np.zeros_like(done), info


def _stacked(seen: list[DispatchObservation]) -> Seen:
    each = [as_dictionary(one) for one in seen]
    return {name: np.stack([one[name] for one in each]) for name in each[0]}
