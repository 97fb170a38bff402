"""Worlds small enough to try every plan: domains of one to four GPUs, a Llama of a few wide blocks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hippo.problem.catalogue.gpus import gpu
from hippo.problem.cluster import Cluster, Domain, Link
from hippo.problem.model import Model, gpt_model
from hippo.problem.problem import Problem
from hippo.problem.workload import Workload

A100 = gpu("A100-SXM-80GB")
SEQ = 1024


def model(blocks: int, *, hidden: int = 4096, tied: bool = False) -> Model:
    """A Llama of few but wide blocks, so that work, not start-up, fills the step."""
    return gpt_model(
        "small", layers=blocks, hidden=hidden, heads=4, vocab=8192, seq=SEQ, ffn=2 * hidden, gated=True, tied=tied
    )


def domain(name: str, nodes: int = 1, gpus_per_node: int = 1) -> Domain:
    """NVLink inside a node, 200 Gbit/s between nodes."""
    return Domain(name, nodes, gpus_per_node, 3e11, 2.5e10, 1e-5)


def both(a: str, b: str, bandwidth_bytes_per_s: float, latency_s: float = 1e-3) -> tuple[Link, Link]:
    """The same link both ways."""
    return Link(a, b, bandwidth_bytes_per_s, latency_s, 0.02), Link(b, a, bandwidth_bytes_per_s, latency_s, 0.02)


def problem(
    domains: tuple[Domain, ...],
    links: tuple[Link, ...] = (),
    *,
    of: Model | None = None,
    batch: int = 4,
    memory_bytes: float | None = None,
    **rest: Any,
) -> Problem:
    """A problem on A100s, with less memory where it is given; ``rest`` are other fields of ``Problem``."""
    kind = A100 if memory_bytes is None else replace(A100, name="small A100", memory_bytes=memory_bytes)
    return Problem(of or model(2), Cluster("tiny", kind, domains, links), Workload(batch, SEQ), **rest)
