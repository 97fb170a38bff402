"""Where a replay calls the learned policy (``jobs.learned``). Under heuristics nothing happens: they carry no state."""

from __future__ import annotations

from numba import njit

from hippo.jobs.learned import history, policy, refreshing
from hippo.simulate.compiling import LEAN


@njit(**LEAN)
def key(w, job, now):  # type: ignore[no-untyped-def]
    """The learned key of a job, when it comes and when it crosses a level; 0 for heuristics."""
    return policy.key(w, job, now) if len(w.learned) > 0 else 0.0


@njit(**LEAN)
def arrived(w, job, now):  # type: ignore[no-untyped-def]
    """A job has come."""
    if len(w.learned) > 0:
        history.arrived(w, job, now)


@njit(**LEAN)
def finished(w, job, now):  # type: ignore[no-untyped-def]
    """A job has ended."""
    if len(w.learned) > 0:
        history.finished(w, job, now)


@njit(**LEAN)
def refresh(w, now):  # type: ignore[no-untyped-def]
    """A round has ended."""
    if len(w.learned) > 0:
        refreshing.refresh(w, now)
