"""The record of one step: columns, order of messages, totals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.simulate.worlds import random_program

from hippo.schedule.schedule import order
from hippo.simulate import fast
from hippo.simulate.abstract import PlannedLine, abstract_program, on_links
from hippo.simulate.timeline import busy_s, link_bytes


@given(st.integers(0, 10**6))
def test_what_every_timeline_holds(seed: int) -> None:
    program = random_program(seed)
    played = fast.play(program)
    assert played.step_time_s == pytest.approx(played.op_end_s.max())
    assert (played.op_end_s >= played.op_start_s).all()
    assert (np.diff(played.message_start_s) >= 0).all()
    for rank in range(len(program.rank_stage)):  # a rank does one thing at a time
        mine = played.op_rank == rank
        assert (played.op_start_s[mine][1:] >= played.op_end_s[mine][:-1] - 1e-12).all()
    for link in range(len(program.link_latency_s)):  # a link carries one message at a time
        mine = played.message_link == link
        hold = played.message_bytes[mine] / program.link_bandwidth_bytes_per_s[link]
        start = played.message_start_s[mine]
        assert (start[1:] >= (start + hold)[:-1] - 1e-9).all()


@given(st.integers(0, 10**6))
def test_totals_are_the_sums_of_the_record(seed: int) -> None:
    program = random_program(seed)
    played = fast.play(program)
    sums = np.bincount(played.message_link, played.message_bytes, minlength=len(program.link_latency_s))
    assert played.link_bytes == pytest.approx(sums)
    assert link_bytes(program) == pytest.approx(sums)
    if program.gather is None:
        work = played.op_kind < 3
        lengths = np.bincount(played.op_rank[work], (played.op_end_s - played.op_start_s)[work])
        assert played.rank_busy_s == pytest.approx(lengths)
        assert busy_s(program) == pytest.approx(lengths)


def test_the_columns_of_a_step_by_hand() -> None:
    """Two stages, one wave: F 0 to 1, there 1 to 5 + 1, F 6 to 7, B 7 to 9, back 9 to 10 + 0.5, B 10.5 to 12.5."""
    program = abstract_program(order("1f1b", stages=2, micro_batches=1), forward_s=1.0, backward_s=2.0)
    lines = [PlannedLine(1.0, 1.0), PlannedLine(4.0, 0.5)]
    played = fast.play(on_links(program, lines, down=[[0], []], up=[[], [1]], num_bytes=4.0))
    assert played.op_rank.tolist() == [0, 0, 1, 1, 0, 0, 1, 1]
    assert played.op_kind.tolist() == [0, 1, 0, 1, 3, 4, 3, 4]
    assert played.op_micro_batch.tolist() == [0, 0, 0, 0, -1, -1, -1, -1]
    assert played.op_start_s.tolist() == [0, 10.5, 6, 7, 12.5, 12.5, 9, 9]
    assert played.op_end_s.tolist() == [1, 12.5, 7, 9, 12.5, 12.5, 9, 9]
    assert played.message_link.tolist() == [0, 1]
    assert played.message_rank.tolist() == [0, 1]
    assert played.message_kind.tolist() == [0, 1]
    assert played.message_start_s.tolist() == [1, 9]
    assert played.message_end_s.tolist() == [6, 10.5]
    assert played.message_bytes.tolist() == [4, 4]
    assert played.rank_busy_s.tolist() == [3, 3]
