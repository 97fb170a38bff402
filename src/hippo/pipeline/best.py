"""The best schedule within a time limit: every named method, then search, and why the winner won.

1. The named methods of the problem's placement (``methods.METHODS``), each refused or kept.
2. Plain pipelines: a policy with a few numbers per rank, forwards and backwards in time (``search_policy``).

It stops as soon as a schedule meets the lower bound. Equal seeds give equal answers as long as the number of tries, not
the clock, ends the search.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hippo.errors import HippoError, InputError
from hippo.pipeline.clock import Clock, Watch
from hippo.pipeline.lower_bound import bounds
from hippo.pipeline.methods import METHODS, checked, generate
from hippo.pipeline.optimal import one_by_one
from hippo.pipeline.problem import PLACEMENTS, ScheduleProblem
from hippo.pipeline.replay import Replay, makespan, replay
from hippo.pipeline.schedule import Schedule
from hippo.pipeline.search_policy import search

MET = 1 + 1e-9
"""A makespan up to this many times the bound meets it."""


@dataclass(frozen=True, eq=False)
class Best:
    """The shortest schedule found, and how it was found."""

    schedule: Schedule
    replay: Replay
    lower_bound: float  # no schedule of this placement within this memory is shorter
    method: str  # who found it, for instance ``zb-auto`` or ``cross-domain + improvement``
    why: str  # what won, by how much, and what holds it from being shorter
    tried: tuple[tuple[str, float | str], ...]  # (name, makespan, or the reason why it was refused)

    @property
    def makespan(self) -> float:
        """From time 0, when the first F starts, to the end of the last operation on any rank."""
        return self.replay.makespan


def best(problem: ScheduleProblem, *, time_limit_s: float = 1.0, seed: int = 0, watch: Watch | None = None) -> Best:
    """The shortest schedule found within the time limit (compiling kernels on first use apart).

    Raises
    ------
    InputError
        The time limit is not above 0.
    InfeasibleError
        One micro-batch does not fit into the memory of a rank; names the smallest limit that works.
    """
    if not time_limit_s > 0:
        remedy = "give a time limit above 0 seconds"
        raise InputError("must be above 0", key="time_limit_s", value=time_limit_s, remedy=remedy)
    _warm_up()
    run = _Run(problem, Clock(time_limit_s, watch), bounds(problem))
    run.named()
    if not run.done and problem.placement == "plain":
        run.policies(seed)
    return run.answer()


@dataclass
class _Run:
    """One call of ``best``: what was tried so far."""

    problem: ScheduleProblem
    clock: Clock
    bounds: Mapping[str, float]
    tried: list[tuple[str, float | str]] = field(default_factory=list)
    schedule: Schedule | None = None
    span: float = float("inf")

    @property
    def bound(self) -> float:
        return max(self.bounds.values())

    @property
    def done(self) -> bool:
        """Nothing is left to gain."""
        return self.span <= self.bound * MET

    def take(self, name: str, schedule: Schedule) -> None:
        """Takes note of a schedule, and keeps it when it is the shortest; the earlier of equal ones stays."""
        span = makespan(self.problem, schedule)
        self.tried.append((name, span))
        if self.schedule is None or span < self.span * (1 - 1e-12):
            self.schedule, self.span = replace(schedule, name=name), span

    def named(self) -> None:
        """All methods of the placement; where none fits, one micro-batch after the other always does."""
        for name, method in METHODS.items():
            if method.placement == self.problem.placement:
                try:
                    self.take(name, generate(name, self.problem))
                except (HippoError, ImportError) as refused:
                    self.tried.append((name, str(refused)))
        if self.schedule is None:
            self.take("one by one", checked("one by one", self.problem, one_by_one(self.problem)))

    def policies(self, seed: int) -> None:
        """The policy search."""
        rows, span = search(self.problem, self.clock, seed=seed, goal=self.bound * MET)
        self.take("policy search", checked("policy search", self.problem, rows))

    def answer(self) -> Best:
        """With its reasons."""
        assert self.schedule is not None
        why = _why(self)
        return Best(
            self.schedule, replay(self.problem, self.schedule), self.bound, self.schedule.name, why, tuple(self.tried)
        )


def _why(run: _Run) -> str:
    """Who won and by how much; which bound holds, and how near it is."""
    assert run.schedule is not None
    winner, binds = run.schedule.name, max(run.bounds, key=lambda name: run.bounds[name])
    others = sorted((span, name) for name, span in run.tried if isinstance(span, float) and name != winner)
    first = f"{winner} is the only one that fits."
    if others:
        span, name = others[0]
        share = 100 * (span / run.span - 1)
        first = f"{winner} is as short as any tried." if share < 5e-4 else f"{winner} beats {name} by {share:.2f} %."
    if run.done:
        return f"{first} It meets the {binds} bound, {run.bound:g}: nothing is shorter."
    gap = 100 * (run.span / run.bound - 1)
    return f"{first} It is {gap:.2f} % above the {binds} bound, {run.bound:g}; whether less is possible is not proved."


_warm: list[bool] = []


def _warm_up() -> None:
    """Loads or compiles every kernel on a tiny problem, once, so that the clock measures the search."""
    if _warm:
        return
    _warm.append(True)
    tiny = ScheduleProblem.uniform(2, 3, (1.0, 1.0, 0.5), comm=0.5, live_limit=2)
    for placement in PLACEMENTS:
        best(tiny.placed(placement), time_limit_s=0.01)
    search(tiny, Clock(0.001), seed=0, goal=0.0)
