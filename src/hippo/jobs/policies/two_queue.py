"""Tiresias' two queues: jobs that have had little service before those that have had more.

The border is what matters: on the first 55 % of Philly's trace 200,000 device-seconds make the mean completion time
least of 3,600 to 800,000 (at 3,600 it is 1.3 to 1.5 times as long); on the rest of it that choice is within 12 % of the
best border in hindsight.
"""

from __future__ import annotations

from hippo.compiling import kernel
from hippo.jobs.engine.columns import LEVEL
from hippo.jobs.engine.columns import TWO_QUEUE as CODE
from hippo.jobs.policies.policy import Policy

TWO_QUEUE = Policy(
    name="two_queue",
    code=CODE,
    summary="least attained device time in two queues, first come first served in each; promotes who starves",
    knows="nothing",
    source="Gu et al., Tiresias: a GPU cluster manager for distributed deep learning, NSDI 2019 (discretised 2D-LAS)",
    preempts=True,
    levels=(200_000.0,),
    numbers=(8.0,),  # promoted after waiting this many times as long as it has run
)


@kernel(lean=True)
def key(w, job, now):  # type: ignore[no-untyped-def]
    """The queue: 0 or 1."""
    return float(w.mark[job, LEVEL])
