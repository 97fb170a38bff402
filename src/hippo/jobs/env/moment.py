"""Kernels of the environments: who could start now, what is seen of them, and starting one.

``w`` is an engine's world under the two-queue policy. ``pool`` -1: any place that the engine's rules give; else only on
devices of that pool. Letters: M candidates, F, C features, U users.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.jobs.engine import world as c
from hippo.jobs.engine.decide import enough, last_of, start_by_force
from hippo.jobs.engine.keys import rank
from hippo.jobs.engine.play import advance
from hippo.jobs.engine.running import find_pool, find_set, size_of_set, start, stop, try_start
from hippo.jobs.placement.slowdown import MOST_DOMAINS

NOT, FREELY, BY_FORCE = range(3)
FIRST, COUNT, OVER = range(3)
"""Of ``at`` (3,): no job before FIRST is left; how many candidates there are; whether nothing will ever happen."""
DAY_S = 86_400.0
SIZES = 16  # classes of devices, by powers of two


class Asked(NamedTuple):
    """Who answers, and between what."""

    pool: NDArray[np.int64]  # (P,) of each; -1: any place that the engine's rules give
    within: NDArray[np.bool_]  # (P,) whether one is still asked in this instant
    found: NDArray[np.int64]  # (P, M) candidates
    way: NDArray[np.int64]  # (P, M) how each could start
    counts: NDArray[np.int64]  # (P,) how many candidates there are


def asked(pools: Sequence[int], candidates: int) -> Asked:
    """These pools, before the first moment."""
    room = len(pools), candidates
    none = np.zeros(room, np.int64), np.zeros(room, np.int64), np.zeros(len(pools), np.int64)
    return Asked(np.array(pools, np.int64), np.zeros(len(pools), np.bool_), *none)


@kernel(lean=True)
def turn(w, who, jobs, force, at, past):  # type: ignore[no-untyped-def]
    """Each of ``who`` starts its job of ``jobs`` (P,), the first one first, if that can still start there; then to the
    next moment at which somebody has candidates. Job-seconds that were spent in the system until then.

    Whose job is -1 is asked no more in this instant. ``past``: what ``settle`` keeps: ended (n,), by_user (U, 2),
    by_size (SIZES, 2).
    """
    spent = 0.0
    for each in range(len(jobs)):
        job, pool = jobs[each], who.pool[each]
        if job < 0:
            who.within[each] = who.within[each] and who.counts[each] == 0
        elif w.mark[job, c.STATUS] == c.WAITING and could_start(w, job, pool, force) != NOT:
            begin(w, job, pool)
    while True:
        total = 0
        for each in range(len(jobs)):
            who.counts[each] = 0
            if who.within[each]:
                found, way = who.found[each], who.way[each]
                who.counts[each] = candidates(w, at[FIRST], who.pool[each], force, found, way)
            total += who.counts[each]
        if total > 0:
            return spent
        spent += go_on(w, at, past)
        if at[OVER]:
            return spent
        if who.pool[0] >= 0:
            start_spanning(w, at[FIRST])
        who.within[:] = True


@kernel(lean=True)
def go_on(w, at, past):  # type: ignore[no-untyped-def]
    """To the next instant; job-seconds."""
    before, jobs = w.clock[c.NOW], w.tally[c.N_WAITING] + w.tally[c.N_RUNNING]
    at[OVER] = 0 if advance(w) else 1
    at[FIRST] = settle(w, at[FIRST], past[0], past[1], past[2])
    return jobs * (w.clock[c.NOW] - before)


@kernel(lean=True)
def candidates(w, first, pool, force, found, way):  # type: ignore[no-untyped-def]
    """Write who could start into ``found`` (M,) and how into ``way`` (M,); how many they are.

    In the order of the two queues. If there are more than M, the first half of M of them and the last.
    ``first``: no job before it is left. ``force``: whether jobs may be stopped for others.
    """
    most, count, now = len(found), 0, w.clock[c.NOW]
    head = most // 2
    for job in range(first, w.tally[c.ARRIVED]):
        if w.mark[job, c.STATUS] != c.WAITING:
            continue
        how = could_start(w, job, pool, force)
        if how == NOT:
            continue
        place, mine = count, rank(w, job, now)
        while place > 0 and rank(w, found[place - 1], now) > mine:
            place -= 1
        gap = count  # what stands here is moved, or left out
        if count == most:
            gap = head - 1 if place < head else head
            if place == head:
                continue
            place -= place > head
        else:
            count += 1
        step = 1 if gap < place else -1
        for at in range(gap, place, step):
            found[at], way[at] = found[at + step], way[at + step]
        found[place], way[place] = job, how
    return count


@kernel(lean=True)
def could_start(w, job, pool, force):  # type: ignore[no-untyped-def]
    """Whether a job that waits could start, and how."""
    shape, devices, mine = w.mark[job, c.SHAPE], w.mark[job, c.DEVICES], rank(w, job, w.clock[c.NOW])
    if pool >= 0:
        if not w.allowed[shape, pool]:
            return NOT
        if w.pool[pool, c.POOL_FREE] >= devices:
            return FREELY
        return BY_FORCE if force and enough(w, job, mine, pool, devices) else NOT
    if find_pool(w, job) >= 0 or find_set(w, job)[0] > 0:
        return FREELY
    if force:
        for each in range(len(w.pool)):
            if w.allowed[shape, each] and enough(w, job, mine, each, devices):
                return BY_FORCE
        if w.shape[shape, c.SHAPE_ALONE] == 0 and _could_span_by_force(w, job, mine):
            return BY_FORCE
    return NOT


@kernel(lean=True)
def _could_span_by_force(w, job, mine):  # type: ignore[no-untyped-def]
    """Whether every domain of a set has room for a part once those that rank behind the job are stopped."""
    shape = w.mark[job, c.SHAPE]
    for at in range(w.sets.shape[1]):
        domains = w.sets[shape, at]
        if domains < 0:
            break
        part, lacking = w.mark[job, c.DEVICES] // size_of_set(domains), domains
        for pool in range(len(w.pool)):
            domain = w.pool[pool, c.POOL_DOMAIN]
            if domain < MOST_DOMAINS and w.partly[shape, pool] and enough(w, job, mine, pool, part):
                lacking &= ~(1 << domain)
        if lacking == 0:
            return True
    return False


@kernel(lean=True)
def begin(w, job, pool):  # type: ignore[no-untyped-def]
    """Start a job that could start; who ranks last goes first where there is no room."""
    if pool < 0:
        if not try_start(w, job):
            start_by_force(w, job)
        return
    while w.pool[pool, c.POOL_FREE] < w.mark[job, c.DEVICES]:
        stop(w, last_of(w, pool), False)
    start(w, job, pool)


@kernel(lean=True)
def start_spanning(w, first):  # type: ignore[no-untyped-def]
    """Start, in order of arrival, the jobs that fit into no single pool and for which several domains have room."""
    for job in range(first, w.tally[c.ARRIVED]):
        if w.mark[job, c.STATUS] == c.WAITING and not w.allowed[w.mark[job, c.SHAPE]].any():
            try_start(w, job)


@kernel(lean=True)
def settle(w, first, ended, by_user, by_size):  # type: ignore[no-untyped-def]
    """Note jobs that have ended since: count and sum of log durations per user (U, 2) and size (SIZES, 2).

    ``ended`` (n,) says who is noted. The new ``first``: no job before it is left.
    """
    for job in range(first, w.tally[c.ARRIVED]):
        if w.mark[job, c.STATUS] == c.DONE and not ended[job]:
            ended[job] = True
            length = np.log(1.0 + w.job[job, c.SERVED])
            for row in (by_user[w.mark[job, c.USER]], by_size[_size(w, job)]):
                row[0] += 1.0
                row[1] += length
    while first < w.tally[c.ARRIVED] and w.mark[first, c.STATUS] >= c.DONE:
        first += 1
    return first


@kernel(lean=True)
def _size(w, job):  # type: ignore[no-untyped-def]
    return min(int(np.log2(w.mark[job, c.DEVICES])), SIZES - 1)


@kernel(lean=True)
def _log(seconds):  # type: ignore[no-untyped-def]
    return np.log(1.0 + max(seconds, 0.0)) / 10.0


@kernel(lean=True)
def describe(w, at, pool, found, way, kind, past, seen, context):  # type: ignore[no-untyped-def]
    """Write what is seen of candidates, ``seen`` (M, F), and of the queue; ``kind`` (n,) of the workload."""
    _describe_queue(w, at[FIRST], pool, context)
    by_user, by_size = past[1], past[2]
    now, devices = w.clock[c.NOW], 0.0
    for each in range(len(w.pool)):
        devices += w.pool[each, c.POOL_DEVICES]
    seen[:] = 0.0
    for place in range(at[COUNT]):
        job = found[place]
        row, mark, out = w.job[job], w.mark[job], seen[place]
        out[0], out[1] = _log(row[c.SERVED]), _log(now - row[c.ARRIVAL])
        out[2], out[3] = np.log2(mark[c.DEVICES]) / 5.0, float(mark[c.LEVEL])
        out[4] = 1.0 if way[place] == BY_FORCE else 0.0
        out[5 + kind[job]] = 1.0
        out[9] = min(max(mark[c.PRIORITY] / 5.0, -2.0), 2.0)
        slack = row[c.DEADLINE] - now
        if slack < np.inf:
            out[10], out[11] = 1.0, np.sign(slack) * _log(abs(slack))
        if row[c.ESTIMATE] > 0.0:
            out[12], out[13] = _log(row[c.ESTIMATE]), 1.0
        out[14] = np.log(1.0 + row[c.GB]) / 8.0 if mark[c.HOME] >= 0 and row[c.GB] > 0.0 else 0.0
        out[15] = w.user[mark[c.USER], c.USER_DEVICES] / devices
        past = by_user[mark[c.USER]]
        out[16], out[17] = np.log(1.0 + past[0]) / 8.0, past[1] / max(past[0], 1.0) / 10.0
        past = by_size[_size(w, job)]
        out[18], out[19] = np.log(1.0 + past[0]) / 8.0, past[1] / max(past[0], 1.0) / 10.0
        out[20] = 1.0


@kernel(lean=True)
def _describe_queue(w, first, pool, seen):  # type: ignore[no-untyped-def]
    """Write what is seen of the queue, ``seen`` (C,); of one pool what is free and could be stopped there."""
    total, free, largest, wanted, late = 0.0, 0.0, 0.0, 0.0, 0.0
    for each in range(len(w.pool)):
        total += w.pool[each, c.POOL_DEVICES]
        if pool < 0 or each == pool:
            free += w.pool[each, c.POOL_FREE]
            largest = max(largest, float(w.pool[each, c.POOL_FREE]))
    for job in range(first, w.tally[c.ARRIVED]):
        if w.mark[job, c.STATUS] == c.WAITING:
            wanted += w.mark[job, c.DEVICES]
        elif w.mark[job, c.STATUS] == c.RUNNING and w.mark[job, c.LEVEL] > 0:
            late += w.mark[job, c.DEVICES] if pool < 0 or w.mark[job, c.POOL] == pool else 0
    day = 2.0 * np.pi * (w.clock[c.NOW] % DAY_S) / DAY_S
    seen[0], seen[1] = np.log(1.0 + w.tally[c.N_WAITING]) / 8.0, np.log(1.0 + w.tally[c.N_RUNNING]) / 8.0
    seen[2], seen[3] = free / total, largest / total
    seen[4], seen[5] = np.log(1.0 + wanted / total) / 5.0, late / total
    seen[6], seen[7] = np.sin(day), np.cos(day)
    seen[8] = 1.0  # in a queue that lives nobody knows that no job will come any more
    seen[9] = 1.0
