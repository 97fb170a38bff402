"""The checker: sound schedules pass, whatever is broken is named, and a count by hand agrees."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hippo.schedule.check import violations
from hippo.schedule.methods import generate
from hippo.schedule.problem import MicroBatchMemory, ScheduleProblem
from hippo.schedule.replay import peak_memory
from hippo.schedule.schedule import Schedule
from hippo.schedule.text import parse_schedule

from .orders import legal_order, problems, scheduled

TWO = ScheduleProblem.uniform(2, 2)
SOUND = "mine stages=2 micro_batches=2\nF0 F1 B0 W0 B1 W1\nF0 B0 W0 F1 B1 W1\n"


def schedule(text: str) -> Schedule:
    return parse_schedule(text, source="test")


@settings(deadline=None)
@given(scheduled())
def test_a_legal_order_passes(pair: tuple[ScheduleProblem, Schedule]):
    assert violations(*pair) == ()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("B1 W1\nF0", "B1\nF0", "rank 0: W1 is missing"),
        ("F0 F1 B0", "F0 F1 F1 B0", "rank 0: F1 runs more than once"),
        ("F0 F1 B0", "F0 F0 B0", "rank 0: F1 is missing"),
        ("B0 W0 F1 B1 W1", "W0 B0 F1 B1 W1", "rank 1: W0 runs before B0"),
        ("B0 W0 F1 B1 W1", "B0 W0 B1 F1 W1", "rank 1: B1 runs before F1"),
        ("F0 B0 W0 F1 B1 W1", "F1 B1 W1 F0 B0 W0", ""),
        ("F0 F1 B0 W0 B1 W1", "F1 B1 W1 F0 B0 W0", "the ranks wait for each other: rank 0 at B1, rank 1 at F0"),
    ],
)
def test_what_is_wrong_is_named(old: str, new: str, said: str):
    found = violations(TWO, schedule(SOUND.replace(old, new, 1)))
    assert (said in found) if said else not found


def test_ranks_of_another_problem():
    assert "2 ranks, not 3" in violations(ScheduleProblem.uniform(3, 2), schedule(SOUND))[0]


def test_numbers_that_name_no_operation():
    sound = schedule(SOUND)
    for column, value, said in ((0, 3, "(3, 0, 0)"), (1, 1, "F0b"), (1, -1, "(0, -1, 0)"), (2, 7, "F7"), (2, -1, "-1")):
        order = sound.order.copy()
        order[0, column] = value
        found = violations(TWO, replace(sound, order=order))
        assert any(said in sentence for sentence in found), found
        assert "rank 0: F0 is missing" in found


def test_weight_rows_do_not_go_with_a_fused_backward():
    assert violations(TWO, replace(schedule(SOUND), fused=True))


def test_memory_above_the_limit():
    limited = replace(TWO, limit=(1.0, 1.0))
    assert violations(limited, schedule(SOUND)) == ("rank 0: keeps 2, the limit is 1",)
    assert violations(limited, schedule(SOUND), memory=False) == ()


def test_what_the_backward_gives_back_makes_room():
    text = "mine stages=1 micro_batches=2\nF0 B0 F1 W0 B1 W1\n"
    problem = replace(ScheduleProblem.uniform(1, 2, live_limit=1), memory=(MicroBatchMemory(1.0, 0.75),))
    assert violations(problem, schedule(text)) == ("rank 0: keeps 1.25, the limit is 1",)
    assert violations(replace(problem, limit=(1.25,)), schedule(text)) == ()


@settings(deadline=None)
@given(problems(), st.integers(0, 10**6), st.data())
def test_peaks_are_what_a_count_says(problem: ScheduleProblem, seed: int, data: st.DataObject):
    made = legal_order(problem, seed, fused=data.draw(st.booleans()))
    memory = problem.memory or (MicroBatchMemory(),) * problem.ranks
    for rank, peak in enumerate(peak_memory(problem, made)):
        share = 1.0 if problem.placement == "bidirectional" else 1.0 / problem.chunks
        kept = most = 0.0
        for kind, _, _ in made.rank(rank):
            change = {0: memory[rank].at_forward, 1: -memory[rank].at_backward}
            change[2] = memory[rank].at_backward - memory[rank].at_forward
            kept += share * (change[kind] if not (made.fused and kind == 1) else -memory[rank].at_forward)
            most = max(most, kept)
        assert peak == pytest.approx(most)


def is_sound(problem: ScheduleProblem, made: Schedule) -> bool:
    """The definition, with sets and an event loop: every operation once, and all of them can run."""
    v, tables = problem.chunks, problem.tables
    kinds = (0, 1) if made.fused else (0, 1, 2)
    rows = [[tuple(row) for row in made.rank(rank).tolist()] for rank in range(problem.ranks)]
    for rank in range(problem.ranks):
        wanted = [
            (kind, chunk, int(tables.offset[rank * v + chunk]) + i)
            for kind in kinds
            for chunk in range(v)
            for i in range(tables.passes[rank * v + chunk])
        ]
        if sorted(rows[rank]) != sorted(wanted):
            return False
    source = {(kind, int(tables.onward[kind, slot])): slot for kind in (0, 1) for slot in range(problem.ranks * v)}
    ran: set[tuple[int, int, int]] = set()
    todo = [list(row) for row in rows]

    def can_run(rank: int, kind: int, chunk: int, micro_batch: int) -> bool:
        slot = rank * v + chunk
        if kind and (kind - 1, slot, micro_batch) not in ran:
            return False
        sender = source.get((kind, slot))
        return kind == 2 or sender is None or (kind, sender, micro_batch) in ran

    moved = True
    while moved:
        moved = False
        for rank, row in enumerate(todo):
            while row and can_run(rank, *row[0]):
                kind, chunk, micro_batch = row.pop(0)
                ran.add((kind, rank * v + chunk, micro_batch))
                moved = True
    return not any(todo)


@settings(deadline=None)
@given(scheduled(), st.data())
def test_the_checker_agrees_with_the_definition(pair: tuple[ScheduleProblem, Schedule], data: st.DataObject):
    problem, made = pair
    order = made.order.copy()
    for _ in range(data.draw(st.integers(1, 3))):
        here, there = (data.draw(st.integers(0, len(order) - 1)) for _ in range(2))
        match data.draw(st.sampled_from(["swap", "copy", "change"])):
            case "swap":
                order[[here, there]] = order[[there, here]]
            case "copy":
                order[here] = order[there]
            case "change":
                order[here, data.draw(st.integers(0, 2))] = data.draw(st.integers(-1, 4))
    broken = replace(made, order=order)
    assert (violations(problem, broken) == ()) == is_sound(problem, broken)


def test_large_schedules_pass():
    problem = ScheduleProblem.uniform(16, 128)
    assert violations(problem, generate("1f1b", problem)) == ()
    rows = generate("1f1b", problem)
    order = rows.order.copy()
    order[[1000, 1001]] = order[[1001, 1000]]
    assert isinstance(violations(problem, replace(rows, order=np.ascontiguousarray(order))), tuple)
