"""When nothing fits: how much memory is missing, and the nearest changes that would fit.

Every change told here was planned again and scored; one that merely ought to help is not told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from hippo.decide.reasons import MissingMemory, NearestChange, NothingFound, Reason, UnusableProfile
from hippo.decide.wording import count, gb, listed
from hippo.plan.plan import Plan
from hippo.planners.answers import answer_of
from hippo.planners.base import Planner, Stop
from hippo.planners.effort import Effort
from hippo.problem.problem import Problem
from hippo.problem.runtimes import tp_refusal
from hippo.score.judge import Judged, flaw, judge, memory

STEPS = (
    1.15,
    2.0,
    8.0,
    64.0,
)  # times what a plan needs at the very least; beyond the last, memory is not what is missing
TIMES = 2, 4, 8  # the nodes of today
TOLERANCE = 0.02  # the least memory is looked for until it is known within 2 %,
MOST_BISECTIONS = 6  # or this often
MEMORY_SHARE = 0.6  # of the limit, for the missing memory; the rest is for other changes
NODES_S = 1.0  # the most seconds of work spent on the least number of nodes once a doubling fits
FIRST_THAT_FITS = 1.0  # a gap of 100 %: the search may stop at its first plan


@dataclass(frozen=True)
class FoundPlan:
    """A plan that fits the changed problem: its step time, and the smallest GPU memory that it fits."""

    step_time_s: float
    least_bytes: float


@dataclass(frozen=True)
class Probe:
    """Plans a changed problem quickly; where that share of the effort is spent, nothing more is tried."""

    planner: Planner
    effort: Effort
    seed: int
    share: float = 1.0

    @property
    def work_is_left(self) -> bool:
        """Whether anything more is tried. An answer of None that comes after the end proves nothing."""
        return not self.effort.over(self.share)

    def found(self, problem: Problem) -> FoundPlan | None:
        """The first plan found that counts (``score.judge.flaw``); None when there is none (or no effort left)."""
        if not self.work_is_left or state_bytes_per_gpu(problem) > problem.cluster.gpu.memory_bytes:
            return None
        left_s = self.share * self.effort.limit_s - self.effort.spent_s
        proposal = answer_of(self.planner, problem, Stop(left_s, FIRST_THAT_FITS), seed=self.seed)
        self.effort.spend(proposal.work_s)
        best = proposal.best
        if best is None or flaw(problem, best) is not None:
            return None
        best = best if isinstance(best, Judged) else judge(problem, best)
        return FoundPlan(best.step_time_s, least_memory_bytes(problem, best.plan))


def state_bytes_per_gpu(problem: Problem) -> float:
    """The model's weights, gradients and optimizer state spread over all GPUs: no plan needs less."""
    return problem.model.parameters * problem.workload.state_bytes_per_parameter / problem.cluster.gpus


def least_memory_bytes(problem: Problem, plan: Plan) -> float:
    """The smallest GPU memory that the plan fits: what it keeps, and the share of all memory that stays reserved.

    The peak is a straight line in the GPU's memory; the answer is where it meets the memory itself.
    """
    whole = problem.cluster.gpu.memory_bytes
    today, doubled = (_peak_bytes(_with_memory(problem, times), plan) for times in (1.0, 2.0))
    share = (doubled - today) / whole
    return (today - share * whole) / (1 - share)


def _peak_bytes(problem: Problem, plan: Plan) -> float:
    return max(float(stage.peak_bytes) for stage in memory(problem, plan))


def shortfall(problem: Problem, planner: Planner, *, limit_s: float, seed: int = 0) -> tuple[Reason, ...]:
    """Reasons for an infeasible problem, never none: what is missing, and the smallest change of each kind that fits.

    ``planner`` judges each change; the search stops after ``limit_s`` seconds of work. Where no plan can use the
    profile, that is what is missing; otherwise memory is looked at first.
    """
    probe, unusable = Probe(planner, Effort(limit_s), seed), unusable_profile(problem)
    reasons: list[Reason] = list(unusable)
    if unusable:
        for changes in (other_batches, _freedoms, without_profile):
            reasons += _first_that_fits(problem, probe, changes)
        return tuple(reasons)
    for_memory = replace(probe, share=MEMORY_SHARE)
    reasons += _memory(problem, for_memory)
    in_time = for_memory.work_is_left
    for changes in (_freedoms, _shorter):
        reasons += _first_that_fits(problem, probe, changes)
    reasons += _more_nodes(problem, probe)
    return tuple(reasons) or (NothingFound(planner.name, _tried(problem) if in_time and probe.work_is_left else ()),)


def _tried(problem: Problem) -> tuple[str, ...]:
    """The kinds of changes, in words."""
    freedoms = tuple(words.removeprefix("with ") for words, _ in _freedoms(problem))
    return f"up to {STEPS[-1]:g} times the memory", *freedoms, "shorter sequences", f"up to {TIMES[-1]} times the nodes"


def _first_that_fits(
    problem: Problem, probe: Probe, changes: Callable[[Problem], Iterator[tuple[str, Problem]]]
) -> Iterator[Reason]:
    """The first of ``changes``, smallest first, with which a plan is found."""
    for words, changed in changes(problem):
        found = probe.found(changed)
        if found is not None:
            yield NearestChange(words, found.step_time_s)
            return


def _memory(problem: Problem, probe: Probe) -> Iterator[Reason]:
    """The least memory per GPU at which a plan is found: by steps upwards, then by bisection while work is left.

    A plan that fits shows how little it needs, so every success moves the upper end down to what that plan uses. No
    plan needs less than the model's state spread over all GPUs.
    """
    today = problem.cluster.gpu.memory_bytes
    too_little, best = max(1.0, state_bytes_per_gpu(problem) / today), None
    for times in [step * too_little for step in STEPS]:
        best = probe.found(_with_memory(problem, times))
        if best is not None:
            break
        too_little = times if probe.work_is_left else too_little
    if best is None:
        return
    for _ in range(MOST_BISECTIONS):
        if best.least_bytes <= too_little * today * (1 + TOLERANCE) or not probe.work_is_left:
            break
        middle = (best.least_bytes / today * too_little) ** 0.5
        found = probe.found(_with_memory(problem, middle))
        if found is None and probe.work_is_left:
            too_little = middle
        best = best if found is None else found
    if best.least_bytes <= today:
        yield NearestChange("as it is, with more time to plan", best.step_time_s)
        return
    yield MissingMemory(problem.model.name, today, best.least_bytes, too_little * today)
    words = f"with {gb(best.least_bytes)} of memory per GPU instead of {gb(today)}"
    yield NearestChange(words, best.step_time_s)


def _with_memory(problem: Problem, times: float) -> Problem:
    gpu = replace(problem.cluster.gpu, memory_bytes=problem.cluster.gpu.memory_bytes * times)
    return replace(problem, cluster=replace(problem.cluster, gpu=gpu))


def _freedoms(problem: Problem) -> Iterator[tuple[str, Problem]]:
    if problem.uniform_cuts:
        yield "with uneven cuts allowed", replace(problem, uniform_cuts=False)
    if problem.objective.balance_delta is not None:
        words = f"with compute times further apart than the {problem.objective.balance_delta:g} allowed"
        yield words, replace(problem, objective=replace(problem.objective, balance_delta=None))
    if problem.objective.bandwidth_floor_bytes_per_s is not None:
        free = replace(problem.objective, bandwidth_floor_bytes_per_s=None)
        yield "with cuts on links of any bandwidth", replace(problem, objective=free)
    if problem.runtime != "ideal":
        # Megatron-LM shards the optimizer's state; hippo's executor does not, but has unlike stages and replicas.
        other = "megatron" if problem.rules.name == "hippo" else "hippo"
        words = f"with --runtime {other} instead of {problem.runtime}"
        yield words, replace(problem, runtime=other, uniform_cuts=False)


def _shorter(problem: Problem) -> Iterator[tuple[str, Problem]]:
    seq = problem.workload.seq
    for length in (seq // 2, seq // 4, seq // 8, seq // 16):
        if length:
            changed = replace(problem, workload=replace(problem.workload, seq=length))
            yield f"with sequences of {length:,} tokens instead of {seq:,}", changed


def _more_nodes(problem: Problem, probe: Probe) -> Iterator[Reason]:
    """The least number of nodes at which a plan is found: by doublings, then by bisection while work is left."""
    today = max(domain.nodes for domain in problem.cluster.domains)
    too_few, enough, best = today, today, None
    for enough in (today * times for times in TIMES):
        best = probe.found(_with_nodes(problem, enough))
        if best is not None:
            break
        too_few = enough
    if best is None:
        return
    soon = replace(probe, effort=Effort(min(probe.effort.left_s, NODES_S)))
    for _ in range(MOST_BISECTIONS):
        if enough - too_few <= 1 or not soon.work_is_left:
            break
        middle = (enough + too_few) // 2
        found = soon.found(_with_nodes(problem, middle))
        too_few = middle if found is None else too_few
        enough, best = (enough, best) if found is None else (middle, found)
    yield NearestChange(_nodes_in_words(problem, enough), best.step_time_s)


def _with_nodes(problem: Problem, largest: int) -> Problem:
    """Every domain grown alike, to whole nodes, until the largest has as many."""
    today = max(domain.nodes for domain in problem.cluster.domains)
    domains = tuple(replace(domain, nodes=-(-domain.nodes * largest // today)) for domain in problem.cluster.domains)
    return replace(problem, cluster=replace(problem.cluster, domains=domains))


def _nodes_in_words(problem: Problem, largest: int) -> str:
    sizes, gpus = {domain.nodes for domain in problem.cluster.domains}, _with_nodes(problem, largest).cluster.gpus
    if len(sizes) == 1:
        return f"with {count(largest, 'node')} in every domain instead of {max(sizes):,} ({gpus:,} GPUs)"
    return f"with {largest / max(sizes):.3g} times the nodes in every domain, rounded up ({gpus:,} GPUs)"


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
    return tp_refusal(problem.model, tp, problem.rules)
