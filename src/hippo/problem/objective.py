"""What "good" means: weights of the reward and the constraints of spec A9."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Objective:
    """R = w1 R_eff + w2 R_util - w3 R_cost (design, section 3), or its two corners ``time`` and ``cost``."""

    name: str = "time"  # "time": step time; "cost": usd per step; "weighted": the reward
    w_eff: float = 1.0
    w_util: float = 0.0
    w_cost: float = 0.0
    balance_delta: float | None = None  # (max T_k - min T_k) / mean <= delta; None: not asked
    bandwidth_floor_bytes_per_s: float | None = None  # cuts on slower links are barred; None: not asked
