"""Ideal ways flatter every real one; the slowest border against all choices of domains."""

from __future__ import annotations

from itertools import combinations, permutations

import numpy as np
import pytest
from tests.planners.least_play import field_of, random_world

from hippo.planners.exact.ways import real_way, ring_pace, slowest_border


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
    found = slowest_border(pace, length, count)
    assert found <= wanted * (1 + 1e-9)  # a star of four holds no two pairs, but counts as two
    assert count > 1 or found == pytest.approx(wanted)


def test_too_few_domains_and_single_ones() -> None:
    assert slowest_border(np.ones((3, 3)), 1, 3) == 0.0
    assert slowest_border(np.ones((3, 3)), 2, 2) == np.inf


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


def test_a_ring_of_many_goes_on_to_the_nearest() -> None:
    pace = np.full((7, 7), 5.0)
    for a, b in zip(range(7), [*range(1, 7), 0], strict=True):
        pace[b, a] = 1.0 + b / 10  # only this way round is quick
    assert ring_pace(pace, tuple(range(7))) == 1.6
