"""Candidates of the exact search, and the judge that plays them: memory and structure first, then the step itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from hippo.engine.program import BACKWARD
from hippo.errors import InfeasibleError, InputError
from hippo.plan.check import check
from hippo.plan.plan import Pipeline, Plan, Relay, ScheduleChoice, Sync
from hippo.planners.effort import CHECK_S, JUDGE_S, ORDER_S, ORDERED_S, Effort, play_s
from hippo.planners.orders import orders
from hippo.planners.placement import PipelineSketch, StageSketch, place
from hippo.planners.recipe import FITTED, agreed, fits_blocks
from hippo.problem.problem import Problem
from hippo.problem.runtimes import WHOLE_BLOCKS, recomputed_blocks
from hippo.schedule.generators.cross_domain import RULES
from hippo.schedule.schedule import order_of
from hippo.score.judge import evaluate, fits, imbalance
from hippo.simulate import fast
from hippo.simulate.lower import lower, reordered
from hippo.simulate.program import Program
from hippo.simulate.routes import border_compression


@dataclass(frozen=True)
class Candidate:
    """A plan before it is placed."""

    pipelines: tuple[PipelineSketch, ...]
    micro_batch: int
    recompute: str
    sharding: str
    relays: tuple[Relay, ...] = ()
    sync: Sync = Sync()
    chunks: int = 1  # of layers a stage, interleaved
    overlap: bool = False  # whether the exchange of experts runs beside another micro-batch

    @classmethod
    def of(cls, problem: Problem, plan: Plan) -> Candidate | None:
        """A plan without its devices, its operations in an order that comes as near as a candidate's can; None: it has
        what candidates of the problem have not."""
        degrees = problem.context_parallel, problem.expert_parallel, problem.expert_tensor_parallel
        if (plan.context_parallel, plan.expert_parallel, plan.expert_tensor_parallel) != degrees:
            return None
        lines = tuple(
            PipelineSketch(
                tuple(StageSketch(stage.domain, stage.layers, stage.tp, stage.dp) for stage in line.stages),
                line.num_micro_batches,
                () if line.order or plan.schedule.name in ("1f1b", "interleaved") else run_ahead(plan, line),
                line.order,
            )
            for line in plan.pipelines
        )
        shared = plan.micro_batch, plan.recompute, plan.sharding, plan.relays, plan.sync, plan.interleave
        return cls(lines, *shared, plan.overlap_exchange)

    @property
    def schedule(self) -> ScheduleChoice:
        """1F1B, with chunks interleaved, the one that runs further ahead, with the most that any stage keeps, or the
        orders made for it."""
        if self.chunks > 1:
            return ScheduleChoice("interleaved")
        if any(line.order for line in self.pipelines):
            return ScheduleChoice("best")
        ahead = [line.warm_up[0] for line in self.pipelines if line.warm_up]
        return ScheduleChoice("cross-domain", max(ahead)) if ahead else ScheduleChoice("1f1b")

    @property
    def gpus(self) -> int:
        """GPUs in use, in context-parallel ranks."""
        return sum(stage.tp * stage.dp for line in self.pipelines for stage in line.stages)

    @property
    def operations(self) -> int:
        """Forwards, backwards and weight gradients of all stages and waves."""
        return sum(3 * self.chunks * len(line.stages) * line.num_micro_batches for line in self.pipelines)

    @property
    def bare(self) -> Candidate:
        """The candidate without orders and warm-ups of its own."""
        return replace(self, pipelines=tuple(replace(line, warm_up=(), order=()) for line in self.pipelines))

    def with_orders(self, found: Sequence[tuple[str, ...]]) -> Candidate:
        """The candidate with these orders in place of warm-ups."""
        lines = zip(self.pipelines, found, strict=True)
        return replace(self, pipelines=tuple(replace(line, warm_up=(), order=order) for line, order in lines))

    def plan(self, problem: Problem) -> Plan:
        """The plan on named devices; raises ``InfeasibleError`` when a domain has no room."""
        pipelines = place(problem.cluster, self.pipelines, cp=problem.context_parallel)
        return Plan(
            pipelines,
            self.micro_batch,
            precision=problem.workload.precision,
            recompute=self.recompute,
            sharding=self.sharding,
            interleave=self.chunks,
            overlap_exchange=self.overlap,
            schedule=self.schedule,
            relays=self.relays,
            compression=border_compression(problem, pipelines),
            sync=agreed(problem, self.sync, self.sharding, len(self.pipelines)),
            sequence_parallel=problem.rules.sequence_parallel,
            context_parallel=problem.context_parallel,
            expert_parallel=problem.expert_parallel,
            expert_tensor_parallel=problem.expert_tensor_parallel,
        )


@dataclass(eq=False)
class Tried:
    """Plays candidates once each and remembers the best of every way to join domains."""

    problem: Problem
    effort: Effort = field(default_factory=Effort)
    share: float = 1.0  # of the effort after which nothing more is tried
    ceiling: float = float("inf")  # what is worth no less need not be looked for
    until_found: bool = True  # without a plan the search goes on until it finds one or ends
    gave_up: bool = False  # whether patience ended the search of a way to join before its bounds did
    rejected: Counter[str] = field(default_factory=Counter)
    known: dict[Candidate, float] = field(default_factory=dict)
    best: dict[str, tuple[float, Candidate]] = field(default_factory=dict)  # by way to join
    _ordered: dict[tuple[Candidate, int | None], Candidate | None] = field(default_factory=dict)  # by number of rules
    _lowered: tuple[Candidate, Program] | None = None  # the last one, without its order

    @property
    def plays(self) -> int:
        """Candidates looked at so far."""
        return len(self.known)

    @property
    def over(self) -> bool:
        """Whether the effort is spent, where there is more to try."""
        return self.effort.over(self.share)

    @property
    def must_stop(self) -> bool:
        """Whether it is spent, and a plan is known where one is to be found in any case."""
        return (bool(self.best) or self.ceiling < float("inf") or not self.until_found) and self.over

    @property
    def value(self) -> float:
        """Value of the best candidate so far, no more than the ceiling."""
        return min(self.ceiling, self.least)

    @property
    def least(self) -> float:
        """The same whatever the ceiling; inf: there is none."""
        return min((value for value, _ in self.best.values()), default=float("inf"))

    def best_of(self, joined: str) -> float:
        """Value of the best candidate of one way to join domains (inf: none)."""
        return self.best[joined][0] if joined in self.best else float("inf")

    @property
    def winner(self) -> Candidate | None:
        """The best candidate so far; ties: the way to join that was found first."""
        return min(self.best.values(), key=lambda item: item[0])[1] if self.best else None

    def play(self, candidate: Candidate, *, gain: float = 0.0) -> float:
        """What the candidate is worth, lower is better; inf when it cannot run.

        ``gain``: the share by which it must beat the best of its way to join domains to take that place.
        """
        known = self.known.get(candidate)
        if known is None:
            known = self.known[candidate] = self._play(candidate)
            way = joining(candidate)
            if known < (1.0 - gain) * self.best_of(way):
                self.best[way] = (known, candidate)
        return known

    def fitted(self, candidate: Candidate) -> Candidate:
        """The candidate with the least number of blocks computed again by which it fits, where ``FITTED`` asks for one;
        all of them where none does."""
        if candidate.recompute != FITTED:
            return candidate
        whole, last = replace(candidate, recompute="full"), self.problem.model.num_layers - 1
        stages = [stage.layers for line in candidate.pipelines for stage in line.stages]
        try:
            plan = whole.plan(self.problem)
        except (InfeasibleError, InputError):
            return whole
        most = max(-(-(min(stop, last) - max(start, 1)) // candidate.chunks) for start, stop in stages)
        self.effort.spend(CHECK_S)
        low, high = 0, 0 if fits(self.problem, replace(plan, recompute="none")) else most
        while low < high:
            self.effort.spend(CHECK_S)
            middle = (low + high) // 2
            again = f"{WHOLE_BLOCKS}{middle}" if middle else "none"
            low, high = (low, middle) if fits(self.problem, replace(plan, recompute=again)) else (middle + 1, high)
        return whole if 0 < low == most else replace(candidate, recompute=f"{WHOLE_BLOCKS}{low}" if low else "none")

    def in_order(self, candidate: Candidate, *, rules: int | None = None) -> Candidate | None:
        """The candidate with an order made for each pipeline by so many rules (None: all); None: a pipeline is too long
        to order, or has no room. Another way may have led to the same candidate: made once."""
        if (candidate, rules) not in self._ordered:
            found = orders(self.problem, candidate.plan(self.problem), rules=rules)
            by = 0 if found is None else len(RULES) if rules is None else rules  # what is too long is not begun
            self.effort.spend(ORDER_S + ORDERED_S * candidate.operations * by)
            own = None if found is None else candidate.with_orders(found)
            self._ordered[candidate, rules] = own
        return self._ordered[candidate, rules]

    def _play(self, candidate: Candidate) -> float:
        self.effort.spend(CHECK_S)
        try:
            plan = candidate.plan(self.problem)
            cause = self._flaw(plan)
            if cause is None:
                return self._worth(candidate, plan)
        except InfeasibleError:
            cause = "no room for the tensor-parallel groups"
        except InputError:
            cause = "no link between domains that must exchange data"
        self.rejected[cause] += 1
        return float("inf")

    def _flaw(self, plan: Plan) -> str | None:
        if plan.operations > MOST_OPERATIONS:
            return "too many micro-batches to play"
        if not fits(self.problem, plan):
            return "out of memory"
        delta = self.problem.objective.balance_delta
        if delta is not None and imbalance(self.problem, plan) > delta:
            return "out of balance"
        violations = check(self.problem, plan)
        return _CAUSES.get(violations[0].rule, violations[0].rule) if violations else None

    def _worth(self, candidate: Candidate, plan: Plan) -> float:
        objective = self.problem.objective
        self.effort.spend(play_s(candidate))
        if objective.name == "time" and objective.balance_delta is None:
            return fast.step_time(self._program(candidate, plan))
        self.effort.spend(JUDGE_S)
        score = evaluate(self.problem, plan)
        return score.usd_per_step if objective.name == "cost" else score.step_time_s

    def _program(self, candidate: Candidate, plan: Plan) -> Program:
        """Candidates that differ in their orders alone come one after the other: what they share is lowered once."""
        bare = candidate.bare
        if self._lowered is not None and self._lowered[0] == bare:
            return reordered(self._lowered[1], self.problem, plan)
        program = lower(self.problem, plan)
        self._lowered = bare, program
        return program


def mode_of(problem: Problem, candidate: Candidate) -> str:
    """The recomputation of its layouts: none, all and a number of blocks are what ``FITTED`` stands for."""
    again = candidate.recompute
    blocks = again in ("none", "full") or recomputed_blocks(again) is not None
    return FITTED if blocks and fits_blocks(problem) and not candidate.overlap else again


def run_ahead(plan: Plan, line: Pipeline) -> tuple[int, ...]:
    """Waves that each stage runs forward before its first backward, read off the schedule."""
    schedule = order_of(plan, line)
    kinds = np.split(schedule.order[:, 0], schedule.order_start[1:-1])
    return tuple(int(np.argmax(kind == BACKWARD)) for kind in kinds)


MOST_OPERATIONS = 6_000_000  # of one step; a play of them takes about a tenth of a second
_CAUSES = {"runtime": "the runtime cannot express it", "uniform cuts": "cuts not uniform"}


def joining(candidate: Candidate) -> str:
    """How a candidate joins its domains, and how many."""
    lines = candidate.pipelines
    widths = [len(dict.fromkeys(stage.domain for stage in line.stages)) for line in lines]
    if candidate.sync.method == "local_sgd":
        return f"local SGD over {sum(widths)} domains"
    if len(lines) == 1:
        return "one domain alone" if widths[0] == 1 else f"pipeline over {widths[0]} domains"
    if max(widths) == 1:
        return f"data parallel over {len(lines)} domains"
    return f"{len(lines)} groups of up to {max(widths)} domains"
