"""No play is better than its bound, whatever the way, the cuts and the warm-ups; and the bound is no idle claim."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from statistics import median

import numpy as np
import pytest
from tests.planners.least_play import MOST_STAGES, field_of, least_play, random_world

from hippo.planners.exact.space import Field
from hippo.planners.exact.uniform import Price, ShapeContest, best_first, refine, shape_of, shapes
from hippo.planners.exact.ways import DomainWay

SAME = 1e-9
SEEDS = 24


def bounds_and_plays(field: Field, random: Random, count: int) -> list[tuple[float, float, float]]:
    """Rough bound, refined bound and least play of some shapes of every kind."""
    found = []
    for kind in range(len(field.tables.examples)):
        ways = field.ideal_ways(kind)
        rough, keys = shapes(field, kind, ways)
        few = [at for at, (_, way, q) in enumerate(keys.tolist()) if ways[way].span * q <= MOST_STAGES]
        for at in random.sample(few, min(count, len(few))):
            layout, way, stages = field.layouts[kind][keys[at][0]], ways[keys[at][1]], int(keys[at][2])
            least = least_play(field, layout, way, stages)
            if np.isfinite(least):
                refined = refine(field, shape_of(field, layout, way, stages), 1e14)[0]
                found.append((float(rough[at]), refined, least))
    return found


@pytest.mark.parametrize("capped", [False, True])
def test_no_play_is_better_than_its_bounds(capped: bool) -> None:
    tight = []
    for seed in range(SEEDS):
        for rough, refined, least in bounds_and_plays(
            field_of(random_world(seed, capped=capped)), Random(seed), 3 if capped else 4
        ):
            assert rough <= least * (1 + SAME), seed
            assert refined <= least * (1 + SAME), seed
            tight.append(max(rough, refined) / least)
    assert len(tight) > SEEDS
    assert median(tight) > 0.9  # a bound of nothing would pass the lines above


def test_shapes_come_best_bound_first_and_never_below_their_rough_bound() -> None:
    field = field_of(random_world(4))
    ways = field.ideal_ways(0)
    rough, keys = shapes(field, 0, ways)
    assert list(rough) == sorted(rough)
    refined = [bound for bound, _, _ in best_first(field, 0, ways)]
    assert refined == sorted(refined)
    assert len(refined) <= len(keys)
    assert refined[0] >= rough[0]


def test_waves_are_dealt_one_more_to_the_first_groups() -> None:
    field = next(field for field in map(field_of, map(random_world, range(40))) if uneven(field))
    way = next(way for way in field.ideal_ways(0) if way.groups == 2)
    layout = next(each for each in field.layouts[0] if each.wave == 1)
    batch = field.problem.workload.global_batch
    assert shape_of(field, layout, way, 1).waves == (-(-batch // 2), batch // 2)


def uneven(field: Field) -> bool:
    asked = field.problem
    return asked.runtime == "ideal" and len(asked.cluster.domains) > 1 and asked.workload.global_batch % 2 == 1


def test_a_price_and_back() -> None:
    price = Price(per_second=0.5, fixed=3.0)
    assert price.of(4.0) == 5.0
    assert price.seconds(price.of(4.0)) == 4.0


Found = list[tuple[float, list[int]]]


def everything_settled(field: Field, ways: list[DomainWay]) -> Found:
    """Bounds and cuts of all shapes, each by itself, the least first and of equals the rougher bound."""
    found = []
    for rough, (layout, way, stages) in zip(*shapes(field, 0, ways), strict=True):
        shape = shape_of(field, field.layouts[0][layout], ways[way], int(stages))
        found.append(refine(field, shape, np.inf, floor=float(rough)))
    sound = [(bound, cuts.tolist()) for bound, cuts in found if bound < np.inf]
    return sorted(sound, key=lambda item: item[0])


def contested(field: Field, ways: list[DomainWay], most: int, ceiling: float = np.inf) -> tuple[Found, ShapeContest]:
    contest = ShapeContest.of(field, 0, ways, *shapes(field, 0, ways))
    found: Found = []
    while len(found) < most and (each := contest.least(ceiling)) is not None:
        found.append((each[0], each[2].tolist()))
    return found, contest


@pytest.mark.parametrize("goal", ["time", "cost"])
@pytest.mark.parametrize("seed", range(12))
def test_the_order_is_that_of_all_bounds(seed: int, goal: str) -> None:
    asked = random_world(seed, capped=seed % 3 == 0)
    field = field_of(replace(asked, objective=replace(asked.objective, name=goal)))
    ways = field.ideal_ways(0)
    wanted = everything_settled(field, ways)
    found, _ = contested(field, ways, len(wanted) + 1)
    assert [bound for bound, _ in found] == [bound for bound, _ in wanted]
    assert sorted(found) == sorted(wanted)


def test_a_contest_settles_few_and_none_above_the_ceiling() -> None:
    field = field_of(random_world(4))
    ways = field.ideal_ways(0)
    wanted = everything_settled(field, ways)
    first, contest = contested(field, ways, 1)
    assert first == wanted[:1]
    assert contest.standing.settled.sum() < len(wanted)
    below, _ = contested(field, ways, len(wanted), ceiling=wanted[3][0])
    assert len(below) == sum(bound < wanted[3][0] for bound, _ in wanted)
