"""An iteration of RLlib's PPO with a policy for each kind of agent, on an environment that notes what is answered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hippo.learn.turns import ALLOWED


def trains_within_the_masks(made: Callable[[], Any], *, kinds: tuple[str, ...], counted: str) -> None:
    """Both ``kinds`` of agents (their names up to ``_``) learn something, no answer is masked, and RLlib counts the
    returns of the agent ``counted`` as the environment pays them."""
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.core.rl_module import MultiRLModuleSpec, RLModuleSpec
    from ray.rllib.examples.rl_modules.classes.action_masking_rlm import ActionMaskingTorchRLModule
    from ray.tune.registry import register_env

    register_env("hippo", lambda _: watched(made(), counted))
    network = RLModuleSpec(module_class=ActionMaskingTorchRLModule, model_config={"fcnet_hiddens": [32]})
    config = (
        PPOConfig()
        .environment("hippo", disable_env_checking=True)  # it answers what is masked
        .env_runners(num_env_runners=0, batch_mode="complete_episodes")
        .multi_agent(policies=set(kinds), policy_mapping_fn=lambda agent, episode, **_: agent.split("_")[0])
        .rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs=dict.fromkeys(kinds, network)))
        .training(train_batch_size_per_learner=300, minibatch_size=128, num_epochs=1)
        .debugging(seed=0)
    )
    algorithm = config.build_algo()
    result = algorithm.train()
    (env,) = algorithm.env_runner.env.envs
    masks, returns = env.unwrapped.noted
    algorithm.stop()

    assert masks, "nothing was answered"
    assert all(masks), "an answer was masked"
    told = result["env_runners"]
    assert told["num_module_steps_sampled"]["upper"] > told["num_module_steps_sampled"]["lower"] > 0
    assert told["agent_episode_returns_mean"][counted] == pytest.approx(np.mean(returns), rel=1e-5)
    for policy in kinds:
        assert result["learners"][policy]["num_module_steps_trained"] > 0
        assert np.isfinite(result["learners"][policy]["total_loss"])


def watched(env: Any, counted: str) -> Any:
    """Notes, while the environment is used: whether each answer was allowed, and what each episode paid ``counted``."""
    masks: list[bool] = []
    returns: list[float] = []
    reset, step, last = env.reset, env.step, {}

    def reset_and_note(**choices: Any) -> Any:
        found = reset(**choices)
        last["seen"], last["paid"] = found[0], 0.0
        return found

    def step_and_note(answers: dict[str, int]) -> Any:
        masks.extend(bool(last["seen"][name][ALLOWED][answer]) for name, answer in answers.items())
        found = step(answers)
        last["seen"] = found[0]
        last["paid"] += found[1].get(counted, 0.0)
        if found[2]["__all__"]:
            returns.append(last["paid"])
        return found

    env.reset, env.step, env.noted = reset_and_note, step_and_note, (masks, returns)
    return env
