"""One question, one answer: a schedule for a problem by a method's name, and how far from the optimum it can be."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

import numpy as np

from hippo.errors import InfeasibleError, InputError, UnknownNameError
from hippo.pipeline.check import violations
from hippo.pipeline.lower_bound import lower_bound, must_fit
from hippo.pipeline.methods import METHODS, generate
from hippo.pipeline.problem import ScheduleProblem
from hippo.pipeline.replay import Replay, live, peak_memory, replay
from hippo.pipeline.schedule import BACKWARD, WEIGHT, Schedule
from hippo.pipeline.text import LETTERS

NAMES = (*METHODS, "optimal", "best")
"""Everything that ``solve`` knows; the last two take a time limit."""

GIVEN = "given"
"""The method of an order that the user brought."""

Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class Answer:
    """A schedule that has passed the checker, when its operations run, and how good it is."""

    problem: ScheduleProblem
    schedule: Schedule
    replay: Replay
    lower_bound: float  # no schedule of this placement is shorter
    method: str  # the one that was asked for
    seconds: float  # that making it took
    why: str = ""
    tried: Mapping[str, float | None] = field(default_factory=dict)  # makespan of each candidate; None: infeasible
    hint: bool = False  # whether the method's order was a hint for readiness-driven dispatch

    @property
    def makespan(self) -> float:
        """From time 0 to the end of the last operation."""
        return self.replay.makespan

    @property
    def gap(self) -> float:
        """Makespan over lower bound, less 1; 0 is proved optimal."""
        return max(0.0, self.makespan / self.lower_bound - 1)


def solve(
    problem: ScheduleProblem,
    method: str = "best",
    *,
    time_limit_s: float = 1.0,
    seed: int = 0,
    hint: bool = False,
    progress: Progress | None = None,
) -> Answer:
    """The schedule of a method, played and measured; with ``hint`` ranks run what is ready, the order only advises.

    Raises
    ------
    UnknownNameError
        No method has that name.
    InfeasibleError
        Memory or placement do not allow it; says the nearest way out.
    """
    if method not in NAMES:
        raise UnknownNameError("schedule method", method, NAMES, source="--method")
    must_fit(problem)
    began = time.perf_counter()
    if hint:
        found = _dispatched(problem, method, time_limit_s=time_limit_s, seed=seed, progress=progress)
    else:
        found = _found(problem, method, time_limit_s=time_limit_s, seed=seed, progress=progress)
    return _judged(problem, found, method=method, seconds=time.perf_counter() - began, hint=hint)


def judge(problem: ScheduleProblem, schedule: Schedule, *, source: str) -> Answer:
    """An order that the user brought, checked and measured.

    ``InputError`` names what makes it no schedule, ``InfeasibleError`` a limit under which it would be one.
    """
    must_fit(problem)
    wrong = violations(problem, schedule, memory=False)
    if wrong:
        more = f"; {len(wrong) - 1} more like it" if len(wrong) > 1 else ""
        remedy = "give every operation of the problem once, F before B before W, in an order that can run to its end"
        raise InputError(f"is no schedule of this problem: {wrong[0]}{more}", source=source, remedy=remedy)
    over = violations(problem, schedule)
    if over:
        need = peak_memory(problem, schedule).max()
        raise InfeasibleError([f"{source}: {over[0]}. Nearest way out: --memory {need:g}."])
    return _judged(problem, _Found(schedule), method=GIVEN, seconds=0.0, hint=False)


@dataclass(frozen=True)
class _Found:
    """What a method says."""

    schedule: Schedule
    why: str = ""
    tried: Mapping[str, float | None] = field(default_factory=dict)
    lower_bound: float = -inf


def _found(
    problem: ScheduleProblem, method: str, *, time_limit_s: float, seed: int, progress: Progress | None
) -> _Found:
    if method not in ("best", "optimal"):
        return _Found(generate(method, problem))
    from hippo.pipeline.best import best

    share = 1.0 if method == "best" else 0.25  # of the time limit: the solver starts from a good schedule
    found = best(problem, time_limit_s=share * time_limit_s, seed=seed, watch=progress)
    tried = dict(found.tried)
    if method == "best":
        return _Found(found.schedule, found.why, tried, found.lower_bound)
    from hippo.pipeline.optimal import optimal

    proof = optimal(problem, time_limit_s=0.75 * time_limit_s, hint=found.schedule)
    bound = max(found.lower_bound, proof.lower_bound)
    if proof.schedule is None or proof.makespan >= found.replay.makespan:
        why = "CP-SAT proved it optimal" if proof.proved else "CP-SAT found nothing shorter within its time"
        return _Found(found.schedule, f"{found.why} {why}.".strip(), tried, bound)
    why = "CP-SAT found it, and proved it optimal." if proof.proved else "CP-SAT found it within its time."
    return _Found(proof.schedule, why, tried, bound)


def _dispatched(problem: ScheduleProblem, method: str, **stop: Any) -> _Found:
    """What readiness-driven dispatch makes of a method's order; the order itself may need more than the limit."""
    from hippo.pipeline.dispatch import dispatch

    try:
        found = _found(problem, method, **stop)
    except InfeasibleError:
        found = _found(replace(problem, limit=(inf,) * problem.ranks), method, **stop)
    return _Found(dispatch(problem, found.schedule), "ranks run what is ready; the order only advises.", found.tried)


def _judged(problem: ScheduleProblem, found: _Found, *, method: str, seconds: float, hint: bool) -> Answer:
    """The answer, with a last look of the checker: nothing invalid leaves."""
    wrong = violations(problem, found.schedule)
    assert not wrong, f"{method}: {wrong[0]}"
    bound = max(found.lower_bound, lower_bound(problem))
    played = replay(problem, found.schedule)
    return Answer(problem, found.schedule, played, bound, method, seconds, found.why, found.tried, hint)


# ------------------------------------------------------------------------------------------------------------ document
def answer_document(answer: Answer, ident: str | int | None = None) -> dict[str, object]:
    """The answer as JSON values (docs/contracts.md, ``schedule --json``)."""
    problem, schedule = answer.problem, answer.schedule
    by_rank = live(problem, schedule).tolist()
    return {
        "id": ident,
        "makespan": answer.makespan,
        "lower_bound": answer.lower_bound,
        "gap": answer.gap,
        "bubble_rate": answer.replay.bubble_rate,
        "bubble_full": answer.replay.bubble_full,
        "peak_live": max(by_rank),
        "peak_live_by_rank": by_rank,
        "peak_memory": peak_memory(problem, schedule).tolist(),
        "method": answer.method,
        "found_by": schedule.name,
        "why": answer.why,
        "tried": dict(answer.tried),
        "seconds": answer.seconds,
        "placement": problem.placement,
        "chunks": problem.chunks,
        "fused": schedule.fused,
        "hint": answer.hint,
        "order": order_document(schedule),
    }


def infeasible_document(error: InfeasibleError, method: str, ident: str | int | None = None) -> dict[str, object]:
    """What stands in an infeasible problem's place in a list of answers."""
    return {"id": ident, "makespan": None, "infeasible": str(error), "method": method}


def order_document(schedule: Schedule) -> list[list[list[object]]]:
    """Per rank ``["F"|"B"|"W", chunk, micro-batch]``; a fused backward as B, then W."""
    ranks = []
    for rank in range(schedule.shape.stages):
        rows = schedule.rank(rank)
        if schedule.fused:
            rows = np.repeat(rows, 1 + (rows[:, 0] == BACKWARD), axis=0)
            again = np.flatnonzero((rows[1:] == rows[:-1]).all(axis=1)) + 1
            rows[again, 0] = WEIGHT
        ranks.append([[LETTERS[kind], chunk, micro_batch] for kind, chunk, micro_batch in rows.tolist()])
    return ranks
