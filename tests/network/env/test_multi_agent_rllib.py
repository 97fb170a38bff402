"""The two clocks under RLlib itself: its own check of environments, and an iteration of its PPO with two policies.

Ray is an extra of its own (``pip install -e '.[learn,ray]'``); without it these are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest

from hippo.network.env.multi_agent import UPPER, multi_agent_env
from hippo.network.worlds.generator import make_world

from ...rllib import trains_within_the_masks

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
    trains_within_the_masks(lambda: multi_agent_env([make_world("ou3", 1)]), kinds=("upper", "lower"), counted=UPPER)
