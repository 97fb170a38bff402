"""What jobs are entitled to: an equal share of what they may use, filled like water where kinds of device differ."""

from __future__ import annotations

import numpy as np

from hippo.compiling import kernel
from hippo.jobs.engine.columns import GROUP_DEMAND, GROUP_SHARE, POOL_DEVICES

MOST_GROUPS = 6
"""Groups of jobs that may use different pools; beyond, all share alike."""

MOST_POOLS = 62
"""Beyond so many pools all jobs share alike, too."""


@kernel(lean=True)
def find_shares(w):  # type: ignore[no-untyped-def]
    """Give every group its share: the scarcest pools first, to those who can use nothing else.

    A share is work per second of each job, on as many devices of speed 1 as it has; at most what the group's jobs have
    each on the fastest devices that they may use.
    """
    groups, settled, used = len(w.group), 0, 0
    for group in range(groups):
        w.group[group, GROUP_SHARE] = _most(w, group)
        if w.group[group, GROUP_DEMAND] <= 0.0:
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
                w.group[group, GROUP_SHARE] = min(w.group[group, GROUP_SHARE], best_share)
                used |= w.reach[group]
        settled |= best


@kernel(lean=True)
def _may_use(reach, pool):  # type: ignore[no-untyped-def]
    """Whether a set holds a pool; the set -1 holds all."""
    return reach >> min(pool, 63) & 1 == 1


@kernel(lean=True)
def _most(w, group):  # type: ignore[no-untyped-def]
    """What each of a group's jobs would have on the fastest devices that it may use, had it them for itself."""
    left, work, below = max(1.0, w.group[group, GROUP_DEMAND]), 0.0, np.inf
    while left > 0.0:
        speed, devices = 0.0, 0.0
        for pool in range(len(w.pool)):
            if _may_use(w.reach[group], pool) and speed <= w.speed[pool] < below:
                devices = w.pool[pool, POOL_DEVICES] + (devices if w.speed[pool] == speed else 0.0)
                speed = w.speed[pool]
        if speed == 0.0:
            break
        work += min(left, devices) * speed
        left, below = left - devices, speed
    return work / max(1.0, w.group[group, GROUP_DEMAND])


@kernel(lean=True)
def _share(w, chosen, used):  # type: ignore[no-untyped-def]
    """What these groups have each if they share alike whatever any of them can use and nobody has yet."""
    demand, reach, capacity = 0.0, 0, 0.0
    for group in range(len(w.group)):
        if chosen >> group & 1:
            demand += w.group[group, GROUP_DEMAND]
            reach |= w.reach[group]
    for pool in range(len(w.pool)):
        if _may_use(reach, pool) and not _may_use(used, pool):
            capacity += w.pool[pool, POOL_DEVICES] * w.speed[pool]
    return capacity / demand
