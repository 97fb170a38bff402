"""What "good" means: weights of the reward and the constraints."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from hippo.errors import InputError
from hippo.units import bytes_per_s_from_gbps

OBJECTIVES = ("time", "cost", "weighted")


@dataclass(frozen=True)
class Objective:
    """R = w1 R_eff + w2 R_util - w3 R_cost, or its two corners ``time`` and ``cost``."""

    name: str = "time"  # "time": step time; "cost": usd per step; "weighted": the reward
    w_eff: float = 1.0
    w_util: float = 0.0
    w_cost: float = 0.0
    balance_delta: float | None = None  # (max T_k - min T_k) / mean <= delta; None: not asked
    bandwidth_floor_bytes_per_s: float | None = None  # cuts on slower links are barred; None: not asked


def for_time(objective: Objective) -> Objective:
    """The quickest step, under the same constraints: whatever must not move with the weights."""
    return replace(objective, name="time", w_eff=1.0, w_util=0.0, w_cost=0.0)


def objective_from_text(
    text: str,
    *,
    balance_delta: float | None = None,
    bandwidth_floor_gbps: float | None = None,
    source: str = "--objective",
) -> Objective:
    """``time``, ``cost``, or three weights ``W1,W2,W3`` of R_eff, R_util and R_cost, each at least 0 and not all 0."""
    for name, value in (("balance_delta", balance_delta), ("bandwidth_floor_gbps", bandwidth_floor_gbps)):
        if value is not None and not (math.isfinite(value) and value >= 0):
            raise InputError(
                "must be a finite number, not negative", key=name, value=value, remedy="write such a number"
            )
    corners = {"time": (1.0, 0.0, 0.0), "cost": (0.0, 0.0, 1.0)}
    word = text.strip().lower()
    weights = corners[word] if word in corners else _weights(text, source)
    name = word if word in corners else "weighted"
    floor = None if bandwidth_floor_gbps is None else bytes_per_s_from_gbps(bandwidth_floor_gbps)
    return Objective(name, *weights, balance_delta, floor)


def _weights(text: str, source: str) -> tuple[float, float, float]:
    remedy = "write time, cost, or three weights such as 0.5,0.3,0.2"
    try:
        weights = tuple(float(part) for part in text.split(","))
    except ValueError:
        weights = ()
    if len(weights) != 3:
        raise InputError("is not an objective", source=source, value=text, remedy=remedy)
    if not all(math.isfinite(weight) and 0 <= weight <= 1e6 for weight in weights) or not any(weights):
        raise InputError("weights must be finite, not negative, not all 0", source=source, value=text, remedy=remedy)
    return weights[0], weights[1], weights[2]
