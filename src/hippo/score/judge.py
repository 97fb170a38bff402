"""From a plan to what it is worth: lowered, played and scored, once, and carried from there as one value.

``utilization`` is the mean over the domains in use of ``U_k = T_k^compute / T_step``, where ``T_k^compute`` is the mean
busy time (F, B and W, without waiting for parameters or inputs) of the domain's GPUs in use; ``utilization_all`` is the
mean over all domains of the cluster, idle ones counted as 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from hippo.cost.kernels import peak_flops
from hippo.cost.money import egress_usd, rent_usd_per_s
from hippo.cost.stage import StageMemory
from hippo.plan.check import check
from hippo.plan.plan import Pipeline, Plan
from hippo.problem.problem import Problem
from hippo.schedule.schedule import order_of
from hippo.score.interval import StepInterval, interval_of
from hippo.score.score import Score, reward
from hippo.simulate.costs import cost_model, costs
from hippo.simulate.lower import lower
from hippo.simulate.program import Program
from hippo.simulate.timeline import Timeline, busy_s, link_bytes
from hippo.units import gb_from_bytes


@dataclass(frozen=True)
class Judged:
    """A plan with its program, score and memory; planners, choice, reasons and reports hand on this one value."""

    problem: Problem
    plan: Plan
    program: Program = field(compare=False)
    score: Score
    memory: tuple[StageMemory, ...] = ()  # of the fullest rank of every stage, pipeline after pipeline
    played: Timeline | None = field(default=None, compare=False)  # the whole step; None: nobody asked for it yet
    checked: tuple[str | None] | None = field(default=None, compare=False)  # ``flaw``; None: nobody asked for it yet

    def __repr__(self) -> str:
        return f"Judged({self.plan!r}, step_time_s={self.step_time_s:.6g})"

    @property
    def step_time_s(self) -> float:
        """Step time under the links as they are."""
        return self.score.step_time_s

    @property
    def timeline(self) -> Timeline:
        """The played step; played when first asked for, as most plans are scored and never looked at."""
        if self.played is None:
            from hippo.simulate.fast import play

            object.__setattr__(self, "played", play(self.program))
        return cast(Timeline, self.played)

    @property
    def interval(self) -> StepInterval | None:
        """Where a measured step is expected to lie; None: no family holds it."""
        return interval_of(self.problem, self.plan, self.step_time_s)

    @property
    def flaw(self) -> str | None:
        """Why the plan does not count, or None: see the function ``flaw``."""
        if self.checked is None:
            object.__setattr__(self, "checked", (flaw(self.problem, self.plan),))
        return cast(tuple[str | None], self.checked)[0]

    def under(self, problem: Problem, *, baseline: Score | None = None) -> Judged:
        """The same step under a problem with other wishes (objective, what is allowed), its reward against a baseline.

        Model, cluster and workload must be those of ``problem``: nothing is played again.
        """
        if problem is self.problem and baseline is None:
            return self
        parts = {} if baseline is None else reward(self.score, baseline, problem.objective)
        checked = self.checked if problem is self.problem else None
        return replace(self, problem=problem, score=replace(self.score, **parts), checked=checked)

    @property
    def links_used(self) -> tuple[int, ...]:
        """Indices of the links that carry something, heaviest first."""
        order = np.argsort(-self.timeline.link_bytes, kind="stable")
        return tuple(int(link) for link in order if self.timeline.link_bytes[link] > 0)

    @property
    def pairs_used(self) -> tuple[tuple[int, ...], ...]:
        """The links that carry something, both ways between two domains together, heaviest first."""
        edges = self.problem.cluster.links
        pairs: dict[frozenset[str], list[int]] = {}
        for link in self.links_used:
            pairs.setdefault(frozenset((edges[link].source, edges[link].destination)), []).append(link)
        return tuple(tuple(links) for links in pairs.values())


def judge(problem: Problem, plan: Plan) -> Judged:
    """The plan lowered and played by ``fast`` in the base state of the links, and scored; it may need too much memory.

    Raises ``InputError`` for a plan that cannot be played; ``plan.check`` says so before.
    """
    from hippo.simulate.fast import step_time

    program, kept = lower(problem, plan), memory(problem, plan)
    figures = step_time(program), busy_s(program), link_bytes(program)
    return Judged(problem, plan, program, _score(problem, plan, figures, kept), kept)


def flaw(problem: Problem, plan: Plan | Judged) -> str | None:
    """Why the plan does not count (it breaks a rule, does not fit, is out of balance), or None."""
    if isinstance(plan, Judged):
        return plan.flaw if plan.problem is problem else flaw(problem, plan.plan)
    violations = check(problem, plan)
    if violations:
        return "; ".join(str(violation) for violation in violations[:3])
    if not fits(problem, plan):
        return "a GPU would need more memory than it has"
    delta = problem.objective.balance_delta
    if delta is not None and imbalance(problem, plan) > delta:
        return f"its domains' compute times are further apart than the {delta:g} allowed"
    return None


def evaluate(problem: Problem, plan: Plan, *, timeline: Timeline | None = None, baseline: Score | None = None) -> Score:
    """The score alone; of ``timeline`` where one is given, which another engine or other links may have made.

    With a ``baseline`` the reward and its parts are filled in (``hippo.score.score``); without one ``r_util`` alone,
    which needs none.
    """
    if timeline is None:
        score = judge(problem, plan).score
    else:
        figures = timeline.step_time_s, timeline.rank_busy_s, timeline.link_bytes
        score = _score(problem, plan, figures, memory(problem, plan))
    return score if baseline is None else replace(score, **reward(score, baseline, problem.objective))


def _score(
    problem: Problem,
    plan: Plan,
    figures: tuple[float, NDArray[np.float64], NDArray[np.float64]],
    kept: tuple[StageMemory, ...],
) -> Score:
    """``figures``: step time, busy seconds per rank (G,) and bytes per link (E,)."""
    step_time_s, busy, sent_bytes = figures
    per_domain = domain_utilization(problem, plan, busy, step_time_s)
    utilization = float(np.mean([per_domain[name] for name in plan.domains]))
    egress = sum(
        egress_usd(sent, link.price_usd_per_gb) for sent, link in zip(sent_bytes, problem.cluster.links, strict=True)
    )
    rent = rent_usd_per_s(problem.cluster.gpu, plan.gpus) * step_time_s
    tokens = plan.global_batch * problem.workload.seq
    peak = plan.gpus * peak_flops(problem.cluster.gpu, plan.precision)
    return Score(
        step_time_s=step_time_s,
        utilization=utilization,
        utilization_all=float(np.mean(list(per_domain.values()))),
        cross_domain_gb_per_step=gb_from_bytes(float(np.sum(sent_bytes))),
        egress_usd_per_step=float(egress),
        usd_per_step=float(rent + egress),
        tokens_per_s=tokens / step_time_s,
        mfu=flops_per_step(problem, plan) / (step_time_s * peak),
        peak_memory_gb=gb_from_bytes(max(stage.peak_bytes for stage in kept)),
        reward=0.0,
        r_util=utilization,
    )


def memory(problem: Problem, plan: Plan) -> tuple[StageMemory, ...]:
    """Memory of the fullest rank of every stage, pipeline after pipeline, with the micro-batches its schedule keeps."""
    return tuple(
        replace(stage, live_micro_batches=live)
        for pipeline in plan.pipelines
        for stage, live in _live_stages(problem, plan, pipeline)
    )


def fits(problem: Problem, plan: Plan) -> bool:
    """Whether every stage fits the memory a plan may use of one GPU."""
    usable = cost_model(problem).usable_memory_bytes()
    return all(
        stage.peak_bytes + stage.activation_bytes * live <= usable
        for pipeline in plan.pipelines
        for stage, live in _live_stages(problem, plan, pipeline)
    )


def _live_stages(problem: Problem, plan: Plan, pipeline: Pipeline) -> Iterator[tuple[StageMemory, float]]:
    """Memory of each stage of a pipeline without anything in flight, and the micro-batches its schedule keeps."""
    live = order_of(plan, pipeline).peak_live
    if plan.overlap_exchange:  # a forward more has begun before the backward beside it has ended
        live = tuple(each + 1 / plan.interleave for each in live)
    return zip(costs(problem).memories(plan, pipeline), live, strict=True)


def flops_per_step(problem: Problem, plan: Plan) -> float:
    """Model FLOPs of one step over all GPUs, recomputation not counted."""
    total = 0.0
    for pipeline in plan.pipelines:
        for stage, cost in zip(pipeline.stages, costs(problem).stages(plan, pipeline), strict=True):
            total += cost.flops * stage.dp * pipeline.num_micro_batches
    return total


def domain_utilization(
    problem: Problem, plan: Plan, busy_s: NDArray[np.float64], step_time_s: float
) -> dict[str, float]:
    """``U_k`` of every domain of the cluster, 0 for those not in use; ``busy_s`` (G,) in pipeline order."""
    stages = [stage for pipeline in plan.pipelines for stage in pipeline.stages]
    seconds = dict.fromkeys(problem.cluster.domain_index, 0.0)
    gpus = dict.fromkeys(problem.cluster.domain_index, 0)
    for stage, busy in zip(stages, busy_s, strict=True):
        seconds[stage.domain] += float(busy) * len(stage.devices)
        gpus[stage.domain] += len(stage.devices)
    return {name: seconds[name] / (gpus[name] * step_time_s) if gpus[name] else 0.0 for name in seconds}


def imbalance(problem: Problem, plan: Plan) -> float:
    """``(max T_k - min T_k) / mean T_k`` over the domains in use, T_k the mean seconds their GPUs compute in a step."""
    seconds = domain_utilization(problem, plan, busy_s(lower(problem, plan)), 1.0)
    used = [seconds[name] for name in plan.domains]
    return (max(used) - min(used)) * len(used) / sum(used)
