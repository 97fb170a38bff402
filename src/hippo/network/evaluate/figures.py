"""What an evaluation says of runs on one world: the figures of every method, its epochs, and the requirements.

Every figure is derived from runs that ``network.rules.move`` played; keys are those of docs/networks.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

import numpy as np

from hippo.cost.calibration import uncalibrated
from hippo.network.rules.move import DOWNTIME_S, EGRESS_USD, MOVED_BYTES, TOKENS
from hippo.network.worlds.judge import Comparison
from hippo.network.worlds.play import MethodRun
from hippo.plan.codec import plan_to_document
from hippo.problem.problem import told_runtime
from hippo.score.interval import PrintedStep, printed_step

Document = dict[str, Any]


def world_document(judged: Comparison, methods: Sequence[str], *, baseline: str, begin_s: float = 0.0) -> Document:
    """The document of one world: ``methods``, ``plans``, ``kpis``, what the world is and ``uncalibrated``.

    ``baseline``: the run that rewards and requirements are measured against. ``begin_s``: time of the first epoch.
    """
    plans = sorted({index for name in methods for index in judged.places[name].values()})
    place = {index: at for at, index in enumerate(plans)}
    base, world = judged.runs[baseline], judged.world
    configurations = [judged.cache.configurations[index] for index in plans]
    printed = {
        index: printed_step(world.problem, each.plan, judged.cache.score(index).step_time_s)
        for index, each in zip(plans, configurations, strict=True)
    }
    return {
        "world": {
            "name": world.name,
            "model": world.problem.model.name,
            "cluster": world.problem.cluster.name,
            "epochs": world.epochs,
            "epoch_s": world.epoch_s,
            "usd_per_token": judged.terms.usd_per_token,
            "weights": list(judged.terms.weights),
            "gain": finite(judged.gain),
        },
        "methods": {
            name: _method(judged, name, place, base, begin_s) | {"step_time_interval_s": _around(judged, name, printed)}
            for name in methods
        },
        "plans": [
            {**_plan(judged, index), "origin": each.origin, "lever": each.lever, **printed[index].document()}
            for index, each in zip(plans, configurations, strict=True)
        ],
        "kpis": {"baseline": baseline} | {name: kpis(judged.runs[name], base) for name in methods},
        "uncalibrated": uncalibrated(world.problem),
        **told_runtime(world.problem),
    }


def _plan(judged: Comparison, index: int) -> Document:
    """A plan without its problem, which is that of the world."""
    document = plan_to_document(judged.world.problem, judged.cache.configurations[index].plan)
    del document["problem"]
    return document


def _method(judged: Comparison, name: str, place: Mapping[int, int], base: MethodRun, begin_s: float) -> Document:
    run, own = judged.runs[name], judged.places[name]
    epochs = [
        {
            "time_s": begin_s + epoch * judged.world.epoch_s,
            "plan": place[own[int(running)]],
            "moved_bytes": float(gave[MOVED_BYTES]),
            "downtime_s": float(gave[DOWNTIME_S]),
            "tokens": float(gave[TOKENS]),
            "egress_usd": float(gave[EGRESS_USD]),
        }
        for epoch, (running, gave) in enumerate(zip(run.running, run.gave, strict=True))
    ]
    return figures(judged, name, base) | {"epochs": epochs}


def _around(judged: Comparison, name: str, printed: Mapping[int, PrintedStep]) -> list[float] | None:
    """Where nine of ten measured means of a run's steps are expected: the widest of the intervals of what ran."""
    run, own = judged.runs[name], judged.places[name]
    ran = [printed[own[int(index)]] for index in np.unique(run.running)]
    around = [
        (each.interval.low_s / each.step_time_s, each.interval.high_s / each.step_time_s)
        for each in ran
        if each.interval is not None
    ]
    if len(around) < len(ran) or not isfinite(run.step_time_s):
        return None
    return [run.step_time_s * min(low for low, _ in around), run.step_time_s * max(high for _, high in around)]


def figures(judged: Comparison, name: str, base: MethodRun) -> Document:
    """The figures of one run; None where there is nothing to say (no step was made, nothing to capture)."""
    run = judged.runs[name]
    decided_s = run.decision_s[1:] if len(run.decision_s) > 1 else run.decision_s  # to begin takes planning
    return {
        "reward": reward(run, base),
        "work": run.work,
        "of_hindsight": judged.of_hindsight(name),
        "captured": judged.captured(name),
        "step_time_s": finite(run.step_time_s),
        "utilization": run.utilization,
        "utilization_all": run.utilization_all,
        "egress_usd": run.egress_usd,
        "moves": run.moves,
        "levers": run.levers,
        "decision_ms_p50": 1e3 * float(np.percentile(decided_s, 50)),
        "decision_ms_p99": 1e3 * float(np.percentile(decided_s, 99)),
    }


def reward(run: MethodRun, base: MethodRun) -> float | None:
    """``w1 R_eff + w2 R_util - w3 R_cost`` of a run against that of a baseline (``score.score.reward``, over a run)."""
    parts: tuple[float | None, ...] = (kpis(run, base)["training_time"], run.utilization, _cost(run, base))
    total = 0.0
    for sign, weight, part in zip((-1.0, 1.0, -1.0), run.terms.weights, parts, strict=True):
        if weight and part is None:
            return None
        total += sign * weight * (part or 0.0)
    return total


def _cost(run: MethodRun, base: MethodRun) -> float | None:
    """Egress per token over that of the baseline; the whole price where that has none, as for a plan."""
    tokens, of_base = (float(each.gave[:, TOKENS].sum()) for each in (run, base))
    if not tokens or not of_base:
        return None
    measure = base.egress_usd or base.cache.rent_usd_per_s * base.seconds
    return (run.egress_usd / tokens) / (measure / of_base)


def kpis(run: MethodRun, base: MethodRun) -> Document:
    """Change against a baseline: ``training_time``, ``utilization`` (of the domains in use), ``utilization_all`` (of
    all) and ``egress`` for the same tokens, each relative (-0.25: a quarter less; None: the baseline has nothing to
    compare with); the rest absolute."""
    per_token = [each.egress_usd / max(float(each.gave[:, TOKENS].sum()), 1e-300) for each in (run, base)]
    times = run.step_time_s, base.step_time_s
    return {
        "training_time": finite(times[0] / times[1] - 1.0) if isfinite(times[1]) else None,
        "utilization": finite(run.utilization / base.utilization - 1.0) if base.utilization > 0 else None,
        "utilization_all": finite(run.utilization_all / base.utilization_all - 1.0) if base.utilization > 0 else None,
        "egress": finite(per_token[0] / per_token[1] - 1.0) if base.egress_usd > 0 else None,
        "utilization_absolute": run.utilization,
        "utilization_all_absolute": run.utilization_all,
        "interrupted": run.downtime_share,
    }


def finite(value: float | None) -> float | None:
    """The value where it is a number, else None: JSON has no infinity."""
    return value if value is not None and isfinite(value) else None
