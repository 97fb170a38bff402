"""Where a replay asks the learned policy (``jobs.learned``), and who goes first under it.

What happens to jobs is told to what it remembers; keys are asked for when a job comes, when it crosses a level, and now
and then. Under heuristics nothing happens: they remember nothing.

Where jobs have deadlines a key stands for itself. Elsewhere, of the jobs that rank first and fill the site together,
the larger ones go first:

In plain order of rank, a gang as large as a domain waits until all that run in some domain rank behind it, and a single
small job that does not keeps the rest of its domain. Gangs starve, and devices stand idle between small jobs. So the
jobs that rank first, as many as have room on an empty site (the *front*), are placed in order of their devices,
largest first: powers of two then leave no gaps. Everyone else follows in order of rank and takes what is left.

ServerFilling (Grosof, Scully, Harchol-Balter and Scheller-Wolf, Optimal scheduling in the multiserver-job model under
heavy traffic, 2022) does so with ranks times devices, and is optimal in the limit of heavy traffic. There the front
ends with the first job that overfills it. Here that one belongs to it only if it wants a domain's larger half: it would
never find room otherwise, while a smaller gang does, and would stop jobs that rank before it for nothing.

Where jobs may use different pools, they fall into *groups* (``shapes``), each of which has a front: of the jobs
that may use no pools but the group's, as many as have room there. Who is in the fronts of all groups that have its
pools goes first. So of jobs that only the scarce devices suit, no more go first than fit on these.

Two heaps of each group hold the jobs that wait or run: the front, whoever ranks last on top (under numbers turned
round, so that of equal ranks the later job is), and those behind it, whoever ranks first on top.
"""

from __future__ import annotations

import numpy as np

from hippo.compiling import kernel
from hippo.jobs.engine import world as c
from hippo.jobs.engine.heaps import rekey, set_due
from hippo.jobs.engine.keys import attained, may_use
from hippo.jobs.learned import deadline
from hippo.jobs.learned import state as memory


@kernel(lean=True)
def learn(w, job, now):  # type: ignore[no-untyped-def]
    """Asks for a job's key: when it comes, and when it crosses a level. Others' keys follow where it moves them."""
    if not w.learns:
        return
    known = w.learned
    if w.for_deadlines:
        w.job[job, c.KEY] = _key_for_deadlines(w, known, job, now)
        return
    if _look_again(w, known, job, now):
        ranked(w, known, job)
    w.job[job, c.KEY] = front_key(w, known, job)


@kernel(lean=True)
def arrived(w, job):  # type: ignore[no-untyped-def]
    """A job has come."""
    if w.remembers:
        known = w.learned
        memory.arrived(known, job)
        if w.for_deadlines:
            deadline.arrived(known.due, job, w.mark[job, c.DEVICES])


@kernel(lean=True)
def finished(w, job):  # type: ignore[no-untyped-def]
    """A job has ended: what it worked is known now."""
    if w.remembers:
        known = w.learned
        _catch_up(known, job, w.job[job, c.DURATION])
        memory.finished(known, job)
        if w.for_deadlines:
            deadline.finished(known.due, job, w.mark[job, c.DEVICES], w.job[job, c.DURATION])
        else:
            _leave(w, known, job)


@kernel(lean=True)
def refresh(w, now):  # type: ignore[no-untyped-def]
    """Asks for the keys of all jobs again that wait or run: what others have done since tells of a job, too."""
    if not w.learns:  # another policy has taken over meanwhile
        return
    known = w.learned
    if not w.for_deadlines:
        for at in range(known.wanting[0]):
            if _look_again(w, known, known.active[at], now):
                stand(w, known, known.active[at])
        settle(w, known)
    for at in range(known.wanting[0]):
        job = known.active[at]
        before = w.job[job, c.KEY]
        w.job[job, c.KEY] = _key_for_deadlines(w, known, job, now) if w.for_deadlines else front_key(w, known, job)
        if w.job[job, c.KEY] != before and w.mark[job, c.STATUS] == c.WAITING:
            rekey(w, job, w.job[job, c.KEY])


@kernel(lean=True)
def _look_again(w, known, job, now):  # type: ignore[no-untyped-def]
    """Works out a job's order again if it has passed an edge of the bins, or the last time is longer ago than the
    policy's ``refresh_s``; whether it did."""
    done_s = attained(w, job, now)
    _catch_up(known, job, done_s)
    if not _is_stale(w, known, job, now):
        return False
    known.order[job] = memory.order(known, job, now, done_s)
    return True


@kernel(lean=True)
def _is_stale(w, known, job, now):  # type: ignore[no-untyped-def]
    """Whether it is time to ask again, which is then noted as done."""
    level = known.history.level[job]
    if known.keyed_at[job] == level and now < known.keyed_s[job] + w.refresh_s:
        return False
    known.keyed_at[job], known.keyed_s[job] = level, now
    return True


@kernel(lean=True)
def _key_for_deadlines(w, known, job, now):  # type: ignore[no-untyped-def]
    """The key where jobs have deadlines, in the same rhythm."""
    done_s = attained(w, job, now)
    _catch_up(known, job, done_s)
    rests = known.keyed_at[job] == known.history.level[job] and deadline.rests(known.due, job)
    if not rests and _is_stale(w, known, job, now):
        w.job[job, c.KEY] = _new_key_for_deadlines(w, known, job, now, done_s)
    return w.job[job, c.KEY]


@kernel(lean=True)
def _new_key_for_deadlines(w, known, job, now, done_s):  # type: ignore[no-untyped-def]
    """A belief is formed when a job comes, when it passes an edge, and now and then."""
    due, level = known.due, known.history.level[job]
    if due.believes[0] > 0 and (due.believed_at[job] != level or now >= due.believed_s[job] + deadline.STALE_S):
        due.believed_at[job], due.believed_s[job] = level, now
        memory.predict(known, job, now)
        deadline.believe(due, job, known.hazard, level)
    slack_s, left_s = w.job[job, c.DEADLINE] - now, w.job[job, c.DURATION] - done_s
    return deadline.key(due, job, w.mark[job, c.DEVICES], slack_s, done_s, left_s)


@kernel(lean=True)
def _catch_up(known, job, done_s):  # type: ignore[no-untyped-def]
    """Puts the job into the bin of the work that it has done; at an edge, rounding does not decide."""
    while done_s * (1 + 1e-9) >= memory.next_level_s(known, job):
        memory.passed(known, job)


MOST_LOG = 64.0  # above the logarithm of any order
LAST = 1e300  # above any order


@kernel(lean=True)
def front_key(w, known, job):  # type: ignore[no-untyped-def]
    """Below 0 in the front: by devices, then by rank. ``known`` is a ``learned.state.KeyMemory``."""
    for group in range(len(w.reach)):
        if _counts(w, group, job) and not _is_in_front(known, group, job):
            return known.order[job]
    return np.log(1.0 + known.order[job]) / MOST_LOG - known.devices[job]


@kernel(lean=True)
def _counts(w, group, job):  # type: ignore[no-untyped-def]
    """Whether a group has all pools that a job may use."""
    return len(w.reach) == 1 or w.reach[w.shape[w.mark[job, c.SHAPE], c.SHAPE_GROUP]] & ~w.reach[group] == 0


@kernel(lean=True)
def ranked(w, known, job):  # type: ignore[no-untyped-def]
    """The order of a job has changed. Its own key is left to the caller, those of others follow."""
    stand(w, known, job)
    for group in range(len(w.reach)):
        if _counts(w, group, job):
            _settle(w, known, group, job)


@kernel(lean=True)
def stand(w, known, job):  # type: ignore[no-untyped-def]
    """Puts a job, which may be new, where it belongs in its heaps."""
    for group in range(len(w.reach)):
        if _counts(w, group, job):
            if _is_in_front(known, group, job):
                _stand_in_front(known, group, job)
            else:
                _set_behind(known, group, job, min(known.order[job], LAST))


@kernel(lean=True)
def _leave(w, known, job):  # type: ignore[no-untyped-def]
    """A job is done, and no longer among those that wait or run."""
    for group in range(len(w.reach)):
        if not _counts(w, group, job):
            continue
        if _is_in_front(known, group, job):
            _leave_front(known, group, job)
        else:
            _set_behind(known, group, job, np.inf)
        if w.learns:  # else the guard serves
            _settle(w, known, group, -1)


@kernel(lean=True)
def settle(w, known):  # type: ignore[no-untyped-def]
    """Moves jobs into the fronts and out of them after all may have got other orders; their keys follow."""
    for group in range(len(w.reach)):
        _settle(w, known, group, -1)


@kernel(lean=True)
def _settle(w, known, group, own):  # type: ignore[no-untyped-def]
    """Moves jobs into a front and out of it until it is what it should be; writes the keys of all but ``own``."""
    capacity, large = _size(w, group)
    while True:
        last = _turned(known, known.front[group, 0]) if known.front_size[group] > 0 else -1
        next_ = known.behind[group, 0] if known.behind_size[group] > 0 else -1
        held = known.front_held[group]
        if last >= 0 and _is_too_many(known, last, next_, held, capacity, large):
            _leave_front(known, group, last)
            _set_behind(known, group, last, min(known.order[last], LAST))
            _write(w, known, last, own)
        elif next_ >= 0 and _has_room(held, known.devices[next_], capacity, large):
            _set_behind(known, group, next_, np.inf)
            known.front_held[group] += known.devices[next_]
            _stand_in_front(known, group, next_)
            _write(w, known, next_, own)
        else:
            return


@kernel(lean=True)
def _size(w, group):  # type: ignore[no-untyped-def]
    """Devices of a group's pools, and of half the largest of them."""
    found, most = 0, 0
    for pool in range(len(w.pool)):
        if may_use(w.reach[group], pool):
            found += w.pool[pool, c.POOL_DEVICES]
            most = max(most, w.pool[pool, c.POOL_DEVICES])
    return found, 0.5 * most


@kernel(lean=True)
def _has_room(held, devices, capacity, large):  # type: ignore[no-untyped-def]
    """Whether one more job belongs to a front of so many devices."""
    return held + devices <= capacity or (held < capacity and devices >= large)


@kernel(lean=True)
def _is_too_many(known, last, next_, held, capacity, large):  # type: ignore[no-untyped-def]
    """Whether the last job of the front does not belong there."""
    others = held - known.devices[last]
    return not _has_room(others, known.devices[last], capacity, large) or (next_ >= 0 and _before(known, next_, last))


@kernel(lean=True)
def _turned(known, job):  # type: ignore[no-untyped-def]
    """A job's number in the heap of the front, and back."""
    return known.front.shape[1] - 1 - job


@kernel(lean=True)
def _is_in_front(known, group, job):  # type: ignore[no-untyped-def]
    return known.front_at[group, _turned(known, job)] >= 0


@kernel(lean=True)
def _stand_in_front(known, group, job):  # type: ignore[no-untyped-def]
    _set_in_front(known, group, job, -min(known.order[job], LAST))


@kernel(lean=True)
def _leave_front(known, group, job):  # type: ignore[no-untyped-def]
    known.front_held[group] -= known.devices[job]
    _set_in_front(known, group, job, np.inf)


@kernel(lean=True)
def _set_in_front(known, group, job, due):  # type: ignore[no-untyped-def]
    size = known.front_size[group : group + 1]
    set_due(known.front[group], known.front_due[group], known.front_at[group], size, _turned(known, job), due)


@kernel(lean=True)
def _set_behind(known, group, job, due):  # type: ignore[no-untyped-def]
    size = known.behind_size[group : group + 1]
    set_due(known.behind[group], known.behind_due[group], known.behind_at[group], size, job, due)


@kernel(lean=True)
def _before(known, job, other):  # type: ignore[no-untyped-def]
    """Whether a job ranks before another one; ties go to who came first."""
    own, others = known.order[job], known.order[other]
    return own < others or (own == others and job < other)


@kernel(lean=True)
def _write(w, known, job, own):  # type: ignore[no-untyped-def]
    if job == own:
        return
    w.job[job, c.KEY] = front_key(w, known, job)
    if w.mark[job, c.STATUS] == c.WAITING:
        rekey(w, job, w.job[job, c.KEY])
