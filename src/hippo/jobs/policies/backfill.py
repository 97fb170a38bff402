"""FIFO in which a later job may pass a head that does not fit, if it does not hold it up."""

from __future__ import annotations

from hippo.compiling import kernel
from hippo.jobs.engine.columns import BACKFILL as CODE
from hippo.jobs.engine.columns import ESTIMATE, NEVER
from hippo.jobs.policies.policy import Policy

BACKFILL = Policy(
    name="backfill",
    code=CODE,
    summary="FIFO; later jobs pass a head that does not fit if by the submitters' estimates they do not hold it up, "
    "or without estimates while it has waited less than a day",
    knows="estimates",
    source="Lifka, The ANL/IBM SP scheduling system, 1995 (EASY)",
    numbers=(86400.0,),  # without an end in sight a head may be passed for so long
)


@kernel(lean=True)
def key(w, job, now):  # type: ignore[no-untyped-def]
    """What the submitter says it takes (classes stay in order of arrival all the same)."""
    estimate = w.job[job, ESTIMATE]
    return estimate if estimate == estimate else NEVER
