"""Where a job that waits could start: a pool with room, or a set of domains."""

from __future__ import annotations

from hippo.compiling import kernel
from hippo.jobs.engine.columns import DEVICES, GB, POOL_DOMAIN, POOL_FREE, SHAPE
from hippo.jobs.engine.moving import is_far
from hippo.jobs.engine.running import part_pool, start, start_over


@kernel(lean=True)
def try_start(w, job):  # type: ignore[no-untyped-def]
    """Start a job on what is free: inside one domain if it can, else over several if it may."""
    pool = find_pool(w, job)
    if pool >= 0:
        start(w, job, pool)
        return True
    domains, parts = find_set(w, job)
    if domains > 0:
        start_over(w, job, domains, parts)
        return True
    return False


@kernel(lean=True)
def find_pool(w, job):  # type: ignore[no-untyped-def]
    """The pool for it, -1: none has room. Best: where its data lie, then the fastest, then the fullest, then first."""
    shape, devices, gb = w.mark[job, SHAPE], w.mark[job, DEVICES], w.job[job, GB]
    best, best_far, best_speed, best_free = -1, True, 0.0, 0
    for pool in range(len(w.pool)):
        free = w.pool[pool, POOL_FREE]
        if free < devices or not w.allowed[shape, pool]:
            continue
        far, speed = is_far(w, job, w.pool[pool, POOL_DOMAIN], gb), w.speed[pool]
        if best < 0:
            better = True
        elif far != best_far:
            better = best_far
        elif speed != best_speed:
            better = speed > best_speed
        else:
            better = free < best_free
        if better:
            best, best_far, best_speed, best_free = pool, far, speed, free
    return best


@kernel(lean=True)
def find_set(w, job):  # type: ignore[no-untyped-def]
    """The set of domains for it and how many they are; (0, 0): none that it may span has room."""
    shape = w.mark[job, SHAPE]
    for at in range(w.sets.shape[1]):
        domains = w.sets[shape, at]
        if domains < 0:
            break
        parts = size_of_set(domains)
        part, domain, rest = w.mark[job, DEVICES] // parts, 0, domains
        while rest > 0:
            if rest & 1 and part_pool(w, shape, domain, part) < 0:
                break
            rest >>= 1
            domain += 1
        if rest == 0:
            return domains, parts
    return 0, 0


@kernel(lean=True)
def size_of_set(domains):  # type: ignore[no-untyped-def]
    """How many domains a set holds."""
    count = 0
    while domains > 0:
        count += domains & 1
        domains >>= 1
    return count
