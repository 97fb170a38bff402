"""The best schedule within a time limit: every named method, then search, and why the winner won.

1. The named methods of the problem's placement (``methods.METHODS``), each refused or kept.
2. Plain pipelines: a policy with a few numbers per rank, forwards and backwards in time (``search.policy``).
3. The shortest few of them improved (``improve``), every placement.
4. Small plain pipelines that are not proved yet: CP-SAT (``optimal``), where OR-tools is installed.

It stops as soon as a schedule meets the lower bound. The number of tries ends the search, so equal seeds give equal
answers; the clock ends it after ``SLACK`` times the limit alone, and how long CP-SAT may take.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf

from hippo.errors import HippoError, InputError
from hippo.schedule.bound.lower_bound import bounds
from hippo.schedule.by_hint import dispatch
from hippo.schedule.generators.cross_domain import policies
from hippo.schedule.methods import METHODS, checked, generate
from hippo.schedule.optimal import one_by_one, optimal
from hippo.schedule.problem import ScheduleProblem
from hippo.schedule.replay import Replay, makespan, replay
from hippo.schedule.schedule import Schedule
from hippo.schedule.search.clock import Clock, Watch
from hippo.schedule.search.improve import improve
from hippo.schedule.search.policy import Starts, search

MET = 1 + 1e-9
"""A makespan up to this many times the bound meets it."""

POLICIES = 0.3  # share of the time limit
SLACK = 20.0  # times the limit by the clock after which it ends, done or not: as of planners (``planners.effort``)
SMALL_OPERATIONS = 2500
SMALL_S, USUAL_S = 1.7, 0.95  # usual time limits: of problems with so few operations, and of all others
CLIMBS = 8  # rules of the cross-domain generator that a fresh search climbs from
LAP_S = 0.75  # of a search from the beginning: longer ones seldom leave where they are
ROUNDS_PER_S = 190_000  # of improvement, times operations + 200, for each second: some 70 % of what one core does
KEPT = 8  # schedules that are started from
SMALL = 160  # forwards of all ranks up to which CP-SAT may prove or improve the best in what is left of the time
SOLVER_S = 0.8  # time limit from which it gets its chance
IMPORT_S = 0.3  # of OR-tools, the first time
LEAST_S = 0.1  # below that it is not asked


@dataclass(frozen=True, eq=False)
class Best:
    """The shortest schedule found, and how it was found."""

    schedule: Schedule
    replay: Replay
    lower_bound: float  # no schedule of this placement within this memory is shorter
    method: str  # who found it, for instance ``zb-auto`` or ``cross-domain + improvement``
    why: str  # what won, by how much, and what holds it from being shorter
    tried: tuple[tuple[str, float | str], ...]  # (name, makespan, or the reason why it was refused)
    cut_short: bool = False  # by the clock: asked again, the answer may be another

    @property
    def makespan(self) -> float:
        """From time 0, when the first F starts, until every rank has done its work and agreed its gradients."""
        return self.replay.makespan


def usual_limit_s(problem: ScheduleProblem) -> float:
    """The time limit where none is asked for: a second, more where the search of a small problem still gains by it."""
    operations = 3 * int(problem.tables.passes.sum())
    return SMALL_S if operations <= SMALL_OPERATIONS else USUAL_S


def best(
    problem: ScheduleProblem, *, time_limit_s: float | None = None, seed: int = 0, watch: Watch | None = None
) -> Best:
    """The shortest schedule found within the time limit (compiling kernels on first use apart).

    None: ``usual_limit_s``.

    Raises
    ------
    InputError
        The time limit is not above 0.
    InfeasibleError
        One micro-batch does not fit into the memory of a rank; names the smallest limit that works.
    """
    time_limit_s = usual_limit_s(problem) if time_limit_s is None else time_limit_s
    if not time_limit_s > 0:
        remedy = "give a time limit above 0 seconds"
        raise InputError("must be above 0", key="time_limit_s", value=time_limit_s, remedy=remedy)
    _warm_up(problem.placement)
    plain = problem.placement == "plain"
    small = int(problem.tables.passes.sum()) <= SMALL and time_limit_s >= SOLVER_S
    laps = max(1, round(time_limit_s / LAP_S)) if plain and not small else 1
    run = _Run(problem, Clock(time_limit_s / laps, watch, SLACK), bounds(problem))
    run.named()
    for lap in range(laps):
        if not run.done:
            run.lap(seed + lap, fresh=lap > 0, share=0.5 if small else 0.86)
    if not run.done and small:
        run.solved()
    return run.answer()


@dataclass
class _Run:
    """One call of ``best``: what was tried so far."""

    problem: ScheduleProblem
    clock: Clock
    bounds: Mapping[str, float]
    tried: list[tuple[str, float | str]] = field(default_factory=list)
    kept: list[tuple[float, Schedule]] = field(default_factory=list)  # the shortest few, with their makespan

    proved: float = 0.0  # by CP-SAT
    cut_short: bool = False  # by the clock

    @property
    def bound(self) -> float:
        """No schedule is shorter."""
        return max(self.proved, *self.bounds.values())

    @property
    def done(self) -> bool:
        """Nothing is left to gain."""
        return self.span <= self.bound * MET

    def take(self, name: str, schedule: Schedule) -> None:
        """Takes note of a schedule; of equal ones the earlier stays the best."""
        span = makespan(self.problem, schedule)
        self.tried.append((name, span))
        self.kept.append((span, replace(schedule, name=name)))
        self.kept.sort(key=lambda each: each[0])
        del self.kept[KEPT:]

    @property
    def span(self) -> float:
        """The shortest makespan so far."""
        return self.kept[0][0] if self.kept else inf

    def named(self) -> None:
        """All methods of the placement; where none fits, one micro-batch after the other always does."""
        for name, method in METHODS.items():
            if method.placement == self.problem.placement:
                try:
                    self.take(name, generate(name, self.problem))
                except (HippoError, ImportError) as refused:
                    self.tried.append((name, str(refused)))
                    self.hinted(name)
        if not self.kept:
            self.take("one by one", checked("one by one", self.problem, one_by_one(self.problem)))

    def hinted(self, name: str) -> None:
        """A method that needs more memory than there is, as a hint: ranks run what is ready and fits, if they can."""
        try:
            hint = generate(name, replace(self.problem, limit=(inf,) * self.problem.ranks))
            self.take(f"{name} as a hint", dispatch(self.problem, hint))
        except HippoError:
            return

    def lap(self, seed: int, *, fresh: bool, share: float) -> None:
        """A search within this share of the clock; a ``fresh`` one starts from nothing that was found before."""
        earlier = self.kept
        if fresh:
            self.clock, self.kept = Clock(self.clock.limit_s, self.clock.watch, SLACK), []
        if self.problem.placement == "plain":
            self.policies(seed, share=POLICIES, starts=policies(self.problem, CLIMBS) if fresh else None)
        if not self.done:
            self.improved(seed, share=share)
        self.cut_short = self.cut_short or self.clock.rang
        if fresh:
            self.kept = sorted([*earlier, *self.kept], key=lambda each: each[0])[:KEPT]

    def policies(self, seed: int, *, share: float, starts: Starts | None) -> None:
        """The policy search; its runners-up are started from later, and not told."""
        found = search(self.problem, self.clock, seed=seed, goal=self.bound * MET, share=share, starts=starts)
        for rows in reversed(found[:KEPT]):
            self.take("policy search", checked("policy search", self.problem, rows))
        told = max(0, min(len(found), KEPT) - 1)
        del self.tried[len(self.tried) - 1 - told : len(self.tried) - 1]

    def improved(self, seed: int, *, share: float) -> None:
        """The shortest few, improved."""
        goal, before = self.bound * MET, self.kept[0]
        operations = 3 * self.problem.ranks * self.problem.chunks * self.problem.micro_batches
        rounds = max(1, int(ROUNDS_PER_S * self.clock.limit_s * (share - POLICIES) / (200 + operations)))
        start, limits = [each for _, each in self.kept], {"share": share, "goal": goal, "rounds": rounds}
        found = improve(self.problem, start, clock=self.clock, seed=seed, **limits)
        if makespan(self.problem, found) < before[0] * (1 - 1e-12):
            self.take(f"{found.name} + improvement", found)

    def solved(self) -> None:
        """CP-SAT, in the time that is left."""
        left = 0.9 * self.clock.limit_s - self.clock.spent_s - (0.0 if "ortools" in sys.modules else IMPORT_S)
        if left < LEAST_S:
            return
        try:
            found = optimal(self.problem, time_limit_s=left, hint=self.kept[0][1])
        except InputError as refused:  # not installed
            self.tried.append(("optimal", str(refused)))
            return
        self.proved = max(self.proved, found.lower_bound)
        if found.schedule is not None and found.makespan < self.span * (1 - 1e-12):
            self.take("optimal", found.schedule)
        else:
            self.tried.append(("optimal", found.makespan))

    def answer(self) -> Best:
        """With its reasons."""
        span, schedule = self.kept[0]
        played, bound = replay(self.problem, schedule), min(self.bound, span)
        return Best(schedule, played, bound, schedule.name, _why(self), tuple(self.tried), self.cut_short)


def _why(run: _Run) -> str:
    """Who won and by how much; which bound holds, how near it is, and whether the clock ended the search."""
    winner, binds = run.kept[0][1].name, max(run.bounds, key=lambda name: run.bounds[name])
    others = sorted((span, name) for name, span in run.tried if isinstance(span, float) and name != winner)
    first = f"{winner} is the only one that fits."
    if others:
        span, name = others[0]
        share = 100 * (span / run.span - 1)
        first = f"{winner} won; {name} is as short."
        if share >= 5e-3:
            first = f"{winner} won; the next, {name}, takes {share:.2f} % longer."
    if run.proved >= run.span / MET:
        return f"{first} CP-SAT proved that nothing is shorter; the {binds} bound is {run.bounds[binds]:g}."
    if run.done:
        return f"{first} It meets the {binds} bound, {run.bound:g}: nothing is shorter."
    gap = 100 * (run.span / run.bound - 1)
    cut = " The clock ended the search early: asked again, it may find less." if run.cut_short else ""
    above = f"It is {gap:.2f} % above the bound ({binds}), {run.bound:g}; that less is possible is not excluded."
    return f"{first} {above}{cut}"


_warm: set[str] = set()


def _warm_up(placement: str) -> None:
    """Loads or compiles every kernel of a placement on a tiny problem, once, so that the clock measures the search."""
    if placement in _warm:
        return
    _warm.add(placement)
    tiny = ScheduleProblem.uniform(2, 3, (1.0, 1.0, 0.5), comm=0.5, live_limit=2)
    best(tiny.placed(placement), time_limit_s=0.01)
    warm_up_search()


def warm_up_search() -> None:
    """The same for what improves a schedule, of any placement."""
    tiny = ScheduleProblem.uniform(2, 3, (1.0, 1.0, 0.5), comm=0.5, live_limit=2)
    start = checked("one by one", tiny, one_by_one(tiny))
    search(tiny, Clock(0.001), seed=0, goal=0.0)
    improve(tiny, [start], clock=Clock(inf), rounds=1)
