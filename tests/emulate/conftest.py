"""Emulated WANs for tests: a small cluster, and a machine that grants namespaces."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hippo.emulate.emulate import EmulationOutcome, emulate, setting_of
from hippo.problem.load import load_cluster, load_trace

CLUSTER = """
gpu: A100-SXM-80GB
domains:
  - {name: east, nodes: 1, gpus_per_node: 8}
  - {name: west, nodes: 1, gpus_per_node: 8}
  - {name: far north, nodes: 2, gpus_per_node: 8}
links:
  - {from: east, to: west, bandwidth_gbps: 0.1, latency_ms: 20, price_usd_per_gb: 0.02, both: true}
  - {from: west, to: far north, per_node_gbps: 0.05, latency_ms: 5, price_usd_per_gb: 0.02}
  - {from: far north, to: west, per_node_gbps: 0.05, latency_ms: 5, price_usd_per_gb: 0.02}
"""
UNPRIVILEGED = ("unshare", "--user", "--map-user=1000", "--map-group=1000")
"""Prefix of a command that runs without root's rights, whoever runs the tests."""


@pytest.fixture
def cluster_file(tmp_path: Path) -> Path:
    path = tmp_path / "three.yaml"
    path.write_text(CLUSTER)
    return path


Emulated = Callable[..., EmulationOutcome]


@pytest.fixture
def emulated(namespaces: None, cluster_file: Path, tmp_path: Path) -> Emulated:
    """``emulated("bash", "-c", ..)`` runs a command inside; ``trace`` is the text of one."""

    def run(*command: str, trace: str = "", **options: object) -> EmulationOutcome:
        cluster = load_cluster(str(cluster_file))
        if trace:
            path = tmp_path / "net.csv"
            path.write_text(trace)
            options["trace"] = load_trace(path, cluster)
        return emulate(setting_of(cluster, command, source=str(cluster_file), **options))  # type: ignore[arg-type]

    return run
