"""Chakra execution traces (``.et``), written byte for byte as protobuf's serialiser writes them.

A trace is one message after the other, each behind its length as a varint: ``GlobalMetadata``, then a ``Node`` per
operation (package ``ChakraProtoMsg`` of mlcommons/chakra, unchanged since May 2024). Fields that are zero are left out
(proto3), members of a ``oneof`` are not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

COMP, SEND, RECV, COLLECTIVE = 4, 5, 6, 7
"""Types of nodes that are written here: the schema's COMP_NODE, COMM_SEND_NODE, COMM_RECV_NODE, COMM_COLL_NODE."""

ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER = 0, 2, 7
"""Types of collectives."""

SCHEMA_VERSION = "0.0.4"
_UINT64, _BOOL, _STRING = 13, 27, 29  # fields of AttributeProto that hold a value


@dataclass(frozen=True)
class ChakraNode:
    """One operation of one rank. ``attributes`` are whole numbers (uint64), truths (bool) or words, in this order."""

    id: int  # unique in its trace
    name: str
    type: int
    data_deps: tuple[int, ...] = ()  # nodes of the same rank that must have ended
    attributes: tuple[tuple[str, int | bool | str], ...] = ()
    duration_micros: int = 0


def trace(nodes: Iterable[ChakraNode], version: str = SCHEMA_VERSION) -> bytes:
    """The bytes of one rank's ``.et`` file."""
    return _framed(_bytes(1, version.encode())) + b"".join(_framed(encoded(node)) for node in nodes)


def encoded(node: ChakraNode) -> bytes:
    """A ``Node`` message, without the length in front of it."""
    parts = [_number(1, node.id), _text(2, node.name), _number(3, node.type)]
    if node.data_deps:
        parts.append(_bytes(5, b"".join(map(_varint, node.data_deps))))  # packed
    parts.append(_number(7, node.duration_micros))
    parts += [_bytes(10, _text(1, name) + _value(value)) for name, value in node.attributes]
    return b"".join(parts)


def _value(value: int | bool | str) -> bytes:
    """A member of the ``oneof``: written even when it is zero."""
    if isinstance(value, str):
        return _bytes(_STRING, value.encode())
    field = _BOOL if isinstance(value, bool) else _UINT64
    return _varint(field << 3) + _varint(int(value))


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value) if value else b""


def _text(field: int, value: str) -> bytes:
    return _bytes(field, value.encode()) if value else b""


def _bytes(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _framed(content)


def _framed(content: bytes) -> bytes:
    return _varint(len(content)) + content


def _varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; the eighth says that more follow."""
    assert value >= 0, "only whole numbers from 0"
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)
