"""A workload under a scheduler that decides for all jobs together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hippo.compiling import kernel
from hippo.jobs.engine import world as c
from hippo.jobs.engine.flows import share
from hippo.jobs.engine.opening import Opening, open_world
from hippo.jobs.engine.play import advance, ledger
from hippo.jobs.joint.moment import Moment, Scheduler
from hippo.jobs.joint.record import Recorder
from hippo.jobs.ledger import Ledger
from hippo.jobs.placement.offers import OfferTable
from hippo.jobs.placement.slowdown import Slowdown
from hippo.jobs.policies.heuristics import FIFO
from hippo.jobs.settings import ReplayRules, Tenants
from hippo.jobs.site import JobSite
from hippo.jobs.workload import JobWorkload


def play_jointly(
    workload: JobWorkload,
    site: JobSite,
    scheduler: Scheduler,
    settings: ReplayRules | None = None,
    *,
    offers: OfferTable,
    slowdown: Slowdown | None = None,
    tenants: Tenants | None = None,
    recorder: Recorder | None = None,
    watch: Callable[[int, int], None] | None = None,
) -> Ledger:
    """Replay a workload whose training jobs are elastic; ``recorder`` is told of every moment, ``slowdown`` and
    ``watch`` as in ``engine.play``."""
    opening = opened(workload, site, settings, offers=offers, slowdown=slowdown, tenants=tenants)
    moment = Moment.of(opening.world, workload, site, offers, stops=settings is None or settings.stops)
    while step(opening.world):
        if recorder is not None:
            recorder.came(moment)
        scheduler.decide(moment)
        if recorder is not None:
            recorder.decided(moment)
        if watch is not None:
            watch(int(opening.world.tally[c.N_DONE]), len(workload))
    if recorder is not None:
        recorder.ended(moment)
    return ledger(_without(opening, moment.waiting.tolist(), scheduler.name), scheduler.name)


def _without(opening: Opening, waiting: list[int], name: str) -> Opening:
    """The opening with those refused whom a scheduler has left waiting when nothing is to come any more."""
    left = [(job, f"{name} never begins it") for job in waiting]
    return replace(opening, refused=tuple(sorted((*opening.refused, *left))))


def opened(
    workload: JobWorkload,
    site: JobSite,
    settings: ReplayRules | None = None,
    *,
    offers: OfferTable,
    slowdown: Slowdown | None = None,
    tenants: Tenants | None = None,
) -> Opening:
    """A world whose jobs wait for a scheduler."""
    rules = settings or ReplayRules()
    return open_world(workload, site, FIFO, rules, offers=offers, slowdown=slowdown, tenants=tenants)


@kernel(lean=True)
def step(w):  # type: ignore[no-untyped-def]
    """Go on to the next moment; False: nothing is to come."""
    if not advance(w):
        return False
    if w.links.tally[c.UNSHARED] == 1:
        share(w)
    return True
