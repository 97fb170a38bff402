"""What a rule says at a moment, beside what is seen: ``srpt`` with the setting that was found for such sites, the
cheapest of all rules of both kinds of site.

It answers as the agents do, one choice after another: whom it would begin next, and where it would put the job that was
asked about. Agents see that and begin by following it, so what they learn is where to leave it (residual policy
learning: Silver et al. 2018). Where running jobs may be stopped what it would do by force is told as stops, one after
another.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.jobs.engine import observe
from hippo.jobs.engine import world as c
from hippo.jobs.engine.observe import ADVISED_JOB, ADVISED_NOBODY, ADVISED_PLACE, Sight, sight
from hippo.jobs.joint.moment import MOST_PLACES
from hippo.jobs.joint.ranked import RankRoom, RankTerms, best_place, next_begun, pays_a_stop, rank_room
from hippo.jobs.joint.settings import SRPT
from hippo.jobs.placement.offers import OfferTable
from hippo.jobs.site import JobSite
from hippo.jobs.workload import JobWorkload

USD_PER_JOB = 1000.0
"""Egress of a job that counts as its time does, where who asks prefers neither."""
FORCE = 0.5
"""A job stops for one that is this much more urgent: at most so many times its urgency."""


class Charges(NamedTuple):
    """What is paid beside the time of jobs, in seconds of a job of usual price: what limits cost."""

    egress: float = 0.0  # a dollar
    unfairness: float = 0.0  # a second in which owners lack as much as the whole site of an equal share
    stop: float = 0.0
    below: float = 0.0  # a GB of exchange over a link that carries less than ``floor``
    floor: float = 0.0  # bytes/s


NO_CHARGES = Charges()


class Advisor(NamedTuple):
    """The rule, and what it sees of one world."""

    sight: Sight
    terms: RankTerms
    charges: Charges  # that the rule pays; preferences come on top
    room: RankRoom
    said: NDArray[np.int64]  # (2,) whom it would begin next, -1: nobody; and at which of the places that it sees


def advisor(
    workload: JobWorkload,
    site: JobSite,
    offers: OfferTable,
    *,
    stops: bool,
    egress_weight: float = 0.0,
    charges: Charges = NO_CHARGES,
) -> Advisor:
    """The rule for a world, which pays the charges of who asks, and for egress what is preferred: ``USD_PER_JOB`` as
    much as a job takes by what was told of it at its quickest, in the mean of all jobs, times the weight of egress over
    that of time."""
    seen = sight(workload, site, offers, jobs=1, places=MOST_PLACES, stops=stops)
    job_s = float(np.mean(workload.told_s / seen.quickest)) if len(workload) else 0.0
    egress = egress_weight / max(1e-9, 1.0 - egress_weight) * job_s / USD_PER_JOB
    terms = SRPT.at(stops).terms._replace(**charges._asdict())
    terms = terms._replace(egress=charges.egress + egress)
    return Advisor(seen, terms, charges, rank_room(seen), np.full(2, -1))


@kernel(lean=True)
def look(w, s, rule):  # type: ignore[no-untyped-def]
    """As ``observe.look``; marks whom the rule would choose next, who is among those that are shown, or nobody."""
    count, slot = observe.look(w, s), -1
    rule.said[0], rule.said[1] = next_begun(w, rule.sight, rule.terms, rule.room)
    if rule.said[0] >= 0:
        slot = observe.include_job(w, s, count, rule.said[0])
    elif s.stops:
        slot = _to_stop(w, s, rule)
    if slot < 0:
        s.site[ADVISED_NOBODY] = 1.0
    else:
        s.jobs[slot, ADVISED_JOB] = 1.0
    return count


@kernel(lean=True)
def places(w, s, rule, slot):  # type: ignore[no-untyped-def]
    """As ``observe.places``; marks where the rule would put the job, which is among them."""
    count, job = observe.places(w, s, slot), s.job[slot]
    if count == 0:
        return count
    if w.mark[job, c.STATUS] == c.RUNNING or w.mark[job, c.ELASTIC] == 0:
        s.places[0, ADVISED_PLACE] = 1.0
        return count
    place = rule.said[1]
    if job != rule.said[0]:
        place = best_place(w, rule.sight, rule.terms, rule.room, job)
    elif place >= 0 and rule.sight.job[0] != job:  # another one was asked about meanwhile
        observe.survey(w, rule.sight, job)
    if place >= 0:
        its = rule.sight
        at, count = observe.include(w, s, slot, count, its.offer[place], its.rate[place], its.where[place])
        s.places[at, ADVISED_PLACE] = 1.0
    return count


@kernel(lean=True)
def _to_stop(w, s, rule):  # type: ignore[no-untyped-def]
    """Who would stop for one that waits, -1: nobody."""
    last = np.inf
    while True:
        first, most = -1, 0.0
        for at in range(len(s.job)):
            if s.job[at] >= 0 and w.mark[s.job[at], c.STATUS] == c.WAITING and most < -s.key[at] < last:
                first, most = at, -s.key[at]
        if first < 0:
            return -1
        last = most
        victim = _victim(w, s, rule, first, FORCE * most)
        if victim >= 0:
            return victim


@kernel(lean=True)
def _victim(w, s, rule, at, key):  # type: ignore[no-untyped-def]
    """The least urgent of the running jobs that are less urgent than ``key`` and whose stop pays, if together they make
    room; -1: none."""
    job, worst, least, held = s.job[at], -1, key, 0
    for other in range(len(s.job)):
        running = s.job[other]
        if running < 0 or w.mark[running, c.STATUS] != c.RUNNING or s.key[other] >= key:
            continue
        if pays_a_stop(w, rule.sight, rule.terms, rule.room, job, running):
            held += w.mark[running, c.HOLDS]
            if s.key[other] < least:
                worst, least = other, s.key[other]
    need = w.mark[job, c.LEAST] if w.mark[job, c.ELASTIC] == 1 else w.mark[job, c.DEVICES]
    for domain in range(len(s.free)):
        held += s.free[domain, 0] * s.size[0]
    return worst if held >= need else -1
