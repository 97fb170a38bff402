"""Rows of a suite as they would be, small enough to add up by hand."""

from __future__ import annotations

from typing import Any

Row = dict[str, Any]


def figures(work: float, best: float, static: float, *, worth: bool) -> Row:
    """A method's figures in a row."""
    return {
        "reward": 0.1,
        "work": work,
        "of_hindsight": work / best,
        "captured": (work - static) / (best - static) if worth else None,
        "of_static": work / static,
        "step_time_s": 1.0,
        "utilization": 0.5,
        "egress_usd": 1.0,
        "moves": 1,
        "interrupted": 0.01,
        "tokens": work,
        "decision_ms_p50": 1.0,
        "decision_ms_p99": 2.0,
        "times_ms": [1.0, 3.0],
        "t_coord_s": [0.5, 30.5],
    }


def world(family: str, seed: int, work: dict[str, float], *, part: str = "main", domains: int = 4) -> Row:
    """A row of one world."""
    best, static = work["hindsight"], work["static"]
    worth = best >= 1.03 * static
    return {
        "part": part,
        "family": family,
        "seed": seed,
        "cpu_s": 1.0,
        "world": f"{family}-{seed}",
        "domains": domains,
        "gain": best / static - 1.0,
        "worth_capturing": worth,
        "timed": seed == 0,
        "methods": {name: figures(each, best, static, worth=worth) for name, each in work.items()},
    }


def rows() -> list[Row]:
    """Two worlds worth it, one not; planners kept, movement, load, a front, many domains, one ablation."""
    one = {"hindsight": 100.0, "static": 80.0, "static_levers": 90.0, "receding_horizon": 92.0, "hi_ppo": 98.0}
    two = {"hindsight": 200.0, "static": 100.0, "static_levers": 180.0, "receding_horizon": 190.0, "hi_ppo": 196.0}
    calm = {"hindsight": 101.0, "static": 100.0, "static_levers": 100.5, "receding_horizon": 99.0, "hi_ppo": 100.0}
    found = [
        world("ou3", 0, one | {"no_verification": 96.0}),
        world("ou3", 1, two),
        world("compute_bound", 0, calm),
        world("large", 0, one, part="large", domains=16),
    ]
    change = {
        "training_time": -0.5,
        "utilization": 1.0,
        "utilization_all": 0.1,
        "egress": -1.0,
        "utilization_absolute": 0.9,
        "utilization_all_absolute": 0.3,
        "interrupted": 0.0,
    }
    found[0]["held"] = {"even": change, "mast": change | {"egress": None}}
    found[1]["held"] = {"even": change | {"training_time": -0.75}}
    for swing, work in ((0.0, 100.0), (0.3, 97.0)):
        base = {"part": "movement", "family": "ou3", "seed": 0, "cpu_s": 1.0, "world": "w", "swing": swing}
        found.append(base | {"work": {"hindsight": 1.01 * work + 0.2, "hi_ppo": work, "static": work - 10.0}})
    for load, work in (("none", 100.0), ("slows", 94.0), ("evicts", 80.0)):
        base = {"part": "load", "family": "ou3", "seed": 0, "cpu_s": 1.0, "world": "w", "load": load}
        done = {"hindsight": work + (load == "evicts") * 10.0, "hi_ppo": work}
        found.append(base | {"work": done, "interrupted": dict.fromkeys(done, 0.0)})
    front = {
        "covered": 0.5,
        "known": 1.0,
        "proposed": 0.25,
        "held": 0.1,
        "covered_levers": 0.75,
        "points_levers": 4,
        "points": 2,
        "reached": 3,
        "domains": 4,
        "closed": True,
        "world": "w",
    }
    lists = {"front": [[1.0, 2.0, 0.5], [2.0, 0.0, 0.9]], "plans": [[1.0, 2.0, 0.5]]}
    return [*found, {"part": "front", "family": "ou3", "seed": 0, "cpu_s": 1.0} | front | lists]
