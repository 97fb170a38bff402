"""Where a measured step is expected to lie around a printed one: intervals from rows that were held out of the fit.

``held_out.json`` has, by family and source, the logarithms of measured over predicted steps. Of sources that the
constants were fitted to, each was predicted with constants fitted without it (``benchmarks/intervals.py`` makes the
file). An interval is a split-conformal one of the sizes of these logarithms (Lei et al. 2018, section 2.2).

Families: dense models in one place, by software with fused attention (as every answer is unless rows say otherwise) or
that of 2021; several places under NCCL; hippo's executor and torch over several places as emulated, where nobody
trained on GPUs: the error of one place and that of the emulated links are then taken to be independent and to add up.
Mixtures of experts, GPUs that nobody measured and layers that the user measured have no family, and what no runtime
does has no interval.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hippo.cost.calibration import CALIBRATION, RANGES, constant, uncalibrated
from hippo.plan.plan import Plan
from hippo.problem.model import Model
from hippo.problem.problem import Problem
from hippo.simulate.fast import step_time
from hippo.simulate.lower import lower

Floats = NDArray[np.float64]
Residuals = Mapping[str, Sequence[float]]
"""Logarithms of measured over predicted steps, by source."""

LEVEL = 0.9
FUSED, UNFUSED, NCCL, EMULATED, RUN = "fused", "unfused", "nccl", "emulated", "run"
TOLD: Mapping[str, str] = MappingProxyType(
    {
        FUSED: "one place, fused attention",
        UNFUSED: "one place, attention as of 2021",
        NCCL: "several places under NCCL",
        EMULATED: "emulated links",
        RUN: "emulated links, told by the run itself",
    }
)
"""The families, and in words what their rows are."""


@dataclass(frozen=True)
class StepInterval:
    """Between which seconds 90 of 100 measured steps lie, by rows like this one."""

    low_s: float
    high_s: float
    of: str  # whose errors, in words
    rows: int
    sources: int
    assumed: bool = False  # what carries the messages was never measured alone


def interval_document(found: StepInterval | None) -> dict[str, object]:
    """``step_time_interval_s`` and whose errors it rests on; both null where there is no interval."""
    if found is None:
        return {"step_time_interval_s": None, "interval_of": None}
    return {
        "step_time_interval_s": [found.low_s, found.high_s],
        "interval_of": {"level": LEVEL, "family": found.of, "rows": found.rows, "sources": found.sources},
    }


def interval_of(problem: Problem, plan: Plan, step_time_s: float, *, in_one_place: bool = False) -> StepInterval | None:
    """The interval of a printed step, or None: no family holds it. ``in_one_place``: whatever runtime runs it."""
    places = len(plan.domains)
    if problem.runtime == "ideal" and not (in_one_place and places == 1):
        return None
    if has_experts(problem.model) or problem.profile is not None or uncalibrated(problem) is not None:
        return None
    there, over_nccl = one_place(problem), problem.runtime in ("megatron", "deepspeed")
    names = (there,) if places == 1 else (NCCL,) if over_nccl else (there, EMULATED)
    return interval_around(step_time_s, names, assumed=places > 1 and over_nccl)


def interval_around(step_time_s: float, names: tuple[str, ...], *, assumed: bool = False) -> StepInterval:
    """The interval of a step whose errors are those of these families, independent of each other."""
    width = float(np.exp(half_width(names)))
    parts = [family(name) for name in names]
    return StepInterval(
        step_time_s / width,
        step_time_s * width,
        " and ".join(TOLD[name] for name in names),
        sum(len(rows) for part in parts for rows in part.values()),
        sum(map(len, parts)),
        assumed,
    )


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
    """The file of what was held out: ``constants``, ``without`` and ``residuals``."""
    text = resources.files("hippo.score").joinpath("held_out.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def family(name: str, without: str | None = None) -> Residuals:
    """The residuals that an interval of a family rests on, ``without`` one of its sources."""
    known: Mapping[str, Sequence[float]] = held_out()["residuals"][name]
    return {source: rows for source, rows in known.items() if source != without}


def left_out(name: str) -> list[tuple[str, bool, float]]:
    """Of each row of a family: its source, whether the interval made without that source holds it, the half-width."""
    found = []
    for source, rows in family(name).items():
        others = sizes(family(name, without=source))
        width = conformal(others, len(others))
        found += [(source, abs(row) <= width, float(np.sinh(width))) for row in rows]
    return found


@cache
def half_width(names: tuple[str, ...]) -> float:
    """Of the interval of one family, or of the sum of independent ones; in the logarithm of the step."""
    parts = [np.concatenate([np.asarray(rows) for rows in family(name).values()]) for name in names]
    total = parts[0]
    for part in parts[1:]:
        total = np.add.outer(total, part).ravel()
    return conformal(np.abs(total), min(map(len, parts)))


def sizes(residuals: Residuals) -> Floats:
    """Sizes of all rows, (n,)."""
    found: Floats = np.abs(np.concatenate([np.asarray(rows, dtype=np.float64) for rows in residuals.values()]))
    return found


def conformal(values: Floats, rows: int, level: float = LEVEL) -> float:
    """The least of the sizes that holds ``level`` of ``rows`` known rows and one more, which may lie anywhere; inf:
    there are too few."""
    share = level * (rows + 1) / rows
    return float("inf") if share > 1 else float(np.quantile(values, share, method="inverted_cdf"))


def coverage() -> dict[str, dict[str, object]]:
    """By family: rows, the share that intervals made without their source hold, half-widths as shares of the step."""
    told: dict[str, dict[str, object]] = {}
    for name in TOLD:
        found = left_out(name)
        told[name] = {
            "of": TOLD[name],
            "rests_on": "assumed" if name == NCCL else "emulated" if name == EMULATED else "measured",
            "sources": len({source for source, _, _ in found}),
            "rows": len(found),
            "covered": sum(inside for _, inside, _ in found) / len(found),
            "half_width_left_out": float(np.median([width for _, _, width in found])),
            "half_width": float(np.sinh(half_width((name,)))),
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
