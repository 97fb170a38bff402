"""Who moves the links: the trace by the clock, messages with an answer."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from hippo.emulate.emulate import moves_of, setting_of
from hippo.emulate.emulation import Emulation, set_link
from hippo.emulate.forward import Control, Timetable
from hippo.emulate.setting import EmulatorSetting, LinkMove, dumped, loaded
from hippo.errors import InputError
from hippo.problem.links import Trace
from hippo.problem.load import load_cluster


@pytest.fixture
def setting(cluster_file: Path) -> EmulatorSetting:
    return setting_of(load_cluster(str(cluster_file)), ["true"], source=str(cluster_file))


def test_a_setting_travels(setting: EmulatorSetting):
    assert loaded(dumped(setting)) == setting


def test_links_of_a_cluster(setting: EmulatorSetting):
    rates = [link.rate_bytes_per_s for link in setting.links]
    assert rates == pytest.approx([12.5e6, 12.5e6, 6.25e6, 12.5e6])  # 0.05 Gbit/s a node: one node, two nodes
    assert [setting.address(domain) for domain in (0, 2, 255)] == ["10.77.0.1", "10.77.0.3", "10.77.1.0"]
    assert setting.namespaces == ("east", "west", "domain-2")  # a blank is nothing for a namespace


def test_moves_are_the_changes_of_a_trace():
    trace = Trace(
        np.array([100.0, 160.0, 220.0]), np.array([[1.0, 2.0], [1.0, 0.0], [1.0, 0.0]]), np.full((3, 2), 0.01)
    )
    first, second, third = moves_of(trace, 60.0)
    assert (first, second) == (LinkMove(0.0, 0, 1.0, 0.01), LinkMove(0.0, 1, 2.0, 0.01))
    assert third == LinkMove(1.0, 1, 0.0, 0.01)


def test_a_timetable_makes_every_move_once():
    made: list[tuple[int, float, float]] = []
    table = Timetable((LinkMove(0.0, 0, 1.0, 2.0), LinkMove(1.0, 1, 3.0, 4.0)), 10)
    table.apply(10, lambda *change: made.append(change))
    assert table.due_ns() == 1_000_000_010
    table.apply(2_000_000_000, lambda *change: made.append(change))
    table.apply(3_000_000_000, lambda *change: made.append(change))
    assert made == [(0, 1.0, 2.0), (1, 3.0, 4.0)]


@pytest.fixture
def control(setting: EmulatorSetting, tmp_path: Path):
    """A control socket that is served, its path, and what it was asked for."""
    control, asked = Control(str(tmp_path / "c"), setting), []
    stop = threading.Event()

    def serve() -> None:
        while not stop.wait(0.005):
            control.serve(lambda *change: asked.append(change))

    thread = threading.Thread(target=serve)
    thread.start()
    yield str(tmp_path / "c"), asked
    stop.set()
    thread.join()
    control.close()


def test_a_message_moves_a_link(control):
    path, asked = control
    set_link(path, "east west 0.5 12")
    set_link(path, "west far north 0 5")
    assert asked == [(0, 62.5e6, 0.012), (2, 0.0, 0.005)]
    told = Emulation("three", path, {}, 0.0).changes()
    assert [(each.source, each.destination, each.gbps, each.latency_ms) for each in told] == [
        ("east", "west", 0.5, 12.0),
        ("west", "far north", 0.0, 5.0),
    ]
    assert told[0].at_s <= told[1].at_s


@pytest.mark.parametrize(
    ("message", "answer"),
    [
        ("east", "give SRC DST"),
        ("", "give SRC DST"),
        ("east far north 1 1", "no link 'east far north'"),
        ("east west fast 1", "not two numbers"),
        ("east west -1 1", "rate must be"),
        ("east west nan 1", "rate must be"),
        ("east west 1 1e9", "latency from 0"),
    ],
)
def test_a_wrong_message_is_answered(control, message: str, answer: str):
    path, asked = control
    with pytest.raises(InputError, match=answer):
        set_link(path, message)
    assert asked == []


def test_nobody_listens(tmp_path: Path):
    with pytest.raises(InputError, match="no emulation listens"):
        set_link(str(tmp_path / "nothing"), "east west 1 1")
