"""The environment as Gymnasium's vector environment: decisions of the upper agent, observations as a dictionary.

A run that ends is told in ``terminations``, and the observation that comes with it is the first of the next run, as
``AutoresetMode.SAME_STEP`` says (``info["final_obs"]`` holds zeros: after its last epoch a run has nothing to decide).
Actions that are masked count as keeping, so that the checker's random actions are allowed.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from hippo.network.env.dataset import Dataset
from hippo.network.env.env import DecisionRules, Env
from hippo.network.env.reward import COSTS
from hippo.network.observation.features import CONTEXT, EDGES, MOST_OPTIONS, NODES, OPTIONS, Observation

Seen = dict[str, NDArray[Any]]


def observation_space(domains: int) -> spaces.Dict:
    """What one run sees, with room for so many domains."""
    shapes = {
        "nodes": (domains, NODES),
        "edges": (domains, domains, EDGES),
        "context": (CONTEXT,),
        "options": (MOST_OPTIONS, OPTIONS),
        "option_nodes": (MOST_OPTIONS, domains),
        "option_edges": (MOST_OPTIONS, domains, domains),
    }
    numbers: dict[str, gymnasium.Space[Any]] = {
        name: spaces.Box(-np.inf, np.inf, shape, np.float32) for name, shape in shapes.items()
    }
    masks = {"node_mask": spaces.MultiBinary(domains), "option_mask": spaces.MultiBinary(MOST_OPTIONS)}
    return spaces.Dict(numbers | masks)


def as_dictionary(observation: Observation) -> Seen:
    """Masks as the integers that ``MultiBinary`` holds."""
    return {
        name: array.astype(np.int8) if array.dtype == np.bool_ else array
        for name, array in observation._asdict().items()
    }


class CrossDomainVectorEnv(VectorEnv[Seen, NDArray[np.int64], NDArray[Any]]):
    """``num_envs`` runs over the worlds of a dataset."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": []}

    def __init__(self, dataset: Dataset, num_envs: int, *, seed: int = 0, rules: DecisionRules | None = None) -> None:
        self.env = Env(dataset, num_envs, seed=seed, rules=rules)
        self.num_envs = num_envs
        self.single_observation_space = observation_space(dataset.domains)
        self._each = dict(self.single_observation_space.items())
        self.single_action_space = spaces.Discrete(MOST_OPTIONS)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Seen, dict[str, Any]]:
        """New runs. A list of seeds: its first that is given; the runs draw from one source."""
        given = next((each for each in seed if each is not None), None) if isinstance(seed, list) else seed
        return as_dictionary(self.env.reset(seed=given)), {}

    def step(
        self, actions: NDArray[np.int64]
    ) -> tuple[Seen, NDArray[Any], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """One decision in each run; ``info`` holds the costs, (num_envs,) each, epochs passed and work done."""
        came = self.env.step(actions)
        info: dict[str, Any] = {f"cost_{name}": came.costs[:, each] for each, name in enumerate(COSTS)}
        info |= {"epochs": came.epochs, "work": came.work}
        if came.done.any():
            final = np.full(self.num_envs, None, dtype=object)
            for run in np.flatnonzero(came.done):
                final[run] = {name: np.zeros(space.shape or (), space.dtype) for name, space in self._each.items()}
            info |= {"final_obs": final, "_final_obs": came.done.copy()}
        return as_dictionary(came.observation), came.reward, came.done, np.zeros_like(came.done), info


class CrossDomainEnv(gymnasium.Env[Seen, np.int64]):
    """A single run at a time. At its end the observation is zeros."""

    metadata = {"render_modes": []}

    def __init__(self, dataset: Dataset, *, rules: DecisionRules | None = None) -> None:
        self.runs = CrossDomainVectorEnv(dataset, 1, rules=rules)
        self.observation_space = self.runs.single_observation_space
        self.action_space = self.runs.single_action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Seen, dict[str, Any]]:
        """A new run."""
        super().reset(seed=seed)
        seen, _ = self.runs.reset(seed=seed)
        return {name: array[0] for name, array in seen.items()}, {}

    def step(self, action: np.int64) -> tuple[Seen, float, bool, bool, dict[str, Any]]:
        """One decision, and the epochs up to the next."""
        seen, reward, done, _, info = self.runs.step(np.array([action]))
        ended = bool(done[0])
        told = {name: array[0] for name, array in info.items() if not name.endswith("final_obs")}
        now = info["final_obs"][0] if ended else {name: array[0] for name, array in seen.items()}
        return now, float(reward[0]), ended, False, told
