"""When no plan may use a measured profile: why each of its layouts is barred, and what to change instead.

A plan has one micro-batch, and its pipelines share the global batch in whole micro-batches: one that does not divide
the batch is never used. A tensor-parallel degree must split the model and find that many GPUs in a domain.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hippo.decide.alternatives import UnusableProfile
from hippo.decide.wording import listed
from hippo.plan.runtimes import runtime_rules, tp_refusal
from hippo.problem.problem import Problem


def unusable_profile(problem: Problem) -> tuple[UnusableProfile, ...]:
    """Why no layout of the profile can be used; empty where one can, or where there is no profile."""
    if problem.profile is None:
        return ()
    batch = problem.workload.global_batch
    refusals = {tp: _refusal(problem, tp) for tp, _ in _layouts(problem)}
    sizes = sorted({size for tp, size in _layouts(problem) if refusals[tp] is None})
    if any(batch % size == 0 for size in sizes):
        return ()
    causes = [refusal for refusal in refusals.values() if refusal is not None]
    if sizes:
        named = listed([f"{size:,}" for size in sizes])
        measured = f"micro-batches {named}, which do" if sizes[1:] else f"micro-batch {named}, which does"
        causes.append(f"it measures only {measured} not divide the global batch of {batch:,} sequences")
    return (UnusableProfile(problem.profile.source, tuple(sizes), batch, tuple(causes)),)


def other_batches(problem: Problem) -> Iterator[tuple[str, Problem]]:
    """Global batches that a measured micro-batch divides, the nearest first."""
    batch = problem.workload.global_batch
    sizes = {size for tp, size in _layouts(problem) if _refusal(problem, tp) is None}
    near = {around for size in sizes for around in (batch // size * size, (batch // size + 1) * size) if around}
    for other in sorted(near - {batch}, key=lambda one: (abs(one - batch), one)):
        words = f"with a global batch of {other:,} sequences instead of {batch:,}"
        yield words, replace(problem, workload=replace(problem.workload, global_batch=other))


def without_profile(problem: Problem) -> Iterator[tuple[str, Problem]]:
    """Formulas in place of what was measured."""
    yield "without the profile, by formulas", replace(problem, profile=None)


def _layouts(problem: Problem) -> list[tuple[int, int]]:
    """The (tp, micro-batch) pairs measured on the cluster's GPU."""
    rows = () if problem.profile is None else problem.profile.rows
    return sorted({(row.tp, row.micro_batch) for row in rows if row.gpu == problem.cluster.gpu.name})


def _refusal(problem: Problem, tp: int) -> str | None:
    """Why no plan splits layers over ``tp`` GPUs; None: one may."""
    if tp > max(domain.gpus for domain in problem.cluster.domains):
        return f"no domain has the {tp:,} GPUs of tp {tp:,}"
    return tp_refusal(problem.model, tp, runtime_rules(problem.runtime))
