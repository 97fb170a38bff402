"""The engine's calls when a job has come and when it has ended, for the learned policy."""

from __future__ import annotations

from hippo.compiling import kernel
from hippo.jobs.engine.columns import DEVICES, DURATION
from hippo.jobs.learned import deadline, filling, memory
from hippo.jobs.learned.policy import catch_up


@kernel(lean=True)
def arrived(w, job, now):  # type: ignore[no-untyped-def]
    """A job has come."""
    known = w.learned
    memory.arrived(known, job)
    if w.numbers[1] > 0.0:
        deadline.arrived(known.due, job, w.mark[job, DEVICES])


@kernel(lean=True)
def finished(w, job, now):  # type: ignore[no-untyped-def]
    """A job has ended: what it worked is known now."""
    known = w.learned
    catch_up(known, job, w.job[job, DURATION])
    memory.finished(known, job)
    if w.numbers[1] > 0.0:
        deadline.finished(known.due, job, w.mark[job, DEVICES], w.job[job, DURATION])
    else:
        filling.finished(w, known, job)
