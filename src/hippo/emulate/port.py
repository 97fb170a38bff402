"""A port of the emulator: frames of one interface, whole TCP super-packets, read from a ring shared with the kernel.

AF_PACKET with PACKET_VNET_HDR, so that super-packets of up to 64 KiB cross uncut, and with a receive ring, so that a
burst waits in memory of its own (a socket's usual buffer holds three of them) and each frame carries the time at which
the kernel took it: a reader that wakes up late delays nothing.
"""

from __future__ import annotations

import mmap
import socket
import struct
import time

from hippo.emulate.wire import VNET

_SOL_PACKET = 263
_RX_RING, _STATISTICS, _VERSION, _VNET_HDR, _IGNORE_OUTGOING = 5, 6, 10, 15, 23
_TPACKET_V2 = 1
_ETH_P_IP = 0x0800
_FRAME = 66_048  # a super-packet with every header, in 16s
BLOCK = 1 << 20
_PER_BLOCK = BLOCK // _FRAME
_LATEST_READING_NS = 200_000_000


class Port:
    """One interface: ``read`` takes what came in, ``send`` puts a frame out."""

    def __init__(self, interface: str, *, blocks: int) -> None:
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self.socket.setsockopt(_SOL_PACKET, _VERSION, _TPACKET_V2)
        self.socket.setsockopt(_SOL_PACKET, _VNET_HDR, 1)
        self.socket.setsockopt(_SOL_PACKET, _IGNORE_OUTGOING, 1)
        count = blocks * _PER_BLOCK
        self.socket.setsockopt(_SOL_PACKET, _RX_RING, struct.pack("IIII", BLOCK, blocks, _FRAME, count))
        self._ring = mmap.mmap(self.socket.fileno(), blocks * BLOCK)
        self._words = memoryview(self._ring).cast("I")
        self._starts = [index // _PER_BLOCK * BLOCK + index % _PER_BLOCK * _FRAME for index in range(count)]
        self._next = 0
        self.socket.bind((interface, _ETH_P_IP))
        self.socket.setblocking(False)
        self.send = self.socket.send

    def read(self) -> tuple[int, bytes] | None:
        """When the kernel took the next frame (ns, ``time.monotonic_ns``) and the frame; None: no more."""
        start = self._starts[self._next]
        words, word = self._words, start >> 2
        if not words[word] & 1:  # TP_STATUS_USER: ours
            return None
        # struct tpacket2_hdr: status, length, captured length, (mac, net offsets), seconds, nanoseconds
        begin = start + (words[word + 3] & 0xFFFF) - VNET
        frame = self._ring[begin : begin + VNET + words[word + 2]]
        age_ns = time.time_ns() - words[word + 4] * 1_000_000_000 - words[word + 5]
        words[word] = 0
        self._next = self._next + 1 if self._next + 1 < len(self._starts) else 0
        # The kernel's stamp is of the wall clock, which may be set meanwhile: an age that cannot be is none.
        return time.monotonic_ns() - (age_ns if 0 < age_ns < _LATEST_READING_NS else 0), frame

    def missed(self) -> int:
        """Frames since the last call that found the ring full."""
        seen = self.socket.getsockopt(_SOL_PACKET, _STATISTICS, 8)
        return int(struct.unpack("II", seen)[1])
