"""Torch and the kernels say the same; credits by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hippo.jobs.learned.features import FEATURES
from hippo.jobs.learned.past import BINS, EDGES_S, SEEN, judge
from hippo.jobs.learned.state import network
from hippo.jobs.learned.weights import prior, untrained
from hippo.jobs.train.hazards import HazardNetwork
from hippo.jobs.train.policy import KeyPolicy
from hippo.jobs.train.rollout import credits, noise


def scattered(module: torch.nn.Module) -> None:
    torch.manual_seed(1)
    with torch.no_grad():
        for each in module.parameters():
            each.normal_(0.0, 0.5)


def test_the_key_network_is_the_same_in_torch_and_compiled():
    policy = KeyPolicy(0.3)
    scattered(policy)
    features = np.random.default_rng(0).normal(size=(20, len(FEATURES))).astype(np.float32)
    weights, room = policy.into(untrained()), (np.zeros(32, np.float32), np.zeros(32, np.float32))
    compiled = [network(weights, each, *room) for each in features]
    np.testing.assert_allclose(compiled, policy(torch.from_numpy(features)).detach(), rtol=1e-4, atol=1e-5)
    again = KeyPolicy(0.3)
    again.take(weights)
    np.testing.assert_array_equal(again.into(untrained()).key_second, weights.key_second)


def test_the_hazard_network_is_the_same_in_torch_and_compiled():
    torch_network = HazardNetwork(untrained())
    scattered(torch_network)
    seen = np.random.default_rng(0).normal(size=(BINS, len(SEEN))).astype(np.float32)
    hazard = np.zeros(BINS)
    judge(torch_network.into(untrained()), seen, 0, np.zeros(16, np.float32), hazard)
    np.testing.assert_allclose(hazard, torch.sigmoid(torch_network(torch.from_numpy(seen))).detach(), rtol=1e-4)


def test_a_prior_is_the_share_that_ends():
    found = prior(np.array([5.0, 5.0, EDGES_S[0] + 1.0, 1e9]))
    assert found[0] == pytest.approx(2.1 / 5.0)
    assert found[1] == pytest.approx(1.1 / 3.0)
    assert found[-1] == pytest.approx(1.1 / 2.0)


def test_credit_is_the_waiting_that_was_saved():
    """With a horizon without end: a job that ends 3 s earlier, another 1 s later, each seen from two moments."""
    base, own = np.array([10.0, 20.0, 30.0]), np.array([7.0, 21.0, 30.0])
    found = credits(np.array([0.0, 8.0]), own, base, 1e9) * 1e9
    np.testing.assert_allclose(found, [3.0 - 1.0, 2.0 - 1.0], rtol=1e-5)


def test_what_comes_much_later_counts_less():
    base, own = np.array([10.0, 1000.0]), np.array([10.0, 1001.0])
    near, far = credits(np.array([990.0, 0.0]), own, base, 100.0)
    assert far / near == pytest.approx(np.exp(-9.9), rel=1e-6)


def test_noise_falls_on_a_share_of_the_moments():
    drawn = noise(500, 0.4, 0.1, np.random.default_rng(0))
    assert np.mean(drawn != 0.0) == pytest.approx(0.1, abs=0.01)
    assert drawn[drawn != 0.0].std() == pytest.approx(0.4, abs=0.02)
