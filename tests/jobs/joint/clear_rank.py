"""Jobs one after another as ``hippo.jobs.joint.ranked`` says it, written for reading: it judges the compiled rule."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import takewhile

import numpy as np

from hippo.jobs.engine import world as c
from hippo.jobs.engine.elastic import pool_of
from hippo.jobs.engine.running import find_pool
from hippo.jobs.joint.moment import JobPlace, Moment
from hippo.jobs.joint.ranked import ARRIVED, ATTAINED, CHEAPEST, FIRST, FULLEST, GRADIENT, PRICED
from hippo.jobs.joint.rules import Ranked
from hippo.jobs.placement.offers import MOST_PARTS

Kept = dict[int, tuple[float, int]]
"""Of a domain that is kept for somebody: from when on, and GPUs that are left over then."""


@dataclass(frozen=True)
class Clear:
    """A rule without regions and weights of links, in Python."""

    rule: Ranked
    lacks: dict[int, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.rule.name

    def decide(self, moment: Moment) -> None:
        self._note_lacks(moment)
        self._begin_all(moment, by_force=self.rule.preempts and moment.sight.stops)
        if self.rule.margin < 1.0 and moment.sight.stops:
            for job in self._ordered(moment, moment.running.tolist()):
                if self._replan(moment, job):
                    self._begin_all(moment, by_force=False)

    def _begin_all(self, moment: Moment, *, by_force: bool) -> None:
        kept, count = Kept(), 0
        for job in self._ordered(moment, moment.waiting.tolist()):
            if by_force:
                if self.rule.grows and moment.workload.elastic[job] and self._enlarge(moment, job):
                    continue
                if not self._begin(moment, job, {}):
                    self._by_force(moment, job, self._needs(moment, job))
            elif self._is_patient(moment, job, kept) or not self._begin(moment, job, kept):
                ahead = self._await(moment, job, kept) if count < self.rule.reserves else None
                if ahead is not None:
                    _, domain, wait_s, spare = ahead
                    kept[domain] = moment.now_s + wait_s, spare
                    count += 1

    def _is_patient(self, moment: Moment, job: int, kept: Kept) -> bool:
        """Whether it could begin, and something dear enough is told to become free."""
        best = self._best(moment, job, kept) if moment.workload.elastic[job] and self.rule.patience < 1.0 else None
        ahead = None if best is None else self._await(moment, job, kept)
        return best is not None and ahead is not None and ahead[0] < (1.0 - self.rule.patience) * best[1]

    def _await(self, moment: Moment, job: int, kept: Kept) -> tuple[float, int, float, int] | None:
        """Cost, domain, wait and GPUs left over of the best that is told to become free in one domain."""
        table, work, options = moment.offers, moment.workload, list[tuple[float, int, float, int]]()
        price, ends = self._price(moment, job), dict[int, float]()
        for other in moment.running.tolist():
            row = moment.world.job[other]
            if row[c.RATE] > 0.0 and not math.isinf(row[c.READY]):
                ends[other] = max(0.0, row[c.READY] - moment.now_s) + moment.remaining_s(other) / row[c.RATE]
        sizes = (table.kind == moment.world.mark[job, c.ROW]) & (table.parts == 1)
        sizes &= (table.gpus[:, 0] >= work.least[job]) & (table.gpus[:, 0] <= work.devices[job])
        for domain in range(len(moment.site.domains)):
            leave = [other for other in sorted(ends, key=lambda each: ends[each]) if _held(moment, other, domain)]
            for count, other in enumerate(leave):
                if domain in kept:
                    continue
                free = _free(moment, domain) + sum(_held(moment, each, domain) for each in leave[: count + 1])
                waits = price * ends[other]
                if not work.elastic[job]:
                    gpus = int(work.devices[job])
                    options += [(waits, domain, ends[other], free - gpus)] if gpus <= free else []
                    continue
                for offer in np.flatnonzero(sizes & (table.gpus[:, 0] <= free)).tolist():
                    gpus, rate = int(table.gpus[offer, 0]), float(table.rate[offer, 0, 0])
                    there = self._cost(moment, job, JobPlace(offer, (domain,), rate, gpus))
                    options.append((waits + there, domain, ends[other], free - gpus))
        return min(options, key=lambda each: each[0]) if options else None

    def _enlarge(self, moment: Moment, job: int) -> bool:
        """By force at the best size inside a domain, or half of it, .., if that is better than what is free."""
        table, best = moment.offers, self._best(moment, job, {})
        now, most = math.inf if best is None else best[1], int(moment.workload.devices[job])
        usable = (table.kind == moment.world.mark[job, c.ROW]) & (table.parts == 1)
        usable &= table.gpus[:, 0] >= moment.workload.least[job]
        while most > 0:
            costs = []
            for offer in np.flatnonzero(usable & (table.gpus[:, 0] <= most)).tolist():
                gpus, ends = int(table.gpus[offer, 0]), moment.remaining_s(job) / float(table.rate[offer, 0, 0])
                each = self._runs(moment, job, gpus) + self._gpu_price(moment, job) * gpus
                costs.append((each * (moment.world.restart_s + ends) + self.rule.stop, offer))
            if not costs or not min(costs)[0] < (1.0 - self.rule.margin) * now:
                return False
            wish = int(table.gpus[min(costs)[1], 0])
            if self._by_force(moment, job, wish):
                return True
            most = wish // 2
        return False

    def _ordered(self, moment: Moment, jobs: list[int]) -> list[int]:
        return sorted(jobs, key=lambda job: (*self._key(moment, job), job))

    def _key(self, moment: Moment, job: int) -> tuple[float, float]:
        rule, work = self.rule, moment.workload
        gpus_at_best = float(work.devices[job]) / float(moment.sight.quickest[job])
        left = moment.remaining_s(job) * gpus_at_best
        if rule.rank == ARRIVED:
            rank = float(work.arrival_s[job])
        elif rule.rank == ATTAINED:
            rank = math.floor(math.log(max(moment.attained_s(job) * gpus_at_best, 1000.0)) / math.log(4.0))
        else:
            rank = left / self._price(moment, job) if rule.rank == PRICED else left
        return -float(work.priority[job]) if rule.by_priority else 0.0, rank

    def _plain_price(self, moment: Moment, job: int) -> float:
        weights = [1.0 + max(0.0, float(each)) for each in moment.workload.priority]
        return weights[job] * len(weights) / sum(weights)

    def _price(self, moment: Moment, job: int) -> float:
        own = self._plain_price(moment, job) * (1.0 + self.rule.urgency * (1.0 - self._ease(moment, job)))
        return own + self._relief(moment, job, int(moment.workload.devices[job]))

    def _runs(self, moment: Moment, job: int, gpus: int) -> float:
        """Its price while it runs."""
        return self._price(moment, job) - self._relief(moment, job, gpus)

    def _relief(self, moment: Moment, job: int, gpus: int) -> float:
        devices = sum(pool.devices for pool in moment.site.pools)
        return self.rule.unfairness * min(gpus, self.lacks.get(job, 0.0)) / devices

    def _note_lacks(self, moment: Moment) -> None:
        """What each owner lacks of an equal share as the moment begins, but for what the job itself holds."""
        self.lacks.clear()
        jobs, work = [*moment.waiting.tolist(), *moment.running.tolist()], moment.workload
        users = {int(work.user[job]) for job in jobs}
        share = sum(pool.devices for pool in moment.site.pools) / max(1, len(users))
        for job in jobs:
            own = [other for other in jobs if work.user[other] == work.user[job]]
            held = sum(_held(moment, other, -1) for other in own if other != job)
            self.lacks[job] = max(0.0, min(float(sum(work.devices[other] for other in own)), share) - held)

    def _ease(self, moment: Moment, job: int) -> float:
        left_s = moment.remaining_s(job) / float(moment.sight.quickest[job])
        slack_s = float(moment.workload.deadline_s[job]) - moment.now_s - left_s
        return 1.0 if math.isinf(slack_s) else min(1.0, max(0.0, slack_s / (3600.0 + left_s)))

    def _gpu_price(self, moment: Moment, job: int) -> float:
        waiting, running = (
            sum(self._price(moment, other) for other in jobs.tolist() if other != job)
            for jobs in (moment.waiting, moment.running)
        )
        thrift = self.rule.thrift * self._ease(moment, job) * self._plain_price(moment, job)
        devices = sum(pool.devices for pool in moment.site.pools)
        others = self.rule.crowd * waiting + self.rule.busy * running
        return others / devices + thrift / float(moment.workload.devices[job])

    def _ends_s(self, moment: Moment, job: int, place: JobPlace) -> float:
        world, work = moment.world, moment.workload
        begins = moment.stop_s(job, place)
        if world.mark[job, c.STOPS] + world.mark[job, c.FAILED] > 0:
            begins = max(begins, world.restart_s)
        data = 0.0
        for domain in place.domains:
            home, gb = int(world.mark[job, c.HOME]), float(work.data_gb[job]) / len(place.domains)
            if home >= 0 and home != domain and gb > 0.0:
                lacks = max(0.0, gb - float(world.there[job, domain, 0]))
                data = max(data, 1e9 * lacks / max(1.0, float(world.links.capacity[home, domain])))
        return max(data, begins + moment.remaining_s(job) / place.rate)

    def _cost(self, moment: Moment, job: int, place: JobPlace) -> float:
        each = self._runs(moment, job, place.gpus) + self._gpu_price(moment, job) * place.gpus
        return each * self._ends_s(moment, job, place) + self._sends(moment, job, place)

    def _sends(self, moment: Moment, job: int, place: JobPlace) -> float:
        capacity, gb = moment.world.links.capacity, 1e-9 * float(moment.offers.hop_bytes[place.offer])
        slow = sum(capacity[here, there] < self.rule.floor for here, there in self._directed(moment, place))
        below = float(slow) * gb * moment.remaining_s(job)
        return self.rule.egress * self._usd(moment, job, place) + self.rule.below * below

    def _directed(self, moment: Moment, place: JobPlace) -> list[tuple[int, int]]:
        """Links over which it exchanges."""
        parts, ring = len(place.domains), int(moment.world.offers.form[place.offer, c.FORM_RING])
        pairs = [(here, place.domains[(hop + 1) % parts]) for hop, here in enumerate(place.domains)]
        if not (ring and parts > 2):
            pairs.pop()
        return pairs + ([] if ring == c.ONE_WAY else [(there, here) for here, there in pairs])

    def _usd(self, moment: Moment, job: int, place: JobPlace) -> float:
        """For exchange until it ends, data that it lacks there, and its state."""
        world, table, work = moment.world, moment.offers, moment.workload
        usd = np.array(moment.site.usd_per_gb) if moment.site.usd_per_gb else np.zeros((len(moment.site.domains),) * 2)
        parts, (home, at) = len(place.domains), (int(world.mark[job, which]) for which in (c.HOME, c.STATE_AT))
        if world.mark[job, c.STATUS] == c.RUNNING:
            at = int(world.part[job, 0])
        over = sum(usd[here, there] for here, there in self._directed(moment, place))
        found = over * 1e-9 * float(table.hop_bytes[place.offer]) * moment.remaining_s(job)
        for part, domain in enumerate(place.domains):
            if home >= 0 and home != domain:
                gb = float(work.data_gb[job]) / parts - float(world.there[job, domain, 0])
                found += max(0.0, gb) * usd[home, domain]
            if at >= 0 and at != domain:
                state_gb = 1e-9 * float(table.state_bytes[table.kind[place.offer]])
                found += state_gb * float(table.state_share[place.offer, part]) * usd[at, domain]
        return found

    def _best(self, moment: Moment, job: int, kept: Kept) -> tuple[JobPlace, float] | None:
        found = [
            each for each in moment.places(job, self._most_parts(moment, job)) if self._may(moment, job, each, kept)
        ]
        costs = [(float(f"{self._cost(moment, job, each):.9g}"), each) for each in found]  # sums in another order tie
        if not costs:
            return None
        least = min(cost for cost, _ in costs)
        close = [
            (place.gpus, cost, place.free, place) for cost, place in costs if cost <= least * (1 + self.rule.slack)
        ]
        gpus, cost, _, best = min(close, key=lambda each: each[:3])
        if self.rule.place == CHEAPEST or moment.world.mark[job, c.STATUS] == c.RUNNING:
            return best, cost
        alike = [each for each in close if each[0] == gpus and len(each[3].domains) == len(best.domains)]
        _, cost, _, best = min(alike, key=lambda each: (self._score(moment, job, each[3]), *each[1:3]))
        return best, cost

    def _most_parts(self, moment: Moment, job: int) -> int:
        """As the rule says, but where domains are not large enough for any of its offers."""
        table, work = moment.offers, moment.workload
        sizes = table.gpus.sum(axis=1)
        own = (table.kind == moment.world.mark[job, c.ROW]) & (table.parts <= self.rule.most_parts)
        own &= (sizes >= work.least[job]) & (sizes <= work.devices[job])
        pools, held = moment.world.pool, np.zeros(MOST_PARTS + len(moment.site.domains), np.int64)
        np.add.at(held, pools[:, c.POOL_DOMAIN], pools[:, c.POOL_DEVICES])
        largest = np.sort(held)[::-1][:MOST_PARTS]
        return self.rule.most_parts if (table.gpus[own] <= largest).all(axis=1).any() else MOST_PARTS

    def _may(self, moment: Moment, job: int, place: JobPlace, kept: Kept) -> bool:
        """Whether it leaves alone what is kept for others."""
        for domain, gpus in zip(place.domains, moment.offers.gpus[place.offer].tolist(), strict=False):
            since_s, spare = kept.get(domain, (math.inf, 0))
            if gpus > spare and moment.now_s + self._ends_s(moment, job, place) > since_s:
                return False
        return True

    def _score(self, moment: Moment, job: int, place: JobPlace) -> int:
        if self.rule.place == FIRST:
            return place.domains[0]
        if self.rule.place == FULLEST:
            return place.free
        return sum(_filled(moment, job, place, part)[0] for part in range(len(place.domains)))

    def _begin(self, moment: Moment, job: int, kept: Kept) -> bool:
        if not moment.workload.elastic[job]:
            return moment.start(job)
        best = self._best(moment, job, kept)
        return best is not None and self._take(moment, job, best[0], kept)

    def _take(self, moment: Moment, job: int, place: JobPlace, kept: Kept) -> bool:
        world, ends_s = moment.world, moment.now_s + self._ends_s(moment, job, place)
        for part, domain in enumerate(place.domains):
            gpus = int(moment.offers.gpus[place.offer, part])
            if domain in kept and kept[domain][0] < ends_s:
                kept[domain] = kept[domain][0], kept[domain][1] - gpus
            if self.rule.place == FIRST:
                world.bin[:, c.BIN_RANK] = range(len(world.bin))
            if self.rule.place == GRADIENT:
                order = _filled(moment, job, place, part)[1]
                for node in range(len(world.bin)):
                    if world.pool[world.bin[node, c.BIN_POOL], c.POOL_DOMAIN] == domain:
                        world.bin[node, c.BIN_RANK] = order.index(node) if node in order else len(order)
        began = moment.begin(job, place)
        world.bin[:, c.BIN_RANK] = 0
        return began

    def _needs(self, moment: Moment, job: int) -> int:
        table, most = moment.offers, int(moment.workload.devices[job])
        if not moment.workload.elastic[job]:
            return most
        sizes = table.gpus.sum(axis=1)
        usable = (table.kind == moment.world.mark[job, c.ROW]) & (sizes >= moment.workload.least[job]) & (sizes <= most)
        return int(sizes[usable].min(initial=most))

    def _by_force(self, moment: Moment, job: int, needs: int) -> bool:
        """In the domain where the best of those who must stop ranks last; else, if it may span, anywhere."""
        running = self._ordered(moment, moment.running.tolist())
        last = takewhile(lambda other: self._is_far_behind(moment, job, other), reversed(running))
        behind = list(last)[::-1]  # up to the first who goes on
        found = list[tuple[int, int]]()
        for domain in range(len(moment.site.domains)):
            count = self._count(moment, job, needs, behind, domain)
            found += [] if count is None else [(count, domain)]
        if not found and self._most_parts(moment, job) > 1 and moment.workload.elastic[job]:
            count = self._count(moment, job, needs, behind, -1)
            found += [] if count is None else [(count, -1)]
        if not found:
            return False
        count, domain = min(found)
        stopped = [other for other in behind[len(behind) - count :] if _held(moment, other, domain)]
        for other in reversed(stopped):
            moment.pause(other)
        began = self._begin(moment, job, {})
        for other in stopped:
            self._begin(moment, other, {})
        return began

    def _count(self, moment: Moment, job: int, needs: int, behind: list[int], domain: int) -> int | None:
        """How many of the last must stop in a domain."""
        for count in range(1, len(behind) + 1):
            lent = [other for other in behind[len(behind) - count :] if _held(moment, other, domain)]
            if not lent or not _held(moment, behind[len(behind) - count], domain):
                continue
            if _free(moment, domain) + sum(_held(moment, other, domain) for other in lent) < needs:
                continue
            for other in lent:
                _lend(moment, other, 1)
            if moment.workload.elastic[job]:
                best = self._best(moment, job, {})
                fits = best is not None and best[0].gpus >= needs
            else:
                fits = find_pool(moment.world, job) >= 0
            for other in lent:
                _lend(moment, other, -1)
            if fits:
                return count
        return None

    def _is_far_behind(self, moment: Moment, job: int, other: int) -> bool:
        mine, its = self._key(moment, job), self._key(moment, other)
        if self.rule.stop > 0.0:
            own_s, its_s = (moment.remaining_s(each) / float(moment.sight.quickest[each]) for each in (job, other))
            if self._price(moment, job) * its_s - self._price(moment, other) * own_s < self.rule.stop:
                return False
        return its[0] > mine[0] or (its[0] == mine[0] and its[1] > mine[1] + self.rule.ahead * abs(mine[1]))

    def _replan(self, moment: Moment, job: int) -> bool:
        row = moment.world.job[job]
        if moment.world.mark[job, c.STATUS] != c.RUNNING or not moment.workload.elastic[job]:
            return False
        if math.isinf(row[c.READY]) or row[c.LEFT] <= 0.0:
            return False
        best, here = self._best(moment, job, {}), moment.running_at(job)
        stays_s = max(0.0, float(row[c.READY]) - moment.now_s) + moment.remaining_s(job) / max(1e-12, here.rate)
        stays = (self._runs(moment, job, here.gpus) + self._gpu_price(moment, job) * here.gpus) * stays_s
        stays += self._sends(moment, job, here)
        if best is None or best[1] + self.rule.stop >= (1.0 - self.rule.margin) * stays:
            return False
        moment.pause(job)
        return self._take(moment, job, best[0], {})


def _free(moment: Moment, domain: int) -> int:
    rows = [row for row in moment.world.pool if domain < 0 or row[c.POOL_DOMAIN] == domain]
    return int(sum(row[c.POOL_FREE] for row in rows))


def _lend(moment: Moment, job: int, sign: int) -> None:
    world, piece = moment.world, int(moment.world.mark[job, c.PIECE])
    while piece >= 0:
        row = world.piece[piece]
        world.bin[row[c.PIECE_BIN], c.BIN_FREE] += sign * row[c.PIECE_DEVICES]
        world.pool[world.bin[row[c.PIECE_BIN], c.BIN_POOL], c.POOL_FREE] += sign * row[c.PIECE_DEVICES]
        piece = int(row[c.PIECE_OF_JOB])


def _held(moment: Moment, job: int, domain: int) -> int:
    world, piece, found = moment.world, int(moment.world.mark[job, c.PIECE]), 0
    while piece >= 0:
        row = world.piece[piece]
        if domain < 0 or world.pool[world.bin[row[c.PIECE_BIN], c.BIN_POOL], c.POOL_DOMAIN] == domain:
            found += int(row[c.PIECE_DEVICES])
        piece = int(row[c.PIECE_OF_JOB])
    return found


def _useless(moment: Moment, free: list[int]) -> int:
    """Devices of nodes with so many free that a job cannot use, summed over the jobs that have come."""
    world, table, found = moment.world, moment.offers, 0
    for job in range(world.tally[c.ARRIVED]):
        mark, usable = world.mark[job], [0]
        if mark[c.STATUS] == c.REFUSED:
            continue
        if not mark[c.ELASTIC]:
            usable += [sum(free)] if sum(free) >= mark[c.DEVICES] else []
        for offer in np.flatnonzero((table.kind == mark[c.ROW]) & (table.parts == 1)) if mark[c.ELASTIC] else ():
            gpus, block = int(table.gpus[offer, 0]), int(table.block[offer])
            whole = sum(each // block * block for each in free)
            usable += [whole] if mark[c.LEAST] <= gpus <= mark[c.DEVICES] and gpus <= whole else []
        found += sum(free) - max(usable)
    return found


def _filled(moment: Moment, job: int, place: JobPlace, part: int) -> tuple[int, list[int]]:
    """What cannot be used any more, and the nodes in order, if each next one is where that grows least per device."""
    world, domain = moment.world, place.domains[part]
    block, left = int(moment.offers.block[place.offer]), int(moment.offers.gpus[place.offer, part])
    usable = pool_of(world, job, domain)
    free = {
        node: int(row[c.BIN_FREE])
        for node, row in enumerate(world.bin)
        if row[c.BIN_UP] and world.pool[row[c.BIN_POOL], c.POOL_DOMAIN] == domain
    }
    began, order = _useless(moment, list(free.values())), list[int]()
    while left > 0:
        now, options = _useless(moment, list(free.values())), []
        for node in free:
            takes = min(left, free[node] // block * block)
            if node in order or takes == 0 or world.bin[node, c.BIN_POOL] != usable:
                continue
            then = _useless(moment, list((free | {node: free[node] - takes}).values()))
            options.append(((then - now) / takes, free[node], node, takes))
        *_, node, takes = min(options)
        order.append(node)
        free[node] -= takes
        left -= takes
    return _useless(moment, list(free.values())) - began, order
