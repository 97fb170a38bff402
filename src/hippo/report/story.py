"""Everything a report tells of one plan, as data: the question, the played step, memory, reasons, alternatives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hippo.cost.stage import StageMemory
from hippo.decide.decision import Baseline, Decision, PlannerRow
from hippo.decide.pareto import front_of
from hippo.decide.reasons import Reason
from hippo.decide.wording import Way
from hippo.plan.plan import Plan, Stage
from hippo.planners.base import Status
from hippo.problem.problem import Problem
from hippo.score.judge import Judged
from hippo.score.score import Score
from hippo.simulate.program import Program
from hippo.simulate.timeline import Timeline

DOMAIN_COLOURS = 9
"""The style sheet has ``--d0`` to ``--d8``."""

Scored = tuple[tuple[Plan, Score], ...]


@dataclass(frozen=True, eq=False)
class PlanStory:
    """One plan and all that is known of it. Reports, traces and views read nothing else."""

    game: Judged
    score: Score
    memory: tuple[StageMemory, ...]  # per stage, pipelines one after the other
    planner: str = ""
    gap: float | None = None
    lower_bound_s: float | None = None
    prover: str = ""  # the planner whose bound the gap rests on
    planning_s: float = 0.0
    reasons: tuple[Reason, ...] = ()
    rows: tuple[PlannerRow, ...] = ()  # every planner that ran; empty or one row: nothing to compare
    runners_up: Scored = ()  # best first, each joins domains in another way
    searched: frozenset[Way] = frozenset()  # of their ways, those searched with the effort of the plan
    front: Scored = ()  # over step time, utilisation and egress; empty: nothing to trade
    beaten: Scored = ()  # plans that were looked at and are beaten by one of the front in all three
    cut_short: str = ""  # a sentence where the limit left something undone
    reasons_s: float = 0.0

    @property
    def problem(self) -> Problem:
        """What was asked."""
        return self.game.problem

    @property
    def plan(self) -> Plan:
        """What was chosen."""
        return self.game.plan

    @property
    def program(self) -> Program:
        """The plan made playable."""
        return self.game.program

    @property
    def timeline(self) -> Timeline:
        """The played step."""
        return self.game.timeline

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Stages in the order of the ranks and of ``memory``: pipelines one after the other."""
        return tuple(stage for pipeline in self.plan.pipelines for stage in pipeline.stages)

    @property
    def domain_order(self) -> tuple[str, ...]:
        """All domains: those in use in the order the plan visits them, then the idle ones."""
        return tuple(dict.fromkeys((*self.plan.domains, *(item.name for item in self.problem.cluster.domains))))

    @property
    def domain_colours(self) -> dict[str, str]:
        """CSS variable of each domain: in the order the plan visits them, so that neighbours never share one."""
        return {name: f"--d{index % DOMAIN_COLOURS}" for index, name in enumerate(self.domain_order)}


def tell(decision: Decision, *, front: Sequence[tuple[Plan, Score]] = ()) -> PlanStory:
    """The story of a decision that has a plan; what was judged is told, nothing is played again.

    Without a ``front`` of its own it tells the front of the plans that the decision knows.

    Raises
    ------
    ValueError
        The decision has no plan: there is nothing to draw.
    """
    judged = decision.judged
    if judged is None:
        raise ValueError("a decision without a plan has no story; its reasons say why")
    known = _known(decision)
    kept = tuple(front) or front_of(decision.problem, known, decision.baseline).points
    return PlanStory(
        game=judged,
        score=judged.score,
        memory=judged.memory,
        planner=decision.planner,
        gap=decision.gap,
        lower_bound_s=decision.lower_bound_s,
        prover=decision.prover,
        cut_short=decision.cut_short,
        planning_s=decision.planning_s,
        reasons_s=decision.reasons_s,
        reasons=decision.reasons,
        rows=_rows(decision.rows, decision.baseline),
        runners_up=tuple((other.plan, other.score) for other in decision.runners_up),
        searched=decision.searched,
        front=kept,
        beaten=tuple(item for item in known if item not in kept),
    )


def _known(decision: Decision) -> Scored:
    """Every plan that the decision holds, each once, the chosen one first."""
    every = [decision.judged, *(row.best for row in decision.rows), *decision.runners_up]
    every += [] if decision.baseline is None else [decision.baseline.best]
    found: dict[Plan, Score] = {}
    for each in every:
        if each is not None:
            found.setdefault(each.plan, each.score)
    return tuple(found.items())


def _rows(rows: tuple[PlannerRow, ...], baseline: Baseline | None) -> tuple[PlannerRow, ...]:
    """The planners asked, and the baseline where it was not among them."""
    if baseline is None or any(row.planner == baseline.planner for row in rows):
        return rows
    return (*rows, PlannerRow(baseline.planner, Status.FEASIBLE, baseline.best))
