"""Traces byte by byte: by hand, and against protobuf's own serialiser where mlc-chakra is installed."""

from __future__ import annotations

import numpy as np
import pytest

from hippo.simulate.astra.chakra import COLLECTIVE, COMP, RECV, SEND, ChakraNode, encoded, trace


def test_a_node_by_hand() -> None:
    node = ChakraNode(3, "F0", COMP, (1, 300), (("is_cpu_op", False), ("num_ops", 300)), duration_micros=5)
    assert encoded(node) == (
        b"\x08\x03"  # id = 3
        b"\x12\x02F0"  # name
        b"\x18\x04"  # type = COMP_NODE
        b"\x2a\x03\x01\xac\x02"  # data_deps, packed: 1, 300
        b"\x38\x05"  # duration_micros = 5
        b"\x52\x0e\x0a\x09is_cpu_op\xd8\x01\x00"  # attr: bool_val is written though it is false
        b"\x52\x0c\x0a\x07num_ops\x68\xac\x02"  # attr: uint64_val = 300
    )


def test_a_word_by_hand() -> None:
    node = ChakraNode(1, "", COLLECTIVE, (), (("pg_name", "12"),))
    assert encoded(node) == b"\x08\x01\x18\x07\x52\x0e\x0a\x07pg_name\xea\x01\x0212"


def test_zero_is_left_out() -> None:
    assert encoded(ChakraNode(0, "", 0)) == b""


def test_a_trace_begins_with_its_version() -> None:
    assert trace([]) == b"\x07\x0a\x050.0.4"
    assert trace([ChakraNode(1, "", COMP)]) == trace([]) + b"\x04\x08\x01\x18\x04"


def random_nodes(count: int) -> list[ChakraNode]:
    rng = np.random.default_rng(7)
    return [
        ChakraNode(
            id=int(rng.integers(0, 2 ** int(rng.integers(1, 60)))),
            name="é" * int(rng.integers(0, 3)) + "x" * int(rng.integers(0, 200)),
            type=int(rng.choice([COMP, SEND, RECV])),
            data_deps=tuple(rng.integers(0, 2**33, int(rng.integers(0, 60))).tolist()),
            attributes=(
                ("is_cpu_op", bool(rng.integers(2))),
                ("num_ops", int(rng.integers(2**62))),
                ("comm_tag", int(rng.integers(3))),
            ),
            duration_micros=int(rng.integers(0, 3)) * int(rng.integers(2**40)),
        )
        for _ in range(count)
    ]


def test_as_protobuf_writes_it() -> None:
    schema = pytest.importorskip("chakra.schema.protobuf.et_def_pb2", reason="mlc-chakra is not installed")
    for node in random_nodes(200):
        official = schema.Node(
            id=node.id,
            name=node.name,
            type=node.type,
            data_deps=node.data_deps,
            duration_micros=node.duration_micros,
        )
        for name, value in node.attributes:
            field = "bool_val" if isinstance(value, bool) else "uint64_val"
            official.attr.add(name=name, **{field: value})
        assert encoded(node) == official.SerializeToString()
    version = schema.GlobalMetadata(version="0.0.4").SerializeToString()
    assert trace([]) == bytes([len(version)]) + version
    assert schema.NodeType.Value("COMP_NODE") == COMP
    assert (schema.NodeType.Value("COMM_SEND_NODE"), schema.NodeType.Value("COMM_RECV_NODE")) == (SEND, RECV)
