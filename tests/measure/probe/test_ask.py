"""The own prober between two ends of one machine: figures that add up, and peers that misbehave."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from threading import Event

import pytest

from hippo.errors import InputError
from hippo.measure.probe import wire as bulk
from hippo.measure.probe.ask import measure, measure_between
from hippo.measure.probe.serve import listening
from hippo.measure.probe.wire import LONGEST_LINE, NoAnswer, counted, effort_from_document, effort_to_document

from .worlds import QUICK, Clock, prober, scripted, within

WHOLE = replace(QUICK, ramp_s=30.0, window_s=30.0, most_bytes=1e6)
"""Ends with its bytes: how many come does not depend on how quick the machine is."""


def test_both_ways_and_round_trips():
    with prober() as port:
        found = measure("127.0.0.1", port, QUICK)
    assert 0 < found.round_trip_min_s <= found.round_trip_median_s < QUICK.patience_s
    assert found.trips == QUICK.trips - 2
    for way in (found.there, found.back):
        assert way.seconds >= QUICK.window_s
        assert way.num_bytes > 0
        assert way.bytes_per_s == way.num_bytes / way.seconds


def test_several_flows_count_together():
    with prober() as port:
        found = measure("127.0.0.1", port, replace(WHOLE, flows=3, most_bytes=3e6))
    assert 3e6 <= found.there.num_bytes < 3 * 4e6
    assert found.there.bytes_per_s == pytest.approx(found.there.num_bytes / found.there.seconds)


def test_no_more_bytes_than_asked_for():
    with prober() as port:
        found = measure("127.0.0.1", port, WHOLE)
    assert 1e6 <= found.there.num_bytes < 4e6
    assert 1e6 <= found.back.num_bytes < 4e6


def test_a_server_measures_another():
    with prober() as one, prober() as two:
        found = measure_between(("127.0.0.1", one), ("127.0.0.1", two), WHOLE)
        with pytest.raises(NoAnswer, match=r"says: .*refuses: no server listens"):
            measure_between(("127.0.0.1", one), ("127.0.0.1", 1), QUICK)
    assert 1e6 <= found.there.num_bytes < 4e6


class Trickle:
    """A peer of whom 10 000 bytes come every 10 ms, with what had to wait in a burst behind the 13th and the 30th."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.blocking, self.came, self.ready = clock, True, 0, 0

    def settimeout(self, seconds: float) -> None:
        self.blocking = True

    def setblocking(self, flag: bool) -> None:
        self.blocking = flag

    def recv_into(self, room: memoryview) -> int:
        if not self.blocking and not self.ready:
            raise BlockingIOError
        if self.ready:
            burst, self.ready = self.ready, 0
            return burst
        self.clock.sleep(0.01)
        self.came += 1
        self.ready = 50_000 if self.came in (13, 30) else 0
        return 10_000


def test_a_slow_sender_is_counted_as_slow(monkeypatch):
    """A million bytes a second: the ramp ends with the 13th, 0.12 s after the first; the window 0.2 s later.

    The burst behind the 13th belongs to the ramp; that behind the 30th is counted."""
    clock = Clock()
    monkeypatch.setattr(bulk, "time", clock)
    found = counted(Trickle(clock), replace(QUICK, ramp_s=0.115, window_s=0.195))
    assert found.seconds == pytest.approx(0.2)
    assert found.num_bytes == 20 * 10_000 + 50_000


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (b"HTTP/1.0 200 OK\r\n\r\n", "no answer of 'hippo probe --serve'"),
        (b"[]\n", "no answer of 'hippo probe --serve'"),
        (b"{" * LONGEST_LINE, "no answer of 'hippo probe --serve'"),
        (b'{"hippo_probe": 7}\n', "version 7"),
        (b'{"hippo_probe": 1', "hung up in the middle"),
        (b"", "hung up"),
    ],
)
def test_garbage_is_no_answer(said, words):
    def body(peer):
        peer.recv(4096)
        peer.sendall(said)

    check = within(QUICK.patience_s)
    with scripted(body) as port, pytest.raises(NoAnswer, match=words):
        measure("127.0.0.1", port, QUICK)
    check()


def test_a_peer_that_hangs_is_given_up():
    over, effort = Event(), replace(QUICK, patience_s=0.2)
    with scripted(lambda peer: over.wait()) as port:
        with pytest.raises(NoAnswer, match="is silent"):
            measure("127.0.0.1", port, effort)
        over.set()


def test_a_peer_that_agrees_and_then_falls_silent():
    over, effort = Event(), replace(QUICK, patience_s=2.0)  # within which it agrees, however busy the machine is

    def body(peer):
        peer.recv(4096)
        peer.sendall(b'{"hippo_probe": 1}\n')
        over.wait()

    with scripted(body) as port:
        with pytest.raises(NoAnswer, match="returned nothing"):
            measure("127.0.0.1", port, effort)
        over.set()


@pytest.mark.parametrize(
    "hello",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b'{"hippo_probe": 1, "ask": "receive"}\n',
        b'{"hippo_probe": 1, "ask": "all", "effort": %s}\n' % json.dumps(effort_to_document(QUICK)).encode(),
        b'{"hippo_probe": 1, "ask": "measure", "host": 3, "effort": %s}\n'
        % json.dumps(effort_to_document(QUICK)).encode(),
        b'{"hippo_probe": 1, "ask": "echo", "effort": {"flows": 1e9}}\n',
    ],
)
def test_a_server_survives_garbage(hello):
    with prober() as port:
        with socket.create_connection(("127.0.0.1", port), timeout=20) as peer:
            peer.sendall(hello)
            answer = peer.recv(4096)
        assert b"error" in answer
        assert measure("127.0.0.1", port, QUICK).there.num_bytes > 0


def test_efforts_travel():
    assert effort_from_document(json.loads(json.dumps(effort_to_document(QUICK)))) == QUICK
    with pytest.raises(NoAnswer, match="window_s"):
        effort_from_document(effort_to_document(replace(QUICK, window_s=1e9)))


def test_a_port_that_is_taken():
    with prober() as port, pytest.raises(InputError, match="taken"), listening(port, bind="127.0.0.1"):
        pass
    with pytest.raises(InputError, match="--bind"), listening(0, bind="203.0.113.1"):
        pass
