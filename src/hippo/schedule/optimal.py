"""The best schedule there is, by constraint programming (CP-SAT), with a proof where time allows.

Exact to about p 8, m 16; beyond, an improver with a time limit. A constraint model as in CrossPipe (ATC 2025):
constraint model as in CrossPipe, ATC 2025):

* each group of operations (``precedence``) in order, which loses nothing and breaks the symmetry of micro-batches;
* each rank runs one operation at a time; so does each link that messages occupy, first in, first out;
* memory as precedence F k after W of k - K where that says all (one slot per rank, all given back at W), else as a
  cumulative resource;
* starts between their heads and what tails leave below a target for the makespan (``_search``).

Times are whole numbers on a fine grid, rounded down: the bound that the solver proves holds for the problem as it is,
and the order that it finds is replayed in floats.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from hippo.engine.program import BACKWARD, FORWARD, WEIGHT
from hippo.errors import HippoError, InputError, MissingExtraError
from hippo.schedule.bound.heads import heads_and_tails
from hippo.schedule.bound.lower_bound import lower_bound, must_fit
from hippo.schedule.bound.precedence import Rules, rules
from hippo.schedule.check import violations
from hippo.schedule.constraint_model import Frame, Verdict, ask, shorten
from hippo.schedule.methods import METHODS, Rows, checked, generate
from hippo.schedule.problem import Floats, ScheduleProblem, chains
from hippo.schedule.replay import makespan, replay
from hippo.schedule.schedule import Schedule
from hippo.schedule.search.unroll import unrolled

_SHARES = (0.4, 0.05, 0.05, 0.05, 0.05)  # of the time limit, for each question
_STEP = 0.125  # of the way from the bound to the best schedule, after a no
_FEW = (2.5, 3.0)  # micro-batches per rank that are quickly scheduled and show the steady state
_NEAR = (1.0, 1.005, 1.01, 1.02)  # of their bound
_SHARE_OF_FEW = 0.04  # of the time limit, for each question about few


@dataclass(frozen=True)
class Optimal:
    """What the solver found and proved."""

    schedule: Schedule | None  # None: none found in time, and none was given
    makespan: float  # of the schedule; inf without one
    lower_bound: float  # no schedule is shorter
    proved: bool  # the schedule is as short as any can be, to a millionth


@dataclass(frozen=True)
class SearchLimits:
    """When to stop."""

    deadline: float  # of ``time.monotonic``
    total_s: float
    workers: int

    @property
    def left_s(self) -> float:
        """Seconds left; 0 or less: stop."""
        return self.deadline - time.monotonic()


def optimal(
    problem: ScheduleProblem, *, time_limit_s: float, hint: Schedule | None = None, workers: int = 2
) -> Optimal:
    """The shortest schedule found within the time limit; never longer than ``hint``, which must fit the problem.

    Raises
    ------
    InputError
        OR-tools is not installed, and the hint does not meet the bound by itself.
    InfeasibleError
        One micro-batch does not fit into the memory of a rank; names the smallest limit that works.
    """
    must_fit(problem)
    least, start = lower_bound(problem), _start(problem, hint)
    span = makespan(problem, start)
    if not _longer(span, least):
        return Optimal(start, span, min(least, span), True)
    _refuse_without_solver()
    found, least = _search(
        problem, start, least, limits=SearchLimits(time.monotonic() + time_limit_s, time_limit_s, workers)
    )
    span = makespan(problem, found)
    return Optimal(found, span, min(least, span), not _longer(span, least))


def _longer(span: float, least: float) -> bool:
    return span > least * (1 + 1e-6)


def _start(problem: ScheduleProblem, hint: Schedule | None) -> Schedule:
    """The hint where there is one, else the shortest of the simple ones."""
    if hint is not None:
        wrong = violations(problem, hint)
        if wrong:
            raise InputError(f"the hint is no schedule of the problem: {wrong[0]}", key="hint", remedy="leave it out")
        return hint
    serial = checked("serial", problem, one_by_one(problem))
    found = [serial]
    for name, method in METHODS.items():
        if method.placement == problem.placement:
            with suppress(HippoError, ImportError):
                found.append(generate(name, problem))
    return min(found, key=lambda each: makespan(problem, each))


def one_by_one(problem: ScheduleProblem) -> Rows:
    """Each micro-batch goes all the way before the next one starts: fits whenever anything fits."""
    v, half = problem.chunks, (problem.micro_batches + 1) // 2
    ways, rows = chains(problem), []
    for rank in range(problem.ranks):
        mine = [[slot % v for slot in way if slot // v == rank] for way in ways]
        for micro_batch in range(problem.micro_batches):
            chunks = mine[0] if len(ways) == 1 or micro_batch < half else mine[1]
            rows += [(FORWARD, chunk, micro_batch) for chunk in chunks]
            rows += [(kind, chunk, micro_batch) for chunk in chunks[::-1] for kind in (BACKWARD, WEIGHT)]
    return np.array(rows, np.int64), np.linspace(0, len(rows), problem.ranks + 1).astype(np.int64)


def _search(problem: ScheduleProblem, start: Schedule, least: float, *, limits: SearchLimits) -> tuple[Schedule, float]:
    """The shortest schedule found, and the proved bound.

    First questions: is there a schedule no longer than ``target``? Heads and tails then leave each start a narrow
    window, where the solver is at its best. The first target is the bound itself, which most optima meet; a no raises
    the bound, a yes or silence changes the target. What is left between bound and best is then minimized from the best.
    """
    found = rules(problem)
    head, tail = heads_and_tails(found)
    best = min([start, *_grown(problem, limits)], key=lambda each: makespan(problem, each))
    most, target = makespan(problem, best), least
    for share in _SHARES:
        if limits.left_s <= 0 or not _longer(most, least):
            return best, least
        frame = Frame(problem, found, head, tail, target)
        answer, rows = ask(frame, time_limit_s=min(share * limits.total_s, limits.left_s), workers=limits.workers)
        if answer is Verdict.NO:
            least = min(most, frame.grid.above(target))
            target = least + min((most - least) * _STEP, least * _STEP / 16)
        elif rows is not None and (shorter := _shorter(problem, rows, most)) is not None:
            best, most = shorter, makespan(problem, shorter)
            target = (least + most) / 2
        else:
            target = (target + most) / 2
    if limits.left_s > 0 and _longer(most, least):
        frame, starts = Frame(problem, found, head, tail, most), _starts(problem, best, found)
        rows, least = shorten(frame, least, starts, time_limit_s=limits.left_s, workers=limits.workers)
        best = (rows is not None and _shorter(problem, rows, most)) or best
    return best, least


def _grown(problem: ScheduleProblem, limits: SearchLimits) -> list[Schedule]:
    """Schedules for few micro-batches, made as long as wanted (``unroll``), where there are many."""
    found = []
    for times in _FEW:
        count = round(times * problem.ranks)
        if problem.placement == "bidirectional" or 4 * count > 3 * problem.micro_batches:
            continue
        few = replace(problem, micro_batches=count)
        small = _near_the_bound(few, limits)
        long = None if small is None else unrolled(problem, few, small)
        if long is not None:
            found.append(checked("optimal", problem, (long.order, long.order_start)))
    return found


def _near_the_bound(problem: ScheduleProblem, limits: SearchLimits) -> Schedule | None:
    """The first schedule that is at most some per cent above the bound."""
    found, least = rules(problem), lower_bound(problem)
    head, tail = heads_and_tails(found)
    for above in _NEAR:
        time_limit_s = min(_SHARE_OF_FEW * limits.total_s, limits.left_s)
        if time_limit_s <= 0:
            return None
        frame = Frame(problem, found, head, tail, least * above)
        _, rows = ask(frame, time_limit_s=time_limit_s, workers=limits.workers)
        if rows is not None:
            return _shorter(problem, rows, inf)
    return None


def _starts(problem: ScheduleProblem, schedule: Schedule, found: Rules) -> Floats:
    """When the k-th operation of each group starts, (G, m); messages have no times."""
    timeline, slots = replay(problem, schedule), problem.ranks * problem.chunks
    rank = np.repeat(np.arange(problem.ranks), np.diff(schedule.order_start))
    group = schedule.order[:, 0] * slots + rank * problem.chunks + schedule.order[:, 1]
    starts = np.zeros((len(found.passes), int(found.passes.max())))
    for each in range(3 * slots):
        own = timeline.start[group == each]
        starts[each, : len(own)] = np.sort(own)
    return starts


def _shorter(problem: ScheduleProblem, rows: Rows, most: float) -> Schedule | None:
    """The rows as a schedule when it is within memory and shorter; rounding to the grid may spoil both."""
    try:
        found = checked("optimal", problem, rows)
    except HippoError:
        return None
    return found if makespan(problem, found) < most * (1 - 1e-9) else None


def _refuse_without_solver() -> None:
    try:
        from ortools.sat.python import cp_model  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("OR-tools", "solve", source="the method 'optimal'") from error
