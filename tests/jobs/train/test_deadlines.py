"""Training of the key for deadlines: the network is that of the kernels, credit by hand, a run that goes on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from hippo.errors import InputError
from hippo.jobs.job import Job
from hippo.jobs.learned.deadline import FEATURES, deadline_network, untrained
from hippo.jobs.train import deadlines
from hippo.jobs.train.algorithms import ppo
from hippo.jobs.train.deadlines import DuePolicy, begun, credits
from hippo.jobs.train.rollout import Moments
from hippo.jobs.train.settings import DeadlineTraining, Draws, NoiseSearch, parse_deadline_settings
from hippo.jobs.workload import JobWorkload

CONFIG = Path(__file__).resolve().parents[3] / "configs" / "algo" / "deadlines.yaml"


def random_policy(seed: int) -> DuePolicy:
    torch.manual_seed(seed)
    policy = DuePolicy(0.5)
    for each in policy.parameters():
        torch.nn.init.normal_(each, std=0.3)
    return policy


def test_torch_and_the_kernel_say_the_same():
    policy = random_policy(1)
    weights = policy.into(untrained())
    features = torch.randn(50, len(FEATURES))
    room = np.zeros_like(weights.first_bias)
    kernel = [deadline_network(weights, each, room) for each in features.numpy()]
    assert policy(features).detach().numpy() == pytest.approx(np.array(kernel), abs=1e-4)


def test_a_policy_takes_weights_and_gives_them_back():
    given = random_policy(2).into(untrained())
    policy = DuePolicy(0.5)
    policy.take(given)
    assert all(np.array_equal(one, other) for one, other in zip(policy.into(untrained()), given, strict=True))


def test_credit_is_for_deadlines_that_follow_the_less_the_later():
    jobs = [
        Job("early", 0.0, 5.0, deadline_s=50.0),
        Job("own", 100.0, 5.0, deadline_s=10_000.0),
        Job("next", 150.0, 5.0, deadline_s=200.0),
    ]
    spared = np.array([1.0, 1.0, -1.0])
    found = credits(JobWorkload.of(jobs), spared, np.array([1]), 100.0)
    assert found == pytest.approx([1.0 - np.exp(-1.0)])  # its own in full, the next one's at one horizon


def test_credit_is_the_same_however_many_pairs_are_looked_at_at_once(monkeypatch: pytest.MonkeyPatch):
    rng = np.random.default_rng(0)
    arrival_s = np.sort(rng.uniform(0.0, 1000.0, 60))
    jobs = [Job(f"{i}", at_s, 5.0, deadline_s=at_s + rng.uniform(10.0, 300.0)) for i, at_s in enumerate(arrival_s)]
    spared, chosen = rng.choice([-1.0, 0.0, 1.0], 60), np.arange(0, 60, 4)
    whole = credits(JobWorkload.of(jobs), spared, chosen, 100.0)
    for pairs in (1, 100):  # a row at a time, some
        monkeypatch.setattr(deadlines, "PAIRS", pairs)
        assert credits(JobWorkload.of(jobs), spared, chosen, 100.0) == pytest.approx(whole)


def test_an_update_learns_which_way_noise_pays():
    """Credit is the noise itself: keys shall grow."""
    torch.manual_seed(0)
    policy = DuePolicy(0.5)
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
    before = policy(torch.ones(1, len(FEATURES))).item()
    for turn in range(5):
        features = torch.ones(256, len(FEATURES))
        key = policy(features).detach() + 0.5 * torch.randn(256)
        ppo(policy, optimizer, Moments(features, key, key), DeadlineTraining(), turn)
    assert policy(torch.ones(1, len(FEATURES))).item() > before + 0.1


def test_the_start_counts_windows_as_they_are_drawn():
    found = begun(DeadlineTraining(draws=Draws(settings=("chronus",))))
    assert found.windows.sum(axis=0) == pytest.approx(np.ones(found.windows.shape[1]), rel=1e-3)
    durations = np.arange(20, 30)  # far above the least window: one to three bins above the duration
    inside = sum(found.windows[durations + shift, durations] for shift in range(3))
    assert (inside > 0.95).all()


def test_the_configuration_in_the_tree_is_the_default_one():
    from hippo.files import read_text
    from hippo.problem.document import parse_yaml

    document = parse_yaml(read_text(CONFIG, what="configuration"), str(CONFIG))
    assert document.pop("learner") == "deadlines"
    document["windows"]["trace"] = ""
    assert parse_deadline_settings(document, source=str(CONFIG)) == DeadlineTraining()


def test_numbers_out_of_range_are_refused():
    with pytest.raises(InputError, match="share"):
        NoiseSearch(share=2.0)
