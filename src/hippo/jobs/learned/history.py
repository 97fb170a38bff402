"""The engine's calls when a job has come and when it has ended, for the learned policy."""

from __future__ import annotations

from numba import njit

from hippo.jobs.engine.columns import DEVICES, DURATION
from hippo.jobs.learned import deadline, filling, memory
from hippo.jobs.learned.handle import opened
from hippo.jobs.learned.policy import catch_up
from hippo.simulate.compiling import LEAN


@njit(**LEAN)
def arrived(w, job, now):  # type: ignore[no-untyped-def]
    """A job has come."""
    known = opened(w.learned)
    memory.arrived(known, job)
    if w.numbers[1] > 0.0:
        deadline.arrived(known.due, job, w.mark[job, DEVICES])


@njit(**LEAN)
def finished(w, job, now):  # type: ignore[no-untyped-def]
    """A job has ended: what it worked is known now."""
    known = opened(w.learned)
    catch_up(known, job, w.job[job, DURATION])
    memory.finished(known, job)
    if w.numbers[1] > 0.0:
        deadline.finished(known.due, job, w.mark[job, DEVICES], w.job[job, DURATION])
    else:
        filling.finished(w, known, job)
