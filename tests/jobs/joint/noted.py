"""A world led by a scheduler whose decisions are written down, and played again by the twin."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from hippo.jobs.engine import world as c
from hippo.jobs.engine.world import QueueWorld
from hippo.jobs.joint.moment import JobPlace, Moment, Scheduler
from hippo.jobs.joint.play import play_jointly
from hippo.jobs.ledger import Ledger
from hippo.jobs.placement.offers import OfferTable
from hippo.jobs.placement.slowdown import Slowdown
from hippo.jobs.settings import ReplayRules, Tenants
from hippo.jobs.site import JobSite
from hippo.jobs.workload import JobWorkload

from ...judges import world as twin
from ...judges.world import Decision


@dataclass(frozen=True, eq=False)
class World:
    """What a replay takes."""

    workload: JobWorkload
    site: JobSite
    offers: OfferTable
    rules: ReplayRules
    tenants: Tenants | None = None
    slowdown: Slowdown | None = None


def played(world: World, scheduler: Scheduler) -> Ledger:
    """The engine's account, on which the twin agrees; ``exchange_usd`` of flows, too."""
    noting = Noting(scheduler)
    rest = {"offers": world.offers, "tenants": world.tenants, "slowdown": world.slowdown}
    ledger = play_jointly(world.workload, world.site, noting, world.rules, **rest)
    assert noting.world is not None
    ledger = replace(ledger, exchange_usd=noting.world.job[:, [c.USD, c.USD_OF_FLOWS]].sum(axis=1))
    again = twin.play(noting.script, world.workload, world.site, world.rules, **rest)
    times, amounts = {"rtol": 1e-6}, {"rtol": 1e-6, "atol": 1e-6}  # what is given up is taken away again from amounts
    ended = np.isfinite(again.finish_s)
    np.testing.assert_allclose(ledger.first_start_s[ended], again.first_start_s[ended], **times)
    np.testing.assert_allclose(ledger.finish_s, again.finish_s, **times)
    np.testing.assert_allclose(ledger.late_s, again.late_s, **amounts)
    np.testing.assert_allclose(ledger.moved_gb, again.moved_gb, **amounts)
    np.testing.assert_allclose(ledger.link_gb, again.link_gb, **amounts)
    np.testing.assert_allclose(ledger.exchange_usd, again.usd, **amounts)
    return ledger


class Noting:
    """Hands a scheduler moments that write down what it answers."""

    def __init__(self, inner: Scheduler) -> None:
        self.name, self.inner, self.script = inner.name, inner, list[Decision]()
        self.world: QueueWorld | None = None
        self.moments = 0

    def decide(self, moment: Moment) -> None:
        self.world = moment.world
        noted = Noted.of(moment.world, moment.workload, moment.site, moment.offers)
        before = len(self.script)
        self.inner.decide(replace(noted, script=self.script))
        self.script[before:] = [replace(each, moment=self.moments) for each in self.script[before:]]
        self.moments += 1


@dataclass(frozen=True, eq=False)
class Noted(Moment):
    """A moment that writes down what is answered."""

    script: list[Decision] = field(default_factory=list)

    def begin(self, job: int, place: JobPlace) -> bool:
        began = super().begin(job, place)
        if began:
            self.script.append(Decision(self.now_s, "begin", job, place.offer, place.domains))
        return began

    def start(self, job: int) -> bool:
        began = super().start(job)
        if began:
            pool, spans = int(self.world.mark[job, c.POOL]), int(self.world.mark[job, c.DOMAINS])
            domains = tuple(at for at in range(len(self.site.domains)) if spans >> at & 1)
            self.script.append(Decision(self.now_s, "start", job, domains=domains, pool=pool))
        return began

    def move(self, job: int, place: JobPlace) -> bool:
        moves = super().move(job, place)
        if moves:
            self.script.append(Decision(self.now_s, "move", job, place.offer, place.domains))
        return moves

    def stay(self, job: int) -> None:
        super().stay(job)
        self.script.append(Decision(self.now_s, "stay", job))

    def pause(self, job: int) -> None:
        super().pause(job)
        self.script.append(Decision(self.now_s, "pause", job))

    def weigh(self, job: int, weight: float) -> None:
        super().weigh(job, weight)
        self.script.append(Decision(self.now_s, "weigh", job, weight=weight))
