"""Where a replay calls the learned policy (``jobs.learned``). Under heuristics nothing happens: they carry no state."""

from __future__ import annotations

from hippo.compiling import kernel
from hippo.jobs.learned import history, policy, refreshing


@kernel(lean=True)
def key(w, job, now):  # type: ignore[no-untyped-def]
    """The learned key of a job, when it comes and when it crosses a level; 0 for heuristics."""
    return policy.key(w, job, now) if w.learns else 0.0


@kernel(lean=True)
def arrived(w, job, now):  # type: ignore[no-untyped-def]
    """A job has come."""
    if w.learns:
        history.arrived(w, job, now)


@kernel(lean=True)
def finished(w, job, now):  # type: ignore[no-untyped-def]
    """A job has ended."""
    if w.learns:
        history.finished(w, job, now)


@kernel(lean=True)
def refresh(w, now):  # type: ignore[no-untyped-def]
    """A round has ended."""
    if w.learns:
        refreshing.refresh(w, now)
