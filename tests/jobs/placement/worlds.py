"""A site of equal domains, and a planner that answers by a table of its own."""

from __future__ import annotations

from typing import cast

from hippo.plan.plan import Plan
from hippo.planners.base import Progress, Proposal, Status, Stop
from hippo.problem.cluster import Cluster
from hippo.problem.cluster_yaml import cluster_from_document
from hippo.problem.problem import Problem
from hippo.score.judge import Judged
from hippo.score.score import Score
from hippo.simulate.program import Program


def cluster(names: str, *, gbps: float = 10.0, nodes: int = 10, joined: str | None = None) -> Cluster:
    """A domain per letter of ``names``; links between all, or only along the chain ``joined``."""
    pairs = [(a, b) for a in names for b in names if a < b]
    if joined is not None:
        pairs = list(zip(joined[:-1], joined[1:], strict=True))
    document = {
        "gpu": "A100-SXM-80GB",
        "domains": [{"name": name, "nodes": nodes, "gpus_per_node": 8} for name in names],
        "links": [
            {"from": a, "to": b, "bandwidth_gbps": gbps, "latency_ms": 20, "price_usd_per_gb": 0.02, "both": True}
            for a, b in pairs
        ],
    }
    return cluster_from_document(document, source="a test", name="a test")


class Counting:
    """Says 10 s a step inside one domain and 5 s more for every further one, and notes what it was asked."""

    name = "counting"

    def __init__(self, most_parameters: float = float("inf")) -> None:
        self.asked: list[Problem] = []
        self.most_parameters = most_parameters

    def propose(self, problem: Problem, stop: Stop, *, seed: int = 0, progress: Progress | None = None) -> Proposal:
        self.asked.append(problem)
        if problem.model.parameters > self.most_parameters:
            return Proposal(self.name, Status.INFEASIBLE)
        seconds, crossing = 5.0 + 5.0 * len(problem.cluster.domains), len(problem.cluster.domains) - 1.0
        score = Score(seconds, 1.0, 1.0, crossing, crossing, 1.0, 1.0, 0.5, 10.0, 0.0)
        return Proposal(self.name, Status.FEASIBLE, Judged(problem, cast(Plan, None), cast(Program, None), score))
