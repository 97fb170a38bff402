"""The best schedule there is, by constraint programming (CP-SAT), with a proof where time allows.

Exact to about p 8, m 16; beyond, an improver with a time limit. A constraint model as in CrossPipe (ATC 2025):
constraint model as in CrossPipe, ATC 2025):

* each group of operations (``precedence``) in order, which loses nothing and breaks the symmetry of micro-batches;
* each rank runs one operation at a time; so does each link that messages occupy, first in, first out;
* memory as precedence F k after W of k - K where that says all (one slot per rank, all given back at W), else as a
  cumulative resource;
* starts between their heads and what tails leave below the makespan of the hint; makespan not below ``lower_bound``.

Times are whole numbers on a fine grid, rounded down: the bound that the solver proves holds for the problem as it is,
and the order that it finds is replayed in floats.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from hippo.errors import HippoError, InputError
from hippo.pipeline.check import violations
from hippo.pipeline.heads import heads_and_tails
from hippo.pipeline.lower_bound import lower_bound, must_fit
from hippo.pipeline.methods import METHODS, Rows, checked, generate
from hippo.pipeline.precedence import Rules, rules
from hippo.pipeline.problem import Floats, ScheduleProblem, chains
from hippo.pipeline.replay import makespan, replay
from hippo.pipeline.schedule import BACKWARD, FORWARD, WEIGHT, Schedule

EXTRA: dict[str, object] = {}
"""Parameters of the solver beyond its own."""


@dataclass(frozen=True)
class Optimal:
    """What the solver found and proved."""

    schedule: Schedule | None  # None: none found in time, and none was given
    makespan: float  # of the schedule; inf without one
    lower_bound: float  # no schedule is shorter
    proved: bool  # the schedule is as short as any can be, to a millionth


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
    found, bound = _solve(problem, start, least, time_limit_s, workers)
    least = max(least, bound)
    if found is not None and makespan(problem, found) < span:
        start, span = found, makespan(problem, found)
    return Optimal(start, span, min(least, span), not _longer(span, least))


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


def _solve(
    problem: ScheduleProblem, start: Schedule, least: float, time_limit_s: float, workers: int
) -> tuple[Schedule | None, float]:
    """A schedule, when one no longer than the start was found, and the proved bound."""
    from hippo.pipeline.constraint_model import Frame, Model

    cp_model = _solver()
    found = rules(problem)
    head, tail = heads_and_tails(found)
    frame = Frame(problem, found, head, tail, least, makespan(problem, start))
    model = Model(frame)
    model.hint(_starts(problem, start, found))
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = time_limit_s
    solver.parameters.num_workers = workers
    for key, value in EXTRA.items():
        setattr(solver.parameters, key, value)
    status = solver.solve(model.cp)
    bound = solver.best_objective_bound / frame.grid.steps
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None, bound
    try:
        return checked("optimal", problem, model.rows(solver.value)), bound
    except HippoError:  # memory fits the grid only
        return None, bound


def _solver() -> Any:
    try:
        from ortools.sat.python import cp_model
    except ImportError as error:
        raise InputError("the exact method needs OR-tools", key="method", remedy="pip install hippo[solve]") from error
    return cp_model


def _starts(problem: ScheduleProblem, schedule: Schedule, found: Rules) -> Floats:
    """When the k-th operation of each group starts, (G, m)."""
    timeline, tables = replay(problem, schedule), problem.tables
    v, slots = tables.chunks, len(tables.offset)
    rank = np.repeat(np.arange(problem.ranks), np.diff(schedule.order_start))
    kind, slot = schedule.order[:, 0], rank * v + schedule.order[:, 1]
    starts = np.zeros((len(found.passes), int(found.passes.max())))
    for place in range(slots):
        for each in (FORWARD, BACKWARD, WEIGHT):
            at = (slot == place) & (kind == each)
            starts[each * slots + place, : found.passes[place]] = np.sort(timeline.start[at])
    return starts
