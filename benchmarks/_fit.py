"""Fit the constants of the cost model to published rows: robust least squares on the logarithms of both.

Gauss-Newton steps (Jacobian by differences) on reweighted squares, so that a few odd rows do not pull (Huber 1964).
The constants stay inside their plausible ranges, and a weak pull of each towards the middle of its range decides what
the rows leave open. The setting of a row that does not state it (``published.candidates``) is chosen again before every
step. Plans are compared more often than they are timed, so errors count a second time against their mean over the rows
of the same model and batch.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import lsq_linear, nnls

from hippo.cost.calibration import CALIBRATION, RANGES, Calibration, constant
from hippo.cost.cost_model import CostModel
from hippo.plan.plan import Plan
from hippo.problem.problem import Problem
from hippo.score.cases import PublishedRun
from hippo.score.interval import IN_ONE_PLACE, has_experts
from hippo.score.published import comparison_key, predict, problem_of, reaching
from hippo.simulate.fast import step_time
from hippo.simulate.lower import lower

HUBER = 0.05  # errors beyond it count linearly
PULL = 0.02  # of a constant at the end of its range, in units of a row's squared error of HUBER
LONGEST_STEP = 0.2  # of the logarithm of a constant
ORDER = 1.0  # weight of an error's difference from the mean error of its model and batch, against the error itself
DIFFERENCE = 0.02  # of a logarithm, for the Jacobian
INNER = 30  # reweightings per step

Floats = NDArray[np.float64]


def changed(calibration: Calibration, values: Mapping[str, float]) -> Calibration:
    """The same constants, those of ``values`` replaced."""
    plain: dict[str, Any] = {name: each for name, each in values.items() if "." not in name}
    generations = dict(calibration.generations)
    for name, each in values.items():
        family, _, field = name.rpartition(".")
        if family:
            only: dict[str, Any] = {field: each}
            generations[family] = replace(generations[family], **only)
    return replace(calibration, generations=MappingProxyType(generations), **plain)


def source_of(case: PublishedRun) -> str:
    """What is left out together: of mixtures of experts all rows of a model, of others those of a family."""
    return case.model.name if case.model is not None and has_experts(case.model) else case.family


@dataclass(frozen=True)
class Row:
    """A published row with the plan that fits it."""

    case: PublishedRun
    problem: Problem
    plan: Plan
    weight: float  # rows of a source together weigh the root of their number

    def error(self, calibration: Calibration) -> float:
        """Logarithm of predicted over measured step time."""
        cost = CostModel(self.problem, reaching(self.case, calibration))
        return math.log(step_time(lower(self.problem, self.plan, cost=cost)) / (self.case.measured_s or math.nan))


def rows(cases: Sequence[PublishedRun], calibration: Calibration) -> tuple[Row, ...]:
    """The rows that can be predicted, each with the plan chosen under ``calibration``."""
    found = [(case, predict(case, calibration=calibration).plan) for case in cases if case.measured_s is not None]
    sizes: dict[str, int] = {}
    for case, plan in found:
        sizes[source_of(case)] = sizes.get(source_of(case), 0) + (plan is not None)
    return tuple(
        Row(case, problem_of(case), plan, sizes[source_of(case)] ** -0.5) for case, plan in found if plan is not None
    )


@dataclass(frozen=True)
class Linear:
    """Errors of rows around some constants: ``errors + jacobian @ (change of the logarithms of the constants)``."""

    rows: tuple[Row, ...]
    at: Calibration
    errors: Floats  # (R,)
    jacobian: Floats  # (R, C)

    @classmethod
    def around(cls, known: tuple[Row, ...], at: Calibration) -> Linear:
        """Differences, one constant after the other."""
        errors = _errors(known, at)
        columns = []
        for name in RANGES:
            moved = changed(at, {name: constant(at, name) * math.exp(DIFFERENCE)})
            columns.append((_errors(known, moved) - errors) / DIFFERENCE)
        return cls(known, at, errors, np.column_stack(columns))

    def solved(self, without: str | None = None, longest: float = LONGEST_STEP) -> Calibration:
        """The constants that fit best by the linear picture, rows of the source ``without`` left out."""
        keep = np.array([source_of(row.case) != without for row in self.rows])
        spread = _spread(self.rows)
        weights = np.tile(np.array([row.weight for row in self.rows]) * keep, 2)
        errors, jacobian = spread @ self.errors, spread @ self.jacobian
        low, high = (np.log([bound[side] for bound in RANGES.values()]) for side in (0, 1))
        here = np.log([constant(self.at, name) for name in RANGES])
        middle, half = (low + high) / 2, (high - low) / 2
        low, high = np.maximum(low - here, -longest), np.minimum(high - here, longest)
        step = np.zeros(len(here))
        for _ in range(INNER):
            size = np.abs(errors + jacobian @ step)
            robust = weights * np.minimum(1.0, HUBER / np.maximum(size, 1e-12))
            ridge = PULL * HUBER**2 / half**2
            root = np.sqrt(np.concatenate([robust, ridge]))
            matrix = root[:, None] * np.vstack([jacobian, np.eye(len(here))])
            step = lsq_linear(matrix, root * np.concatenate([-errors, middle - here]), (low, high), method="bvls").x
        return changed(self.at, dict(zip(RANGES, np.exp(here + step).tolist(), strict=True)))


def fit(
    cases: Sequence[PublishedRun], start: Calibration = CALIBRATION, *, steps: int = 8
) -> tuple[Calibration, list[float]]:
    """The best constants and the loss after every step (deterministic; a step that makes it worse is halved)."""
    best, losses = start, [loss(rows(cases, start), start)]
    longest = LONGEST_STEP
    for _ in range(steps):
        linear = Linear.around(rows(cases, best), best)
        trial = linear.solved(longest=longest)
        reached = loss(rows(cases, trial), trial)
        if reached < losses[-1]:
            best = trial
            losses.append(reached)
        else:
            longest /= 3
    return best, losses


def without(linear: Linear, source: str) -> Calibration:
    """The constants refitted without the rows of ``source``: two steps from those that ``linear`` was taken around."""
    first = linear.solved(without=source)
    kept = tuple(row for row in linear.rows if source_of(row.case) != source)
    second = Linear.around(kept, first).solved()
    return second if loss(kept, second) < loss(kept, first) else first


def expected_sizes(errors: Mapping[str, Mapping[str, list[list[float]]]]) -> dict[str, list[float]]:
    """Of errors in one place, by least squares of their sizes on a constant and the shares, none below 0; by the source
    that is left out ("": none). Rows of a source together weigh the root of their number."""
    rows = [(source, row) for name in IN_ONE_PLACE for source, its in errors[name].items() for row in its]
    many = Counter(source for source, _ in rows)
    told = {}
    for left in ("", *many):
        kept = [(many[source] ** -0.25, row) for source, row in rows if source != left]
        matrix = np.array([[weight, *(weight * share for share in row[1:])] for weight, row in kept])
        sizes = np.array([weight * abs(row[0]) for weight, row in kept])
        told[left] = [float(f"{each:.4g}") for each in nnls(matrix, sizes)[0]]
    return told


def loss(known: Sequence[Row], calibration: Calibration) -> float:
    """Robust weighted error of the rows plus the pull of the ranges."""
    size = np.abs(_spread(known) @ _errors(known, calibration))
    robust = np.where(size < HUBER, size**2, 2 * HUBER * size - HUBER**2)
    pull = 0.0
    for name, (low, high) in RANGES.items():
        middle, half = math.log(low * high) / 2, math.log(high / low) / 2
        pull += PULL * HUBER**2 * ((math.log(constant(calibration, name)) - middle) / half) ** 2
    return float(np.tile([row.weight for row in known], 2) @ robust) + pull


def _spread(known: Sequence[Row]) -> Floats:
    """(2 R, R): the errors themselves, then ``ORDER`` times their differences from the mean of their comparison."""
    keys = [comparison_key(row.case) for row in known]
    groups: dict[object, list[int]] = {}
    for index, key in enumerate(keys):
        groups.setdefault(key, []).append(index)
    mean = np.zeros((len(keys), len(keys)))
    for members in groups.values():
        mean[np.ix_(members, members)] = 1 / len(members)
    same = np.eye(len(keys))
    return np.vstack([same, ORDER * (same - mean)])


def _errors(known: Sequence[Row], calibration: Calibration) -> Floats:
    return np.array([row.error(calibration) for row in known], dtype=np.float64)
