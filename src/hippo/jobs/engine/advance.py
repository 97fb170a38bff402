"""To the next instant at which something can be decided, and all that happens in it.

In an instant, first running jobs end and cross levels, then nodes fail and come back, then rounds end, then jobs
arrive.
"""

from __future__ import annotations

import numpy as np

from hippo.compiling import kernel
from hippo.jobs.engine import columns as c
from hippo.jobs.engine import learning
from hippo.jobs.engine.agenda import set_due
from hippo.jobs.engine.breaking import break_or_repair
from hippo.jobs.engine.keys import key
from hippo.jobs.engine.running import happen, learn
from hippo.jobs.engine.shares import find_shares
from hippo.jobs.engine.waiting import join


@kernel(lean=True)
def advance(w):  # type: ignore[no-untyped-def]
    """Go to the next instant; False: nothing is to come."""
    if w.tally[c.N_DONE] == len(w.job):
        return False
    arrived, now = w.tally[c.ARRIVED], np.inf
    if arrived < len(w.job):
        now = w.job[arrived, c.ARRIVAL]
    if w.tally[c.HEAP] > 0:
        now = min(now, w.due[w.heap[0]])
    if now == np.inf:
        return False
    _account(w, now)
    w.clock[c.NOW] = now
    while w.tally[c.HEAP] > 0 and w.due[w.heap[0]] <= now:
        _item(w, w.heap[0], now)
    while w.tally[c.ARRIVED] < len(w.job) and w.job[w.tally[c.ARRIVED], c.ARRIVAL] <= now:
        _arrive(w, w.tally[c.ARRIVED], now)
        w.tally[c.ARRIVED] += 1
    if w.policy == c.MAX_MIN and w.tally[c.SHARES_OLD] > 0:
        find_shares(w)
        w.tally[c.SHARES_OLD] = 0
    return True


@kernel(lean=True)
def _item(w, item, now):  # type: ignore[no-untyped-def]
    """Whatever was due: of a job, of a node, or the end of a round."""
    if item < len(w.job):
        happen(w, item, now)
    elif item < len(w.job) + len(w.bin):
        break_or_repair(w, item - len(w.job), now)
    else:
        w.tally[c.ROUND_ENDS] = 1
        learning.refresh(w, now)
        w.tally[c.EVENTS] += 1
        set_due(w.heap, w.due, w.place, w.tally[c.HEAP : c.HEAP + 1], item, np.inf)


@kernel(lean=True)
def _arrive(w, job, now):  # type: ignore[no-untyped-def]
    """A job comes, and waits; one that can never run is passed over."""
    mark = w.mark[job]
    if mark[c.STATUS] == c.REFUSED:
        w.tally[c.N_DONE] += 1
        return
    w.tally[c.EVENTS] += 1
    user = w.user[mark[c.USER]]
    if w.policy == c.FAIR and user[c.USER_JOBS] == 0.0:
        _catch_up(w, mark[c.USER], now)
    user[c.USER_JOBS] += 1
    group = w.group[w.shape[mark[c.SHAPE], c.SHAPE_GROUP]]
    group[c.GROUP_DEMAND] += mark[c.DEVICES]
    w.tally[c.SHARES_OLD] = 1
    if w.policy == c.MAX_MIN:
        w.job[job, c.KEY] = group[c.GROUP_ENTITLED]
    mark[c.STATUS] = c.WAITING
    w.job[job, c.SINCE] = now
    learning.arrived(w, job, now)
    learn(w, job, now)
    join(w, job, key(w, job, now))


@kernel(lean=True)
def _catch_up(w, user, now):  # type: ignore[no-untyped-def]
    """Who comes back has at least the service of the one who is there and has had least."""
    least = np.inf
    for other in range(len(w.user)):
        row = w.user[other]
        if row[c.USER_JOBS] > 0.0:
            least = min(least, row[c.USER_SERVED] + row[c.USER_DEVICES] * (now - row[c.USER_SINCE]))
    if least < np.inf:
        row = w.user[user]
        row[c.USER_SERVED], row[c.USER_SINCE] = max(row[c.USER_SERVED], least), now


@kernel(lean=True)
def _account(w, until):  # type: ignore[no-untyped-def]
    """Add what stood since the last instant to the series and to what groups are entitled to."""
    now, pools, length = w.clock[c.NOW], len(w.pool), len(w.series)
    for group in range(len(w.group)):
        w.group[group, c.GROUP_ENTITLED] += w.group[group, c.GROUP_SHARE] * (until - now)
    while until - w.clock[c.STARTED_AT] >= length * w.clock[c.BIN_WIDTH]:
        _fold(w)
    start, width = w.clock[c.STARTED_AT], w.clock[c.BIN_WIDTH]
    while now < until:
        at = min(int((now - start) / width), length - 1)
        end = start + (at + 1) * width
        if end <= now:  # rounding
            at, end = min(at + 1, length - 1), start + (at + 2) * width
        part = min(until, end) - now
        for pool in range(pools):
            w.series[at, pool] += w.pool[pool, c.POOL_HELD] * part
        w.series[at, pools] += w.tally[c.N_WAITING] * part
        now = min(until, end)


@kernel(lean=True)
def _fold(w):  # type: ignore[no-untyped-def]
    """Make the series reach twice as far: two of its bins become one."""
    length = len(w.series)
    for at in range(length):
        for column in range(w.series.shape[1]):
            both = 0.0
            if 2 * at + 1 < length:
                both = w.series[2 * at, column] + w.series[2 * at + 1, column]
            w.series[at, column] = both
    w.clock[c.BIN_WIDTH] *= 2.0
