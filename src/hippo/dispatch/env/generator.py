"""Problems and fluctuations to learn dispatch on: many sizes, links, memories and noises, all drawn.

Shapes are dealt out before anything is drawn: ranks + micro-batches + memory (micro-batches that the first rank holds),
over 4, leave 1 or 3 where a policy learns, 2 where it is looked at while it learns, and 0 where it is judged, as all
problems of results/dispatch.md do. So no problem is learned on and judged on, whatever is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from hippo.dispatch.base import Base
from hippo.dispatch.noise.fluctuation import Fluctuation
from hippo.schedule.problem import RankLink, ScheduleProblem

LEARN, LOOK, JUDGE = "learn", "look", "judge"
_SIDES: Mapping[int, str] = MappingProxyType({0: JUDGE, 1: LEARN, 2: LOOK, 3: LEARN})


def side_of(problem: ScheduleProblem) -> str:
    """What problems of this shape are for (``LEARN``, ``LOOK`` or ``JUDGE``): see the top of the file."""
    return _SIDES[(problem.ranks + problem.micro_batches + int(problem.limit[0])) % 4]


class DispatchWorld(NamedTuple):
    """A problem and how its times move."""

    problem: ScheduleProblem
    fluctuation: Fluctuation
    base: Base | None = None  # that is learned on; None: the problem's own


def drawn_world(rng: np.random.Generator, *, side: str = LEARN, most_ranks: int = 16) -> DispatchWorld:
    """One world whose shape is on that side."""
    level = float(rng.choice([0.0, 0.1, 0.2, 0.3, 0.3]))
    while True:
        problem = _problem(rng, most_ranks)
        if side_of(problem) == side:
            return DispatchWorld(problem, _fluctuation(rng, level))


def most_micro_batches(ranks: int) -> int:
    """Of drawn problems with so many ranks."""
    return max(ranks + 1, min(4 * ranks, 40))


def _problem(rng: np.random.Generator, most_ranks: int) -> ScheduleProblem:
    p = int(rng.integers(2, most_ranks + 1))
    m = int(rng.integers(p, most_micro_batches(p) + 1))
    spread = float(rng.choice([0.0, 0.0, 0.2]))
    forward, backward, weight = (
        tuple((mean * (1 + spread * rng.uniform(-1, 1, p))).tolist())
        for mean in (1.0, rng.uniform(0.8, 1.5), rng.uniform(0.5, 1.2))
    )
    down, up = _links(rng, p)
    limit = float(max(1, round(p * rng.choice([0.5, 0.75, 1.0, 1.5, 2.0])) + int(rng.integers(-1, 2))))
    return ScheduleProblem(m, forward, backward, weight, down, up, (limit,) * p)


def _links(rng: np.random.Generator, p: int) -> tuple[tuple[RankLink, ...], tuple[RankLink, ...]]:
    """Alike, one slow, two slow, or all different; one in four with transfer times."""
    form, slow = rng.choice(["alike", "one", "one", "two", "different"]), rng.choice([0.5, 1.0, 2.0, 5.0])
    delays = np.full(p - 1, 0.05)
    if form == "alike":
        delays[:] = rng.choice([0.02, 0.1, 0.5, 1.0, 2.0])
    elif form == "different":
        delays[:] = rng.uniform(0.02, slow, p - 1)
    else:
        delays[rng.permutation(p - 1)[: 1 if form == "one" else 2]] = slow
    transfer = rng.uniform(0, 0.5) if rng.random() < 0.25 else 0.0
    links = tuple(RankLink(float(each), float(transfer)) for each in delays)
    return links, links


def _fluctuation(rng: np.random.Generator, level: float) -> Fluctuation:
    kind = str(rng.choice(["normal", "uniform"]))
    rank_level = float(rng.choice([0.0, 0.0, 0.1, 0.15]))
    share = 0.01 if rng.random() < 0.15 else 0.0
    return Fluctuation(level, kind, rank_level=rank_level, abnormal_share=share)
