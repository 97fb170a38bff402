"""Readiness-driven dispatch: worlds solved by hand, a second way to play it, and legal answers for every legal hint."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hippo.engine.program import BACKWARD, FORWARD, WEIGHT
from hippo.errors import InfeasibleError, UnknownNameError
from hippo.schedule.by_hint import at_of, dispatch, makespans, ordered, queues
from hippo.schedule.check import violations
from hippo.schedule.generators import gpipe, one_f_one_b
from hippo.schedule.problem import PLACEMENTS, MicroBatchMemory, RankLink, ScheduleProblem
from hippo.schedule.replay import makespan, peak_memory, replay
from hippo.schedule.schedule import Schedule, Shape, split
from hippo.schedule.text import parse_schedule, rank_text

FAR = ScheduleProblem.uniform(2, 2, comm=2)
LATE_WEIGHTS = parse_schedule(
    "late stages=2 micro_batches=2\nF0 F1 B0 B1 W0 W1\nF0 B0 W0 F1 B1 W1\n", source="late weights"
)


def fused(problem: ScheduleProblem, name: str) -> Schedule:
    order, start = {"1f1b": one_f_one_b, "gpipe": gpipe}[name].generate(problem)
    return Schedule(name, Shape(problem.ranks, problem.micro_batches), True, order, start)


def lines(schedule: Schedule) -> list[str]:
    return [rank_text(schedule, rank) for rank in range(schedule.shape.stages)]


# ------------------------------------------------------------------------------------------------------------- by hand
def test_a_weight_gradient_fills_the_wait_for_a_gradient() -> None:
    """Rank 0 has B0 from 7 to 8 and gets the gradient for B1 at 10: W0 fits in front of it."""
    found = dispatch(FAR, LATE_WEIGHTS)
    assert lines(found) == ["F0 F1 B0 W0 B1 W1", "F0 B0 W0 F1 B1 W1"]
    assert replay(FAR, found).start.tolist() == [0, 1, 7, 8, 10, 11, 3, 4, 5, 6, 7, 8]
    assert (makespan(FAR, LATE_WEIGHTS), makespan(FAR, found)) == (13, 12)
    assert found.name == "late as a hint"


def test_online_forwards_come_before_weight_gradients() -> None:
    """Rank 1 runs F1 before W0, so its last gradient leaves at 7 instead of 8."""
    found = dispatch(FAR, LATE_WEIGHTS, rule="online")
    assert lines(found) == ["F0 F1 B0 W0 B1 W1", "F0 B0 F1 B1 W0 W1"]
    assert makespan(FAR, found) == 11


IMPATIENT = replace(FAR, forward=(1.0, 0.5))
WEIGHTS_LAST = parse_schedule("h stages=2 micro_batches=2\nF0 F1 B0 B1 W0 W1\nF0 B0 F1 B1 W0 W1\n", source="h")


def test_patience_waits_for_what_comes_first() -> None:
    """Gradients reach rank 0 at 6.5 and 8: W0 from 7.5 would delay B1 by half of W0; B1 is announced at 7."""
    for patience, first in ((0.0, "F0 F1 B0 W0 B1 W1"), (0.4, "F0 F1 B0 W0 B1 W1"), (0.5, "F0 F1 B0 B1 W0 W1")):
        found = dispatch(IMPATIENT, WEIGHTS_LAST, patience=patience)
        assert lines(found) == [first, "F0 B0 F1 B1 W0 W1"]
        assert replay(IMPATIENT, found).start[:6].tolist() == [
            0,
            1,
            6.5,
            *((8, 9, 10) if patience == 0.5 else (7.5, 8.5, 9.5)),
        ]


def test_patience_ends_when_a_message_is_overdue() -> None:
    """The gradient for B1, expected at 8, takes ten times as long (6 + 20): W0 starts half of its time after 8."""
    late, start = np.ones((1, 8)), np.empty((3, 2, 2))
    late[0, 7] = 10  # what B1 of rank 1 sends
    hint = queues(IMPATIENT, WEIGHTS_LAST, patience=0.5)
    assert makespans(IMPATIENT, hint, (np.ones((1, 12)), late, np.ones((1, 2))), starts=start) == [28]
    assert start[:, 0].tolist() == [[0, 1], [6.5, 26], [8.5, 27]]


def test_one_f_one_b_stays_itself_where_nothing_is_gained() -> None:
    """With the memory of 1F1B: with more, a rank that waits for its first gradient runs one forward more."""
    for p, m in ((1, 3), (2, 4), (4, 8)):
        free = ScheduleProblem.uniform(p, m)
        hint = fused(free, "1f1b")
        problem = replace(free, limit=tuple(peak_memory(free, hint).tolist()))
        assert lines(dispatch(problem, hint)) == lines(split(hint))


def test_messages_of_a_link_leave_one_after_the_other() -> None:
    """Transfers of 2: F0 leaves rank 0 from 1 to 3, F1 from 3 to 5."""
    link = (RankLink(latency=0.5, transfer=2.0),)
    problem = replace(FAR, down=link, up=link)
    found = dispatch(problem, LATE_WEIGHTS, rule="online")
    assert lines(found)[1] == "F0 B0 F1 B1 W0 W1"
    assert replay(problem, found).start[6:].tolist() == [3.5, 4.5, 5.5, 6.5, 7.5, 8.5]


def test_split_makes_two_of_a_fused_backward() -> None:
    whole = split(fused(ScheduleProblem.uniform(2, 2), "1f1b"))
    assert lines(whole) == ["F0 F1 B0 W0 B1 W1", "F0 B0 W0 F1 B1 W1"]
    assert whole.order_start.tolist() == [0, 6, 12]
    assert split(whole) is whole


# -------------------------------------------------------------------------------------------------------------- memory
def test_a_hint_that_needs_more_than_the_limit_is_held_to_the_limit() -> None:
    problem = ScheduleProblem.uniform(3, 7, live_limit=2)
    found = dispatch(problem, fused(problem, "gpipe"))
    assert violations(problem, found) == ()
    assert peak_memory(problem, found).max() == 2


def test_a_hint_that_gets_stuck_names_a_limit_that_does() -> None:
    """Both first chunks fill rank 0 before the second one comes by."""
    problem = ScheduleProblem.uniform(1, 2, live_limit=1).placed("looped")
    hint = parse_schedule(
        "two stages=1 micro_batches=2 chunks=2\nF0a F1a F0b F1b B0b W0b B1b W1b B0a W0a B1a W1a\n", source="two"
    )
    with pytest.raises(InfeasibleError, match=r"two as a hint keeps 2 on rank 0, the limit is 1.*--memory 2"):
        dispatch(problem, hint)
    assert violations(replace(problem, limit=(2.0,)), dispatch(replace(problem, limit=(2.0,)), hint)) == ()


def test_rules_have_names() -> None:
    with pytest.raises(UnknownNameError, match="hint, online"):
        dispatch(FAR, LATE_WEIGHTS, rule="fifo")


# ---------------------------------------------------------------------------------------------------------- properties
EIGHTHS = st.integers(1, 16).map(lambda n: n / 8)


@st.composite
def problems(draw: st.DrawFn) -> ScheduleProblem:
    """Times in eighths, so that sums are exact and equal times are equal."""
    p, m = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    forward, backward, weight = (tuple(draw(st.lists(EIGHTHS, min_size=p, max_size=p))) for _ in range(3))
    link = st.builds(RankLink, st.sampled_from([0.0, 0.5, 3.0]), st.sampled_from([0.0, 0.0, 0.5]))
    down, up = (tuple(draw(st.lists(link, min_size=p - 1, max_size=p - 1))) for _ in range(2))
    memory = (MicroBatchMemory(1.0, draw(st.sampled_from([0.0, 0.5]))),) * p
    problem = ScheduleProblem(m, forward, backward, weight, down, up, (inf,) * p, memory)
    reduction = tuple(draw(st.lists(EIGHTHS, min_size=p, max_size=p))) if draw(st.booleans()) else ()
    return replace(problem, reduction=reduction).placed(draw(st.sampled_from(PLACEMENTS)))


def some_hint(problem: ScheduleProblem, rng: np.random.Generator) -> Schedule:
    """A legal schedule drawn at random: micro-batches in any order, each operation after what it needs."""
    tables, v = problem.tables, problem.chunks
    before: dict[tuple[int, int, int], tuple[int, int, int] | None] = {}
    for slot in range(problem.ranks * v):
        for i in range(tables.offset[slot], tables.offset[slot] + tables.passes[slot]):
            source = np.flatnonzero(tables.onward[FORWARD] == slot)
            before[FORWARD, slot, i] = (FORWARD, int(source[0]), i) if len(source) else None
            source = np.flatnonzero(tables.onward[BACKWARD] == slot)
            before[BACKWARD, slot, i] = (BACKWARD, int(source[0]), i) if len(source) else (FORWARD, slot, i)
            before[WEIGHT, slot, i] = (BACKWARD, slot, i)
    left = list(before)
    rows: list[list[tuple[int, int, int]]] = [[] for _ in range(problem.ranks)]
    while left:
        ready = [
            each for each in left if before[each] not in left and (each[0] != BACKWARD or (0, *each[1:]) not in left)
        ]
        kind, slot, i = ready[rng.integers(len(ready))]
        left.remove((kind, slot, i))
        rows[slot // v].append((kind, slot % v, i))
    order = np.array([row for rank in rows for row in rank], dtype=np.int64)
    start = np.cumsum([0, *map(len, rows)])
    for array in (order, start):
        array.setflags(write=False)
    return Schedule("random", Shape(problem.ranks, problem.micro_batches, v), False, order, start)


@settings(deadline=None)
@given(problems(), st.integers(0, 2**32 - 1), st.sampled_from(["hint", "online"]), st.sampled_from([0.0, 0.3, 1.0]))
def test_every_legal_hint_runs_to_its_end_within_its_memory(
    problem: ScheduleProblem, seed: int, rule: str, patience: float
) -> None:
    hint = some_hint(problem, np.random.default_rng(seed))
    assert violations(problem, hint) == ()
    tight = replace(problem, limit=tuple(peak_memory(problem, hint).tolist()))
    found = dispatch(tight, hint, rule=rule, patience=patience)
    assert violations(tight, found) == ()
    if patience == 0:  # nobody waited for nothing, so the order alone says when everything runs
        size = problem.ranks * problem.chunks, problem.micro_batches
        starts, ones = np.empty((3, *size)), np.ones((1, 3 * size[0] * size[1]))
        (span,) = makespans(tight, queues(tight, hint, rule), (ones, ones, np.ones((1, problem.ranks))), starts=starts)
        start = starts[at_of(hint)]
        assert span == makespan(tight, found) == replay(tight, found).makespan
        ranks = np.repeat(np.arange(problem.ranks), np.diff(hint.order_start))
        assert replay(tight, found).start.tolist() == start[np.lexsort((start, ranks))].tolist()


@settings(deadline=None)
@given(problems(), st.integers(0, 2**32 - 1), st.booleans())
def test_the_kernel_agrees_with_the_clear_way(problem: ScheduleProblem, seed: int, noisy: bool) -> None:
    rng = np.random.default_rng(seed)
    hint = some_hint(problem, rng)
    tight = replace(problem, limit=tuple(peak_memory(problem, hint).tolist()))
    n, starts = len(hint.order), np.empty((3, problem.ranks * problem.chunks, problem.micro_batches))
    factors = [rng.integers(6, 11, count) / 8 if noisy else np.ones(count) for count in (n, n, problem.ranks)]
    operations, messages = np.ones((2, *starts.shape))
    operations[at_of(hint)], messages[at_of(hint)] = factors[0], factors[1]
    drawn = operations.reshape(1, -1), messages.reshape(1, -1), factors[2][None]
    found, start = makespans(tight, queues(tight, hint), drawn, starts=starts)[0], starts[at_of(hint)]
    expected = clear_way(tight, hint, *factors)
    if not noisy:  # factors of 1 give the order without noise
        assert ordered(hint, start, "").order.tolist() == dispatch(tight, hint).order.tolist()
    assert start.tolist() == expected.tolist()
    assert found >= start.max()


def clear_way(
    problem: ScheduleProblem, hint: Schedule, factor: np.ndarray, message: np.ndarray, own: np.ndarray
) -> np.ndarray:
    """Starts by stepping from event to event and looking at every rank each time."""
    tables, v = problem.tables, problem.chunks
    ranks = np.repeat(np.arange(problem.ranks), np.diff(hint.order_start))
    start, left = np.full(len(hint.order), np.nan), list(range(len(hint.order)))
    arrived = {(FORWARD, s, i): 0.0 for s in range(problem.ranks * v) for i in range(problem.micro_batches)}
    for onward in tables.onward[FORWARD][tables.onward[FORWARD] >= 0]:
        arrived.update({(FORWARD, int(onward), i): inf for i in range(problem.micro_batches)})
    free, live, now = [0.0] * problem.ranks, [0.0] * problem.ranks, 0.0
    link_free: dict[int, float] = {}
    while left:
        for rank in range(problem.ranks):
            heads: dict[int, int] = {}
            for op in left:
                if ranks[op] == rank:
                    heads.setdefault(int(hint.order[op, 0]), op)
            for op in sorted(heads.values()):
                kind, slot, i = int(hint.order[op, 0]), rank * v + int(hint.order[op, 1]), int(hint.order[op, 2])
                blocked = kind == FORWARD and live[rank] + tables.taken[slot] > problem.limit[rank]
                if free[rank] > now or blocked or arrived.get((kind, slot, i), inf) > now:
                    continue
                start[op], left = now, [each for each in left if each != op]
                end = free[rank] = now + tables.duration[kind, slot] * own[rank] * factor[op]
                live[rank] += (tables.taken[slot], -tables.freed[slot], tables.freed[slot] - tables.taken[slot])[kind]
                if kind == BACKWARD:
                    arrived[WEIGHT, slot, i] = end
                if kind == WEIGHT:
                    break
                onward, sent, port = int(tables.onward[kind, slot]), end, int(tables.port[kind, slot])
                if port >= 0:
                    sent = max(end, link_free.get(port, 0.0)) + tables.transfer[kind, slot] * message[op]
                    link_free[port] = sent
                if onward >= 0:
                    arrived[kind, onward, i] = sent + tables.delay[kind, slot] * message[op]
                elif kind == FORWARD:
                    arrived[BACKWARD, slot, i] = end
                break
        events = [each for each in (*free, *arrived.values()) if now < each < inf]
        now = min(events, default=inf)
        assert now < inf or not left, "stuck"
    return start
