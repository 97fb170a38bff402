"""Multipliers rise while a constraint is broken, fall while it is not, and mix advantages as the derivation says."""

from __future__ import annotations

import numpy as np
import pytest

from hippo.network.train.multipliers import ascend, mixed, start
from hippo.network.train.settings import Multipliers


def test_a_broken_constraint_grows_dear_and_a_kept_one_cheap():
    settings = Multipliers(start=0.1, rate=1.0, limits=(0.1, 0.1, 0.1), most=0.4)
    found = ascend(start(settings), [0.2, 0.05, 9.0], settings)
    assert found.tolist() == pytest.approx([0.2, 0.05, 0.4])
    assert ascend(found, [0.0, 0.0, 0.0], settings).tolist() == pytest.approx([0.1, 0.0, 0.3])


def test_without_multipliers_costs_weigh_nothing():
    settings = Multipliers(enabled=False, start=1.0)
    assert not ascend(start(settings), [1.0, 1.0, 1.0], settings).any()


def test_the_mixture_is_that_of_the_derivation():
    advantage = np.array([[2.0, 1.0, -1.0, 0.5]], np.float32)
    assert mixed(advantage, np.array([1.0, 2.0, 0.0])).tolist() == pytest.approx([(2.0 - 1.0 + 2.0) / 4.0])
    assert mixed(advantage, np.zeros(3)).tolist() == [2.0]


def test_dual_ascent_finds_the_constrained_optimum():
    """Maximise x - x^2 / 2 for x <= 0.5: the best x under a multiplier is 1 - mu, so mu must become 0.5."""
    settings = Multipliers(rate=0.2, limits=(0.5, 1e6, 1e6))
    multipliers = start(settings)
    for _ in range(200):
        multipliers = ascend(multipliers, [1.0 - multipliers[0], 0.0, 0.0], settings)
    assert multipliers.tolist() == pytest.approx([0.5, 0.0, 0.0], abs=1e-6)
