"""What flows over links: transfers of data and state, and what jobs over several domains exchange.

Links are shared max-min: who wants less than its level of a link has what it wants, the others share the rest by their
weights (Bertsekas and Gallager, Data Networks, 1992, 6.5.2). Transfers take what they get. The exchange of a job comes
in bursts, so a job has of a link what it would have if it took all it could get, while the others take what they need.

A move in the background streams the state of a job that goes on computing, over what all others leave of the links
(as LEDBAT does, RFC 6817). What has come is kept in step by every optimizer step's gradients, which go the same way;
once all is there, the job stops for the last gradients and its restart (pre-copy: Clark et al., Live Migration of
Virtual Machines, NSDI 2005; the terms of ``network.rules.move``, without its steps in time). Of a stream of S bytes
that lacks x, changes by g bytes/s and has b bytes/s of the link, dx/dt = g (1 - x / S) - b, where what is out of step
is sent again.
"""

from __future__ import annotations

import numpy as np

from hippo.compiling import kernel
from hippo.jobs.engine import world as c
from hippo.jobs.engine.heaps import set_due


# ------------------------------------------------------------------------------------------------------------ transfers
@kernel(lean=True)
def send(w, job, source, destination, what, size):  # type: ignore[no-untyped-def]
    """Begin a transfer of ``size`` bytes."""
    links = w.links
    new = links.tally[c.NEXT_FREE]
    if new < 0:
        links.tally[c.TOO_MANY] = 1
        return
    row = links.transfer[new]
    links.tally[c.NEXT_FREE] = row[c.SENT_FOR]
    row[c.SENT_FOR], row[c.SENT_FROM], row[c.SENT_TO], row[c.SENT_WHAT] = job, source, destination, what
    row[c.SENT_PHASE], row[c.SENT_PLACE] = c.SENDING, links.tally[c.TRANSFERS]
    links.active[links.tally[c.TRANSFERS]] = new
    links.tally[c.TRANSFERS] += 1
    links.bytes[new, c.BYTES_LEFT], links.bytes[new, c.BYTES_RATE] = size, 0.0
    links.bytes[new, c.BYTES_AS_OF] = w.clock[c.NOW]
    links.bytes[new, c.BYTES_WHOLE], links.bytes[new, c.BYTES_CHANGING] = size, 0.0
    links.tally[c.UNSHARED] = 1
    if what == c.STREAM:  # counted as it is sent
        links.tally[c.STREAMS] += 1
        return
    links.moved_gb[source, destination] += size * 1e-9
    w.job[job, c.MOVED] += size * 1e-9


@kernel(lean=True)
def transfer_is_due(w, transfer, now):  # type: ignore[no-untyped-def]
    """The last byte has been sent, or is there: then True."""
    row = w.links.transfer[transfer]
    latency = w.links.latency[row[c.SENT_FROM], row[c.SENT_TO]]
    if row[c.SENT_PHASE] == c.SENDING:
        w.links.tally[c.UNSHARED] = 1
        if latency > 0.0:
            row[c.SENT_PHASE] = c.FLYING
            set_due(w.heap, w.due, w.place, w.tally[c.HEAP : c.HEAP + 1], _item(w, transfer), now + latency)
            return False
    return True


@kernel(lean=True)
def drop(w, transfer):  # type: ignore[no-untyped-def]
    """A transfer is over, or given up."""
    links = w.links
    row = links.transfer[transfer]
    last = links.active[links.tally[c.TRANSFERS] - 1]
    links.active[row[c.SENT_PLACE]] = last
    links.transfer[last, c.SENT_PLACE] = row[c.SENT_PLACE]
    links.tally[c.TRANSFERS] -= 1
    set_due(w.heap, w.due, w.place, w.tally[c.HEAP : c.HEAP + 1], _item(w, transfer), np.inf)
    if row[c.SENT_WHAT] == c.STREAM:
        links.tally[c.STREAMS] -= 1
    row[c.SENT_PHASE], row[c.SENT_FOR] = c.FREE, links.tally[c.NEXT_FREE]
    links.tally[c.NEXT_FREE] = transfer
    links.tally[c.UNSHARED] = 1


@kernel(lean=True)
def give_up_state(w, job):  # type: ignore[no-untyped-def]
    """A job stops before its state has come: what is left is not sent."""
    links, at = w.links, 0
    while at < links.tally[c.TRANSFERS] and w.mark[job, c.COMING] > 0:
        transfer = links.active[at]
        row = links.transfer[transfer]
        if row[c.SENT_FOR] == job and row[c.SENT_WHAT] == c.STATE:
            since = w.clock[c.NOW] - links.bytes[transfer, c.BYTES_AS_OF]
            sent = links.bytes[transfer, c.BYTES_RATE] * since if row[c.SENT_PHASE] == c.SENDING else np.inf
            left = max(0.0, links.bytes[transfer, c.BYTES_LEFT] - sent) * 1e-9
            links.moved_gb[row[c.SENT_FROM], row[c.SENT_TO]] -= left
            w.job[job, c.MOVED] -= left
            w.mark[job, c.COMING] -= 1
            drop(w, transfer)
        else:
            at += 1


@kernel(lean=True)
def network_moves(w, now):  # type: ignore[no-untyped-def]
    """Links go over to the next state of the network."""
    links, last = w.links, len(w.links.time_s) - 1
    while links.tally[c.STATE_NOW] < last and links.time_s[links.tally[c.STATE_NOW] + 1] <= now:
        links.tally[c.STATE_NOW] += 1
    carries = links.history[links.tally[c.STATE_NOW]]
    latency = links.latency_history[min(links.tally[c.STATE_NOW], len(links.latency_history) - 1)]
    for here in range(len(links.capacity)):
        for there in range(len(links.capacity)):
            links.capacity[here, there], links.latency[here, there] = carries[here, there], latency[here, there]
    links.tally[c.UNSHARED] = 1
    due = links.time_s[links.tally[c.STATE_NOW] + 1] if links.tally[c.STATE_NOW] < last else np.inf
    item = len(w.job) + len(w.bin) + c.NETWORK
    set_due(w.heap, w.due, w.place, w.tally[c.HEAP : c.HEAP + 1], item, due)


@kernel(lean=True)
def _item(w, transfer):  # type: ignore[no-untyped-def]
    return len(w.job) + len(w.bin) + c.FIRST_TRANSFER + transfer


# -------------------------------------------------------------------------------------------------------- who exchanges
@kernel(lean=True)
def begin_exchange(w, job):  # type: ignore[no-untyped-def]
    """A job under an offer over several domains computes from now on, until its work is done or it stops."""
    if w.mark[job, c.EXCHANGES] == 0 and w.offers.form[w.mark[job, c.OFFER], c.FORM_PARTS] > 1:
        w.links.spanning[w.links.tally[c.SPANNING]] = job
        w.links.tally[c.SPANNING] += 1
        w.mark[job, c.EXCHANGES] = w.links.tally[c.SPANNING]
        w.links.tally[c.UNSHARED] = 1


@kernel(lean=True)
def end_exchange(w, job):  # type: ignore[no-untyped-def]
    """Such a job stops or ends."""
    at = w.mark[job, c.EXCHANGES] - 1
    if at >= 0:
        last = w.links.spanning[w.links.tally[c.SPANNING] - 1]
        w.links.spanning[at] = last
        w.mark[last, c.EXCHANGES] = at + 1
        w.mark[job, c.EXCHANGES] = 0
        w.links.tally[c.SPANNING] -= 1
        w.links.tally[c.UNSHARED] = 1


@kernel(lean=True)
def hops(offers, offer):  # type: ignore[no-untyped-def]
    """Pairs of parts that exchange: neighbours in a chain, and in a ring of three or more the last and the first."""
    parts = offers.form[offer, c.FORM_PARTS]
    return parts if offers.form[offer, c.FORM_RING] > 0 and parts > 2 else parts - 1


@kernel(lean=True)
def sends_back(offers, offer):  # type: ignore[no-untyped-def]
    """Whether as much goes over a hop the other way; not in a ring of replicas."""
    return offers.form[offer, c.FORM_RING] != c.ONE_WAY


@kernel(lean=True)
def narrower(w, offer, bandwidth, here, there, least):  # type: ignore[no-untyped-def]
    """The least bandwidth (K, K) of the hops so far and of this one."""
    least = min(least, bandwidth[here, there])
    return min(least, bandwidth[there, here]) if sends_back(w.offers, offer) else least


@kernel(lean=True)
def farther(w, offer, here, there, slowest):  # type: ignore[no-untyped-def]
    """The same for latencies."""
    slowest = max(slowest, w.links.latency[here, there])
    return max(slowest, w.links.latency[there, here]) if sends_back(w.offers, offer) else slowest


@kernel(lean=True)
def rate_alone(w, offer, domains):  # type: ignore[no-untyped-def]
    """Work per second with all of its links for itself; as its flows are counted, ``share`` finds its part."""
    least, slowest = np.inf, 0.0
    for hop in range(hops(w.offers, offer)):
        here, there = domains[hop], domains[(hop + 1) % w.offers.form[offer, c.FORM_PARTS]]
        least = narrower(w, offer, w.links.capacity, here, there, least)
        slowest = farther(w, offer, here, there, slowest)
    return rate_of(w.offers, offer, least, slowest)


@kernel(lean=True)
def carries(w, job, domains):  # type: ignore[no-untyped-def]
    """Whether links carry now what a gang over a set of domains exchanges."""
    offer = w.exchange[w.mark[job, c.ROW], domains]
    return offer < 0 or rate_alone(w, offer, w.route[offer - len(w.offers.form) + len(w.route)]) > 0.0


# -------------------------------------------------------------------------------------------------------------- shares
@kernel(lean=True)
def share(w):  # type: ignore[no-untyped-def]
    """Find what each flow has of its links, and with it how quick jobs and transfers are from now on."""
    links, offers = w.links, w.offers
    links.tally[c.UNSHARED] = 0
    transfers, spanning = links.tally[c.TRANSFERS], links.tally[c.SPANNING]
    _list_flows(w)
    for at in range(transfers):
        transfer = links.active[at]
        row = links.transfer[transfer]
        if row[c.SENT_PHASE] == c.SENDING and row[c.SENT_WHAT] != c.STREAM:
            _carry(w, transfer, level(links, links.first, links.capacity, row[c.SENT_FROM], row[c.SENT_TO], transfer))
    for at in range(spanning):
        job = links.spanning[at]
        offer, least, slowest = w.mark[job, c.OFFER], np.inf, 0.0
        for hop in range(hops(offers, offer)):
            here, there = w.part[job, hop], w.part[job, (hop + 1) % offers.form[offer, c.FORM_PARTS]]
            flow = _flow(w, at, hop)
            least = min(least, level(links, links.first, links.capacity, here, there, flow))
            slowest = farther(w, offer, here, there, slowest)
            if sends_back(offers, offer):
                least = min(least, level(links, links.first, links.capacity, there, here, flow + 1))
        set_rate(w, job, rate_of(offers, offer, least, slowest))
    if links.tally[c.STREAMS] > 0:
        _share_rest(w)


@kernel(lean=True)
def _flow(w, at, hop):  # type: ignore[no-untyped-def]
    return len(w.links.transfer) + 2 * (at * w.part.shape[1] + hop)


@kernel(lean=True)
def _list_flows(w):  # type: ignore[no-untyped-def]
    """Write down the flows of each link, and what each would take were it alone."""
    links, offers = w.links, w.offers
    for here in range(len(links.first)):
        for there in range(len(links.first)):
            links.first[here, there] = -1
    for at in range(links.tally[c.TRANSFERS]):
        transfer = links.active[at]
        row = links.transfer[transfer]
        if row[c.SENT_PHASE] == c.SENDING and row[c.SENT_WHAT] != c.STREAM:
            _list(links, links.first, transfer, row[c.SENT_FROM], row[c.SENT_TO], np.inf, 1.0)
    for at in range(links.tally[c.SPANNING]):
        job = links.spanning[at]
        offer, least, slowest = w.mark[job, c.OFFER], np.inf, 0.0
        parts = offers.form[offer, c.FORM_PARTS]
        for hop in range(hops(offers, offer)):
            here, there = w.part[job, hop], w.part[job, (hop + 1) % parts]
            least = narrower(w, offer, links.capacity, here, there, least)
            slowest = farther(w, offer, here, there, slowest)
        wanted = offers.hop_bytes[offer] * rate_of(offers, offer, least, slowest)
        for hop in range(hops(offers, offer)):
            here, there, flow = w.part[job, hop], w.part[job, (hop + 1) % parts], _flow(w, at, hop)
            _list(links, links.first, flow, here, there, wanted, w.job[job, c.WEIGHT])
            if sends_back(offers, offer):
                _list(links, links.first, flow + 1, there, here, wanted, w.job[job, c.WEIGHT])


@kernel(lean=True)
def _list(links, first, flow, source, destination, demand, weight):  # type: ignore[no-untyped-def]
    links.demand[flow], links.weight[flow] = demand, weight
    links.next[flow] = first[source, destination]
    first[source, destination] = flow


@kernel(lean=True)
def level(links, first, capacity, source, destination, mine):  # type: ignore[no-untyped-def]
    """Bytes/s that a flow has of a link if it takes all it can get and the others what they want, at most their
    level."""
    rest, weight, known = capacity[source, destination], 0.0, -1.0
    if rest == np.inf:
        return rest
    flow = first[source, destination]
    while flow >= 0:
        weight += links.weight[flow]
        flow = links.next[flow]
    while True:  # the level per weight rises as those who want less than it are served
        each = rest / weight
        if each <= known:
            return known * links.weight[mine]
        known, rest, weight = each, capacity[source, destination], 0.0
        flow = first[source, destination]
        while flow >= 0:
            if flow != mine and links.demand[flow] <= known * links.weight[flow]:
                rest -= links.demand[flow]
            else:
                weight += links.weight[flow]
            flow = links.next[flow]


@kernel(lean=True)
def _carry(w, transfer, rate):  # type: ignore[no-untyped-def]
    """A transfer goes on at another rate."""
    row, now = w.links.bytes[transfer], w.clock[c.NOW]
    if rate == row[c.BYTES_RATE]:
        return
    if now > row[c.BYTES_AS_OF]:
        row[c.BYTES_LEFT] = max(0.0, row[c.BYTES_LEFT] - row[c.BYTES_RATE] * (now - row[c.BYTES_AS_OF]))
    row[c.BYTES_RATE], row[c.BYTES_AS_OF] = rate, now
    due = now + row[c.BYTES_LEFT] / rate if rate > 0.0 else np.inf
    set_due(w.heap, w.due, w.place, w.tally[c.HEAP : c.HEAP + 1], _item(w, transfer), due)


@kernel(lean=True)
def _share_rest(w):  # type: ignore[no-untyped-def]
    """Streams share what exchanges and other transfers leave of each link; one in step needs its gradients only."""
    links, offers = w.links, w.offers
    for here in range(len(links.spare)):
        for there in range(len(links.spare)):
            links.spare[here, there], links.behind[here, there] = links.capacity[here, there], -1
    for at in range(links.tally[c.TRANSFERS]):
        transfer = links.active[at]
        row, sent = links.transfer[transfer], links.bytes[transfer]
        if row[c.SENT_WHAT] == c.STREAM:
            job = row[c.SENT_FOR]
            changing = offers.gradient_bytes[w.mark[job, c.ROW]] / offers.state_bytes[w.mark[job, c.ROW]]
            changing *= sent[c.BYTES_WHOLE] * w.job[job, c.RATE]
            if changing != sent[c.BYTES_CHANGING]:
                stream_on(w, transfer)
                sent[c.BYTES_CHANGING], sent[c.BYTES_RATE] = changing, -1.0
            demand = changing if row[c.SENT_PHASE] == c.IN_STEP else np.inf
            _list(links, links.behind, transfer, row[c.SENT_FROM], row[c.SENT_TO], demand, 1.0)
        elif row[c.SENT_PHASE] == c.SENDING and links.capacity[row[c.SENT_FROM], row[c.SENT_TO]] < np.inf:
            links.spare[row[c.SENT_FROM], row[c.SENT_TO]] -= sent[c.BYTES_RATE]
    for at in range(links.tally[c.SPANNING]):
        job = links.spanning[at]
        offer = w.mark[job, c.OFFER]
        used = offers.hop_bytes[offer] * w.job[job, c.RATE]
        for hop in range(hops(offers, offer)):
            here, there = w.part[job, hop], w.part[job, (hop + 1) % offers.form[offer, c.FORM_PARTS]]
            links.spare[here, there] -= used
            if sends_back(offers, offer):
                links.spare[there, here] -= used
    for here in range(len(links.spare)):
        for there in range(len(links.spare)):
            links.spare[here, there] = max(0.0, links.spare[here, there])
    for at in range(links.tally[c.TRANSFERS]):
        transfer = links.active[at]
        row = links.transfer[transfer]
        if row[c.SENT_WHAT] == c.STREAM:
            each = level(links, links.behind, links.spare, row[c.SENT_FROM], row[c.SENT_TO], transfer)
            _stream(w, transfer, each)


@kernel(lean=True)
def _stream(w, transfer, rate):  # type: ignore[no-untyped-def]
    """A stream goes on at another rate; it falls behind where that is less than its gradients need."""
    row, sent, now = w.links.transfer[transfer], w.links.bytes[transfer], w.clock[c.NOW]
    whole, changing = sent[c.BYTES_WHOLE], sent[c.BYTES_CHANGING]
    if row[c.SENT_PHASE] == c.IN_STEP:
        rate = min(rate, changing)
    if rate == sent[c.BYTES_RATE]:
        return
    stream_on(w, transfer)
    sent[c.BYTES_RATE], due = rate, np.inf
    if row[c.SENT_PHASE] == c.IN_STEP:
        if rate < changing:
            row[c.SENT_PHASE] = c.SENDING
            w.going[row[c.SENT_FOR], c.GOING_LACKS] += 1
    elif rate > changing:
        lacks = sent[c.BYTES_LEFT] / (rate - changing)
        due = now + (whole / changing * np.log1p(lacks * changing / whole) if changing > 0.0 else lacks)
    set_due(w.heap, w.due, w.place, w.tally[c.HEAP : c.HEAP + 1], _item(w, transfer), due)


@kernel(lean=True)
def stream_on(w, transfer):  # type: ignore[no-untyped-def]
    """Write down what a stream has sent and what it lacks, since its rate last changed."""
    row, sent, now = w.links.transfer[transfer], w.links.bytes[transfer], w.clock[c.NOW]
    since, rate = now - sent[c.BYTES_AS_OF], max(0.0, sent[c.BYTES_RATE])
    whole, changing = sent[c.BYTES_WHOLE], sent[c.BYTES_CHANGING]
    if since > 0.0:
        if row[c.SENT_PHASE] == c.SENDING:
            lacks = sent[c.BYTES_LEFT]
            if changing > 0.0:
                lacks += (lacks - whole * (1.0 - rate / changing)) * np.expm1(-changing / whole * since)
            else:
                lacks -= rate * since
            sent[c.BYTES_LEFT] = min(whole, max(0.0, lacks))
        w.links.moved_gb[row[c.SENT_FROM], row[c.SENT_TO]] += rate * since * 1e-9
        w.job[row[c.SENT_FOR], c.MOVED] += rate * since * 1e-9
    sent[c.BYTES_AS_OF] = now


@kernel(lean=True)
def stream_is_in_step(w, transfer):  # type: ignore[no-untyped-def]
    """All of a stream has come; returns whether that holds for all of its job's."""
    row, sent = w.links.transfer[transfer], w.links.bytes[transfer]
    stream_on(w, transfer)
    row[c.SENT_PHASE], sent[c.BYTES_LEFT] = c.IN_STEP, 0.0
    w.going[row[c.SENT_FOR], c.GOING_LACKS] -= 1
    w.links.tally[c.UNSHARED] = 1
    set_due(w.heap, w.due, w.place, w.tally[c.HEAP : c.HEAP + 1], _item(w, transfer), np.inf)
    return w.going[row[c.SENT_FOR], c.GOING_LACKS] == 0


@kernel(lean=True)
def end_streams(w, job):  # type: ignore[no-untyped-def]
    """What a job streams is all there, or given up."""
    links, at = w.links, 0
    while at < links.tally[c.TRANSFERS]:
        transfer = links.active[at]
        if links.transfer[transfer, c.SENT_FOR] == job and links.transfer[transfer, c.SENT_WHAT] == c.STREAM:
            stream_on(w, transfer)
            drop(w, transfer)
        else:
            at += 1


@kernel(lean=True)
def rate_of(offers, offer, bandwidth, latency):  # type: ignore[no-untyped-def]
    """Work per second of an offer at so many bytes/s and seconds one way on its slowest hop: see
    ``placement.offers.OfferTable.rate_at``; no hop: inf, 0."""
    grid, times = offers.bandwidth, offers.latency
    if offers.form[offer, c.FORM_PARTS] == 1:
        return offers.rate[offer, 0, 0]
    if bandwidth <= 0.0:
        return 0.0
    later, high = 1, 1
    while later < len(times) - 1 and times[later] <= latency:
        later += 1
    while high < len(grid) - 1 and grid[high] < bandwidth:
        high += 1
    beyond = min(1.0, max(0.0, (latency - times[later - 1]) / (times[later] - times[later - 1])))
    quick, slow = 1.0 / grid[high], 1.0 / grid[high - 1]
    behind = min(1.0, max(0.0, (1.0 / bandwidth - quick) / (slow - quick)))
    found = 0.0
    for at in range(2):
        row = offers.rate[offer, later - 1 + at]
        seconds = (1.0 - behind) / row[high] + behind / row[high - 1]
        found += seconds * (beyond if at == 1 else 1.0 - beyond)
    return 1.0 / (found * max(1.0, grid[0] / bandwidth))


@kernel(lean=True)
def set_rate(w, job, rate):  # type: ignore[no-untyped-def]
    """A job that exchanges goes on at another rate."""
    row = w.job[job]
    if rate == row[c.RATE]:
        return
    settle(w, job, w.clock[c.NOW])
    row[c.RATE] = rate
    find_finish(w, job)
    set_due(w.heap, w.due, w.place, w.tally[c.HEAP : c.HEAP + 1], job, next_due(w, job))


@kernel(lean=True)
def next_due(w, job):  # type: ignore[no-untyped-def]
    """When a running job ends, crosses its next level, or begins or ends to exchange, whichever is first."""
    row = w.job[job]
    due = min(row[c.FINISH], crosses_s(w, job))
    if w.mark[job, c.OFFER] >= 0:
        if row[c.READY] > w.clock[c.NOW]:
            due = min(due, row[c.READY])
        elif row[c.LEFT] > 0.0 or w.mark[job, c.EXCHANGES] > 0:
            due = min(due, row[c.ENDS])
    return due


@kernel(lean=True)
def crosses_s(w, job):  # type: ignore[no-untyped-def]
    """When a run crosses the next level of attained service, inf: there is none."""
    row, level = w.job[job], w.mark[job, c.LEVEL]
    if level >= len(w.levels):
        return np.inf
    per_s = float(w.mark[job, c.DEVICES]) if w.per_device else 1.0
    lacks = w.levels[level] / per_s - row[c.HELD]
    return row[c.READY] + max(0.0, lacks)


@kernel(lean=True)
def find_finish(w, job):  # type: ignore[no-untyped-def]
    """When the work of a settled run ends, and when the run: not before its data are there."""
    row = w.job[job]
    row[c.ENDS] = max(row[c.READY], row[c.AS_OF]) + row[c.LEFT] / row[c.RATE] if row[c.RATE] > 0.0 else np.inf
    row[c.FINISH] = max(row[c.ENDS], data_there(w, job))


@kernel(lean=True)
def data_there(w, job):  # type: ignore[no-untyped-def]
    """When the last of a running job's data came to where it runs; inf: some are on their way."""
    there, domains, domain, mark = w.job[job, c.BEGAN], w.mark[job, c.DOMAINS], 0, w.mark[job]
    if mark[c.HOME] < 0 or w.job[job, c.GB] <= 0.0:
        return there
    if mark[c.ELASTIC] == 1:
        for part in range(w.offers.form[mark[c.OFFER], c.FORM_PARTS]):
            there = max(there, w.there[job, w.part[job, part], 1])
    elif domains == 0:
        there = max(there, w.there[job, w.pool[mark[c.POOL], c.POOL_DOMAIN], 1])
    while domains > 0:
        if domains & 1:
            there = max(there, w.there[job, domain, 1])
        domains >>= 1
        domain += 1
    return there


@kernel(lean=True)
def settle(w, job, now):  # type: ignore[no-untyped-def]
    """Write down the work of a run at the rate that it had since ``AS_OF``, what it exchanged, and what it saved."""
    row = w.job[job]
    since = max(row[c.READY], row[c.AS_OF])
    computed = max(0.0, now - since)
    work = min(row[c.LEFT], computed * row[c.RATE])
    if computed > 0.0 and w.fails:
        saved = np.floor((now - row[c.READY]) / w.checkpoint_s) * w.checkpoint_s - (since - row[c.READY])
        if saved >= 0.0:
            row[c.SAVED] = row[c.DONE_IN_RUN] + min(row[c.LEFT], saved * row[c.RATE])
    row[c.SERVED] += (now - row[c.AS_OF]) * row[c.RATE]
    row[c.PAUSED_S] += now - row[c.AS_OF] - computed
    row[c.LEFT] -= work
    row[c.DONE_IN_RUN] += work
    row[c.USD] += computed * row[c.USD_PER_S]
    if w.mark[job, c.EXCHANGES] > 0:
        offer = w.mark[job, c.OFFER]
        gb = work * w.offers.hop_bytes[offer] * 1e-9
        for hop in range(hops(w.offers, offer)):
            here, there = w.part[job, hop], w.part[job, (hop + 1) % w.offers.form[offer, c.FORM_PARTS]]
            w.links.exchanged_gb[here, there] += gb
            row[c.USD_OF_FLOWS] += gb * 1e9 * w.links.usd_per_byte[here, there]
            if sends_back(w.offers, offer):
                w.links.exchanged_gb[there, here] += gb
                row[c.USD_OF_FLOWS] += gb * 1e9 * w.links.usd_per_byte[there, here]
    row[c.AS_OF] = now
