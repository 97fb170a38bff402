"""Where a measured step is expected to lie around a printed one: intervals from rows that were held out of the fit.

``held_out.json`` has, by family and source, the logarithms of measured over predicted steps. Of sources that the
constants were fitted to, each was predicted with constants fitted without it (``benchmarks/intervals.py`` makes the
file). An interval is a split-conformal one of the sizes of these logarithms (Lei et al. 2018, section 2.2).

In one place errors are larger where a step hangs on what is known least: launches, small products, collectives. So
sizes are measured in units of an expected size, ``a + sum b[k] share[k]`` with the shares of the step that ``SLOWED``
names, fitted to rows of other sources (section 5.2 there). Over several places an error of the links is added, as if
independent: NCCL's rows are whole steps, or pipelines whose computing was measured, to which one place's errors are
added; for hippo's executor and torch the links are emulated, as nobody trained there on GPUs. Mixtures of experts are a
family of their own, of which a model is left out at a time. Linear attention, GPUs that nobody measured and layers that
the user measured have no family, and what no runtime does has no interval.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib import resources
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hippo.cost.calibration import CALIBRATION, RANGES, Calibration, constant, uncalibrated
from hippo.cost.cost_model import CostModel
from hippo.plan.plan import Plan
from hippo.problem.model import Model
from hippo.problem.problem import Problem
from hippo.simulate.fast import step_time
from hippo.simulate.lower import lower

Floats = NDArray[np.float64]

LEVEL = 0.9
FUSED, UNFUSED, NCCL, NCCL_LINKS, EMULATED, RUN = "fused", "unfused", "nccl", "nccl-links", "emulated", "run"
EXPERTS = "experts"
RESTS_ON = MappingProxyType({NCCL: "assumed", NCCL_LINKS: "assumed", EMULATED: "emulated", RUN: "emulated"})
"""What the rows of a family are but measured on what they are used for."""
ONE_PLACE = "one place"
IN_ONE_PLACE = (FUSED, UNFUSED)
"""Families whose rows have shares beside their error, and one way to expect its size."""
TOLD: Mapping[str, str] = MappingProxyType(
    {
        FUSED: "one place, fused attention",
        UNFUSED: "one place, attention as of 2021",
        EXPERTS: "one place, mixtures of experts",
        NCCL: "several places under NCCL",
        NCCL_LINKS: "several places under NCCL, computing measured",
        EMULATED: "emulated links",
        RUN: "emulated links, told by the run itself",
    }
)
"""The families, and in words what their rows are."""
SLOWED: Mapping[str, Mapping[str, int]] = MappingProxyType(
    {
        "launches": MappingProxyType({"launch_s": 1}),
        "small products": MappingProxyType({"tile_halving": -1, "k_half": 1}),
        "collectives": MappingProxyType({"bus_efficiency_intra": -1, "bus_efficiency_inter": -1, "latency_intra_s": 1}),
    }
)
"""What the error of a step in one place grows with: by its name the constants of it, 1: the larger the slower."""
DIFFERENCE = 0.02  # of the logarithm of the constants, for the shares


@dataclass(frozen=True)
class StepInterval:
    """Between which seconds 90 of 100 measured steps lie, by rows like this one."""

    low_s: float
    high_s: float
    of: str  # whose errors, in words
    rows: int
    sources: int
    only_if: str | None = None  # what nobody measured must be so: "links fill"


def interval_document(found: StepInterval | None) -> dict[str, object]:
    """``step_time_interval_s`` and whose errors it rests on; both null where there is no interval."""
    if found is None:
        return {"step_time_interval_s": None, "interval_of": None}
    return {
        "step_time_interval_s": [found.low_s, found.high_s],
        "interval_of": {
            "level": LEVEL,
            "family": found.of,
            "rows": found.rows,
            "sources": found.sources,
            "only_if": found.only_if,
        },
    }


@dataclass(frozen=True)
class ErrorsOfSteps:
    """Errors that a step may have, each as likely as its weight. n errors."""

    logs: Floats  # (n,) of measured over printed
    weights: Floats  # (n,) how many of ``rows`` each stands for
    rows: int  # that were measured
    sources: int

    def plus(self, other: ErrorsOfSteps) -> ErrorsOfSteps:
        """Of a step with both, if they are independent; no surer than the fewer rows allow."""
        weights = np.outer(self.weights / self.weights.sum(), other.weights / other.weights.sum()).ravel()
        fewer = min(self.weights.sum(), other.weights.sum())
        logs = np.add.outer(self.logs, other.logs).ravel()
        return ErrorsOfSteps(logs, weights * fewer, self.rows + other.rows, self.sources + other.sources)

    def half_width(self, level: float = LEVEL) -> float:
        """The least size that holds ``level`` of the errors and of one more, which may lie anywhere, in the logarithm
        of the step; inf: there are too few."""
        total = float(self.weights.sum())
        needed = level * (total + 1) - 1e-9
        if needed > total:
            return float("inf")
        order = np.argsort(np.abs(self.logs), kind="stable")
        return float(np.abs(self.logs)[order[np.searchsorted(np.cumsum(self.weights[order]), needed)]])


def interval_of(problem: Problem, plan: Plan, step_time_s: float, *, in_one_place: bool = False) -> StepInterval | None:
    """The interval of a printed step, or None: no family holds it. ``in_one_place``: whatever runtime runs it."""
    places = len(plan.domains)
    if problem.runtime == "ideal" and not (in_one_place and places == 1):
        return None
    if problem.model.has_linear_attention or problem.profile is not None or uncalibrated(problem) is not None:
        return None
    inside, told = errors_in_one_place(_size_in_use(problem, plan)), ONE_PLACE
    if has_experts(problem.model):
        if one_place(problem) != FUSED:
            return None
        inside, told = errors_of(EXPERTS), TOLD[EXPERTS]
    if places == 1:
        return _around(step_time_s, inside, told)
    if problem.runtime in ("megatron", "deepspeed"):
        experts = has_experts(problem.model)  # the whole steps over a WAN are of dense models
        over = errors_of(NCCL_LINKS).plus(inside) if experts else errors_over_nccl(inside)
        links = TOLD[NCCL_LINKS if experts else NCCL]
        return _around(step_time_s, over, f"{told} and {links}", only_if="links fill")
    return _around(step_time_s, inside.plus(errors_of(EMULATED)), f"{told} and {TOLD[EMULATED]}")


def run_interval(step_time_s: float) -> StepInterval:
    """The interval of what a run over emulated links says of its own steps."""
    return _around(step_time_s, errors_of(RUN), TOLD[RUN])


def _around(step_time_s: float, known: ErrorsOfSteps, of: str, *, only_if: str | None = None) -> StepInterval:
    width = float(np.exp(known.half_width()))
    return StepInterval(step_time_s / width, step_time_s * width, of, known.rows, known.sources, only_if)


@lru_cache(maxsize=256)
def _size_in_use(problem: Problem, plan: Plan) -> float:
    """Of the error of a plan: a report asks for the same one several times."""
    return expected_size(shares_slowed(problem, plan, CALIBRATION))


def shares_slowed(problem: Problem, plan: Plan, calibration: Calibration) -> tuple[float, ...]:
    """By how many per cent the step grows when what ``SLOWED`` names gets one per cent slower, in its order."""
    found = []
    base_s = step_time(lower(problem, plan, cost=CostModel(problem, calibration)))
    for constants in SLOWED.values():
        slower: dict[str, Any] = {
            name: getattr(calibration, name) * float(np.exp(way * DIFFERENCE)) for name, way in constants.items()
        }
        seconds = step_time(lower(problem, plan, cost=CostModel(problem, replace(calibration, **slower))))
        found.append(max(0.0, float(np.log(seconds / base_s)) / DIFFERENCE))
    return tuple(found)


def expected_size(shares: Sequence[float], without: str = "") -> float:
    """Of the error of a step in one place with these shares, by rows of other sources."""
    always, *each = held_out()["sizes"][without]
    return float(always + np.dot(each, shares))


def one_place(problem: Problem) -> str:
    """The family of a plan in one place."""
    return UNFUSED if problem.workload.software.attention == "unfused" else FUSED


def has_experts(model: Model) -> bool:
    """Whether a layer is a mixture of experts."""
    return any(
        layer.feed_forward is not None and layer.feed_forward.experts is not None for layer in model.distinct_layers
    )


@cache
def held_out() -> Mapping[str, Any]:
    """The file of what was held out: ``constants``, ``without``, ``sizes`` and ``residuals``."""
    text = resources.files("hippo.score").joinpath("held_out.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def errors_of(name: str, without: str = "") -> ErrorsOfSteps:
    """The errors of a family over several places, ``without`` one of its sources."""
    known: Mapping[str, Sequence[float]] = held_out()["residuals"][name]
    logs = [np.asarray(rows, dtype=np.float64) for source, rows in known.items() if source != without]
    together = np.concatenate(logs) if logs else np.zeros(0)
    return ErrorsOfSteps(together, np.ones(len(together)), len(together), len(logs))


def errors_in_one_place(size: float | None = None, without: str = "") -> ErrorsOfSteps:
    """The errors in one place of a step whose error is expected to have this size; None: those of the rows."""
    rows = [row for name in IN_ONE_PLACE for row in _with_shares(name) if row[0] != without]
    scales = [1.0 if size is None else size / expected_size(shares, without) for _, _, shares in rows]
    logs = np.array([error * scale for (_, error, _), scale in zip(rows, scales, strict=True)])
    return ErrorsOfSteps(logs, np.ones(len(rows)), len(rows), len({source for source, _, _ in rows}))


def errors_over_nccl(inside: ErrorsOfSteps, without: str = "") -> ErrorsOfSteps:
    """The errors over several places under NCCL: of whole steps, and of links with those ``inside`` one place."""
    whole, links = errors_of(NCCL, without), errors_of(NCCL_LINKS, without).plus(inside)
    logs, weights = np.concatenate([whole.logs, links.logs]), np.concatenate([whole.weights, links.weights])
    return ErrorsOfSteps(logs, weights, whole.rows + links.rows, whole.sources + links.sources)


def _with_shares(name: str) -> list[tuple[str, float, list[float]]]:
    """Rows of a family in one place: source, error, shares."""
    known: Mapping[str, list[list[float]]] = held_out()["residuals"][name]
    return [(source, row[0], row[1:]) for source, rows in known.items() for row in rows]


def left_out(name: str) -> list[tuple[str, float, float]]:
    """Of each row of a family: its source, whether the interval made without that source holds it, the half-width.

    A pipeline whose computing was measured counts with each error of one place, and as the share of those held.
    """
    if name in IN_ONE_PLACE:
        widths = {source: errors_in_one_place(1.0, source).half_width() for source, _, _ in _with_shares(name)}
        sized = [(*row, widths[row[0]] * expected_size(row[2], row[0])) for row in _with_shares(name)]
        return [(source, float(abs(error) <= width), float(np.sinh(width))) for source, error, _, width in sized]
    inside, found = errors_in_one_place(), []
    for source, rows in held_out()["residuals"][name].items():
        over_nccl = name in (NCCL, NCCL_LINKS)
        width = (errors_over_nccl(inside, source) if over_nccl else errors_of(name, source)).half_width()
        beside = inside.logs if name == NCCL_LINKS else np.zeros(1)
        found += [(source, float((np.abs(row + beside) <= width).mean()), float(np.sinh(width))) for row in rows]
    return found


def usual_size(name: str) -> float:
    """That an error of a family in one place is expected to have, the median of its rows."""
    return float(np.median([expected_size(shares) for _, _, shares in _with_shares(name)]))


def usual_half_width(name: str) -> float:
    """Of the printed intervals of a family's rows, the median; as a share of the step."""
    if name in IN_ONE_PLACE:
        known = errors_in_one_place(usual_size(name))
    else:
        known = errors_over_nccl(errors_in_one_place()) if name in (NCCL, NCCL_LINKS) else errors_of(name)
    return float(np.sinh(known.half_width()))


def coverage() -> dict[str, dict[str, object]]:
    """By family: rows, the share that intervals made without their source hold, half-widths as shares of the step."""
    told: dict[str, dict[str, object]] = {}
    for name in TOLD:
        found = left_out(name)
        told[name] = {
            "of": TOLD[name],
            "rests_on": RESTS_ON.get(name, "measured"),
            "sources": len({source for source, _, _ in found}),
            "rows": len(found),
            "covered": sum(inside for _, inside, _ in found) / len(found),
            "half_width_left_out": float(np.median([width for _, _, width in found])),
            "half_width": usual_half_width(name),
        }
    return told


def fitted_to() -> list[dict[str, object]]:
    """Each fitted constant: its value, its range, what it is without one source, and the rows that it moves."""
    document = held_out()
    told: list[dict[str, object]] = []
    for at, (name, moved) in enumerate(document["moves"].items()):
        without = {source: values[at] for source, values in document["without"].items()}
        told.append(
            {
                "constant": name,
                "value": constant(CALIBRATION, name),
                "plausible": list(RANGES[name]),
                "without_one_source": [min(without.values()), max(without.values())],
                "rows": sum(moved.values()),
                "sources": dict(moved),
            }
        )
    return told


@dataclass(frozen=True)
class Span:
    """The step at both ends of what is assumed of a runtime over a WAN, in seconds, and what each end takes."""

    fast_s: float
    slow_s: float
    fast: str
    slow: str


def span_document(found: Span | None) -> dict[str, object]:
    """``assumed_span_s``, quick end first, and what its ends are; both null where nothing assumed touches the step."""
    if found is None:
        return {"assumed_span_s": None, "assumed_span_of": None}
    return {"assumed_span_s": [found.fast_s, found.slow_s], "assumed_span_of": [found.fast, found.slow]}


def assumed_span(problem: Problem, plan: Plan) -> Span | None:
    """The plan played at both ends of what is assumed of its runtime; None where nothing assumed touches it."""
    ends = problem.rules.ends
    if not ends or len(plan.domains) < 2:
        return None
    slow_s, fast_s = (
        step_time(lower(replace(problem, runtime=f"{problem.runtime}:{side}"), plan)) for side in ("slow", "fast")
    )
    return Span(min(fast_s, slow_s), max(fast_s, slow_s), ends[1].told, ends[0].told)


@dataclass(frozen=True)
class PrintedStep:
    """Seconds of a step as they are printed, and how far measured ones may lie from them."""

    step_time_s: float
    interval: StepInterval | None
    span: Span | None

    def document(self) -> dict[str, object]:
        """``step_time_s`` and the keys of the interval and of what is assumed."""
        return {"step_time_s": self.step_time_s, **interval_document(self.interval), **span_document(self.span)}


def printed_step(problem: Problem, plan: Plan, step_time_s: float) -> PrintedStep:
    """A printed step of a plan with its interval and the ends of what is assumed."""
    return PrintedStep(step_time_s, interval_of(problem, plan, step_time_s), assumed_span(problem, plan))
