"""Hypothesis strategy for problems of micro-batch schedules: ``schedule_problems()``."""

from __future__ import annotations

from math import inf

from hypothesis import strategies as st

from hippo.schedule.problem import MicroBatchMemory, RankLink, ScheduleProblem

TIMES = st.sampled_from((0.25, 0.5, 0.75, 1.0, 1.05, 2.0)) | st.floats(0.01, 10.0)
DELAYS = st.sampled_from((0.0, 0.05, 1.0, 5.0)) | st.floats(0.0, 20.0)


@st.composite
def schedule_problems(
    draw: st.DrawFn, *, most_ranks: int = 6, most_micro_batches: int = 12, limited: bool = True
) -> ScheduleProblem:
    """One stage per rank; ranks, links and directions differ; every limit holds at least one micro-batch.

    One in two has ranks that reduce their gradients when they are done.
    """
    p, m = draw(st.integers(1, most_ranks)), draw(st.integers(1, most_micro_batches))
    forward, backward, weight = (tuple(draw(TIMES) for _ in range(p)) for _ in range(3))
    links = st.builds(RankLink, DELAYS, st.just(0.0) | DELAYS)
    down, up = (tuple(draw(links) for _ in range(p - 1)) for _ in range(2))
    memory = tuple(draw(memories()) for _ in range(p))
    room = st.just(inf) | st.integers(1, 2 * p) | st.floats(1.0, 2.0 * p)
    limit = tuple(each.at_forward * draw(room) if limited else inf for each in memory)
    reduction = tuple(draw(DELAYS) for _ in range(p)) if draw(st.booleans()) else ()
    return ScheduleProblem(m, forward, backward, weight, down, up, limit, memory, reduction=reduction)


@st.composite
def memories(draw: st.DrawFn) -> MicroBatchMemory:
    """Given back at W alone, at B alone, or in part at each."""
    taken = draw(st.floats(0.1, 100.0))
    return MicroBatchMemory(taken, taken * draw(st.sampled_from((0.0, 1.0)) | st.floats(0.0, 1.0)))
