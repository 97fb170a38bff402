"""Bytes on the wire, by hand: 1448 bytes of payload are 1518 with TCP's, IP's and Ethernet's words."""

from __future__ import annotations

import struct

import pytest

from hippo.emulate.forward import destination, wire_bytes


def frame(payload: int, *, protocol: int = 6, segment: int = 0, options: int = 12, sequence: int = 0) -> bytes:
    """As the kernel hands it out: virtio header, Ethernet, IPv4 to 10.77.1.2, TCP with time stamps (or UDP)."""
    virtio = struct.pack("<BBHHHH", 0, 1 if segment else 0, 0, segment, 0, 0)
    tcp = bytes(4) + sequence.to_bytes(4) + bytes(4) + bytes([(20 + options) // 4 << 4]) + bytes(7 + options)
    above = tcp if protocol == 6 else bytes(8)
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(above) + payload, 0, 0, 64, protocol, 0) + bytes(4)
    return virtio + bytes(14) + ip + bytes([10, 77, 1, 2]) + above + bytes(payload)


@pytest.mark.parametrize(
    ("made", "size"),
    [
        (frame(1448), 1518),
        (frame(0), 70),
        (frame(1448, segment=1448), 1518),
        (frame(14480, segment=1448), 15180),
        (frame(14481, segment=1448), 15180 + 71),  # one byte more is one segment more
        (frame(2 * 1472, protocol=17, segment=1472), 2 * 1518),
        (frame(0, segment=1448), 70),
    ],
)
def test_every_segment_has_its_words(made: bytes, size: int):
    assert wire_bytes(made) == size


def test_where_it_goes():
    assert destination(frame(10)) == 258
    assert destination(frame(10)[:40]) == -1


def test_the_most_that_tcp_can_make_of_a_rate():
    assert 1448 * 40 / wire_bytes(frame(1448 * 40, segment=1448)) == pytest.approx(0.954, abs=5e-4)
