"""The rule that the agents begin as: most price per GPU hour that is left, by force if need be, at the quickest place.

It answers as the agents do, one choice after another, so that they can be shown its answers.
"""

from __future__ import annotations

import numpy as np

from hippo.compiling import kernel
from hippo.jobs.engine import observe
from hippo.jobs.engine import world as c
from hippo.jobs.engine.keys import told_left

SLACK = 0.98
"""The fewest GPUs that are at least so quick as the quickest place."""
FORCE = 0.5
"""A job stops for one that is this much more urgent: at most so many times its urgency."""
GAIN = 0.1
"""A running job goes elsewhere where that ends it sooner by such a share, its stop included."""


@kernel(lean=True)
def teach(w, s, found):  # type: ignore[no-untyped-def]
    """Write the rule's next answer, slot (-1: nobody) and place, into ``found`` (2,)."""
    found[0], found[1] = -1, 0
    last = np.inf
    while True:
        first, most = -1, 0.0
        for at in range(len(s.job)):
            job = s.job[at]
            if job >= 0 and w.mark[job, c.STATUS] == c.WAITING and most < -s.key[at] < last:
                first, most = at, -s.key[at]
        if first < 0:
            break
        last = most
        place = _quickest(w, s, first)
        if place >= 0:
            found[0], found[1] = first, place
            return
        victim = _victim(w, s, first, FORCE * most) if s.stops else -1
        if victim >= 0:
            observe.places(w, s, victim)
            found[0] = victim
            return
    _better(w, s, found)
    if found[0] >= 0:
        observe.places(w, s, found[0])


@kernel(lean=True)
def _quickest(w, s, at):  # type: ignore[no-untyped-def]
    """The place of fewest GPUs among the quickest, -1: none."""
    count, top = observe.places(w, s, at), 0.0
    for place in range(count):
        top = max(top, s.rate[place])
    best, fewest = -1, np.inf
    for place in range(count):
        if s.offer[place] == -2:
            return place
        gpus = s.total[s.offer[place]] - s.rate[place] / max(top, 1e-12)  # of equally many the quicker
        if s.rate[place] >= SLACK * top and gpus < fewest:
            best, fewest = place, gpus
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


@kernel(lean=True)
def _better(w, s, found):  # type: ignore[no-untyped-def]
    """The running job that gains most by going elsewhere."""
    best = 0.0
    for at in range(len(s.job)):
        job = s.job[at]
        if job < 0 or w.mark[job, c.STATUS] != c.RUNNING or w.job[job, c.RATE] <= 0.0:
            continue
        stays = told_left(w, job, w.clock[c.NOW]) / w.job[job, c.RATE]
        for place in range(observe.places(w, s, at)):
            if s.offer[place] < 0:
                continue
            gains = stays - (np.exp(s.places[place, 10] * 10.0) - 1.0)
            if gains > GAIN * stays and gains * s.price[job] > best:
                best, found[0], found[1] = gains * s.price[job], at, place
