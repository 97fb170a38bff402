"""Which domains may stand where: held against all orders of drawn domains."""

from __future__ import annotations

from itertools import permutations
from random import Random

import numpy as np
import pytest
from tests.planners.least_play import field_of, random_world

from hippo.planners.exact.lineups import Mixes, Reach, told_apart
from hippo.planners.exact.ways import DomainRoutes, ideal_ways, real_way


def routes_of(seed: int, size: int) -> DomainRoutes:
    """Direct links that differ by direction; some pairs have none."""
    made = field_of(random_world(0)).routes(0)
    rng = np.random.default_rng(seed)
    pace = rng.uniform(1.0, 9.0, (size, size))
    pace[rng.random((size, size)) < 0.15] = np.inf
    np.fill_diagonal(pace, np.inf)
    late = rng.uniform(0.1, 1.0, (size, size))
    return DomainRoutes(made.cluster, pace, late, np.full((size, size), -1), pace, late, late)


@pytest.mark.parametrize("seed", range(6))
def test_mixes_are_those_of_the_sets_that_a_path_joins(seed: int) -> None:
    size, random = 6, Random(seed)
    kinds = [random.randrange(3) for _ in range(size)]
    routes, mixes = routes_of(seed, size), Mixes.of(kinds, range(size))
    groups = mixes.group[kinds]
    pair = routes.pair_pace
    for ceiling in (2.0, 4.0, 6.5, 9.0):
        wanted = np.zeros(len(mixes.size), bool)
        for n in range(1, size + 1):
            for path in permutations(range(size), n):
                if all(pair[a, b] <= ceiling for a, b in zip(path, path[1:], strict=False)):
                    wanted[mixes.stride[groups[list(path)]].sum()] = True
        joined = Reach(routes, routes, tuple(range(size)), mixes, groups, False).under(ceiling)
        assert joined.mixes.tolist() == wanted.tolist()
        steps = mixes.steps(joined.mixes)
        assert (mixes.size[steps.target] == mixes.size[steps.source] + 1).all()
        assert (mixes.size[steps.source] == steps.place).all()
        assert ((mixes.held[:, steps.target] - mixes.held[:, steps.source]).sum(axis=0) == 1).all()


def test_too_many_kinds_are_thrown_together() -> None:
    mixes = Mixes.of(list(range(12)), range(12))
    assert len(mixes.size) <= 256
    assert mixes.size.max() == 12
    assert (mixes.held.max(axis=1) == mixes.counts).all()


def test_kinds_that_are_not_among_the_domains_have_no_class() -> None:
    mixes = Mixes.of([0, 1, 0, 2], (0, 2))
    assert mixes.group.tolist() == [0, -1, -1]
    assert mixes.size.tolist() == [0, 1, 2]


@pytest.mark.parametrize("seed", range(6))
def test_no_groups_are_better_than_all_ways_that_are_told_apart(seed: int) -> None:
    size, among = 6, tuple(range(6))
    routes = routes_of(seed, size)
    for ideal in ideal_ways(routes, routes, among, tied=False):
        if min(ideal.groups, ideal.span) < 2:
            continue
        apart = told_apart(routes, routes, among, ideal)
        met = 0
        for order in permutations(among, ideal.size):
            groups = tuple(order[i * ideal.span : (i + 1) * ideal.span] for i in range(ideal.groups))
            real = real_way(routes, groups, np.inf, tied=False)
            if real is None or not np.isfinite([real.slowest, *real.sync_pace]).all():
                continue
            near = [
                each.slowest <= real.slowest * (1 + 1e-9) and (each.sync_pace <= real.sync_pace * (1 + 1e-9)).all()
                for each in apart
            ]
            assert any(near)
            equal = [
                each.slowest >= real.slowest * (1 - 1e-9) and (each.sync_pace >= real.sync_pace * (1 - 1e-9)).all()
                for each in apart
            ]
            met += any(one and other for one, other in zip(near, equal, strict=True))
        assert met, "ways that nothing is as good as would pass, too"
        for each in apart:
            assert (np.sort(each.sync_pace) >= np.array(ideal.rings) * (1 - 1e-9)).all()
            assert each.slowest >= ideal.slowest * (1 - 1e-9)
