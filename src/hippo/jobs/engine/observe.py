"""What the agents see of a moment, written into arrays: domains, links, jobs; where one job could go; and in which
shapes, on which devices.

Letters: K domains, J jobs that are shown, Y sizes of blocks, P places of one job, V shapes of one place, M parts. The
names of the numbers mean what is assigned to them here.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.jobs.engine import world as c
from hippo.jobs.engine.elastic import has_room
from hippo.jobs.engine.flows import farther, hops, narrower, rate_of, sends_back
from hippo.jobs.engine.keys import attained, told_left, told_s
from hippo.jobs.engine.running import could_start, find_pool, find_set
from hippo.jobs.placement.offers import OfferTable
from hippo.jobs.site import JobSite
from hippo.jobs.workload import JobWorkload

DOMAIN_NUMBERS, LINK_NUMBERS, JOB_NUMBERS, PLACE_NUMBERS, SITE_NUMBERS = 14, 7, 26, 17, 13
SHAPE_NUMBERS, SHAPES = 18, 12
THERE = 10
"""Number of a domain that is 1: rows of domains that are not there are zero."""
FORECAST, MEMORY = (4, 5), (6,)
"""Numbers of a link: what is expected of it, and with what doubt; what it carried in the past."""
PAST, OF_USER = (11, 12, 13), (22, 23)
"""Numbers of a domain: how it was in the past; of a job: what jobs of its user did of what they were told to."""

ADVISED_JOB, ADVISED_NOBODY, ADVISED_PLACE = 24, 12, 16
"""Numbers of a job, the site and a place that are 1 where a rule would choose it, nobody, it: 0, until one is asked."""

LATELY_S = (3600.0, 6 * 3600.0)
"""What came within these is summed."""
SOON_S = (1800.0, 2 * 3600.0, 8 * 3600.0)
"""What is told to become free within these."""
PAST_S = 12 * 3600.0
"""What was is forgotten by a factor of e in so long."""
SAMPLE_S, AHEAD = 900.0, 8
"""Between two samples of a link, which tell how long it stays as it is; and how many samples are forecast."""
DWELL_S = 600.0
"""A job computes so long before it changes its place, but for one that is more urgent."""

Floats = NDArray[np.float32]

NOW, MEAN, SQUARE, SAMPLE, STEP = range(5)
LINK_PAST = 5
"""Of ``Sight.link_past``: how much a link carries (as its first number says), the mean and mean square of that in the
past, the last sample, and the mean square of the step between two samples."""


class Sight(NamedTuple):
    """What is seen, and room for work; one is used again and again."""

    site: Floats  # (SITE_NUMBERS,)
    domains: Floats  # (K, DOMAIN_NUMBERS)
    links: Floats  # (K, K, LINK_NUMBERS) from, to
    jobs: Floats  # (J, JOB_NUMBERS)
    places: Floats  # (P, PLACE_NUMBERS) of the job that was asked about
    shapes: Floats  # (V, SHAPE_NUMBERS) of the place that was asked about
    job: NDArray[np.int64]  # (J,) which job, -1: none
    may: NDArray[np.bool_]  # (J,) whether it could go somewhere, as far as one domain can tell
    offer: NDArray[np.int64]  # (P,) -1: stop; -2: a gang starts
    where: NDArray[np.int64]  # (P, M) domains, -1: no such part
    rate: NDArray[np.float64]  # (P,)
    shape: NDArray[np.int64]  # (V,) the offer
    order: NDArray[np.int64]  # (V,) in which nodes are filled, of ``ORDERS``
    size: NDArray[np.int64]  # (Y,) of blocks, ascending
    block: NDArray[np.int64]  # (O,) place of each offer's block among them
    total: NDArray[np.int64]  # (O,) GPUs of each offer
    by_kind: NDArray[np.int64]  # (O,) offers, those of one kind of training together
    kind_at: NDArray[np.int64]  # (Q + 1,) where those of each begin, and the end
    foot: NDArray[np.int64]  # (O,) number of each offer's footprint: GPUs of each part
    placed: NDArray[np.int64]  # (F, K) which place has a footprint from a domain on, -1: none
    of_user: NDArray[np.float64]  # (U, 2) shares of what they were told that jobs of a user did, summed; how many
    memory_left: NDArray[np.float64]  # (O,) share of a device's memory
    inside_comm: NDArray[np.float64]  # (O,) share of the step
    quickest: NDArray[np.float64]  # (n,) work per second of each job at best
    price: NDArray[np.float64]  # (n,) of a second of each job in the system
    free: NDArray[np.int64]  # (K, Y) free blocks
    mine: NDArray[np.int64]  # (K, Y) the same, what the job asked about holds counted as free
    left: NDArray[np.float64]  # (K, K) bytes/s that one more flow would have
    chain: NDArray[np.int64]  # (M,)
    room: NDArray[np.int64]  # (B,) nodes that have been counted
    stops: bool  # whether running jobs may be stopped, or change their place
    key: NDArray[np.float64]  # (J,) by which jobs are shown: urgency, of those that wait below 0
    egress_weight: float  # of egress in the preferences of who asks, 0 to 1; the rest is time's
    seen_at: NDArray[np.float64]  # (2,) when it was last looked, and when links were last sampled
    link_past: NDArray[np.float64]  # (K, K, 5) as of then: see ``_remember``
    domain_past: NDArray[np.float64]  # (K, 2, 3) as of then: broken, others', free; now and in the past

    @property
    def past(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """What is remembered of moments before, whatever jobs there were."""
        return self.seen_at, self.link_past, self.domain_past


def sight(
    workload: JobWorkload,
    site: JobSite,
    offers: OfferTable,
    *,
    jobs: int,
    places: int,
    price: NDArray[np.float64] | None = None,
    stops: bool = True,
    egress_weight: float = 0.0,
    past: tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]] | None = None,
) -> Sight:
    """Room for what is seen of a world: so many jobs, and so many places of one. ``price`` (n,): None: as
    ``OfferTable.prices`` has it; ``past``: shared with another sight of the same moments."""
    domains = len(site.domains)
    nothing = np.full(2, -np.inf), np.zeros((domains, domains, LINK_PAST)), np.zeros((domains, 2, len(PAST)))
    seen_at, link_past, domain_past = nothing if past is None else past
    size = np.unique(offers.block) if len(offers) else np.ones(1, np.int64)
    _, foot = np.unique(np.column_stack([offers.parts, offers.gpus]), axis=0, return_inverse=True)
    return Sight(
        site=np.zeros(SITE_NUMBERS, np.float32),
        domains=np.zeros((domains, DOMAIN_NUMBERS), np.float32),
        links=np.zeros((domains, domains, LINK_NUMBERS), np.float32),
        jobs=np.zeros((jobs, JOB_NUMBERS), np.float32),
        places=np.zeros((places, PLACE_NUMBERS), np.float32),
        shapes=np.zeros((SHAPES, SHAPE_NUMBERS), np.float32),
        job=np.full(jobs, -1, np.int64),
        may=np.zeros(jobs, np.bool_),
        offer=np.zeros(places, np.int64),
        where=np.full((places, c.MOST_PARTS), -1, np.int64),
        rate=np.zeros(places),
        shape=np.zeros(SHAPES, np.int64),
        order=np.zeros(SHAPES, np.int64),
        size=size,
        block=np.searchsorted(size, offers.block),
        total=offers.gpus.sum(axis=1),
        by_kind=np.argsort(offers.kind, kind="stable"),
        kind_at=np.searchsorted(np.sort(offers.kind), np.arange(len(offers.kinds) + 1)),
        foot=foot.reshape(-1),
        placed=np.full((int(foot.max(initial=0)) + 1, domains), -1),
        of_user=np.zeros((max(1, len(workload.users)), 2)),
        memory_left=offers.memory_left,
        inside_comm=offers.inside_comm,
        quickest=offers.quickest(workload),
        price=offers.prices(workload) if price is None else price,
        free=np.zeros((domains, len(size)), np.int64),
        mine=np.zeros((domains, len(size)), np.int64),
        left=np.zeros((domains, domains)),
        chain=np.zeros(c.MOST_PARTS, np.int64),
        room=np.zeros(sum(pool.nodes for pool in site.pools), np.int64),
        stops=stops,
        key=np.zeros(jobs),
        egress_weight=egress_weight,
        seen_at=seen_at,
        link_past=link_past,
        domain_past=domain_past,
    )


@kernel(lean=True)
def look(w, s):  # type: ignore[no-untyped-def]
    """Write down the site, domains, links and the jobs that are shown; returns how many jobs."""
    _blocks(w, s)
    _lefts(w, s, -1)
    _domains(w, s)
    _remember(w, s)
    count = _choose_jobs(w, s)
    _site(w, s)
    _users(w, s)
    for at in range(len(s.job)):
        if at < count:
            _job(w, s, at, count)
        else:
            s.job[at], s.may[at] = -1, False
            for number in range(JOB_NUMBERS):
                s.jobs[at, number] = 0.0
    return count


@kernel(lean=True)
def survey(w, s, job):  # type: ignore[no-untyped-def]
    """Find where any job could go now; returns how many places. Their numbers (``places``) are not written down."""
    _blocks(w, s)
    _lefts(w, s, -1)
    s.job[0] = job
    return _places(w, s, job, False)


@kernel(lean=True)
def _blocks(w, s):  # type: ignore[no-untyped-def]
    for domain in range(len(s.free)):
        for size in range(len(s.size)):
            s.free[domain, size] = 0
    for each in range(len(w.bin)):
        if w.bin[each, c.BIN_UP] == 1 and w.bin[each, c.BIN_FREE] > 0:
            domain = w.pool[w.bin[each, c.BIN_POOL], c.POOL_DOMAIN]
            for size in range(len(s.size)):
                s.free[domain, size] += w.bin[each, c.BIN_FREE] // s.size[size]


@kernel(lean=True)
def _lefts(w, s, job):  # type: ignore[no-untyped-def]
    """What one more flow would have of each link: see ``flows.level``. ``job``: whose flow, those that it has not
    counted; -1: of weight 1."""
    links, mine = w.links, 1.0 if job < 0 else w.job[job, c.WEIGHT]
    for here in range(len(s.left)):
        for there in range(len(s.left)):
            capacity, known = links.capacity[here, there], -1.0
            s.left[here, there] = capacity
            if here == there or capacity == np.inf or links.first[here, there] < 0:
                continue
            while True:
                rest, weight, flow = capacity, mine, links.first[here, there]
                while flow >= 0:
                    at = flow - len(links.transfer)
                    if at < 0 or links.spanning[at // (2 * w.part.shape[1])] != job:
                        if known >= 0.0 and links.demand[flow] <= known * links.weight[flow]:
                            rest -= links.demand[flow]
                        else:
                            weight += links.weight[flow]
                    flow = links.next[flow]
                if rest / weight <= known:
                    break
                known = rest / weight
            s.left[here, there] = known * mine


@kernel(lean=True)
def _domains(w, s):  # type: ignore[no-untyped-def]
    for domain in range(len(s.domains)):
        devices, free, tenants, broken = 0, 0, 0, 0
        for each in range(len(w.bin)):
            row = w.bin[each]
            if w.pool[row[c.BIN_POOL], c.POOL_DOMAIN] == domain:
                devices += row[c.BIN_SIZE]
                tenants += row[c.BIN_TENANTS]
                if row[c.BIN_UP] == 1:
                    free += row[c.BIN_FREE]
                else:
                    broken += row[c.BIN_SIZE]
        top = len(s.size) - 1
        numbers, scale = s.domains[domain], 1.0 / max(1, devices)
        numbers[0] = free * scale
        numbers[1] = s.free[domain, top] * s.size[top] * scale
        numbers[2] = tenants * scale
        numbers[3] = broken * scale
        numbers[4] = (devices - free - tenants - broken) * scale
        numbers[5] = np.log(1.0 + devices) / 8.0
        for number in range(6, 10):
            numbers[number] = 0.0
        numbers[THERE] = 1.0
    _soon_free(w, s)
    for here in range(len(s.links)):
        for there in range(len(s.links)):
            numbers, capacity = s.links[here, there], w.links.capacity[here, there]
            if here == there or capacity == np.inf:
                for number in range(LINK_NUMBERS):
                    numbers[number] = 0.0
                s.link_past[here, there, SAMPLE] = np.inf  # nothing to remember
                continue
            numbers[0] = np.log(1.0 + capacity / 1.25e8) / 4.0  # in Gbit/s
            numbers[1] = np.log(1.0 + s.left[here, there] / 1.25e8) / 4.0
            numbers[2] = w.links.latency[here, there] * 10.0
            numbers[3] = w.links.usd_per_byte[here, there] * 1e10
    for job in range(w.tally[c.ARRIVED]):  # where data of who waits lie
        if w.mark[job, c.STATUS] == c.WAITING and w.mark[job, c.HOME] >= 0:
            s.domains[w.mark[job, c.HOME], 6] += np.float32(0.1)


@kernel(lean=True)
def _remember(w, s):  # type: ignore[no-untyped-def]
    """Carry the past on to now, and write down what it says of domains and links.

    Means that forget exponentially, of what was seen from one look to the next: a linear recurrent memory whose weights
    on what is seen are fixed and whose readings are weighed by the networks. Of a link they tell a process that returns
    to its mean, x' = m + r (x - m) + noise (AR(1)): m and its variance v are those of the past, r = 1 - d / 2 v by the
    mean square d of steps between samples. Forecast is its mean over the next ``AHEAD`` samples, doubt its standard
    deviation by then.
    """
    now = w.clock[c.NOW]
    first = s.seen_at[0] == -np.inf
    keeps = 0.0 if first else np.exp((s.seen_at[0] - now) / PAST_S)
    samples = first or now - s.seen_at[1] >= SAMPLE_S
    kept = 0.0 if first else np.exp((s.seen_at[1] - now) / PAST_S)
    for domain in range(len(s.domains)):
        numbers, past = s.domains[domain], s.domain_past[domain]
        for number in range(3):
            at = 0 if number == 2 else 3 - number  # broken, others', free
            if first:
                past[0, number] = numbers[at]
                past[1, number] = numbers[at]
            past[1, number] = keeps * past[1, number] + (1.0 - keeps) * past[0, number]
            past[0, number] = numbers[at]
            numbers[11 + number] = past[1, number]
    for here in range(len(s.links)):
        for there in range(len(s.links)):
            numbers, past = s.links[here, there], s.link_past[here, there]
            if past[SAMPLE] == np.inf:
                continue
            now_carries = numbers[0]
            if first:
                past[NOW], past[MEAN], past[SAMPLE] = now_carries, now_carries, now_carries
                past[SQUARE] = now_carries * now_carries
            past[MEAN] = keeps * past[MEAN] + (1.0 - keeps) * past[NOW]
            past[SQUARE] = keeps * past[SQUARE] + (1.0 - keeps) * past[NOW] * past[NOW]
            past[NOW] = now_carries
            if samples and not first:
                step = now_carries - past[SAMPLE]
                past[STEP] = kept * past[STEP] + (1.0 - kept) * step * step
            if samples:
                past[SAMPLE] = now_carries
            varies = max(0.0, past[SQUARE] - past[MEAN] * past[MEAN])
            stays = 1.0
            if varies > 1e-9:
                stays = min(1.0, max(0.0, 1.0 - past[STEP] / (2.0 * varies)))
            share, power = 0.0, 1.0
            for _ in range(AHEAD):
                power *= stays
                share += power / AHEAD
            numbers[4] = past[MEAN] + (now_carries - past[MEAN]) * share
            numbers[5] = np.sqrt(varies * (1.0 - power * power))
            numbers[6] = past[MEAN]
    s.seen_at[0] = now
    if samples:
        s.seen_at[1] = now


@kernel(lean=True)
def _soon_free(w, s):  # type: ignore[no-untyped-def]
    """Shares of the domains that running jobs give back within each of ``SOON_S``, by what was told."""
    now = w.clock[c.NOW]
    for job in range(w.tally[c.ARRIVED]):
        if w.mark[job, c.STATUS] != c.RUNNING or w.job[job, c.RATE] <= 0.0:
            continue
        ends_s = max(0.0, w.job[job, c.READY] - now) + told_left(w, job, now) / w.job[job, c.RATE]
        if ends_s > SOON_S[2]:
            continue
        piece = w.mark[job, c.PIECE]
        while piece >= 0:
            pool = w.bin[w.piece[piece, c.PIECE_BIN], c.BIN_POOL]
            devices = float(w.pool[pool, c.POOL_DEVICES])
            for span in range(3):
                if ends_s <= SOON_S[span]:
                    s.domains[w.pool[pool, c.POOL_DOMAIN], 7 + span] += w.piece[piece, c.PIECE_DEVICES] / devices
            piece = w.piece[piece, c.PIECE_OF_JOB]


@kernel(lean=True)
def _choose_jobs(w, s):  # type: ignore[no-untyped-def]
    """Who is shown: who waits, by most price per GPU time left, then elastic jobs that compute, by least; a fourth of
    the places is kept for these."""
    count, most = 0, len(s.job) - len(s.job) // 4
    for job in range(w.tally[c.ARRIVED]):
        if w.mark[job, c.STATUS] == c.WAITING:
            count = _show(s, 0, count, most, job, -urgency(w, s, job))
    waiting = count
    for job in range(w.tally[c.ARRIVED]):
        computes = w.mark[job, c.STATUS] == c.RUNNING and w.job[job, c.READY] < w.clock[c.NOW]
        if computes and w.mark[job, c.ELASTIC] == 1:
            count = _show(s, waiting, count, len(s.job), job, urgency(w, s, job))
    return count


@kernel(lean=True)
def urgency(w, s, job):  # type: ignore[no-untyped-def]
    """Price per GPU hour that is left of a job at its quickest."""
    gpu_s = told_left(w, job, w.clock[c.NOW]) / max(1e-9, s.quickest[job]) * w.mark[job, c.DEVICES]
    return s.price[job] * 3600.0 / max(60.0, gpu_s)


@kernel(lean=True)
def _site(w, s):  # type: ignore[no-untyped-def]
    """How much there is, waits and runs in all, whoever is shown."""
    devices, waiting, running, due_s, price = 0.0, 0, 0, 0.0, 0.0
    for each in range(len(w.bin)):
        devices += w.bin[each, c.BIN_SIZE]
    for job in range(w.tally[c.ARRIVED]):
        status = w.mark[job, c.STATUS]
        if status == c.WAITING or status == c.RUNNING:
            waiting += status == c.WAITING
            running += status == c.RUNNING
            price += s.price[job]
            left_s = told_left(w, job, w.clock[c.NOW]) / max(1e-9, s.quickest[job])
            due_s += left_s * w.mark[job, c.DEVICES] / devices
    day = 2.0 * np.pi * w.clock[c.NOW] / 86400.0
    numbers = s.site
    numbers[0] = np.log(1.0 + waiting) / 4.0
    numbers[1] = np.log(1.0 + running) / 4.0
    numbers[2] = np.log(1.0 + price) / 4.0
    numbers[3] = np.log(1.0 + due_s) / 10.0
    numbers[4] = np.sin(day)
    numbers[5] = np.cos(day)
    numbers[6] = 1.0 if s.stops else 0.0
    for number in range(7, 11):
        numbers[number] = 0.0
    for job in range(w.tally[c.ARRIVED] - 1, -1, -1):  # what came lately, in an hour and in six
        ago_s = w.clock[c.NOW] - w.job[job, c.ARRIVAL]
        if ago_s > LATELY_S[1]:
            break
        gpu_h = told_s(w, job) / max(1e-9, s.quickest[job]) * w.mark[job, c.DEVICES] / 3600.0 / devices
        for span in range(2):
            if ago_s <= LATELY_S[span]:
                numbers[7 + span] += gpu_h
                numbers[9 + span] += s.price[job]
    for number in range(7, 11):
        numbers[number] = np.log(1.0 + numbers[number]) / 4.0
    numbers[11] = s.egress_weight
    numbers[ADVISED_NOBODY] = 0.0


@kernel(lean=True)
def _users(w, s):  # type: ignore[no-untyped-def]
    """What jobs of each user did of what they were told to: as if one of everybody had done it all."""
    for user in range(len(s.of_user)):
        s.of_user[user, 0], s.of_user[user, 1] = 1.0, 0.0
    for job in range(w.tally[c.ARRIVED]):
        if w.mark[job, c.STATUS] == c.DONE:
            of_user = s.of_user[w.mark[job, c.USER]]
            of_user[0] += w.job[job, c.DURATION] / told_s(w, job)
            of_user[1] += 1.0


@kernel(lean=True)
def _show(s, first, count, most, job, key):  # type: ignore[no-untyped-def]
    """Put a job among those from ``first`` on, by key; the last falls out where there is no room."""
    if count < most:
        count += 1
    elif count == first or s.key[count - 1] <= key:
        return count
    at = count - 1
    while at > first and s.key[at - 1] > key:
        s.key[at], s.job[at] = s.key[at - 1], s.job[at - 1]
        at -= 1
    s.key[at], s.job[at] = key, job
    return count


@kernel(lean=True)
def include_job(w, s, count, job):  # type: ignore[no-untyped-def]
    """See to it that a job that waits is among the ``count`` that are shown; where it is not, more wait than there is
    room for, and the last of them falls out. Returns at which place it stands."""
    last = -1
    for at in range(count):
        if s.job[at] == job:
            return at
        if w.mark[s.job[at], c.STATUS] == c.WAITING:
            last = at
    s.job[last], s.key[last] = job, -urgency(w, s, job)
    _job(w, s, last, count)
    return last


@kernel(lean=True)
def _job(w, s, at, shown):  # type: ignore[no-untyped-def]
    job, now, numbers = s.job[at], w.clock[c.NOW], s.jobs[at]
    row, mark = w.job[job], w.mark[job]
    runs, elastic = mark[c.STATUS] == c.RUNNING, mark[c.ELASTIC] == 1
    left = told_left(w, job, now)
    quick = max(1e-9, s.quickest[job])
    devices = 0.0
    for domain in range(len(s.free)):
        devices += s.free[domain, 0] * s.size[0]
    numbers[0] = 0.0 if runs else 1.0
    numbers[1] = 1.0 if elastic else 0.0
    numbers[2] = mark[c.PRIORITY] / 2.0
    numbers[3] = np.log(1.0 + left / quick) / 10.0
    numbers[4] = np.log(1.0 + now - row[c.ARRIVAL]) / 10.0
    numbers[5] = np.log(1.0 + attained(w, job, now) / quick) / 10.0
    numbers[6] = np.log(1.0 + (mark[c.LEAST] if elastic else mark[c.DEVICES])) / 6.0
    numbers[7] = np.log(1.0 + mark[c.DEVICES]) / 6.0
    numbers[8] = np.log(1.0 + mark[c.HOLDS]) / 6.0 if runs else 0.0
    numbers[9] = row[c.RATE] / quick if runs and elastic else 0.0
    numbers[10] = (
        min(1.0, mark[c.LEAST] / max(1.0, devices)) if elastic else min(1.0, mark[c.DEVICES] / max(1.0, devices))
    )
    has = row[c.DEADLINE] < np.inf
    numbers[11] = 1.0 if has else 0.0
    numbers[12] = min(2.0, max(-2.0, (row[c.DEADLINE] - now - left / quick) / (3600.0 + left / quick))) if has else 0.0
    numbers[13] = min(1.0, (mark[c.STOPS] + mark[c.FAILED]) / 5.0)
    numbers[14] = 1.0 if mark[c.COMING] > 0 else 0.0
    numbers[15] = 1.0 if mark[c.HOME] >= 0 and row[c.GB] > 0.0 else 0.0
    numbers[16] = np.log(1.0 + (now - row[c.BEGAN])) / 10.0 if runs else 0.0
    best = _best_rate(w, s, job) if elastic else 0.0
    numbers[17] = best / quick
    s.may[at] = _may(w, s, at, best)
    numbers[18] = min(2.0, best / row[c.RATE]) - 1.0 if runs and row[c.RATE] > 0.0 else 0.0
    numbers[19] = np.log(s.price[job] + 1e-3)
    numbers[20] = np.log(abs(s.key[at]) + 1e-4) / 4.0
    ahead = 0
    for other in range(shown):
        ahead += abs(s.key[other]) > abs(s.key[at])
    numbers[21] = ahead / shown
    did, ended = s.of_user[mark[c.USER], 0], s.of_user[mark[c.USER], 1]
    numbers[22] = did / (1.0 + ended)
    numbers[23] = np.log(1.0 + ended) / 4.0
    numbers[ADVISED_JOB] = 0.0
    numbers[25] = 1.0


@kernel(lean=True)
def _may(w, s, at, best):  # type: ignore[no-untyped-def]
    """Whether a job that is shown could go somewhere; ``best``: the quickest it could be inside one domain. One for
    which no domain alone has room may have a place over several, as long as the site has its least."""
    job = s.job[at]
    if w.mark[job, c.STATUS] == c.RUNNING:
        return free_to_change(w, s, at)
    if w.mark[job, c.ELASTIC] == 0:
        return could_start(w, job)
    free = 0
    for domain in range(len(s.free)):
        free += s.free[domain, 0] * s.size[0]
    return best > 0.0 or free >= w.mark[job, c.LEAST]


@kernel(lean=True)
def free_to_change(w, s, at):  # type: ignore[no-untyped-def]
    """Whether a running job that is shown may stop or change its place: for one that is more urgent, or where it has
    computed for ``DWELL_S``."""
    if not s.stops:
        return False
    return is_passed(w, s, at) or w.clock[c.NOW] - w.job[s.job[at], c.READY] >= DWELL_S


@kernel(lean=True)
def is_passed(w, s, at):  # type: ignore[no-untyped-def]
    """Whether somebody who waits is more urgent than a job that is shown."""
    return w.mark[s.job[0], c.STATUS] == c.WAITING and -s.key[0] > s.key[at]


@kernel(lean=True)
def _count_mine(w, s, job):  # type: ignore[no-untyped-def]
    """Free blocks if a job gave back what it holds."""
    for domain in range(len(s.free)):
        for size in range(len(s.size)):
            s.mine[domain, size] = s.free[domain, size]
    piece = w.mark[job, c.PIECE]
    while piece >= 0:
        each, devices = w.piece[piece, c.PIECE_BIN], w.piece[piece, c.PIECE_DEVICES]
        other = w.piece[piece, c.PIECE_OF_JOB]
        first = True
        before = w.mark[job, c.PIECE]
        while before != piece:  # pieces of one node are counted together, at the first of them
            if w.piece[before, c.PIECE_BIN] == each:
                first = False
            before = w.piece[before, c.PIECE_OF_JOB]
        if first and w.bin[each, c.BIN_UP] == 1:
            while other >= 0:
                if w.piece[other, c.PIECE_BIN] == each:
                    devices += w.piece[other, c.PIECE_DEVICES]
                other = w.piece[other, c.PIECE_OF_JOB]
            domain = w.pool[w.bin[each, c.BIN_POOL], c.POOL_DOMAIN]
            for size in range(len(s.size)):
                free = w.bin[each, c.BIN_FREE]
                s.mine[domain, size] += (free + devices) // s.size[size] - free // s.size[size]
        piece = w.piece[piece, c.PIECE_OF_JOB]


@kernel(lean=True)
def _fits(w, s, job, offer):  # type: ignore[no-untyped-def]
    """Whether an offer of a job's kind has a size that it may have."""
    return w.mark[job, c.LEAST] <= s.total[offer] <= w.mark[job, c.DEVICES]


@kernel(lean=True)
def _best_rate(w, s, job):  # type: ignore[no-untyped-def]
    """The quickest that a job could be inside one domain now."""
    _count_mine(w, s, job)
    best, kind = 0.0, w.mark[job, c.ROW]
    for number in range(s.kind_at[kind], s.kind_at[kind + 1]):
        offer = s.by_kind[number]
        if w.offers.form[offer, c.FORM_PARTS] > 1 or not _fits(w, s, job, offer):
            continue
        rate = w.offers.rate[offer, 0, 0]
        if rate <= best:
            continue
        need = w.offers.gpus[offer, 0] // w.offers.form[offer, c.FORM_BLOCK]
        for domain in range(len(s.mine)):
            if s.mine[domain, s.block[offer]] >= need:
                best = rate
                break
    return best


@kernel(lean=True)
def places(w, s, at):  # type: ignore[no-untyped-def]
    """Write down where a job that is shown could go; returns how many places.

    Who runs may stop (the first place) for one that is more urgent, and change its place for such a one or where it has
    computed for ``DWELL_S``. So whatever is answered, nobody goes round in circles. Its own place is among them: there
    it begins anew, in other nodes or another shape (compaction).
    """
    job = s.job[at]
    if w.mark[job, c.STATUS] == c.WAITING:
        return _written(w, s, job, _places(w, s, job, False))
    if not free_to_change(w, s, at):
        return 0
    count = _written(w, s, job, _places(w, s, job, True))
    if is_passed(w, s, at):
        return count
    count -= 1  # the last takes the place of the stop
    s.offer[0], s.rate[0] = s.offer[count], s.rate[count]
    for part in range(c.MOST_PARTS):
        s.where[0, part] = s.where[count, part]
    for number in range(PLACE_NUMBERS):
        s.places[0, number] = s.places[count, number]
    return count


@kernel(lean=True)
def _written(w, s, job, count):  # type: ignore[no-untyped-def]
    """Write down the numbers of an elastic job's places; returns how many."""
    top = 1e-12
    for number in range(count):
        top = max(top, s.rate[number])
    for number in range(count if w.mark[job, c.ELASTIC] == 1 else 0):
        _place(w, s, job, number, top)
    return count


@kernel(lean=True)
def _places(w, s, job, anew):  # type: ignore[no-untyped-def]
    """Find where any job could go; a running one may stop (the first place), and, ``anew``, begin anew where it
    is."""
    count = 0
    if w.mark[job, c.ELASTIC] == 0:
        if w.mark[job, c.STATUS] == c.WAITING and could_start(w, job):
            pool, domain, rate = find_pool(w, job), 0, 0.0
            if pool >= 0:
                domain, rate = w.pool[pool, c.POOL_DOMAIN], w.speed[pool]
            else:
                domains, _ = find_set(w, job)
                rate = 1.0 / w.factor[w.mark[job, c.ROW], domains]
                while domains >> domain & 1 == 0:
                    domain += 1
            count = _add(w, s, job, 0, -2, rate, 1)
            s.where[0, 0] = domain
        return count
    _count_mine(w, s, job)
    own = w.mark[job, c.EXCHANGES] > 0 or w.job[job, c.WEIGHT] != 1.0
    if own:
        _lefts(w, s, job)
    if w.mark[job, c.STATUS] == c.RUNNING:
        count = _add(w, s, job, 0, -1, 0.0, 0)
    for foot in range(len(s.placed)):
        for domain in range(len(s.mine)):
            s.placed[foot, domain] = -1
    kind = w.mark[job, c.ROW]
    for number in range(s.kind_at[kind], s.kind_at[kind + 1]):
        offer = s.by_kind[number]
        if not _fits(w, s, job, offer):
            continue
        need = w.offers.gpus[offer, 0] // w.offers.form[offer, c.FORM_BLOCK]
        for domain in range(len(s.mine)):
            if s.mine[domain, s.block[offer]] < need:
                continue
            if w.offers.form[offer, c.FORM_PARTS] == 1:
                s.chain[0] = domain
                count = _offer(w, s, job, count, offer, w.offers.rate[offer, 0, 0], anew)
            elif _grow(w, s, offer, domain):
                rate = _rate_in_chain(w, s, offer)
                if rate > 0.0:
                    count = _offer(w, s, job, count, offer, rate, anew)
    if own:
        _lefts(w, s, -1)
    return count


@kernel(lean=True)
def _rate_in_chain(w, s, offer):  # type: ignore[no-untyped-def]
    """Work per second of an offer in the domains of ``chain``, by what one more flow would have of their links; 0: one
    carries nothing."""
    least, slowest = np.inf, 0.0
    for hop in range(hops(w.offers, offer)):
        here, there = s.chain[hop], s.chain[(hop + 1) % w.offers.form[offer, c.FORM_PARTS]]
        least = narrower(w, offer, s.left, here, there, least)
        slowest = farther(w, offer, here, there, slowest)
    return rate_of(w.offers, offer, least, slowest) if least > 0.0 else 0.0


@kernel(lean=True)
def _grow(w, s, offer, first):  # type: ignore[no-untyped-def]
    """A chain of domains from ``first`` on, each the one with room that most can be sent to."""
    s.chain[0] = first
    block = w.offers.form[offer, c.FORM_BLOCK]
    for part in range(1, w.offers.form[offer, c.FORM_PARTS]):
        best, most, here, need = -1, 0.0, s.chain[part - 1], w.offers.gpus[offer, part] // block
        for domain in range(len(s.mine)):
            carries = min(s.left[here, domain], s.left[domain, here])
            if carries <= most or s.mine[domain, s.block[offer]] < need:
                continue
            used = False
            for before in range(part):
                used = used or s.chain[before] == domain
            if not used:
                best, most = domain, carries
        if best < 0:
            return False
        s.chain[part] = best
    return True


@kernel(lean=True)
def _offer(w, s, job, count, offer, rate, anew):  # type: ignore[no-untyped-def]
    """Note an offer in the domains of ``chain``, beside those of other footprints; of one footprint (GPUs of each part,
    first domain) the quickest stays. Where there is no room the slowest falls out."""
    parts = w.offers.form[offer, c.FORM_PARTS]
    running = w.mark[job, c.STATUS] == c.RUNNING
    if running and not anew and w.mark[job, c.OFFER] == offer:
        same = True
        for part in range(parts):
            same = same and w.part[job, part] == s.chain[part]
        if same:
            return count
    at = s.placed[s.foot[offer], s.chain[0]]
    if (at >= 0 and s.rate[at] >= rate) or not has_room(w, job, offer, s.chain):
        return count
    if at < 0:
        if count < len(s.offer):
            at = count
            count += 1
        else:
            at = _slowest(s, count)
            if s.rate[at] >= rate:
                return count
            s.placed[s.foot[s.offer[at]], s.where[at, 0]] = -1
        s.placed[s.foot[offer], s.chain[0]] = at
    return max(count, _add(w, s, job, at, offer, rate, parts))


@kernel(lean=True)
def _slowest(s, count):  # type: ignore[no-untyped-def]
    """Of ``count`` places the slowest one where a job runs."""
    slowest = -1
    for at in range(count):
        if s.offer[at] >= 0 and (slowest < 0 or s.rate[at] < s.rate[slowest]):
            slowest = at
    return slowest


@kernel(lean=True)
def _add(w, s, job, at, offer, rate, parts):  # type: ignore[no-untyped-def]
    s.offer[at], s.rate[at] = offer, rate
    for part in range(c.MOST_PARTS):
        s.where[at, part] = s.chain[part] if part < parts else -1
    return at + 1


@kernel(lean=True)
def include(w, s, slot, count, offer, rate, where):  # type: ignore[no-untyped-def]
    """See to it that an offer in domains (M,) is among the ``count`` places of a job that waits; where there is no room
    the slowest falls out. Returns at which place it stands, and how many there are."""
    slowest, top = -1, rate
    for at in range(count):
        same = s.offer[at] == offer
        for part in range(c.MOST_PARTS):
            same = same and s.where[at, part] == where[part]
        if same:
            return at, count
        top = max(top, s.rate[at])
        if slowest < 0 or s.rate[at] < s.rate[slowest]:
            slowest = at
    at = count if count < len(s.offer) else slowest
    for part in range(c.MOST_PARTS):
        s.chain[part] = where[part]
    job = s.job[slot]
    count = max(count, _add(w, s, job, at, offer, rate, w.offers.form[offer, c.FORM_PARTS]))
    _place(w, s, job, at, top)
    return at, count


@kernel(lean=True)
def _place(w, s, job, at, top):  # type: ignore[no-untyped-def]
    offer, numbers, mark = s.offer[at], s.places[at], w.mark[job]
    for number in range(PLACE_NUMBERS):
        numbers[number] = 0.0
    numbers[15] = 1.0
    if offer == -1:
        numbers[0] = 1.0
        return
    quick, runs = max(1e-9, s.quickest[job]), mark[c.STATUS] == c.RUNNING
    if offer == -2:
        numbers[1], numbers[2] = 1.0, 1.0
        return
    parts, block = w.offers.form[offer, c.FORM_PARTS], w.offers.form[offer, c.FORM_BLOCK]
    left = told_left(w, job, w.clock[c.NOW])
    numbers[1] = s.rate[at] / quick
    numbers[2] = s.total[offer] / max(1.0, float(mark[c.DEVICES]))
    numbers[3] = np.log(1.0 + s.total[offer]) / 6.0
    numbers[4] = s.rate[at] * w.mark[job, c.DEVICES] / (quick * s.total[offer]) / 2.0  # work per GPU
    numbers[5] = (parts - 1) / 3.0
    numbers[6] = block / s.size[len(s.size) - 1]
    wasted, home = 0.0, mark[c.HOME]
    for part in range(parts):
        after = s.mine[s.where[at, part], s.block[offer]] * block - w.offers.gpus[offer, part]
        wasted += min(1.0, after / 64.0)
        if home >= 0 and home != s.where[at, part]:
            numbers[8] = 1.0
    numbers[7] = wasted / parts
    state = mark[c.STATE_AT] if not runs else w.part[job, 0]
    stop = w.restart_s if state >= 0 else 0.0
    for part in range(parts):
        if state >= 0 and s.where[at, part] != state:
            size = w.offers.state_share[offer, part] * w.offers.state_bytes[mark[c.ROW]]
            stop = max(stop, size / max(1.0, w.links.capacity[state, s.where[at, part]]))
    ends = stop + left / max(1e-12, s.rate[at])
    numbers[9] = np.log(1.0 + stop) / 8.0
    numbers[10] = np.log(1.0 + ends) / 10.0
    if runs and w.job[job, c.RATE] > 0.0:
        stays = left / w.job[job, c.RATE]
        numbers[11] = min(1.0, max(-1.0, (stays - ends) / (stays + ends + 1.0) * 2.0))
    numbers[12] = 1.0 if runs else 0.0
    numbers[13] = s.rate[at] / top
    numbers[14] = np.log(1.0 + exchange_usd(w, offer, s.where[at]) * s.rate[at] * 3600.0) / 5.0


@kernel(lean=True)
def exchange_usd(w, offer, where):  # type: ignore[no-untyped-def]
    """Egress per unit of work between domains (M,)."""
    usd, parts = 0.0, w.offers.form[offer, c.FORM_PARTS]
    for hop in range(hops(w.offers, offer)):
        here, there = where[hop], where[(hop + 1) % parts]
        usd += w.links.usd_per_byte[here, there]
        if sends_back(w.offers, offer):
            usd += w.links.usd_per_byte[there, here]
    return usd * w.offers.hop_bytes[offer]


FULLEST, CALMEST = range(2)
"""Orders in which nodes are filled: the fullest first; or those first that failed least and that others use least."""
ORDERS = 2


@kernel(lean=True)
def shapes(w, s, at, place):  # type: ignore[no-untyped-def]
    """Write down the shapes and orders of devices in which a place can be taken (GPUs of each part and domains stay);
    returns how many. The quickest shape comes first, its nodes by the fullest."""
    job, taken, count = s.job[at], s.offer[place], 0
    if taken < 0:
        return 0
    parts = w.offers.form[taken, c.FORM_PARTS]
    for part in range(c.MOST_PARTS):
        s.chain[part] = s.where[place, part]
    for turn in range(len(s.total) + 1):
        offer = taken if turn == 0 else turn - 1
        if (turn > 0 and offer == taken) or w.offers.form[offer, c.FORM_KIND] != w.offers.form[taken, c.FORM_KIND]:
            continue
        alike = w.offers.form[offer, c.FORM_PARTS] == parts
        for part in range(c.MOST_PARTS):
            alike = alike and w.offers.gpus[offer, part] == w.offers.gpus[taken, part]
        if not alike or count + ORDERS > len(s.shape) or (turn > 0 and not has_room(w, job, offer, s.chain)):
            continue
        for order in range(ORDERS):
            s.shape[count], s.order[count] = offer, order
            _shape(w, s, job, count, offer, taken)
            count += 1
    return count


@kernel(lean=True)
def _shape(w, s, job, at, offer, taken):  # type: ignore[no-untyped-def]
    """What the lower agent sees of one answer, and of the domain of the first part."""
    numbers, block, domain = s.shapes[at], w.offers.form[offer, c.FORM_BLOCK], s.chain[0]
    biggest = s.size[len(s.size) - 1]
    numbers[0] = _rate_in_chain(w, s, offer) / max(1e-12, _rate_in_chain(w, s, taken))
    numbers[1] = block / biggest
    numbers[2] = w.offers.gpus[offer, 0] / 64.0
    numbers[3] = (w.offers.form[offer, c.FORM_PARTS] - 1) / 3.0
    numbers[4] = s.memory_left[offer]
    numbers[5] = s.inside_comm[offer]
    numbers[6] = 1.0 if s.order[at] == CALMEST else 0.0
    for number in range(7, SHAPE_NUMBERS):
        numbers[number] = 0.0
    numbers[17] = 1.0
    rank_nodes(w, domain, s.order[at])
    left, need, devices = w.offers.gpus[offer, 0], s.size[len(s.size) - 1], 0
    for each in range(len(w.bin)):
        row = w.bin[each]
        if w.pool[row[c.BIN_POOL], c.POOL_DOMAIN] == domain:
            devices += row[c.BIN_SIZE]
    scale = 1.0 / max(1, devices)
    # what each node would keep free, nodes in the order in which they are filled
    for each in range(len(s.room)):
        s.room[each] = 0
    while True:
        chosen = -1
        for each in range(len(w.bin)):
            row = w.bin[each]
            if w.pool[row[c.BIN_POOL], c.POOL_DOMAIN] != domain or row[c.BIN_UP] == 0 or s.room[each] == 1:
                continue
            if chosen < 0:
                chosen = each
                continue
            best = w.bin[chosen]
            fuller = row[c.BIN_RANK] == best[c.BIN_RANK] and row[c.BIN_FREE] < best[c.BIN_FREE]
            if row[c.BIN_RANK] < best[c.BIN_RANK] or fuller:
                chosen = each
        if chosen < 0:
            break
        s.room[chosen] = 1
        row = w.bin[chosen]
        takes = min(left, row[c.BIN_FREE] // block * block)
        left -= takes
        stays = row[c.BIN_FREE] - takes
        numbers[7] += takes * scale
        numbers[8] += (stays // need * need) * scale  # free in whole nodes
        numbers[9] += stays * scale
        if takes > 0:
            numbers[10] += min(3, row[c.BIN_FAILURES]) * takes / w.offers.gpus[offer, 0] / 3.0
            numbers[11] += row[c.BIN_TENANTS] / max(1, row[c.BIN_SIZE]) * takes / w.offers.gpus[offer, 0]
        if 0 < stays < need:
            numbers[12] += stays * scale
    rank_nodes(w, domain, FULLEST)
    runs = max(1e-9, s.quickest[job])
    numbers[13] = np.log(1.0 + told_left(w, job, w.clock[c.NOW]) / runs) / 10.0
    for other in range(w.tally[c.ARRIVED]):  # the queue: devices that who waits needs at least
        if w.mark[other, c.STATUS] == c.WAITING and other != job:
            least = w.mark[other, c.LEAST] if w.mark[other, c.ELASTIC] == 1 else w.mark[other, c.DEVICES]
            numbers[14 if least < need else (15 if least == need else 16)] += np.float32(0.1)


@kernel(lean=True)
def rank_nodes(w, domain, order):  # type: ignore[no-untyped-def]
    """Set the order in which a domain's nodes are filled."""
    for each in range(len(w.bin)):
        row = w.bin[each]
        if w.pool[row[c.BIN_POOL], c.POOL_DOMAIN] == domain:
            row[c.BIN_RANK] = 0 if order == FULLEST else min(3, row[c.BIN_FAILURES]) * 100 + row[c.BIN_TENANTS]
