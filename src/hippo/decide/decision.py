"""What comes out of deciding: the plan, how good it is, how far from the optimum, why, and what else was proposed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from math import isfinite
from typing import TYPE_CHECKING

from hippo.cost.calibration import uncalibrated
from hippo.decide.reasons import Reason
from hippo.decide.wording import Way, count, described, interval_text, number, percent, seconds
from hippo.plan.codec import plan_to_document
from hippo.plan.plan import Plan
from hippo.planners.base import DegreesTried, Status
from hippo.problem.problem import Problem, told_runtime
from hippo.records import Record
from hippo.score.interval import assumed_span, interval_document, span_document
from hippo.score.judge import Judged
from hippo.score.score import Score

if TYPE_CHECKING:  # which are told in reasons
    from hippo.decide.rivals import Alternatives

GIVEN = "the plan given"
"""Who proposed a plan that nobody here did."""


@dataclass(frozen=True)
class PlannerRow:
    """One planner's answer, scored by the same judge as all others; rows stand side by side in a comparison."""

    planner: str
    status: Status
    best: Judged | None = None
    gap: float | None = None  # proven by the planner; None: nothing proven
    lower_bound_s: float | None = None
    planning_s: float = 0.0
    notes: tuple[str, ...] = ()
    prover: str = ""  # whose lower bound the gap rests on, once it is chosen
    dropped: str | None = None  # why its plan does not count: it failed the check or could not be scored
    work_s: float = 0.0  # as counted against the limit (``planners.effort``)
    cut_short: str = ""  # a sentence where the limit left something undone
    degrees: tuple[DegreesTried, ...] = ()  # of context and expert parallelism, where others were tried

    @property
    def plan(self) -> Plan | None:
        """Its plan."""
        return None if self.best is None else self.best.plan

    @property
    def score(self) -> Score | None:
        """What the judge says of it."""
        return None if self.best is None else self.best.score

    def document(self) -> dict[str, object]:
        """Keys of a row of ``compare --json``."""
        return {
            "planner": self.planner,
            "status": self.status.value,
            "score": _score_document(self.score),
            **_interval_document(self.best),
            "gap": self.gap,
            "planning_s": self.planning_s,
            "notes": list(self.notes),
            "dropped": self.dropped,
            "cut_short": self.cut_short or None,
        }


@dataclass(frozen=True)
class Baseline:
    """The plan that R_eff and R_cost are measured against: the first planner of the usual ways that finds one."""

    planner: str
    best: Judged

    @property
    def plan(self) -> Plan:
        """The plan."""
        return self.best.plan

    @property
    def score(self) -> Score:
        """Its score, measured against itself."""
        return self.best.score


@dataclass(frozen=True)
class Decision:
    """The answer to a problem. ``reasons`` are data (decide/reasons.py); ``summary`` says them in sentences.

    ``planner`` is the one whose plan was chosen; ``gap`` its proven distance from the optimum as a share of the step
    time (None: nothing proven); ``rows`` holds every planner that ran, in the order given.
    """

    problem: Problem
    status: Status
    planner: str
    best: Plan | Judged | None = (
        None  # what was chosen; a bare plan: one given that breaks a rule, so nothing was played
    )
    gap: float | None = None
    lower_bound_s: float | None = None
    prover: str = ""  # the planner whose lower bound the gap rests on
    planning_s: float = 0.0  # CPU seconds of all planners together
    reasons: tuple[Reason, ...] = ()
    rejected: Mapping[str, int] = field(default_factory=dict)  # cause -> candidates of the chosen planner
    rows: tuple[PlannerRow, ...] = ()
    baseline: Baseline | None = None
    runners_up: tuple[Judged, ...] = ()  # best first, each joins domains in another way
    searched: frozenset[Way] = frozenset()  # of their ways to join, those searched with the effort of the answer
    reasons_s: float = field(default=0.0, compare=False)  # CPU seconds of the reasons
    others: Alternatives | None = field(default=None, compare=False, repr=False)  # searched before it was settled
    unasked: str = ""  # a sentence where the limit was spent before every planner was asked

    @property
    def cut_short(self) -> str:
        """A sentence where the limit left something undone that could matter to this answer; else empty."""
        if self.gap is not None and self.gap <= 0:
            return ""
        asked = (row.cut_short for row in self.rows if row.planner in (self.planner, self.prover))
        return next((told for told in asked if told), self.unasked)

    @property
    def judged(self) -> Judged | None:
        """The plan with its program, played step, score and memory."""
        return self.best if isinstance(self.best, Judged) else None

    @property
    def plan(self) -> Plan | None:
        """The plan."""
        return self.best.plan if isinstance(self.best, Judged) else self.best

    @property
    def score(self) -> Score | None:
        """Its score."""
        return self.best.score if isinstance(self.best, Judged) else None

    def records(self) -> list[Record]:
        """A row per planner that ran, with its figures, None where it has no plan: what ``pandas.DataFrame`` takes."""
        names = [each.name for each in fields(Score)]
        return [
            {
                "planner": row.planner,
                "status": row.status.value,
                "gpus": None if row.plan is None else row.plan.gpus,
                **{name: None if row.score is None else getattr(row.score, name) for name in names},
                "gap": row.gap,
                "planning_s": row.planning_s,
            }
            for row in self.rows
        ]

    def to_dict(self) -> dict[str, object]:
        """The document of ``plan --json``."""
        return self.document()

    def __repr__(self) -> str:
        head = self.headline().partition("\n")[0]
        told = "" if self.score is None else f", {seconds(self.score.step_time_s)} a step"
        return f"Decision({self.status.value}: {head[:200].rstrip('.')}{told})"

    def summary(self) -> str:
        """The decision in sentences: what, how good, how certain, why."""
        doubt = uncalibrated(self.problem)
        return "\n".join(
            [
                self.headline(),
                *([f"{doubt[0].upper()}{doubt[1:]}."] if doubt else []),
                *(each.sentence() for each in self.reasons),
            ]
        )

    def headline(self) -> str:
        """The plan and its figures in two sentences, or that there is none."""
        problem = self.problem
        question = f"{problem.model.name} on {problem.cluster.name}"
        if self.plan is None or self.score is None:
            return f"{question}: no plan fits."
        score, found = self.score, None if self.judged is None else self.judged.interval
        parts = [
            f"{seconds(score.step_time_s)} a step" + ("" if found is None else f" ({interval_text(found)})"),
            f"{number(score.tokens_per_s)} tokens/s",
            f"MFU {percent(score.mfu)}",
            f"domains in use busy {percent(score.utilization)}",
            f"{number(score.usd_per_step)} USD a step ({number(score.egress_usd_per_step)} egress)",
        ]
        gpus = f"{count(self.plan.gpus, 'GPU')} of {problem.cluster.gpus:,}"
        return f"{question}: {described(self.plan)}, on {gpus}, proposed by {self.planner}.\n{', '.join(parts)}."

    def document(self) -> dict[str, object]:
        """Keys of ``plan --json``: status, plan, score, gap, planning_s, planner, reasons, rejected and others."""
        span = None if self.judged is None else assumed_span(self.problem, self.judged.plan)
        return {
            "status": self.status.value,
            "planner": self.planner,
            "plan": None if self.plan is None else plan_to_document(self.problem, self.plan),
            "score": _score_document(self.score),
            **_interval_document(self.judged),
            **span_document(span),
            "gap": self.gap,
            "lower_bound_s": self.lower_bound_s,
            "planning_s": self.planning_s,
            "reasons_s": self.reasons_s,
            "cut_short": self.cut_short or None,
            "reasons": [reason.document() for reason in self.reasons],
            "rejected": dict(self.rejected),
            "rows": [row.document() for row in self.rows],
            "baseline": _baseline_document(self.baseline),
            "uncalibrated": uncalibrated(self.problem),
            **told_runtime(self.problem),
        }


def _baseline_document(baseline: Baseline | None) -> dict[str, object] | None:
    return None if baseline is None else {"planner": baseline.planner, "score": _score_document(baseline.score)}


def _interval_document(best: Judged | None) -> Mapping[str, object]:
    return interval_document(None if best is None else best.interval)


def _score_document(score: Score | None) -> dict[str, float | None] | None:
    if score is None:
        return None
    return {name: value if isfinite(value) else None for name, value in asdict(score).items()}
