"""Who proposes: the one method every planner has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from typing import TYPE_CHECKING, Protocol

from hippo.errors import InputError
from hippo.plan.plan import Plan
from hippo.problem.problem import Problem

if TYPE_CHECKING:  # a question and a stopping rule need no simulator
    from hippo.score.judge import Judged
    from hippo.score.score import Score


class Status(str, Enum):
    """Outcome of a search. Each value is an answer."""

    OPTIMAL = "optimal"  # the gap is proven 0
    FEASIBLE = "feasible"  # a plan, with a stated gap (None: the planner proves nothing)
    INFEASIBLE = "infeasible"  # no plan of the planner's kind fits (and is worth less than ``Stop.below``)


@dataclass(frozen=True)
class Stop:
    """When to stop: whichever comes first. Seconds are of work, counted as ``planners.effort`` does."""

    time_limit_s: float = 10.0
    gap: float = 0.0  # stop when the proven gap is at most this
    below: float = inf  # the worth of a plan that is known (objective's unit): only less is looked for

    def __post_init__(self) -> None:
        for key in ("time_limit_s", "gap", "below"):
            value = getattr(self, key)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
                remedy = "give a number that is not negative, for instance hippo.Stop(time_limit_s=10)"
                raise InputError("must be a number of at least 0", source="Stop", key=key, value=value, remedy=remedy)


SLOWER = 1.5
"""Times the best plan so far up to which plans of other degrees are looked for, to be told."""


@dataclass(frozen=True)
class DegreesTried:
    """What plans with other degrees of one kind are worth, all else left to the search."""

    kind: str  # context, expert
    degree: int  # of the best plan
    slower: tuple[tuple[int, float | None], ...]  # another degree, and by what share its best plan is worse; None: by
    # more than was looked for (``SLOWER``), or nothing fits


@dataclass(frozen=True)
class Proposal:
    """What a planner answers. ``gap`` = (step time - lower bound) / step time; None: nothing proven.
    Without a plan it is that of one worth ``Stop.below``."""

    planner: str
    status: Status
    best: Plan | Judged | None = None  # a plan; judged already where the planner asked the judge (``score.judge``)
    gap: float | None = None
    lower_bound_s: float | None = None
    planning_s: float = 0.0
    rejected: Mapping[str, int] = field(default_factory=dict)  # cause -> number of candidates
    runners_up: tuple[Judged, ...] = ()  # the best plan of every other way to join domains
    cheaper: Judged | None = None  # a plan about as quick as the best: whether near enough is for who sees all rows
    notes: tuple[str, ...] = ()  # what a baseline leaves out of its paper, why a gap is not closed
    work_s: float = 0.0  # of its time limit, as counted
    cut_short: str = ""  # a sentence where the limit left something undone
    asked: tuple[Proposal, ...] = ()  # of others, from whose plans it went on
    degrees: tuple[DegreesTried, ...] = ()  # of context and expert parallelism, where others were tried

    @property
    def plan(self) -> Plan | None:
        """The plan, whether judged or not."""
        return self.best if self.best is None or isinstance(self.best, Plan) else self.best.plan

    @property
    def score(self) -> Score | None:
        """Its score, where the planner asked the judge."""
        return None if self.best is None or isinstance(self.best, Plan) else self.best.score


Progress = Callable[[str, float], None]
"""Called with a phase's name and the share of it that is done (0..1)."""


class Planner(Protocol):
    """One method: a problem, a stopping rule and a seed in; a proposal out."""

    @property
    def name(self) -> str:
        """As the registry knows it."""
        ...

    def propose(self, problem: Problem, stop: Stop, *, seed: int = 0, progress: Progress | None = None) -> Proposal:
        """The best plan of this planner's kind that it finds before ``stop``."""
        ...
