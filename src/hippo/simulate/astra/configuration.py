"""The files that ASTRA-sim's analytical binaries read beside the traces."""

from __future__ import annotations

from collections.abc import Mapping

from hippo.files import json_text
from hippo.simulate.astra.chakra import trace
from hippo.simulate.astra.draft import HOP_NS
from hippo.simulate.astra.workload import AstraWorkload
from hippo.simulate.program import Program

PREFIX = "traces/step"
"""Traces are called ``traces/step.<rank>.et``."""

SYSTEM, NETWORK, MEMORY, GROUPS = "system.json", "network.yml", "memory.json", "comm_groups.json"

_COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")


def files(program: Program, work: AstraWorkload, *, traced: bool = True) -> Mapping[str, bytes]:
    """File name to content: a trace per rank, system, network, memory, and communicator groups where there are any.

    ``traced``: the binary shall write when each node was issued and done.
    """
    found = {f"{PREFIX}.{rank}.et": trace(nodes) for rank, nodes in enumerate(work.traces)}
    found[SYSTEM] = json_text(_system(traced)).encode()
    found[NETWORK] = _network(len(work.traces)).encode()
    found[MEMORY] = json_text({"memory-type": "NO_MEMORY_EXPANSION"}).encode()
    if program.groups:
        groups = {str(index): list(group.ranks) for index, group in enumerate(program.groups, 1)}
        found[GROUPS] = json_text(groups).encode()  # 0 stands for all ranks
    return found


def arguments(folder: str, names: Mapping[str, bytes], logs: str) -> list[str]:
    """Options of the binary for files that lie in ``folder``; ``logs``: where it writes what happened when."""
    found = [
        f"--workload-configuration={folder}/{PREFIX}",
        f"--system-configuration={folder}/{SYSTEM}",
        f"--network-configuration={folder}/{NETWORK}",
        f"--remote-memory-configuration={folder}/{MEMORY}",
        f"--logging-folder={logs}",
    ]
    return [*found, f"--comm-group-configuration={folder}/{GROUPS}"] if GROUPS in names else found


def _system(traced: bool) -> dict[str, object]:
    """Durations by work on a machine of 10^12 operations a second whose memory never limits it (``draft``)."""
    return {
        "scheduling-policy": "FIFO",
        "endpoint-delay": 1,  # 0 aborts collectives
        "active-chunks-per-dimension": 1,
        "preferred-dataset-splits": 1,
        **{f"{name}-implementation": ["ring"] for name in _COLLECTIVES},
        "collective-optimization": "baseline",
        "roofline-enabled": 1,
        "peak-perf": 1,
        "local-mem-bw": 1_000_000_000,
        "trace-enabled": int(traced),
    }


def _network(ranks: int) -> str:
    """All pairs alike: a byte is there after ``HOP_NS``. Times on links and latencies are nodes of the traces."""
    return (
        "topology: [ FullyConnected ]\n"
        f"npus_count: [ {ranks} ]\n"
        "bandwidth: [ 1000.0 ]  # GiB/s\n"
        f"latency: [ {float(HOP_NS)} ]  # ns\n"
    )
