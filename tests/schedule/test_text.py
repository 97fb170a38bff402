"""Schedules as text: what is written is read again, what is wrong is named with its line and word."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from hippo.errors import InputError
from hippo.schedule.methods import generate
from hippo.schedule.problem import ScheduleProblem
from hippo.schedule.schedule import Schedule
from hippo.schedule.text import operation_name, parse_schedule, rank_text, schedule_text

from .orders import scheduled


def test_golden_text():
    problem = ScheduleProblem.uniform(2, 3)
    assert schedule_text(generate("1f1b", problem)) == (
        "1f1b stages=2 micro_batches=3 fused\nF0 F1 B0 F2 B1 B2\nF0 B0 F1 B1 F2 B2\n"
    )
    interleaved = generate("interleaved", problem.placed("looped"))
    assert schedule_text(interleaved).splitlines()[0] == "interleaved stages=2 micro_batches=3 chunks=2 fused"
    assert rank_text(interleaved, 1).startswith("F0a F1a F0b B0b")


@settings(deadline=None)
@given(scheduled())
def test_what_is_written_is_read(pair: tuple[ScheduleProblem, Schedule]):
    _, schedule = pair
    again = parse_schedule(schedule_text(schedule), source="test")
    assert np.array_equal(again.order, schedule.order)
    assert np.array_equal(again.order_start, schedule.order_start)
    assert (again.name, again.shape, again.fused) == (schedule.name, schedule.shape, schedule.fused)


def test_many_chunks_have_two_letters():
    assert [operation_name(0, chunk, 5, chunks=60) for chunk in (0, 25, 26, 59)] == ["F5a", "F5z", "F5aa", "F5bh"]
    text = f"deep stages=1 micro_batches=1 chunks=30\n{' '.join(operation_name(0, c, 0, chunks=30) for c in range(30))}"
    assert parse_schedule(text, source="test").order[:, 1].tolist() == list(range(30))


def test_comments_and_blank_lines_are_passed_over():
    text = "# made by hand\n\nmine  stages=1 micro_batches=1\n\n  F0 B0   W0\n# end"
    assert parse_schedule(text, source="test").order.tolist() == [[0, 0, 0], [1, 0, 0], [2, 0, 0]]


@pytest.mark.parametrize(
    ("text", "key", "said"),
    [
        ("", "line 1", "no header"),
        ("F0 B0 W0", "line 1", "F0 B0 W0"),
        ("mine stages=0 micro_batches=2", "line 1", "0"),
        ("mine stages=1 micro_batches=-2", "line 1", "-2"),
        ("mine stages=2 micro_batches=1\nF0 B0 W0", "line 1", "1 lines follow"),
        ("mine stages=1 micro_batches=1\nF0 B0 W0\nF0", "line 1", "2 lines follow"),
        ("mine stages=1 micro_batches=1\n#\nF0 G0", "line 3", "G0"),
        ("mine stages=1 micro_batches=1\nF0 B1", "line 2", "B1"),
        ("mine stages=1 micro_batches=1\nF0a", "line 2", "F0a"),
        ("mine stages=1 micro_batches=1 chunks=2\nF0", "line 2", "F0a"),
        ("mine stages=1 micro_batches=1 chunks=2\nF0c", "line 2", "F0c"),
        ("mine stages=1 micro_batches=1 fused\nF0 B0 W0", "line 2", "W0"),
        ("mine stages=1 micro_batches=1\nF99999999999999999999", "line 2", "F9999"),
    ],
)
def test_what_is_wrong_is_named(text: str, key: str, said: str):
    with pytest.raises(InputError) as caught:
        parse_schedule(text, source="order.txt")
    message = str(caught.value)
    assert message.startswith(f"order.txt: {key}: ")
    assert said in message
    assert "To fix: " in message
