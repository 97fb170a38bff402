"""A whole replay: ``play`` gives the account of a workload on a site under a policy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hippo.compiling import kernel, shared
from hippo.jobs.engine import columns as c
from hippo.jobs.engine.advance import advance
from hippo.jobs.engine.dispatch import decide
from hippo.jobs.engine.opening import Opening, open_world
from hippo.jobs.engine.world import Floats, World
from hippo.jobs.learned.arrays import Learner
from hippo.jobs.ledger import Ledger
from hippo.jobs.placement.slowdown import Slowdown
from hippo.jobs.policies.policy import Policy
from hippo.jobs.settings import Settings
from hippo.jobs.site import Site
from hippo.jobs.workload import Workload

STRIDE = 20_000
"""Instants between two calls of ``watch``."""


def play(
    workload: Workload,
    site: Site,
    policy: Policy,
    settings: Settings | None = None,
    *,
    slowdown: Slowdown | None = None,
    segments: bool = False,
    learner: Learner | None = None,
    watch: Callable[[int, int], None] | None = None,
) -> Ledger:
    """Replay a workload.

    ``slowdown``: what spanning costs (default: no job spans). ``segments``: write down who held what when, by
    which the tests judge that no pool gives more than it has. ``learner``: weights and past of the learned policy
    (default: the weights that ship, no past). ``watch(jobs done, jobs)`` is called now and then.
    """
    settings = settings or Settings()
    rows = 4 * len(workload) + 1024 if segments else 0
    while True:
        opening = open_world(workload, site, policy, settings, slowdown=slowdown, segments=rows, learner=learner)
        world = opening.world
        while run(world, STRIDE):
            if watch is not None:
                watch(int(world.tally[c.N_DONE]), len(workload))
        if world.tally[c.SEGMENTS] <= rows or not segments:
            return ledger(opening, policy.name)
        rows = int(world.tally[c.SEGMENTS])


@kernel(lean=True)
def run(w, instants):  # type: ignore[no-untyped-def]
    """Play so many instants; False: nothing is left to do."""
    w = shared(w)
    for _ in range(instants):
        if not advance(w):
            return False
        decide(w)
    return True


def ledger(opening: Opening, policy: str) -> Ledger:
    """The account of a world that has been played."""
    world = opening.world
    job, mark = world.job, world.mark
    done = mark[:, c.STATUS] == c.DONE
    assert done.sum() + len(opening.refused) == len(job), "jobs are left that neither ran nor were refused"
    taken = world.tally[c.SEGMENTS] if len(world.segment) else 0
    time_s, busy, waiting = _series(world)
    pools = world.pool[:, c.POOL_DEVICES].size
    return Ledger(
        policy=policy,
        first_start_s=np.where(done, job[:, c.FIRST], np.nan),
        finish_s=np.where(done, job[:, c.FINISH], np.nan),
        run_s=np.where(done, job[:, c.RUN], np.nan),
        moved_gb=job[:, c.MOVED].copy(),
        preemptions=mark[:, c.STOPS].copy(),
        failures=mark[:, c.FAILED].copy(),
        slowdown=np.where(done, job[:, c.SLOWDOWN], np.nan),
        pool=np.where(done, mark[:, c.POOL], -1),
        refused=opening.refused,
        events=int(world.tally[c.EVENTS]),
        busy_device_s=world.series[:, :pools].sum(axis=0),
        link_gb=world.link_gb.copy(),
        exchange_usd=job[:, c.USD].copy(),
        time_s=time_s,
        busy_devices=busy,
        waiting_jobs=waiting,
        segments=(world.segment[:taken], world.segment_s[:taken]) if len(world.segment) else None,
    )


def _series(world: World) -> tuple[Floats, Floats, Floats]:
    """Ends of the bins of time, devices at work (T, P) and jobs that waited (T,), each the mean of its bin."""
    start_s, now_s, width = world.clock[c.STARTED_AT], world.clock[c.NOW], world.clock[c.BIN_WIDTH]
    count = min(int(np.ceil((now_s - start_s) / width)), len(world.series))
    ends = np.minimum(start_s + np.arange(1, count + 1) * width, now_s)
    lasts = np.maximum(np.diff(ends, prepend=start_s), 1e-9)[:, None]
    means = world.series[:count] / lasts
    return ends, means[:, :-1], means[:, -1]
