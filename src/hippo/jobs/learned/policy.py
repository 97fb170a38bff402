"""The key of a job under the learned policy, as the engine asks for it; smallest first."""

from __future__ import annotations

from hippo.compiling import kernel
from hippo.jobs.engine.columns import DEADLINE, DEVICES, DURATION, KEY, RATE, READY, RUNNING, STATUS, WORKED
from hippo.jobs.learned import deadline, filling, memory


@kernel(lean=True)
def key(w, job, now):  # type: ignore[no-untyped-def]
    """Of a job that waits or runs. Others' keys follow where it moves them."""
    known = w.learned
    if w.numbers[1] > 0.0:
        return _key_for_deadlines(w, known, job, now)
    if look_again(w, known, job, now):
        filling.ranked(w, known, job)
    return filling.key(w, known, job)


@kernel(lean=True)
def look_again(w, known, job, now):  # type: ignore[no-untyped-def]
    """Works out a job's order again if it has passed an edge of the bins, or the last time is longer ago than the
    policy's first number (seconds); whether it did."""
    done_s = attained(w, job, now)
    catch_up(known, job, done_s)
    if not _is_stale(w, known, job, now):
        return False
    known.order[job] = memory.order(known, job, now, done_s, w.mark[job, STATUS] == RUNNING)
    return True


@kernel(lean=True)
def _is_stale(w, known, job, now):  # type: ignore[no-untyped-def]
    """Whether it is time to ask again, which is then noted as done."""
    level = known.history.level[job]
    if known.keyed_at[job] == level and now < known.keyed_s[job] + w.numbers[0]:
        return False
    known.keyed_at[job], known.keyed_s[job] = level, now
    return True


@kernel(lean=True)
def _key_for_deadlines(w, known, job, now):  # type: ignore[no-untyped-def]
    """The key where jobs have deadlines, in the same rhythm."""
    done_s = attained(w, job, now)
    catch_up(known, job, done_s)
    rests = known.keyed_at[job] == known.history.level[job] and deadline.rests(known.due, job)
    if not rests and _is_stale(w, known, job, now):
        w.job[job, KEY] = _new_key_for_deadlines(w, known, job, now, done_s)
    return w.job[job, KEY]


@kernel(lean=True)
def _new_key_for_deadlines(w, known, job, now, done_s):  # type: ignore[no-untyped-def]
    """A belief is formed when a job comes, when it passes an edge, and now and then."""
    due, level = known.due, known.history.level[job]
    if due.believes[0] > 0 and (due.believed_at[job] != level or now >= due.believed_s[job] + deadline.STALE_S):
        due.believed_at[job], due.believed_s[job] = level, now
        memory.predict(known, job, now)
        deadline.believe(due, job, known.hazard, level)
    slack_s, left_s = w.job[job, DEADLINE] - now, w.job[job, DURATION] - done_s
    running = w.mark[job, STATUS] == RUNNING
    return deadline.key(due, job, w.mark[job, DEVICES], slack_s, done_s, left_s, running)


@kernel(lean=True)
def attained(w, job, now):  # type: ignore[no-untyped-def]
    """Work that is done, in seconds on devices of speed 1: never what is left."""
    worked = w.job[job, WORKED]
    if w.mark[job, STATUS] == RUNNING and now > w.job[job, READY]:
        worked += (now - w.job[job, READY]) * w.job[job, RATE]
    return worked


@kernel(lean=True)
def catch_up(known, job, done_s):  # type: ignore[no-untyped-def]
    """Puts the job into the bin of the work that it has done; at an edge, rounding does not decide."""
    while done_s * (1 + 1e-9) >= memory.next_level_s(known, job):
        memory.passed(known, job)
