"""The closed form: exact where it claims to be, near the played step elsewhere."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hippo.schedule.schedule import order
from hippo.simulate import analytic, fast
from hippo.simulate.abstract import PlannedLine, abstract_program, on_links, side_by_side
from hippo.simulate.program import Gather, Program, SyncGroup


def chain(name: str, p: int, m: int, **shape: object) -> Program:
    return abstract_program(order(name, stages=p, micro_batches=m, **shape), forward_s=1.0, backward_s=2.0)


@pytest.mark.parametrize(("name", "shape"), [("gpipe", {}), ("1f1b", {}), ("interleaved", {"chunks": 2})])
@pytest.mark.parametrize(("p", "m"), [(2, 4), (4, 8), (8, 64)])
def test_exact_for_equal_stages(name: str, shape: dict[str, int], p: int, m: int) -> None:
    program = chain(name, p, m, **shape)
    assert analytic.closed_form(program) == pytest.approx(fast.step_time(program))


@given(st.lists(st.floats(0.1, 5.0), min_size=1, max_size=6), st.integers(1, 20))
def test_exact_for_uneven_stages_of_gpipe_in_proportion(times: list[float], m: int) -> None:
    """Forward and backward slowest on the same stage: two flow shops, whose makespans the closed form adds up."""
    program = abstract_program(
        order("gpipe", stages=len(times), micro_batches=m), forward_s=times, backward_s=[2 * t for t in times]
    )
    assert analytic.closed_form(program) == pytest.approx(fast.step_time(program))


def test_a_link_slower_than_the_stages_sets_the_period() -> None:
    """Solved by hand: 4 s per message against 3 s per stage; GPipe's forwards leave every 4 s."""
    lines = [PlannedLine(2.0, 0.5), PlannedLine(2.0, 0.5)]
    program = on_links(chain("gpipe", 2, 1), lines, down=[[0], []], up=[[], [1]], num_bytes=8.0)
    many = on_links(chain("gpipe", 2, 9), lines, down=[[0], []], up=[[], [1]], num_bytes=8.0)
    assert analytic.closed_form(program) == pytest.approx(3 + 3 + 2 * 4.5)
    assert fast.step_time(program) == pytest.approx(3 + 3 + 2 * 4.5)
    assert analytic.closed_form(many) - analytic.closed_form(program) == pytest.approx(8 * 4)


def test_replicas_share_a_link() -> None:
    lines = [PlannedLine(2.0), PlannedLine(2.0)]
    one = on_links(chain("1f1b", 2, 32), lines, down=[[0], []], up=[[], [1]], num_bytes=8.0)
    three = side_by_side([one] * 3)
    assert analytic.closed_form(one) == pytest.approx(fast.step_time(one), rel=0.03)
    assert analytic.closed_form(three) > 1.5 * analytic.closed_form(one)  # 12 s of the link per wave instead of 7 s
    assert analytic.closed_form(three) == pytest.approx(fast.step_time(three), rel=0.03)


def test_a_round_trip_that_one_f_one_b_cannot_hide() -> None:
    program = abstract_program(order("1f1b", stages=2, micro_batches=40), forward_s=1.0, backward_s=2.0, delay_s=3.0)
    assert analytic.closed_form(program) == pytest.approx(fast.step_time(program), rel=0.02)


@pytest.mark.parametrize("delay_s", [0.1, 0.5, 3.0])
@pytest.mark.parametrize(("name", "chunks"), [("1f1b", 1), ("cross-domain", 1), ("interleaved", 2), ("interleaved", 4)])
def test_near_the_played_step_where_the_wire_is_slow(name: str, chunks: int, delay_s: float) -> None:
    schedule = order(name, stages=4, micro_batches=64, chunks=chunks)
    program = abstract_program(schedule, forward_s=1.0, backward_s=2.0, delay_s=delay_s)
    assert analytic.closed_form(program) == pytest.approx(fast.step_time(program), rel=0.06)


def test_caps_relays_and_latencies_count_once_per_wave() -> None:
    """One wave: 8 bytes at the cap of 1, then the relay at its slower link of 2, and all latencies."""
    lines = [PlannedLine(4.0, 0.5), PlannedLine(2.0, 0.25), PlannedLine(4.0, 0.125)]
    capped = on_links(chain("1f1b", 2, 1), lines, down=[[0], []], up=[[], [2]], num_bytes=8.0, nic_bytes_per_s=1.0)
    assert analytic.closed_form(capped) == pytest.approx(6 + 8.5 + 8.125)
    assert fast.step_time(capped) == pytest.approx(6 + 8.5 + 8.125)
    relayed = on_links(chain("1f1b", 2, 1), lines, down=[[0, 1], []], up=[[], [2]], num_bytes=8.0)
    assert analytic.closed_form(relayed) == pytest.approx(6 + 4 + 0.75 + 2 + 0.125)


def test_agreement_and_closing_are_added() -> None:
    lines = [PlannedLine(1.0, 0.25), PlannedLine(2.0, 0.5)]
    one = on_links(chain("1f1b", 1, 2), lines, down=[[]], up=[[]], num_bytes=0.0)
    group = SyncGroup((0, 1), (0, 1), (4.0, 4.0), hops=2.0, local_s=0.75)
    program = replace(side_by_side([one, one], (group,)), sync_s=np.full(2, 0.5), finish_s=np.full(2, 0.125))
    wanted = 6 + 0.5 + 0.75 + 4 + 2 * 0.5 + 0.125
    assert analytic.closed_form(program) == pytest.approx(wanted)
    assert fast.step_time(program) == pytest.approx(wanted)


def test_parameters_that_come_over_the_wan_stretch_the_passes() -> None:
    program = on_links(chain("1f1b", 1, 3), [PlannedLine(2.0, 0.5)], down=[[]], up=[[]], num_bytes=0.0)
    gathered = replace(program, gather=Gather((0,), np.array([[6.0]]), np.array([[2.0]]), rounds=1.0))
    assert analytic.closed_form(gathered) == pytest.approx(3 * (3.5 + 2.0))
    assert fast.step_time(gathered) == pytest.approx(3 * (3.5 + 2.0))
