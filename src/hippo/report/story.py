"""Everything a report tells of one plan, as data: the question, the played step, memory, reasons, alternatives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hippo.cost.stage import StageMemory
from hippo.decide.decision import Decision, Row
from hippo.decide.play import Played, played
from hippo.decide.reasons import Reason
from hippo.plan.plan import Plan, Stage
from hippo.problem.problem import Problem
from hippo.score.evaluate import memory
from hippo.score.score import Score
from hippo.simulate.program import Program
from hippo.simulate.timeline import Timeline

Front = tuple[tuple[Plan, Score], ...]


@dataclass(frozen=True, eq=False)
class Story:
    """One plan and all that is known of it. Reports, traces and views read nothing else."""

    game: Played
    score: Score
    memory: tuple[StageMemory, ...]  # per stage, pipelines one after the other
    planner: str = ""
    gap: float | None = None
    lower_bound_s: float | None = None
    planning_s: float = 0.0
    reasons: tuple[Reason, ...] = ()
    rows: tuple[Row, ...] = ()  # every planner that ran; empty or one row: nothing to compare
    front: Front = ()  # over step time, utilisation and egress; empty: not asked

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


def tell(decision: Decision, *, front: Sequence[tuple[Plan, Score]] = ()) -> Story:
    """The story of a decision that has a plan; plays it once and sums up its memory.

    Raises
    ------
    ValueError
        The decision has no plan: there is nothing to draw.
    """
    if decision.plan is None or decision.score is None:
        raise ValueError("a decision without a plan has no story; its reasons say why")
    return Story(
        played(decision.problem, decision.plan),
        decision.score,
        tuple(memory(decision.problem, decision.plan)),
        decision.planner,
        decision.gap,
        decision.lower_bound_s,
        decision.planning_s,
        decision.reasons,
        decision.rows,
        tuple(front),
    )
