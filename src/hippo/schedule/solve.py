"""One question, one answer: a schedule for a problem by a method's name, and how far from the optimum it can be."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import inf
from typing import Any

import numpy as np

from hippo.engine.program import BACKWARD, WEIGHT
from hippo.errors import InfeasibleError, InputError, UnknownNameError
from hippo.schedule.bound.lower_bound import lower_bound, must_fit
from hippo.schedule.by_hint import dispatch
from hippo.schedule.check import violations
from hippo.schedule.methods import LEARNED, METHODS, POLICIES, generate, loaded, must_be_placed
from hippo.schedule.problem import ScheduleProblem
from hippo.schedule.replay import Replay, live, makespan, peak_memory, replay
from hippo.schedule.schedule import Schedule, split
from hippo.schedule.sizes import Sized
from hippo.schedule.text import LETTERS

NAMES = (*METHODS, *POLICIES, "optimal", "best")
"""Everything that ``solve`` knows; the last two take a time limit."""

GIVEN = "given"
"""The method of an order that the user brought."""

ROUNDING = 1e-9
"""A bound may exceed the makespan that meets it by this share: their sums run in another order."""

Progress = Callable[[str, float], None]

Tried = tuple[tuple[str, float | str], ...]
"""Candidates, each with its makespan or the reason why it was refused."""


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
    tried: Tried = ()
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
    time_limit_s: float | None = None,
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
    _warm_up(method, problem.placement)
    began = time.perf_counter()
    if hint:
        found = _dispatched(problem, method, time_limit_s=time_limit_s, seed=seed, progress=progress)
    else:
        found = _found(problem, method, time_limit_s=time_limit_s, seed=seed, progress=progress)
    return _judged(problem, found, method=method, seconds=time.perf_counter() - began, hint=hint)


@cache
def _warm_up(method: str, placement: str) -> None:
    """Loads or compiles the kernels on a tiny problem, once: ``seconds`` says what making a schedule takes."""
    tiny = ScheduleProblem.uniform(2, 2, (1.0, 1.0, 0.5), comm=0.5).placed(placement)
    try:
        found = _found(tiny, "best" if method == "optimal" else method, time_limit_s=0.01, seed=0, progress=None)
    except InfeasibleError:
        return  # another placement
    _judged(tiny, found, method=method, seconds=0.0, hint=False)


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
    tried: Tried = ()
    lower_bound: float = -inf


def _found(
    problem: ScheduleProblem, method: str, *, time_limit_s: float | None, seed: int, progress: Progress | None
) -> _Found:
    if method == LEARNED:
        return _learned(problem)
    if method not in ("best", "optimal"):
        return _Found(generate(method, problem))
    from hippo.schedule.best import best, usual_limit_s

    time_limit_s = usual_limit_s(problem) if time_limit_s is None else time_limit_s
    share = 1.0 if method == "best" else 0.25  # of the time limit: the solver starts from a good schedule
    found = best(problem, time_limit_s=share * time_limit_s, seed=seed, watch=progress)
    if method == "best":  # B and then W is never longer than both at once
        return _Found(split(found.schedule), found.why, found.tried, found.lower_bound)
    from hippo.schedule.optimal import optimal

    proof = optimal(problem, time_limit_s=0.75 * time_limit_s, hint=found.schedule)
    assert proof.schedule is not None  # never longer than the hint
    shorter = proof.makespan < found.makespan * (1 - 1e-9)
    said = f"CP-SAT found it from {found.method}" if shorter else f"{found.method} found it"
    said += ", and it is proved optimal." if proof.proved else f" and nothing shorter within {time_limit_s:g} s."
    tried = (*found.tried, ("optimal", proof.makespan))
    schedule = replace(split(proof.schedule), name="optimal" if shorter else found.method)
    return _Found(schedule, said, tried, max(found.lower_bound, proof.lower_bound))


def _learned(problem: ScheduleProblem) -> _Found:
    """What the shipped policy makes of the problem, asked each time a rank is free."""
    policy = POLICIES[LEARNED]
    must_be_placed(LEARNED, policy.placement, problem)
    made = loaded(policy)(problem, level=0.0, name=LEARNED)
    if made.why:
        told = f"{made.why[0].upper()}{made.why[1:]}. Nothing learned is in this order."
        return _Found(replace(made.schedule, name=made.followed), told)
    told = "A policy chose each time a rank was free. It is made for times that move; where they do not, best searches."
    return _Found(made.schedule, told)


def placement_of(method: str, usual: str) -> str:
    """How a method lays the model out; ``usual`` where it may be any."""
    found = METHODS.get(method) or POLICIES.get(method)
    return usual if found is None else found.placement


def _dispatched(problem: ScheduleProblem, method: str, **stop: Any) -> _Found:
    """What readiness-driven dispatch makes of a method's order; the order itself may need more than the limit."""
    try:
        found = _found(problem, method, **stop)
    except InfeasibleError:
        found = _found(replace(problem, limit=(inf,) * problem.ranks), method, **stop)
    order = dispatch(problem, found.schedule)
    fixed = makespan(problem, found.schedule)
    longer = 100 * (makespan(problem, order) / fixed - 1)
    compared = (
        f"{abs(longer):.2f} % {'longer' if longer > 0 else 'shorter'} than" if abs(longer) >= 5e-3 else "as long as"
    )
    told = f"Ranks run what is ready; the order only advises. That is {compared} the order held to, {fixed:g}."
    return _Found(order, told, found.tried)


def _judged(problem: ScheduleProblem, found: _Found, *, method: str, seconds: float, hint: bool) -> Answer:
    """The answer, with a last look of the checker: nothing invalid leaves."""
    wrong = violations(problem, found.schedule)
    assert not wrong, f"{method}: {wrong[0]}"
    bound, played = max(found.lower_bound, lower_bound(problem)), replay(problem, found.schedule)
    assert bound <= played.makespan * (1 + ROUNDING), f"{method}: {played.makespan} is below the bound {bound}"
    bound = min(bound, played.makespan)
    return Answer(problem, found.schedule, played, bound, method, seconds, found.why, found.tried, hint)


# ----------------------------------------------------------------------------------------------------- several answers
Row = tuple[str, Answer | InfeasibleError]
"""Name of a candidate, and what came of it."""


def compare(
    problem: ScheduleProblem,
    names: Sequence[str] = NAMES,
    *,
    time_limit_s: float | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> tuple[Row, ...]:
    """Every method side by side, those of another placement with the model laid out as they do."""
    rows: list[Row] = []
    for index, name in enumerate(names):
        if progress is not None:
            progress(name, index / len(names))
        placement = placement_of(name, problem.placement)
        asked = problem if placement == problem.placement else problem.placed(placement)
        rows.append((name, _tolerant(asked, name, time_limit_s=time_limit_s, seed=seed)))
    return tuple(rows)


def compare_sizes(
    sized: Sized,
    sizes: Sequence[int],
    method: str,
    *,
    hint: bool = False,
    time_limit_s: float | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> tuple[tuple[int, Answer | InfeasibleError], ...]:
    """The same samples in micro-batches of each size; ``InputError`` for a size that does not divide them."""
    problems = [(size, sized.at(size)) for size in sizes]
    rows = []
    for index, (size, problem) in enumerate(problems):
        if progress is not None:
            progress(f"micro-batches of {size}", index / len(problems))
        rows.append((size, _tolerant(problem, method, hint=hint, time_limit_s=time_limit_s, seed=seed)))
    return tuple(rows)


def _tolerant(problem: ScheduleProblem, method: str, **stop: Any) -> Answer | InfeasibleError:
    try:
        return solve(problem, method, **stop)
    except InfeasibleError as error:
        return error


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
        "tried": [_tried(name, result) for name, result in answer.tried],
        "seconds": answer.seconds,
        "placement": problem.placement,
        "chunks": problem.chunks,
        "fused": schedule.fused,
        "hint": answer.hint,
        "order": order_document(schedule),
    }


def _tried(name: str, result: float | str) -> dict[str, object]:
    """A candidate: its makespan, or null and the reason."""
    return {"method": name, "makespan": None, "why": result} if isinstance(result, str) else {
        "method": name, "makespan": result}  # fmt: skip


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
