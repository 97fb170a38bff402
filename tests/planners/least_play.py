"""The least step time of a shape, found by playing it: all real ways, cuts and warm-ups of a toy world."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, permutations, product
from random import Random

from tests.planners.tiny import model, problem

from hippo.planners.exact.candidates import Tried
from hippo.planners.exact.layouts import DomainLayout
from hippo.planners.exact.space import Field
from hippo.planners.exact.uniform import PlanShape, candidate, shape_of
from hippo.planners.exact.ways import DomainWay, real_way
from hippo.problem.cluster import Domain, Link
from hippo.problem.problem import Problem

MOST_STAGES, MOST_WARM_UPS, MOST_WAYS = 3, 25, 4


def random_world(seed: int, *, capped: bool = False) -> Problem:
    """One to four equal domains of one or two GPUs; links differ by direction; tied or not; every runtime."""
    random = Random(seed)
    names = "abcd"[: random.choice([1, 2, 2, 3, 4])]
    size, intra, inter = (
        random.choice([(1, 1), (1, 2), (2, 1)]),
        3e11 * random.uniform(0.1, 1),
        10 ** random.uniform(9, 10.5),
    )
    domains = tuple(Domain(name, *size, intra, inter, 1e-5) for name in names)
    links = tuple(
        Link(
            *pair,
            10 ** random.uniform(8, 10.7),
            10 ** random.uniform(-4, -1.5),
            0.02,
            10 ** random.uniform(8, 10) if capped else None,
        )
        for pair in permutations(names, 2)
    )
    return problem(
        domains,
        links,
        of=model(random.choice([2, 3]), hidden=2048, tied=random.random() < 0.4),
        batch=random.choice([2, 3, 4, 6]),
        memory_bytes=random.choice([None, None, random.uniform(9e9, 20e9)]),
        runtime=random.choice(["any", "any", "megatron", "torch", "deepspeed"]),
    )


def field_of(asked: Problem) -> Field:
    """The problem, prepared, with a judge of its own."""
    return Field.of(asked, Tried(asked))


def least_play(field: Field, layout: DomainLayout, way: DomainWay, stages: int) -> float:
    """The least step time that some real way, cuts and warm-ups of this shape reach; inf: none can run."""
    layers, random = field.problem.model.num_layers, Random(0)
    ways = list(_real_ways(field, layout, way))
    least = float("inf")
    for real in ways if len(ways) <= MOST_WAYS else random.sample(ways, MOST_WAYS):
        shape = shape_of(field, layout, real, stages)
        for inner in combinations(range(1, layers), way.span * stages - 1):
            for ahead in _warm_ups(field, shape, way.span * stages, random):
                played = field.tried.play(candidate(field, shape, [0, *inner, layers], ahead))
                least = min(least, played)
    return least


def _real_ways(field: Field, layout: DomainLayout, way: DomainWay) -> Iterator[DomainWay]:
    senders = way.senders
    for order in permutations(field.members(layout.kind), way.size):
        if way.span == 1 and list(order) != sorted(order):
            continue
        groups = tuple(order[i * way.span : (i + 1) * way.span] for i in range(way.groups))
        for ceiling in (float("inf"), 0.0):
            real = real_way(field.routes(senders), groups, ceiling, tied=bool(field.tied_bytes))
            if real is not None and (real.relays or ceiling > 0):
                yield replace(real, senders=senders)


def _warm_ups(field: Field, shape: PlanShape, stages: int, random: Random) -> list[tuple[int, ...]]:
    plain: list[tuple[int, ...]] = [()]
    if stages == 1 or not field.rules.live_limit:
        return plain
    ahead = range(min(shape.waves), 0, -1)
    falling = [each for each in product(ahead, repeat=stages) if list(each) == sorted(each, reverse=True)]
    return plain + (falling if len(falling) <= MOST_WARM_UPS else random.sample(falling, MOST_WARM_UPS))
