"""The least makespan of single plays with all their draws known: exact where small, searched where not.

What ``hindsight.floors`` bounds from below is found here, for about p 4, m 8: of each play the shortest schedule that
runs the micro-batches of each rank in order, with the times that were drawn. Nobody who decides while the play runs can
reach it but by luck. A model of CP-SAT as in ``schedule.constraint_model``, but every operation and every message has a
length of its own; ``searched_run`` is the package's tabu search over the same lengths, at any size.

Letters: p ranks, m micro-batches; kinds F, B, W = 0, 1, 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hippo.dispatch.noise.fluctuation import Factors, play
from hippo.dispatch.noise.hindsight import floors_of
from hippo.engine.program import BACKWARD, FORWARD, WEIGHT
from hippo.errors import InputError, MissingExtraError
from hippo.schedule.problem import ScheduleProblem
from hippo.schedule.schedule import Schedule, Shape
from hippo.schedule.search.graph import GROUP, LATENCY, NTH, RANK, TIME, TRANSFER
from hippo.schedule.search.tabu import Tabu

Floats = NDArray[np.float64]

_STEPS = 20_000  # of the solver's whole numbers in the longest operation


def searched_run(problem: ScheduleProblem, factors: Factors, index: int, start: Schedule, *, steps: int) -> float:
    """The makespan that a tabu search from a legal order comes to, the draws of play ``index`` known; at most the
    order's own. One chunk per rank."""
    one = Factors(*(each[index : index + 1] for each in factors))
    search = Tabu(problem, start, [index])
    facts, times, m = search.graph.facts, search.graph.times, problem.micro_batches
    place = facts[:, GROUP] * m + facts[:, NTH]
    times[:, TIME] *= one.operations[0, place].astype(np.float64) * one.ranks[0, facts[:, RANK]]
    sends = facts[:, GROUP] < WEIGHT * problem.ranks
    for way in (LATENCY, TRANSFER):
        times[sends, way] *= one.messages[0, place[sends]].astype(np.float64)
    search.span = float(play(problem, start, one)[0])
    search.go(steps, float(floors_of(problem, one)[0]))
    return search.span


@dataclass(frozen=True)
class Clairvoyant:
    """One play, all draws known."""

    makespan: float  # of the best order found, played
    lower_bound: float  # no schedule of this play is shorter
    schedule: Schedule

    @property
    def proved(self) -> bool:
        """Whether the order is as short as any, to a thousandth."""
        return self.makespan <= self.lower_bound * 1.001


def clairvoyant(
    problem: ScheduleProblem, factors: Factors, index: int, hint: Schedule, *, time_limit_s: float = 2.0
) -> Clairvoyant:
    """The best order of play ``index`` of some draws, never longer than ``hint``: any legal order of the problem.

    Raises
    ------
    InputError
        Ranks have more than one chunk, memory comes back at B, or OR-tools is not installed.
    """
    model = _Model(problem, _lengths(problem, factors, index))
    one = Factors(*(each[index : index + 1] for each in factors))
    known = float(play(problem, hint, one)[0])
    least = float(floors_of(problem, one)[0])
    found, bound = model.solve((min(least, known), known), time_limit_s)
    span = known if found is None else float(play(problem, found, one)[0])
    if found is None or span >= known:
        found, span = hint, known
    return Clairvoyant(span, min(max(bound, least), span), found)


@dataclass(frozen=True)
class _Lengths:
    """Times of one play."""

    taken: Floats  # (3, p, m) of operations
    latency: Floats  # (2, p, m) of what F and B send
    transfer: Floats  # (2, p, m)


def _lengths(problem: ScheduleProblem, factors: Factors, index: int) -> _Lengths:
    tables = problem.tables
    if problem.placement != "plain" or tables.freed.any():
        remedy = "use a placement of one chunk per rank whose memory comes back at W"
        raise InputError("has no exact play", key="placement", value=problem.placement, remedy=remedy)
    p, m = tables.ranks, tables.micro_batches
    slow = factors.operations[index].reshape(3, p, m) * factors.ranks[index].astype(np.float64)[:, None]
    late = factors.messages[index].astype(np.float64).reshape(2, p, m)
    return _Lengths(
        tables.duration[:, :, None] * slow, tables.delay[:, :, None] * late, tables.transfer[:, :, None] * late
    )


class _Model:
    """Starts of all operations in whole numbers, lengths rounded down: what is proved holds for the play as it is."""

    def __init__(self, problem: ScheduleProblem, lengths: _Lengths) -> None:
        try:
            from ortools.sat.python import cp_model
        except ImportError as error:
            raise MissingExtraError("OR-tools", "solve", source="the exact play") from error
        self.problem, self.lengths, self.cp = problem, lengths, cp_model.CpModel()
        self.steps = _STEPS / float(lengths.taken.max())
        self.whole = np.floor(lengths.taken * self.steps).astype(np.int64)  # (3, p, m)
        horizon = int(self.whole.sum() + np.ceil((lengths.latency + lengths.transfer).sum() * self.steps)) + 1
        self.start = np.array(
            [self.cp.new_int_var(0, horizon, "") for _ in range(lengths.taken.size)], dtype=object
        ).reshape(lengths.taken.shape)
        self.span = self.cp.new_int_var(0, horizon + int(max(problem.tables.reduction) * self.steps), "")
        self._order()
        for side in (FORWARD, BACKWARD):
            self._messages(side, horizon)
        self._memory()

    def _order(self) -> None:
        """Each rank runs one operation at a time, each kind in order, F before B before W; the end is after all."""
        for rank, reduction in enumerate(self.problem.tables.reduction):
            starts, length = self.start[:, rank], self.whole[:, rank]
            self.cp.add_no_overlap(
                self.cp.new_fixed_size_interval_var(start, int(each), "")
                for start, each in zip(starts.ravel(), length.ravel(), strict=True)
            )
            for (kind, k), start in np.ndenumerate(starts):
                end = start + int(length[kind, k])
                self.cp.add(self.span >= end + int(reduction * self.steps))
                if kind < WEIGHT:
                    self.cp.add(starts[kind + 1, k] >= end)
                if k + 1 < starts.shape[1]:
                    self.cp.add(starts[kind, k + 1] >= end)

    def _messages(self, kind: int, horizon: int) -> None:
        """What F sends down and B sends up: one after the other over a link, then the latency."""
        p, m = self.problem.ranks, self.problem.micro_batches
        latency, transfer = (
            np.floor(each[kind] * self.steps).astype(np.int64) for each in (self.lengths.latency, self.lengths.transfer)
        )
        for rank in range(p - 1) if kind == FORWARD else range(1, p):
            receiver, sent = rank + 1 if kind == FORWARD else rank - 1, None
            for k in range(m):
                end = self.start[kind, rank, k] + int(self.whole[kind, rank, k])
                left = end + int(transfer[rank, k])
                if transfer[rank, k] > 0:
                    left = self.cp.new_int_var(0, horizon, "")
                    self.cp.add(left >= end + int(transfer[rank, k]))
                    if sent is not None:
                        self.cp.add(left >= sent + int(transfer[rank, k]))
                    sent = left
                self.cp.add(self.start[kind, receiver, k] >= left + int(latency[rank, k]))

    def _memory(self) -> None:
        """F of a micro-batch begins when the one that made room for it has ended its W."""
        tables = self.problem.tables
        for rank in range(tables.ranks):
            m = tables.micro_batches
            held = int(min(m, tables.limit[rank] / tables.taken[rank] * (1 + 1e-9)))
            for k in range(held, m):
                room = self.start[WEIGHT, rank, k - held] + int(self.whole[WEIGHT, rank, k - held])
                self.cp.add(self.start[FORWARD, rank, k] >= room)

    def solve(self, between: tuple[float, float], time_limit_s: float) -> tuple[Schedule | None, float]:
        """The best order found, and the proved bound; the makespan lies between a floor and that of a known order."""
        from ortools.sat.python import cp_model

        least, known = between
        self.cp.add(self.span <= int(np.ceil(known * self.steps)))
        self.cp.add(self.span >= int(least * self.steps) - 3 * self.whole.size)  # lengths were rounded down
        self.cp.minimize(self.span)
        solver = cp_model.CpSolver()
        solver.parameters.max_time_in_seconds = time_limit_s
        solver.parameters.num_workers = 1
        status = solver.solve(self.cp)
        bound = solver.best_objective_bound / self.steps
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return None, known if status == cp_model.INFEASIBLE else bound
        return self._schedule(solver), bound

    def _schedule(self, solver: Any) -> Schedule:
        """Operations of each rank by start."""
        rows = [(rank, solver.value(start), kind, k) for (kind, rank, k), start in np.ndenumerate(self.start)]
        rows.sort()
        order = np.array([(kind, 0, k) for _, _, kind, k in rows], np.int64)
        p, m = self.problem.ranks, self.problem.micro_batches
        return Schedule("clairvoyant", Shape(p, m, 1), False, order, np.arange(p + 1) * 3 * m)
