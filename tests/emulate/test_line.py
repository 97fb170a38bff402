"""A link's queue in worlds solved by hand: 1 byte takes 1 us (1 MB/s), the delay is 10 ms."""

from __future__ import annotations

import pytest
from tests.emulate.test_wire import frame

from hippo.emulate.forward import DelayLine, StreamCount, TcpPayload
from hippo.problem.transport import SMALLEST_QUEUE_BYTES, queue_limit_bytes

US, MS = 1_000, 1_000_000


@pytest.fixture
def line() -> DelayLine:
    return DelayLine(1e6, 0.01)


def releases(line: DelayLine) -> list[int]:
    return [entry[0] for entry in line.waiting]


def test_rate_then_delay(line: DelayLine):
    assert line.take(0, 1000, b"a")
    assert releases(line) == [11 * MS]


def test_one_after_the_other(line: DelayLine):
    line.take(0, 1000, b"a")
    line.take(500 * US, 1000, b"b")  # waits for a
    line.take(5 * MS, 1000, b"c")  # finds the link free
    assert releases(line) == [11 * MS, 12 * MS, 16 * MS]


def test_tail_drop(line: DelayLine):
    taken = [line.take(0, 1000, b"") for _ in range(300)]
    assert taken == [True] * (SMALLEST_QUEUE_BYTES // 1000) + [False] * (300 - SMALLEST_QUEUE_BYTES // 1000)
    assert (line.carried_frames, line.dropped_frames, line.dropped_bytes) == (262, 38, 38_000)
    assert line.take(100 * MS, 1000, b"")  # there is room again


def test_the_queue_holds_a_round_trip_and_20_ms():
    assert queue_limit_bytes(12.5e6, 0.05) == pytest.approx(12.5e6 * 0.12)
    assert queue_limit_bytes(0.0, 1.0) == SMALLEST_QUEUE_BYTES


def test_a_change_holds_for_what_has_not_departed(line: DelayLine):
    for name in (b"a", b"b", b"c"):
        line.take(0, 1000, name)  # depart at 1, 2, 3 ms
    line.change(1500 * US, 0.5e6, 0.01)  # b is half sent: its rest takes 1 ms, c takes 2 ms
    assert releases(line) == [11 * MS, 12_500 * US, 14_500 * US]
    line.take(2 * MS, 1000, b"d")
    assert releases(line)[-1] == 16_500 * US


def test_a_shorter_way_overtakes_nothing(line: DelayLine):
    line.take(0, 1000, b"a")
    line.change(2 * MS, 1e6, 0.0)
    line.take(2 * MS, 1000, b"b")
    assert releases(line) == [11 * MS, 11 * MS]


def test_an_outage_loses_what_has_not_departed_and_what_comes(line: DelayLine):
    line.take(0, 1000, b"a")
    line.take(0, 1000, b"b")
    line.change(1500 * US, 0.0, 0.01)
    assert not line.take(2 * MS, 1000, b"c")
    assert releases(line) == [11 * MS]
    assert (line.carried_bytes, line.dropped_bytes) == (1000, 2000)
    line.change(50 * MS, 1e6, 0.01)
    assert line.take(50 * MS, 1000, b"d")
    assert releases(line) == [11 * MS, 61 * MS]


def test_order_is_kept_whatever_happens():
    line = DelayLine(1e6, 0.01)
    now = 0
    for step in range(200):
        now += 100 * US
        line.take(now, 100 + 7 * (step % 13), b"")
        if step % 9 == 0:
            line.change(now, 1e5 * (1 + step % 5), 0.001 * (step % 11))
    assert releases(line) == sorted(releases(line))


def count(stream: StreamCount, start: int, size: int, *, carried: bool = True) -> int:
    return stream.fresh(TcpPayload(b"", start % 2**32, size), carried=carried)


@pytest.mark.parametrize("first", [0, 2**32 - 1500])
def test_what_is_sent_again_counts_once_however_it_was_lost(first: int):
    stream = StreamCount(first)
    assert [count(stream, first + at, 1000) for at in (0, 1000)] == [1000, 1000]
    assert count(stream, first + 2000, 1000, carried=False) == 0  # dropped before the link
    assert count(stream, first + 3000, 1000) == 1000
    assert count(stream, first + 2000, 1000) == 1000  # the link carries it for the first time
    assert count(stream, first + 3000, 1000) == 0  # this it had carried
    assert count(stream, first + 3500, 1000) == 500  # half of it is new


def test_payload_repeats_and_headers_are_what_was_carried():
    line = DelayLine(1e6, 0.01)
    for sequence, size in (
        (1, 1448),
        (1449, 1448),
        (1, 1448),
        (2897, 0),
    ):  # the third again, the last an acknowledgement
        line.take(0, size + 70, frame(size, sequence=sequence))
    assert (line.payload_bytes, line.repeated_bytes) == (2896, 1448)
    assert line.carried_bytes - line.payload_bytes - line.repeated_bytes == 4 * 70
    line.change(0, 0.0, 0.01)  # an outage: nothing has departed
    assert (line.carried_bytes, line.payload_bytes, line.repeated_bytes) == (0, 0, 0)
