"""What the past says of how long jobs run: hazards of log-spaced bins, learned while jobs run.

Each job belongs to six classes of the past (``SOURCES``), from all jobs down to the batch that it came with. A class
holds, per bin of attained time, how many of its jobs entered the bin and left it (``exposed``) and how many of them
ended in it (``deaths``); both fade as further jobs of the class end. A job that still runs, or waits again, counts in
all bins that it has left behind: the estimate of Kaplan and Meier (1958), which censored jobs do not bias. Nothing is
known at first; classes without a past lean on the next wider one (``look``).

Letters: n jobs, S classes of a job, R rows of the table, B bins, U users.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SOURCES = ("all", "size", "user", "group", "lately", "batch")
"""All jobs; of its size; of its user; of its user and size; the last few of these; those that it was submitted with."""
SIZES = 6  # 1, 2, 4, 8, 16 devices or fewer, more
BINS = 40
EDGES_S: Floats = 10.0 * np.power(1.4, np.arange(BINS - 1, dtype=np.float64))
"""Between the bins, seconds of work done: 10 s to 41 days."""
BATCH_GAP_S = 120.0
"""Jobs of one user and size that follow each other this closely are one batch."""


class History(NamedTuple):
    """Tables of the past and where each job stands in them."""

    deaths: Floats  # (R, B)
    exposed: Floats  # (R, B)
    row: Ints  # (n, S) row of each class of a job
    place: Floats  # (n, 2) log of the seconds since the job before of its user and size, log of its number in the batch
    level: Ints  # (n,) bin in which its attained time lies


def size_class(devices: Ints) -> Ints:
    """0 for one device, 1 for two, 2 for up to four, ...; elementwise."""
    exponent = np.ceil(np.log2(np.maximum(devices, 1)))
    return np.minimum(exponent.astype(np.int64), SIZES - 1)


def empty_history(arrival_s: Floats, user: Ints, devices: Ints, users: int) -> History:
    """A past of which nothing is known, for n jobs (n,) in order of arrival."""
    row = np.zeros((len(arrival_s), len(SOURCES)), np.int64)
    place = np.zeros((len(arrival_s), 2))
    rows = _assign(arrival_s, user, size_class(devices), users, row, place)
    return History(np.zeros((rows, BINS)), np.zeros((rows, BINS)), row, place, np.zeros(len(row), np.int64))


@kernel
def _assign(arrival_s, user, size, users, row, place):  # type: ignore[no-untyped-def]
    """Fills ``row`` (n, S) and ``place`` (n, 2); how many rows that takes. A job's class depends on earlier ones only.

    Batches are numbered as they come: no more of them than jobs."""
    groups = users * SIZES
    last, batch = np.full(groups, -np.inf), np.zeros(groups, np.int64)
    count = np.zeros(groups)
    rows = 1 + SIZES + users + 2 * groups
    for job in range(len(arrival_s)):
        group = user[job] * SIZES + size[job]
        gap = arrival_s[job] - last[group]
        if gap > BATCH_GAP_S:
            batch[group], count[group] = rows, 0.0
            rows += 1
        last[group] = arrival_s[job]
        count[group] += 1
        row[job, 0], row[job, 1], row[job, 2] = 0, 1 + size[job], 1 + SIZES + user[job]
        row[job, 3] = 1 + SIZES + users + group
        row[job, 4] = 1 + SIZES + users + groups + group
        row[job, 5] = batch[group]
        place[job, 0] = np.log(min(max(gap, 1.0), 1e6))
        place[job, 1] = np.log(count[group])
    return rows


@kernel
def bin_of(attained_s):  # type: ignore[no-untyped-def]
    """The bin in which a time lies; one that ends exactly at an edge lies above it."""
    return np.searchsorted(EDGES_S, attained_s, side="right")


@kernel(lean=True)
def passed_level(history, job):  # type: ignore[no-untyped-def]
    """The job has left its bin behind, alive."""
    level = history.level[job]
    for source in range(history.row.shape[1]):
        history.exposed[history.row[job, source], level] += 1.0
    history.level[job] = min(level + 1, history.exposed.shape[1] - 1)


@kernel(lean=True)
def ended(history, job, keep):  # type: ignore[no-untyped-def]
    """The job is done. ``keep`` (S,): what is left of a class's past when one more of its jobs ends."""
    level = history.level[job]
    for source in range(history.row.shape[1]):
        row = history.row[job, source]
        for b in range(history.deaths.shape[1]):
            history.deaths[row, b] *= keep[source]
            history.exposed[row, b] *= keep[source]
        history.deaths[row, level] += 1.0
        history.exposed[row, level] += 1.0


@kernel
def recall(history, ends, arrival_s, duration_s, until_s, keep):  # type: ignore[no-untyped-def]
    """Puts jobs of the past into the tables as if each had run at once; ``ends`` (m,): their numbers by end.

    Those that ``until_s`` finds running are survivors. Numbers are those of the first m jobs of ``history``.
    """
    for job in ends:
        if arrival_s[job] >= until_s:
            continue
        end_s = arrival_s[job] + duration_s[job]
        reached = bin_of(min(duration_s[job], until_s - arrival_s[job]))
        while history.level[job] < reached:
            passed_level(history, job)
        if end_s < until_s:
            ended(history, job, keep)


SEEN = (
    "prior",
    *(f"said_{source}" for source in SOURCES),
    *(f"behind_{source}" for source in SOURCES),
    *("bin", "ahead", "gap", "in_batch", "devices", "waited", "one"),
)
"""What the network sees of a bin, V numbers."""
LONGEST_S = float(EDGES_S[-1] * 1.4)  # where the last bin ends


@kernel(lean=True, fastmath=True)
def look(history, weights, job, log_devices, waited_s, seen):  # type: ignore[no-untyped-def]
    """Writes what is seen of the bins (B, V) from the job's on."""
    rows, own, place = history.row[job], history.level[job], history.place[job]
    exposed, deaths, prior, pseudo = history.exposed, history.deaths, weights.prior, weights.pseudo
    sources, waited = len(rows), np.log(1.0 + waited_s) / 14.0
    for b in range(own, seen.shape[0]):
        hazard = prior[b]
        seen[b, 0] = np.log(hazard / (1.0 - hazard))
        for source in range(sources):
            row = rows[source]
            behind = exposed[row, b]
            hazard = (deaths[row, b] + pseudo[source] * hazard) / (behind + pseudo[source])
            hazard = min(max(hazard, 1e-4), 0.9999)
            seen[b, 1 + source] = np.log(hazard / (1.0 - hazard))
            seen[b, 1 + sources + source] = 0.3 * np.log(1.0 + behind)
        last = 1 + 2 * sources
        seen[b, last] = 2.0 * b / seen.shape[0] - 1.0
        seen[b, last + 1] = (b - own) / 10.0
        seen[b, last + 2] = place[0] / 14.0
        seen[b, last + 3] = place[1] / 8.0
        seen[b, last + 4] = log_devices / 5.0
        seen[b, last + 5] = waited
        seen[b, last + 6] = 1.0


@kernel(lean=True, fastmath=True)
def judge(weights, seen, own, room, hazard):  # type: ignore[no-untyped-def]
    """Writes the hazards (B,) of the bins from ``own`` on; ``room`` (h,) float32."""
    base = len(SOURCES)
    bias, first, last, last_bias = (  # read once, not in every round of a loop
        weights.hazard_first_bias,
        weights.hazard_first,
        weights.hazard_last,
        weights.hazard_last_bias,
    )
    for b in range(own, len(hazard)):
        for j in range(len(room)):
            room[j] = bias[j]
        for i in range(seen.shape[1]):
            value = seen[b, i]
            for j in range(len(room)):
                room[j] += value * first[i, j]
        logit = seen[b, base] + last_bias[0]
        for j in range(len(room)):
            logit += max(room[j], np.float32(0.0)) * last[j]
        hazard[b] = 1.0 / (1.0 + np.exp(-logit))


@kernel(lean=True)
def rank(hazard, own, attained_s):  # type: ignore[no-untyped-def]
    """Expected seconds per completion at the best horizon, for a job in bin ``own``; at least 1 s.

    Whoever ends in a bin ends in its middle, and of the bin that the job is in only the rest is left.
    """
    alive, spent_s, best = 1.0, 0.0, np.inf
    for b in range(own, len(hazard)):
        left_s, chance = _rest(hazard, b, own, attained_s)
        ending = alive * chance
        spent_s += (alive - 0.5 * ending) * left_s
        alive -= ending
        if alive < 1.0 - 1e-9:
            best = min(best, spent_s / (1.0 - alive))
    return max(best, 1.0)


@kernel(lean=True)
def _rest(hazard, b, own, attained_s):  # type: ignore[no-untyped-def]
    """Seconds of bin ``b`` that lie ahead, and the chance to end in them."""
    top_s = EDGES_S[b] if b < len(EDGES_S) else LONGEST_S
    if b > own:
        return top_s - EDGES_S[b - 1], hazard[b]
    bottom_s = EDGES_S[b - 1] if b > 0 else 0.0
    left_s = min(max(top_s - attained_s, 0.0), top_s - bottom_s)
    return left_s, 1.0 - (1.0 - hazard[b]) ** (left_s / (top_s - bottom_s))
