"""Means and ratios over worlds and policies, against hand and chance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hippo.intervals import interval
from hippo.jobs.joint.evaluate.evidence import crossed, evidence


def row(world: str, method: str, cost: float, policy: str = "", family: str = "mixed") -> dict[str, Any]:
    return {"world": world, "family": family, "method": method, "policy": policy, "priced_s": cost, "goodput": 0.5}


def test_ratios_are_taken_world_by_world():
    costs = {"w1": (2.0, 4.0), "w2": (30.0, 40.0)}
    rows = [row(world, name, each) for world, pair in costs.items() for name, each in zip("ab", pair, strict=True)]
    found = evidence(rows)
    told = found["ratios"]["a"]["b"]["priced_s"]
    assert told["mean"] == pytest.approx((0.5 + 0.75) / 2)
    half = 12.706 * np.std([0.5, 0.75], ddof=1) / np.sqrt(2)
    assert told["high"] - told["mean"] == pytest.approx(half, rel=1e-3)
    assert found["methods"]["a"]["priced_s"]["mean"] == 16.0
    assert found["methods"]["a"]["egress_gb"] is None


def test_worlds_of_one_draw_count_once():
    """Kept and stopped worlds of one seed tell nearly the same: four worlds are two draws, of 0.55 and 0.75."""
    costs = {("1 kept", 1): (2.0, 4.0), ("1", 1): (6.0, 10.0), ("2 kept", 2): (3.0, 4.0), ("2", 2): (6.0, 8.0)}
    rows = [
        row(world, name, each) | {"seed": seed}
        for (world, seed), pair in costs.items()
        for name, each in zip("ab", pair, strict=True)
    ]
    found = evidence(rows)
    told = found["ratios"]["a"]["b"]["priced_s"]
    assert (found["worlds"], told["worlds"]) == (4, 2)
    assert told["mean"] == pytest.approx(0.65)
    assert told["high"] - told["mean"] == pytest.approx(12.706 * np.std([0.55, 0.75], ddof=1) / np.sqrt(2), rel=1e-3)


def test_a_family_is_told_by_its_own_worlds():
    rows = [row("w1", "a", 2.0), row("w2", "a", 4.0, family="large"), row("w3", "a", 8.0, family="large")]
    found = evidence(rows)
    assert found["families"]["mixed"]["methods"]["a"]["priced_s"]["mean"] == 2.0
    assert found["families"]["large"]["methods"]["a"]["priced_s"]["mean"] == 6.0


def test_several_policies_stand_for_one_method():
    rows = [row(world, "a", cost, policy) for world, policy, cost in (("w1", "p", 1.0), ("w1", "q", 3.0))]
    rows += [row("w2", "a", 2.0, policy) for policy in "pq"]
    assert evidence(rows)["methods"]["a"]["priced_s"]["mean"] == 2.0


def test_one_policy_has_the_interval_over_worlds():
    values = np.array([[1.0, 2.0, 4.0]])
    assert crossed(values) == interval([1.0, 2.0, 4.0])


def test_the_interval_over_worlds_and_policies_holds_its_mean_as_often_as_it_says():
    rng, held = np.random.default_rng(1), 0
    for _ in range(2000):
        values = rng.normal(size=(5, 1)) * 0.5 + rng.normal(size=(1, 12)) + 0.5 * rng.normal(size=(5, 12))
        found = crossed(values)
        assert found is not None
        held += found.low <= 0.0 <= found.high
    assert 0.93 <= held / 2000 <= 0.98
