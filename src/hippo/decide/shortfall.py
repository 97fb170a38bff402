"""When nothing fits: how much memory is missing, and the nearest changes that would fit.

Every change told here was planned again and scored; one that merely ought to help is not told.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from time import monotonic

from hippo.decide.alternatives import MissingMemory, NearestChange
from hippo.decide.reasons import Reason
from hippo.decide.wording import gb
from hippo.plan.check import check
from hippo.planners.base import Planner, Stop
from hippo.problem.problem import Problem
from hippo.score.evaluate import evaluate, fits
from hippo.simulate.layouts import cost_model

MOST_MEMORY = 64.0  # times today's memory: beyond that, memory is not what is missing
FIRST_THAT_FITS = 1.0  # a gap of 100 %: the search may stop at its first plan


@dataclass(frozen=True)
class Probe:
    """Plans a changed problem quickly; after ``ends_s`` (an instant of the monotonic clock) nothing more is tried."""

    planner: Planner
    ends_s: float
    seed: int

    def step_time_s(self, problem: Problem) -> float | None:
        """Step time of the first plan found that passes the check and fits; None when there is none (or no time)."""
        left = self.ends_s - monotonic()
        if left <= 0:
            return None
        proposal = self.planner.propose(problem, Stop(left, FIRST_THAT_FITS), seed=self.seed)
        if proposal.plan is None or check(problem, proposal.plan) or not fits(problem, proposal.plan):
            return None
        return evaluate(problem, proposal.plan).step_time_s


def shortfall(problem: Problem, planner: Planner, *, limit_s: float, seed: int = 0) -> tuple[Reason, ...]:
    """Reasons for an infeasible problem: the missing memory, and of each kind of change the smallest that fits.

    ``planner`` judges each change; the search stops after ``limit_s`` seconds.
    """
    probe = Probe(planner, monotonic() + limit_s, seed)
    reasons: list[Reason] = list(_memory(problem, probe))
    for changes in (_freedoms, _shorter, _more_nodes):
        for words, changed in changes(problem):
            step_time_s = probe.step_time_s(changed)
            if step_time_s is not None:
                reasons.append(NearestChange(words, step_time_s))
                break
    return tuple(reasons)


def _memory(problem: Problem, probe: Probe) -> Iterator[Reason]:
    """The least memory per GPU at which a plan is found: by steps upwards, then by bisection while time is left."""
    enough, step_time_s, too_little = None, None, 1.0
    for times in STEPS:
        step_time_s = probe.step_time_s(_with_memory(problem, times))
        if step_time_s is not None:
            enough = times
            break
        too_little = times
    if enough is None or step_time_s is None:
        return
    while enough / too_little > 1 + TOLERANCE and probe.time_is_left:
        middle = (enough * too_little) ** 0.5
        found = probe.step_time_s(_with_memory(problem, middle))
        if found is None:
            too_little = middle if probe.time_is_left else too_little
        else:
            enough, step_time_s = middle, found
        if found is None and not probe.time_is_left:
            break
    more = _with_memory(problem, enough)
    usable, needed, short = (
        cost_model(one).usable_memory_bytes() for one in (problem, more, _with_memory(problem, too_little))
    )
    yield MissingMemory(problem.model.name, usable, needed, short)
    today = problem.cluster.gpu.memory_bytes
    yield NearestChange(
        f"with {gb(more.cluster.gpu.memory_bytes)} of memory per GPU instead of {gb(today)}", step_time_s
    )


def _with_memory(problem: Problem, factor: float) -> Problem:
    gpu = replace(problem.cluster.gpu, memory_bytes=problem.cluster.gpu.memory_bytes * factor)
    return replace(problem, cluster=replace(problem.cluster, gpu=gpu))


def _freedoms(problem: Problem) -> Iterator[tuple[str, Problem]]:
    if problem.uniform_cuts:
        yield "with uneven cuts allowed", replace(problem, uniform_cuts=False)
    if problem.runtime != "any":
        yield f"with --runtime any instead of {problem.runtime}", replace(problem, runtime="any", uniform_cuts=False)


def _shorter(problem: Problem) -> Iterator[tuple[str, Problem]]:
    seq = problem.workload.seq
    for length in (seq // 2, seq // 4, seq // 8, seq // 16):
        changed = replace(problem, workload=replace(problem.workload, seq=length))
        yield f"with sequences of {length:,} tokens instead of {seq:,}", changed


def _more_nodes(problem: Problem) -> Iterator[tuple[str, Problem]]:
    for times in (2, 4, 8):
        domains = tuple(replace(domain, nodes=domain.nodes * times) for domain in problem.cluster.domains)
        cluster = replace(problem.cluster, domains=domains)
        yield f"with {times} times the nodes in every domain ({cluster.gpus:,} GPUs)", replace(problem, cluster=cluster)
