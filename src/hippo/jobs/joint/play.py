"""A workload under a scheduler that decides for all jobs together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hippo.compiling import kernel
from hippo.jobs.engine import world as c
from hippo.jobs.engine.flows import share
from hippo.jobs.engine.learned_keys import refresh
from hippo.jobs.engine.opening import Opening, open_world
from hippo.jobs.engine.play import advance, ledger
from hippo.jobs.joint.moment import Moment, Scheduler
from hippo.jobs.joint.record import Recorder
from hippo.jobs.learned.state import LearnedSetup
from hippo.jobs.ledger import Ledger
from hippo.jobs.placement.offers import OfferTable
from hippo.jobs.placement.slowdown import Slowdown
from hippo.jobs.policies.heuristics import FIFO
from hippo.jobs.policies.learned import LEARNED
from hippo.jobs.settings import ReplayRules, Tenants
from hippo.jobs.site import JobSite
from hippo.jobs.workload import JobWorkload

UNTOLD = replace(LEARNED, levels=())
"""What keeps the index of gangs that tell nothing up to date: it is looked at at every moment, and at no others."""


def play_jointly(
    workload: JobWorkload,
    site: JobSite,
    scheduler: Scheduler,
    settings: ReplayRules | None = None,
    *,
    offers: OfferTable,
    slowdown: Slowdown | None = None,
    tenants: Tenants | None = None,
    learner: LearnedSetup | None = None,
    recorder: Recorder | None = None,
    watch: Callable[[int, int], None] | None = None,
) -> Ledger:
    """Replay a workload whose training jobs are elastic; ``learner`` as in ``opened``; ``recorder`` is told of every
    moment, ``slowdown`` and ``watch`` as in ``engine.play``."""
    opening = opened(workload, site, settings, offers=offers, slowdown=slowdown, tenants=tenants, learner=learner)
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
    learner: LearnedSetup | None = None,
) -> Opening:
    """A world whose jobs wait for a scheduler. ``learner``: gangs without an estimate tell nothing of how long they
    take, and what the past of jobs like them says stands for it (``keys.index_s``); None: they tell all."""
    rules, policy = settings or ReplayRules(), FIFO if learner is None else UNTOLD
    return open_world(workload, site, policy, rules, offers=offers, slowdown=slowdown, tenants=tenants, learner=learner)


@kernel(lean=True)
def step(w):  # type: ignore[no-untyped-def]
    """Go on to the next moment; False: nothing is to come."""
    if not advance(w):
        return False
    if w.links.tally[c.UNSHARED] == 1:
        share(w)
    refresh(w, w.clock[c.NOW])
    return True
