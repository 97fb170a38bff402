"""One page of a schedule, whole in one file: timeline, memory, what binds, ranks, methods tried. Looks as ``html.py``.

Scripts are allowed by their hash only, everything a user wrote is escaped, and nothing is asked from outside.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, isfinite
from types import MappingProxyType

import numpy as np

from hippo.decide.wording import count, listed, number, percent
from hippo.report.frame import frame, inline_json, template
from hippo.report.gantt import slow_links, told_links
from hippo.report.schedule_marks import LongestWay, longest_way, memory_over_time, messages, operation_ranks
from hippo.report.text import NOTHING
from hippo.schedule.bound.lower_bound import bounds
from hippo.schedule.problem import MicroBatchMemory, ScheduleProblem
from hippo.schedule.replay import live, peak_memory
from hippo.schedule.solve import Answer

TICKS = 1_000_000
MOST_DRAWN = 120_000
"""Operations in the picture (2 MB); of longer schedules the first ones."""

MOST_LINES = 60_000
"""Messages in the picture."""

PROVED = 1e-6
"""A gap up to this one is none."""

KINDS = ("Forward", "Backward", "Weight gradient")
FUSED_KINDS = ("Forward", "Backward and weight gradient")

BOUNDS: Mapping[str, str] = MappingProxyType(
    {
        "chain": "one micro-batch goes down and up again, then one weight gradient",
        "work": "a rank waits for the first micro-batch, then does all its work",
        "drain": "after the forwards and backwards of a rank the last backward still travels home",
        "window": "a micro-batch keeps its memory until its gradient is back: so many per round trip",
        "jackson": "each rank alone, every operation with the least that comes before and after it",
        "windows": "a shorter makespan would leave some operation no time to run",
    }
)
"""What each bound says (``lower_bound.bounds``); others stand there by their name."""


def schedule_html(answer: Answer) -> str:
    """The page of one answer: a whole document, about 40 bytes an operation."""
    return template("schedule.html.j2", percent=percent).render(
        **frame("timeline.js", "schedule.js"), **_headline(answer), **_panels(answer)
    )


# ----------------------------------------------------------------------------------------------------------- headline
def _headline(answer: Answer) -> dict[str, object]:
    replay, problem = answer.replay, answer.problem
    most = float(live(problem, answer.schedule).max())
    limits = [limit for limit in problem.limit if isfinite(limit)]
    proved = answer.gap <= PROVED
    verdict = "Proved optimal: the makespan meets the lower bound." if proved else (
        f"At most {_share(answer.gap)} above the shortest schedule there is; not proved to be the shortest."
    )  # fmt: skip
    figures = (
        ("Makespan", _time(answer.makespan), "first forward to last end"),
        ("Lower bound", _time(answer.lower_bound), "no schedule is shorter"),
        ("Gap", "0 %" if proved else _share(answer.gap), "makespan over bound"),
        ("Bubble", f"{replay.bubble_rate:.4f}", "of the longest stage"),
        ("Bubble, full", f"{replay.bubble_full:.4f}", "of all ranks to the end"),
        ("Peak live", f"{most:g}", _limit_remark(problem, limits)),
    )
    return {
        "title": answer.schedule.name,
        "question": _question(problem),
        "figures": figures,
        "proved": proved,
        "verdict": verdict,
        "found": _found(answer),
        "why": answer.why,
    }


def _limit_remark(problem: ScheduleProblem, limits: list[float]) -> str:
    if not limits:
        return "micro-batches, no limit"
    if problem.memory:
        return "micro-batches; the limit counts memory"
    return f"micro-batches of {min(limits):g}" if min(limits) == max(limits) else "micro-batches"


def _question(problem: ScheduleProblem) -> str:
    """The problem in a line."""
    slow = list(slow_links(problem).values())
    parts = [problem.name] if problem.name else []
    parts += [count(problem.ranks, "rank"), count(problem.micro_batches, "micro-batch").replace("batchs", "batches")]
    if problem.placement != "plain":
        parts.append(f"{count(problem.chunks, 'chunk')} a rank, placement {problem.placement}")
    for name, times in (("F", problem.forward), ("B", problem.backward), ("W", problem.weight)):
        parts.append(f"{name} {_range(times)}")
    delays = [link.latency for link in (*problem.down, *problem.up)]
    parts.append(f"delays {_range(delays)}" if any(delays) else "no delays")
    parts += [count(len(slow), "slow link")] if slow else []
    parts += [f"reductions {_range(problem.reduction)}"] if any(problem.reduction) else []
    limits = [limit for limit in problem.limit if isfinite(limit)]
    return ", ".join([*parts, f"memory {_range(limits)}" if limits else "no memory limit"])


def _range(values: tuple[float, ...] | list[float]) -> str:
    least, most = min(values), max(values)
    return f"{least:g}" if least == most else f"{least:g} to {most:g}"


def _found(answer: Answer) -> str:
    """How it came to be."""
    if answer.seconds <= 0:
        return "The order was given."
    order = f"as a hint of {answer.method}" if answer.hint else f"by {answer.method}"
    return f"Made {order} in {number(answer.seconds)} s."


# ------------------------------------------------------------------------------------------------------------- panels
def _panels(answer: Answer) -> dict[str, object]:
    problem, way = answer.problem, longest_way(answer.replay)
    slow, packed = slow_links(problem), pack(answer, way)
    drawn = int((answer.replay.start < _until(answer)).sum())
    entries, bound_share = _entries(answer)
    return {
        "timeline_lead": _timeline_lead(answer),
        "timeline_json": inline_json(packed),
        "kinds": FUSED_KINDS if answer.schedule.fused else KINDS,
        "chunks": problem.chunks,
        "limited": any(isfinite(limit) for limit in problem.limit),
        "reduces": any(problem.reduction),
        "slow": slow,
        "left_out": _left_out(drawn, len(answer.schedule.order)),
        **_way(answer, way),
        "bounds": _bounds(answer),
        **_ranks(answer),
        "entries": entries,
        "bound_share": bound_share,
        "methods_lead": _methods_lead(answer),
        "inputs": _inputs(problem),
    }


def pack(answer: Answer, way: LongestWay) -> dict[str, object]:
    """The document that ``schedule.js`` draws; times as whole ticks, ``TICKS`` to the makespan."""
    replay, problem = answer.replay, answer.problem
    until, owners = _until(answer), operation_ranks(replay)
    on_way = np.zeros(len(owners), dtype=bool)
    on_way[list(way.operations)] = True
    return {
        "makespan": replay.makespan,
        "ticks": TICKS,
        "chunks": problem.chunks,
        "kinds": FUSED_KINDS if answer.schedule.fused else KINDS,
        "slow": [{"above": rank, "name": text} for rank, text in slow_links(problem).items()],
        "ranks": [_pack_rank(answer, np.flatnonzero(owners == rank), on_way, until) for rank in range(problem.ranks)],
        "messages": _pack_messages(answer, until),
    }


def _until(answer: Answer) -> float:
    """When the first operation starts that is not in the picture."""
    start = answer.replay.start
    return float(np.partition(start, MOST_DRAWN)[MOST_DRAWN]) if len(start) > MOST_DRAWN else inf


def _pack_rank(answer: Answer, own: np.ndarray, on_way: np.ndarray, until: float) -> dict[str, object]:
    """Operations of one rank in order: gap before, length, kind, chunk, micro-batch; its memory, and reduction."""
    replay, problem = answer.replay, answer.problem
    rank = int(operation_ranks(replay)[own[0]])
    own = own[replay.start[own] < until]
    rows, start, end = answer.schedule.order[own], _ticks(answer, replay.start[own]), _ticks(answer, replay.end[own])
    at, held = memory_over_time(replay, rank)
    shown, limit = at < until, problem.limit[rank]
    found: dict[str, object] = {
        "name": f"rank {rank}",
        "kind": "".join(map(str, rows[:, 0].tolist())),
        "chunk": "".join(str(min(9, chunk)) for chunk in rows[:, 1].tolist()) if problem.chunks > 1 else "",
        "gap": (start - np.concatenate(([0], end[:-1]))).tolist(),
        "length": (end - start).tolist(),
        "micro_batch": rows[:, 2].tolist(),
        "way": np.flatnonzero(on_way[own]).tolist(),
        "memory_gap": np.diff(_ticks(answer, at[shown]), prepend=0).tolist(),
        "memory": np.round(held[shown], 9).tolist(),
        "top": limit if isfinite(limit) else float(peak_memory(problem, answer.schedule).max()),
        "limit": limit if isfinite(limit) else None,
    }
    lasts = float(problem.tables.reduction[rank])
    if lasts > 0:  # from the end of the last operation, also of one that is left out
        done = replay.end[answer.schedule.order_start[rank + 1] - 1]
        found["agreeing"] = _ticks(answer, np.array([done, done + lasts])).tolist()
    return found


def _pack_messages(answer: Answer, until: float) -> dict[str, object]:
    """Messages between ranks, earliest first; of too many, those on slow links, of too many of those the first."""
    slow, found = slow_links(answer.problem), [each for each in messages(answer.replay) if each.leaves < until]
    if len(found) > MOST_LINES:
        found = [each for each in found if min(each.sender, each.receiver) in slow]
    found = sorted(found, key=lambda each: each.leaves)[:MOST_LINES]
    start = _ticks(answer, np.array([each.leaves for each in found]))
    end = _ticks(answer, np.array([each.arrives for each in found]))
    return {
        "start": np.diff(start, prepend=0).tolist(),
        "length": (end - start).tolist(),
        "sender": [each.sender for each in found],
        "receiver": [each.receiver for each in found],
        "kind": "".join(str(each.kind) for each in found),
        "micro_batch": [each.micro_batch for each in found],
    }


def _ticks(answer: Answer, times: np.ndarray) -> np.ndarray:
    return np.rint(times / answer.makespan * TICKS).astype(np.int64)


def _left_out(drawn: int, whole: int) -> str:
    return "" if drawn == whole else f"The picture holds the first {drawn:,} of {whole:,} operations; the tables, all."


# -------------------------------------------------------------------------------------------------------------- words
def _timeline_lead(answer: Answer) -> str:
    replay, problem = answer.replay, answer.problem
    busy = [work / replay.makespan for work in problem.work]
    told = f"{percent(min(busy))} to {percent(max(busy))}" if max(busy) - min(busy) > 0.001 else percent(max(busy))
    lead = f"Ranks are busy {told} of the makespan, {_time(replay.makespan)}."
    slow = slow_links(problem)
    if slow:
        lead += f" Slow: {listed([f'rank {rank} to {rank + 1} ({text})' for rank, text in list(slow.items())[:4]])}."
    return lead


def _way(answer: Answer, way: LongestWay) -> dict[str, object]:
    """Where the makespan goes along its longest way, and a sentence."""
    span, fused = answer.makespan, answer.schedule.fused
    parts = [
        (name, time, f"var(--k{kind})", f"var(--on-k{kind}, #17191e)")
        for kind, (name, time) in enumerate(zip(KINDS, way.computing, strict=True))
        if time > 0
    ]
    if fused:
        parts = [(FUSED_KINDS[int(name != KINDS[0])], *rest) for name, *rest in parts]  # type: ignore[misc]
    for hop, time in way.travelling[:3]:
        parts.append((f"Ranks {hop[0]} to {hop[1]}", time, "var(--k3)", "var(--on-k3)"))
    rest = sum(time for _, time in way.travelling[3:])
    parts += [("Other links", rest, "var(--m5)", "var(--ink)")] if rest > 1e-9 * span else []
    parts += [("Agreeing gradients", way.agreeing, "var(--k4)", "var(--surface)")] if way.agreeing > 0 else []
    travelled = sum(time for _, time in way.travelling)
    lead = (
        f"The longest way through the schedule: {_time(sum(way.computing))} of {_time(span)} is computing, "
        f"{_time(travelled)} waiting for {way.crossings} messages."
    )
    if way.travelling and way.travelling[0][1] > 0.02 * span:
        hop, time = way.travelling[0]
        lead += f" {percent(time / span)} of it is the link between ranks {hop[0]} and {hop[1]}."
    if way.agreeing > 0:
        lead += f" The last {_time(way.agreeing)} is a reduction of gradients."
    keys = ("name", "time", "share", "percent", "colour", "ink")
    bar = [
        dict(zip(keys, (name, _time(time), time / span, percent(time / span), colour, ink), strict=True))
        for name, time, colour, ink in parts
    ]
    return {"way": bar, "way_lead": lead}


def _bounds(answer: Answer) -> list[dict[str, str]]:
    """All bounds, the highest first; that of an exact search, where it says more."""
    found = dict(bounds(answer.problem))
    rows = sorted(found.items(), key=lambda item: -item[1])
    if answer.lower_bound > max(found.values()) * (1 + 1e-9):
        rows.insert(0, ("search", answer.lower_bound))
    return [
        {
            "name": name,
            "says": BOUNDS.get(name, "what the search for the optimum has proved" if name == "search" else ""),
            "value": _time(value),
            "share": _share(value / answer.makespan),
        }
        for name, value in rows
    ]


def _ranks(answer: Answer) -> dict[str, object]:
    """Shares of time, peak live and memory of every rank."""
    replay, problem, schedule = answer.replay, answer.problem, answer.schedule
    owners, starts = operation_ranks(replay), schedule.order_start
    busy = np.zeros((problem.ranks, 2 if schedule.fused else 3))
    np.add.at(busy, (owners, schedule.order[:, 0]), replay.end - replay.start)
    shares = busy / replay.makespan
    counts, need = live(problem, schedule), peak_memory(problem, schedule)
    rows = [
        {
            "name": f"rank {rank}",
            "shares": shares[rank].tolist(),
            "idle": max(0.0, 1 - float(shares[rank].sum())),
            "span": _time(float(replay.end[starts[rank + 1] - 1] - replay.start[starts[rank]])),
            "live": f"{counts[rank]:g}",
            "memory": f"{number(need[rank])}" + (f" / {number(limit)}" if isfinite(limit) else ""),
        }
        for rank, limit in enumerate(problem.limit)
    ]
    full = [rank for rank, limit in enumerate(problem.limit) if need[rank] >= limit * (1 - 1e-9)]
    lead = f"{count(len(full), 'rank')} of {problem.ranks} at the memory limit." if full else "No rank is at its limit."
    if not any(isfinite(limit) for limit in problem.limit):
        lead = "There is no memory limit."
    return {"ranks": rows, "ranks_lead": lead}


def _entries(answer: Answer) -> tuple[list[dict[str, object]], float]:
    """Methods, the shortest first, the refused last; and where the bound lies on their bars."""
    played = sorted((span, name) for name, span in answer.tried if not isinstance(span, str))
    refused = [(name, why) for name, why in answer.tried if isinstance(why, str)]
    scale = min(played[-1][0], 3 * answer.makespan) if played else 1.0
    rows: list[dict[str, object]] = [
        {
            "name": name,
            "chosen": name == answer.schedule.name,
            "refused": "",
            "share": min(1.0, span / scale),
            "makespan": _time(span),
            "gap": _share(max(0.0, span / answer.lower_bound - 1)),
            "versus": NOTHING if span <= answer.makespan * (1 + 1e-9) else f"+{_share(span / answer.makespan - 1)}",
        }
        for span, name in played
    ]
    rows += [{"name": name, "chosen": False, "refused": why} for name, why in refused]
    return rows, answer.lower_bound / scale


def _methods_lead(answer: Answer) -> str:
    refused = sum(1 for _, found in answer.tried if isinstance(found, str))
    tried = len(answer.tried) - refused
    return (
        f"{count(tried, 'schedule')} played, {refused} refused." if refused else f"{count(tried, 'schedule')} played."
    )


def _inputs(problem: ScheduleProblem) -> list[dict[str, object]]:
    """Times, memory and links as the problem gives them."""
    memory = problem.memory or (MicroBatchMemory(),) * problem.ranks
    rows: list[dict[str, object]] = []
    for rank in range(problem.ranks):
        limit, kept = problem.limit[rank], memory[rank]
        times = (problem.forward[rank], problem.backward[rank], problem.weight[rank])
        values = [*map("{:g}".format, (*times, kept.at_forward, kept.at_backward))]
        last = rank == problem.ranks - 1
        link = NOTHING if last else told_links(problem.down[rank], problem.up[rank])
        values.append(f"{limit:g}" if isfinite(limit) else "none")
        values += [f"{problem.reduction[rank]:g}"] if any(problem.reduction) else []
        rows.append({"name": f"rank {rank}", "cells": values, "link": link})
    return rows


def _time(value: float) -> str:
    """A time in the problem's unit: five significant digits."""
    return f"{value:,.5g}" if value < 1e5 else number(value, 5)


def _share(share: float) -> str:
    """A share in per cent with two decimals: gaps are small."""
    return f"{100 * share:.2f} %"
