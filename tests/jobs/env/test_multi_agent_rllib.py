"""The agents that pull jobs under RLlib itself: its check of environments, and the example with each algorithm.

Ray is an extra of its own (``pip install -e '.[learn,ray]'``); without it these are skipped.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from tests.scripts import script

from hippo.jobs.env.env import Queue
from hippo.jobs.env.multi_agent import multi_agent_env

from .worlds import drawn, small_site

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: an extra of its own, `ray`"),
    pytest.mark.filterwarnings("ignore"),  # of Ray and what it brings
]


def test_the_environment_passes_the_check_of_rllib() -> None:
    from ray.rllib.utils.pre_checks.env import check_multiagent_environments

    check_multiagent_environments(multi_agent_env(Queue(lambda rng: drawn(1, 20), small_site()), candidates=5))


@pytest.fixture(scope="module")
def example() -> Any:
    return script("examples/jobs_rllib.py")


@pytest.mark.parametrize("algorithm", ["ppo", "appo", "impala"])
def test_rllib_trains_within_the_masks(example: Any, algorithm: str) -> None:
    size = ["--iterations", "3", "--batch", "400", "--jobs", "30", "--judged", "1", "--runners", "0"]
    found = example.main(["--algorithm", algorithm, *size])
    assert found["answers"] > 50
    assert found["forbidden"] == 0
    assert len(found["rows"]) == 3
    assert np.isfinite(found["rows"][-1][-1]), "nothing was learned from"
    assert found["times"]["learned"] > 0
