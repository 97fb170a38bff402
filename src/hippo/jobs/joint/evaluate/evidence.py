"""What rows of many worlds say together: means of each method, and ratios of methods in the same worlds, with 95 %
intervals over worlds, and over worlds and policies where a method has several. Worlds of one seed (the same jobs and
movements, played where running jobs may be stopped and where they are kept) are one draw: their mean counts once.

Letters: S policies of one method, W worlds, D draws.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hippo.intervals import Interval, interval, quantile

Floats = NDArray[np.float64]
Row = Mapping[str, Any]

MEANS = (
    *("priced_s", "goodput", "mean_completion_s", "p95_completion_s", "deadlines_missed", "fairness", "egress_gb"),
    *("egress_usd", "interruption_s", "fragmentation", "unwanted", "stops", "moves", "cpu_s", "of_bound"),
    *("of_best", "goodput_of_bound"),
)
"""Figures of rows that are averaged."""
RATIOS = ("priced_s", "mean_completion_s", "goodput")
"""Figures of which a method's is divided by a rival's in the same world."""


def crossed(values: Floats) -> Interval | None:
    """Mean and 95 % interval of (S, W) values of S policies in the same W worlds; both are drawn.

    The variance of the mean is that of two crossed random effects (Searle, Linear Models, 1971), (MS of policies + MS
    of worlds - MS of what is left) / (S W), its degrees of freedom Satterthwaite's (1946); it is never taken to be less
    than worlds alone, or policies alone, say. One policy: Student's t over worlds.
    """
    values = values[:, np.isfinite(values).all(axis=0)]
    policies, worlds = values.shape
    if policies == 1 or worlds < 2:
        return interval(values.mean(axis=0).tolist()) if worlds else None
    mean, by_policy, by_world = values.mean(), values.mean(axis=1), values.mean(axis=0)
    left = values - by_policy[:, None] - by_world[None] + mean
    free = np.array([policies - 1, worlds - 1, (policies - 1) * (worlds - 1)])
    squares = np.array([worlds * by_policy.var(ddof=1), policies * by_world.var(ddof=1), (left**2).sum() / free[2]])
    both = squares[0] + squares[1] - squares[2]
    if both > squares[:2].max():
        freedom = both**2 / float((squares**2 / free).sum())
    else:
        both, freedom = float(squares[:2].max()), float(free[int(squares[:2].argmax())])
    half = quantile(max(1, int(freedom))) * float(np.sqrt(both / values.size))
    return Interval(float(mean), float(mean) - half, float(mean) + half, worlds)


def table_of(rows: Sequence[Row], method: str, key: str) -> Floats:
    """(S, W) a figure of a method's policies in all worlds, in the order of the rows; nan: there is none."""
    worlds = list(dict.fromkeys(row["world"] for row in rows))
    policies = list(dict.fromkeys(row["policy"] for row in rows if row["method"] == method))
    found = np.full((len(policies), len(worlds)), np.nan)
    for row in rows:
        value = row.get(key)
        if row["method"] == method and value is not None:
            found[policies.index(row["policy"]), worlds.index(row["world"])] = value
    return found


def by_draw(values: Floats, rows: Sequence[Row]) -> Floats:
    """(S, D) of (S, W) values as ``table_of`` orders them: means over the worlds of a seed, of those that have one."""
    seeds = list({row["world"]: row.get("seed", row["world"]) for row in rows}.values())
    draws = list(dict.fromkeys(seeds))
    of = np.array([draws.index(seed) for seed in seeds], np.int64)
    known = np.isfinite(values)
    found = np.full((len(values), len(draws)), np.nan)
    for draw in range(len(draws)):
        mine = known & (of == draw)
        count = mine.sum(axis=1)
        total = np.where(mine, values, 0.0).sum(axis=1)
        found[:, draw] = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return found


def evidence(rows: Sequence[Row]) -> dict[str, Any]:
    """The document of ``hippo evaluate --world``: ``methods``, ``ratios`` (method -> rival -> figure; below 1 costs
    less), ``best_over_bound`` (what the search found over what nobody can undercut), and the same of each family's
    worlds (``families``) and of those where running jobs may be stopped, or not (``stopping``: yes, no)."""
    families = list(dict.fromkeys(row["family"] for row in rows))
    return {
        **_evidence(rows),
        "families": {each: _evidence([row for row in rows if row["family"] == each]) for each in families},
        "stopping": {
            name: _evidence(some)
            for name, stops in (("yes", True), ("no", False))
            if (some := [row for row in rows if row.get("stops_allowed", True) == stops])
        },
    }


def _evidence(rows: Sequence[Row]) -> dict[str, Any]:
    names = list(dict.fromkeys(row["method"] for row in rows))
    figures = {key: {name: table_of(rows, name, key) for name in names} for key in MEANS}
    means = {name: {key: told(crossed(by_draw(figures[key][name], rows))) for key in MEANS} for name in names}
    ratios: dict[str, dict[str, Any]] = {name: {} for name in names}
    for name, rival in permutations(names, 2):
        pairs = {key: (figures[key][name], figures[key][rival].mean(axis=0)) for key in RATIOS}
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios[name][rival] = {
                key: told(crossed(by_draw(ours / theirs, rows))) for key, (ours, theirs) in pairs.items()
            }
    worlds = {row["world"]: row for row in rows}.values()
    gaps = [row.get("best_priced_s", np.nan) / row.get("bound_priced_s", np.nan) for row in worlds]
    over = told(crossed(by_draw(np.array([gaps], float), rows)))
    return {"worlds": len(worlds), "methods": means, "ratios": ratios, "best_over_bound": over}


def told(found: Interval | None) -> dict[str, float] | None:
    """For JSON."""
    return None if found is None else {"mean": found.mean, "low": found.low, "high": found.high, "worlds": found.count}
