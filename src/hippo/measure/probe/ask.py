"""One who measures: round trips and goodput both ways between this machine and a server, or between two servers."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from statistics import median
from threading import Barrier, BrokenBarrierError

from hippo.measure.probe.sample import USUAL_SEGMENT_BYTES
from hippo.measure.probe.wire import (
    LONGEST_OWN_RAMP_S,
    PING_BYTES,
    RAMP_TRIPS,
    Goodput,
    NoAnswer,
    ProbeEffort,
    counted,
    effort_to_document,
    hang_up,
    number,
    poured,
    receive_line,
    send_line,
)

_FIRST_TRIPS = 2  # not counted: the first waits for caches on the way
_SEGMENT_BYTES = (500.0, 65_536.0)  # believed


@dataclass(frozen=True)
class PathMeasured:
    """What one machine found on the way to another and back."""

    round_trip_min_s: float
    round_trip_median_s: float
    trips: int
    there: Goodput  # all flows together, on the receivers' clocks
    back: Goodput
    segment_bytes: float  # of the stream in one frame


def measure(host: str, port: int, effort: ProbeEffort) -> PathMeasured:
    """Round trips, then goodput there, then back.

    Raises
    ------
    NoAnswer
        The host cannot be reached, refuses, falls silent, breaks off, or is no server of ours. Within
        ``effort.bound_s`` seconds.
    """
    try:
        trips, segment_bytes = _round_trips(host, port, effort)
        effort = replace(effort, ramp_s=max(effort.ramp_s, min(RAMP_TRIPS * min(trips), LONGEST_OWN_RAMP_S)))
        there = _together(host, port, effort, "receive")
        back = _together(host, port, effort, "send")
    except OSError as error:
        raise NoAnswer(f"broke off: {error.strerror or error}") from None
    return PathMeasured(min(trips), median(trips), len(trips), there, back, segment_bytes)


def measure_between(first: tuple[str, int], second: tuple[str, int], effort: ProbeEffort) -> PathMeasured:
    """The first server's measurement of the second; ``NoAnswer`` names neither."""
    asked = {"host": second[0], "port": second[1]}
    try:
        with _connected(*first, effort, "measure", asked) as peer:
            told = receive_line(peer, until_s=time.monotonic() + effort.bound_s).get("measured")
    except OSError as error:
        raise NoAnswer(f"broke off: {error.strerror or error}") from None
    if not isinstance(told, dict):
        raise NoAnswer("sends no measurement")
    there, back = (told.get(way) for way in ("there", "back"))
    if not isinstance(there, dict) or not isinstance(back, dict):
        raise NoAnswer("sends no measurement")
    figures = [number(told, key) for key in ("round_trip_min_s", "round_trip_median_s", "trips", "segment_bytes")]
    one, two = (Goodput(number(way, "num_bytes"), number(way, "seconds")) for way in (there, back))
    if min(one.seconds, two.seconds) <= 0:
        raise NoAnswer("sends a measurement of no seconds")
    return PathMeasured(figures[0], figures[1], int(figures[2]), one, two, _believed(figures[3]))


@contextmanager
def _connected(
    host: str, port: int, effort: ProbeEffort, ask: str, more: dict[str, object] | None = None
) -> Iterator[socket.socket]:
    """A connection on which the server has agreed to what is asked ("measure": it answers later)."""
    try:
        peer = socket.create_connection((host, port), timeout=effort.patience_s)
    except OSError as error:
        raise NoAnswer(_why(error, effort)) from None
    try:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        send_line(peer, {"ask": ask, "effort": effort_to_document(effort), **(more or {})})
        if ask != "measure":
            receive_line(peer, until_s=time.monotonic() + effort.patience_s)
        yield peer
    finally:
        hang_up(peer)


def _why(error: OSError, effort: ProbeEffort) -> str:
    if isinstance(error, TimeoutError):
        return f"does not answer within {effort.patience_s:g} s"
    if isinstance(error, ConnectionRefusedError):
        return "refuses: no server listens there"
    if isinstance(error, socket.gaierror):
        return "is no host that can be found"
    return f"cannot be reached: {error.strerror or error}"


def _round_trips(host: str, port: int, effort: ProbeEffort) -> tuple[list[float], float]:
    """Seconds of each small message there and back; bytes of a segment."""
    seconds: list[float] = []
    with _connected(host, port, effort, "echo") as peer:
        until_s = time.monotonic() + 3 * effort.patience_s
        while len(seconds) < effort.trips and time.monotonic() < until_s:
            seconds.append(_round_trip(peer, effort.patience_s))
        segment = float(peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG))
    return seconds[_FIRST_TRIPS:] or seconds, _believed(segment)


def _round_trip(peer: socket.socket, patience_s: float) -> float:
    peer.settimeout(patience_s)
    began_s, came = time.monotonic(), 0
    peer.sendall(bytes(PING_BYTES))
    while came < PING_BYTES:
        try:
            got = len(peer.recv(PING_BYTES - came))
        except TimeoutError:
            raise NoAnswer(f"returned nothing for {patience_s:g} s") from None
        if not got:
            raise NoAnswer("hung up on small messages")
        came += got
    return time.monotonic() - began_s


def _believed(segment_bytes: float) -> float:
    least, most = _SEGMENT_BYTES
    return segment_bytes if least <= segment_bytes <= most else float(USUAL_SEGMENT_BYTES)


def _together(host: str, port: int, effort: ProbeEffort, ask: str) -> Goodput:
    """Goodput of all flows of one direction at the same time; "receive": the server counts, "send": this machine."""
    gate = Barrier(effort.flows)

    def flow(_: int) -> Goodput:
        try:
            with _connected(host, port, effort, ask) as peer:
                gate.wait(effort.patience_s)
                return _poured(peer, effort) if ask == "receive" else counted(peer, effort)
        except BrokenBarrierError:
            raise NoAnswer("takes fewer connections than --flows asks for") from None
        except BaseException:
            gate.abort()
            raise

    if effort.flows == 1:  # in this thread, where an interruption ends it at once
        return flow(0)
    with ThreadPoolExecutor(effort.flows) as pool:
        found = list(pool.map(flow, range(effort.flows)))
    rate = sum(each.bytes_per_s for each in found)
    num_bytes = sum(each.num_bytes for each in found)
    return Goodput(num_bytes, num_bytes / rate)


def _poured(peer: socket.socket, effort: ProbeEffort) -> Goodput:
    """Sends, and takes the receiver's word for what came."""
    poured(peer, effort)
    told = receive_line(peer, until_s=time.monotonic() + effort.patience_s)
    num_bytes, seconds = number(told, "bytes"), number(told, "seconds")
    if not num_bytes or not seconds:
        raise NoAnswer("says that nothing came")
    return Goodput(num_bytes, seconds)
