"""Paths over domains against all permutations; relays where they are faster."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from tests.planners.tiny import both, domain

from hippo.planners.exact.links import Routes, closed_paths, paths, slowest_pair
from hippo.problem.cluster import Cluster
from hippo.problem.gpus import gpu

A100 = gpu("A100-SXM-80GB")


def random_costs(seed: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    pace, cost, ends = (rng.uniform(1.0, 9.0, (size, size)) for _ in range(3))
    return np.maximum(pace, pace.T), np.stack([cost + cost.T, ends + ends.T])


def length(cost: np.ndarray, path: tuple[int, ...]) -> float:
    return float(sum(cost[a, b] for a, b in zip(path, path[1:], strict=False)))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("closed", [False, True])
def test_no_order_of_domains_is_shorter(seed: int, closed: bool) -> None:
    size, ceiling = 5, 7.0
    pace, (cost, ends) = random_costs(seed, size)
    found = closed_paths(pace, cost, ceiling, ends) if closed else paths(pace, cost, ceiling)
    for count in range(1, size + 1):
        allowed = [
            path
            for path in permutations(range(size), count)
            if all(pace[a, b] <= ceiling for a, b in zip(path, path[1:], strict=False))
        ]

        def total(path: tuple[int, ...]) -> float:
            return length(cost, path) + (ends[path[0], path[-1]] if closed and len(path) > 1 else 0.0)

        best, own = min(map(total, allowed), default=None), found[count - 1]
        assert (own is None) == (best is None)
        if own is not None:
            assert own in allowed
            assert total(own) == pytest.approx(best)


@pytest.mark.parametrize("seed", range(8))
def test_the_slowest_pair_is_a_bound_for_every_path(seed: int) -> None:
    pace, _ = random_costs(seed, 5)
    bound = slowest_pair(pace)
    for path in (path for count in range(2, 6) for path in permutations(range(5), count)):
        assert bound[len(path)] <= max(pace[a, b] for a, b in zip(path, path[1:], strict=False))


def test_a_slow_pair_goes_through_a_third_domain() -> None:
    links = (*both("a", "b", 1e8, 0.001), *both("b", "c", 2e9, 0.002), *both("a", "c", 1e9, 0.003))
    where = Cluster("three", A100, tuple(map(domain, "abc")), links)
    routes = Routes.of(where, floor_bytes_per_s=None)
    assert routes.via[0, 1] == 2
    assert routes.seconds_per_byte[0, 1] == pytest.approx(1e-9)  # a relay streams: its slower hop
    assert routes.latency_s[0, 1] == pytest.approx(0.005)
    assert routes.least_latency_s[0, 1] == pytest.approx(0.001)
    assert routes.via[0, 2] == -1
    relay, back = routes.relays([(0, 1), (1, 0), (0, 2)], 5e-9)
    assert (relay.source, relay.destination, relay.via) == ("a", "b", "c")
    assert (back.source, back.destination) == ("b", "a")
    assert routes.relays([(0, 1)], 1e-7) == ()


def test_slow_links_are_barred() -> None:
    where = Cluster("two", A100, (domain("a"), domain("b")), both("a", "b", 1e8))
    assert np.isinf(Routes.of(where, floor_bytes_per_s=2e8).seconds_per_byte[0, 1])
    assert Routes.of(where, floor_bytes_per_s=1e8).seconds_per_byte[0, 1] == pytest.approx(1e-8)
