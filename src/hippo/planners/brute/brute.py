"""The judge of ``exact``: tries every plan of a small problem and keeps the best. Slow, short, and meant to be read.

What is tried stands in ``space``. Every candidate is checked by ``plan.check``, must fit the memory, and is
scored by the simulator. Only plans that provably cost more than the best are left out: a stage works through all its
waves one after the other, and the stages before it must pass the first wave down and the last one back up. Plans are
tried in passes of growing limits on that bound, so that a good plan is known before the long ones are looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import combinations_with_replacement, product
from math import inf

from hippo.cost.money import rent_usd_per_s
from hippo.errors import InfeasibleError, InputError
from hippo.plan.check import check
from hippo.plan.plan import Pipeline, Plan, ScheduleChoice
from hippo.planners.base import Progress, Proposal, Status, Stop
from hippo.planners.baselines.even import Even
from hippo.planners.baselines.single_domain import SingleDomain
from hippo.planners.brute.space import (
    Common,
    Set,
    Sketches,
    Space,
    arrangements,
    commons,
    count_sets,
    relays,
    schedules,
    syncs,
)
from hippo.planners.effort import Effort, play_s
from hippo.planners.placement import place
from hippo.planners.recipe import FITTED, agreed
from hippo.problem.objective import for_time
from hippo.problem.problem import Problem
from hippo.problem.runtimes import WHOLE_BLOCKS
from hippo.score.judge import Judged, evaluate, fits, imbalance, judge
from hippo.score.score import Score
from hippo.simulate import fast
from hippo.simulate.lower import lower
from hippo.simulate.routes import border_compression

MOST_SETS = 2e9  # rows of pipelines; about a minute where few of them come near the best
SET_S = 3e-5  # of work for a set of pipelines (planners.effort)
PLAIN = Space(most_chunks=1)
GROWTH = 1.3  # from one pass to the next


@dataclass(frozen=True)
class Brute:
    """The best of all plans, by trying them; refuses problems with more than ``most`` sets of pipelines."""

    name: str = "brute"
    space: Space = Space()
    most: float = MOST_SETS

    def propose(self, problem: Problem, stop: Stop, *, seed: int = 0, progress: Progress | None = None) -> Proposal:
        """The optimum, or that nothing fits; when time runs out the best so far. See ``planners.base``.

        Raises ``InputError`` when there is too much to try.
        """
        if (size := count_sets(problem)) > self.most:
            raise InputError(
                f"the problem has {'too' if size == inf else f'{size:.1e}, too'} many plans to try them all",
                source="--planner",
                value=self.name,
                remedy="plan with 'exact', or give fewer GPUs, layers and sequences",
            )
        search = _BruteSearch(problem, self.space, Effort.of(stop), _baseline(problem, stop))
        closed = search.run(progress)
        return search.proposal(self.name, closed=closed)


@dataclass
class _BruteSearch:
    """The best plan so far and why others do not count. One per call."""

    problem: Problem
    space: Space
    effort: Effort
    baseline: Score | None
    best: tuple[float, Plan] | None = None
    tried: float = -inf  # plans whose bound is up to here were tried in earlier passes
    limit: float = 0.0  # of this pass: plans whose bound is above it are left for a later one
    next_limit: float = inf  # least bound that the limit left out
    rejected: Counter[str] = field(default_factory=Counter)

    def run(self, progress: Progress | None) -> bool:
        """Passes with growing limits until no plan left out could be better; False: cut short."""
        shared = commons(self.problem, self.space)
        while self.best is None or self.best[0] > self.tried:
            self.next_limit = inf
            for index, common in enumerate(shared):
                if progress is not None:
                    progress("trying every plan", index / len(shared))
                if not self._try_all(Sketches(self.problem, common, self.space.tp_across_nodes, self._cut_off)):
                    return False
            if self.next_limit == inf:
                return True
            self.tried, self.limit = self.limit, max(GROWTH * self.limit, self.next_limit)
        return True

    def _try_all(self, every: Sketches) -> bool:
        """Tries the plans that this pass adds; False: cut short."""
        for sketches in every:
            if self.effort.over():
                return False
            self.effort.spend(SET_S)
            gpus = sum(every.gpus(sketch.stages) for sketch in sketches)
            agreed = every.agreement_s(sketches)
            known = max(self._bound(every, sketches), self._least_value(agreed, gpus)) <= self.tried
            if not known and not self._cut_off(agreed, gpus):
                for plan in self._plans(every.common, sketches):
                    self._try(_fitted(self.problem, plan))
        return True

    def _bound(self, every: Sketches, sketches: Set) -> float:
        """The largest bound by which ``_cut_off`` was asked about these pipelines."""
        return max(
            self._least_value(every.bound_s(stages, sketch.num_micro_batches), every.gpus(stages))
            for sketch in sketches
            for stages in (sketch.stages[: count + 1] for count in range(len(sketch.stages)))
        )

    def _least_value(self, seconds: float, gpus: int) -> float:
        """What a plan that takes so many seconds on so many GPUs costs at least, in the objective's unit."""
        objective = self.problem.objective.name
        if objective == "weighted":
            return 0.0
        return seconds * rent_usd_per_s(self.problem.cluster.gpu, gpus) if objective == "cost" else seconds

    def _cut_off(self, seconds: float, gpus: int) -> bool:
        """Whether such plans can wait for a later pass, or for ever."""
        bound = self._least_value(seconds, gpus)
        if self.best is not None and bound >= self.best[0]:
            return self.problem.objective.name != "weighted"
        if bound > self.limit:
            self.next_limit = min(self.next_limit, bound)
            return True
        return False

    def _plans(self, common: Common, sketches: Set) -> Iterator[Plan]:
        """The sketch with every other choice."""
        problem, space = self.problem, self.space
        for arranged in arrangements(sketches):
            try:
                pipelines = place(problem.cluster, arranged, cp=problem.context_parallel)
            except InfeasibleError:
                self.rejected["devices"] += 1
                continue
            for (schedule, warm_ups), sync, relayed in product(
                schedules(problem, space, common, arranged),
                syncs(problem, common, sketches),
                relays(problem, space, common, sketches),
            ):
                yield Plan(
                    tuple(replace(each, warm_up=warm) for each, warm in zip(pipelines, warm_ups, strict=True)),
                    common.micro_batch,
                    precision=problem.workload.precision,
                    recompute=common.recompute,
                    sharding=common.sharding,
                    overlap_exchange=common.overlap,
                    interleave=common.chunks,
                    schedule=schedule,
                    relays=relayed,
                    compression=border_compression(problem, pipelines),
                    sync=agreed(problem, sync, common.sharding, len(arranged)),
                    sequence_parallel=problem.rules.sequence_parallel,
                    context_parallel=problem.context_parallel,
                    expert_parallel=problem.expert_parallel,
                    expert_tensor_parallel=problem.expert_tensor_parallel,
                )

    def _try(self, plan: Plan) -> None:
        """Keeps the plan if it counts and is better than the best; the first of equals stays."""
        self.effort.spend(play_s(plan))
        violations = check(self.problem, plan)
        if violations:
            self.rejected[violations[0].rule] += 1
        elif not fits(self.problem, plan):
            self.rejected["memory"] += 1
        else:
            try:
                value = self._value(plan)
            except InputError:  # tied embeddings in domains that nothing joins
                self.rejected["links"] += 1
                return
            if self.best is None or value < self.best[0]:
                if self._balanced(plan):
                    self.best = value, plan
                else:
                    self.rejected["balance"] += 1

    def _balanced(self, plan: Plan) -> bool:
        delta = self.problem.objective.balance_delta
        return delta is None or imbalance(self.problem, plan) <= delta

    def _value(self, plan: Plan) -> float:
        """What is minimised: seconds, USD, or the reward with its sign turned."""
        if self.problem.objective.name == "time":
            return fast.step_time(lower(self.problem, plan))
        score = evaluate(self.problem, plan, baseline=self.baseline)
        return score.usd_per_step if self.problem.objective.name == "cost" else -score.reward

    def proposal(self, planner: str, *, closed: bool) -> Proposal:
        """The answer after the search."""
        spent, rejected = self.effort.cpu_s, dict(self.rejected)
        in_time = () if closed else ("Its limit was reached before every plan was tried.",)
        work_s, cut = self.effort.spent_s, self.effort.cut
        if self.best is None:
            note = in_time or ("Every plan was tried; none fits.",)
            none = Proposal(planner, Status.INFEASIBLE, planning_s=spent, rejected=rejected, notes=note)
            return replace(none, work_s=work_s, cut_short=cut)
        value, plan = self.best
        proven = value if closed else min(max(self.tried, 0.0), value)
        timed = self.problem.objective.name == "time"
        return Proposal(
            planner,
            Status.OPTIMAL if closed else Status.FEASIBLE,
            judge(self.problem, plan).under(self.problem, baseline=self.baseline),
            gap=(value - proven) / value if timed else 0.0 if closed else None,
            lower_bound_s=proven if timed else None,
            planning_s=spent,
            rejected=rejected,
            notes=in_time,
            work_s=work_s,
            cut_short=cut,
        )


def _baseline(problem: Problem, stop: Stop) -> Score | None:
    """Whose plan rewards are measured against, as ``registry.USUAL`` says; None: not asked for."""
    if problem.objective.name != "weighted":
        return None
    quickest = replace(problem, objective=for_time(problem.objective))
    for planner in (Even(), SingleDomain()):
        score = planner.propose(quickest, stop).score
        if score is not None:
            return score
    return None


def _fitted(problem: Problem, plan: Plan) -> Plan:
    """The plan; with as few blocks computed again as fit where their number is open, as each takes time (all of them
    where no number fits)."""
    if plan.recompute != FITTED:
        return plan
    numbers = (f"{WHOLE_BLOCKS}{number}" for number in range(1, problem.model.num_blocks))
    some = (replace(plan, recompute=again) for again in numbers)
    return next((each for each in some if fits(problem, each)), replace(plan, recompute="full"))


def every_plan(problem: Problem, space: Space = PLAIN) -> Iterator[Judged]:
    """Each plan that breaks no rule and fits, judged; seconds for some thousand plans."""
    for common in commons(problem, space):
        for sketches in Sketches(problem, common):
            try:
                pipelines = place(problem.cluster, sketches, cp=problem.context_parallel)
            except InfeasibleError:
                continue
            ways = product(*(_warmed(pipeline) for pipeline in pipelines)) if common.chunks == 1 else [pipelines]
            for warmed in ways:
                plan = Plan(
                    warmed,
                    common.micro_batch,
                    precision=problem.workload.precision,
                    recompute=common.recompute,
                    sharding=common.sharding,
                    interleave=common.chunks,
                    schedule=ScheduleChoice("cross-domain" if common.chunks == 1 else "interleaved"),
                    compression=border_compression(problem, warmed),
                    sequence_parallel=problem.rules.sequence_parallel,
                    context_parallel=problem.context_parallel,
                    expert_parallel=problem.expert_parallel,
                    expert_tensor_parallel=problem.expert_tensor_parallel,
                )
                plan = _fitted(problem, plan)
                if not check(problem, plan) and fits(problem, plan):
                    try:
                        yield judge(problem, plan)
                    except InputError:  # domains that nothing joins
                        continue


def _warmed(pipeline: Pipeline) -> Iterator[Pipeline]:
    """The pipeline with every warm-up: no stage runs further ahead than the one before. A stage alone has but one."""
    stages = len(pipeline.stages)
    waves = range(pipeline.num_micro_batches if stages > 1 else 1, 0, -1)
    for warm_up in combinations_with_replacement(waves, stages):
        yield replace(pipeline, warm_up=warm_up)
