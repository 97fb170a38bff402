"""Where a measured step is expected to lie around a printed one: intervals from rows that were held out of the fit.

``held_out.json`` has, by family and source, the logarithms of measured over predicted steps. Of sources that the
constants were fitted to, each was predicted with constants fitted without it (``benchmarks/intervals.py`` makes the
file). An interval is a split-conformal one (Lei et al. 2018, algorithm 2) of these logarithms: rows of a source weigh
together the root of their number, as in the fit, and one more row, of a source that nobody saw, counts as outside.

Families: dense models in one place by the GPU's generation; several places under NCCL; hippo's executor and torch over
several places as emulated, where nobody trained on GPUs: the error of the GPUs and that of the emulated links are then
taken to be independent and to add up. Mixtures of experts, GPUs that nobody measured and layers that the user measured
have no family, and what no runtime does has no interval.
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

from hippo.cost.calibration import CALIBRATION, RANGES, constant
from hippo.plan.plan import Plan
from hippo.problem.model import Model
from hippo.problem.problem import Problem
from hippo.simulate.fast import step_time
from hippo.simulate.lower import lower

Floats = NDArray[np.float64]
Residuals = Mapping[str, Sequence[float]]
"""Logarithms of measured over predicted steps, by source."""

LEVEL = 0.9
LEAST_SOURCES = 3
"""A generation that fewer sources measured takes the rows of all generations."""

NCCL, EMULATED = "nccl", "emulated"
_TOLD = {
    NCCL: "NCCL between places",
    EMULATED: "emulated links",
    "ampere": "A100",
    "hopper": "H100",
    "blackwell": "B200 and its kin",
}
GENERATIONS: Mapping[str, str] = MappingProxyType(
    {"ampere": "ampere", "hopper": "hopper", "blackwell": "blackwell", "blackwell-ultra": "blackwell"}
)


@dataclass(frozen=True)
class Interval:
    """Between which seconds 90 of 100 measured steps lie, by rows like this one."""

    low_s: float
    high_s: float
    of: str  # whose errors, in words
    rows: int
    sources: int
    assumed: bool = False  # what carries the messages was never measured alone

    def document(self) -> dict[str, object]:
        """``step_time_interval_s`` and whose errors it rests on."""
        return {
            "step_time_interval_s": [self.low_s, self.high_s],
            "interval_of": {"level": LEVEL, "family": self.of, "rows": self.rows, "sources": self.sources},
        }


NO_INTERVAL: Mapping[str, object] = MappingProxyType({"step_time_interval_s": None, "interval_of": None})


def interval_of(problem: Problem, plan: Plan, step_time_s: float, *, in_one_place: bool = False) -> Interval | None:
    """The interval of a printed step time, or None: no family holds it. ``in_one_place``: whatever runtime runs it."""
    places = len(plan.domains)
    if problem.runtime == "ideal" and not (in_one_place and places == 1):
        return None
    generation = GENERATIONS.get(problem.cluster.gpu.family)
    if (
        has_experts(problem.model)
        or problem.profile is not None
        or generation is None
        or not CALIBRATION.generations[generation].measured
    ):
        return None
    over_nccl = problem.runtime in ("megatron", "deepspeed")
    names = (generation,) if places == 1 else (NCCL,) if over_nccl else (generation, EMULATED)
    width = half_width(names)
    parts = [family(name) for name in names]
    return Interval(
        step_time_s / float(np.exp(width)),
        step_time_s * float(np.exp(width)),
        " and ".join(_TOLD[name] for name in names),
        sum(len(rows) for part in parts for rows in part.values()),
        sum(map(len, parts)),
        assumed=places > 1 and over_nccl,
    )


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
    known: Mapping[str, Mapping[str, Residuals]] = held_out()["residuals"]

    def left(of: str) -> dict[str, Sequence[float]]:
        return {source: rows for source, rows in known[of].items() if source != without}

    found = left(name)
    if name not in (NCCL, EMULATED) and len(found) < LEAST_SOURCES:
        generations = dict.fromkeys(GENERATIONS.values())
        found = {f"{source}, {each}": rows for each in generations for source, rows in left(each).items()}
    return found


def left_out(name: str) -> list[tuple[str, bool, float]]:
    """Of each row of a family: its source, whether the interval made without that source holds it, the half-width."""
    found = []
    for source, rows in held_out()["residuals"][name].items():
        values, weights = weighed(family(name, without=source))
        width = conformal(values, weights, 1.0 / len(values))
        found += [(source, abs(row) <= width, float(np.sinh(width))) for row in rows]
    return found


@cache
def half_width(names: tuple[str, ...]) -> float:
    """Of the interval of one family, or of the sum of independent ones; in the logarithm of the step."""
    values, weights = weighed(family(names[0]))
    for name in names[1:]:
        more, theirs = weighed(family(name))
        values = np.add.outer(values, more).ravel()
        weights = np.multiply.outer(weights, theirs).ravel()
    return conformal(values, weights, 1.0 / len(values))


def weighed(residuals: Residuals) -> tuple[Floats, Floats]:
    """Residuals and their weights, which sum to 1: rows of a source weigh together the root of their number."""
    values = np.concatenate([np.asarray(rows, dtype=np.float64) for rows in residuals.values()])
    weights = np.concatenate([np.full(len(rows), len(rows) ** -0.5) for rows in residuals.values()])
    return values, weights / weights.sum()


def conformal(values: Floats, weights: Floats, beyond: float, level: float = LEVEL) -> float:
    """The least size that ``level`` of the weight stays within, when a weight ``beyond`` is outside any; inf: none."""
    sizes = np.abs(values)
    order = np.argsort(sizes, kind="stable")
    reached = np.cumsum(weights[order]) / (weights.sum() + beyond)
    enough = np.flatnonzero(reached >= level - 1e-12)
    return float(sizes[order][enough[0]]) if len(enough) else float("inf")


def coverage() -> dict[str, dict[str, object]]:
    """By family: rows, the share that intervals made without their source hold, half-widths as shares of the step."""
    told: dict[str, dict[str, object]] = {}
    for name in held_out()["residuals"]:
        found = left_out(name)
        told[name] = {
            "of": _TOLD[name],
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

    def document(self) -> dict[str, object]:
        """``assumed_span_s``, quick end first, and what its ends are."""
        return {"assumed_span_s": [self.fast_s, self.slow_s], "assumed_span_of": [self.fast, self.slow]}


NO_SPAN: Mapping[str, object] = MappingProxyType({"assumed_span_s": None, "assumed_span_of": None})


def assumed_span(problem: Problem, plan: Plan) -> Span | None:
    """The plan played at both ends of what is assumed of its runtime; None where nothing assumed touches it."""
    ends = problem.rules.ends
    if not ends or len(plan.domains) < 2:
        return None
    slow_s, fast_s = (
        step_time(lower(replace(problem, runtime=f"{problem.runtime}:{side}"), plan)) for side in ("slow", "fast")
    )
    return Span(min(fast_s, slow_s), max(fast_s, slow_s), ends[1].told, ends[0].told)
