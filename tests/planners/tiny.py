"""Worlds small enough to try every plan: domains of one to four GPUs, a Llama of a few wide blocks."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from random import Random
from typing import Any

from hippo.problem.cluster import Cluster, Domain, Link
from hippo.problem.gpus import gpu
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


def random_problem(seed: int) -> Problem:
    """One to three domains, at most four GPUs, one to three blocks, links from 0.8 to 400 Gbit/s, some missing."""
    random = Random(seed)
    count = random.choice([1, 2, 2, 2, 3])
    names = "abc"[:count]
    shapes = [[(1, 1), (1, 2), (2, 1), (2, 2)], [(1, 1), (1, 2), (2, 1)], [(1, 1)]][count - 1]  # nodes, GPUs of each
    domains = tuple(
        Domain(
            name,
            *random.choice(shapes),
            3e11 * random.uniform(0.3, 1.0),
            2.5e10 * random.uniform(0.2, 1.0),
            1e-5,
        )
        for name in names
    )
    links = tuple(_random_link(random, *pair) for pair in permutations(names, 2) if random.random() < 0.9)
    blocks = random.choice([1, 2, 2, 3] if count < 3 else [1, 2])
    return problem(
        domains,
        links,
        of=model(blocks, hidden=random.choice([2048, 4096]), tied=random.random() < 0.3),
        batch=random.choice([2, 3, 4]) if count < 3 and sum(each.gpus for each in domains) <= 4 else 2,
        memory_bytes=random.choice([None, None, random.uniform(12e9, 30e9)]),
        runtime=random.choice(["ideal", "hippo", "megatron", "torch", "deepspeed"]),
    )


def _random_link(random: Random, source: str, destination: str) -> Link:
    bandwidth, latency_s = 10 ** random.uniform(8, 10.7), 10 ** random.uniform(-4, -1.5)
    return Link(
        source, destination, bandwidth, latency_s, 0.02, random.choice([None, None, 10 ** random.uniform(8, 10)])
    )
