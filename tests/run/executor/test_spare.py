"""What training leaves of a link: small worlds whose connections are told, and the kernel's own."""

from __future__ import annotations

import socket
from threading import Event

import pytest

from hippo.run.executor.spare import AHEAD_S, LEAST_BYTES, Connections, PeerFlow, Spare

RATE, RTT_S = 1e7, 0.04
PIPE = RATE * (RTT_S + AHEAD_S)


class Told:
    """Connections as a test says they are."""

    def __init__(self, *flows: PeerFlow) -> None:
        self.flows = list(flows)

    def to(self, address: str) -> list[PeerFlow]:
        """All of them."""
        return self.flows

    def close(self) -> None:
        """Nothing is held."""


@pytest.fixture
def spare(both: tuple[socket.socket, socket.socket]) -> Spare:
    made = Spare(both[0], RATE)
    made.close()
    return made


def room(spare: Spare, now_s: float, *, own: int = 0, training: int = 0, arrived: int = 0) -> float:
    flows = (
        PeerFlow(spare._ports, own, 0, RTT_S, RTT_S),
        PeerFlow((1, 2), training, arrived, RTT_S, RTT_S),
    )
    spare._connections = Told(*flows)  # type: ignore[assignment]
    found = spare._room(now_s)
    assert found is not None
    return found


def test_bytes_are_added_where_those_under_way_do_not_fill_the_pipe(spare: Spare):
    assert 0 < room(spare, 1.0) <= PIPE
    assert room(spare, 1.01, own=round(PIPE) - 1000) == pytest.approx(1000, abs=2)
    assert room(spare, 1.02, own=round(PIPE / 2), training=round(PIPE / 2)) <= LEAST_BYTES
    assert room(spare, 1.03, training=2_000_000) < 0, "a message of training"


def test_no_more_is_sent_at_once_than_a_moment_of_the_link(spare: Spare):
    assert room(spare, 1.0) < PIPE / 4
    assert room(spare, 100.0) < PIPE / 4, "who had nothing to send has nothing saved up"


def test_bytes_that_do_not_arrive_are_not_training(spare: Spare):
    assert room(spare, 1.0, training=10**8) < 0
    assert room(spare, 1.9, training=10**8) < 0
    assert room(spare, 2.1, training=10**8) > 0


def test_the_rate_is_what_arrives_by_all_connections(spare: Spare):
    for tick in range(1000):
        room(spare, 1.0 + tick * 0.002, own=round(PIPE), arrived=round(tick * 0.002 * 5e6))
    assert spare.rate_bytes_per_s == pytest.approx(5e6, rel=0.01)


def test_who_is_in_a_hurry_asks_nobody(both: tuple[socket.socket, socket.socket]):
    spare, hurry = Spare(both[0], RATE), Event()
    assert 0 < spare.wait(10**9, hurry) <= 10**9
    hurry.set()
    assert spare.wait(10**9, hurry) == 10**9
    spare.close()


def test_the_kernel_tells_what_is_under_way(both: tuple[socket.socket, socket.socket]):
    try:
        connections = Connections()
        found = connections.to("127.0.0.1")
    except (OSError, AttributeError):
        pytest.skip("this kernel tells nothing of connections")
    both[0].sendall(b"x" * 100_000)
    ports = both[0].getsockname()[1], both[0].getpeername()[1]
    (mine,) = [flow for flow in connections.to("127.0.0.1") if flow.ports == ports]
    (before,) = [flow for flow in found if flow.ports == ports]
    assert mine.delivered_bytes - before.delivered_bytes + mine.outstanding_bytes >= 100_000
    assert 0 < mine.least_rtt_s < 1
    connections.close()
