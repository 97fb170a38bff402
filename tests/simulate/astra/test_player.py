"""The stand-in keeps the rules that were measured on ASTRA-sim: figures of the facts, in milliseconds."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from hippo.files import json_text
from hippo.simulate.astra.binary import run
from hippo.simulate.astra.chakra import COMP, RECV, SEND, ChakraNode, trace
from hippo.simulate.astra.configuration import MEMORY, NETWORK, SYSTEM, arguments

MIB16 = 16 * 2**20
FIVE_GBIT = 0.582076609  # GiB/s


def send(number: int, to: int, tag: int, size: int = MIB16, *after: int) -> ChakraNode:
    about = (("comm_dst", to), ("comm_size", size), ("comm_tag", tag))
    return ChakraNode(number, f"send {tag}", SEND, after, about)


def receive(number: int, source: int, tag: int, size: int = MIB16) -> ChakraNode:
    about = (("comm_src", source), ("comm_size", size), ("comm_tag", tag))
    return ChakraNode(number, f"receive {tag}", RECV, (), about)


def folder(traces: list[list[ChakraNode]], *, shape="[ 2 ]", bandwidth="[ 0.582076609 ]", latency="[ 40000000 ]"):
    """Files of a run with durations in microseconds."""
    dimensions = ", ".join(["FullyConnected"] * len(shape.split(",")))
    network = f"topology: [ {dimensions} ]\nnpus_count: {shape}\nbandwidth: {bandwidth}\nlatency: {latency}\n"
    found = {f"traces/step.{rank}.et": trace(nodes) for rank, nodes in enumerate(traces)}
    system = {"roofline-enabled": 0, "trace-enabled": 1, "endpoint-delay": 1, "peak-perf": 1, "local-mem-bw": 1}
    memory = {"memory-type": "NO_MEMORY_EXPANSION"}
    documents = {NETWORK: network, SYSTEM: json_text(system), MEMORY: json_text(memory)}
    return {**found, **{name: text.encode() for name, text in documents.items()}}


def ends_ms(binary: Path, traces: list[list[ChakraNode]], **network: str) -> list[float]:
    return [tick / 1e6 for tick in run(binary, folder(traces, **network), len(traces)).finished_ns]


def test_one_send_at_a_time(player: Path) -> None:
    """Four messages posted together end at 4 x (26.84 + 40), not pipelined at 147.4."""
    sender, receiver = [send(n, 1, n) for n in range(1, 5)], [receive(n, 0, n) for n in range(1, 5)]
    assert ends_ms(player, [sender, receiver]) == pytest.approx([267.37] * 2, abs=0.01)


def test_pairs_have_links_of_their_own(player: Path) -> None:
    """Three senders to one rank: 66.8, fully connected."""
    traces = [[receive(n, n, n) for n in (1, 2, 3)], *([send(1, 0, n)] for n in (1, 2, 3))]
    assert ends_ms(player, traces, shape="[ 4 ]")[0] == pytest.approx(66.84, abs=0.01)


def test_the_first_dimension_that_differs_is_charged(player: Path) -> None:
    """Rank 1 of the first domain to rank 2 of the second (0-based 0 -> 3): as on the LAN, 0.3365 ms."""
    lan = {"shape": "[ 2, 2 ]", "bandwidth": "[ 46.5661287, 0.582076609 ]", "latency": "[ 1000, 40000000 ]"}
    idle = [ChakraNode(1, "idle", COMP, duration_micros=1)]
    crossing = [[send(1, 3, 1)], idle, idle, [receive(1, 0, 1)]]
    assert ends_ms(player, crossing, **lan)[3] == pytest.approx(0.3365, abs=1e-3)
    aligned = [[send(1, 2, 1)], idle, [receive(1, 0, 1)], idle]
    assert ends_ms(player, aligned, **lan)[2] == pytest.approx(66.84, abs=0.01)


def test_computing_waits_for_what_it_needs_and_takes_whole_microseconds(player: Path) -> None:
    work = [ChakraNode(2, "a", COMP, (), duration_micros=5), ChakraNode(1, "b", COMP, (2,), duration_micros=0)]
    assert ends_ms(player, [work, [ChakraNode(1, "c", COMP, duration_micros=7)]]) == [5001e-6, 7000e-6]


def test_a_message_that_never_comes_is_silent(player: Path, tmp_path: Path) -> None:
    """Sizes differ: exit code 0, and the rank has no line."""
    here = tmp_path / "run"
    (here / "traces").mkdir(parents=True)
    files = folder([[send(1, 1, 1)], [receive(1, 0, 1, 7)]])
    for name, content in files.items():
        (here / name).write_bytes(content)
    done = subprocess.run(
        [player, *arguments(str(here), files, str(here / "log"))], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert "sys[0] finished" in done.stdout
    assert "sys[1] finished" not in done.stdout
