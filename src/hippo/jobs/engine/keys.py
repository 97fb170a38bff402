"""How jobs rank: a policy's key, which is data (``policies.policy.Key``), and the equal share that some count from."""

from __future__ import annotations

import numpy as np

from hippo.compiling import kernel
from hippo.jobs.engine import world as c

TURN_PER_S = 1e-11
"""Turns in a queue are told in these: 300 years are a tenth of the step from one queue to the next."""

MOST_POOLS = 62
"""Beyond so many pools all jobs share alike, too."""


@kernel(lean=True)
def key(w, job, now):  # type: ignore[no-untyped-def]
    """Of a job that waits (there it stands still) or runs."""
    row, parts = w.job[job], w.changes
    if w.learns:
        return row[c.KEY]
    known = row[c.KNOWN_KEY]
    if parts == 0 or known >= c.NEVER:
        return known
    weights, changes = w.weights, 0.0
    if parts & 1 << c.REMAINING:
        changes += weights[c.REMAINING] * remaining(w, job, now)
    if parts & 1 << c.EXPECTED:
        changes += weights[c.EXPECTED] * told_left(w, job, now)
    if parts & 1 << c.ATTAINED:
        changes += weights[c.ATTAINED] * attained(w, job, now)
    if parts & 1 << c.SERVICE:
        runs_s = now - row[c.AS_OF] if w.mark[job, c.STATUS] == c.RUNNING else 0.0
        changes += weights[c.SERVICE] * (row[c.SERVED] + runs_s * row[c.RATE])
    if parts & 1 << c.CROSSED:
        changes += weights[c.CROSSED] * w.mark[job, c.LEVEL]
    if parts & 1 << c.IN_TURN:
        changes += weights[c.IN_TURN] * turn(row, w.mark[job, c.STATUS] == c.RUNNING, now)
    return known + changes * row[c.KEY_FACTOR]


@kernel(lean=True)
def turn(row, runs, now):  # type: ignore[no-untyped-def]
    """Of a job in its queue: see ``policies.policy.Key``."""
    if not (row[c.JOINED] < now if runs else row[c.JOINED] < row[c.SINCE]):  # has not run here
        return row[c.JOINED] * TURN_PER_S
    return max(row[c.BEGAN], row[c.JOINED]) * TURN_PER_S - (0.5 if runs else 0.25)


@kernel(lean=True)
def remaining(w, job, now):  # type: ignore[no-untyped-def]
    """Work that is left, in seconds on devices of speed 1."""
    row = w.job[job]
    since = max(row[c.READY], row[c.AS_OF])
    if w.mark[job, c.STATUS] == c.RUNNING and now > since:
        return max(0.0, row[c.LEFT] - (now - since) * row[c.RATE])
    return row[c.LEFT]


@kernel(lean=True)
def attained(w, job, now):  # type: ignore[no-untyped-def]
    """Work that is done, in seconds on devices of speed 1: never what is left."""
    row = w.job[job]
    if w.mark[job, c.STATUS] != c.RUNNING:
        return row[c.WORKED]
    return row[c.WORKED] + row[c.DONE_IN_RUN] + max(0.0, now - max(row[c.READY], row[c.AS_OF])) * row[c.RATE]


@kernel(lean=True)
def is_untold(w, job):  # type: ignore[no-untyped-def]
    """Whether it is not known how long a gang takes: nothing was told, and it has not ended. The past of jobs like it
    is known instead."""
    told = w.job[job, c.ESTIMATE] == w.job[job, c.ESTIMATE] or w.mark[job, c.ELASTIC] == 1
    return w.learns and not told and w.mark[job, c.STATUS] != c.DONE


@kernel(lean=True)
def index_s(w, job):  # type: ignore[no-untyped-def]
    """What stands for the work that is left of a gang that is untold: the learned policy's index of it for one device,
    the least expected time per completion of jobs like it that have done as much (Gittins), as of when it was last
    worked out."""
    return w.learned.order[job] / w.mark[job, c.DEVICES]


@kernel(lean=True)
def told_s(w, job):  # type: ignore[no-untyped-def]
    """Work of a job by what was told of it when it came; nothing was told: all of it, or what ``index_s`` says."""
    row = w.job[job]
    if is_untold(w, job):
        return attained(w, job, w.clock[c.NOW]) + index_s(w, job)
    return row[c.ESTIMATE] if row[c.ESTIMATE] == row[c.ESTIMATE] else row[c.DURATION]


@kernel(lean=True)
def told_left(w, job, now):  # type: ignore[no-untyped-def]
    """Work that is left of that, never more than that: a live queue lets who has not ended run on for longer than all
    that it was told."""
    if is_untold(w, job):
        return index_s(w, job)
    told = told_s(w, job)
    return min(told, max(0.0, told - (w.job[job, c.DURATION] - remaining(w, job, now))))


@kernel(lean=True)
def offset(w, kind, now):  # type: ignore[no-untyped-def]
    """What moves the keys of a whole class of jobs (``kind``) against the others' while they wait."""
    if w.by_user:
        return served(w, w.klass[kind, c.CLASS_USER], now)
    if w.by_share:
        return -w.group[w.shape[w.klass[kind, c.CLASS_SHAPE], c.SHAPE_GROUP], c.GROUP_ENTITLED]
    return 0.0


@kernel(lean=True)
def served(w, user, now):  # type: ignore[no-untyped-def]
    """Device-seconds of a user."""
    row = w.user[user]
    return row[c.USER_SERVED] + row[c.USER_DEVICES] * (now - row[c.USER_SINCE])


@kernel(lean=True)
def rank(w, job, now):  # type: ignore[no-untyped-def]
    """The number by which jobs of all classes are compared; ties go to the earlier job."""
    return key(w, job, now) + offset(w, w.mark[job, c.CLASS], now)


@kernel(lean=True)
def find_shares(w):  # type: ignore[no-untyped-def]
    """Give every group its share: the scarcest pools first, to those who can use nothing else.

    A share is work per second of each job, on as many devices of speed 1 as it has; at most what the group's jobs have
    each on the fastest devices that they may use.
    """
    groups, settled, used = len(w.group), 0, 0
    for group in range(groups):
        w.group[group, c.GROUP_SHARE] = _most(w, group)
        if w.group[group, c.GROUP_DEMAND] <= 0.0:
            settled |= 1 << group
    while settled != (1 << groups) - 1:
        best, best_share = 0, np.inf
        for chosen in range(1, 1 << groups):
            if chosen & settled == 0:
                share = _share(w, chosen, used)
                if share < best_share:
                    best, best_share = chosen, share
        for group in range(groups):
            if best >> group & 1:
                w.group[group, c.GROUP_SHARE] = min(w.group[group, c.GROUP_SHARE], best_share)
                used |= w.reach[group]
        settled |= best


@kernel(lean=True)
def may_use(reach, pool):  # type: ignore[no-untyped-def]
    """Whether a set holds a pool; the set -1 holds all."""
    return reach >> min(pool, 63) & 1 == 1


@kernel(lean=True)
def _most(w, group):  # type: ignore[no-untyped-def]
    """What each of a group's jobs would have on the fastest devices that it may use, had it them for itself."""
    left, work, below = max(1.0, w.group[group, c.GROUP_DEMAND]), 0.0, np.inf
    pools, speeds, reach = w.pool, w.speed, w.reach[group]
    while left > 0.0:
        speed, devices = 0.0, 0.0
        for pool in range(len(pools)):
            if may_use(reach, pool) and speed <= speeds[pool] < below:
                devices = pools[pool, c.POOL_DEVICES] + (devices if speeds[pool] == speed else 0.0)
                speed = speeds[pool]
        if speed == 0.0:
            break
        work += min(left, devices) * speed
        left, below = left - devices, speed
    return work / max(1.0, w.group[group, c.GROUP_DEMAND])


@kernel(lean=True)
def _share(w, chosen, used):  # type: ignore[no-untyped-def]
    """What these groups have each if they share alike whatever any of them can use and nobody has yet."""
    demand, reach, capacity = 0.0, 0, 0.0
    groups, of_group, pools, speeds = w.group, w.reach, w.pool, w.speed
    for group in range(len(groups)):
        if chosen >> group & 1:
            demand += groups[group, c.GROUP_DEMAND]
            reach |= of_group[group]
    for pool in range(len(pools)):
        if may_use(reach, pool) and not may_use(used, pool):
            capacity += pools[pool, c.POOL_DEVICES] * speeds[pool]
    return capacity / demand
