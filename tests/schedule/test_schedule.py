"""Schedules as data: golden orders, what they must hold, refusals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hippo.engine.program import BACKWARD, FORWARD, WEIGHT
from hippo.errors import InputError, UnknownNameError
from hippo.schedule.schedule import SCHEDULES, Schedule, order, warm_up_is_sound
from hippo.simulate import fast
from hippo.simulate.abstract import abstract_program

GOLDEN = Path(__file__).with_name("schedules.txt")
"""Printed by ``text`` below, then read against the figures of the papers that the modules name."""

SHOWN = (
    ("gpipe", {"stages": 3, "micro_batches": 4}),
    ("1f1b", {"stages": 4, "micro_batches": 6}),
    ("1f1b", {"stages": 3, "micro_batches": 6, "live_limit": 5}),
    ("interleaved", {"stages": 2, "micro_batches": 4, "chunks": 2}),
    ("cross-domain", {"stages": 3, "micro_batches": 6, "live_limit": 6}),
    ("cross-domain", {"stages": 3, "micro_batches": 6, "warm_up": (5, 4, 1)}),
)


def text(name: str, shape: dict[str, object]) -> str:
    """One line per rank: F, B and the micro-batch, and the chunk where there are several."""
    schedule = order(name, **shape)
    head = " ".join([name, *(f"{key}={value}" for key, value in shape.items())])
    lines = [
        " ".join(
            f"{'FBW'[kind]}{micro_batch}{chr(97 + chunk) if schedule.shape.chunks > 1 else ''}"
            for kind, chunk, micro_batch in schedule.rank(rank)
        )
        for rank in range(schedule.shape.stages)
    ]
    live = " ".join(f"{value:g}" for value in schedule.peak_live)
    return "\n".join([head, *lines, f"live {live}"])


def test_golden_orders() -> None:
    assert "\n\n".join(text(*shown) for shown in SHOWN) + "\n" == GOLDEN.read_text()


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    name = draw(st.sampled_from(sorted(SCHEDULES)))
    p, m = draw(st.integers(1, 6)), draw(st.integers(1, 12))
    chunks = draw(st.integers(1, 3)) if name == "interleaved" else 1
    limit = draw(st.none() | st.integers(1, 30)) if name in ("1f1b", "cross-domain") else None
    own = name == "cross-domain" and draw(st.booleans())
    ahead = sorted(draw(st.lists(st.integers(1, m), min_size=p, max_size=p)), reverse=True) if own else []
    return order(name, stages=p, micro_batches=m, chunks=chunks, live_limit=limit, warm_up=tuple(ahead))


@given(schedules())
def test_every_rank_runs_everything_once_and_forwards_first(schedule: Schedule) -> None:
    shape = schedule.shape
    for rank in range(shape.stages):
        rows = [tuple(row) for row in schedule.rank(rank).tolist()]
        kinds = (FORWARD, BACKWARD) if schedule.fused else (FORWARD, BACKWARD, WEIGHT)
        wanted = {(k, c, m) for k in kinds for c in range(shape.chunks) for m in range(shape.micro_batches)}
        assert len(rows) == len(wanted)
        assert set(rows) == wanted
        assert all(
            rows.index((FORWARD, chunk, m)) < rows.index((BACKWARD, chunk, m))
            for kind, chunk, m in rows
            if kind == FORWARD
        )


@given(schedules())
def test_peak_live_is_what_a_count_says(schedule: Schedule) -> None:
    release = BACKWARD if schedule.fused else WEIGHT
    for rank, peak in enumerate(schedule.peak_live):
        live = most = 0
        for kind in schedule.rank(rank)[:, 0]:
            live += int(kind == FORWARD) - int(kind == release)
            most = max(most, live)
        assert peak == pytest.approx(most / schedule.shape.chunks)


@given(schedules())
def test_no_order_deadlocks(schedule: Schedule) -> None:
    program = abstract_program(schedule, forward_s=1.0, backward_s=2.0, delay_s=0.5)
    assert fast.step_time(program) >= 2.999999 * schedule.shape.micro_batches


def test_one_f_one_b_keeps_as_many_live_as_stages_follow() -> None:
    assert order("1f1b", stages=4, micro_batches=8).peak_live == (4, 3, 2, 1)
    assert order("gpipe", stages=4, micro_batches=8).peak_live == (8, 8, 8, 8)


def test_equal_arguments_give_the_same_object() -> None:
    one = order("1f1b", stages=3, micro_batches=5)
    assert order("1f1b", stages=3, micro_batches=5) is one
    with pytest.raises(ValueError, match="read-only"):
        one.order[0, 0] = 1


def test_warm_up_never_rises() -> None:
    assert warm_up_is_sound((4, 4, 1), 4)
    assert not warm_up_is_sound((3, 4), 8)
    assert not warm_up_is_sound((9, 1), 8)
    assert not warm_up_is_sound((1, 0), 8)


@pytest.mark.parametrize(
    ("name", "shape", "key"),
    [
        ("1f1b", {"stages": 0, "micro_batches": 1}, "stages"),
        ("1f1b", {"stages": 1, "micro_batches": 0}, "micro_batches"),
        ("1f1b", {"stages": 64, "micro_batches": 10**6}, "micro_batches"),
        ("1f1b", {"stages": 1, "micro_batches": 1, "chunks": 2}, "interleave"),
        ("1f1b", {"stages": 1, "micro_batches": 1, "live_limit": 0}, "live_limit"),
        ("1f1b", {"stages": 1, "micro_batches": 1, "warm_up": (1,)}, "warm_up"),
        ("cross-domain", {"stages": 2, "micro_batches": 4, "warm_up": (1,)}, "warm_up"),
        ("cross-domain", {"stages": 2, "micro_batches": 4, "warm_up": (1, 2)}, "warm_up"),
    ],
)
def test_shapes_without_a_schedule_are_refused(name: str, shape: dict[str, object], key: str) -> None:
    with pytest.raises(InputError, match=key):
        order(name, **shape)


def test_an_unknown_schedule_lists_the_known_ones() -> None:
    with pytest.raises(UnknownNameError, match="gpipe"):
        order("zigzag", stages=1, micro_batches=1)


def test_the_starts_cut_the_order_into_ranks() -> None:
    schedule = order("interleaved", stages=3, micro_batches=6, chunks=2)
    assert np.array_equal(schedule.order_start, [0, 24, 48, 72])
    assert len(schedule.order) == 72
