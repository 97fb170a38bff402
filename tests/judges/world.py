"""The clear world of elastic jobs and gangs (SimPy): it judges ``jobs.joint``, is not quick, and decides nothing.

It plays a script: the decisions that a scheduler took while it led the engine. A process per run of a job, transfer and
node, and one each for the network and for other tenants. Whenever a flow comes, goes or weighs more, or a link moves,
the shares of all flows are found again. Between the two stand no common lines but the data that describe a world.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count, pairwise
from typing import Any

import numpy as np
import simpy
from numpy.typing import NDArray
from simpy.events import AllOf, Event

from hippo.jobs.engine.running import time_to_failure
from hippo.jobs.placement.offers import OfferTable
from hippo.jobs.placement.slowdown import Slowdown
from hippo.jobs.settings import ReplayRules, Tenants
from hippo.jobs.site import JobSite, LinkHistory
from hippo.jobs.workload import JobWorkload

Floats = NDArray[np.float64]
Steps = Generator[Event, Any, None]
Link = tuple[int, int]  # from, to

TOGETHER_S = 1e-7
"""What happens so soon after a decision comes before it: two clocks round differently."""
LONGEST_S = 1e6  # after the last decision


@dataclass(frozen=True)
class Decision:
    """What a scheduler did."""

    time_s: float
    act: str  # begin (an elastic job), start (a gang), pause, weigh, move (in the background), stay
    job: int
    offer: int = -1
    domains: tuple[int, ...] = ()  # of a gang: those that it spans, none: it runs in ``pool``
    pool: int = -1
    weight: float = 1.0
    moment: int = 0  # of one moment: done together, nothing happens between


@dataclass(frozen=True, eq=False)
class Account:
    """What became of n jobs, and went over the links of K domains."""

    first_start_s: Floats  # (n,)
    finish_s: Floats  # (n,) nan: it never ended
    moved_gb: Floats  # (n,)
    usd: Floats  # (n,) for what jobs exchange
    late_s: Floats  # (n,) of service to clients that were farther than the bound
    link_gb: Floats  # (K, K) moved and exchanged


def play(
    script: Iterable[Decision],
    workload: JobWorkload,
    site: JobSite,
    rules: ReplayRules,
    *,
    offers: OfferTable,
    slowdown: Slowdown | None = None,
    tenants: Tenants | None = None,
) -> Account:
    """Do what the script says when it says it, and see what comes of it."""
    world = _World(workload, site, rules, offers)
    if slowdown is not None:
        world.slowdown, world.rows = slowdown, slowdown.rows(workload)
    clock, decisions = world.clock, tuple(script)
    if site.history is not None:
        clock.process(world.network(site.history))
    if tenants is not None:
        clock.process(world.tenants(tenants))
    if rules.failures is not None:
        for number in range(len(world.nodes)):
            clock.process(world.fails(number))
    before: Decision | None = None
    for decision in decisions:
        if before is None or (before.time_s, before.moment) != (decision.time_s, decision.moment):
            clock.timeout(max(0.0, decision.time_s - clock.now))
            while clock.peek() <= decision.time_s + TOGETHER_S:
                clock.step()
        world.act(decision)
        before = decision
    clock.run(until=AllOf(clock, [job.ended for job in world.jobs]) | clock.timeout(LONGEST_S))
    found = [(j.first_s, j.finish_s, j.moved_gb, j.usd, j.late_s) for j in world.jobs]
    first_s, finish_s, moved_gb, usd, late_s = np.array(found).T
    return Account(first_s, finish_s, moved_gb, usd, late_s, world.link_gb)


class _Amount:
    """What is left to do of a job (work) or a transfer (bytes), how quickly it goes, and how it went so far."""

    def __init__(self, left: float, now: float) -> None:
        self.left, self.rate, self.path = left, 0.0, [(now, left)]
        self.process: simpy.Process | None = None

    def pass_time(self, now: float) -> None:
        """Go on until now."""
        since = self.path[-1][0]
        if now > since:
            self.left = max(0.0, self.left - self.rate * (now - since))
            self.path.append((now, self.left))


class _Job(_Amount):
    def __init__(self, clock: simpy.Environment, work: float) -> None:
        super().__init__(work, clock.now)
        self.first_s = self.finish_s = math.nan
        self.moved_gb, self.usd, self.weight, self.late_s = 0.0, 0.0, 1.0, 0.0
        self.pool = -1  # of a gang
        self.ended = clock.event()
        self.stopped = self.computes = False
        self.offer, self.domains, self.links = -1, tuple[int, ...](), tuple[Link, ...]()
        self.table: OfferTable | None = None  # in which its offer stands
        self.usd_per_s = 0.0
        self.state_at = -1  # domain of the checkpoint, -1: none
        self.state: list[_Transfer] = []  # of the run that is on
        self.going: Decision | None = None  # in the background
        self.streams: list[_Stream] = []
        self.sent: dict[int, tuple[float, list[Event]]] = {}  # domain -> GB of data, and the arrivals of its parts


class _Transfer(_Amount):
    def __init__(self, clock: simpy.Environment, link: Link, size: float) -> None:
        super().__init__(size, clock.now)
        self.link, self.arrived = link, clock.event()


class _Stream(_Amount):
    """State that is brought while its job goes on computing: what is left of it is what is out of step.

    Of S bytes c change a second, those in step by bytes that are sent at once: with b bytes/s in all, what is left goes
    to S (1 - b / c), with the time S / c.
    """

    def __init__(self, clock: simpy.Environment, link: Link, size: float) -> None:
        super().__init__(size, clock.now)
        self.link, self.size, self.changing, self.sent = link, size, 0.0, 0.0

    def pass_time(self, now: float) -> None:
        since = now - self.path[-1][0]
        if since > 0:
            self.sent += self.rate * since
            if self.changing > 0:
                gone = -math.expm1(-self.changing * since / self.size)
                self.left = max(0.0, self.left + (self.size * (1 - self.rate / self.changing) - self.left) * gone)
            else:
                self.left = max(0.0, self.left - self.rate * since)
            self.path.append((now, self.left))

    @property
    def needs_s(self) -> float:
        """Until all is in step, as it goes; inf: it is, or never will be."""
        if self.left <= 0 or self.rate <= self.changing:
            return math.inf
        if self.changing == 0:
            return self.left / self.rate
        end = self.size * (1 - self.rate / self.changing)
        return self.size / self.changing * math.log1p(self.left / -end)


class _Node:
    def __init__(self, pool: int, size: int) -> None:
        self.pool, self.size, self.free, self.up, self.tenants = pool, size, size, True, 0
        self.held: dict[tuple[_Job, bool], int] = {}  # who came first stands first; whether it is on its way there


def level(capacity: float, weight: float, others: list[tuple[float, float]]) -> float:
    """What a flow of this weight gets of a link if it takes all it can, beside others (demand, weight).

    From the most modest on, each of the others that wants less than its part of what is left has what it wants.
    """
    weights = weight + sum(each for _, each in others)
    for demand, each in sorted(others, key=lambda other: other[0] / other[1]):
        if demand / each >= capacity / weights:
            break
        capacity, weights = capacity - demand, weights - each
    return capacity / weights * weight


def _links(offers: OfferTable, row: int, domains: Sequence[int]) -> tuple[Link, ...]:
    """Over which parts in these domains exchange: a chain or a ring, and back unless it is a ring of replicas."""
    hops = [*pairwise(domains), *([(domains[-1], domains[0])] if offers.ring[row] else [])]
    held = offers.state_share[row][offers.state_share[row] > 0]
    back = [] if offers.ring[row] and (held == 1.0).all() else hops
    return (*hops, *((there, here) for here, there in back))


class _World:
    def __init__(self, workload: JobWorkload, site: JobSite, rules: ReplayRules, offers: OfferTable) -> None:
        self.clock = simpy.Environment(float(workload.arrival_s[0]))
        self.workload, self.site, self.rules, self.offers = workload, site, rules, offers
        self.slowdown, self.rows = Slowdown.none(len(site.domains)), np.zeros(len(workload), np.int64)
        self.jobs = [_Job(self.clock, float(work)) for work in workload.duration_s]
        self.nodes = [_Node(at, pool.per_node) for at, pool in enumerate(site.pools) for _ in range(pool.nodes)]
        self.capacity = site.history.bandwidth_bytes_per_s[0] if site.history else np.array(site.bandwidth_bytes_per_s)
        self.latency = site.moving_latency_s[0]
        self.link_gb, self.states = np.zeros_like(self.capacity), [(-math.inf, self.capacity, self.latency)]
        self.usd_per_gb = np.array(site.usd_per_gb) if site.usd_per_gb else np.zeros_like(self.capacity)
        self.sending: list[_Transfer] = []
        self.exchanging: list[_Job] = []

    # -------------------------------------------------------------------------------------------- what comes by itself
    def network(self, history: LinkHistory) -> Steps:
        """Links move."""
        for at, (time_s, capacity) in enumerate(zip(history.time_s, history.bandwidth_bytes_per_s, strict=True)):
            yield self.clock.timeout(max(0.0, time_s - self.clock.now))
            self.capacity = capacity
            if history.latency_s is not None:
                self.latency = history.latency_s[at]
            self.states.append((self.clock.now, self.capacity, self.latency))
            self._share()

    def tenants(self, tenants: Tenants) -> Steps:
        """Others take devices of a node, from the job that holds most of it (of equals who came last) first."""
        for time_s, number, asked in zip(tenants.time_s, tenants.node, tenants.devices, strict=True):
            yield self.clock.timeout(max(0.0, time_s - self.clock.now))
            node = self.nodes[number]
            devices = min(max(asked, -node.tenants), node.size - node.tenants)
            while node.free < devices:
                self._evict(*max(reversed(node.held), key=lambda held: node.held[held]))
            node.tenants += devices
            node.free -= devices

    def fails(self, number: int) -> Steps:
        """A node breaks and is repaired, again and again."""
        node, failures = self.nodes[number], self.rules.failures
        assert failures is not None
        for failed in count():
            yield self.clock.timeout(time_to_failure(self.rules.seed, number, failed, failures.mtbf_s))
            while node.held:
                self._evict(*next(reversed(node.held)), loses_after_s=failures.checkpoint_every_s)
            node.up = False
            yield self.clock.timeout(failures.repair_s)
            node.up = True

    # ------------------------------------------------------------------------------------------------------- decisions
    def act(self, decision: Decision) -> None:
        """Do what a scheduler did."""
        job = self.jobs[decision.job]
        if decision.act == "weigh":
            job.weight = decision.weight
            self._share()
        elif decision.act == "pause":
            self._stop(job)
        elif decision.act == "start" and decision.domains:
            self._span(job, decision)
        elif decision.act == "start":
            job.offer, job.domains, job.links, job.usd_per_s = -1, (), (), 0.0
            home, gb = self.site.pools[decision.pool], float(self.workload.data_gb[decision.job])
            job.pool = decision.pool
            assert not self._is_far(job, *self.states[-1][1:]), "begun too far from its clients"
            self._take(job, decision.pool, int(self.workload.devices[decision.job]), block=0)
            self._begin(job, {self.site.domains.index(home.domain): gb}, rate=home.speed)
        elif decision.act == "stay":
            self._stay(job)
        else:
            names = [pool.domain for pool in self.site.pools]
            for domain, gpus in zip(decision.domains, self.offers.gpus[decision.offer].tolist(), strict=False):
                pool, block = names.index(self.site.domains[domain]), int(self.offers.block[decision.offer])
                self._take(job, pool, gpus, block=block, there=decision.act == "move")
            if decision.act == "begin":
                self._begin_elastic(job, decision)
            else:
                self._move(job, decision)

    def _begin_elastic(self, job: _Job, decision: Decision, share: float = 1.0) -> None:
        """On devices that it has taken; so much of its state has to be brought."""
        offers, row = self.offers, decision.offer
        job.table, job.offer, job.domains = offers, row, decision.domains
        job.links = _links(offers, row, job.domains)
        for part, domain in enumerate(job.domains):
            if domain != job.state_at >= 0:
                size = share * float(offers.state_share[row, part]) * offers.state_bytes[offers.kind[row]]
                job.state.append(self._send(job, (job.state_at, domain), size))
        gb = float(self.workload.data_gb[decision.job]) / len(job.domains)
        rate = 0.0 if job.links else self._speed(job, lambda link: math.inf)
        self._begin(job, dict.fromkeys(job.domains, gb), rate=rate)

    def _span(self, job: _Job, decision: Decision) -> None:
        """A gang over several domains, an equal part in each: at its factor, or as a flow."""
        devices, row = int(self.workload.devices[decision.job]), self.rows[decision.job]
        number, sends = sum(1 << domain for domain in decision.domains), -1
        names, exchange = [pool.domain for pool in self.site.pools], self.slowdown.exchange
        for domain in decision.domains:
            self._take(job, names.index(self.site.domains[domain]), devices // len(decision.domains), block=0)
        if exchange is not None:
            sends = int(exchange.row[row, number])
        job.offer, job.domains, job.links, job.usd_per_s = sends, (), (), 0.0
        if exchange is not None and sends >= 0:
            job.table = exchange.offers
            job.links = _links(exchange.offers, sends, [each for each in exchange.route[sends].tolist() if each >= 0])
            rate = 0.0
        else:
            speed = min(self.site.pools[names.index(self.site.domains[each])].speed for each in decision.domains)
            rate, job.usd_per_s = speed / self.slowdown.factor[row, number], float(self.slowdown.usd_per_s[row, number])
        gb = float(self.workload.data_gb[decision.job]) / len(decision.domains)
        self._begin(job, dict.fromkeys(decision.domains, gb), rate=rate)

    # ----------------------------------------------------------------------------------------- moves in the background
    def _move(self, job: _Job, decision: Decision) -> None:
        """It computes where it is; its state comes to where it will."""
        assert job.computes, "it has nothing to do meanwhile"
        job.going, row, home = decision, decision.offer, job.domains[0]
        for part, domain in enumerate(decision.domains):
            if domain != home:
                size = float(self.offers.state_share[row, part]) * self.offers.state_bytes[self.offers.kind[row]]
                job.streams.append(_Stream(self.clock, (home, domain), size))
        for stream in job.streams:
            stream.process = self.clock.process(self._keep_up(job, stream))
        self._share()
        if not job.streams:
            self._go_over(job)

    def _keep_up(self, job: _Job, stream: _Stream) -> Steps:
        """Until all streams of a job are in step."""
        while True:
            due_s = self.clock.now + stream.needs_s
            try:
                yield self.clock.timeout(stream.needs_s) if stream.needs_s < math.inf else self.clock.event()
            except simpy.Interrupt as why:
                if why.cause != "another rate":
                    return
            if self.clock.now < due_s - TOGETHER_S:
                continue
            for each in job.streams:
                each.pass_time(self.clock.now)
            stream.left = 0.0
            if all(each.left <= 0 for each in job.streams):
                self._go_over(job)
                return
            self._share()

    def _go_over(self, job: _Job) -> None:
        """Stop for the last gradients (2 of 16 bytes a parameter), and go on there."""
        decision = job.going
        assert decision is not None
        self._end_streams(job)
        job.going = None
        self._stop(job)
        for node in self.nodes:
            node.held = {(each, there and each is not job): size for (each, there), size in node.held.items()}
        self._begin_elastic(job, decision, 2 / 16)

    def _stay(self, job: _Job) -> None:
        """Give it up."""
        if job.going is not None:
            self._end_streams(job)
            job.going = None
            self._give_back(job, there=True)
            self._share()

    def _end_streams(self, job: _Job) -> None:
        for stream in job.streams:
            stream.pass_time(self.clock.now)
            self._count(job, stream.link, stream.sent)
            assert stream.process is not None
            if stream.process is not self.clock.active_process:
                stream.process.interrupt("ended")
        job.streams = []

    def _evict(self, job: _Job, there: bool, *, loses_after_s: float = math.inf) -> None:
        if there:
            self._stay(job)
        else:
            self._stop(job, loses_after_s=loses_after_s)

    def _give_back(self, job: _Job, *, there: bool) -> None:
        for node in self.nodes:
            node.free += node.held.pop((job, there), 0)

    # ------------------------------------------------------------------------------------------------- runs begin
    def _take(self, job: _Job, pool: int, devices: int, *, block: int, there: bool = False) -> None:
        """Devices of nodes, whole blocks in the fullest first; a gang (block 0) the fullest node that has room for all
        of it, else the emptiest ones."""
        while devices:
            usable = [each for each in self.nodes if each.pool == pool and each.up and each.free >= max(block, 1)]
            roomy = usable if block else [each for each in usable if each.free >= devices]
            node = min(roomy, key=lambda each: each.free) if roomy else max(usable, key=lambda each: each.free)
            taken = min(devices, node.free // block * block if block else node.free)
            node.held[job, there], node.free, devices = taken, node.free - taken, devices - taken

    def _begin(self, job: _Job, needs: dict[int, float], *, rate: float) -> None:
        """Run a job where so much data (GB) is needed in each domain; ``rate``: unless it exchanges something."""
        at, now = self.jobs.index(job), self.clock.now
        home = self.workload.job(at).data_at if self.workload.data_gb[at] > 0 else ""
        data: list[Event] = []
        for domain, gb in needs.items():
            if home and self.site.domains[domain] != home:
                had, arrivals = job.sent.get(domain, (0.0, []))
                if had < gb:
                    transfer = self._send(job, (self.site.domains.index(home), domain), (gb - had) * 1e9)
                    job.sent[domain] = gb, [*arrivals, transfer.arrived]
                data += job.sent[domain][1]
        first = [each.arrived for each in job.state] + (data if self.rules.data == "before" else [])
        if job.stopped:
            first.append(self.clock.timeout(self.rules.restart_s))
        else:
            job.first_s = now
        job.rate, job.path, job.computes = rate, [(now, job.left)], False
        job.process = self.clock.process(self._run(job, first, data))

    # ------------------------------------------------------------------------------------------------------------ runs
    def _run(self, job: _Job, first: list[Event], data: list[Event]) -> Steps:
        """Restart, state and, if it must be there before, data, all at once; work; the rest of the data; the end."""
        try:
            yield AllOf(self.clock, first)
            job.computes, job.path = True, [(self.clock.now, job.left)]
            if job.links:
                self.exchanging.append(job)
                self._share()
            yield from self._go_on(job)
            if job.links:
                self.exchanging.remove(job)
                self._share()
            self._stay(job)
            yield AllOf(self.clock, data)
        except simpy.Interrupt:
            return
        self._leave(job)
        job.finish_s = self.clock.now
        job.ended.succeed()

    def _go_on(self, amount: _Amount) -> Steps:
        """Until nothing is left."""
        while True:
            try:
                yield self.clock.timeout(amount.left / amount.rate) if amount.rate > 0 else self.clock.event()
            except simpy.Interrupt as why:
                if why.cause != "another rate":
                    raise
            else:
                amount.pass_time(self.clock.now)
                amount.left = 0.0
                return

    def _stop(self, job: _Job, *, loses_after_s: float = math.inf) -> None:
        """A job waits again, with all that it has done, or, if a node broke, as it was when it saved last."""
        assert job.process is not None
        self._stay(job)
        job.process.interrupt("stop")
        self._leave(job)
        job.stopped = True
        if job.computes and loses_after_s < math.inf:
            times, lefts = zip(*job.path, strict=True)
            saved_s = (self.clock.now - times[0]) // loses_after_s * loses_after_s
            job.left = float(np.interp(times[0] + saved_s, times, lefts))

    def _leave(self, job: _Job) -> None:
        """Give back what a job holds, write down what it exchanged; its state lies where it computed."""
        if job.computes:
            job.pass_time(self.clock.now)
            job.late_s += self._late_s(job, job.path[0][0])
            job.state_at = job.domains[0] if job.domains else -1
            job.usd += (self.clock.now - job.path[0][0]) * job.usd_per_s
            for link in job.links:
                assert job.table is not None
                gb = (job.path[0][1] - job.left) * job.table.hop_bytes[job.offer] * 1e-9
                self.link_gb[link] += gb
                job.usd += gb * self.usd_per_gb[link]
        for transfer in [each for each in job.state if each in self.sending]:  # nobody waits for them any more
            assert transfer.process is not None
            transfer.pass_time(self.clock.now)
            transfer.process.interrupt("given up")
            self._count(job, transfer.link, -transfer.left)
            self.sending.remove(transfer)
        job.state = []
        if job in self.exchanging:
            self.exchanging.remove(job)
        self._give_back(job, there=False)
        self._share()

    def _is_far(self, job: _Job, capacity: Floats, latency: Floats) -> bool:
        """Whether a gang's clients are cut off, or farther than its bound."""
        terms = self.workload.job(self.jobs.index(job))
        if terms.latency_bound_s is None:
            return False
        ends = [self.site.domains.index(name) for name in (terms.clients_at, self.site.pools[job.pool].domain)]
        ways = [tuple(ends), tuple(reversed(ends))]
        return any(capacity[way] <= 0 or latency[way] > terms.latency_bound_s for way in ways)

    def _late_s(self, job: _Job, since_s: float) -> float:
        """Seconds in which they were, from then until now."""
        ends = [*(time_s for time_s, *_ in self.states[1:]), self.clock.now]
        return sum(
            max(0.0, end_s - max(time_s, since_s))
            for (time_s, *state), end_s in zip(self.states, ends, strict=True)
            if self._is_far(job, *state)
        )

    # ------------------------------------------------------------------------------------------------ what links carry
    def _send(self, job: _Job, link: Link, size: float) -> _Transfer:
        transfer = _Transfer(self.clock, link, size)
        self._count(job, link, size)
        transfer.process = self.clock.process(self._carry(transfer))
        self.sending.append(transfer)
        self._share()
        return transfer

    def _count(self, job: _Job, link: Link, size: float) -> None:
        self.link_gb[link] += size * 1e-9
        job.moved_gb += size * 1e-9

    def _carry(self, transfer: _Transfer) -> Steps:
        try:
            yield from self._go_on(transfer)
        except simpy.Interrupt:
            return
        self.sending.remove(transfer)
        self._share()
        yield self.clock.timeout(self.latency[transfer.link])
        transfer.arrived.succeed()

    def _share(self) -> None:
        """Find what each flow gets from now on: who exchanges asks for what it would exchange were it alone."""
        flows: dict[Link, list[tuple[_Amount, float, float]]] = {}
        for transfer in self.sending:
            flows.setdefault(transfer.link, []).append((transfer, math.inf, 1.0))
        for job in self.exchanging:
            assert job.table is not None
            asked = job.table.hop_bytes[job.offer] * self._speed(job, lambda link: float(self.capacity[link]))
            for link in job.links:
                flows.setdefault(link, []).append((job, asked, job.weight))

        def got(amount: _Amount, weight: float, link: Link) -> float:
            others = [(demand, each) for owner, demand, each in flows[link] if owner is not amount]
            return level(float(self.capacity[link]), weight, others)

        rates: list[tuple[_Amount, float]] = [(each, got(each, 1.0, each.link)) for each in self.sending]
        rates += [(job, self._speed(job, partial(got, job, job.weight))) for job in self.exchanging]
        self._set(rates)
        self._share_rest()

    def _share_rest(self) -> None:
        """Streams share what transfers that send and jobs that exchange leave; who is in step asks for its changes."""
        streams = [(job, stream) for job in self.jobs for stream in job.streams]
        rates: list[tuple[_Stream, float]] = []
        for job, stream in streams:
            stream.pass_time(self.clock.now)
            at = self.offers.kind[job.offer]
            kind, state = self.offers.kinds[at], float(self.offers.state_bytes[at])
            steps_per_s = job.rate * float(self.offers.tokens_per_s[at]) / (kind.batch * kind.seq)
            stream.changing = stream.size / state * (state * 2 / 16) * steps_per_s
        for _, stream in streams:
            left = float(self.capacity[stream.link])
            left -= sum(each.rate for each in self.sending if each.link == stream.link)
            for job in self.exchanging:
                assert job.table is not None
                left -= job.links.count(stream.link) * job.table.hop_bytes[job.offer] * job.rate
            others = [each for _, each in streams if each is not stream and each.link == stream.link]
            asked = [(each.changing if each.left <= 0 else math.inf, 1.0) for each in others]
            rate = level(max(0.0, left), 1.0, asked)
            rates.append((stream, min(rate, stream.changing) if stream.left <= 0 else rate))
        for stream, rate in rates:  # what changes may be other, too
            if stream.process is not None and stream.process is not self.clock.active_process:
                stream.process.interrupt("another rate")
            stream.rate = rate

    def _set(self, rates: list[tuple[_Amount, float]]) -> None:
        """Let jobs and transfers go on at these rates."""
        for amount, rate in rates:
            if rate != amount.rate and amount.process is not None:
                amount.pass_time(self.clock.now)
                amount.rate = rate
                if amount.process is not self.clock.active_process:
                    amount.process.interrupt("another rate")

    def _speed(self, job: _Job, bandwidth: Callable[[Link], float]) -> float:
        """Work per second where each link gives so much."""
        least = min((bandwidth(link) for link in job.links), default=math.inf)
        slowest = max((float(self.latency[link]) for link in job.links), default=0.0)
        assert job.table is not None
        return float(job.table.rate_at(np.array([job.offer]), np.array([least]), np.array([slowest]))[0])
