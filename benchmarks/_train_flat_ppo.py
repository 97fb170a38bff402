"""Trains the flat rival: MaskablePPO of sb3-contrib on the same worlds, and writes its layers.

    python benchmarks/_train_flat_ppo.py [FOLDER] [minutes] [seed]

The same dataset, rewards, options and masks as ``hippo train``; a plain network of two layers of 128 on the numbers
laid end to end, no graph, no hierarchy, no multipliers. Library defaults but for the discount, the batch and the size
of the network; the policy that does best on the validation worlds is kept, as for Hi-PPO.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from sb3_contrib import MaskablePPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv

from hippo.files import write_whole
from hippo.network.env.env import DecisionRules, Env
from hippo.network.hi_ppo.flat_ppo import FILE, FORM, WIDTH, flat, flat_mask
from hippo.network.observation.features import MOST_OPTIONS, Observation
from hippo.network.train.rollout import Envs
from hippo.network.train.settings import HiPpoSettings
from hippo.network.train.worlds import Validation, datasets

PARALLEL = 128
DECISIONS = 32  # of each world per update
EPOCHS = 4.5  # between two decisions, in the mean: the library discounts by the decision


class Flat(VecEnv):  # type: ignore[misc]
    """Worlds side by side in the form of Stable-Baselines3."""

    def __init__(self, envs: Envs, size: int) -> None:
        self.envs, self.seen = envs, envs.reset()
        self.actions = np.zeros(size, np.int64)
        super().__init__(size, Box(-np.inf, np.inf, (WIDTH,), np.float32), Discrete(MOST_OPTIONS))

    def reset(self) -> Any:
        """What is seen; runs go on where they are."""
        return flat(self.seen)

    def step_async(self, actions: Any) -> None:
        """Takes note."""
        self.actions = np.asarray(actions, np.int64)

    def step_wait(self) -> Any:
        """One decision in each world."""
        came = self.envs.step(self.actions)
        self.seen = came.observation
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        return flat(self.seen), np.asarray(came.reward, np.float32), came.done, infos

    def env_method(self, name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        """Only the masks are asked for."""
        assert name == "action_masks"
        return list(flat_mask(self.seen))

    def has_attr(self, name: str) -> bool:
        """Masks are there."""
        return name == "action_masks"

    def get_attr(self, name: str, indices: Any = None) -> list[Any]:
        """Nothing of each world is told."""
        return [None] * self.num_envs

    def set_attr(self, name: str, value: Any, indices: Any = None) -> None:
        """Nothing of each world is set."""

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """None of them is."""
        return [False] * self.num_envs

    def close(self) -> None:
        """Nothing is open."""


class Keeper(BaseCallback):  # type: ignore[misc]
    """Plays the validation worlds now and then, keeps the best policy, ends the training in time."""

    def __init__(self, look: Validation, minutes: float) -> None:
        super().__init__()
        self.look, self.rolls = look, 0
        self.end_s = time.monotonic() + 60.0 * minutes
        self.best = -np.inf
        self.kept: dict[str, Any] = {}

    def _on_rollout_end(self) -> None:
        self.rolls += 1
        if self.rolls % 20 == 0:
            found = self.look.of(self._favourite)["validation/of_hindsight"]
            if found > self.best:
                self.best, self.kept = found, {k: v.clone() for k, v in self.model.policy.state_dict().items()}
            print(f"{self.num_timesteps} decisions: {found:.4f} of hindsight, best {self.best:.4f}", flush=True)

    def _on_step(self) -> bool:
        return time.monotonic() < self.end_s

    def _favourite(self, observation: Observation) -> Any:
        return self.model.predict(flat(observation), action_masks=flat_mask(observation), deterministic=True)[0]


def exported(policy: Any) -> bytes:
    """The layers that score the options, as a file."""
    body, head = policy.mlp_extractor.policy_net, policy.action_net
    layers = [layer for layer in (*body, head) if isinstance(layer, torch.nn.Linear)]
    named = {f"{n}.{key}": each for n, layer in enumerate(layers) for key, each in layer.state_dict().items()}
    return FORM.packed({name: each.cpu().numpy() for name, each in named.items()})


def main(arguments: list[str]) -> None:
    """Trains and writes."""
    folder = Path(arguments[0]) if arguments else Path("out/train")
    minutes = float(arguments[1]) if len(arguments) > 1 else 20.0
    seed = int(arguments[2]) if len(arguments) > 2 else 0
    torch.set_num_threads(1)
    settings = HiPpoSettings()
    train, validation = datasets(settings, folder)
    assert validation is not None
    flat_worlds = Flat(Env(train, PARALLEL, seed=seed, rules=DecisionRules(gamma=settings.ppo.gamma)), PARALLEL)
    model = MaskablePPO(
        "MlpPolicy",
        flat_worlds,
        n_steps=DECISIONS,
        batch_size=256,
        gamma=settings.ppo.gamma**EPOCHS,
        target_kl=settings.ppo.target_kl,
        policy_kwargs={"net_arch": [128, 128]},
        seed=seed,
        device="cpu",
    )
    keeper = Keeper(Validation(validation), minutes)
    model.learn(10**9, callback=keeper)
    if keeper.kept:
        model.policy.load_state_dict(keeper.kept)
    write_whole(FILE, exported(model.policy))
    print(
        f"{model.num_timesteps} decisions, {keeper.best:.4f} of hindsight on the validation worlds; wrote {FILE.name}"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
