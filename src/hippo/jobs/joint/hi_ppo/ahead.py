"""Answers played ahead: what a rule would do next and other answers, each tried in a copy of the world and followed by
the rule.

n jobs, M parts.
"""

from __future__ import annotations

import numpy as np

from hippo.compiling import kernel
from hippo.jobs.engine import elastic
from hippo.jobs.engine import world as c
from hippo.jobs.engine.flows import share
from hippo.jobs.engine.keys import remaining
from hippo.jobs.engine.running import try_start
from hippo.jobs.joint.play import step
from hippo.jobs.joint.ranked import decide_without


@kernel(lean=True)
def begin(w, job, offer, where):  # type: ignore[no-untyped-def]
    """Begin a job that waits in domains (M,); -2: a gang."""
    if offer == -2:
        try_start(w, job)
    else:
        elastic.begin(w, job, offer, where)
    share(w)


@kernel(lean=True)
def played_ahead(w, s, r, room, answer, where, since, price, decay, cost):  # type: ignore[no-untyped-def]
    """Priced seconds from now to the end, into ``cost`` (C,): each counted less by ``decay`` (C,) a second, if a job
    (``answer``: which, and its offer; -1: none) begins in domains (M,) and the rule does the rest."""
    if answer[1] != -1:
        begin(w, answer[0], answer[1], where)
    decide_without(w, s, r, room, since)
    began = w.clock[c.NOW]
    for each in range(len(cost)):
        cost[each] = 0.0
    while True:
        before, paid = w.clock[c.NOW], 0.0
        for job in range(w.tally[c.ARRIVED]):
            if w.mark[job, c.STATUS] == c.WAITING or w.mark[job, c.STATUS] == c.RUNNING:
                paid += price[job]
        if not step(w):
            return
        for each in range(len(cost)):
            cost[each] += paid * (w.clock[c.NOW] - before) * np.exp(-decay[each] * (before - began))
        decide_without(w, s, r, room, since)


STANDING = 8
OUTAGE = 0.4
"""Of its undisturbed rate, a job is counted to have on average at least."""


@kernel(lean=True)
def standing(w, s, price, found):  # type: ignore[no-untyped-def]
    """How a world stands, with hindsight, into ``found`` (STANDING,): of who runs price, price x seconds to its end,
    shares of the site held x seconds; of who waits the same at its quickest, and of its most GPUs; nodes that are
    broken; 1."""
    now, devices, broken = w.clock[c.NOW], 0.0, 0.0
    for number in range(STANDING):
        found[number] = 0.0
    for each in range(len(w.bin)):
        devices += w.bin[each, c.BIN_SIZE]
        broken += w.bin[each, c.BIN_SIZE] if w.bin[each, c.BIN_UP] == 0 else 0.0
    for job in range(w.tally[c.ARRIVED]):
        row, status = w.job[job], w.mark[job, c.STATUS]
        left = remaining(w, job, now)
        if status == c.RUNNING:
            wait_s = min(1e5, max(0.0, row[c.READY] - now))
            usual = row[c.RATE]
            if w.mark[job, c.ELASTIC] == 1:  # an outage ends
                usual = max(usual, OUTAGE * w.offers.rate[w.mark[job, c.OFFER], 0, w.offers.rate.shape[2] - 1])
            left_s = wait_s + left / max(1e-9, usual)
            found[0] += price[job]
            found[1] += price[job] * left_s
            found[2] += w.mark[job, c.HOLDS] / devices * left_s
        elif status == c.WAITING:
            left_s = left / s.quickest[job]
            found[3] += price[job]
            found[4] += price[job] * left_s
            found[5] += w.mark[job, c.DEVICES] / devices * left_s
    found[6], found[7] = broken / devices, 1.0


@kernel(lean=True)
def played_until(w, s, r, room, answer, where, since, price, until_s, found):  # type: ignore[no-untyped-def]
    """As ``played_ahead``, but up to the first instant from ``until_s`` on; ``found`` (2 + STANDING,): when that is,
    priced seconds up to then, undiscounted, and how the world then stands."""
    if answer[1] != -1:
        begin(w, answer[0], answer[1], where)
    decide_without(w, s, r, room, since)
    paid = 0.0
    while w.clock[c.NOW] < until_s:
        before, each = w.clock[c.NOW], 0.0
        for job in range(w.tally[c.ARRIVED]):
            if w.mark[job, c.STATUS] == c.WAITING or w.mark[job, c.STATUS] == c.RUNNING:
                each += price[job]
        if not step(w):
            break
        paid += each * (w.clock[c.NOW] - before)
        decide_without(w, s, r, room, since)
    found[0], found[1] = w.clock[c.NOW], paid
    standing(w, s, price, found[2:])
