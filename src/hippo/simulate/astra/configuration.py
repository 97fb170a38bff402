"""The files that ASTRA-sim's analytical binaries read beside the traces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hippo.files import json_text
from hippo.simulate.astra.chakra import trace
from hippo.simulate.astra.draft import HOP_NS
from hippo.simulate.astra.workload import AstraWorkload
from hippo.simulate.program import Program

PREFIX = "traces/step"
"""Traces are called ``traces/step.<rank>.et``."""

SYSTEM, NETWORK, MEMORY, GROUPS = "system.json", "network.yml", "memory.json", "comm_groups.json"


@dataclass(frozen=True)
class Dimension:
    """One of the network: what every pair of ranks gets that differ in it and in none before it."""

    size: int
    gib_per_s: float
    latency_ns: float


_COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")


def files(program: Program, work: AstraWorkload, *, traced: bool = True) -> Mapping[str, bytes]:
    """File name to content: a trace per rank, system, network, memory, and communicator groups where there are any.

    ``traced``: the binary shall write when each node was issued and done.
    """
    found = {f"{PREFIX}.{rank}.et": trace(nodes) for rank, nodes in enumerate(work.traces)}
    # All pairs alike: a byte is there after HOP_NS. Times on links and latencies are nodes of the traces.
    found |= machine([Dimension(len(work.traces), 1000.0, float(HOP_NS))], traced=traced)
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


def machine(dimensions: Sequence[Dimension], *, traced: bool) -> dict[str, bytes]:
    """System, memory and network. Durations are work on a machine of 10^12 operations a second whose memory never
    limits it (``draft``)."""
    system = {
        "scheduling-policy": "FIFO",
        "endpoint-delay": 1,  # 0 aborts collectives
        "active-chunks-per-dimension": 1,
        "preferred-dataset-splits": 1,
        **{f"{name}-implementation": ["ring"] * len(dimensions) for name in _COLLECTIVES},
        "collective-optimization": "baseline",
        "roofline-enabled": 1,
        "peak-perf": 1,
        "local-mem-bw": 1_000_000_000,
        "trace-enabled": int(traced),
    }
    rows: dict[str, tuple[Sequence[object], str]] = {
        "topology": (["FullyConnected"] * len(dimensions), ""),
        "npus_count": ([each.size for each in dimensions], ""),
        "bandwidth": ([each.gib_per_s for each in dimensions], "  # GiB/s"),
        "latency": ([each.latency_ns for each in dimensions], "  # ns"),
    }
    network = "".join(f"{key}: [ {', '.join(map(str, row))} ]{unit}\n" for key, (row, unit) in rows.items())
    return {
        SYSTEM: json_text(system).encode(),
        NETWORK: network.encode(),
        MEMORY: json_text({"memory-type": "NO_MEMORY_EXPANSION"}).encode(),
    }
