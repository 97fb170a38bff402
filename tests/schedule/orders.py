"""Small schedule problems and legal orders at random, for property tests."""

from __future__ import annotations

import random
from math import inf

from hypothesis import strategies as st

from hippo.engine.program import BACKWARD, FORWARD, WEIGHT
from hippo.schedule.problem import MicroBatchMemory, RankLink, ScheduleProblem
from hippo.schedule.schedule import Schedule, Shape
from hippo.schedule.text import schedule_of_rows

TIMES = st.floats(0.1, 10.0).map(lambda value: round(value, 3))
DELAYS = st.sampled_from([0.0, 0.05, 1.0, 5.0])
LINKS = st.builds(RankLink, DELAYS, st.sampled_from([0.0, 0.0, 0.5, 3.0]))
CHUNKS = {"plain": (1, 1), "looped": (2, 3), "v": (2, 2), "bidirectional": (2, 2)}


@st.composite
def problems(draw: st.DrawFn, placements: tuple[str, ...] = tuple(CHUNKS)) -> ScheduleProblem:
    """Up to four ranks and five micro-batches, no limit; at times memory given back in parts, gradients reduced."""
    p, m = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    placement = draw(st.sampled_from(placements))
    forward, backward, weight = (tuple(draw(st.lists(TIMES, min_size=p, max_size=p))) for _ in range(3))
    down, up = (tuple(draw(st.lists(LINKS, min_size=p - 1, max_size=p - 1))) for _ in range(2))
    memory = (MicroBatchMemory(2.0, draw(st.sampled_from([0.0, 0.5, 2.0]))),) * p if draw(st.booleans()) else ()
    chunks = draw(st.integers(*CHUNKS[placement]))
    reduction = tuple(draw(st.lists(DELAYS, min_size=p, max_size=p))) if draw(st.booleans()) else ()
    return ScheduleProblem(
        m, forward, backward, weight, down, up, (inf,) * p, memory, placement, chunks, reduction=reduction
    )


def legal_order(problem: ScheduleProblem, seed: int, *, fused: bool = False) -> Schedule:
    """A legal schedule: again and again any operation whose input is there, micro-batches of a chunk in order."""
    draw, tables, v = random.Random(seed), problem.tables, problem.chunks
    slots, kinds = range(problem.ranks * v), (FORWARD, BACKWARD) if fused else (FORWARD, BACKWARD, WEIGHT)
    done = {(kind, slot): 0 for kind in kinds for slot in slots}
    before = {(kind, int(tables.onward[kind, slot])): slot for kind in (0, 1) for slot in slots}
    rows: list[list[tuple[int, int, int]]] = [[] for _ in range(problem.ranks)]

    def ready(kind: int, slot: int) -> bool:
        count = done[kind, slot]
        if count == tables.passes[slot] or (kind != FORWARD and done[kind - 1, slot] <= count):
            return False
        source = before.get((kind, slot)) if kind != WEIGHT else None
        return source is None or done[kind, source] > count

    while choices := [key for key in done if ready(*key)]:
        kind, slot = draw.choice(choices)
        rows[slot // v].append((kind, slot % v, int(tables.offset[slot]) + done[kind, slot]))
        done[kind, slot] += 1
    return schedule_of_rows("random", Shape(problem.ranks, problem.micro_batches, v), rows, fused=fused)


@st.composite
def scheduled(draw: st.DrawFn, placements: tuple[str, ...] = tuple(CHUNKS)) -> tuple[ScheduleProblem, Schedule]:
    """A problem and a legal schedule of it."""
    problem = draw(problems(placements))
    return problem, legal_order(problem, draw(st.integers(0, 10**6)), fused=draw(st.booleans()))
