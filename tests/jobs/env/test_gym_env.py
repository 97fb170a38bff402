"""The Gymnasium form: its own checker, and the same figures as the environment below it."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from hippo.jobs.env.env import Cuts, Queue
from hippo.jobs.env.gym_env import JobsEnv

from .worlds import drawn, small_site


def test_gymnasium_finds_nothing_to_object_to() -> None:
    env = JobsEnv(Queue(Cuts((drawn(1, 200),), small_site(), jobs=20).draw, small_site()), candidates=5)
    assert env.spec is None
    check_env(env, skip_render_check=True)


def test_an_episode_pays_what_jobs_waited_even_if_answers_are_masked() -> None:
    workload = drawn(2, 30)
    env = JobsEnv(Queue(lambda rng: workload, small_site()), candidates=5)
    rng, paid, over = np.random.default_rng(0), 0.0, False
    seen, info = env.reset(seed=1)
    while not over:
        np.testing.assert_array_equal(seen["action_mask"].astype(bool), info["action_mask"])
        seen, reward, over, cut, info = env.step(np.int64(rng.integers(6)))
        paid += reward
        assert not cut
        assert env.observation_space.contains(seen)
    completion_s = env.env.ledger().finish_s - workload.arrival_s
    assert paid == pytest.approx(-completion_s.sum() / workload.duration_s.sum())
