"""Fair share: the user who has been served least goes next."""

from __future__ import annotations

from hippo.compiling import kernel
from hippo.jobs.engine.columns import FAIR as CODE
from hippo.jobs.engine.columns import USER_DEVICES, USER_SERVED, USER_SINCE
from hippo.jobs.policies.policy import Policy

FAIR = Policy(
    name="fair",
    code=CODE,
    summary="the user with the least attained device time goes next; who comes back starts with the least of those "
    "who are there",
    knows="nothing",
    source="Goyal, Vin, Cheng, Start-time fair queueing, SIGCOMM 1996 (virtual time of users who come back)",
)


@kernel(lean=True)
def served(w, user, now):  # type: ignore[no-untyped-def]
    """Device-seconds of a user."""
    row = w.user[user]
    return row[USER_SERVED] + row[USER_DEVICES] * (now - row[USER_SINCE])


@kernel(lean=True)
def key(w, job, now):  # type: ignore[no-untyped-def]
    """All jobs of one user alike: ties go by arrival."""
    return 0.0
