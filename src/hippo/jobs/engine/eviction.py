"""Room for a job by stopping others that rank behind it: as few as needed, those that rank last first."""

from __future__ import annotations

import numpy as np

from hippo.compiling import kernel
from hippo.jobs.engine import columns as c
from hippo.jobs.engine.keys import rank
from hippo.jobs.engine.placing import size_of_set
from hippo.jobs.engine.running import part_pool, start, start_over, stop


@kernel(lean=True)
def start_by_force(w, job):  # type: ignore[no-untyped-def]
    """Start a job that does not fit, where the jobs that must go rank worst; False: not even then is there room."""
    shape, devices, mine = w.mark[job, c.SHAPE], w.mark[job, c.DEVICES], rank(w, job, w.clock[c.NOW])
    best, best_key, best_job = -1, -np.inf, -1
    for pool in range(len(w.pool)):
        if not w.allowed[shape, pool] or not enough(w, job, mine, pool, devices):
            continue
        last = _choose(w, job, mine, pool, devices)
        _forget(w)
        last_key = rank(w, last, w.clock[c.NOW])
        if last_key > best_key or (last_key == best_key and last > best_job):
            best, best_key, best_job = pool, last_key, last
    if best >= 0:
        clear(w, job, mine, best, devices)
        start(w, job, best)
        return True
    return w.shape[shape, c.SHAPE_ALONE] == 0 and _span_by_force(w, job, mine)


@kernel(lean=True)
def _span_by_force(w, job, mine):  # type: ignore[no-untyped-def]
    """The same over the first set of domains in which there is room by force."""
    shape = w.mark[job, c.SHAPE]
    for at in range(w.sets.shape[1]):
        domains = w.sets[shape, at]
        if domains < 0:
            break
        parts = size_of_set(domains)
        part, domain, rest = w.mark[job, c.DEVICES] // parts, 0, domains
        while rest > 0:
            if rest & 1 and _part_by_force(w, job, mine, domain, part) < 0:
                break
            rest >>= 1
            domain += 1
        if rest == 0:
            _clear_set(w, job, mine, domains, part)
            start_over(w, job, domains, parts)
            return True
    return False


@kernel(lean=True)
def _clear_set(w, job, mine, domains, part):  # type: ignore[no-untyped-def]
    domain = 0
    while domains > 0:
        if domains & 1 and part_pool(w, w.mark[job, c.SHAPE], domain, part) < 0:
            clear(w, job, mine, _part_by_force(w, job, mine, domain, part), part)
        domains >>= 1
        domain += 1


@kernel(lean=True)
def _part_by_force(w, job, mine, domain, part):  # type: ignore[no-untyped-def]
    """The first pool of a domain with room for a part, by force if need be, -1: none."""
    for pool in range(len(w.pool)):
        mine_too = w.pool[pool, c.POOL_DOMAIN] == domain and w.partly[w.mark[job, c.SHAPE], pool]
        if mine_too and enough(w, job, mine, pool, part):
            return pool
    return -1


@kernel(lean=True)
def is_behind(w, other, job, mine):  # type: ignore[no-untyped-def]
    """Whether a running job ranks behind one of rank ``mine``."""
    key = rank(w, other, w.clock[c.NOW])
    return key > mine or (key == mine and other > job)


@kernel(lean=True)
def enough(w, job, mine, pool, devices):  # type: ignore[no-untyped-def]
    """Whether a pool has so many devices that are free, or held by jobs behind this one."""
    room = w.pool[pool, c.POOL_FREE]
    if room >= devices:
        return True
    for each in range(w.pool[pool, c.POOL_FIRST], w.pool[pool, c.POOL_LAST]):
        piece = w.bin[each, c.BIN_FIRST]
        while piece >= 0:
            if is_behind(w, w.piece[piece, c.PIECE_JOB], job, mine):
                room += w.piece[piece, c.PIECE_DEVICES]
                if room >= devices:
                    return True
            piece = w.piece[piece, c.PIECE_NEXT]
    return False


@kernel(lean=True)
def _choose(w, job, mine, pool, devices):  # type: ignore[no-untyped-def]
    """Mark victims, those that rank last first, until there is room; returns the best-ranked of them."""
    room, victim = w.pool[pool, c.POOL_FREE], -1
    while room < devices:
        victim = last_of(w, pool)
        w.mark[victim, c.CHOSEN] = 1
        w.victim[w.tally[c.VICTIMS]] = victim
        w.tally[c.VICTIMS] += 1
        room += _held(w, victim, pool)
    return victim


@kernel(lean=True)
def last_of(w, pool):  # type: ignore[no-untyped-def]
    """The running job of a pool that ranks last of those not yet chosen, -1: none."""
    last, last_key = -1, -np.inf
    for each in range(w.pool[pool, c.POOL_FIRST], w.pool[pool, c.POOL_LAST]):
        piece = w.bin[each, c.BIN_FIRST]
        while piece >= 0:
            other = w.piece[piece, c.PIECE_JOB]
            if w.mark[other, c.CHOSEN] == 0:
                key = rank(w, other, w.clock[c.NOW])
                if last < 0 or key > last_key or (key == last_key and other > last):
                    last, last_key = other, key
            piece = w.piece[piece, c.PIECE_NEXT]
    return last


@kernel(lean=True)
def _held(w, job, pool):  # type: ignore[no-untyped-def]
    """Devices that a job holds in a pool."""
    held, piece = 0, w.mark[job, c.PIECE]
    while piece >= 0:
        if w.bin[w.piece[piece, c.PIECE_BIN], c.BIN_POOL] == pool:
            held += w.piece[piece, c.PIECE_DEVICES]
        piece = w.piece[piece, c.PIECE_OF_JOB]
    return held


@kernel(lean=True)
def _forget(w):  # type: ignore[no-untyped-def]
    for at in range(w.tally[c.VICTIMS]):
        w.mark[w.victim[at], c.CHOSEN] = 0
    w.tally[c.VICTIMS] = 0


@kernel(lean=True)
def clear(w, job, mine, pool, devices):  # type: ignore[no-untyped-def]
    """Stop the victims in a pool; those that rank best are spared if there is room without them."""
    if w.pool[pool, c.POOL_FREE] >= devices:
        return
    _choose(w, job, mine, pool, devices)
    surplus = w.pool[pool, c.POOL_FREE] - devices
    for at in range(w.tally[c.VICTIMS]):
        surplus += _held(w, w.victim[at], pool)
    for at in range(w.tally[c.VICTIMS] - 1, -1, -1):
        victim = w.victim[at]
        held = _held(w, victim, pool)
        w.mark[victim, c.CHOSEN] = 0
        if held <= surplus:
            surplus -= held
            w.victim[at] = -1
    for at in range(w.tally[c.VICTIMS]):
        if w.victim[at] >= 0:
            stop(w, w.victim[at], False)
    w.tally[c.VICTIMS] = 0
