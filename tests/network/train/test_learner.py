"""The loop of collecting and updating on a trivial world: it learns, minds its costs, and repeats itself."""

from __future__ import annotations

import numpy as np
import torch

from hippo.learn.distributed import Place
from hippo.learn.settings import Ppo
from hippo.network.train.learner import UpperLearner
from hippo.network.train.rollout import Share, collect, drawn
from hippo.network.train.settings import HiPpoSettings, Multipliers

from ..toy import ToyEnvs, toy_policy

torch.set_num_threads(1)
FAST = Ppo(learning_rate=0.01, steps_per_update=512, passes=4, minibatch=128, entropy=0.0, target_kl=0.05)


def learner(settings: HiPpoSettings, seed: int = 0) -> UpperLearner:
    shares = [Share(ToyEnvs(32, seed + 10 * number), np.random.default_rng(number)) for number in range(2)]
    return UpperLearner(toy_policy(seed), shares, settings, Place())


def test_it_learns_which_option_pays():
    mine = learner(HiPpoSettings(ppo=FAST))
    figures = [mine.learn(0.0).figures for _ in range(40)]
    assert np.mean([each["reward"] for each in figures[-5:]]) > 0.6 * figures[0]["reward"]  # negative: less regret
    assert figures[-1]["explained"] > -1.0


def test_a_multiplier_makes_it_mind_a_cost():
    def last_cost(rate: float) -> float:
        settings = HiPpoSettings(ppo=FAST, multipliers=Multipliers(rate=rate, limits=(0.1, 1.0, 1.0), most=20.0))
        mine = learner(settings)
        return float(np.mean([mine.learn(0.0).figures["cost/bandwidth"] for _ in range(24)][-5:]))

    assert last_cost(2.0) < 0.9 * last_cost(0.0)


def test_the_same_seeds_give_the_same_weights():
    def weights() -> list[torch.Tensor]:
        mine = learner(HiPpoSettings(ppo=FAST))
        for _ in range(3):
            mine.learn(0.5)
        return list(mine.policy.parameters())

    assert all(torch.equal(one, other) for one, other in zip(weights(), weights(), strict=True))


def test_a_roll_remembers_what_was_seen_when_it_decided():
    share = Share(ToyEnvs(8, 1), np.random.default_rng(1))
    first = share.seen
    roll = collect(toy_policy(), share, 3)
    np.testing.assert_array_equal(roll.observation.options[0], first.options)
    rows = np.arange(8)
    for step in range(3):
        paid = roll.observation.options[step][rows, roll.action[step], 0] - 1.0
        np.testing.assert_array_equal(roll.rewards[step, :, 0], paid)
    assert roll.values.shape == (4, 8, 4)


def test_draws_follow_their_probabilities():
    log_probs = np.log(np.tile([[0.2, 0.7, 0.1]], (20000, 1))).astype(np.float32)
    log_probs[:, 2] = -1e8
    found = np.bincount(drawn(log_probs, np.random.default_rng(0)), minlength=3) / 20000
    assert abs(found[0] - 2 / 9) < 0.015
    assert found[2] == 0.0
