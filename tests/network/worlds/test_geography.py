"""Drawn networks."""

from __future__ import annotations

import numpy as np
import pytest

from hippo.network.worlds.generator import measured, plane, thinned


@pytest.mark.parametrize("count", [2, 4, 12, 16])
def test_measured_networks_of_any_size_have_distinct_names_and_all_links(count: int) -> None:
    for seed in range(4):
        found = measured(count, np.random.default_rng(seed))
        assert len(set(found.names)) == count
        away = ~np.eye(count, dtype=bool)
        assert (found.quickness[away] > 0).all()
        assert (np.diag(found.quickness) == 0).all()
        assert found.quickness[away].mean() == pytest.approx(1.0)
        assert (found.latency_s[away] > 0).all()


def test_on_the_plane_the_nearer_is_the_quicker() -> None:
    found = plane(12, np.random.default_rng(0), uneven=0.0)
    away = ~np.eye(12, dtype=bool)
    order = np.argsort(found.latency_s[away])
    assert (np.diff(found.quickness[away][order]) <= 1e-12).all()


def test_thinning_keeps_a_ring() -> None:
    for seed in range(10):
        found = thinned(plane(6, np.random.default_rng(seed), uneven=0.3), np.random.default_rng(seed), most=1.0)
        assert all(found.quickness[a, (a + 1) % 6] > 0 and found.quickness[(a + 1) % 6, a] > 0 for a in range(6))
    assert (found.quickness == 0).sum() >= 6
