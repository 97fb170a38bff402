"""What a contest yields does not depend on how little of the others is settled."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.planners.least_play import field_of, random_world

from hippo.planners.exact.contest import Contest
from hippo.planners.exact.field import Field
from hippo.planners.exact.uniform import refine, shape_of, shapes
from hippo.planners.exact.ways import Way

Found = list[tuple[float, list[int]]]


def everything_settled(field: Field, ways: list[Way]) -> Found:
    """Bounds and cuts of all shapes, each by itself, the least first and of equals the rougher bound."""
    found = []
    for rough, (layout, way, stages) in zip(*shapes(field, 0, ways), strict=True):
        shape = shape_of(field, field.layouts[0][layout], ways[way], int(stages))
        found.append(refine(field, shape, np.inf, floor=float(rough)))
    sound = [(bound, cuts.tolist()) for bound, cuts in found if bound < np.inf]
    return sorted(sound, key=lambda item: item[0])


def contested(field: Field, ways: list[Way], most: int, ceiling: float = np.inf) -> tuple[Found, Contest]:
    contest = Contest.of(field, 0, ways, *shapes(field, 0, ways))
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
