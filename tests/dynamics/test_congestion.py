"""Latency under load."""

from __future__ import annotations

import numpy as np
import pytest

from hippo.dynamics.processes import BUFFER, congested_latency

BASE_S = np.array([0.02, 0.05])


def test_at_the_base_bandwidth_and_above_latency_is_the_base_one() -> None:
    assert congested_latency(BASE_S, np.array([[1.0, 1.3]])) == pytest.approx(BASE_S[None])


def test_the_less_a_link_carries_for_us_the_longer_its_queue() -> None:
    shares = np.linspace(1.0, 0.0, 50)[:, None] * np.ones(2)
    assert (np.diff(congested_latency(BASE_S, shares), axis=0) >= 0).all()


def test_a_full_buffer_adds_one_base_latency() -> None:
    assert congested_latency(BASE_S, np.zeros((1, 2))) == pytest.approx((1.0 + BUFFER) * BASE_S[None])


def test_half_of_what_we_had_is_a_queue_by_the_formula() -> None:
    """rho = 1 - .7 x .5 = .65; .65 / .35 - .3 / .7 packets of 20."""
    expected = 0.02 * (1.0 + (0.65 / 0.35 - 0.3 / 0.7) / 20.0)
    assert congested_latency(BASE_S[:1], np.array([[0.5]]))[0, 0] == pytest.approx(expected)
