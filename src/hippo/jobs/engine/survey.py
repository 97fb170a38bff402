"""What a job could run under now: for each size the quickest of its offers that has room, and where."""

from __future__ import annotations

from hippo.compiling import kernel
from hippo.jobs.engine import world as c
from hippo.jobs.engine.elastic import blocks_free, has_room, pool_of, rate_if

SAME = 1e-9
"""Rates closer than this, as a share, are equal: then the fuller domain is taken."""


@kernel(lean=True)
def survey(w, job, most_parts, free, chain, offer, domains, rate):  # type: ignore[no-untyped-def]
    """Fill ``offer`` (O,) with 1 for offers of a job that have room now (what it holds itself counts as free), and
    for these ``domains`` (O, M) with where each is quickest and ``rate`` (O,) with its work per second there.

    One part: every domain. Several: chains grown greedily from each domain, the next part in the domain with room to
    which the most can be sent. ``free`` (K,) and ``chain`` (M,) are room for work.
    """
    count = 0
    for each in range(len(offer)):
        offer[each], rate[each] = 0, 0.0
        if w.offers.form[each, c.FORM_KIND] != w.mark[job, c.ROW] or w.offers.form[each, c.FORM_PARTS] > most_parts:
            continue
        devices = 0
        for part in range(w.offers.form[each, c.FORM_PARTS]):
            devices += w.offers.gpus[each, part]
        if devices < w.mark[job, c.LEAST] or devices > w.mark[job, c.DEVICES]:
            continue
        if _best_place(w, job, each, free, chain, domains[each], rate[each : each + 1]):
            offer[each] = 1
            count += 1
    return count


@kernel(lean=True)
def _best_place(w, job, offer, free, chain, best, best_rate):  # type: ignore[no-untyped-def]
    """Where an offer is quickest; of equal places the fullest. False: it has no room."""
    form, found, best_left = w.offers.form[offer], False, 0
    domains, parts = w.links.first.shape[0], form[c.FORM_PARTS]
    for domain in range(domains):  # blocks that each domain has
        pool = pool_of(w, job, domain)
        free[domain] = blocks_free(w, job, pool, form[c.FORM_BLOCK]) if pool >= 0 else 0
    for first in range(domains):
        if not _grow(w, offer, first, free, chain):
            continue
        for part in range(parts, c.MOST_PARTS):
            chain[part] = -1
        if not has_room(w, job, offer, chain):
            continue
        quick, left = rate_if(w, job, offer, chain), 0
        for part in range(parts):
            left += free[chain[part]]
        better = quick > best_rate[0] * (1.0 + SAME)
        if better or (found and quick >= best_rate[0] * (1.0 - SAME) and left < best_left):
            found, best_left, best_rate[0] = True, left, quick
            for part in range(c.MOST_PARTS):
                best[part] = chain[part]
    return found


@kernel(lean=True)
def _grow(w, offer, first, free, chain):  # type: ignore[no-untyped-def]
    """Domains of a chain that begins at ``first``, into ``chain``; False: no room."""
    block, links = w.offers.form[offer, c.FORM_BLOCK], w.links
    if free[first] < w.offers.gpus[offer, 0] // block:
        return False
    chain[0] = first
    for part in range(1, w.offers.form[offer, c.FORM_PARTS]):
        here, best, most = chain[part - 1], -1, 0.0
        for domain in range(links.first.shape[0]):
            used = False
            for before in range(part):
                used = used or chain[before] == domain
            carries = min(links.capacity[here, domain], links.capacity[domain, here])
            if used or carries <= most or free[domain] < w.offers.gpus[offer, part] // block:
                continue
            best, most = domain, carries
        if best < 0:
            return False
        chain[part] = best
    return True
