"""The constraint model of a problem for CP-SAT: whole-number times, variables, what ties them, and the way back.

Letters: G groups (``precedence``), m micro-batches, p ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property
from itertools import combinations
from math import floor, gcd, isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hippo.engine.program import BACKWARD, FORWARD, WEIGHT
from hippo.schedule.bound.precedence import Rules
from hippo.schedule.methods import Rows
from hippo.schedule.problem import Floats, ScheduleProblem

_FINEST = 1e8  # steps in the longest makespan where the given times have no common grid
_DECIMALS = 6


@dataclass(frozen=True)
class Grid:
    """Whole numbers for times: ``steps`` per unit. Exact where the given times lie on it, else everything is rounded
    down: the floor of any schedule is then a schedule in whole numbers, so what is proved there holds."""

    steps: float
    exact: bool

    def at_least(self, value: Floats | float) -> NDArray[np.int64]:
        """Whole number that a time of ``value`` or more never lies below."""
        scaled = np.multiply(value, self.steps)
        return np.asarray(np.ceil(scaled - 1e-4) if self.exact else np.floor(scaled - 1e-6), np.int64)

    def at_most(self, value: Floats | float) -> NDArray[np.int64]:
        """Whole number that a time of ``value`` or less never lies above."""
        scaled = np.multiply(value, self.steps)
        return np.asarray(np.floor(scaled + 1e-4) if self.exact else np.ceil(scaled + 1e-6), np.int64)

    def length(self, value: Floats | float) -> NDArray[np.int64]:
        """Duration or delay."""
        scaled = np.multiply(value, self.steps)
        return np.asarray(np.round(scaled) if self.exact else np.floor(scaled), np.int64)

    def above(self, value: float) -> float:
        """The smallest time that a makespan can have when it is more than ``value``."""
        return float(self.at_most(value) + 1) / self.steps if self.exact else value


def grid_of(values: Floats, longest: float) -> Grid:
    """The coarsest grid of decimal fractions that holds all values; else a fine one."""
    for power in range(_DECIMALS + 1):
        scaled = values * 10**power
        whole = np.round(scaled)
        if np.abs(scaled - whole).max() < 1e-7 * 10**power and longest * 10**power < 1e9:
            common = gcd(*(int(each) for each in whole))
            return Grid(10**power / max(common, 1), exact=True)
    return Grid(_FINEST / longest, exact=False)


@dataclass(frozen=True)
class Frame:
    """What the model is built from."""

    problem: ScheduleProblem
    rules: Rules
    head: Floats  # (G, m)
    tail: Floats  # (G, m)
    most: float  # only schedules up to here are of interest

    @cached_property
    def grid(self) -> Grid:
        """Grid of all times of the problem."""
        real = self.rules.passes > 0
        return grid_of(np.concatenate([self.rules.duration[real], self.rules.lag, self.rules.rest]), self.most)


class Verdict(Enum):
    """Whether there is a schedule in the frame."""

    YES = auto()
    NO = auto()
    UNKNOWN = auto()  # the time was over


def ask(frame: Frame, *, time_limit_s: float, workers: int) -> tuple[Verdict, Rows | None]:
    """Whether there is a schedule no longer than the frame allows, and one if so."""
    model = ConstraintModel(frame)
    if not model.possible:
        return Verdict.NO, None
    answer, rows, _ = _solve(model, time_limit_s, workers)
    return answer, rows


def shorten(
    frame: Frame, least: float, starts: Floats, *, time_limit_s: float, workers: int
) -> tuple[Rows | None, float]:
    """The shortest schedule found from one that starts its operations at ``starts`` (G, m), and the proved bound."""
    model = ConstraintModel(frame)
    model.minimize(least)
    model.hint(starts)
    _, rows, bound = _solve(model, time_limit_s, workers)
    return rows, max(least, bound / frame.grid.steps)


def _solve(model: ConstraintModel, time_limit_s: float, workers: int) -> tuple[Verdict, Rows | None, float]:
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = time_limit_s
    solver.parameters.num_workers = workers
    status = solver.solve(model.cp)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Verdict.YES, model.rows(solver.value), solver.best_objective_bound
    return Verdict.NO if status == cp_model.INFEASIBLE else Verdict.UNKNOWN, None, 0.0


class ConstraintModel:
    """Variables and constraints; one start for each operation of each group."""

    def __init__(self, frame: Frame) -> None:
        from ortools.sat.python import cp_model

        self.frame, self.cp = frame, cp_model.CpModel()
        self.possible = self._variables()
        if not self.possible:
            return
        self._precedence()
        self._machines()
        self._first_in_first_out()
        self._memory()

    def _variables(self) -> bool:
        """Whether every operation has a time to start."""
        frame, rules, grid = self.frame, self.frame.rules, self.frame.grid
        self.length = grid.length(rules.duration)
        earliest = np.maximum(0, grid.at_least(frame.head))
        latest = grid.at_most(frame.most - frame.tail - rules.duration[:, None])
        real = np.arange(earliest.shape[1]) < rules.passes[:, None]
        if (earliest > latest)[real].any():
            return False
        self.start = [
            [self.cp.new_int_var(int(earliest[g, k]), int(latest[g, k]), "") for k in range(count)]
            for g, count in enumerate(rules.passes)
        ]
        return True

    def _precedence(self) -> None:
        rules, lag = self.frame.rules, self.frame.grid.length(self.frame.rules.lag)
        for g, starts in enumerate(self.start):
            for rule in range(rules.first[g], rules.first[g + 1]):
                source, shift = int(rules.out_of[rule]), int(rules.shift[rule])
                wait = int(self.length[source] + lag[rule])
                for before, start in zip(self.start[source], starts[shift:], strict=False):
                    self.cp.add(start >= before + wait)

    def _machines(self) -> None:
        on: dict[int, list[Any]] = {}
        for g, starts in enumerate(self.start):
            new = [self.cp.new_fixed_size_interval_var(start, int(self.length[g]), "") for start in starts]
            on.setdefault(int(self.frame.rules.machine[g]), []).extend(new)
        for intervals in on.values():
            self.cp.add_no_overlap(intervals)

    def _first_in_first_out(self) -> None:
        """Messages of two groups leave in the order in which their operations run; within a group they do anyway."""
        rules, groups = self.frame.rules, len(self.start)
        for one, other in combinations(range(3 * groups // 5, groups), 2):
            if rules.machine[one] != rules.machine[other] or not (rules.passes[one] and rules.passes[other]):
                continue
            done_one, done_other = one - 3 * groups // 5, other - 3 * groups // 5
            for k, start_one in enumerate(self.start[done_one]):
                for i, start_other in enumerate(self.start[done_other]):
                    first = self.cp.new_bool_var("")
                    sent_one, sent_other = self.start[one][k], self.start[other][i]
                    for earlier, later, length, literal in (
                        (start_one, start_other, self.length[done_one], first),
                        (sent_one, sent_other, self.length[one], first),
                        (start_other, start_one, self.length[done_other], first.negated()),
                        (sent_other, sent_one, self.length[other], first.negated()),
                    ):
                        self.cp.add(later >= earlier + int(length)).only_enforce_if(literal)

    def _memory(self) -> None:
        """Where the rules are not all that memory asks: what is held, as a resource."""
        tables = self.frame.problem.tables
        v, slots = tables.chunks, len(tables.offset)
        for rank, limit in enumerate(tables.limit):
            mine = range(rank * v, (rank + 1) * v)
            if not isfinite(limit) or (v == 1 and tables.freed[rank] == 0):
                continue
            held = [(slot, until, part) for slot in mine for until, part in self._parts(slot)]
            steps = grid_of(np.array([part for _, _, part in held]), float(limit)).steps
            intervals, amounts = [], []
            for slot, until, part in held:
                for start, end in zip(self.start[slot], self.start[until * slots + slot], strict=True):
                    length = int(self.length[until * slots + slot])
                    size = self.cp.new_int_var(0, int(self.frame.grid.at_most(self.frame.most)) + 1, "")
                    intervals.append(self.cp.new_interval_var(start, size, end + length, ""))
                    amounts.append(floor(part * steps + 1e-6))
            self.cp.add_cumulative(intervals, amounts, floor(limit * steps * (1 + 2e-9) + 1e-6))

    def _parts(self, slot: int) -> list[tuple[int, float]]:
        """Until the end of which kind a slot holds how much of a micro-batch."""
        tables = self.frame.problem.tables
        taken, freed = float(tables.taken[slot]), float(tables.freed[slot])
        return [(kind, part) for kind, part in ((BACKWARD, freed), (WEIGHT, taken - freed)) if part > 0]

    def minimize(self, least: float) -> None:
        """Asks for the smallest makespan from ``least`` up."""
        grid = self.frame.grid
        span = self.cp.new_int_var(int(grid.at_most(least)), int(grid.at_most(self.frame.most)), "")
        after = np.maximum(0, grid.at_least(self.frame.tail))
        for g, starts in enumerate(self.start):
            for k, start in enumerate(starts):
                self.cp.add(start + int(self.length[g] + after[g, k]) <= span)
        self.cp.minimize(span)

    def hint(self, starts: Floats) -> None:
        """Starts the search from these times, (G, m)."""
        whole = self.frame.grid.at_most(starts)
        for g, variables in enumerate(self.start):
            for k, variable in enumerate(variables):
                self.cp.add_hint(variable, int(whole[g, k]))

    def rows(self, value: Any) -> Rows:
        """Orders of all ranks, by start, out of a solution."""
        tables, found = self.frame.problem.tables, []
        v, slots = tables.chunks, len(tables.offset)
        for kind in (FORWARD, BACKWARD, WEIGHT):
            for slot in range(slots):
                for k, start in enumerate(self.start[kind * slots + slot]):
                    at, micro_batch = value(start), int(tables.offset[slot]) + k
                    found.append(
                        (slot // v, at, at + int(self.length[kind * slots + slot]), kind, slot % v, micro_batch)
                    )
        found.sort()
        ranks = np.array([each[0] for each in found])
        rows = np.array([each[3:] for each in found], np.int64)
        return rows, np.searchsorted(ranks, np.arange(tables.ranks + 1))
