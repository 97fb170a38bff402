"""The index where jobs have deadlines: what a job is worth per device-second, if it can be in time.

What is known of a job's duration is a belief over the bins of ``past``: what the hazards say of jobs like it, times how
often jobs of such durations had such a window (deadline less arrival) or such an estimate, which finished jobs teach.
From the belief and the time that is left comes an index: the best chance per expected second to end before the
deadline (Gittins' index, cut at the deadline). The logarithm of a key is linear in the logarithms of it and of seven
further features. Jobs without a deadline follow, with those whose deadline has passed, in order of their plain index.

Half of the coefficients that ship are what a random search found on windows of the first 55 % of the Philly trace
(close to the earliest deadline), half the index times devices over weight; of five such mixtures the best from 55 to
70 %. Nothing was trained: reinforcement learning on top made it worse (results/deadlines.md).

Letters: n jobs, B bins, P priorities told apart, F features.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.jobs.learned.past import BINS, EDGES_S, LONGEST_S
from hippo.jobs.workload import JobWorkload
from hippo.learn.weights import Form

FEATURES = ("index", "devices", "priority", "room", "slack", "window", "load_room", "load_slack")
"""Logarithms: of seconds divided by 10, of the others by 3; the last two are times that of the load."""
BEHIND = 1e3
"""Added to the key's logarithm where no deadline can be met any more, or none is set."""
STALE_S = 1800.0
"""A belief is formed anew after this long, or when the job has passed an edge."""
PRIOR_JOBS = 2.0
"""Jobs for which the prior of windows counts."""


@kernel(lean=True)
def bin_at(time_s):  # type: ignore[no-untyped-def]
    """The bin in which a time lies, as ``past.bin_of``."""
    low, high = 0, len(EDGES_S)
    while low < high:
        middle = (low + high) >> 1
        if EDGES_S[middle] <= time_s:
            low = middle + 1
        else:
            high = middle
    return low


@kernel(lean=True)
def arrived(known, job, devices):  # type: ignore[no-untyped-def]
    """A job joins the queue; ``known`` is a ``DueMemory``."""
    if known.window[job] >= 0:
        known.live[0] += devices


@kernel(lean=True)
def finished(known, job, devices, worked_s):  # type: ignore[no-untyped-def]
    """A job has ended after ``worked_s`` of work: what its window and its estimate were worth."""
    own = bin_at(worked_s)
    if known.window[job] >= 0:
        if known.over[job] == 0:
            known.live[0] -= devices
        row = known.rank[job]
        for shift in range(-1, 2):
            window, worked = known.window[job] + shift, own + shift
            if 0 <= window < BINS and 0 <= worked < BINS:
                known.seen[row, window, worked] += 1.0 if shift == 0 else 0.5
                known.total[row, worked] += 1.0 if shift == 0 else 0.5
    if known.estimate[job] >= 0:
        known.gap[known.estimate[job] - own + BINS] += 1.0
        known.gap[2 * BINS + 1] += 1.0


@kernel(lean=True)
def rests(known, job):  # type: ignore[no-untyped-def]
    """Whether the job's key stands still while it does nothing: it has no deadline, or none that it can meet."""
    return known.window[job] < 0 or known.over[job] > 0


@kernel(lean=True)
def believe(known, job, hazard, level):  # type: ignore[no-untyped-def]
    """Writes the job's belief (B,) from its hazards (B,), of which those from ``level`` on count."""
    belief, row, window, estimate = known.belief[job], known.rank[job], known.window[job], known.estimate[job]
    alive, total = 1.0, 0.0
    for b in range(BINS):
        belief[b] = 0.0
    for b in range(level, BINS):
        chance = alive * hazard[b] if b < BINS - 1 else alive
        alive -= chance
        if window >= 0:
            seen = known.seen[row, window, b] + PRIOR_JOBS * known.weights.windows[window, b]
            chance *= seen / (known.total[row, b] + PRIOR_JOBS)
        if estimate >= 0:
            chance *= known.gap[estimate - b + BINS] / known.gap[2 * BINS + 1]
        belief[b] = chance
        total += chance
    for b in range(level, BINS):
        belief[b] = belief[b] / total if total > 1e-30 else 1.0 / (BINS - level)


@kernel(lean=True)
def weigh(belief, attained_s, slack_s, found):  # type: ignore[no-untyped-def]
    """What a belief (B,) says of a job that has done ``attained_s``; writes into ``found`` (2,):

    the best chance per expected second to end within a horizon of at most ``slack_s``, and the expected seconds until
    it ends or the slack is used up.
    """
    level = bin_at(attained_s)
    rest = 0.0
    for b in range(level, BINS):
        low, high = _edges(b)
        rest += belief[b] * (high - max(low, attained_s)) / (high - low)
    found[0], found[1] = 0.0, 1.0
    if rest < 1e-9:  # older than anybody thought: as long again as it has run
        age = max(attained_s, 10.0)
        found[0], found[1] = (1.0 - np.exp(-slack_s / age)) / age, age
        return
    done, work = 0.0, 0.0
    for b in range(level, BINS):
        low, high = _edges(b)
        start = max(low, attained_s)
        chance = belief[b] * (high - start) / (high - low) / rest
        lasts, cut = high - start, high - attained_s >= slack_s
        if cut:
            share = max(slack_s - (start - attained_s), 0.0) / lasts
            chance, lasts = chance * share, lasts * share
        work += (1.0 - done - 0.5 * chance) * lasts
        done += chance
        if work > 0.0:
            found[0] = max(found[0], done / work)
        if cut:
            break
    found[1] = max(work, 1.0)


@kernel(lean=True)
def _edges(b):  # type: ignore[no-untyped-def]
    low = EDGES_S[b - 1] if b > 0 else 0.0
    return low, EDGES_S[b] if b < BINS - 1 else LONGEST_S


@kernel(lean=True)
def key(known, job, devices, slack_s, attained_s, left_s):  # type: ignore[no-untyped-def]
    """The key of a job whose belief is formed, smallest first. ``left_s`` is looked at by clairvoyants only."""
    if known.window[job] >= 0 and slack_s <= 0.0 and known.over[job] == 0:
        known.over[job] = 1
        known.live[0] -= devices
    found, line = known.found, known.weights.line
    ends = known.window[job] >= 0 and known.over[job] == 0
    horizon_s = slack_s if ends else np.inf
    if known.clairvoyant[0] > 0:
        found[0], found[1] = 1.0 / max(left_s, 1.0), max(left_s, 1.0)
        ends = ends and left_s <= horizon_s
    else:
        weigh(known.belief[job], attained_s, horizon_s, found)
    if not ends:
        return BEHIND - np.log(found[0] + 1e-12) + np.log(devices)
    load = np.log((1.0 + known.live[0]) / known.capacity[0]) / 3.0
    room, slack = np.log(max(slack_s, 1.0) / found[1]) / 3.0, np.log(max(slack_s, 1.0)) / 10.0
    total = line[0] * -np.log(found[0] + 1e-12) / 10.0 + line[1] * np.log(devices) / 3.0
    total += line[2] * np.log(known.weight[job]) / 3.0 + line[3] * room + line[4] * slack
    total += line[5] * known.log_window[job] / 10.0
    return total + line[6] * load * room + line[7] * load * slack


Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
Ints = NDArray[np.int64]

FORM = Form("index for deadlines", {"key": list(FEATURES)}, "take the one that comes with the package")
SHIPPED = "deadlines.npz"
RANKS = 4
"""Priorities told apart: the lowest of a workload, the next, the one after, all higher ones."""
ESTIMATE_SPREAD = 1.0
"""Deviation of log(estimate / duration) before anybody has finished."""


class DueWeights(NamedTuple):
    """Of the key's logarithm."""

    windows: Floats32  # (B, B) how often a duration (column) has a window (row), before anybody has finished
    line: Floats  # (F,) coefficients


class DueMemory(NamedTuple):
    """State of a replay; arrays that the kernels of ``deadline`` write into."""

    weights: DueWeights
    seen: Floats  # (P, B, B) finished jobs by window and duration
    total: Floats  # (P, B) the same by duration
    gap: Floats  # (2B + 2,) finished jobs by bins between estimate and duration, and their number
    rank: Ints  # (n,) of the job's priority
    weight: Floats  # (n,) of a miss: 2 ** rank
    window: Ints  # (n,) bin of deadline less arrival, -1: no deadline
    log_window: Floats  # (n,)
    estimate: Ints  # (n,) bin of the estimate, -1: none
    belief: Floats32  # (n, B)
    believed_at: Ints  # (n,) bin of the attained time when the belief was formed, -1: never
    believed_s: Floats  # (n,) and when
    over: Ints  # (n,) 1: its deadline has passed
    live: Floats  # (1,) devices of jobs that may still be in time
    capacity: Floats  # (1,) devices of the site
    clairvoyant: Ints  # (1,) 1: durations are known
    believes: Ints  # (1,) 0: the weights do not look at beliefs, and none are formed
    found: Floats  # (2,) room


def ranks(priority: Ints) -> Ints:
    """(n,) 0 for the lowest priority among them, 1 for the next, at most ``RANKS`` - 1."""
    if not len(priority):
        return priority
    return np.minimum(np.unique(priority, return_inverse=True)[1].reshape(-1).astype(np.int64), RANKS - 1)


def due(
    workload: JobWorkload,
    weights: DueWeights | None = None,
    *,
    devices: float,
    clairvoyant: bool = False,
) -> DueMemory:
    """The state before the first job; empty where no job has a deadline. ``devices``: of the site."""
    ends = np.isfinite(workload.deadline_s)
    weights = (shipped() if ends.any() else linear()) if weights is None else weights
    rank, n = ranks(workload.priority), len(workload)
    window_s = np.where(ends, workload.deadline_s - workload.arrival_s, 1.0)
    told = np.isfinite(workload.estimate_s)
    estimate = np.searchsorted(EDGES_S, np.where(told, workload.estimate_s, 1.0), side="right")
    gap = np.exp(-0.5 * ((np.arange(2 * BINS + 1) - BINS) * np.log(1.4) / ESTIMATE_SPREAD) ** 2) + 1e-4
    return DueMemory(
        weights=weights,
        seen=np.zeros((RANKS, BINS, BINS)),
        total=np.zeros((RANKS, BINS)),
        gap=np.append(10.0 * gap / gap.sum(), 10.0),
        rank=rank,
        weight=np.exp2(rank.astype(np.float64)),
        window=np.where(ends, np.searchsorted(EDGES_S, window_s, side="right"), -1),
        log_window=np.log(np.maximum(window_s, 1.0)),
        estimate=np.where(told, estimate, -1),
        belief=np.zeros((n if ends.any() else 0, BINS), np.float32),
        believed_at=np.full(n, -1, np.int64),
        believed_s=np.zeros(n),
        over=np.zeros(n, np.int64),
        live=np.zeros(1),
        capacity=np.array([float(devices)]),
        clairvoyant=np.array([int(clairvoyant)]),
        believes=np.array([int(not clairvoyant and bool(np.any(weights.line[OF_BELIEFS])))]),
        found=np.zeros(2),
    )


OF_BELIEFS = [FEATURES.index(name) for name in ("index", "room", "load_room")]


def linear(**line: float) -> DueWeights:
    """A rule by its coefficients (0 where none is named), and flat windows.

    ``linear(slack=10)`` is the earliest deadline first, ``linear(window=10, devices=3)`` the smallest window times
    devices first: both keep jobs whose deadline has passed for the end.
    """
    unknown = set(line) - set(FEATURES)
    assert not unknown, f"no such features: {unknown}"
    flat = np.full((BINS, BINS), 1.0 / BINS, np.float32)
    return DueWeights(flat, np.array([line.get(name, 0.0) for name in FEATURES]))


def packed(weights: DueWeights) -> bytes:
    """The weights as the bytes of a file."""
    return FORM.packed(weights._asdict())


def unpacked(content: bytes, source: str) -> DueWeights:
    """Weights from the bytes of a file; ``InputError`` when it is something else, or damaged."""
    arrays, _ = FORM.unpacked(content, source)
    like = linear()
    if {name: (each.shape, each.dtype) for name, each in arrays.items()} != {
        name: (each.shape, each.dtype) for name, each in like._asdict().items()
    }:
        raise FORM.wrong(source)
    found = DueWeights(*(np.array(arrays[name], order="C") for name in like._fields))
    if not all(np.isfinite(each).all() for each in found) or not (found.windows >= 0).all():
        raise FORM.wrong(source)
    return found


@lru_cache(maxsize=1)
def shipped() -> DueWeights:
    """The weights that come with the package."""
    return unpacked((files("hippo.jobs.learned") / SHIPPED).read_bytes(), SHIPPED)
