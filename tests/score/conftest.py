"""Two domains joined by links that cost money, and a plan across them, for the tests of this folder."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hippo.plan.plan import Pipeline, Plan, Stage
from hippo.problem.cluster import Cluster, Domain, Dynamics, Link
from hippo.problem.gpus import gpu
from hippo.problem.model import gpt_model
from hippo.problem.problem import Problem
from hippo.problem.workload import Workload


@pytest.fixture
def small() -> Problem:
    """Domains a, b, c of one node with 4 A100 at 1.80 USD/h; a->b 1 Gbit/s at 0.05 USD/GB, b->a 0.09 USD/GB."""
    domains = tuple(Domain(name, 1, 4, 3e11, 5e10, 5e-6) for name in "abc")
    there = Link("a", "b", 1.25e8, 0.02, 0.05)
    back = replace(there, source="b", destination="a", price_usd_per_gb=0.09)
    dynamics = Dynamics(swing=0.3, sigma=0.1)
    card = replace(gpu("A100-SXM-80GB"), price_usd_per_hour=1.80)
    model = gpt_model("small", layers=6, hidden=512, heads=8, vocab=1000, seq=128, gated=True)
    return Problem(model, Cluster("two", card, domains, (there, back), dynamics), Workload(16, 128))


@pytest.fixture
def across() -> Plan:
    """Layers [0, 5) on two GPUs of a (two lanes), [5, 8) on two of b; 4 waves of 2 x 2 sequences, 1F1B."""
    stages = (Stage("a", (0, 5), 1, 2, ("a/0/0", "a/0/1")), Stage("b", (5, 8), 1, 2, ("b/0/0", "b/0/1")))
    return Plan((Pipeline(stages, 4),), micro_batch=2)
