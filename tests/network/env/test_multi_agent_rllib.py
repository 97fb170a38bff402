"""The two clocks under RLlib itself: its own check of environments, and an iteration of its PPO with two policies.

Ray is an extra of its own (``pip install -e '.[learn,ray]'``); without it these are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from hippo.network.env.multi_agent import UPPER, multi_agent_env
from hippo.network.worlds.generator import make_world

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: an extra of its own, `ray`"),
    pytest.mark.filterwarnings("ignore"),  # of Ray and what it brings
]


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield ray
    ray.shutdown()


@pytest.mark.parametrize("flat", [True, False])
def test_the_environment_passes_the_check_of_rllib(flat: bool) -> None:
    from ray.rllib.utils.pre_checks.env import check_multiagent_environments

    check_multiagent_environments(multi_agent_env([make_world("ou3", 1)], flat=flat))


def test_an_iteration_of_ppo_trains_both_policies_within_the_masks(ray: Any) -> None:
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.core.rl_module import MultiRLModuleSpec, RLModuleSpec
    from ray.rllib.examples.rl_modules.classes.action_masking_rlm import ActionMaskingTorchRLModule
    from ray.tune.registry import register_env

    register_env("hippo", lambda _: _watched(multi_agent_env([make_world("ou3", 1)])))
    network = RLModuleSpec(module_class=ActionMaskingTorchRLModule, model_config={"fcnet_hiddens": [32]})
    config = (
        PPOConfig()
        .environment("hippo", disable_env_checking=True)  # checked above; it answers what is masked
        .env_runners(num_env_runners=0, batch_mode="complete_episodes")
        .multi_agent(policies={"upper", "lower"}, policy_mapping_fn=lambda agent, episode, **_: agent.split("_")[0])
        .rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs={"upper": network, "lower": network}))
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
    assert told["agent_episode_returns_mean"][UPPER] == pytest.approx(np.mean(returns), rel=1e-5)
    for policy in ("upper", "lower"):
        assert result["learners"][policy]["num_module_steps_trained"] > 0
        assert np.isfinite(result["learners"][policy]["total_loss"])


def _watched(env: Any) -> Any:
    """Notes, while the environment is used: whether each answer was allowed, and what each episode paid upper."""
    masks: list[bool] = []
    returns: list[float] = []
    reset, step, last = env.reset, env.step, {}

    def reset_and_note(**choices: Any) -> Any:
        found = reset(**choices)
        last["seen"], last["paid"] = found[0], 0.0
        return found

    def step_and_note(answers: dict[str, int]) -> Any:
        masks.extend(bool(last["seen"][name]["action_mask"][answer]) for name, answer in answers.items())
        found = step(answers)
        last["seen"] = found[0]
        last["paid"] += found[1].get(UPPER, 0.0)
        if found[2]["__all__"]:
            returns.append(last["paid"])
        return found

    env.reset, env.step, env.noted = reset_and_note, step_and_note, (masks, returns)
    return env
