"""Worlds solved by hand, and what holds for every world."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.simulate.transport.worlds import measured_world
from tests.simulate.worlds import random_program

from hippo.errors import InputError
from hippo.problem.links import Trace
from hippo.problem.runtimes import RUNTIMES, Messages
from hippo.problem.transport import (
    BBR,
    CUBIC,
    GOODPUT,
    HIPPO,
    IDEAL,
    Congestion,
    Transport,
    lost_s,
)
from hippo.schedule.schedule import given as given_order
from hippo.schedule.schedule import order
from hippo.simulate import fast, reference
from hippo.simulate.abstract import PlannedLine, abstract_program, on_links
from hippo.simulate.program import Program
from hippo.simulate.transport.carried import carried, carried_trace, from_instant
from hippo.simulate.transport.play import is_quick, play, step_time, step_times
from hippo.simulate.transport.world import CarriedWorld, Circumstances

FREE = Messages()  # a message goes when it is made
ASKING = Messages("late", sender="met")  # a message leaves when its receiver has asked
QUEUING = replace(ASKING, notice=True)  # and the asking comes back behind bulk data


def two_stages(
    *, orders: tuple[str, ...] | None = None, waves: int = 1, latency_s: float = 1.0, messages: Messages = FREE
) -> Program:
    """Stage 0 to stage 1 and back over links of 1 byte/s; F 2 s on both, B 3 s, messages of 4 bytes: 4 s each."""
    schedule = given_order(orders) if orders else order("gpipe", stages=2, micro_batches=waves)
    program = abstract_program(schedule, forward_s=2.0, backward_s=3.0)
    lines = [PlannedLine(1.0, latency_s)] * 2
    return replace(on_links(program, lines, down=[[0], []], up=[[], [1]], num_bytes=4.0), messages=messages)


def world_of(program: Program, transport: Transport) -> CarriedWorld:
    """The clear engine whatever the transport, past the choice of ``play``."""
    return CarriedWorld(carried(program, transport), transport, Circumstances())


def test_one_message_there_and_back() -> None:
    """F 0-2, sent 2-6, there at 7, F 7-9, B 9-12, sent 12-16, there at 17, B 17-20. Receives are posted in time."""
    for each in (FREE, ASKING, QUEUING):
        assert step_time(two_stages(messages=each), IDEAL) == 20.0


def test_messages_on_one_link_queue() -> None:
    """Two forwards, sent 2-6 and 6-10 (asked for at 4): the second is there at 11."""
    played = play(two_stages(waves=2), IDEAL)
    assert played.message_start_s[:2].tolist() == [2.0, 6.0]
    assert played.message_end_s[:2].tolist() == [7.0, 11.0]


def test_a_late_receive_costs_a_latency() -> None:
    """Stage 1 asks for the second message when its first forward is over, at 9: the data leaves at 10, not at 6."""
    for each in (fast.play, reference.play):
        assert each(two_stages(waves=2, messages=QUEUING)).message_start_s[:2].tolist() == [2.0, 10.0]


def test_a_notice_waits_behind_bulk_data() -> None:
    """1F1B, 2 waves: stage 1 is done with B at 12 and sends a gradient (12-16, asked for long before), then asks for
    the second forward: the notice leaves at 16, is there at 17, and only then the data leaves. Without: at 13."""
    asking, queuing = (two_stages(orders=("FFBB", "FBFB"), messages=each) for each in (ASKING, QUEUING))
    for each in (fast.play, reference.play):
        assert each(asking).message_start_s.tolist() == [2.0, 12.0, 12.0, 22.0]
        assert each(queuing).message_start_s.tolist() == [2.0, 12.0, 17.0, 27.0]


def test_a_window_slows_a_flow_but_not_its_link() -> None:
    """2 bytes per round trip of 2 s: 1 byte/s as before. 1 byte: 4 bytes take 8 s."""
    assert step_time(two_stages(), Transport("wide", window_bytes=2.0)) == 20.0
    assert step_time(two_stages(), Transport("narrow", window_bytes=1.0)) == 28.0
    assert play(two_stages(waves=2), Transport("narrow", window_bytes=1.0)).message_start_s[:2].tolist() == [2.0, 10.0]


def test_slow_start_by_hand() -> None:
    """Windows of 1, 2, 4 bytes per round trip of 4 s, pipe of 4 bytes: 1 + 2 sent by 8 s, the rest at 1 byte/s."""
    assert lost_s(10.0, 1.0, 4.0, window_bytes=1.0) == 8 + 7 - 10
    assert lost_s(1.0, 1.0, 4.0, window_bytes=1.0) == 0.0
    assert lost_s(10.0, 1.0, 4.0, window_bytes=4.0) == 0.0


def test_a_cold_flow_pays_once() -> None:
    """Pipe of 2 bytes (round trip 2 s): a window of 1 byte first costs 1 s, the second message of a flow half of it."""
    slow = Transport("slow", congestion=Congestion(initial_bytes=1.0, kept=(1.0, 0.5)))
    played = play(two_stages(waves=3), slow, Circumstances(cold=True))
    assert played.message_end_s[:3].tolist() == [8.0, 11.5, 15.0]
    assert step_time(two_stages(waves=3), slow) == step_time(two_stages(waves=3), IDEAL)


@pytest.mark.parametrize(
    ("mbit", "trip_ms", "size", "measured_ms"), [(100, 80, 313_792, 83), (300, 100, 2 * 2**20, 109)]
)
def test_a_pacing_sender_spreads_a_message_that_leaves_it_idle(
    mbit: int, trip_ms: int, size: int, measured_ms: int
) -> None:
    """Two plain sockets over an emulated link, one message at a time: 83 ms where the link alone takes 66."""
    program = abstract_program(order("gpipe", stages=2, micro_batches=1), forward_s=0.5, backward_s=0.5)
    lines = [PlannedLine(mbit * 1.25e5 * GOODPUT, trip_ms / 2e3)] * 2
    program = on_links(program, lines, down=[[0], []], up=[[], [1]], num_bytes=float(size))
    played = play(program, Transport("paced", congestion=replace(BBR, drain_s=0.0)))
    lasted = 1e3 * (played.message_end_s - played.message_start_s)
    assert lasted == pytest.approx([measured_ms] * 2, rel=0.01)


def test_silence_costs_the_window() -> None:
    """The second message of stage 0 follows at once, its window is whole; after a long silence it is not."""
    program = two_stages(orders=("FBFB", "FBFB"))
    forgets = Transport("forgets", congestion=Congestion(initial_bytes=1.0, timeout_s=1.0))
    assert step_time(program, forgets) == 40.0 + 2 * 1.0
    assert step_time(program, replace(forgets, congestion=Congestion(initial_bytes=1.0, timeout_s=100.0))) == 40.0


def test_fresh_flows_do_not_fill_a_link_they_share() -> None:
    """Two pipelines on one link, both messages of 4 bytes asked for at 2: at .5 of the link while both are fresh."""
    program = _side_by_side()
    ramp = Congestion(initial_bytes=100.0, fill=0.5)
    played = play(program, Transport("shy", congestion=ramp), Circumstances(cold=True))
    assert sorted(played.message_end_s[:2].tolist()) == [11.0, 15.0]
    assert sorted(play(program, IDEAL).message_end_s[:2].tolist()) == [7.0, 11.0]


def _side_by_side() -> Program:
    from hippo.simulate.abstract import side_by_side

    return side_by_side([two_stages(), two_stages()])


def test_a_link_that_moves_under_a_message() -> None:
    """1 byte/s until 4, then 2: of the 4 bytes sent from 2 on 2 are left at 4, the last leaves at 5. Back at 2."""
    trace = Trace(np.array([0.0, 4.0]), np.array([[1.0, 1.0], [2.0, 2.0]]), np.array([[1.0, 1.0], [3.0, 3.0]]))
    played = play(two_stages(), IDEAL, Circumstances(trace))
    assert played.message_end_s.tolist() == [8.0, 18.0]  # latency 3 s by then
    later = play(two_stages(), IDEAL, Circumstances(from_instant(trace, 4.0)))
    assert later.message_end_s[0] == 7.0


def test_an_outage_is_waited_for_and_one_without_end_lasts_for_ever() -> None:
    rates = np.array([[1.0, 1.0], [0.0, 0.0], [1.0, 1.0]])
    trace = Trace(np.array([0.0, 3.0, 9.0]), rates, np.ones((3, 2)))
    assert play(two_stages(), IDEAL, Circumstances(trace)).message_end_s[0] == 13.0
    gone = Trace(np.array([0.0, 3.0]), rates[:2], np.ones((2, 2)))
    assert step_time(two_stages(), IDEAL, Circumstances(gone)) == np.inf


@given(st.integers(0, 10**6), st.sampled_from([IDEAL, Transport("narrow", window_bytes=1.5)]))
@example(120363, IDEAL)  # two ranks, two chunks: what goes down and what goes up has one receiver and two routes
def test_the_clear_engine_says_what_the_quick_one_says(seed: int, each: Transport) -> None:
    program = random_program(seed)
    assert is_quick(each)
    assert world_of(program, each).run().step_time_s == pytest.approx(fast.step_time(carried(program, each)))


@given(st.integers(0, 10**6))
def test_a_trace_that_stands_still_is_the_base_state(seed: int) -> None:
    program = random_program(seed)
    same = [program.link_bandwidth_bytes_per_s] * 2, [program.link_latency_s] * 2
    trace = Trace(np.array([-5.0, 1e6]), *(np.array(each) for each in same))
    assert step_time(program, HIPPO, Circumstances(trace)) == pytest.approx(step_time(program, HIPPO))


@example(2, "deepspeed")
@given(st.integers(0, 10**6), st.sampled_from(list(RUNTIMES)))
def test_the_clear_engine_plays_the_calls_of_every_runtime_as_the_quick_one_does(seed: int, runtime: str) -> None:
    """Each way one link of its own, so that nothing is sent at the same instant over the same link. An order in which
    ranks wait for each other for ever (zb-h1 under DeepSpeed) is refused by both."""
    program = replace(chain(seed), messages=RUNTIMES[runtime].messages)
    clear, quick = (refused_or(each, program) for each in (lambda it: reference.play(it).step_time_s, fast.step_time))
    assert clear == (quick if isinstance(quick, str) else pytest.approx(quick))


def refused_or(play: Callable[[Program], float], program: Program) -> float | str:
    """Seconds, or the words of the refusal."""
    try:
        return play(program)
    except InputError as error:
        return str(error)


LATE = st.sampled_from([Transport("narrow", window_bytes=1.0), Transport("forgets", congestion=CUBIC)])


@given(st.integers(0, 10**6), st.sampled_from(["hippo", "torch"]), LATE, st.booleans())
def test_no_transport_is_quicker_than_none_on_chains(seed: int, runtime: str, each: Transport, cold: bool) -> None:
    program = replace(chain(seed), messages=RUNTIMES[runtime].messages)
    assert step_time(program, each, Circumstances(cold=cold)) >= step_time(program, IDEAL) * (1 - 1e-12)


@given(st.integers(0, 10**6), st.sampled_from([FREE, ASKING]), st.floats(1.0, 8.0))
def test_more_bandwidth_is_never_slower_on_chains(seed: int, each: Messages, factor: float) -> None:
    """A link with one sender serves in order of sending, so less time on it only moves everything forward."""
    program = replace(chain(seed), messages=each)
    wider = replace(program, link_bandwidth_bytes_per_s=program.link_bandwidth_bytes_per_s * factor)
    assert step_time(wider, IDEAL) <= step_time(program, IDEAL) * (1 + 1e-12)


def chain(seed: int) -> Program:
    """A pipeline with a link of its own between neighbours, each way."""
    rng = np.random.default_rng(seed)
    p, waves = int(rng.integers(2, 5)), int(rng.integers(1, 7))
    schedule = order(str(rng.choice(["gpipe", "1f1b", "zb-h1"])), stages=p, micro_batches=waves)
    times = {name: rng.uniform(0.2, 2, p).tolist() for name in ("forward_s", "backward_s", "weight_s")}
    lines = [PlannedLine(float(rng.uniform(0.3, 4)), float(rng.uniform(0.01, 1))) for _ in range(2 * p)]
    down, up = [[2 * s] if s + 1 < p else [] for s in range(p)], [[2 * s + 1] if s else [] for s in range(p)]
    return on_links(abstract_program(schedule, **times), lines, down=down, up=up, num_bytes=float(rng.uniform(0.1, 3)))


@given(st.integers(0, 10**6))
def test_ranks_free_to_choose_finish_and_keep_to_memory(seed: int) -> None:
    program = chain(seed)
    ranks = len(program.rank_stage)
    played = play(program, HIPPO, Circumstances(live_limit=(float(ranks),) * ranks))
    assert np.isfinite(played.op_end_s).all()
    for rank in range(ranks):
        mine = (played.op_rank == rank) & (played.op_kind < 3)
        steps = sorted(zip(played.op_end_s[mine], played.op_kind[mine], strict=True))
        last = 1 if program.fused else 2
        live = np.cumsum([{0: 1, last: -1}.get(int(kind), 0) for _, kind in steps])
        assert live.max() <= ranks


def test_a_rank_free_to_choose_runs_what_is_there() -> None:
    """Stage 0 is told B1 before F2; while the gradient of wave 1 is on its way it runs F2, memory allowing."""
    program = two_stages(orders=("FBFB", "FBFB"))
    assert step_time(program, IDEAL) == 40.0
    free = Circumstances(live_limit=(2.0, 2.0))
    starts = play(program, IDEAL, free).op_start_s[:4].tolist()
    assert starts == [0.0, 17.0, 2.0, 22.0]  # F2 waits for nothing
    assert play(program, IDEAL, Circumstances(live_limit=(1.0, 1.0))).step_time_s == 40.0


def test_monte_carlo_over_instants() -> None:
    program = measured_world("C", "1f1b")
    base, late = program.link_bandwidth_bytes_per_s, program.link_latency_s
    trace = Trace(np.array([0.0, 10.0]), np.array([base, base / 2]), np.array([late, late]))
    found = step_times(program, HIPPO, [Circumstances(from_instant(trace, start)) for start in (0.0, 8.0, 10.0)])
    assert found[0] == pytest.approx(step_time(program, HIPPO))
    assert found[0] < found[1] < found[2]
    assert carried_trace(trace, HIPPO).bandwidth_bytes_per_s[0, 0] == base[0]
    drained = carried_trace(trace, replace(HIPPO, congestion=BBR)).bandwidth_bytes_per_s[0, 0]
    assert drained == pytest.approx(base[0] * 10 / (10 + 0.2 + 2 * (late[0] - HIPPO.overhead_s)))


@pytest.mark.parametrize(
    "wrong",
    [{"goodput": 0.0}, {"goodput": 1.1}, {"overhead_s": -1.0}, {"overhead_s": np.nan}, {"window_bytes": 0.0}],
)
def test_a_transport_out_of_range_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError):
        Transport("wrong", **wrong)


def test_a_congestion_control_out_of_range_is_refused() -> None:
    with pytest.raises(InputError):
        Congestion(initial_bytes=0.0)
    assert BBR.timeout_s == np.inf
