"""A world's state carried over into one that was opened for other jobs of the same site: some have left, some are new.

A replay knows its jobs when it opens; a queue that lives does not. So whenever jobs come it opens a world for those who
are there, and this brings over what stands: who runs where, what is on its way, what was done, what is due. Both worlds
hold their jobs in order of arrival, those that have come before first, so every rule that goes by a job's number
answers as before. Letters: ``world``; n jobs of the new world.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.jobs.engine import world as c
from hippo.jobs.engine.heaps import join, set_due
from hippo.jobs.engine.keys import key
from hippo.jobs.engine.world import QueueWorld

Ints = NDArray[np.int64]

_OWN = (c.SHAPE, c.CLASS, c.LEAF, c.USER, c.HOME, c.ROW, c.EXCHANGES)
"""Columns of ``mark`` that count in tables of the world's own."""


def carry(old: QueueWorld, new: QueueWorld, of: Ints, user_of: Ints) -> None:
    """Bring the state of ``old`` into ``new``, which has been opened and not played.

    ``of`` (n,): the number of each job in ``old``, ascending, -1: it is new, and has not come; who is in ``old``, has
    come and is not in ``of`` has ended. ``user_of`` (U,): the same of users. The offers of ``old`` stand first in
    ``new``; those of gangs last in both.
    """
    known = np.flatnonzero(of >= 0)
    was = of[known]
    come = int(np.sum(was < old.tally[c.ARRIVED]))
    now_at = np.full(len(old.job), -1, np.int64)  # number in ``new`` of each job of ``old``
    now_at[was] = known
    _carry_jobs(old, new, known, was)
    _carry_places(old, new, now_at)
    _carry_links(old, new, now_at)
    new.user[user_of >= 0] = old.user[user_of[user_of >= 0]]
    for row, reach in enumerate(new.reach.tolist()):
        same = np.flatnonzero(old.reach == reach)
        if len(same):
            new.group[row] = old.group[same[0]]
        there = np.isin(new.mark[:, c.STATUS], (c.WAITING, c.RUNNING))
        there &= new.shape[new.mark[:, c.SHAPE], c.SHAPE_GROUP] == row
        new.group[row, c.GROUP_DEMAND] = new.mark[there, c.DEVICES].sum()
    new.clock[:], new.series[:] = old.clock, old.series
    for count in (c.EVENTS, c.FREE_PIECE, c.N_RUNNING, c.SHARES_OLD):
        new.tally[count] = old.tally[count]
    new.tally[c.ARRIVED] = come
    new.tally[c.N_DONE] = int(np.sum(new.mark[:come, c.STATUS] >= c.DONE))
    _join_waiting(new, come)
    _carry_due(old, new, known, was)


@kernel
def _join_waiting(w, come):  # type: ignore[no-untyped-def]
    """Those of the first ``come`` jobs that wait stand in their queues."""
    for job in range(come):
        if w.mark[job, c.STATUS] == c.WAITING:
            join(w, job, key(w, job, w.clock[c.NOW]))


def _carry_jobs(old: QueueWorld, new: QueueWorld, known: Ints, was: Ints) -> None:
    refused = new.mark[known, c.STATUS] == c.REFUSED
    own = new.mark[known][:, _OWN]
    new.mark[known] = old.mark[was]
    new.mark[known[:, None], np.array(_OWN)[None]] = own
    new.mark[known[refused], c.STATUS] = c.REFUSED
    new.job[known] = old.job[was]
    for mine, theirs in ((new.part, old.part), (new.going, old.going), (new.going_s, old.going_s)):
        if len(mine) and len(theirs):
            mine[known] = theirs[was]
    if len(new.there) and len(old.there):
        new.there[known] = old.there[was]
    gangs, gangs_then = len(new.offers.form) - len(new.route), len(old.offers.form) - len(old.route)
    for column in (new.mark[:, c.OFFER], new.going[:, c.GOING_OFFER]):
        column[known] += (column[known] >= gangs_then) * (gangs - gangs_then)


def _carry_places(old: QueueWorld, new: QueueWorld, now_at: Ints) -> None:
    """Pools, nodes, and the pieces of them that jobs hold."""
    assert new.bin.shape == old.bin.shape, "worlds of one site"
    new.pool[:], new.bin[:], new.piece[:] = old.pool, old.bin, old.piece
    new.pool[:, c.POOL_WORST] = c.UNKNOWN
    held = new.piece[:, c.PIECE_JOB] >= 0
    new.piece[held, c.PIECE_JOB] = now_at[new.piece[held, c.PIECE_JOB]]


def _carry_links(old: QueueWorld, new: QueueWorld, now_at: Ints) -> None:
    """What links carry, what is on its way over them, and who exchanges."""
    ours, theirs = new.links, old.links
    ours.capacity[:], ours.latency[:] = theirs.capacity, theirs.latency
    ours.moved_gb[:], ours.exchanged_gb[:] = theirs.moved_gb, theirs.exchanged_gb
    ours.behind[:], ours.spare[:] = -1, theirs.spare
    count = min(len(theirs.transfer), len(ours.transfer))
    active = theirs.active[: theirs.tally[c.TRANSFERS]]
    assert not len(active) or active.max() < count, "no room for what is on its way"
    ours.transfer[:count], ours.bytes[:count] = theirs.transfer[:count], theirs.bytes[:count]
    sent = np.flatnonzero(ours.transfer[:count, c.SENT_PHASE] != c.FREE)
    ours.transfer[sent, c.SENT_FOR] = now_at[ours.transfer[sent, c.SENT_FOR]]
    ours.active[: len(active)] = active
    ours.tally[:] = theirs.tally
    _join_free(ours, theirs, count)
    for at, job in enumerate(now_at[theirs.spanning[: theirs.tally[c.SPANNING]]].tolist()):
        ours.spanning[at], new.mark[job, c.EXCHANGES] = job, at + 1
    ours.tally[c.UNSHARED] = 1


def _join_free(ours: c.Links, theirs: c.Links, count: int) -> None:
    """The free transfers in the order in which they would be taken, then those that only the new world has."""
    order, at = [], int(theirs.tally[c.NEXT_FREE])
    while at >= 0:
        order.append(at)
        at = int(theirs.transfer[at, c.SENT_FOR])
    order = [each for each in order if each < count] + list(range(len(theirs.transfer), len(ours.transfer)))
    if order:
        ours.transfer[order, c.SENT_FOR] = [*order[1:], -1]
        ours.transfer[order, c.SENT_PHASE] = c.FREE
    ours.tally[c.NEXT_FREE] = order[0] if order else -1


def _carry_due(old: QueueWorld, new: QueueWorld, known: Ints, was: Ints) -> None:
    """What is due of jobs, nodes, rounds and transfers; links and tenants change when the new world says."""
    then, now = len(old.job), len(new.job)
    behind = np.flatnonzero(np.isfinite(old.due[then:])) + then
    items = np.concatenate([known, behind - then + now])
    times = np.concatenate([old.due[was], old.due[behind]])
    ours = ~np.isin(items, (now + len(new.bin) + c.NETWORK, now + len(new.bin) + c.TENANTS))
    _all_due(new, items[ours], times[ours])


@kernel
def _all_due(w, items, times):  # type: ignore[no-untyped-def]
    """Each item is due at its time."""
    for at in range(len(items)):
        set_due(w.heap, w.due, w.place, w.tally[c.HEAP : c.HEAP + 1], items[at], times[at])
