"""A rule that takes jobs one after another, compiled: who goes first, who stops for it, where each runs, how large.

A place costs a job ``(its price + what its GPUs cost others) x the time until it would end there``; of places that cost
little more than the least the one with fewest GPUs is taken. What a GPU costs others is what all who wait pay per
second, over the site's GPUs: a job on g of G of them keeps back g / G of what the site does. So jobs are large where
nobody waits and small in a crowd, as under heSRPT (Berg et al., 2020), whose closed form is for one law of speedup.

Letters: n jobs, P places of one job.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.jobs.engine import elastic
from hippo.jobs.engine import world as c
from hippo.jobs.engine.flows import share
from hippo.jobs.engine.keys import attained, told_left
from hippo.jobs.engine.observe import survey
from hippo.jobs.engine.running import find_pool, stop, try_start

ARRIVED, ATTAINED, LEFT, PRICED = range(4)
"""By what jobs rank: arrival, GPU time had (in powers of four), GPU time left, GPU time left over price."""

ALIKE = 1e-9  # costs that differ by a smaller share are equal


class RankTerms(NamedTuple):
    """What a rule is; see ``rules.Ranked``."""

    rank: int
    by_priority: bool
    preempts: bool
    grows: bool
    ahead: float
    margin: float
    most_parts: int
    slack: float
    crowd: float
    thrift: float
    urgency: float
    regions: bool
    levels: int
    times: float


class RankRoom(NamedTuple):
    """Room for work."""

    key: NDArray[np.float64]  # (n,)
    order: NDArray[np.int64]  # (n,) who waits, by rank
    behind: NDArray[np.int64]  # (n,) who runs, by rank
    backlog: NDArray[np.float64]  # (K,) GPU time left in each domain


def rank_room(jobs: int, domains: int) -> RankRoom:
    """Room for so many."""
    return RankRoom(np.zeros(jobs), np.zeros(jobs, np.int64), np.zeros(jobs, np.int64), np.zeros(domains))


# -------------------------------------------------------------------------------------------------------------- figures
@kernel(lean=True)
def gpu_s_left(w, s, job):  # type: ignore[no-untyped-def]
    """GPU time left at the job's quickest."""
    return told_left(w, job, w.clock[c.NOW]) / s.quickest[job] * w.mark[job, c.DEVICES]


@kernel(lean=True)
def ease(w, s, job):  # type: ignore[no-untyped-def]
    """1: its deadline is far, or it has none; 0: it can just be kept at the job's quickest, or not any more."""
    if w.job[job, c.DEADLINE] == np.inf:
        return 1.0
    left_s = told_left(w, job, w.clock[c.NOW]) / s.quickest[job]
    return min(1.0, max(0.0, (w.job[job, c.DEADLINE] - w.clock[c.NOW] - left_s) / (3600.0 + left_s)))


@kernel(lean=True)
def _price(w, s, r, job):  # type: ignore[no-untyped-def]
    """What a second of a job in the system costs, more where its deadline is near."""
    found = s.price[job]
    return found * (1.0 + r.urgency * (1.0 - ease(w, s, job))) if r.urgency > 0.0 else found


@kernel(lean=True)
def _key(w, s, r, job):  # type: ignore[no-untyped-def]
    if r.rank == ARRIVED:
        return w.job[job, c.ARRIVAL]
    if r.rank == ATTAINED:
        had = attained(w, job, w.clock[c.NOW]) / s.quickest[job] * w.mark[job, c.DEVICES]
        return np.floor(np.log(max(had, 1000.0)) / np.log(4.0))
    left = gpu_s_left(w, s, job)
    return left / _price(w, s, r, job) if r.rank == PRICED else left


@kernel(lean=True)
def _is_before(w, r, key, job, other):  # type: ignore[no-untyped-def]
    if r.by_priority and w.mark[job, c.PRIORITY] != w.mark[other, c.PRIORITY]:
        return w.mark[job, c.PRIORITY] > w.mark[other, c.PRIORITY]
    return key[job] < key[other] or (key[job] == key[other] and job < other)


@kernel(lean=True)
def _is_far_behind(w, r, key, job, other):  # type: ignore[no-untyped-def]
    """Whether ``other`` may be stopped for a job."""
    if r.by_priority and w.mark[job, c.PRIORITY] != w.mark[other, c.PRIORITY]:
        return w.mark[job, c.PRIORITY] > w.mark[other, c.PRIORITY]
    return key[other] > key[job] + r.ahead * abs(key[job])


@kernel(lean=True)
def _rank(w, r, key, status, found):  # type: ignore[no-untyped-def]
    """Write down jobs of a status by rank; returns how many."""
    count = 0
    for job in range(w.tally[c.ARRIVED]):
        if w.mark[job, c.STATUS] == status:
            at = count
            while at > 0 and _is_before(w, r, key, job, found[at - 1]):
                found[at] = found[at - 1]
                at -= 1
            found[at] = job
            count += 1
    return count


@kernel(lean=True)
def _needs(w, s, job):  # type: ignore[no-untyped-def]
    """Fewest GPUs that a job can run on."""
    if w.mark[job, c.ELASTIC] == 0:
        return w.mark[job, c.DEVICES]
    least = w.mark[job, c.DEVICES]
    for offer in range(len(s.total)):
        if w.offers.form[offer, c.FORM_KIND] == w.mark[job, c.ROW] and w.mark[job, c.LEAST] <= s.total[offer]:
            least = min(least, s.total[offer])
    return least


@kernel(lean=True)
def _free(w, domain):  # type: ignore[no-untyped-def]
    """Free GPUs of a domain, -1: of all."""
    found = 0
    for pool in range(len(w.pool)):
        if domain < 0 or w.pool[pool, c.POOL_DOMAIN] == domain:
            found += w.pool[pool, c.POOL_FREE]
    return found


@kernel(lean=True)
def _held(w, job, domain):  # type: ignore[no-untyped-def]
    """GPUs of a domain that a job holds, -1: of all."""
    found, piece = 0, w.mark[job, c.PIECE]
    while piece >= 0:
        pool = w.bin[w.piece[piece, c.PIECE_BIN], c.BIN_POOL]
        if domain < 0 or w.pool[pool, c.POOL_DOMAIN] == domain:
            found += w.piece[piece, c.PIECE_DEVICES]
        piece = w.piece[piece, c.PIECE_OF_JOB]
    return found


# --------------------------------------------------------------------------------------------------------------- places
@kernel(lean=True)
def _time(w, s, job, at):  # type: ignore[no-untyped-def]
    """Seconds until a job would end at a place: restart, or its state over links that it has for itself; work; data."""
    offer, parts, restarts = s.offer[at], w.offers.form[s.offer[at], c.FORM_PARTS], w.mark[job, c.STATE_AT]
    if w.mark[job, c.STATUS] == c.RUNNING:
        restarts = w.part[job, 0]
    stops = w.mark[job, c.STATUS] == c.RUNNING or w.mark[job, c.STOPS] + w.mark[job, c.FAILED] > 0
    begins, data = w.restart_s if stops else 0.0, 0.0
    home, gb = w.mark[job, c.HOME], w.job[job, c.GB] / parts
    for part in range(parts):
        there = s.where[at, part]
        if restarts >= 0 and restarts != there:
            size = w.offers.state_share[offer, part] * w.offers.state_bytes[w.mark[job, c.ROW]]
            begins = max(begins, size / max(1.0, w.links.capacity[restarts, there]))
        if home >= 0 and home != there and gb > 0.0 and w.there[job, there, 0] < gb:
            lacks = 1e9 * (gb - w.there[job, there, 0])
            data = max(data, lacks / max(1.0, w.links.capacity[home, there]))
    return max(data, begins + told_left(w, job, w.clock[c.NOW]) / max(1e-12, s.rate[at]))


@kernel(lean=True)
def _gpu_price(w, s, r, job):  # type: ignore[no-untyped-def]
    """What a second of a GPU costs others while a job has it, and what it costs where deadlines are far."""
    found = 0.0
    if r.crowd > 0.0:
        devices = 0.0
        for pool in range(len(w.pool)):
            devices += w.pool[pool, c.POOL_DEVICES]
        for other in range(w.tally[c.ARRIVED]):
            if other != job and w.mark[other, c.STATUS] == c.WAITING:
                found += _price(w, s, r, other)
        found *= r.crowd / max(1.0, devices)
    if r.thrift > 0.0:
        found += r.thrift * ease(w, s, job) * s.price[job] / w.mark[job, c.DEVICES]
    return found


@kernel(lean=True)
def _room_left(w, s, at):  # type: ignore[no-untyped-def]
    """Free GPUs of a place's domains."""
    found = 0
    for part in range(w.offers.form[s.offer[at], c.FORM_PARTS]):
        found += s.mine[s.where[at, part], 0] * s.size[0]
    return found


@kernel(lean=True)
def _choose(w, s, r, job, region):  # type: ignore[no-untyped-def]
    """The place that a job takes, and its cost: of those within ``slack`` of the least the one with fewest GPUs, then
    the cheapest, then the fullest; -1: none. ``region``: of its first part, -1: any."""
    count, price, of_gpu = survey(w, s, job), _price(w, s, r, job), _gpu_price(w, s, r, job)
    least = np.inf
    for at in range(count):
        if _is_allowed(w, s, r, at, region):
            least = min(least, (price + of_gpu * s.total[s.offer[at]]) * _time(w, s, job, at))
    best, cost = -1, np.inf
    for at in range(count):
        if not _is_allowed(w, s, r, at, region):
            continue
        each = (price + of_gpu * s.total[s.offer[at]]) * _time(w, s, job, at)
        if each > least * (1.0 + r.slack) * (1.0 + ALIKE):
            continue
        gpus, fewest = s.total[s.offer[at]], s.total[s.offer[best]] if best >= 0 else 0
        if best < 0 or gpus != fewest:
            better = best < 0 or gpus < fewest
        elif abs(each - cost) > ALIKE * cost:
            better = each < cost
        else:
            better = _room_left(w, s, at) < _room_left(w, s, best)
        if better:
            best, cost = at, each
    return best, cost


@kernel(lean=True)
def _is_allowed(w, s, r, at, region):  # type: ignore[no-untyped-def]
    if s.offer[at] < 0 or w.offers.form[s.offer[at], c.FORM_PARTS] > r.most_parts:
        return False
    return region < 0 or s.where[at, 0] == region


# ------------------------------------------------------------------------------------------------------------ decisions
@kernel(lean=True)
def begin_best(w, s, r, job, region):  # type: ignore[no-untyped-def]
    """Begin a job that waits where it costs least; False: there is no room."""
    if w.mark[job, c.ELASTIC] == 0:
        began = try_start(w, job)
    else:
        if _free(w, -1) < _needs(w, s, job):
            return False
        at, _ = _choose(w, s, r, job, region)
        began = at >= 0 and elastic.begin(w, job, s.offer[at], s.where[at])
    _settle(w)
    return began


@kernel(lean=True)
def _settle(w):  # type: ignore[no-untyped-def]
    if w.links.tally[c.UNSHARED] == 1:
        share(w)


@kernel(lean=True)
def decide_ranked(w, s, r, room):  # type: ignore[no-untyped-def]
    """Begin who can, by force if need be; look at those who run; weigh their flows."""
    for job in range(w.tally[c.ARRIVED]):
        if w.mark[job, c.STATUS] == c.WAITING or w.mark[job, c.STATUS] == c.RUNNING:
            room.key[job] = _key(w, s, r, job)
    _begin_all(w, s, r, room, r.preempts and s.stops)
    if r.margin < 1.0 and s.stops:
        count = _rank(w, r, room.key, c.RUNNING, room.behind)
        for at in range(count):
            if _replan(w, s, r, room.behind[at]):
                _begin_all(w, s, r, room, False)
    if r.levels > 1:
        _weigh(w, r, room)


@kernel(lean=True)
def _begin_all(w, s, r, room, by_force):  # type: ignore[no-untyped-def]
    waiting = _rank(w, r, room.key, c.WAITING, room.order)
    if r.regions:
        _backlogs(w, s, room)
    for at in range(waiting):
        job = room.order[at]
        region = _region(w, s, room, job) if r.regions else -1
        if by_force and r.grows and w.mark[job, c.ELASTIC] == 1:
            at, now = _choose(w, s, r, job, region)
            if _enlarge(w, s, r, room, job, now):
                continue
        if not begin_best(w, s, r, job, region) and by_force:
            _by_force(w, s, r, room, job, _needs(w, s, job))


@kernel(lean=True)
def _enlarge(w, s, r, room, job, now):  # type: ignore[no-untyped-def]
    """Begin an elastic job by force at the size that costs it least, or half of it, or a quarter .., where that costs
    less by ``margin`` than what is free (``now``); False: nobody stops."""
    price, of_gpu, left = _price(w, s, r, job), _gpu_price(w, s, r, job), told_left(w, job, w.clock[c.NOW])
    most = w.mark[job, c.DEVICES]
    while most > 0:
        best, wish = (1.0 - r.margin) * now, 0
        for offer in range(len(s.total)):
            form, gpus = w.offers.form[offer], s.total[offer]
            if form[c.FORM_KIND] == w.mark[job, c.ROW] and form[c.FORM_PARTS] == 1 and gpus <= most:
                cost = (price + of_gpu * gpus) * (w.restart_s + left / w.offers.rate[offer, 0, 0])
                if w.mark[job, c.LEAST] <= gpus and cost < best:
                    best, wish = cost, gpus
        if wish == 0:
            return False
        if _by_force(w, s, r, room, job, wish):
            return True
        most = wish // 2
    return False


@kernel(lean=True)
def _by_force(w, s, r, room, job, needs):  # type: ignore[no-untyped-def]
    """Stop jobs that rank behind, last first, in the domain where the last of them are enough for a place of so many
    GPUs, else anywhere; False: even all of them give no place, so nobody stops. Who was stopped too many goes on."""
    running, domains = _rank(w, r, room.key, c.RUNNING, room.behind), len(s.free)
    best, last = -2, -1
    for each in range(domains + 1):
        domain = each if each < domains else -1
        if domain < 0 and (best >= 0 or r.most_parts == 1 or w.mark[job, c.ELASTIC] == 0):
            break
        at, free, fits = running, _free(w, domain), False
        while not fits and at > 0 and _is_far_behind(w, r, room.key, job, room.behind[at - 1]):
            at -= 1
            held = _held(w, room.behind[at], domain)
            if held > 0:
                _lend(w, room.behind[at], 1)
                free += held
                fits = free >= needs and _has_place(w, s, r, job, needs)
        for lent in range(at, running):
            if _held(w, room.behind[lent], domain) > 0:
                _lend(w, room.behind[lent], -1)
        if fits and at > last:
            best, last = domain, at
    if best == -2:
        return False
    for at in range(running - 1, last - 1, -1):
        if _held(w, room.behind[at], best) > 0:
            stop(w, room.behind[at], False)
    _settle(w)
    began = begin_best(w, s, r, job, -1)
    for at in range(last, running):
        if w.mark[room.behind[at], c.STATUS] == c.WAITING:
            begin_best(w, s, r, room.behind[at], -1)
    return began


@kernel(lean=True)
def _lend(w, job, sign):  # type: ignore[no-untyped-def]
    """Count what a running job holds as free (1), or not any more (-1)."""
    piece = w.mark[job, c.PIECE]
    while piece >= 0:
        each, devices = w.piece[piece, c.PIECE_BIN], sign * w.piece[piece, c.PIECE_DEVICES]
        w.bin[each, c.BIN_FREE] += devices
        w.pool[w.bin[each, c.BIN_POOL], c.POOL_FREE] += devices
        piece = w.piece[piece, c.PIECE_OF_JOB]


@kernel(lean=True)
def _has_place(w, s, r, job, needs):  # type: ignore[no-untyped-def]
    """Whether a job that waits would go to a place of so many GPUs."""
    if w.mark[job, c.ELASTIC] == 0:
        return find_pool(w, job) >= 0
    at, _ = _choose(w, s, r, job, -1)
    return at >= 0 and s.total[s.offer[at]] >= needs


@kernel(lean=True)
def _replan(w, s, r, job):  # type: ignore[no-untyped-def]
    """Let a running job go over to a place that costs it less by ``margin``; one whose state is on its way stays."""
    row, mark, now = w.job[job], w.mark[job], w.clock[c.NOW]
    if mark[c.STATUS] != c.RUNNING or mark[c.ELASTIC] == 0 or row[c.READY] == np.inf or row[c.LEFT] <= 0.0:
        return False
    stays_s = max(0.0, row[c.READY] - now) + told_left(w, job, now) / max(1e-12, row[c.RATE])
    stays = (_price(w, s, r, job) + _gpu_price(w, s, r, job) * mark[c.HOLDS]) * stays_s
    at, cost = _choose(w, s, r, job, -1)
    if at < 0 or cost >= (1.0 - r.margin) * stays:
        return False
    stop(w, job, False)
    elastic.begin(w, job, s.offer[at], s.where[at])
    _settle(w)
    return True


# -------------------------------------------------------------------------------------------------------------- regions
@kernel(lean=True)
def _backlogs(w, s, room):  # type: ignore[no-untyped-def]
    for domain in range(len(room.backlog)):
        room.backlog[domain] = 0.0
    for job in range(w.tally[c.ARRIVED]):
        if w.mark[job, c.STATUS] == c.RUNNING:
            for domain in range(len(room.backlog)):
                room.backlog[domain] += gpu_s_left(w, s, job) * _held(w, job, domain) / w.mark[job, c.HOLDS]


@kernel(lean=True)
def _region(w, s, room, job):  # type: ignore[no-untyped-def]
    """The domain where a job would end first by what is left there and what it brings; the job counts there from now
    on. -1: no single one is large enough, or nobody runs who could make it wait."""
    best, least = -1, np.inf
    for domain in range(len(room.backlog)):
        devices = _free(w, domain)
        for other in range(w.tally[c.ARRIVED]):
            if w.mark[other, c.STATUS] == c.RUNNING:
                devices += _held(w, other, domain)
        if devices < _needs(w, s, job):
            continue
        brings, home = gpu_s_left(w, s, job), w.mark[job, c.HOME]
        ends = room.backlog[domain] / devices + brings / min(devices, w.mark[job, c.DEVICES])
        if home >= 0 and home != domain:
            ends = max(ends, 1e9 * w.job[job, c.GB] / max(1.0, w.links.capacity[home, domain]))
        if ends < least:
            best, least = domain, ends
    if best >= 0:
        room.backlog[best] += gpu_s_left(w, s, job)
    return best if w.tally[c.N_RUNNING] > 0 else -1


# --------------------------------------------------------------------------------------------------------- link weights
@kernel(lean=True)
def _weigh(w, r, room):  # type: ignore[no-untyped-def]
    """Jobs over several domains by GPU time of their work (undisturbed) per byte over a hop, in so many levels, each of
    ``times`` the weight of the one below."""
    spanning = 0
    for job in range(w.tally[c.ARRIVED]):
        mark = w.mark[job]
        if mark[c.STATUS] == c.RUNNING and mark[c.ELASTIC] == 1 and w.offers.form[mark[c.OFFER], c.FORM_PARTS] > 1:
            offer = mark[c.OFFER]
            undisturbed = w.offers.rate[offer, 0, w.offers.rate.shape[2] - 1]
            room.key[job] = mark[c.HOLDS] / (undisturbed * w.offers.hop_bytes[offer])
            at = spanning
            while at > 0 and room.key[job] < room.key[room.behind[at - 1]]:
                room.behind[at] = room.behind[at - 1]
                at -= 1
            room.behind[at] = job
            spanning += 1
    for at in range(spanning):
        weight = r.times ** (at * r.levels // spanning)
        if w.job[room.behind[at], c.WEIGHT] != weight:
            w.job[room.behind[at], c.WEIGHT] = weight
            w.links.tally[c.UNSHARED] = 1
    _settle(w)
