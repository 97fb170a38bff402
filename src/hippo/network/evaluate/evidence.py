"""What the rows of the standard suite say together: means over worlds with their 95 % intervals, and the requirements.

Worlds are the sample (``intervals``); methods are compared world by world. Where hindsight gains less than
``WORTH_CAPTURING`` over ``static`` there is nothing to capture: there the question is how much was lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from math import comb
from typing import Any

import numpy as np

from hippo.intervals import interval
from hippo.network.worlds.judge import HINDSIGHT, WORTH_CAPTURING

Row = Mapping[str, Any]
Document = dict[str, Any]
OURS = "hi_ppo"
LEARNED = ("hi_ppo", "flat_ppo")
KEPT = "static_levers"
"""The best start with its levers, kept: what is left to gain for those who adapt."""
EQUAL = 0.001
"""Of hindsight's work: methods this close are equal on a world."""
DRAWS = 10_000
"""Of the bootstrap."""


def evidence(rows: Sequence[Row], *, ours: str = OURS, ablations: Iterable[str] = ()) -> Document:
    """All tables of the suite; a part that was not played is empty."""
    left_out = {*ablations}
    main = [row for row in rows if row["part"] == "main"]
    names = [name for name in _names(main or _of(rows, "large")) if name not in left_out]
    rivals = [name for name in names if name not in (*LEARNED, ours, HINDSIGHT)]
    return {
        "methods": names,
        "skipped": [f"{row['of']}, {row['family']} {row['seed']}: {row['why']}" for row in _of(rows, "skipped")],
        "cpu_s": float(sum(row["cpu_s"] for row in rows)),
        "cpu_by_part": {part: float(sum(row["cpu_s"] for row in some)) for part, some in _split(rows, "part")},
        "overall": {name: _standing(main, name) for name in names},
        "families": {family: _family(part, names) for family, part in _split(main, "family")},
        "paired": {rival: _against(main, ours, rival) for rival in _others(names, rivals, ours)},
        "best_rival": _best(main, rivals),
        "held": _held(main),
        "large": {str(k): _family(part, names) for k, part in _split(_of(rows, "large"), "domains")},
        "movement": _movement(_of(rows, "movement")),
        "movement_own": _movement_own(_of(rows, "movement")),
        "load": _load(_of(rows, "load")),
        "front": _front(_of(rows, "front")),
        "ablations": {name: _against(_with(main, name), name, ours) for name in ablations if _with(main, name)},
        "decisions": _decisions(main, names),
        "coordination": _coordination(main, names),
    }


def _of(rows: Sequence[Row], part: str) -> list[Row]:
    return [row for row in rows if row["part"] == part]


def _others(names: Sequence[str], rivals: Sequence[str], ours: str) -> list[str]:
    return [name for name in (*rivals, *LEARNED) if name in names and name != ours]


def _with(rows: Sequence[Row], name: str) -> list[Row]:
    return [row for row in rows if name in row["methods"]]


def _names(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row["methods"]))


def _split(rows: Sequence[Row], key: str) -> list[tuple[Any, list[Row]]]:
    values = list(dict.fromkeys(row[key] for row in rows))
    return [(value, [row for row in rows if row[key] == value]) for value in values]


def _values(rows: Iterable[Row], name: str, key: str) -> list[float]:
    found = (row["methods"][name][key] for row in rows if name in row["methods"])
    return [float(value) for value in found if value is not None]


def told(values: Sequence[float]) -> Document | None:
    """Mean and interval as a document."""
    found = interval(values)
    return None if found is None else asdict(found)


# ------------------------------------------------------------------------------------------------------------ methods
def _standing(rows: Sequence[Row], name: str) -> Document:
    """One method: share of hindsight, share of the gain captured where there is one, the worst loss elsewhere."""
    elsewhere = [row for row in _with(rows, name) if not row["worth_capturing"]]
    lost = [value - 1.0 for value in _values(elsewhere, name, "of_static")]
    return {
        "of_hindsight": told(_values(rows, name, "of_hindsight")),
        "captured": told(_values(rows, name, "captured")),
        "elsewhere": told(lost),
        "worst_elsewhere": min(lost, default=None),
        "moves": told(_values(rows, name, "moves")),
        "interrupted": told(_values(rows, name, "interrupted")),
        "of_adapting": told(_adapting(rows, name)),
    }


def _adapting(rows: Sequence[Row], name: str) -> list[float]:
    """Share of what hindsight gains over the best start with its levers, where that is worth capturing."""
    found = []
    for row in _with(rows, name):
        work = {each: values["work"] for each, values in row["methods"].items()}
        if KEPT in work and work[KEPT] > 0 and work[HINDSIGHT] >= (1.0 + WORTH_CAPTURING) * work[KEPT]:
            found.append((work[name] - work[KEPT]) / (work[HINDSIGHT] - work[KEPT]))
    return found


def _family(rows: Sequence[Row], names: Sequence[str]) -> Document:
    return {
        "worlds": len(rows),
        "worth_capturing": sum(bool(row["worth_capturing"]) for row in rows),
        "methods": {name: _standing(rows, name) for name in names if _with(rows, name)},
    }


def _against(rows: Sequence[Row], one: str, other: str) -> Document:
    """Work of one less that of another, in shares of hindsight, world by world."""
    both = [row for row in rows if one in row["methods"] and other in row["methods"]]
    both = [row for row in both if row["methods"][other]["of_hindsight"] is not None]
    worth, elsewhere = ([row for row in both if bool(row["worth_capturing"]) == wanted] for wanted in (True, False))
    apart = _differences(elsewhere, one, other)
    return {
        "worth_capturing": told(_differences(worth, one, other)),
        "elsewhere": told(apart),
        "worst_elsewhere": min(apart, default=None),
        "all": told(_differences(both, one, other)),
        "worlds": _by_world(_differences(worth, one, other)),
    }


def _differences(rows: Sequence[Row], one: str, other: str) -> list[float]:
    shares = ([row["methods"][name]["of_hindsight"] for row in rows] for name in (one, other))
    return [a - b for a, b in zip(*shares, strict=True)]


def _by_world(differences: Sequence[float]) -> Document | None:
    """What a mean hides where few worlds make most of it: the median, how many worlds are won, lost and equal within
    ``EQUAL``, the chance of so uneven a count if both were alike (sign test, two-sided), and a bootstrap interval of
    the mean."""
    if not differences:
        return None
    found = np.array(differences)
    won, lost = int((found > EQUAL).sum()), int((found < -EQUAL).sum())
    draws = np.random.default_rng(0).choice(found, (DRAWS, len(found))).mean(axis=1)
    low, high = (float(each) for each in np.percentile(draws, (2.5, 97.5)))
    return {
        "median": float(np.median(found)),
        "won": won,
        "lost": lost,
        "equal": len(found) - won - lost,
        "sign_test": sign_test(won, lost),
        "bootstrap": {"mean": float(found.mean()), "low": low, "high": high, "count": len(found)},
    }


def sign_test(won: int, lost: int) -> float:
    """Chance of a count at least as uneven, were each world won or lost with even odds; two-sided."""
    total, most = won + lost, max(won, lost)
    tail = sum(comb(total, each) for each in range(most, total + 1)) * 0.5**total
    return float(min(1.0, 2.0 * tail))


def _best(rows: Sequence[Row], rivals: Sequence[str]) -> str | None:
    """The method without learning that does most where there is something to capture (mean share of hindsight)."""
    worth = [row for row in rows if row["worth_capturing"]] or rows
    means = {name: float(np.mean(_values(worth, name, "of_hindsight") or [0.0])) for name in rivals}
    return max(means, key=means.__getitem__) if means else None


def _decisions(rows: Sequence[Row], names: Sequence[str]) -> Document:
    """Milliseconds of CPU per decision, thoughts that it waited for included, over the worlds where every run was on
    its own."""
    timed = [row for row in rows if row.get("timed")]
    found = {}
    for name in names:
        times = [each for row in _with(timed, name) for each in row["methods"][name]["times_ms"]]
        if times and name != HINDSIGHT:
            thought = [each for row in _with(timed, name) for each in row["methods"][name].get("thinking_ms", ())]
            found[name] = {
                "p50": float(np.percentile(times, 50)),
                "p99": float(np.percentile(times, 99)),
                "most": max(times),
                "thinking": float(np.percentile(thought, 99)) if thought else 0.0,
            }
    return found


def _coordination(rows: Sequence[Row], names: Sequence[str]) -> Document:
    """Seconds from a trigger to the executed change, decision and stop, of all changes of a method."""
    found = {}
    for name in names:
        took = [each for row in _with(rows, name) for each in row["methods"][name].get("t_coord_s", ())]
        if took and name != HINDSIGHT:
            p50, p99 = (float(each) for each in np.percentile(took, (50, 99)))
            found[name] = {"p50": p50, "p99": p99, "most": max(took), "changes": len(took)}
    return found


# ------------------------------------------------------------------------------------------------------- requirements
KEYS = ("training_time", "utilization", "utilization_all", "egress")
LEAST_RATIO = 1e-3
"""Of what the kept plan takes; less (no egress at all) counts as this much, so that a ratio has a logarithm."""


def _held(rows: Sequence[Row]) -> Document:
    """Changes against plans that are kept, by planner: relative (-0.25: a quarter less), the last absolute."""
    planners = dict.fromkeys(name for row in rows for name in row.get("held", {}))
    return {name: _changes([row["held"][name] for row in _held_rows(rows, name)]) for name in planners}


def _changes(rows: Sequence[Row]) -> Document:
    found: Document = {key: _ratio([row[key] for row in rows if row[key] is not None]) for key in KEYS}
    absolute = ("utilization_absolute", "utilization_all_absolute")
    return found | {key: told([row[key] for row in rows]) for key in absolute} | {"worlds": len(rows)}


def _ratio(changes: Sequence[float]) -> Document | None:
    """Geometric mean of 1 + change with its interval, less 1: a plan that hardly works does not drown the others."""
    found = interval([float(np.log(max(LEAST_RATIO, 1.0 + change))) for change in changes])
    if found is None:
        return None
    return {key: value if key == "count" else float(np.expm1(value)) for key, value in asdict(found).items()}


def _held_rows(rows: Sequence[Row], name: str) -> list[Row]:
    return [row for row in rows if name in row.get("held", {})]


def _movement(rows: Sequence[Row]) -> Document:
    """Loss against the same network at rest, by swing and method."""
    still = {row["world"]: row["work"] for row in rows if row["swing"] == 0.0}
    found: Document = {}
    for swing, part in _split(rows, "swing"):
        names = dict.fromkeys(name for row in part for name in row["work"])
        found[f"{swing:g}"] = {
            name: told([1.0 - row["work"][name] / still[row["world"]][name] for row in part]) for name in names
        }
    return found


def _movement_own(rows: Sequence[Row]) -> Document:
    """A method's own part of that loss, world by world: its loss less that of perfect hindsight, that none avoids."""
    still = {row["world"]: row["work"] for row in rows if row["swing"] == 0.0}
    found: Document = {}
    for swing, part in _split(rows, "swing"):
        names = [name for name in dict.fromkeys(name for row in part for name in row["work"]) if name != HINDSIGHT]
        losses = [
            {name: 1.0 - work / still[row["world"]][name] for name, work in row["work"].items()}
            for row in part
            if HINDSIGHT in row["work"]
        ]
        found[f"{swing:g}"] = {name: told([each[name] - each[HINDSIGHT] for each in losses]) for name in names}
    return found


def _load(rows: Sequence[Row]) -> Document:
    """Progress lost to load of others against the same world without it, by kind of load and method; of it the method's
    own part, its loss less that of perfect hindsight; the share of the time that training stood still."""
    still, found = {row["world"]: row["work"] for row in rows if row["load"] == "none"}, Document()
    for load, part in _split([row for row in rows if row["load"] != "none"], "load"):
        losses = [{name: 1.0 - work / still[row["world"]][name] for name, work in row["work"].items()} for row in part]
        found[load] = {
            name: {
                "lost": told([each[name] for each in losses]),
                "own": told([each[name] - each[HINDSIGHT] for each in losses]),
                "interrupted": told([row["interrupted"][name] for row in part]),
                "most": max(each[name] for each in losses),
            }
            for name in losses[0]
        }
    return found


def _front(rows: Sequence[Row]) -> Document:
    if not rows:
        return {}
    return {
        "covered": told([row["covered"] for row in rows]),
        "known": told([row["known"] for row in rows]),
        "points": sum(row["points"] for row in rows),
        "covered_points": float(
            sum(row["covered"] * row["points"] for row in rows) / sum(row["points"] for row in rows)
        ),
        "problems": [dict(row) for row in rows],
    }


# ------------------------------------------------------------------------------------------------------------ figures
def figures_asked(found: Document, *, ours: str = OURS) -> list[Document]:
    """The figures that were asked for, with what was measured: ``what``, ``asked``, ``measured``, ``met``, ``firm``."""
    overall = found["overall"].get(ours, {})
    rival = found["best_rival"]
    against = found["paired"].get(rival, {}) if rival else {}
    movement = found["movement"].get("0.3", {})
    own = found["movement_own"].get("0.3", {}).get(ours)
    load, front, took = found["load"], found["front"], found["coordination"].get(ours)
    rows = [
        _figure("work done, share of hindsight", ">= 97 %", overall.get("of_hindsight"), lambda i: i["mean"] >= 0.97),
        _figure("share of the gain captured", ">= 80 %", overall.get("captured"), lambda i: i["mean"] >= 0.80),
        _figure(
            "worst against static elsewhere", ">= -0.5 %", overall.get("worst_elsewhere"), lambda value: value >= -0.005
        ),
        _figure(f"better than {rival}", "interval > 0", against.get("worth_capturing"), lambda i: i["low"] > 0.0),
        _figure(
            f"within 0.5 % of {rival} elsewhere", ">= -0.5 %", against.get("elsewhere"), lambda i: i["low"] >= -0.005
        ),
        *(row for name, told_of in found["held"].items() if name != KEPT_START for row in _requirements(name, told_of)),
        _figure("loss from +-30 % movement", "< 5 %", movement.get(ours), lambda i: i["mean"] < 0.05),
        _figure("- that of perfect hindsight itself", NOT_ASKED, movement.get(HINDSIGHT)),
        _figure("- the method's own part: its loss less hindsight's", NOT_ASKED, own),
        *(
            row
            for kind, words in LOADED.items()
            for row in _stability(words, load.get(kind, {}).get(ours, {}), load.get(kind, {}).get(HINDSIGHT, {}))
        ),
        _coordinated(took),
        _figure("exact Pareto front covered", ">= 90 %", front.get("covered"), lambda i: i["mean"] >= 0.90),
    ]
    return [row for row in rows if row["measured"] is not None]


KEPT_START = "static"
"""The plan of the start, kept: no baseline of the documents, but what everybody stands beside."""
LOADED = {"slows": "+-20 % load", "evicts": "+-20 % load and lost domains"}
SOON_S = 2.0
"""From the decision between domains to what is executed."""


def _stability(words: str, lost: Mapping[str, Any], best: Mapping[str, Any]) -> list[Document]:
    return [
        _figure(f"progress lost under {words}", "< 1 %", lost.get("lost"), lambda i: i["mean"] < 0.01),
        _figure(f"- that of perfect hindsight itself under {words}", NOT_ASKED, best.get("lost")),
    ]


def _coordinated(took: Mapping[str, Any] | None) -> Document:
    """T_coord as words: medians and tails are no shares."""
    said = None if took is None else f"{took['p50']:.1f} s, p99 {took['p99']:.0f} s, {took['changes']} changes"
    row = _figure("T_coord, trigger to executed change", "<= 2 s", said)
    return row | {"met": None if took is None else took["p99"] <= SOON_S}


def _requirements(name: str, kept: Mapping[str, Any]) -> list[Document]:
    """The requirements of the documents against the kept plan of one baseline."""
    rows = [_figure(f"training time against {name}", "-25 %", kept.get("training_time"), lambda i: i["mean"] <= -0.25)]
    for key, words in (
        ("utilization", "utilisation of domains in use"),
        ("utilization_all", "utilisation of all domains"),
    ):
        busy = kept.get(f"{key}_absolute") or {"mean": 0.0}
        enough = partial(_busy_enough, absolute=busy["mean"])
        rows.append(_figure(f"{words} against {name}", "+35 % or > 85 %", kept.get(key), enough))
    return [*rows, _figure(f"egress against {name}", "-30 %", kept.get("egress"), lambda i: i["mean"] <= -0.30)]


def _busy_enough(change: Mapping[str, Any], *, absolute: float) -> bool:
    return bool(change["mean"] >= 0.35 or absolute > 0.85)


NOT_ASKED = ""
"""Stands beside a figure that was asked for, to explain it."""


def _figure(what: str, asked: str, measured: Any, met: Callable[[Any], bool] | None = None) -> Document:
    """``firm``: whether both ends of the interval say the same of it as the mean (of one world alone nothing does)."""
    found = None if measured is None or met is None else bool(met(measured))
    firm = True
    if found is not None and met is not None and isinstance(measured, Mapping):
        ends = [{**measured, "mean": measured[end]} for end in ("low", "high")]
        firm = measured["count"] > 1 and all(met(each) == found for each in ends)
    return {"what": what, "asked": asked, "measured": measured, "met": found, "firm": bool(firm)}
