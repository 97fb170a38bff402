"""Each of the four algorithms on a queue whose optimum is known: two kinds of jobs, and the short kind goes first."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest
import torch

from hippo.jobs.job import KINDS
from hippo.jobs.learned.weights import untrained
from hippo.jobs.settings import ReplayRules
from hippo.jobs.site import DevicePool, site
from hippo.jobs.train.policy import KeyPolicy
from hippo.jobs.train.settings import ALGORITHMS, Gradient, KeyTraining
from hippo.jobs.train.train import optimizer, step
from hippo.jobs.train.windows import Window
from hippo.jobs.workload import JobWorkload
from hippo.learn.settings import Ppo

SHORT_S, LONG_S, JOBS = 8.0, 9.9, 24  # of one bin and size, so that only the kind tells them apart


def two_kinds(generator: np.random.Generator) -> Window:
    """All jobs come in one moment to one device; half of them, drawn, are short."""
    short = generator.permutation(JOBS) < JOBS // 2
    columns = {
        "arrival_s": np.zeros(JOBS),
        "duration_s": np.where(short, 1.0, LONG_S),
        "kind": np.where(short, KINDS.index("predict"), KINDS.index("train")),
    }
    return Window(
        JobWorkload.of_columns(columns), None, site([DevicePool("one", "gpu", 1, 1)]), ReplayRules(restart_s=0.0)
    )


def settings(algorithm: str) -> KeyTraining:
    gradient = Gradient(algorithm=algorithm, learning_rate=0.02, share=0.5, noise=0.5, horizon_s=1e6, rolls=4)
    return replace(KeyTraining(), gradient=gradient, ppo=Ppo(learning_rate=0.01, passes=4, minibatch=96, target_kl=0.1))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_short_jobs_learn_to_go_first(algorithm: str):
    torch.manual_seed(0)
    chosen, window = settings(algorithm), two_kinds(np.random.default_rng(99))
    policy = KeyPolicy(chosen.gradient.noise)
    ways = optimizer(policy, chosen)
    before = window.mean_completion_s(policy.into(untrained()))
    for update in range(1, 41):
        step(policy, ways, two_kinds, untrained(), chosen, update)
    after = window.mean_completion_s(policy.into(untrained()))
    assert before > 1.3 * window.limit_s()
    assert after == pytest.approx(window.limit_s(), rel=0.01)


class Alone(torch.optim.SGD):
    """Notes whether somebody stepped while another did."""

    stepping, together = False, False

    def step(self, closure=None):
        self.together |= self.stepping
        self.stepping = True
        time.sleep(0.01)
        super().step(closure)
        self.stepping = False


def test_workers_of_a3c_step_one_at_a_time():
    """Two in Adam's moments at once made first steps that no later one could undo."""
    chosen = replace(settings("a3c"), gradient=replace(settings("a3c").gradient, workers=4))
    policy = KeyPolicy(chosen.gradient.noise)
    before, ways = [each.detach().clone() for each in policy.parameters()], Alone(policy.parameters(), lr=0.01)
    step(policy, ways, two_kinds, untrained(), chosen, 1)
    assert not ways.together
    assert any((each != old).any() for each, old in zip(policy.parameters(), before, strict=True))
