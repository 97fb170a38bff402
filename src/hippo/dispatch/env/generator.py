"""Problems and fluctuations to learn dispatch on: many sizes, links, memories and noises, all drawn.

A share of them is *asked*: eight ranks, 32 micro-batches, one middle link of 5 F, 8 or 16 micro-batches of memory,
F B W = 1 1.05 .75, 30 % fluctuation. Another share is the *grid* around it: the same ranks, with all links or the
middle one of 0 to 5 F, and 0 to 30 %.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from hippo.dispatch.noise.fluctuation import Fluctuation
from hippo.schedule.problem import RankLink, ScheduleProblem


class DispatchWorld(NamedTuple):
    """A problem and how its times move."""

    problem: ScheduleProblem
    fluctuation: Fluctuation


def drawn_world(
    rng: np.random.Generator, *, asked: float = 0.3, grid: float = 0.35, most_ranks: int = 16
) -> DispatchWorld:
    """One world; ``asked``, ``grid``: the shares of those (see the top of the file)."""
    kind = rng.random()
    if kind < asked:
        return DispatchWorld(asked_problem(int(rng.choice([8, 16]))), _fluctuation(rng, 0.3))
    level = float(rng.choice([0.0, 0.1, 0.2, 0.3, 0.3]))
    return DispatchWorld(_on_grid(rng) if kind < asked + grid else _problem(rng, most_ranks), _fluctuation(rng, level))


def asked_problem(limit: int, *, ranks: int = 8, micro_batches: int = 32, slow: float = 5.0) -> ScheduleProblem:
    """The problem in question: one middle link of ``slow`` F, the others .05, F B W = 1 1.05 .75."""
    delays = [0.05] * (ranks - 1)
    delays[ranks // 2 - 1] = slow
    return ScheduleProblem.uniform(ranks, micro_batches, (1.0, 1.05, 0.75), comm=delays, live_limit=limit)


def _on_grid(rng: np.random.Generator) -> ScheduleProblem:
    delay = float(rng.choice([0.0, 0.1, 1.0, 5.0]))
    middle = asked_problem(int(rng.choice([8, 16])), slow=delay)
    if rng.random() < 0.4:
        return middle
    links = (RankLink(delay),) * (middle.ranks - 1)
    return replace(middle, down=links, up=links)


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
