"""EASY: whoever waits first and does not fit is given a time; later jobs start if they do not push it back."""

from __future__ import annotations

import numpy as np

from hippo.compiling import kernel
from hippo.jobs.engine import world as c
from hippo.jobs.engine.flows import carries
from hippo.jobs.engine.heaps import first_at_most
from hippo.jobs.engine.running import has_somewhere, size_of_set, start, try_start


@kernel(lean=True)
def backfill(w):  # type: ignore[no-untyped-def]
    """Start the first who waits as long as it fits; then let others by."""
    while w.tally[c.ACTIVE] > 0:
        job = _first(w)
        if job < 0:
            return
        if not try_start(w, job):
            _let_by(w, job)
            return


@kernel(lean=True)
def _first(w):  # type: ignore[no-untyped-def]
    """Who came first of all that wait and have somewhere to go, -1: nobody."""
    first = -1
    for at in range(w.tally[c.ACTIVE]):
        kind = w.active[at]
        head = w.klass[kind, c.CLASS_HEAD]
        if (first < 0 or head < first) and has_somewhere(w, w.klass[kind, c.CLASS_SHAPE]):
            first = head
    return first


@kernel(lean=True)
def _let_by(w, head):  # type: ignore[no-untyped-def]
    """Start later jobs, first come first, that end before the head's time or leave it enough devices."""
    now = w.clock[c.NOW]
    when = _reserve(w, head)
    if when == np.inf and now - w.job[head, c.SINCE] >= w.patience_s:
        return
    while True:
        job, best = w.tally[c.ARRIVED], -1
        for at in range(w.tally[c.ACTIVE]):
            kind = w.active[at]
            for pool in range(len(w.pool)):
                found = _candidate(w, kind, head, pool, when - now)
                if 0 <= found < job or (found == job and best >= 0 and _fits_better(w, pool, best)):
                    job, best = found, pool
        if best < 0:
            return
        if w.pool[best, c.POOL_SPARE] >= 0 and not _ends_in_time(w, job, best, when - now):
            w.pool[best, c.POOL_SPARE] -= w.mark[job, c.DEVICES]
        start(w, job, best)


@kernel(lean=True)
def _fits_better(w, pool, other):  # type: ignore[no-untyped-def]
    """Of two pools for one job: the faster, then the fuller."""
    if w.speed[pool] != w.speed[other]:
        return w.speed[pool] > w.speed[other]
    return w.pool[pool, c.POOL_FREE] < w.pool[other, c.POOL_FREE]


@kernel(lean=True)
def _ends_in_time(w, job, pool, within_s):  # type: ignore[no-untyped-def]
    return w.job[job, c.ESTIMATE] <= within_s * w.speed[pool]


@kernel(lean=True)
def _candidate(w, kind, head, pool, within_s):  # type: ignore[no-untyped-def]
    """Who of a class may start in a pool (but not the head), -1: nobody."""
    shape = w.klass[kind, c.CLASS_SHAPE]
    first = w.klass[kind, c.CLASS_HEAD]
    devices, spare = w.mark[first, c.DEVICES], w.pool[pool, c.POOL_SPARE]
    if not w.allowed[shape, pool] or w.pool[pool, c.POOL_FREE] < devices:
        return -1
    if spare < 0 or devices <= spare:
        return -1 if first == head else first
    base, size = w.klass[kind, c.CLASS_BASE], w.klass[kind, c.CLASS_SIZE]
    leaf = first_at_most(w.tree, base, size, within_s * w.speed[pool])
    found = -1 if leaf < 0 else w.order[w.klass[kind, c.CLASS_FIRST] + leaf]
    return -1 if found == head else found


@kernel(lean=True)
def _reserve(w, head):  # type: ignore[no-untyped-def]
    """When the head can start first if all estimates hold, inf: no end is in sight.

    Notes what it leaves of the pool, or of each pool of the set of domains, in which it then starts.
    """
    best, best_when = -1, np.inf
    shape, devices = w.mark[head, c.SHAPE], w.mark[head, c.DEVICES]
    for pool in range(len(w.pool)):
        w.pool[pool, c.POOL_SPARE] = -1
        if w.allowed[shape, pool]:
            when = _room_at(w, pool, devices)
            if when < best_when:
                best, best_when = pool, when
    domains, when = _first_set(w, head)
    if when < best_when:
        _keep_set(w, head, domains, when)
        return when
    if best >= 0:
        w.pool[best, c.POOL_SPARE] = _free_by(w, best, best_when) - devices
    return best_when


@kernel(lean=True)
def _first_set(w, head):  # type: ignore[no-untyped-def]
    """The set of domains over which the head can start first by the estimates, and when; (0, inf): none."""
    best, best_when, shape = 0, np.inf, w.mark[head, c.SHAPE]
    for at in range(w.sets.shape[1]):
        domains = w.sets[shape, at]
        if domains < 0:
            break
        part, domain, rest, when = w.mark[head, c.DEVICES] // size_of_set(domains), 0, domains, -np.inf
        while rest > 0:
            if rest & 1:
                when = max(when, _part_at(w, shape, domain, part)[1])
            rest >>= 1
            domain += 1
        if when < best_when and carries(w, head, domains):
            best, best_when = domains, when
    return best, best_when


@kernel(lean=True)
def _keep_set(w, head, domains, when):  # type: ignore[no-untyped-def]
    """Note what the head leaves of one pool in each domain of a set."""
    part, domain = w.mark[head, c.DEVICES] // size_of_set(domains), 0
    while domains > 0:
        if domains & 1:
            pool = _part_at(w, w.mark[head, c.SHAPE], domain, part)[0]
            w.pool[pool, c.POOL_SPARE] = _free_by(w, pool, when) - part
        domains >>= 1
        domain += 1


@kernel(lean=True)
def _part_at(w, shape, domain, part):  # type: ignore[no-untyped-def]
    """The pool of a domain that has room for a part first, -1: none, and when."""
    best, best_when = -1, np.inf
    for pool in range(len(w.pool)):
        if w.pool[pool, c.POOL_DOMAIN] == domain and w.partly[shape, pool]:
            when = _room_at(w, pool, part)
            if when < best_when:
                best, best_when = pool, when
    return best, best_when


@kernel(lean=True)
def _room_at(w, pool, devices):  # type: ignore[no-untyped-def]
    """When a pool will have so many devices free by the estimates; -inf: it has, inf: no end is in sight."""
    when = -np.inf
    while _free_by(w, pool, when) < devices:
        following = np.inf
        for each in range(w.pool[pool, c.POOL_FIRST], w.pool[pool, c.POOL_LAST]):
            piece = w.bin[each, c.BIN_FIRST]
            while piece >= 0:
                end = _expected_end(w, w.piece[piece, c.PIECE_JOB])
                if when < end < following:
                    following = end
                piece = w.piece[piece, c.PIECE_NEXT]
        if following == np.inf:
            return np.inf
        when = following
    return when


@kernel(lean=True)
def _free_by(w, pool, when):  # type: ignore[no-untyped-def]
    """Devices of a pool that are free then, by the estimates of who runs now."""
    free = w.pool[pool, c.POOL_FREE]
    for each in range(w.pool[pool, c.POOL_FIRST], w.pool[pool, c.POOL_LAST]):
        piece = w.bin[each, c.BIN_FIRST]
        while piece >= 0:
            if _expected_end(w, w.piece[piece, c.PIECE_JOB]) <= when:
                free += w.piece[piece, c.PIECE_DEVICES]
            piece = w.piece[piece, c.PIECE_NEXT]
    return free


@kernel(lean=True)
def _expected_end(w, job):  # type: ignore[no-untyped-def]
    """Of a running job by its estimate; who is overdue may end at once, who gave none never does."""
    estimate = w.job[job, c.ESTIMATE]
    if estimate != estimate:
        return np.inf
    return max(w.clock[c.NOW], w.job[job, c.READY] + estimate / w.job[job, c.RATE])
