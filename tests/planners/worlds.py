"""Small problems for the tests of this folder: a few domains of A100s, a GPT of a few blocks, links as one likes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hippo.plan.check import check
from hippo.planners.base import Proposal, Status, Stop
from hippo.problem.cluster import Cluster, Domain, Link
from hippo.problem.gpus import GPUS
from hippo.problem.model import Model, gpt_model
from hippo.problem.problem import Problem
from hippo.problem.workload import Workload
from hippo.score.judge import fits
from hippo.units import bytes_per_s_from_gbps

STOP = Stop(600.0)


def domain(name: str, nodes: int, gpus_per_node: int) -> Domain:
    """NVLink inside, 400 Gbit/s per node outside."""
    return Domain(name, nodes, gpus_per_node, 300e9, 50e9, 5e-6)


def cluster(
    *domains: Domain,
    gbps: float = 5.0,
    latency_s: float = 0.02,
    memory_gb: float = 80.0,
    others: Mapping[tuple[str, str], float] | None = None,
) -> Cluster:
    """Every pair linked both ways at ``gbps``; ``others``: pairs with another bandwidth (0: no link), either way."""
    rates = {pair: rate for one, rate in (others or {}).items() for pair in (one, one[::-1])}
    names = [one.name for one in domains]
    links = tuple(
        Link(a, b, bytes_per_s_from_gbps(rates.get((a, b), gbps)), latency_s, 0.02)
        for a in names
        for b in names
        if a != b and rates.get((a, b), gbps) > 0
    )
    gpu = replace(GPUS["A100-SXM-80GB"], memory_bytes=memory_gb * 1e9)
    return Cluster("small", gpu, domains, links)


def gpt(blocks: int = 8, hidden: int = 1024, *, vocab: int = 4096) -> Model:
    """A GPT-2 of ``blocks`` blocks."""
    return gpt_model("small", layers=blocks, hidden=hidden, heads=8, vocab=vocab, seq=1024)


def problem(where: Cluster, model: Model | None = None, *, batch: int = 16, seq: int = 512, **given: object) -> Problem:
    """The model on the cluster; ``given``: fields of ``Problem``."""
    return Problem(model or gpt(), where, Workload(global_batch=batch, seq=seq), **given)  # type: ignore[arg-type]


def assert_sound(asked: Problem, proposal: Proposal) -> None:
    """A plan that breaks no rule and fits, or an answer that says why there is none."""
    assert proposal.notes
    assert all(note.endswith(".") for note in proposal.notes)
    if proposal.plan is None:
        assert proposal.status is Status.INFEASIBLE
        assert proposal.score is None
        return
    assert proposal.status is Status.FEASIBLE
    assert check(asked, proposal.plan) == ()
    assert fits(asked, proposal.plan)
    assert proposal.score is not None
    assert proposal.score.step_time_s > 0
