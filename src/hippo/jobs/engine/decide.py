"""The decision at the end of an instant: jobs in order of rank start if they fit, by force if the policy stops jobs.

A job that does not fit is passed over, and with it all of its class: they are of one shape and rank behind it. It need
not be tried again in this instant, as whatever a later job may take or clear, it could have, too.
"""

from __future__ import annotations

import numpy as np

from hippo.compiling import kernel
from hippo.jobs.engine import world as c
from hippo.jobs.engine.backfilling import backfill
from hippo.jobs.engine.flows import carries
from hippo.jobs.engine.heaps import set_due
from hippo.jobs.engine.keys import offset, rank
from hippo.jobs.engine.running import has_somewhere, is_far, part_pool, size_of_set, start, start_over, stop, try_start


@kernel(lean=True)
def decide(w):  # type: ignore[no-untyped-def]
    """Let jobs start and stop until nobody who waits could go on."""
    if w.tally[c.N_WAITING] > 0:
        if w.strict:
            _in_line(w)
        elif w.backfills:
            backfill(w)
        else:
            _by_rank(w, w.preempts and (not w.rounds or w.tally[c.ROUND_ENDS] > 0))
    unlike = w.rounds and _differ(w.speed)
    if unlike and w.tally[c.ROUND_ENDS] > 0 and climb(w):
        _by_rank(w, True)
    w.tally[c.ROUND_ENDS] = 0
    clock, has_clock = len(w.job) + len(w.bin), w.rounds or w.learns
    if has_clock and w.place[clock] < 0 and (w.tally[c.N_WAITING] > 0 or (unlike and could_climb(w))):
        set_due(w.heap, w.due, w.place, w.tally[c.HEAP : c.HEAP + 1], clock, _end_of_round(w.clock[c.NOW], w.round_s))


@kernel(lean=True)
def _differ(speed):  # type: ignore[no-untyped-def]
    """Whether pools differ in speed."""
    found = False
    for pool in range(1, len(speed)):
        found = found or speed[pool] != speed[0]
    return found


@kernel(lean=True)
def _end_of_round(now, round_s):  # type: ignore[no-untyped-def]
    """The first multiple of a round's length after now."""
    count = np.floor(now / round_s) + 1.0
    return count * round_s if count * round_s > now else (count + 1.0) * round_s


@kernel(lean=True)
def _in_line(w):  # type: ignore[no-untyped-def]
    """Only ever the first, of those that have somewhere to go."""
    while w.tally[c.ACTIVE] > 0:
        best = -1
        for at in range(w.tally[c.ACTIVE]):
            kind = w.active[at]
            if not has_somewhere(w, w.klass[kind, c.CLASS_SHAPE]):
                continue
            key, best_key = w.head_key[kind], w.head_key[best]
            earlier = w.klass[kind, c.CLASS_HEAD] < w.klass[best, c.CLASS_HEAD]
            if best < 0 or key < best_key or (key == best_key and earlier):
                best = kind
        if best < 0 or not try_start(w, w.klass[best, c.CLASS_HEAD]):
            return


@kernel(lean=True)
def _by_rank(w, by_force):  # type: ignore[no-untyped-def]
    """Everyone in order of rank."""
    for at in range(w.tally[c.ACTIVE]):
        w.passed[w.active[at]] = False
    if by_force:
        _forget_last(w)
    while True:
        kind = _next_class(w, by_force)
        if kind < 0:
            return
        job = w.klass[kind, c.CLASS_HEAD]
        if try_start(w, job):
            if by_force:
                _stands_last(w, job)
        elif by_force and start_by_force(w, job):
            _forget_last(w)
        else:
            w.passed[kind] = True


@kernel(lean=True)
def _next_class(w, by_force):  # type: ignore[no-untyped-def]
    """The class whose head ranks first of those that could start, -1: none."""
    best, best_key, best_job = -1, 0.0, -1
    for at in range(w.tally[c.ACTIVE]):
        kind = w.active[at]
        if w.passed[kind]:
            continue
        job = w.klass[kind, c.CLASS_HEAD]
        key = w.head_key[kind] + offset(w, kind, w.clock[c.NOW])
        if best >= 0 and (key > best_key or (key == best_key and job > best_job)):
            continue
        if _might_start(w, kind, job, key, by_force):
            best, best_key, best_job = kind, key, job
    return best


@kernel(lean=True)
def _might_start(w, kind, job, key, by_force):  # type: ignore[no-untyped-def]
    """A quick look: whether some pool has room, or runs a job that ranks behind."""
    shape, devices = w.klass[kind, c.CLASS_SHAPE], w.mark[job, c.DEVICES]
    spans = w.sets[shape, 0] >= 0
    for pool in range(len(w.pool)):
        if w.allowed[shape, pool] and w.pool[pool, c.POOL_FREE] >= devices:
            return True
        if spans and w.partly[shape, pool] and w.pool[pool, c.POOL_FREE] > 0:
            return True
        if by_force and w.partly[shape, pool]:
            if w.pool[pool, c.POOL_WORST] == c.UNKNOWN:
                w.pool[pool, c.POOL_WORST] = last_of(w, pool)
            last = w.pool[pool, c.POOL_WORST]
            if last >= 0 and is_behind(w, last, job, key):
                return True
    return False


@kernel(lean=True)
def _forget_last(w):  # type: ignore[no-untyped-def]
    """Who ranks last in each pool is to be found anew when somebody asks."""
    for pool in range(len(w.pool)):
        w.pool[pool, c.POOL_WORST] = c.UNKNOWN


@kernel(lean=True)
def _stands_last(w, job):  # type: ignore[no-untyped-def]
    """A job has started; whether it now ranks last where it runs."""
    piece = w.mark[job, c.PIECE]
    while piece >= 0:
        pool = w.bin[w.piece[piece, c.PIECE_BIN], c.BIN_POOL]
        last = w.pool[pool, c.POOL_WORST]
        if last == -1 or (last >= 0 and is_behind(w, job, last, rank(w, last, w.clock[c.NOW]))):
            w.pool[pool, c.POOL_WORST] = job
        piece = w.piece[piece, c.PIECE_OF_JOB]


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
        if rest == 0 and carries(w, job, domains):
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
    room, pieces = w.pool[pool, c.POOL_FREE], w.piece
    if room >= devices:
        return True
    for each in range(w.pool[pool, c.POOL_FIRST], w.pool[pool, c.POOL_LAST]):
        piece = w.bin[each, c.BIN_FIRST]
        while piece >= 0:
            if is_behind(w, pieces[piece, c.PIECE_JOB], job, mine):
                room += pieces[piece, c.PIECE_DEVICES]
                if room >= devices:
                    return True
            piece = pieces[piece, c.PIECE_NEXT]
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
    last, last_key, now, pieces = -1, -np.inf, w.clock[c.NOW], w.piece
    for each in range(w.pool[pool, c.POOL_FIRST], w.pool[pool, c.POOL_LAST]):
        piece = w.bin[each, c.BIN_FIRST]
        while piece >= 0:
            other = pieces[piece, c.PIECE_JOB]
            if w.mark[other, c.CHOSEN] == 0:
                key = rank(w, other, now)
                if last < 0 or key > last_key or (key == last_key and other > last):
                    last, last_key = other, key
            piece = pieces[piece, c.PIECE_NEXT]
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


@kernel(lean=True)
def climb(w):  # type: ignore[no-untyped-def]
    """Move them; whether anybody moved. Who had to go waits."""
    now, key, job, moved = w.clock[c.NOW], -np.inf, -1, False
    while True:
        job, pool = _next_to_climb(w, key, job, now)
        if job < 0:
            return moved
        key = rank(w, job, now)
        stop(w, job, False)
        clear(w, job, key, pool, w.mark[job, c.DEVICES])
        start(w, job, pool)
        moved = True


@kernel(lean=True)
def could_climb(w):  # type: ignore[no-untyped-def]
    """Whether some running job would gain in another pool, had it room there."""
    for each in range(len(w.bin)):
        piece = w.bin[each, c.BIN_FIRST]
        while piece >= 0:
            for pool in range(len(w.pool)):
                if _gains(w, w.piece[piece, c.PIECE_JOB], pool):
                    return True
            piece = w.piece[piece, c.PIECE_NEXT]
    return False


@kernel(lean=True)
def _next_to_climb(w, after_key, after_job, now):  # type: ignore[no-untyped-def]
    """Who ranks first of those behind a rank that can move, and to which pool; (-1, -1): nobody."""
    best, best_key, best_pool = -1, np.inf, -1
    for each in range(len(w.bin)):
        piece = w.bin[each, c.BIN_FIRST]
        while piece >= 0:
            job = w.piece[piece, c.PIECE_JOB]
            piece = w.piece[piece, c.PIECE_NEXT]
            key = rank(w, job, now)
            behind = key > after_key or (key == after_key and job > after_job)
            first = best < 0 or key < best_key or (key == best_key and job < best)
            if behind and first and w.job[job, c.BEGAN] < now:
                pool = _faster(w, job, key)
                if pool >= 0:
                    best, best_key, best_pool = job, key, pool
    return best, best_pool


@kernel(lean=True)
def _faster(w, job, mine):  # type: ignore[no-untyped-def]
    """The fastest pool that a job gains by and that has room for it, if need be by force, -1: none."""
    best, best_room, devices = -1, False, w.mark[job, c.DEVICES]
    for pool in range(len(w.pool)):
        if not _gains(w, job, pool) or not enough(w, job, mine, pool, devices):
            continue
        room = w.pool[pool, c.POOL_FREE] >= devices
        if best < 0 or w.speed[pool] > w.speed[best] or (w.speed[pool] == w.speed[best] and room and not best_room):
            best, best_room = pool, room
    return best


@kernel(lean=True)
def _gains(w, job, pool):  # type: ignore[no-untyped-def]
    """Whether a job does more work there in a round, restart included, than where it runs; its data must be there."""
    here, shape = w.mark[job, c.POOL], w.mark[job, c.SHAPE]
    if w.mark[job, c.DOMAINS] > 0 or not w.allowed[shape, pool]:
        return False
    if w.speed[pool] * (w.round_s - w.restart_s) <= w.speed[here] * w.round_s:
        return False
    return not is_far(w, job, w.pool[pool, c.POOL_DOMAIN], w.job[job, c.GB])
