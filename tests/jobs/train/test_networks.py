"""Torch and the kernels say the same; a prior by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hippo.jobs.learned.past import BINS, EDGES_S, SEEN, judge
from hippo.jobs.learned.weights import prior, untrained
from hippo.jobs.train.hazards import HazardNetwork


def test_the_hazard_network_is_the_same_in_torch_and_compiled():
    torch_network = HazardNetwork(untrained())
    torch.manual_seed(1)
    with torch.no_grad():
        for each in torch_network.parameters():
            each.normal_(0.0, 0.5)
    seen = np.random.default_rng(0).normal(size=(BINS, len(SEEN))).astype(np.float32)
    hazard = np.zeros(BINS)
    judge(torch_network.into(untrained()), seen, 0, np.zeros(16, np.float32), hazard)
    np.testing.assert_allclose(hazard, torch.sigmoid(torch_network(torch.from_numpy(seen))).detach(), rtol=1e-4)


def test_a_prior_is_the_share_that_ends():
    found = prior(np.array([5.0, 5.0, EDGES_S[0] + 1.0, 1e9]))
    assert found[0] == pytest.approx(2.1 / 5.0)
    assert found[1] == pytest.approx(1.1 / 3.0)
    assert found[-1] == pytest.approx(1.1 / 2.0)
