"""A small cluster of three domains and plans on it, for the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from hippo.plan.plan import Pipeline, Plan, Stage
from hippo.problem.cluster import Cluster, Domain, Link
from hippo.problem.gpus import gpu
from hippo.problem.model import gpt_model
from hippo.problem.problem import Problem
from hippo.problem.workload import Workload

PlanOf = Callable[..., Plan]


@pytest.fixture
def problem() -> Problem:
    """Domains a, b, c of 2 nodes x 4 GPUs; links both ways, a->b 1e9 B/s 10 ms, b->c 2e9 20 ms, a->c 4e9 40 ms."""
    domains = tuple(Domain(name, 2, 4, 3e11, 5e10, 5e-6) for name in "abc")
    links = [Link(x, y, 1e9 * n, 0.01 * n, 0.05) for x, y, n in (("a", "b", 1), ("b", "c", 2), ("a", "c", 4))]
    back = [replace(link, source=link.destination, destination=link.source) for link in links]
    model = gpt_model("small", layers=6, hidden=512, heads=8, vocab=1000, seq=128, gated=True)
    return Problem(model, Cluster("three", gpu("A100-SXM-80GB"), domains, (*links, *back)), Workload(16, 128))


@pytest.fixture
def plan_of() -> PlanOf:
    """A plan from pipelines of stages written as ``"a/0/0,1 0-4"``: domain / node / GPUs, layers; micro-batch 1."""

    def stage(text: str, dp: int) -> Stage:
        where, layers = text.split()
        domain, node, gpus = where.split("/")
        devices = tuple(f"{domain}/{node}/{index}" for index in gpus.split(","))
        start, stop = (int(value) for value in layers.split("-"))
        return Stage(domain, (start, stop), len(devices) // dp, dp, devices)

    def build(*pipelines: tuple[str, ...], waves: int = 4, dp: int = 1, **more: object) -> Plan:
        lines = tuple(Pipeline(tuple(stage(text, dp) for text in line), waves) for line in pipelines)
        return Plan(lines, **{"micro_batch": 1, **more})

    return build
