"""Elastic jobs: they run under an offer (a size, parts over domains, blocks of devices), and may change it."""

from __future__ import annotations

import numpy as np

from hippo.compiling import kernel
from hippo.jobs.engine import world as c
from hippo.jobs.engine.flows import farther, hops, narrower, rate_of, send
from hippo.jobs.engine.running import begin_run, fetch, hold


@kernel(lean=True)
def pool_of(w, job, domain):  # type: ignore[no-untyped-def]
    """The first pool of a domain that a job can use, -1: none."""
    for pool in range(len(w.pool)):
        if w.pool[pool, c.POOL_DOMAIN] == domain and w.partly[w.mark[job, c.SHAPE], pool]:
            return pool
    return -1


@kernel(lean=True)
def blocks_free(w, job, pool, block):  # type: ignore[no-untyped-def]
    """Blocks of so many devices of one node each that are free, or held by a job itself."""
    count = 0
    for each in range(w.pool[pool, c.POOL_FIRST], w.pool[pool, c.POOL_LAST]):
        if w.bin[each, c.BIN_UP] == 1:
            devices, piece = w.bin[each, c.BIN_FREE], w.mark[job, c.PIECE]
            while piece >= 0:
                if w.piece[piece, c.PIECE_BIN] == each:
                    devices += w.piece[piece, c.PIECE_DEVICES]
                piece = w.piece[piece, c.PIECE_OF_JOB]
            count += devices // block
    return count


@kernel(lean=True)
def has_room(w, job, offer, domains):  # type: ignore[no-untyped-def]
    """Whether an offer's parts fit into these domains (M,) now, and the links of its hops and for the job's state carry
    something."""
    form, home = w.offers.form[offer], w.mark[job, c.STATE_AT]
    if w.mark[job, c.STATUS] == c.RUNNING and w.job[job, c.READY] <= w.clock[c.NOW]:
        home = w.part[job, 0]
    for part in range(form[c.FORM_PARTS]):
        pool = pool_of(w, job, domains[part])
        if pool < 0 or (home >= 0 and home != domains[part] and w.links.capacity[home, domains[part]] <= 0.0):
            return False
        if blocks_free(w, job, pool, form[c.FORM_BLOCK]) < w.offers.gpus[offer, part] // form[c.FORM_BLOCK]:
            return False
        for other in range(part):
            if domains[other] == domains[part]:
                return False
    for hop in range(hops(w.offers, offer)):
        here, there = domains[hop], domains[(hop + 1) % form[c.FORM_PARTS]]
        if narrower(w, offer, w.links.capacity, here, there, np.inf) <= 0.0:
            return False
    return True


@kernel(lean=True)
def begin(w, job, offer, domains):  # type: ignore[no-untyped-def]
    """Run a job that waits under an offer in these domains (M,), the part with most devices first; False: no room."""
    mark, form = w.mark[job], w.offers.form[offer]
    if mark[c.STATUS] != c.WAITING or form[c.FORM_KIND] != mark[c.ROW] or not has_room(w, job, offer, domains):
        return False
    _bring_state(w, job, offer, domains)
    mark[c.OFFER], mark[c.HOLDS] = offer, 0
    for part in range(c.MOST_PARTS):
        w.part[job, part] = -1
    for part in range(form[c.FORM_PARTS]):
        w.part[job, part] = domains[part]
        pool = pool_of(w, job, domains[part])
        if part == 0:
            mark[c.POOL] = pool
        _take_blocks(w, job, pool, w.offers.gpus[offer, part], form[c.FORM_BLOCK])
        mark[c.HOLDS] += w.offers.gpus[offer, part]
        fetch(w, job, domains[part], w.job[job, c.GB] / form[c.FORM_PARTS])
    begin_run(w, job, 0, _rate_alone(w, offer, domains), 0.0)
    return True


@kernel(lean=True)
def _rate_alone(w, offer, domains):  # type: ignore[no-untyped-def]
    """Work per second with all of its links for itself; as its flows are counted, ``flows.share`` finds its part."""
    least, slowest = np.inf, 0.0
    for hop in range(hops(w.offers, offer)):
        here, there = domains[hop], domains[(hop + 1) % w.offers.form[offer, c.FORM_PARTS]]
        least = narrower(w, offer, w.links.capacity, here, there, least)
        slowest = farther(w, offer, here, there, slowest)
    return rate_of(w.offers, offer, least, slowest)


@kernel(lean=True)
def _bring_state(w, job, offer, domains):  # type: ignore[no-untyped-def]
    """Send weights and optimizer state from where they lie, to each part what it holds of them."""
    home = w.mark[job, c.STATE_AT]
    if home < 0:
        return
    form = w.offers.form[offer]
    for part in range(form[c.FORM_PARTS]):
        if domains[part] != home:
            size = w.offers.state_share[offer, part] * w.offers.state_bytes[form[c.FORM_KIND]]
            w.mark[job, c.COMING] += 1
            send(w, job, home, domains[part], c.STATE, size)


@kernel(lean=True)
def _take_blocks(w, job, pool, devices, block):  # type: ignore[no-untyped-def]
    """Blocks of a pool that has as many: in nodes of the least rank, then in the fullest ones."""
    w.pool[pool, c.POOL_FREE] -= devices
    w.pool[pool, c.POOL_HELD] += devices
    while devices > 0:
        chosen = -1
        for each in range(w.pool[pool, c.POOL_FIRST], w.pool[pool, c.POOL_LAST]):
            if w.bin[each, c.BIN_UP] == 0 or w.bin[each, c.BIN_FREE] < block:
                continue
            row, best = w.bin[each], w.bin[chosen]
            if chosen >= 0 and row[c.BIN_RANK] > best[c.BIN_RANK]:
                continue
            if chosen < 0 or row[c.BIN_RANK] < best[c.BIN_RANK] or row[c.BIN_FREE] < best[c.BIN_FREE]:
                chosen = each
        taken = min(devices, w.bin[chosen, c.BIN_FREE] // block * block)
        hold(w, job, chosen, taken)
        devices -= taken
