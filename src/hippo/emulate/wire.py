"""How many bytes a frame is on the wire, and where it goes.

A frame comes as the kernel hands it out: a virtio header (10 bytes), an Ethernet header (14), an IPv4 packet. A TCP
super-packet (up to 64 KiB, segmentation left to the card that is not there) counts as the segments it would become.
"""

from __future__ import annotations

VNET = 10  # bytes of the virtio header
ETHERNET = 14
FRAMING = 18  # Ethernet header and check sequence of one segment on the wire
_IP = VNET + ETHERNET
_TCP, _UDP = 6, 17


def wire_bytes(frame: bytes) -> int:
    """Bytes that the frame takes on the wire, all segments with their headers and framing."""
    size = len(frame) - _IP
    if not frame[1]:  # no segmentation asked for
        return size + FRAMING
    segment = frame[4] | frame[5] << 8
    ip_header = (frame[_IP] & 15) * 4
    protocol = frame[_IP + 9]
    headers = ip_header + ((frame[_IP + ip_header + 12] >> 4) * 4 if protocol == _TCP else 8)
    segments = max(1, -(-(size - headers) // segment)) if segment else 1
    return size + (segments - 1) * headers + segments * FRAMING


def destination(frame: bytes) -> int:
    """Last two bytes of the IPv4 destination, as one number; -1 for a frame too short to have one."""
    return frame[_IP + 18] << 8 | frame[_IP + 19] if len(frame) >= _IP + 20 else -1
