"""The own prober between two ends of one machine: figures that add up, and peers that misbehave."""

from __future__ import annotations

import json
import socket
import time
from contextlib import suppress
from dataclasses import replace
from threading import Thread

import pytest

from hippo.errors import InputError
from hippo.launch.probe.ask import measure, measure_between
from hippo.launch.probe.bulk import counted
from hippo.launch.probe.serve import listening
from hippo.launch.probe.wire import LONGEST_LINE, NoAnswer, effort_from_document, effort_to_document

from .worlds import QUICK, prober, scripted, within


def test_both_ways_and_round_trips():
    with prober() as port:
        found = measure("127.0.0.1", port, QUICK)
    assert 0 < found.round_trip_min_s <= found.round_trip_median_s < 1
    assert found.trips == QUICK.trips - 2
    for way in (found.there, found.back):
        assert way.seconds >= QUICK.window_s
        assert way.num_bytes > 1e6


def test_several_flows_count_together():
    with prober() as port:
        found = measure("127.0.0.1", port, replace(QUICK, flows=3))
    assert found.there.num_bytes > 1e6
    assert found.there.bytes_per_s == pytest.approx(found.there.num_bytes / found.there.seconds)


def test_no_more_bytes_than_asked_for():
    with prober() as port:
        found = measure("127.0.0.1", port, replace(QUICK, ramp_s=30.0, window_s=30.0, most_bytes=1e6))
    assert 1e6 <= found.there.num_bytes < 4e6
    assert 1e6 <= found.back.num_bytes < 4e6


def test_a_server_measures_another():
    with prober() as one, prober() as two:
        found = measure_between(("127.0.0.1", one), ("127.0.0.1", two), QUICK)
        with pytest.raises(NoAnswer, match=r"says: .*refuses: no server listens"):
            measure_between(("127.0.0.1", one), ("127.0.0.1", 1), QUICK)
    assert found.there.num_bytes > 1e6


def test_a_slow_sender_is_counted_as_slow():
    """A million bytes a second, half of them in the ramp."""
    ours, theirs = socket.socketpair()
    effort = replace(QUICK, ramp_s=0.1, window_s=0.2)

    def trickle() -> None:
        with theirs, suppress(OSError):
            for _ in range(40):
                theirs.sendall(bytes(10_000))
                time.sleep(0.01)

    thread = Thread(target=trickle)
    thread.start()
    with ours:
        found = counted(ours, effort)
    thread.join()
    assert found.num_bytes < 400_000
    assert found.bytes_per_s < 1.1e6


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

    check = within(5.0)
    with scripted(body) as port, pytest.raises(NoAnswer, match=words):
        measure("127.0.0.1", port, QUICK)
    check()


def test_a_peer_that_hangs_is_given_up():
    check = within(5.0)
    effort = replace(QUICK, patience_s=0.2)
    with scripted(lambda peer: time.sleep(0.5)) as port, pytest.raises(NoAnswer, match="is silent"):
        measure("127.0.0.1", port, effort)
    check()


def test_a_peer_that_agrees_and_then_falls_silent():
    def body(peer):
        peer.recv(4096)
        peer.sendall(b'{"hippo_probe": 1}\n')
        time.sleep(0.5)

    effort = replace(QUICK, patience_s=0.2)
    with scripted(body) as port, pytest.raises(NoAnswer, match="returned nothing"):
        measure("127.0.0.1", port, effort)


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
        with socket.create_connection(("127.0.0.1", port), timeout=5) as peer:
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
