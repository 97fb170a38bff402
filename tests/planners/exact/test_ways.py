"""Ideal ways flatter every real one; the slowest border against all choices of domains."""

from __future__ import annotations

from itertools import combinations, permutations

import numpy as np
import pytest
from tests.planners.least_play import field_of, random_world
from tests.planners.tiny import both, domain

from hippo.planners.exact.ways import (
    DomainRoutes,
    closed_paths,
    least_ring_pace,
    least_sums,
    paths,
    real_way,
    ring_pace,
    slowest_borders,
    slowest_pair,
)
from hippo.problem.cluster import Cluster
from hippo.problem.gpus import gpu


def connected(pace: np.ndarray, members: tuple[int, ...], ceiling: float) -> bool:
    reached, left = {members[0]}, set(members[1:])
    while step := {b for b in left if any(pace[a, b] <= ceiling for a in reached)}:
        reached |= step
        left -= step
    return not left


def disjoint(sets: list[tuple[int, ...]], count: int) -> bool:
    """Whether ``count`` of the sets share no member."""
    if count == 0:
        return True
    return any(
        disjoint([other for other in sets[at + 1 :] if not set(other) & set(each)], count - 1)
        for at, each in enumerate(sets)
    )


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("length", "count"), [(2, 1), (2, 2), (3, 1), (2, 3), (3, 2), (5, 1)])
def test_the_slowest_border_of_all_choices(seed: int, length: int, count: int) -> None:
    pace = np.random.default_rng(seed).uniform(1.0, 9.0, (6, 6))
    pace = np.maximum(pace, pace.T)
    levels = np.unique(pace[np.triu_indices(6, 1)])
    wanted = next(
        level
        for level in levels
        if disjoint([each for each in combinations(range(6), length) if connected(pace, each, level)], count)
    )
    found = slowest_borders(pace)[length, count]
    assert found <= wanted * (1 + 1e-9)  # a star of four holds no two pairs, but counts as two
    assert count > 1 or found == pytest.approx(wanted)


def grown(cost: np.ndarray) -> list[tuple[int, ...] | None]:
    """From every start the cheaper end takes the nearest domain; the cheapest path of each length."""
    best: dict[int, tuple[float, tuple[int, ...]]] = {}
    for start in range(len(cost)):
        path, total = (start,), 0.0
        while True:
            if len(path) not in best or total < best[len(path)][0]:
                best[len(path)] = total, path
            outside = set(range(len(cost))) - set(path)
            step, domain, at_end = min(
                [(cost[path[-1], each], each, True) for each in outside]
                + [(cost[each, path[0]], each, False) for each in outside],
                default=(np.inf, -1, True),
            )
            if step == np.inf:
                break
            path, total = ((*path, domain) if at_end else (domain, *path)), total + step
    return [best[length][1] if length in best else None for length in range(1, len(cost) + 1)]


@pytest.mark.parametrize("seed", range(20))
def test_paths_over_many_domains_are_grown_at_their_cheaper_end(seed: int) -> None:
    rng = np.random.default_rng(seed)
    cost = rng.integers(1, 9, (17, 17)).astype(float) if seed % 2 else rng.uniform(1.0, 9.0, (17, 17))
    cost[rng.random((17, 17)) < 0.1 * (seed % 10)] = np.inf  # beside none to nine of ten pairs that are not joined
    assert paths(np.zeros((17, 17)), cost, 1.0) == grown(cost)


def test_too_few_domains_and_single_ones() -> None:
    assert slowest_borders(np.ones((3, 3)))[1, 3] == 0.0
    assert slowest_borders(np.ones((3, 3)))[2, 2] == np.inf


@pytest.mark.parametrize("seed", range(12))
def test_no_real_way_is_better_than_the_ideal_one(seed: int) -> None:
    """Straight or relayed, in both directions; sums over paths, the slowest border, and the ends of a tied model."""
    field = field_of(random_world(seed))
    for ideal in field.ideal_ways(0):
        for order in permutations(field.members(0), ideal.size):
            groups = tuple(order[i * ideal.span : (i + 1) * ideal.span] for i in range(ideal.groups))
            for ceiling in (np.inf, 0.0):
                real = real_way(field.routes(0), groups, ceiling, tied=bool(field.tied_bytes))
                assert real is not None
                for name in ("before_s", "before_pace", "after_s", "after_pace", "slowest", "tail_pace", "tail_s"):
                    least, own = getattr(ideal, name), getattr(real, name)
                    assert (np.asarray(least) <= np.asarray(own) * (1 + 1e-9)).all(), (name, groups)
                assert np.min(field.sync_s(ideal)) <= np.min(field.sync_s(real)) * (1 + 1e-9), groups


@pytest.mark.parametrize("seed", range(8))
def test_the_best_ring_of_all_orders(seed: int) -> None:
    rng = np.random.default_rng(seed)
    pace, count = rng.uniform(1.0, 9.0, (7, 7)), 2 + seed % 4
    members = tuple(int(each) for each in rng.permutation(7)[:count])
    rings = [(members[0], *rest, members[0]) for rest in permutations(members[1:])]
    wanted = min(max(pace[a, b] for a, b in zip(ring[:-1], ring[1:], strict=True)) for ring in rings)
    assert ring_pace(pace, members) == wanted


@pytest.mark.parametrize("size", [2, 3, 6])
def test_no_ring_through_so_many_domains_is_quicker_than_the_least(size: int) -> None:
    """Of few just that of the best; of six a bound."""
    pace = np.random.default_rng(size).uniform(0.1, 1.0, (7, 7))
    rings = [(one, *rest) for one in range(7) for rest in permutations(range(one + 1, 7), size - 1)]
    slowest = [max(pace[a, b] for a, b in zip(ring, (*ring[1:], ring[0]), strict=True)) for ring in rings]
    least = least_ring_pace(pace, size)
    assert least == min(slowest) if size < 6 else least <= min(slowest)


def test_a_ring_of_many_goes_on_to_the_nearest() -> None:
    pace = np.full((7, 7), 5.0)
    for a, b in zip(range(7), [*range(1, 7), 0], strict=True):
        pace[b, a] = 1.0 + b / 10  # only this way round is quick
    assert ring_pace(pace, tuple(range(7))) == 1.6


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


@pytest.mark.parametrize("seed", range(8))
def test_no_path_over_many_domains_is_below_their_least_sums(seed: int) -> None:
    """Drawn paths, and those that go on to the nearest from each domain; with equal edges the sums are met."""
    rng, size = np.random.default_rng(seed), 17
    pace, (cost, _) = random_costs(seed, size)
    cost = np.where(pace <= 8.0, cost, np.inf) if seed % 2 else cost**3
    least = least_sums(cost)
    found = [tuple(rng.permutation(size).tolist()) for _ in range(300)]
    for first in range(size):
        path = [first]
        while left := set(range(size)) - set(path):
            path.append(min(left, key=lambda each: cost[path[-1], each]))
        found.append(tuple(path))
    for path in found:
        own = np.cumsum([0.0, 0.0, *(cost[a, b] for a, b in zip(path, path[1:], strict=False))])
        assert (least <= own * (1 + 1e-12)).all()
    assert least_sums(np.ones((size, size))) == pytest.approx(np.maximum(0.0, np.arange(size + 1) - 1.0))


def test_a_slow_pair_goes_through_a_third_domain() -> None:
    links = (*both("a", "b", 1e8, 0.001), *both("b", "c", 2e9, 0.002), *both("a", "c", 1e9, 0.003))
    where = Cluster("three", A100, tuple(map(domain, "abc")), links)
    routes = DomainRoutes.of(where, floor_bytes_per_s=None)
    assert routes.via[0, 1] == 2
    assert routes.seconds_per_byte[0, 1] == pytest.approx(1e-9)  # a relay streams: its slower hop
    assert routes.latency_s[0, 1] == pytest.approx(0.005)
    assert routes.least_latency_s[0, 1] == pytest.approx(0.001)
    assert routes.via[0, 2] == -1
    relay, back = routes.relays(np.array([(0, 1), (1, 0), (0, 2)]), 5e-9)
    assert (relay.source, relay.destination, relay.via) == ("a", "b", "c")
    assert (back.source, back.destination) == ("b", "a")
    assert routes.relays(np.array([(0, 1)]), 1e-7) == ()


def test_slow_links_are_barred() -> None:
    where = Cluster("two", A100, (domain("a"), domain("b")), both("a", "b", 1e8))
    assert np.isinf(DomainRoutes.of(where, floor_bytes_per_s=2e8).seconds_per_byte[0, 1])
    assert DomainRoutes.of(where, floor_bytes_per_s=1e8).seconds_per_byte[0, 1] == pytest.approx(1e-8)
