"""Offers of elastic training: rates by interpolation and by the share rule, held against plays of all messages.

    hippo bench offers
    python -m benchmarks.offers [cases]

Three kinds of training on four hubs, parts of 8 to 32 GPUs. *Interpolated*: the rate that the table tells at bandwidths
and latencies between the points of its grid, over the plan played there, less one; also with links that differ, where
the table knows the slowest bandwidth and the longest latency alone; beside it what interpolation of the rate itself,
over the logarithm of the bandwidth, would tell. *Shared*: two or three jobs whose hops share a link or more, drawn by a
committed seed, each with its steps one after the other and from an instant of its own; messages of one job take a link
in turn, jobs share it evenly while they send (`fair`), or all messages take it in turn as they ask (`in turn`). *Told*
by a rule: what a job has of a link is an even share of it (`even`); or the max-min level if it took all it can get and
others what they send in the mean (`level`); or the link over one and the shares of time in which others send (`time`).
Rates are undisturbed first and then those that the rule itself leads to. Off: told over played, less one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import simpy
from numpy.typing import NDArray
from simpy.events import AllOf, Event

from hippo.jobs.job import TrainingKind
from hippo.jobs.placement.offer_plans import planned_offers
from hippo.jobs.placement.offers import OfferTable
from hippo.problem.catalogue.clusters import cluster
from hippo.score.judge import Judged
from hippo.simulate.batch import step_times
from hippo.simulate.reference import SimulatedLink, SimulatedWorld, Steps
from hippo.simulate.timeline import link_bytes

Floats = NDArray[np.float64]
Hop = tuple[int, int]  # from a domain to another

SEED, CASES = 20261123, 30
KINDS = (
    TrainingKind("llama-3.2-1b", 1024, 4096),
    TrainingKind("llama-3-8b", 384, 4096),
    TrainingKind("qwen2.5-14b", 768, 4096),
)
SIZES = (8, 16, 32)
STATES = 200  # drawn for each offer
LATENCY_S = 0.02
LOADS = (0.3, 3.0)  # what undisturbed jobs would send over the busiest link, over what it carries
STEPS, LEFT_OUT = 12, 2  # counted at least of each job, and before them
MOST_OPERATIONS = 3000  # of a step that SimPy plays


@dataclass(frozen=True)
class Planned:
    """An offer over several domains, and its plan."""

    table: OfferTable
    row: int
    judged: Judged

    @property
    def step_s(self) -> float:
        """Seconds of a step at rate 1."""
        kind = self.table.kinds[0]
        return float(kind.batch * kind.seq / self.table.tokens_per_s[0])

    def rate_at(self, bandwidth: Floats, latency: Floats) -> Floats:
        """As the table tells it, (S,)."""
        return self.table.rate_at(np.full(len(bandwidth), self.row), bandwidth, latency)

    def played(self, bandwidth: Floats, latency: Floats) -> Floats:
        """As played, (S,), under states of the links (S, E): bytes on the wire, one way."""
        transport = self.judged.problem.rules.transport
        states = bandwidth * transport.goodput, latency + transport.overhead_s
        return self.step_s / step_times(self.judged.program, bandwidth_bytes_per_s=states[0], latency_s=states[1])

    @property
    def hops(self) -> tuple[Hop, ...]:
        """Directed links in use, as positions of their parts, by link of the plan's cluster; (-1, -1): it is idle."""
        names = [part.name for part in self.judged.problem.cluster.domains]
        used = link_bytes(self.judged.program) > 0
        return tuple(
            (names.index(link.source), names.index(link.destination)) if busy else (-1, -1)
            for link, busy in zip(self.judged.problem.cluster.links, used, strict=True)
        )


def planned() -> list[Planned]:
    """All offers over several domains."""
    found = []
    for kind in KINDS:
        table, plans = planned_offers(cluster("four-hubs"), kind, sizes=SIZES)
        found += [Planned(table, row, plans[row]) for row in np.flatnonzero(table.parts > 1).tolist()]
    return found


# ------------------------------------------------------------------------------------------------------ interpolation
def interpolated(offers: Sequence[Planned], rng: np.random.Generator, spread: float) -> dict[str, Floats]:
    """Told over played, less one, of all offers in states of the links that are drawn; ``spread``: how many times a
    hop may have more or less than another."""
    off: dict[str, list[Floats]] = {"seconds over 1 / bandwidth": [], "rate over log bandwidth": []}
    for each in offers:
        table, links = each.table, each.judged.problem.cluster.links
        pairs = sorted({tuple(sorted((link.source, link.destination))) for link in links})
        pair = np.array([pairs.index(tuple(sorted((link.source, link.destination)))) for link in links])
        apart = rng.uniform(-0.5, 0.5, (STATES, len(pairs)))[:, pair] * np.log(spread)
        ends = np.log(table.bandwidth_bytes_per_s[[0, -1]]) + 0.5 * np.log(spread) * np.array([1, -1])
        bandwidth = np.exp(rng.uniform(float(ends[0]), float(ends[1]), (STATES, 1)) + apart)
        first, last = table.latency_s[[0, -1]].tolist()
        latency = rng.uniform(first, last, (STATES, len(pairs) if spread > 1 else 1))
        latency = latency[:, pair] if spread > 1 else np.repeat(latency, len(links), axis=1)
        used = [link for link, hop in enumerate(each.hops) if hop[0] >= 0]
        worst = bandwidth[:, used].min(axis=1), latency[:, used].max(axis=1)
        found = each.played(bandwidth, np.ascontiguousarray(latency))
        off["seconds over 1 / bandwidth"].append(each.rate_at(*worst) / found - 1)
        off["rate over log bandwidth"].append(by_logarithm(each, *worst) / found - 1)
    return {name: np.concatenate(rows) for name, rows in off.items()}


def by_logarithm(offer: Planned, bandwidth: Floats, latency: Floats) -> Floats:
    """The rate itself, linear in the latency and in the logarithm of the bandwidth, (S,)."""
    table, at = offer.table, np.log(bandwidth)
    of_latency = np.array([np.interp(at, np.log(table.bandwidth_bytes_per_s), row) for row in table.rate[offer.row]])
    return np.array([np.interp(late, table.latency_s, row) for late, row in zip(latency, of_latency.T, strict=True)])


# --------------------------------------------------------------------------------------------------------- joint plays
class FairLink:
    """A link that the jobs which send share evenly; each has one message on it at a time."""

    def __init__(self, env: simpy.Environment, bandwidth: float) -> None:
        self.env, self.bandwidth = env, bandwidth
        self.left: dict[Event, float] = {}  # bytes of each message under way
        self.since, self.changes = 0.0, 0

    def carry(self, num_bytes: float) -> Event:
        """Happens when the last byte has left."""
        self._count()
        over = self.env.event()
        self.left[over] = num_bytes
        self._await()
        return over

    def _count(self) -> None:
        if self.left:
            sent = (self.env.now - self.since) * self.bandwidth / len(self.left)
            self.left = {over: max(0.0, left - sent) for over, left in self.left.items()}
        self.since = self.env.now

    def _await(self) -> None:
        self.changes += 1
        if self.left:
            seconds = min(self.left.values()) * len(self.left) / self.bandwidth
            self.env.process(self._next(self.changes, seconds))

    def _next(self, change: int, seconds: float) -> Steps:
        yield self.env.timeout(seconds)
        if change != self.changes:
            return  # another message came or went before
        self._count()
        least = min(self.left.values())
        for over in [over for over, left in self.left.items() if left <= least]:
            del self.left[over]
            over.succeed()
        self._await()


class JobsLink(SimulatedLink):
    """What one job sees of a link: its own messages take it in turn."""

    def __init__(self, fair: FairLink, latency: float) -> None:
        super().__init__(fair.env, fair.bandwidth, latency, 1.0)
        self.fair = fair

    def carry(self, num_bytes: float) -> Steps:
        """Beside what other jobs send."""
        yield self.fair.carry(num_bytes)
        self.release()


class InTurn(SimulatedLink):
    """A link whose messages all take it in turn; the key of a job's messages says which job it is."""

    def __init__(self, link: SimulatedLink, job: int) -> None:
        super().__init__(link.env, link.bandwidth, link.latency, 1.0)
        self.link, self.job = link, job

    def request(self, key: int) -> Event:
        """Of the link that all jobs share."""
        return self.link.request((self.job << 32) + key)

    def release(self) -> None:
        """Let it go."""
        self.link.release()


class OneStep(SimulatedWorld):
    """A step of one job among others: their environment and their links."""

    def __init__(self, offer: Planned, env: simpy.Environment, links: Sequence[SimulatedLink]) -> None:
        self._shared = env
        program = offer.judged.program
        super().__init__(program, program.link_bandwidth_bytes_per_s, program.link_latency_s)
        self.links = list(links)

    @property
    def env(self) -> simpy.Environment:
        """That of all jobs."""
        return self._shared

    @env.setter
    def env(self, _: simpy.Environment) -> None:
        """A world of its own has one of its own."""

    def begin(self) -> Event:
        """Begins the step; happens at its end."""
        assert self.calls is None, "messages go when they are made"
        ranks = [self.env.process(self._rank(rank)) for rank in range(len(self.ready))]
        first = 2 * len(self.program.order)
        for index, group in enumerate(self.program.groups):
            self.env.process(self._group(index, group, first))
            first += len(group.links)
        return AllOf(self.env, ranks)


@dataclass(frozen=True)
class Case:
    """Jobs on domains of one site whose links all carry the same."""

    offers: tuple[Planned, ...]
    domains: tuple[tuple[int, ...], ...]  # of each job's parts
    bandwidth: float  # bytes/s on the wire
    begin_s: tuple[float, ...]

    def hops(self, job: int) -> list[Hop | None]:
        """The site's link of each link of a job's plan; None: it carries nothing."""
        at = self.domains[job]
        return [None if hop[0] < 0 else (at[hop[0]], at[hop[1]]) for hop in self.offers[job].hops]

    def pairs(self, job: int) -> set[frozenset[int]]:
        """Hops of a job as the table knows them."""
        return {frozenset(hop) for hop in self.hops(job) if hop is not None}

    def played(self, *, fair: bool) -> Floats:
        """Rates of the jobs, (n,), where all their messages are played in one timeline."""
        env = simpy.Environment()
        transport = self.offers[0].judged.problem.rules.transport
        rate, late = self.bandwidth * transport.goodput, LATENCY_S + transport.overhead_s
        links: dict[tuple[Hop | None, int], Any] = {}
        for job in range(len(self.offers)):
            for hop in self.hops(job):
                own = -1 if hop is not None else job
                if (hop, own) not in links:
                    links[hop, own] = FairLink(env, rate) if fair else SimulatedLink(env, rate, late, 1.0)
        ended: list[list[float]] = [[] for _ in self.offers]
        enough = env.event()

        def run(job: int) -> Generator[Event, Any, None]:
            yield env.timeout(self.begin_s[job])
            while True:
                shared = [links[hop, -1 if hop is not None else job] for hop in self.hops(job)]
                own = [JobsLink(each, late) if fair else InTurn(each, job) for each in shared]
                yield OneStep(self.offers[job], env, own).begin()
                ended[job].append(env.now)
                if not enough.triggered and min(map(len, ended)) > STEPS + LEFT_OUT:
                    enough.succeed()

        for job in range(len(self.offers)):
            env.process(run(job))
        env.run(until=enough)
        steps = [(times[-1] - times[LEFT_OUT]) / (len(times) - 1 - LEFT_OUT) for times in ended]
        return np.array([each.step_s / seconds for each, seconds in zip(self.offers, steps, strict=True)])

    def told(self, rule: Rule) -> Floats:
        """Rates of the jobs, (n,), that a rule leads to."""
        n = len(self.offers)
        level = np.full(n, self.bandwidth)
        rate = self._at(level)
        for _ in range(100):
            demand = np.array([each.table.hop_bytes[each.row] for each in self.offers]) * rate
            found = np.full(n, self.bandwidth)
            for job in range(n):
                for pair in self.pairs(job):
                    others = [other for other in range(n) if other != job and pair in self.pairs(other)]
                    found[job] = min(found[job], rule(self.bandwidth, demand[others], level[others]))
            level = 0.5 * (level + found)
            rate = self._at(level)
        return rate

    def _at(self, level: Floats) -> Floats:
        late = np.array([LATENCY_S])
        return np.array([float(each.rate_at(level[[job]], late)[0]) for job, each in enumerate(self.offers)])


Rule = Callable[[float, Floats, Floats], float]
"""What a job has of a link, of what it carries, what the others send in the mean and what they have, each (m,)."""


def even(carries: float, sent: Floats, _: Floats) -> float:
    """A share for each."""
    return carries / (1 + len(sent))


def level(carries: float, sent: Floats, _: Floats) -> float:
    """The max-min level where this job takes all it can get and others no more than they send."""
    left, among = carries, 1 + len(sent)
    for each in np.sort(sent):
        if each >= left / among:
            break
        left, among = left - float(each), among - 1
    return left / among


def time(carries: float, sent: Floats, have: Floats) -> float:
    """While another sends, half of the link is left; how much of the time that is."""
    return carries / (1.0 + float(np.minimum(1.0, sent / have).sum()))


RULES: dict[str, Rule] = {"even": even, "level": level, "time": time}


def drawn(offers: Sequence[Planned], rng: np.random.Generator) -> Case:
    """Two or three jobs; the first two, and any third, have the hop between domains 0 and 1, or that of 1 and 2."""
    small = [each for each in offers if each.judged.plan.operations <= MOST_OPERATIONS]
    chosen = tuple(small[at] for at in rng.choice(len(small), rng.integers(2, 4), replace=False))
    domains = tuple((0, 1, 2, 3)[: int(each.table.parts[each.row])] for each in chosen)
    alone = sum(float(each.table.hop_bytes[each.row] * each.table.rate[each.row, 1, -1]) for each in chosen)
    load = float(np.exp(rng.uniform(*np.log(LOADS))))
    grid = chosen[0].table.bandwidth_bytes_per_s
    bandwidth = float(np.clip(alone / load, grid[0], grid[-1]))
    return Case(chosen, domains, bandwidth, tuple((rng.random(len(chosen)) * max(e.step_s for e in chosen)).tolist()))


def main(cases: int = CASES) -> None:
    """Prints what the module says."""
    offers = planned()
    rng = np.random.default_rng(SEED)
    raised = max(each.table.raised for each in offers)
    print(f"{len(offers)} offers over several domains of {len(KINDS)} kinds; rates raised to ascend by {raised:.2%}\n")
    print("| interpolated | states | mean | 95th percentile | lowest | highest |")
    print("|---|---|---|---|---|---|")
    of_several = [each for each in offers if each.table.parts[each.row] > 2]
    for told, which, spread in (
        ("equal links", offers, 1.0),
        ("three or four parts, up to 2 times apart", of_several, 2.0),
        ("three or four parts, up to 10 times apart", of_several, 10.0),
    ):
        for name, off in interpolated(which, rng, spread).items():
            print(f"| {told}, {name} | {len(off)} | {row(off)} |", flush=True)
    print("\n| shared | rule | jobs | mean | 95th percentile | lowest | highest |")
    print("|---|---|---|---|---|---|---|")
    found = [drawn(offers, rng) for _ in range(cases)]
    for fair in (True, False):
        played = np.concatenate([case.played(fair=fair) for case in found])
        alone = np.concatenate([case.told(lambda carries, *_: carries) for case in found])
        for name, rule in RULES.items():
            off = np.concatenate([case.told(rule) for case in found]) / played - 1
            print(f"| {'fair' if fair else 'in turn'} | {name} | {len(off)} | {row(off)} |", flush=True)
        print(f"| {'fair' if fair else 'in turn'} | as if alone | {len(off)} | {row(alone / played - 1)} |", flush=True)


def row(off: Floats) -> str:
    """Mean and 95th percentile of the absolute values, and the ends."""
    size = np.abs(off)
    return f"{size.mean():.1%} | {np.percentile(size, 95):.1%} | {off.min():+.1%} | {off.max():+.1%}"


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:2]))
