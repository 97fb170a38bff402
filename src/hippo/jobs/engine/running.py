"""A job starts, is stopped, crosses a level of service, ends."""

from __future__ import annotations

import numpy as np

from hippo.compiling import kernel
from hippo.jobs.engine import columns as c
from hippo.jobs.engine import learning
from hippo.jobs.engine.agenda import set_due
from hippo.jobs.engine.holding import give_back, take
from hippo.jobs.engine.keys import key
from hippo.jobs.engine.moving import fetch, fetch_to_set
from hippo.jobs.engine.waiting import join, leave, rekey


@kernel(lean=True)
def start(w, job, pool):  # type: ignore[no-untyped-def]
    """Run a job that waits on free devices of one pool."""
    take(w, job, pool, w.mark[job, c.DEVICES])
    w.mark[job, c.POOL] = pool
    there = fetch(w, job, w.pool[pool, c.POOL_DOMAIN], w.job[job, c.GB], w.clock[c.NOW])
    _begin(w, job, 0, there, w.speed[pool], 0.0)


@kernel(lean=True)
def start_over(w, job, domains, parts):  # type: ignore[no-untyped-def]
    """Run a job that waits over a set of domains, an equal part on free devices of each."""
    speed, domain, rest = np.inf, 0, domains
    shape, part, row = w.mark[job, c.SHAPE], w.mark[job, c.DEVICES] // parts, w.mark[job, c.ROW]
    w.mark[job, c.POOL] = -1
    while rest > 0:
        if rest & 1:
            pool = part_pool(w, shape, domain, part)
            take(w, job, pool, part)
            speed = min(speed, w.speed[pool])
            if w.mark[job, c.POOL] < 0:
                w.mark[job, c.POOL] = pool
        rest >>= 1
        domain += 1
    there = fetch_to_set(w, job, domains, w.clock[c.NOW])
    _begin(w, job, domains, there, speed / w.factor[row, domains], w.usd_per_s[row, domains])


@kernel(lean=True)
def part_pool(w, shape, domain, devices):  # type: ignore[no-untyped-def]
    """The first pool of a domain with room for a part of a job, -1: none."""
    for pool in range(len(w.pool)):
        if w.pool[pool, c.POOL_DOMAIN] == domain and w.partly[shape, pool] and w.pool[pool, c.POOL_FREE] >= devices:
            return pool
    return -1


@kernel(lean=True)
def _begin(w, job, domains, there, rate, usd_per_s):  # type: ignore[no-untyped-def]
    """Times of a run that begins now; ``domains``: the set that it spans, ``there``: when its data are with it."""
    leave(w, job)
    now, row, mark = w.clock[c.NOW], w.job[job], w.mark[job]
    stopped = mark[c.STOPS] + mark[c.FAILED] > 0
    ready = now + (w.restart_s if stopped else 0.0)
    if w.before:
        ready = max(ready, there)
    row[c.BEGAN], row[c.READY], row[c.RATE], row[c.USD_PER_S] = now, ready, rate, usd_per_s
    row[c.FINISH] = max(ready + row[c.LEFT] / rate, there)
    row[c.SLOWDOWN] = 1.0 / rate
    if not stopped:
        row[c.FIRST] = now
    mark[c.STATUS], mark[c.DOMAINS] = c.RUNNING, domains
    w.tally[c.N_RUNNING] += 1
    w.tally[c.EVENTS] += 1
    _count_for_user(w, job, now, mark[c.DEVICES])
    _look_ahead(w, job)


@kernel(lean=True)
def _count_for_user(w, job, now, devices):  # type: ignore[no-untyped-def]
    user = w.user[w.mark[job, c.USER]]
    user[c.USER_SERVED] += user[c.USER_DEVICES] * (now - user[c.USER_SINCE])
    user[c.USER_SINCE] = now
    user[c.USER_DEVICES] += devices


@kernel(lean=True)
def _look_ahead(w, job):  # type: ignore[no-untyped-def]
    """When a running job ends or crosses its next level, whichever is first."""
    row, level = w.job[job], w.mark[job, c.LEVEL]
    due = row[c.FINISH]
    if level < len(w.levels):
        per_s = float(w.mark[job, c.DEVICES]) if w.per_device else 1.0
        lacks = w.levels[level] / per_s - row[c.HELD]
        due = min(due, row[c.READY] + max(0.0, lacks))
    set_due(w.heap, w.due, w.place, w.tally[c.HEAP : c.HEAP + 1], job, due)


@kernel(lean=True)
def happen(w, job, now):  # type: ignore[no-untyped-def]
    """What a job was due for: it ends, crosses a level, or has waited so long that it is promoted."""
    mark, row = w.mark[job], w.job[job]
    w.tally[c.EVENTS] += 1
    if mark[c.STATUS] == c.WAITING:
        set_due(w.heap, w.due, w.place, w.tally[c.HEAP : c.HEAP + 1], job, np.inf)
        mark[c.LEVEL] = 0
        row[c.HELD] = 0.0
        rekey(w, job, key(w, job, now))
    elif row[c.FINISH] <= now:
        _finish(w, job, now)
    else:
        mark[c.LEVEL] += 1
        learn(w, job, now)
        _look_ahead(w, job)


@kernel(lean=True)
def learn(w, job, now):  # type: ignore[no-untyped-def]
    """Ask a learned policy for a job's key: when it comes, and when it crosses a level."""
    if w.policy == c.LEARNED:
        w.job[job, c.KEY] = learning.key(w, job, now)


@kernel(lean=True)
def _end_run(w, job, now):  # type: ignore[no-untyped-def]
    """Settle a run that ends now, and give its devices back."""
    row, mark = w.job[job], w.mark[job]
    ran = now - row[c.BEGAN]
    row[c.HELD] += max(0.0, now - row[c.READY])
    row[c.RUN] += ran
    row[c.SERVED] += ran * row[c.RATE]
    row[c.USD] += max(0.0, now - row[c.READY]) * row[c.USD_PER_S]
    _count_for_user(w, job, now, -mark[c.DEVICES])
    if len(w.segment) > 0:
        _draw(w, job, now)
    give_back(w, job)
    w.tally[c.N_RUNNING] -= 1


@kernel(lean=True)
def _draw(w, job, now):  # type: ignore[no-untyped-def]
    """Write down what a run held; counts on where there is no room, so that whoever asked can make some."""
    piece = w.mark[job, c.PIECE]
    while piece >= 0:
        at = w.tally[c.SEGMENTS]
        if at < len(w.segment):
            pool = w.bin[w.piece[piece, c.PIECE_BIN], c.BIN_POOL]
            w.segment[at, 0], w.segment[at, 1], w.segment[at, 2] = job, pool, w.piece[piece, c.PIECE_DEVICES]
            w.segment_s[at, 0], w.segment_s[at, 1] = w.job[job, c.BEGAN], now
        w.tally[c.SEGMENTS] += 1
        piece = w.piece[piece, c.PIECE_OF_JOB]


@kernel(lean=True)
def _finish(w, job, now):  # type: ignore[no-untyped-def]
    _end_run(w, job, now)
    w.job[job, c.LEFT] = 0.0
    w.mark[job, c.STATUS] = c.DONE
    w.tally[c.N_DONE] += 1
    w.user[w.mark[job, c.USER], c.USER_JOBS] -= 1
    w.group[w.shape[w.mark[job, c.SHAPE], c.SHAPE_GROUP], c.GROUP_DEMAND] -= w.mark[job, c.DEVICES]
    w.tally[c.SHARES_OLD] = 1
    set_due(w.heap, w.due, w.place, w.tally[c.HEAP : c.HEAP + 1], job, np.inf)
    learning.finished(w, job, now)


@kernel(lean=True)
def stop(w, job, failed):  # type: ignore[no-untyped-def]
    """Stop a job that runs; it waits again. ``failed``: by a broken node, so work since its checkpoint is lost."""
    now, row, mark = w.clock[c.NOW], w.job[job], w.mark[job]
    _end_run(w, job, now)
    computed = max(0.0, now - row[c.READY])
    if failed:
        computed = np.floor(computed / w.checkpoint_s) * w.checkpoint_s
        mark[c.FAILED] += 1
    else:
        mark[c.STOPS] += 1
    row[c.LEFT] = max(0.0, row[c.LEFT] - computed * row[c.RATE])
    row[c.WORKED] += computed * row[c.RATE]
    row[c.SINCE] = now
    mark[c.STATUS] = c.WAITING
    w.tally[c.EVENTS] += 1
    due = np.inf
    if w.policy == c.TWO_QUEUE and mark[c.LEVEL] > 0:
        due = now + w.numbers[0] * row[c.HELD]
    set_due(w.heap, w.due, w.place, w.tally[c.HEAP : c.HEAP + 1], job, due)
    join(w, job, key(w, job, now))
