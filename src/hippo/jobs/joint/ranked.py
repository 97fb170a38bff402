"""A rule that takes jobs one after another, compiled: who goes first, who stops for it, where each runs, how large.

A place costs a job ``(its price + what its GPUs cost others) x the time until it would end there``, and until then its
egress and what it sends over links below a floor, where these are priced (``egress``, ``below``); of places that cost
little more than the least the one with fewest GPUs is taken. What a GPU costs others is what all who wait pay per
second, over the site's GPUs: a job on g of G of them keeps back g / G of what the site does. So jobs are large where
nobody waits and small in a crowd, as under heSRPT (Berg et al., 2020), whose closed form is for one law of speedup. Who
runs can be counted, too (``busy``), for those who are to come.

Where it is priced that owners lack of an equal share (``unfairness``), a job's price rises by what its GPUs would take
off that; where stops are (``stop``), nobody stops whose stop does not pay for itself.

Gangs that tell nothing of how long they take rank by what the past of jobs like them says, where that is remembered
(``keys.index_s``).

Where nobody is stopped for others, a job may wait for a domain that is told to become free (``patience``), and domains
may be kept for who waits, so that whoever ranks behind takes only what is left over there, or is told to end before
(EASY backfilling: Lifka 1995; Mu'alem and Feitelson 2001).

Letters: n jobs, P places of one job, K domains, Y sizes of blocks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.jobs.engine import elastic
from hippo.jobs.engine import world as c
from hippo.jobs.engine.flows import hops, sends_back, share
from hippo.jobs.engine.keys import attained, is_untold, told_left
from hippo.jobs.engine.observe import Sight, exchange_usd, survey
from hippo.jobs.engine.running import could_start, stop, try_start

ARRIVED, ATTAINED, LEFT, PRICED = range(4)
"""By what jobs rank: arrival, GPU time had (in powers of four), GPU time left, GPU time left over price."""

CHEAPEST, FIRST, FULLEST, GRADIENT = range(4)
"""Which of the places that have the size which a job takes and cost about as little: the cheapest; the first domain,
the first nodes (first fit); the fullest of both (best fit); where what the mix of jobs cannot use grows least (Weng et
al., Beware of Fragmentation, USENIX ATC 2023)."""

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
    busy: float
    thrift: float
    urgency: float
    regions: bool
    levels: int
    times: float
    place: int
    patience: float
    reserves: int
    egress: float
    unfairness: float
    stop: float
    below: float
    floor: float


class RankRoom(NamedTuple):
    """Room for work."""

    key: NDArray[np.float64]  # (n,)
    order: NDArray[np.int64]  # (n,) who waits, by rank
    behind: NDArray[np.int64]  # (n,) who runs, by rank
    running: NDArray[np.int64]  # (1,) how many that are, -1: they have changed
    backlog: NDArray[np.float64]  # (K,) GPU time left in each domain
    leaver: NDArray[np.int64]  # (n,) who runs, by when they are told to end
    leaves: NDArray[np.float64]  # (n,) when that is, seconds from now
    since: NDArray[np.float64]  # (K,) from then on a domain is kept for somebody; inf: it is not
    spare: NDArray[np.int64]  # (K,) GPUs of it that are left over then
    like: NDArray[np.int64]  # (n,) one of each kind of want
    many: NDArray[np.int64]  # (n,) jobs that want the same; 0: no more kinds
    need: NDArray[
        np.int64
    ]  # (n, Y + 1) blocks of each size, at least, that such a job can run on in one domain; 0: none
    blocks: NDArray[np.int64]  # (Y + 1,) free ones in a domain; last: devices
    passed: NDArray[np.float64]  # (n,) when ``next_begun`` last passed a job over
    alike: (
        bool  # gangs of one price that may be stopped: who is untold ranks as under the learned policy, front included
    )
    lacks: NDArray[np.float64]  # (n,) GPUs that each job's owner lacks of an equal share, but for what the job holds
    lacked: NDArray[np.float64]  # (1,) when that was so


def rank_room(sight: Sight) -> RankRoom:
    """Room for what is seen."""
    jobs, (domains, sizes) = len(sight.price), sight.free.shape
    return RankRoom(
        key=np.zeros(jobs),
        order=np.zeros(jobs, np.int64),
        behind=np.zeros(jobs, np.int64),
        running=np.full(1, -1, np.int64),
        backlog=np.zeros(domains),
        leaver=np.zeros(jobs, np.int64),
        leaves=np.zeros(jobs),
        since=np.full(domains, np.inf),
        spare=np.zeros(domains, np.int64),
        like=np.zeros(jobs, np.int64),
        many=np.zeros(jobs, np.int64),
        need=np.zeros((jobs, sizes + 1), np.int64),
        blocks=np.zeros(sizes + 1, np.int64),
        passed=np.full(jobs, -np.inf),
        alike=sight.stops and not len(sight.total) and bool((sight.price == 1.0).all()),
        lacks=np.zeros(jobs),
        lacked=np.full(1, -np.inf),
    )


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
def _price(w, s, r, room, job):  # type: ignore[no-untyped-def]
    """What a second of a job in the system costs, more where its deadline is near, or where its owner lacks GPUs."""
    found = s.price[job]
    if r.urgency > 0.0:
        found *= 1.0 + r.urgency * (1.0 - ease(w, s, job))
    return found + _relief(w, r, room, job, w.mark[job, c.DEVICES])


@kernel(lean=True)
def _relief(w, r, room, job, gpus):  # type: ignore[no-untyped-def]
    """What so many GPUs of a job take off the price of what its owner lacks, a second."""
    return r.unfairness * min(gpus, room.lacks[job]) / site_gpus(w) if r.unfairness > 0.0 else 0.0


@kernel(lean=True)
def site_gpus(w):  # type: ignore[no-untyped-def]
    """GPUs of the whole site."""
    found = 0.0
    for pool in range(len(w.pool)):
        found += w.pool[pool, c.POOL_DEVICES]
    return found


@kernel(lean=True)
def _note_owners(w, r, room):  # type: ignore[no-untyped-def]
    """Write down what each job's owner lacks of an equal share, of what he could use of it; once for a moment."""
    now, arrived, owners = w.clock[c.NOW], w.tally[c.ARRIVED], 0
    if r.unfairness <= 0.0 or room.lacked[0] == now:
        return
    room.lacked[0] = now
    for job in range(arrived):
        if w.mark[job, c.STATUS] == c.WAITING or w.mark[job, c.STATUS] == c.RUNNING:
            wants, held, first = 0.0, 0.0, True
            for other in range(arrived):
                mark = w.mark[other]
                if mark[c.USER] != w.mark[job, c.USER]:
                    continue
                if mark[c.STATUS] == c.WAITING or mark[c.STATUS] == c.RUNNING:
                    wants += mark[c.DEVICES]
                    held += mark[c.HOLDS] if mark[c.STATUS] == c.RUNNING and other != job else 0
                    first = first and other >= job
            owners += first
            room.leaves[job], room.lacks[job] = wants, held
    share_of = site_gpus(w) / max(1, owners)
    for job in range(arrived):
        if w.mark[job, c.STATUS] == c.WAITING or w.mark[job, c.STATUS] == c.RUNNING:
            room.lacks[job] = max(0.0, min(room.leaves[job], share_of) - room.lacks[job])


@kernel(lean=True)
def _key(w, s, r, room, job):  # type: ignore[no-untyped-def]
    if r.rank == ARRIVED:
        return w.job[job, c.ARRIVAL]
    if r.rank == ATTAINED:
        had = attained(w, job, w.clock[c.NOW]) / s.quickest[job] * w.mark[job, c.DEVICES]
        return np.floor(np.log(max(had, 1000.0)) / np.log(4.0))
    if room.alike and is_untold(w, job):
        return w.job[job, c.KEY]
    left = gpu_s_left(w, s, job)
    return left / _price(w, s, r, room, job) if r.rank == PRICED else left


@kernel(lean=True)
def _is_before(w, r, key, job, other):  # type: ignore[no-untyped-def]
    if r.by_priority and w.mark[job, c.PRIORITY] != w.mark[other, c.PRIORITY]:
        return w.mark[job, c.PRIORITY] > w.mark[other, c.PRIORITY]
    return key[job] < key[other] or (key[job] == key[other] and job < other)


@kernel(lean=True)
def _is_far_behind(w, s, r, room, job, other):  # type: ignore[no-untyped-def]
    """Whether ``other`` may be stopped for a job."""
    key = room.key
    if not pays_a_stop(w, s, r, room, job, other):
        return False
    if r.by_priority and w.mark[job, c.PRIORITY] != w.mark[other, c.PRIORITY]:
        return w.mark[job, c.PRIORITY] > w.mark[other, c.PRIORITY]
    return key[other] > key[job] + r.ahead * abs(key[job])


@kernel(lean=True)
def pays_a_stop(w, s, r, room, job, other):  # type: ignore[no-untyped-def]
    """Whether a job saves the price of a stop where it need not wait until ``other`` ends, which then waits for it (the
    exchange of two neighbours: Smith 1956)."""
    if r.stop <= 0.0:
        return True
    its_s = told_left(w, job, w.clock[c.NOW]) / s.quickest[job]
    others_s = told_left(w, other, w.clock[c.NOW]) / s.quickest[other]
    return _price(w, s, r, room, job) * others_s - _price(w, s, r, room, other) * its_s >= r.stop


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
    least, kind = w.mark[job, c.DEVICES], w.mark[job, c.ROW]
    for number in range(s.kind_at[kind], s.kind_at[kind + 1]):
        gpus = s.total[s.by_kind[number]]
        if w.mark[job, c.LEAST] <= gpus:
            least = min(least, gpus)
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
def _time(w, job, offer, where, rate):  # type: ignore[no-untyped-def]
    """Seconds until a job would end in domains (M,): restart, or its state over links that it has for itself; work;
    data."""
    parts, restarts = w.offers.form[offer, c.FORM_PARTS], w.mark[job, c.STATE_AT]
    if w.mark[job, c.STATUS] == c.RUNNING:
        restarts = w.part[job, 0]
    stops = w.mark[job, c.STATUS] == c.RUNNING or w.mark[job, c.STOPS] + w.mark[job, c.FAILED] > 0
    begins, data = w.restart_s if stops else 0.0, 0.0
    home, gb = w.mark[job, c.HOME], w.job[job, c.GB] / parts
    for part in range(parts):
        there = where[part]
        if restarts >= 0 and restarts != there:
            size = w.offers.state_share[offer, part] * w.offers.state_bytes[w.mark[job, c.ROW]]
            begins = max(begins, size / max(1.0, w.links.capacity[restarts, there]))
        if home >= 0 and home != there and gb > 0.0 and w.there[job, there, 0] < gb:
            lacks = 1e9 * (gb - w.there[job, there, 0])
            data = max(data, lacks / max(1.0, w.links.capacity[home, there]))
    return max(data, begins + told_left(w, job, w.clock[c.NOW]) / max(1e-12, rate))


@kernel(lean=True)
def _gpu_price(w, s, r, room, job):  # type: ignore[no-untyped-def]
    """What a second of a GPU costs others while a job has it, and what it costs where deadlines are far."""
    found = 0.0
    if r.crowd > 0.0 or r.busy > 0.0:
        for other in range(w.tally[c.ARRIVED]):
            if other != job and w.mark[other, c.STATUS] == c.WAITING:
                found += r.crowd * _price(w, s, r, room, other)
            elif other != job and w.mark[other, c.STATUS] == c.RUNNING:
                found += r.busy * _price(w, s, r, room, other)
        found /= max(1.0, site_gpus(w))
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
def _usd(w, job, offer, where):  # type: ignore[no-untyped-def]
    """Egress of a job in domains (M,) from now to its end: exchange, data that are not there, its state."""
    found = exchange_usd(w, offer, where) * told_left(w, job, w.clock[c.NOW])
    parts, home, restarts = w.offers.form[offer, c.FORM_PARTS], w.mark[job, c.HOME], w.mark[job, c.STATE_AT]
    if w.mark[job, c.STATUS] == c.RUNNING:
        restarts = w.part[job, 0]
    for part in range(parts):
        there = where[part]
        if home >= 0 and home != there:
            lacks = 1e9 * (w.job[job, c.GB] / parts - w.there[job, there, 0])
            found += max(0.0, lacks) * w.links.usd_per_byte[home, there]
        if restarts >= 0 and restarts != there:
            state = w.offers.state_share[offer, part] * w.offers.state_bytes[w.mark[job, c.ROW]]
            found += state * w.links.usd_per_byte[restarts, there]
    return found


@kernel(lean=True)
def _gb_below(w, job, offer, where, floor):  # type: ignore[no-untyped-def]
    """What a job in domains (M,) would exchange from now to its end over links that now carry less than ``floor``."""
    found, parts = 0.0, w.offers.form[offer, c.FORM_PARTS]
    for hop in range(hops(w.offers, offer)):
        here, there = where[hop], where[(hop + 1) % parts]
        found += 1.0 if w.links.capacity[here, there] < floor else 0.0
        if sends_back(w.offers, offer):
            found += 1.0 if w.links.capacity[there, here] < floor else 0.0
    return 1e-9 * found * w.offers.hop_bytes[offer] * told_left(w, job, w.clock[c.NOW])


@kernel(lean=True)
def _sends(w, r, job, offer, where):  # type: ignore[no-untyped-def]
    """What a job pays in domains (M,) until its end for what it sends."""
    found = r.egress * _usd(w, job, offer, where) if r.egress > 0.0 else 0.0
    return found + r.below * _gb_below(w, job, offer, where, r.floor) if r.below > 0.0 else found


@kernel(lean=True)
def _pays(w, r, job, offer, where, rate, per_s):  # type: ignore[no-untyped-def]
    """What a job pays in domains (M,) until it would end there, at so much a second."""
    return per_s * _time(w, job, offer, where, rate) + _sends(w, r, job, offer, where)


@kernel(lean=True)
def _cost(w, s, r, room, job, at, price, of_gpu):  # type: ignore[no-untyped-def]
    """What a job pays at a place."""
    offer = s.offer[at]
    per_s = price - _relief(w, r, room, job, s.total[offer]) + of_gpu * s.total[offer]
    return _pays(w, r, job, offer, s.where[at], s.rate[at], per_s)


@kernel(lean=True)
def _choose(w, s, r, room, job, region):  # type: ignore[no-untyped-def]
    """The place that a job takes, and its cost: of those within ``slack`` of the least the one with fewest GPUs, then
    the cheapest, then the fullest; -1: none. ``region``: of its first part, -1: any."""
    count, price, of_gpu = survey(w, s, job), _price(w, s, r, room, job), _gpu_price(w, s, r, room, job)
    least, parts = np.inf, _most_parts(w, s, r, job)
    for at in range(count):
        if _is_allowed(w, s, room, job, at, region, parts):
            least = min(least, _cost(w, s, r, room, job, at, price, of_gpu))
    most, best, cost = least * (1.0 + r.slack) * (1.0 + ALIKE), -1, np.inf
    for at in range(count):
        if not _is_allowed(w, s, room, job, at, region, parts):
            continue
        each = _cost(w, s, r, room, job, at, price, of_gpu)
        if each > most:
            continue
        gpus, fewest = s.total[s.offer[at]], s.total[s.offer[best]] if best >= 0 else 0
        if best < 0 or gpus < fewest or (gpus == fewest and _is_cheaper(w, s, at, each, best, cost)):
            best, cost = at, each
    if r.place == CHEAPEST or best < 0 or w.mark[job, c.STATUS] == c.RUNNING:
        return best, cost
    first, score = best, _score(w, s, r, room, job, best)
    for at in range(count):
        if at == first or not _is_allowed(w, s, room, job, at, region, parts):
            continue
        alike = s.total[s.offer[at]] == s.total[s.offer[first]]
        if not alike or w.offers.form[s.offer[at], c.FORM_PARTS] != w.offers.form[s.offer[first], c.FORM_PARTS]:
            continue
        each = _cost(w, s, r, room, job, at, price, of_gpu)
        if each > most:
            continue
        mine = _score(w, s, r, room, job, at)
        if mine < score or (mine == score and _is_cheaper(w, s, at, each, best, cost)):
            best, cost, score = at, each, mine
    return best, cost


@kernel(lean=True)
def _is_cheaper(w, s, at, each, best, cost):  # type: ignore[no-untyped-def]
    """Whether a place costs less than the best so far, or the same in fuller domains."""
    if abs(each - cost) > ALIKE * cost:
        return each < cost
    return _room_left(w, s, at) < _room_left(w, s, best)


@kernel(lean=True)
def _most_parts(w, s, r, job):  # type: ignore[no-untyped-def]
    """Domains that a job may span: as many as it likes where none are large enough for fewer."""
    if r.most_parts >= c.MOST_PARTS or w.mark[job, c.ELASTIC] == 0:
        return r.most_parts
    for offer in range(len(s.total)):
        form = w.offers.form[offer]
        if form[c.FORM_KIND] == w.mark[job, c.ROW] and form[c.FORM_PARTS] <= r.most_parts:
            fits = w.mark[job, c.LEAST] <= s.total[offer] <= w.mark[job, c.DEVICES]
            if fits and _holds(w, s, offer):
                return r.most_parts
    return c.MOST_PARTS


@kernel(lean=True)
def _holds(w, s, offer):  # type: ignore[no-untyped-def]
    """Whether the empty site has a domain for each part of an offer; parts have most GPUs first."""
    for part in range(w.offers.form[offer, c.FORM_PARTS]):
        large = 0
        for domain in range(len(s.free)):
            devices = 0
            for pool in range(len(w.pool)):
                devices += w.pool[pool, c.POOL_DEVICES] if w.pool[pool, c.POOL_DOMAIN] == domain else 0
            large += devices >= w.offers.gpus[offer, part]
        if large <= part:
            return False
    return True


@kernel(lean=True)
def _is_allowed(w, s, room, job, at, region, parts):  # type: ignore[no-untyped-def]
    if s.offer[at] < 0 or w.offers.form[s.offer[at], c.FORM_PARTS] > parts:
        return False
    if region >= 0 and s.where[at, 0] != region:
        return False
    for part in range(w.offers.form[s.offer[at], c.FORM_PARTS]):
        there = s.where[at, part]
        if room.since[there] < np.inf and w.offers.gpus[s.offer[at], part] > room.spare[there]:
            ends = w.clock[c.NOW] + _time(w, job, s.offer[at], s.where[at], s.rate[at])
            if ends > room.since[there]:
                return False
    return True


@kernel(lean=True)
def _score(w, s, r, room, job, at):  # type: ignore[no-untyped-def]
    """By which a place is chosen of those with the same size: the least."""
    if r.place == FIRST:
        return s.where[at, 0]
    if r.place == FULLEST:
        return _room_left(w, s, at)
    found, offer = 0, s.offer[at]
    for part in range(w.offers.form[offer, c.FORM_PARTS]):
        pool, block = elastic.pool_of(w, job, s.where[at, part]), w.offers.form[offer, c.FORM_BLOCK]
        found += _fill(w, s, room, pool, w.offers.gpus[offer, part], block, False)
    return found


@kernel(lean=True)
def _take(w, s, r, room, job, at):  # type: ignore[no-untyped-def]
    """Begin a job at a place, its nodes in the order that goes with how places are chosen; False: no room."""
    offer, where = s.offer[at], s.where[at]
    form = w.offers.form[offer]
    ends = w.clock[c.NOW] + _time(w, job, offer, where, s.rate[at])
    for part in range(form[c.FORM_PARTS]):
        if room.since[where[part]] < ends:  # inf: it is kept for nobody
            room.spare[where[part]] -= w.offers.gpus[offer, part]
        pool = elastic.pool_of(w, job, where[part])
        if r.place == GRADIENT:
            _fill(w, s, room, pool, w.offers.gpus[offer, part], form[c.FORM_BLOCK], True)
        elif r.place == FIRST:
            for each in range(w.pool[pool, c.POOL_FIRST], w.pool[pool, c.POOL_LAST]):
                w.bin[each, c.BIN_RANK] = each
    began = elastic.begin(w, job, offer, where)
    if r.place == GRADIENT or r.place == FIRST:
        for each in range(len(w.bin)):
            w.bin[each, c.BIN_RANK] = 0
    return began


# -------------------------------------------------------------------------------------------------------- fragmentation
@kernel(lean=True)
def _count_wants(w, s, room):  # type: ignore[no-untyped-def]
    """Write down what the jobs that have come can run on inside one domain, those that want the same together."""
    count, sizes = 0, len(s.size)
    for job in range(w.tally[c.ARRIVED]):
        mark = w.mark[job]
        if mark[c.STATUS] == c.REFUSED:
            continue
        at = 0
        while at < count:
            other = w.mark[room.like[at]]
            alike = mark[c.ELASTIC] == other[c.ELASTIC] and mark[c.DEVICES] == other[c.DEVICES]
            if alike and (mark[c.ELASTIC] == 0 or (mark[c.ROW] == other[c.ROW] and mark[c.LEAST] == other[c.LEAST])):
                break
            at += 1
        if at < count:
            room.many[at] += 1
            continue
        room.like[count], room.many[count] = job, 1
        for size in range(sizes + 1):
            room.need[count, size] = 0
        if mark[c.ELASTIC] == 0:
            room.need[count, sizes] = mark[c.DEVICES]
        else:
            for offer in range(len(s.total)):
                form, gpus = w.offers.form[offer], s.total[offer]
                fits = form[c.FORM_KIND] == mark[c.ROW] and form[c.FORM_PARTS] == 1
                if fits and mark[c.LEAST] <= gpus <= mark[c.DEVICES]:
                    size, blocks = s.block[offer], gpus // form[c.FORM_BLOCK]
                    if room.need[count, size] == 0 or blocks < room.need[count, size]:
                        room.need[count, size] = blocks
        count += 1
    if count < len(room.many):
        room.many[count] = 0


@kernel(lean=True)
def _useless(s, room):  # type: ignore[no-untyped-def]
    """Of the free blocks of a domain (``room.blocks``) the devices that a job cannot use, summed over the jobs."""
    found, sizes = 0, len(s.size)
    for at in range(len(room.many)):
        if room.many[at] == 0:
            break
        usable = 0
        for size in range(sizes + 1):
            if 0 < room.need[at, size] <= room.blocks[size]:
                usable = max(usable, room.blocks[size] * (s.size[size] if size < sizes else 1))
        found += room.many[at] * (room.blocks[sizes] - usable)
    return found


@kernel(lean=True)
def _give(s, room, free, sign):  # type: ignore[no-untyped-def]
    """Count a node with so many free devices among the free blocks (1), or not any more (-1)."""
    for size in range(len(s.size)):
        room.blocks[size] += sign * (free // s.size[size])
    room.blocks[len(s.size)] += sign * free


@kernel(lean=True)
def _fill(w, s, room, pool, devices, block, ranks):  # type: ignore[no-untyped-def]
    """By how much more the jobs cannot use of a domain once so many devices of a pool are taken: node after node, each
    the one where that grows least per device, then the fullest. ``ranks``: rank the nodes so."""
    for size in range(len(room.blocks)):
        room.blocks[size] = 0
    for each in range(len(w.bin)):
        s.room[each] = 0
        if w.bin[each, c.BIN_UP] == 1 and w.pool[w.bin[each, c.BIN_POOL], c.POOL_DOMAIN] == w.pool[pool, c.POOL_DOMAIN]:
            _give(s, room, w.bin[each, c.BIN_FREE], 1)
    first, last = w.pool[pool, c.POOL_FIRST], w.pool[pool, c.POOL_LAST]
    began = before = _useless(s, room)
    left, turn = devices, 0
    for each in range(first, last):
        if ranks:
            w.bin[each, c.BIN_RANK] = last - first
    while left > 0:
        chosen, least, taken, seen = -1, np.inf, 0, 0
        for each in range(first, last):
            free = w.bin[each, c.BIN_FREE]
            if w.bin[each, c.BIN_UP] == 0 or s.room[each] == 1 or free < block or (free < 62 and seen >> free & 1):
                continue
            seen |= 1 << min(free, 62)
            takes = min(left, free // block * block)
            _give(s, room, free, -1)
            _give(s, room, free - takes, 1)
            grows = (_useless(s, room) - before) / takes
            _give(s, room, free - takes, -1)
            _give(s, room, free, 1)
            if chosen < 0 or grows < least or (grows == least and free < w.bin[chosen, c.BIN_FREE]):
                chosen, least, taken = each, grows, takes
        if chosen < 0:
            break
        s.room[chosen] = 1
        if ranks:
            w.bin[chosen, c.BIN_RANK] = turn
        _give(s, room, w.bin[chosen, c.BIN_FREE], -1)
        _give(s, room, w.bin[chosen, c.BIN_FREE] - taken, 1)
        before = _useless(s, room)
        left -= taken
        turn += 1
    return before - began


# ------------------------------------------------------------------------------------------------------------ decisions
@kernel(lean=True)
def begin_best(w, s, r, room, job, region):  # type: ignore[no-untyped-def]
    """Begin a job that waits where it costs least; False: there is no room."""
    if w.mark[job, c.ELASTIC] == 0:
        began = try_start(w, job)
    else:
        if _free(w, -1) < _needs(w, s, job):
            return False
        at, _ = _choose(w, s, r, room, job, region)
        began = at >= 0 and _take(w, s, r, room, job, at)
    if began:
        room.running[0] = -1
    _settle(w)
    return began


@kernel(lean=True)
def _settle(w):  # type: ignore[no-untyped-def]
    if w.links.tally[c.UNSHARED] == 1:
        share(w)


@kernel(lean=True)
def decide_ranked(w, s, r, room):  # type: ignore[no-untyped-def]
    """Begin who can, by force if need be; look at those who run; weigh their flows."""
    room.lacked[0] = -np.inf  # somebody may have come since at the same time
    _note_owners(w, r, room)
    for job in range(w.tally[c.ARRIVED]):
        if w.mark[job, c.STATUS] == c.WAITING or w.mark[job, c.STATUS] == c.RUNNING:
            room.key[job] = _key(w, s, r, room, job)
    if r.place == GRADIENT:
        _count_wants(w, s, room)
    room.running[0] = -1
    _begin_all(w, s, r, room, r.preempts and s.stops)
    if r.margin < 1.0 and s.stops:
        count = _rank(w, r, room.key, c.RUNNING, room.behind)
        for at in range(count):
            if _replan(w, s, r, room, room.behind[at]):
                _begin_all(w, s, r, room, False)
    if r.levels > 1:
        _weigh(w, r, room)


@kernel(lean=True)
def decide_without(w, s, r, room, since):  # type: ignore[no-untyped-def]
    """The same for who does not see a job that waits before ``since`` (n,)."""
    now, hidden = w.clock[c.NOW], 0
    for job in range(w.tally[c.ARRIVED]):
        if w.mark[job, c.STATUS] == c.WAITING and since[job] > now:
            w.mark[job, c.STATUS] = c.ABSENT
            hidden += 1
    decide_ranked(w, s, r, room)
    if hidden > 0:
        for job in range(w.tally[c.ARRIVED]):
            if w.mark[job, c.STATUS] == c.ABSENT:
                w.mark[job, c.STATUS] = c.WAITING


@kernel(lean=True)
def _begin_all(w, s, r, room, by_force):  # type: ignore[no-untyped-def]
    waiting, kept = _rank(w, r, room.key, c.WAITING, room.order), 0
    if r.regions:
        _backlogs(w, s, room)
    for at in range(waiting):
        job = room.order[at]
        region = _region(w, s, room, job) if r.regions else -1
        if by_force and r.grows and w.mark[job, c.ELASTIC] == 1:
            _, now = _choose(w, s, r, room, job, region)
            if _enlarge(w, s, r, room, job, now):
                continue
        if by_force or not _awaits(w, s, r, room, job, region):
            if begin_best(w, s, r, room, job, region):
                continue
            if by_force:
                _by_force(w, s, r, room, job, _needs(w, s, job))
                continue
        if kept < r.reserves and not by_force:
            kept += _reserve(w, s, r, room, job)
    for domain in range(len(room.since)):
        room.since[domain] = np.inf


@kernel(lean=True)
def next_begun(w, s, r, room):  # type: ignore[no-untyped-def]
    """Who would begin next where nobody is stopped for others, and at which place that is seen: -1, -1: nobody; a
    gang's place is -1. Nothing is done; whoever is passed over is not asked again at that time, as in one pass."""
    now = w.clock[c.NOW]
    _note_owners(w, r, room)
    for job in range(w.tally[c.ARRIVED]):
        if w.mark[job, c.STATUS] == c.WAITING or w.mark[job, c.STATUS] == c.RUNNING:
            room.key[job] = _key(w, s, r, room, job)
    waiting, kept, first, place = _rank(w, r, room.key, c.WAITING, room.order), 0, -1, -1
    if r.regions:
        _backlogs(w, s, room)
    for at in range(waiting):
        job = room.order[at]
        region = _region(w, s, room, job) if r.regions else -1
        if room.passed[job] < now:
            if w.mark[job, c.ELASTIC] == 0:
                if could_start(w, job):
                    first = job
                    break
            elif _free(w, -1) >= _needs(w, s, job):
                place, cost = _choose(w, s, r, room, job, region)
                if place >= 0 and not _is_patient(w, s, r, room, job, cost):
                    first = job
                    break
            room.passed[job] = now
        if kept < r.reserves:
            kept += _reserve(w, s, r, room, job)
    for domain in range(len(room.since)):
        room.since[domain] = np.inf
    return first, place


@kernel(lean=True)
def best_place(w, s, r, room, job):  # type: ignore[no-untyped-def]
    """Where an elastic job that waits would begin if it did, of the places that are seen; -1: nowhere."""
    place, _ = _choose(w, s, r, room, job, -1)
    return place


@kernel(lean=True)
def _enlarge(w, s, r, room, job, now):  # type: ignore[no-untyped-def]
    """Begin an elastic job by force at the size that costs it least, or half of it, or a quarter .., where that costs
    less by ``margin`` than what is free (``now``); False: nobody stops."""
    price, of_gpu, left = _price(w, s, r, room, job), _gpu_price(w, s, r, room, job), told_left(w, job, w.clock[c.NOW])
    most = w.mark[job, c.DEVICES]
    while most > 0:
        best, wish = (1.0 - r.margin) * now, 0
        for offer in range(len(s.total)):
            form, gpus = w.offers.form[offer], s.total[offer]
            if form[c.FORM_KIND] == w.mark[job, c.ROW] and form[c.FORM_PARTS] == 1 and gpus <= most:
                per_s = price - _relief(w, r, room, job, gpus) + of_gpu * gpus
                cost = per_s * (w.restart_s + left / w.offers.rate[offer, 0, 0]) + r.stop
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
    if room.running[0] < 0:
        room.running[0] = _rank(w, r, room.key, c.RUNNING, room.behind)
    running, domains = room.running[0], len(s.free)
    best, last = -2, -1
    for each in range(domains + 1):
        domain = each if each < domains else -1
        if domain < 0 and (best >= 0 or not _may_span(w, s, r, job)):
            break
        at, free, fits = running, _free(w, domain), False
        while not fits and at > 0 and _is_far_behind(w, s, r, room, job, room.behind[at - 1]):
            at -= 1
            held = _held(w, room.behind[at], domain)
            if held > 0:
                _lend(w, room.behind[at], 1)
                free += held
                fits = free >= needs and _has_place(w, s, r, room, job, needs)
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
    room.running[0] = -1
    _settle(w)
    began = begin_best(w, s, r, room, job, -1)
    for at in range(last, running):
        if w.mark[room.behind[at], c.STATUS] == c.WAITING:
            begin_best(w, s, r, room, room.behind[at], -1)
    return began


@kernel(lean=True)
def _may_span(w, s, r, job):  # type: ignore[no-untyped-def]
    """Whether room in several domains is any use to a job."""
    if w.mark[job, c.ELASTIC] == 0:
        return w.sets[w.mark[job, c.SHAPE], 0] >= 0
    return _most_parts(w, s, r, job) > 1


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
def _has_place(w, s, r, room, job, needs):  # type: ignore[no-untyped-def]
    """Whether a job that waits would go to a place of so many GPUs."""
    if w.mark[job, c.ELASTIC] == 0:
        return could_start(w, job)
    at, _ = _choose(w, s, r, room, job, -1)
    return at >= 0 and s.total[s.offer[at]] >= needs


# -------------------------------------------------------------------------------------------------- who waits for what
@kernel(lean=True)
def _count_leavers(w, room):  # type: ignore[no-untyped-def]
    """Write down who runs by when they are told to end; returns how many."""
    count, now = 0, w.clock[c.NOW]
    for job in range(w.tally[c.ARRIVED]):
        row = w.job[job]
        if w.mark[job, c.STATUS] != c.RUNNING or row[c.RATE] <= 0.0 or row[c.READY] == np.inf:
            continue
        ends = max(0.0, row[c.READY] - now) + told_left(w, job, now) / row[c.RATE]
        at = count
        while at > 0 and ends < room.leaves[at - 1]:
            room.leaver[at], room.leaves[at] = room.leaver[at - 1], room.leaves[at - 1]
            at -= 1
        room.leaver[at], room.leaves[at] = job, ends
        count += 1
    return count


@kernel(lean=True)
def _await(w, s, r, room, job, most):  # type: ignore[no-untyped-def]
    """What is told to become free in one domain and costs a job least, counted in devices: the domain, in how many
    seconds, and GPUs that it leaves over then; -1: nothing below ``most``. Domains that are kept for others do not
    count."""
    price, of_gpu, count = _price(w, s, r, room, job), _gpu_price(w, s, r, room, job), _count_leavers(w, room)
    best, wait, spare, cost = -1, 0.0, 0, most
    for domain in range(len(room.since)):
        if room.since[domain] < np.inf:
            continue
        free, before = _free(w, domain), 0
        s.chain[0] = domain
        for at in range(count):
            held = _held(w, room.leaver[at], domain)
            if held == 0:
                continue
            if price * room.leaves[at] >= cost:
                break
            free += held
            if w.mark[job, c.ELASTIC] == 0:
                if w.mark[job, c.DEVICES] <= free and price * room.leaves[at] < cost:
                    best, wait, spare = domain, room.leaves[at], free - w.mark[job, c.DEVICES]
                    cost = price * room.leaves[at]
                continue
            kind = w.mark[job, c.ROW]
            for number in range(s.kind_at[kind], s.kind_at[kind + 1]):
                offer = s.by_kind[number]
                gpus = s.total[offer]
                if w.offers.form[offer, c.FORM_PARTS] > 1 or not before < gpus <= free:  # the earlier the cheaper
                    continue
                if w.mark[job, c.LEAST] <= gpus <= w.mark[job, c.DEVICES]:
                    rate = w.offers.rate[offer, 0, 0]
                    per_s = price - _relief(w, r, room, job, gpus) + of_gpu * gpus
                    each = price * room.leaves[at] + _pays(w, r, job, offer, s.chain, rate, per_s)
                    if each < cost:
                        best, wait, spare, cost = domain, room.leaves[at], free - gpus, each
            before = free
    return best, wait, spare


@kernel(lean=True)
def _awaits(w, s, r, room, job, region):  # type: ignore[no-untyped-def]
    """Whether an elastic job that could begin waits for something better."""
    if r.patience == 1.0 or w.mark[job, c.ELASTIC] == 0 or _free(w, -1) < _needs(w, s, job):
        return False
    at, now = _choose(w, s, r, room, job, region)
    return at >= 0 and _is_patient(w, s, r, room, job, now)


@kernel(lean=True)
def _is_patient(w, s, r, room, job, now):  # type: ignore[no-untyped-def]
    """Whether an elastic job that could begin at that cost waits for what costs it less by ``patience``."""
    if r.patience == 1.0:
        return False
    domain, _, _ = _await(w, s, r, room, job, (1.0 - r.patience) * now)
    return domain >= 0


@kernel(lean=True)
def _reserve(w, s, r, room, job):  # type: ignore[no-untyped-def]
    """Keep for a job that waits the domain where it is going to begin; returns how many that are."""
    domain, wait, spare = _await(w, s, r, room, job, np.inf)
    if domain < 0:
        return 0
    room.since[domain], room.spare[domain] = w.clock[c.NOW] + wait, spare
    return 1


@kernel(lean=True)
def _replan(w, s, r, room, job):  # type: ignore[no-untyped-def]
    """Let a running job go over to a place that costs it less by ``margin``; one whose state is on its way stays."""
    row, mark, now = w.job[job], w.mark[job], w.clock[c.NOW]
    if mark[c.STATUS] != c.RUNNING or mark[c.ELASTIC] == 0 or row[c.READY] == np.inf or row[c.LEFT] <= 0.0:
        return False
    stays_s = max(0.0, row[c.READY] - now) + told_left(w, job, now) / max(1e-12, row[c.RATE])
    per_s = _price(w, s, r, room, job) - _relief(w, r, room, job, mark[c.HOLDS])
    stays = (per_s + _gpu_price(w, s, r, room, job) * mark[c.HOLDS]) * stays_s
    stays += _sends(w, r, job, mark[c.OFFER], w.part[job])
    at, cost = _choose(w, s, r, room, job, -1)
    if at < 0 or cost + r.stop >= (1.0 - r.margin) * stays:
        return False
    stop(w, job, False)
    _take(w, s, r, room, job, at)
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
