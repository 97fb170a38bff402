"""The decision at the end of an instant: jobs in order of rank start if they fit, by force if the policy stops jobs.

A job that does not fit is passed over, and with it all of its class: they are of one shape and rank behind it. It need
not be tried again in this instant, as whatever a later job may take or clear, it could have, too.
"""

from __future__ import annotations

import numpy as np

from hippo.compiling import kernel
from hippo.jobs.engine import columns as c
from hippo.jobs.engine.agenda import set_due
from hippo.jobs.engine.backfilling import backfill
from hippo.jobs.engine.climbing import climb, could_climb
from hippo.jobs.engine.eviction import is_behind, last_of, start_by_force
from hippo.jobs.engine.keys import offset, rank
from hippo.jobs.engine.placing import try_start


@kernel(lean=True)
def decide(w):  # type: ignore[no-untyped-def]
    """Let jobs start and stop until nobody who waits could go on."""
    if w.tally[c.N_WAITING] > 0:
        if w.strict:
            _in_line(w)
        elif w.policy == c.BACKFILL:
            backfill(w)
        else:
            _by_rank(w, w.preempts and (not w.rounds or w.tally[c.ROUND_ENDS] > 0))
    unlike = w.rounds and _differ(w.speed)
    if unlike and w.tally[c.ROUND_ENDS] > 0 and climb(w):
        _by_rank(w, True)
    w.tally[c.ROUND_ENDS] = 0
    clock, has_clock = len(w.job) + len(w.bin), w.rounds or w.policy == c.LEARNED
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
    """Only ever the first."""
    while w.tally[c.ACTIVE] > 0:
        best = w.active[0]
        for at in range(1, w.tally[c.ACTIVE]):
            kind = w.active[at]
            key, best_key = w.head_key[kind], w.head_key[best]
            if key < best_key or (key == best_key and w.klass[kind, c.CLASS_HEAD] < w.klass[best, c.CLASS_HEAD]):
                best = kind
        if not try_start(w, w.klass[best, c.CLASS_HEAD]):
            return


@kernel(lean=True)
def _by_rank(w, by_force):  # type: ignore[no-untyped-def]
    """Everyone in order of rank."""
    for at in range(w.tally[c.ACTIVE]):
        w.passed[w.active[at]] = False
    if by_force:
        _find_last(w)
    while True:
        kind = _next_class(w, by_force)
        if kind < 0:
            return
        job = w.klass[kind, c.CLASS_HEAD]
        if try_start(w, job):
            if by_force:
                _stands_last(w, job)
        elif by_force and start_by_force(w, job):
            _find_last(w)
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
        last = w.pool[pool, c.POOL_WORST]
        if by_force and last >= 0 and w.partly[shape, pool] and is_behind(w, last, job, key):
            return True
    return False


@kernel(lean=True)
def _find_last(w):  # type: ignore[no-untyped-def]
    """Who ranks last in each pool."""
    for pool in range(len(w.pool)):
        w.pool[pool, c.POOL_WORST] = last_of(w, pool)


@kernel(lean=True)
def _stands_last(w, job):  # type: ignore[no-untyped-def]
    """A job has started; whether it now ranks last where it runs."""
    piece = w.mark[job, c.PIECE]
    while piece >= 0:
        pool = w.bin[w.piece[piece, c.PIECE_BIN], c.BIN_POOL]
        last = w.pool[pool, c.POOL_WORST]
        if last < 0 or is_behind(w, job, last, rank(w, last, w.clock[c.NOW])):
            w.pool[pool, c.POOL_WORST] = job
        piece = w.piece[piece, c.PIECE_OF_JOB]
