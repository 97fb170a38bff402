"""The rule that the agents begin as: ``sla_morl`` with the setting that was found for such sites, the cheapest of all
rules where running jobs are kept.

It answers as the agents do, one choice after another, so that they can be shown its answers; where running jobs may be
stopped what it would do by force is told as stops, one after another.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hippo.compiling import kernel
from hippo.jobs.engine import observe
from hippo.jobs.engine import world as c
from hippo.jobs.engine.observe import Sight, sight
from hippo.jobs.joint.env import WorldScene
from hippo.jobs.joint.moment import MOST_PLACES
from hippo.jobs.joint.ranked import RankRoom, RankTerms, next_begun, rank_room
from hippo.jobs.joint.settings import SLA_MORL

FORCE = 0.5
"""A job stops for one that is this much more urgent: at most so many times its urgency."""


class Teacher(NamedTuple):
    """The rule, and what it sees of one world."""

    sight: Sight
    terms: RankTerms
    room: RankRoom


def teacher_of(scene: WorldScene) -> Teacher:
    """The rule for a scene."""
    seen = sight(scene.workload, scene.site, scene.offers, jobs=1, places=MOST_PLACES, stops=scene.settings.stops)
    return Teacher(seen, SLA_MORL.at(scene.settings.stops).terms, rank_room(seen))


@kernel(lean=True)
def teach(w, s, rule, found):  # type: ignore[no-untyped-def]
    """Write the rule's next answer, slot (-1: nobody) and place, into ``found`` (2,). A job that is not shown is passed
    over; of the places that are shown the one most like the rule's is told."""
    found[0], found[1] = -1, 0
    job, place = next_begun(w, rule.sight, rule.terms, rule.room)
    if job >= 0:
        for at in range(len(s.job)):
            if s.job[at] == job:
                like = _alike(w, s, rule.sight, at, place)
                if like >= 0:
                    found[0], found[1] = at, like
                    return
    if not s.stops:
        return
    last = np.inf
    while True:
        first, most = -1, 0.0
        for at in range(len(s.job)):
            if s.job[at] >= 0 and w.mark[s.job[at], c.STATUS] == c.WAITING and most < -s.key[at] < last:
                first, most = at, -s.key[at]
        if first < 0:
            return
        last = most
        victim = _victim(w, s, first, FORCE * most)
        if victim >= 0:
            observe.places(w, s, victim)
            found[0] = victim
            return


@kernel(lean=True)
def _alike(w, s, its, at, place):  # type: ignore[no-untyped-def]
    """Of the places of a job that is shown the one most like the rule's (a gang has one): as many GPUs first, then as
    many parts, then the same domains; -1: it has none."""
    best, least = -1, np.inf
    for each in range(observe.places(w, s, at)):
        if s.offer[each] == -2:
            return each
        if s.offer[each] < 0 or place < 0:
            continue
        mine, rules = s.offer[each], its.offer[place]
        apart = 8.0 * abs(np.log(s.total[mine] / s.total[rules]))
        apart += abs(w.offers.form[mine, c.FORM_PARTS] - w.offers.form[rules, c.FORM_PARTS])
        for part in range(c.MOST_PARTS):
            apart += 0.2 * (s.where[each, part] != its.where[place, part])
        if apart < least:
            best, least = each, apart
    return best


@kernel(lean=True)
def _victim(w, s, at, key):  # type: ignore[no-untyped-def]
    """The least urgent of the running jobs that are less urgent than ``key``, if together they make room; -1: none."""
    job, worst, least, held = s.job[at], -1, key, 0
    for other in range(len(s.job)):
        running = s.job[other]
        if running >= 0 and w.mark[running, c.STATUS] == c.RUNNING and s.key[other] < key:
            held += w.mark[running, c.HOLDS]
            if s.key[other] < least:
                worst, least = other, s.key[other]
    need = w.mark[job, c.LEAST] if w.mark[job, c.ELASTIC] == 1 else w.mark[job, c.DEVICES]
    for domain in range(len(s.free)):
        held += s.free[domain, 0] * s.size[0]
    return worst if held >= need else -1
