"""Elastic jobs: they run under an offer (a size, parts over domains, blocks of devices), and may change it."""

from __future__ import annotations

import numpy as np

from hippo.compiling import kernel
from hippo.jobs.engine import world as c
from hippo.jobs.engine.flows import end_streams, hops, narrower, rate_alone, send
from hippo.jobs.engine.running import begin_run, count_for_user, fetch, hold, stop


@kernel(lean=True)
def pool_of(w, job, domain):  # type: ignore[no-untyped-def]
    """The first pool of a domain that a job can use, -1: none."""
    for pool in range(len(w.pool)):
        if w.pool[pool, c.POOL_DOMAIN] == domain and w.partly[w.mark[job, c.SHAPE], pool]:
            return pool
    return -1


@kernel(lean=True)
def blocks_free(w, mine, pool, block):  # type: ignore[no-untyped-def]
    """Blocks of so many devices of one node each that are free, or held as a piece from ``mine`` on."""
    count = 0
    for each in range(w.pool[pool, c.POOL_FIRST], w.pool[pool, c.POOL_LAST]):
        if w.bin[each, c.BIN_UP] == 1:
            devices, piece = w.bin[each, c.BIN_FREE], mine
            while piece >= 0:
                if w.piece[piece, c.PIECE_BIN] == each:
                    devices += w.piece[piece, c.PIECE_DEVICES]
                piece = w.piece[piece, c.PIECE_OF_JOB]
            count += devices // block if devices >= block else 0  # to divide takes long
    return count


@kernel(lean=True)
def has_room(w, job, offer, domains):  # type: ignore[no-untyped-def]
    """Whether an offer's parts fit into these domains (M,) now, what the job holds counted as free, and the links of
    its hops and for its state carry something."""
    return _has_room(w, job, offer, domains, w.mark[job, c.PIECE])


@kernel(lean=True)
def _has_room(w, job, offer, domains, mine):  # type: ignore[no-untyped-def]
    form, home = w.offers.form[offer], w.mark[job, c.STATE_AT]
    if w.mark[job, c.STATUS] == c.RUNNING and w.job[job, c.READY] <= w.clock[c.NOW]:
        home = w.part[job, 0]
    for part in range(form[c.FORM_PARTS]):
        pool = pool_of(w, job, domains[part])
        if pool < 0 or (home >= 0 and home != domains[part] and w.links.capacity[home, domains[part]] <= 0.0):
            return False
        if blocks_free(w, mine, pool, form[c.FORM_BLOCK]) < w.offers.gpus[offer, part] // form[c.FORM_BLOCK]:
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
    _take_parts(w, job, offer, domains)
    _run_under(w, job, offer, domains, 1.0)
    return True


@kernel(lean=True)
def move(w, job, offer, domains):  # type: ignore[no-untyped-def]
    """Let a job that computes go over to an offer in these domains (M,) once its state is there: until then it holds
    devices here and there. False: no room, or it does not compute, has done its work, or moves already."""
    mark, row, going, form = w.mark[job], w.job[job], w.going[job], w.offers.form[offer]
    computes = mark[c.STATUS] == c.RUNNING and row[c.READY] <= w.clock[c.NOW] < row[c.ENDS]
    if not computes or going[c.GOING_OFFER] >= 0 or form[c.FORM_KIND] != mark[c.ROW]:
        return False
    if not _has_room(w, job, offer, domains, -1):
        return False
    here, home = mark[c.PIECE], w.part[job, 0]
    mark[c.PIECE] = -1
    _take_parts(w, job, offer, domains)
    going[c.GOING_OFFER], going[c.GOING_PIECE], going[c.GOING_HOLDS], going[c.GOING_LACKS] = offer, mark[c.PIECE], 0, 0
    mark[c.PIECE], w.going_s[job] = here, w.clock[c.NOW]
    for part in range(c.MOST_PARTS):
        going[c.GOING_PARTS + part] = domains[part] if part < form[c.FORM_PARTS] else -1
    for part in range(form[c.FORM_PARTS]):
        going[c.GOING_HOLDS] += w.offers.gpus[offer, part]
        if domains[part] != home and w.links.capacity[home, domains[part]] < np.inf:
            size = w.offers.state_share[offer, part] * w.offers.state_bytes[form[c.FORM_KIND]]
            send(w, job, home, domains[part], c.STREAM, size)
            going[c.GOING_LACKS] += 1
    count_for_user(w, job, w.clock[c.NOW], going[c.GOING_HOLDS])
    if going[c.GOING_LACKS] == 0:
        go_over(w, job)
    return True


@kernel(lean=True)
def go_over(w, job):  # type: ignore[no-untyped-def]
    """All of a job's state is in step: it stops, and goes on at its new place once the last gradients are there."""
    going = w.going[job]
    offer, piece = going[c.GOING_OFFER], going[c.GOING_PIECE]
    end_streams(w, job)
    count_for_user(w, job, w.clock[c.NOW], -going[c.GOING_HOLDS])
    going[c.GOING_OFFER] = -1  # no move that its stop gives up
    stop(w, job, False)
    w.mark[job, c.PIECE], going[c.GOING_PIECE] = piece, -1
    _run_under(w, job, offer, going[c.GOING_PARTS :], c.GRADIENT_SHARE)


@kernel(lean=True)
def _take_parts(w, job, offer, domains):  # type: ignore[no-untyped-def]
    """Devices of all parts of an offer."""
    for part in range(w.offers.form[offer, c.FORM_PARTS]):
        pool = pool_of(w, job, domains[part])
        _take_blocks(w, job, pool, w.offers.gpus[offer, part], w.offers.form[offer, c.FORM_BLOCK])


@kernel(lean=True)
def _run_under(w, job, offer, domains, share):  # type: ignore[no-untyped-def]
    """Begin a run on devices that a job holds; so much of its state has to be brought."""
    mark, parts = w.mark[job], w.offers.form[offer, c.FORM_PARTS]
    _bring_state(w, job, offer, domains, share)
    mark[c.OFFER], mark[c.HOLDS], mark[c.POOL] = offer, 0, pool_of(w, job, domains[0])
    for part in range(c.MOST_PARTS):
        w.part[job, part] = domains[part] if part < parts else -1
    for part in range(parts):
        mark[c.HOLDS] += w.offers.gpus[offer, part]
        fetch(w, job, domains[part], w.job[job, c.GB] / parts)
    begin_run(w, job, 0, rate_alone(w, offer, domains), 0.0)


@kernel(lean=True)
def _bring_state(w, job, offer, domains, share):  # type: ignore[no-untyped-def]
    """Send a share of weights and optimizer state from where they lie, to each part what it holds of them."""
    home = w.mark[job, c.STATE_AT]
    if home < 0:
        return
    form = w.offers.form[offer]
    for part in range(form[c.FORM_PARTS]):
        if domains[part] != home:
            size = share * w.offers.state_share[offer, part] * w.offers.state_bytes[form[c.FORM_KIND]]
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
