"""Programs as traces, played by the rules of ASTRA-sim, against the engines of our own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.simulate.worlds import random_program

from hippo.errors import InputError
from hippo.problem.runtimes import Messages
from hippo.schedule.schedule import order
from hippo.simulate import fast
from hippo.simulate.abstract import PlannedLine, abstract_program, on_links, side_by_side
from hippo.simulate.astra import play as astra
from hippo.simulate.astra.chakra import COMP
from hippo.simulate.astra.compare import compare, document
from hippo.simulate.astra.configuration import GROUPS, files
from hippo.simulate.astra.play import drawn_up, played, state_of
from hippo.simulate.program import Program, SyncGroup

MIB16, GBIT = 16 * 2**20, 1e9 / 8
LAN_S = MIB16 / (400 * GBIT) + 1e-6


def four_stages(m: int) -> Program:
    """Section 8 of the facts: two stages in each of two domains, F 10 ms, B 20 ms, 16 MiB over 5 Gbit/s and 40 ms."""
    program = abstract_program(order("1f1b", stages=4, micro_batches=m), forward_s=0.01, backward_s=0.02, delay_s=LAN_S)
    lines = [PlannedLine(5 * GBIT, 0.04)] * 2
    return on_links(program, lines, down=[[], [0], [], []], up=[[], [], [1], []], num_bytes=MIB16)


def both(program: Program, binary: Path, **state: object) -> float:
    """Step time on which the player and ``fast`` agree, and so does every operation and message."""
    told = compare(played(program, state_of(program, state.get("bandwidth"), state.get("latency")), binary))
    assert told.missing == 0
    assert told.largest_difference_s < 1e-6, told.where
    assert abs(told.difference) < 1e-6
    return told.step_time_s


@pytest.mark.parametrize(("m", "measured_us"), [(1, 255_033.3), (8, 866_767.6), (32, 3_191_012.7)])
def test_the_measured_pipeline(player: Path, m: int, measured_us: float) -> None:
    """The step times worked out by hand in the facts, FIFO links; with whole microseconds and 1 us hops ASTRA-sim said
    866,771.3 and 3,191,027.3."""
    assert both(four_stages(m), player) * 1e6 == pytest.approx(measured_us, abs=0.1)


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 8))])
def test_any_world(player: Path, seed: int) -> None:
    """Several pipelines, chunks, shared links, relays, caps of nodes, groups, gathered parameters."""
    program = random_program(seed)
    assert both(program, player) == pytest.approx(fast.step_time(program), rel=1e-6)


def test_messages_that_wait_for_their_receivers_are_refused(player: Path) -> None:
    coupled = replace(four_stages(4), messages=Messages("coupled"))
    with pytest.raises(InputError, match="^--engine astra: plays messages that go when they are made"):
        both(coupled, player)


def test_another_state_of_the_links(player: Path) -> None:
    program = four_stages(4)
    slow = {"bandwidth": np.array([2e8, 4e8]), "latency": np.array([0.1, 0.02])}
    assert both(program, player, **slow) == pytest.approx(
        fast.step_time(program, bandwidth_bytes_per_s=slow["bandwidth"], latency_s=slow["latency"]), rel=1e-6
    )


def test_two_pipelines_queue_on_one_link_and_agree(player: Path) -> None:
    """Two senders on one link and a ring: first come, first served, whatever the ranks' numbers are."""
    pipelines = [four_stages(4), replace(four_stages(3), forward_s=four_stages(3).forward_s * 1.3)]
    group = SyncGroup((1, 5), (0, 1), (3e7, 2e7), 2.0, local_s=0.004, nic_bytes_per_s=(np.inf, 1e8))
    shared = side_by_side(pipelines, (group,))
    assert both(shared, player) > max(fast.step_time(each) for each in pipelines)


def test_one_rank_alone(player: Path) -> None:
    program = abstract_program(order("1f1b", stages=1, micro_batches=3), forward_s=1.0, backward_s=2.0)
    assert both(program, player) == pytest.approx(9.0)


def test_an_order_of_service_that_is_wrong_at_first_is_found_out(player: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of a link's messages that say the opposite of the order of arrival: the log tells, the run is repeated.
    So it is ASTRA-sim's clock, not ``fast``'s, that orders a link."""
    program = random_program(2)
    step, record = astra.by_fast(program, state_of(program, None, None))
    upside_down = replace_service(record, program)
    monkeypatch.setattr(astra, "by_fast", lambda *_: (step, upside_down))
    found = played(program, state_of(program, None, None), player)
    assert found.runs > 1
    assert found.in_order
    assert found.step_time_s == pytest.approx(step, rel=1e-7)


def replace_service(record, program):
    """The same record; on each link, messages of the last ranks first, each rank's own in their order."""
    sender = np.repeat(np.arange(len(program.rank_stage)), np.diff(program.order_start)).repeat(2)
    sender = np.append(sender, np.zeros(len(record.message_start) - len(sender), dtype=np.int64))
    return record._replace(message_start=record.message_start - 1000.0 * sender)


def test_the_engine_answers_with_a_timeline(player: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIPPO_ASTRA", str(player))
    program = random_program(1)
    told, known = astra.play(program), fast.play(program)
    assert told.step_time_s == pytest.approx(known.step_time_s, abs=1e-6)
    np.testing.assert_allclose(told.op_start_s, known.op_start_s, atol=1e-6)
    np.testing.assert_allclose(told.op_end_s, known.op_end_s, atol=1e-6)
    np.testing.assert_allclose(told.message_start_s, known.message_start_s, atol=1e-6)
    assert (told.message_link == known.message_link).all()


def test_a_link_that_is_out(player: Path) -> None:
    program = four_stages(2)
    with pytest.raises(InputError, match="a link that the plan needs is out"):
        played(program, state_of(program, np.array([0.0, 1e9]), None), player)


def test_a_difference_is_seen(player: Path, script: Callable[[str], Path]) -> None:
    """The same step by a machine whose wires take one microsecond longer: every operation behind them is late."""
    text = player.read_text().splitlines()[1]
    slower = script(f'sed -i "s/^latency.*/latency: [ 1000.0 ]/" ./network.yml\n{text}')
    told = document(played(four_stages(2), state_of(four_stages(2), None, None), slower))
    assert 5e-6 < told["largest_difference_s"] < 5e-5
    assert told["difference"] > 0


def test_groups_are_named(player: Path) -> None:
    group = SyncGroup((0, 3), (0, 1), (1e6, 1e6), 2.0)
    program = replace(four_stages(2), groups=(group,))
    both(program, player)
    work = drawn_up(program, state_of(program, None, None))
    assert files(program, work)[GROUPS] == b'{\n  "1": [\n    0,\n    3\n  ]\n}\n'
    assert GROUPS not in files(four_stages(2), drawn_up(four_stages(2), state_of(four_stages(2), None, None)))


def test_latencies_are_waited_out_by_as_many_ranks_as_messages_are_under_way() -> None:
    """40 ms at one message every 26.8 ms: two under way, of whatever number is sent; inside a domain, one."""
    roles = [len(drawn_up(four_stages(m), state_of(four_stages(m), None, None)).roles) for m in (8, 32)]
    assert roles == [4 + 2 * (1 + 2) + 4 * 1] * 2


def test_nothing_gets_between_the_pieces_of_a_message() -> None:
    """A relay's message is cut behind its first byte; whatever waits for the link, its rest has a lower number."""
    there, back = [[], [0, 1], [], []], [[], [], [1, 0], []]
    program = on_links(four_stages(4), [PlannedLine(5 * GBIT, 0.04)] * 2, down=there, up=back, num_bytes=MIB16)
    work = drawn_up(program, state_of(program, None, None))
    begins = {crossing.begin for crossing in work.crossings.values()}
    wires = {rank for rank, _ in begins}
    assert len(wires) == 2
    for rank in wires:
        whole = [node.id for node in work.traces[rank] if node.type == COMP]
        rest = [number for number in whole if (rank, number) not in begins]
        assert len(rest) == 4
        assert max(rest) < min(number for wire, number in begins if wire == rank)
