"""Levers: other ways to run a plan that leave every weight where it is, so they can be taken back.

One that the runtime pulls live (``Runtime.live_levers``: ``hippo:live`` does) costs nothing; any other is a stop in
which processes start anew (``plan_cache``, ``network.rules.move``).

* *relay*: a slow pair of domains sends through a third, where both links are there and have room;
* *order*: run-ahead, micro-batches in flight and schedule, made anew for the links as they are, as memory allows;
* *micro-batch*: half or twice as large;
* *fp8*: activations and their gradients cross domains in eight bits, where the user allows it (``Problem``), or again
  as they are;
* *shares*: of the batch among the pipelines of a plan, by what each of them manages.

Levers are pulled one after the other, each on the best found so far, and only what does clearly more is kept.
Letters: E links as in ``cluster.links``, K domains, p stages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hippo.errors import InfeasibleError, InputError
from hippo.network.plans.plan_cache import PlanCache
from hippo.network.plans.replan import Net, Replanner, under
from hippo.plan.plan import Pipeline, Plan, Relay, ScheduleChoice
from hippo.planners.orders import orders
from hippo.planners.run_ahead import ChainTimes, warm_ups
from hippo.problem.problem import Problem
from hippo.score.judge import memory
from hippo.simulate.costs import cost_model
from hippo.simulate.lower import lower
from hippo.simulate.program import Program
from hippo.simulate.routes import border_compression

Floats = NDArray[np.float64]
Pair = tuple[str, str]
GAIN = 0.005  # share by which a lever must do more than what was there before
FASTER = 1.15  # times the direct way that a relay must promise
FEW_RULES = 3  # of the generator of orders
LONG = 12_000  # operations of a pipeline above which an order of its own hardly matters


@dataclass(frozen=True, eq=False)
class Bench:
    """Tries plans of one problem under one state of its links and domains, in a cache of its own."""

    cache: PlanCache  # of trials
    state: Net
    compute: Floats | None = None  # (K,) factor on the length of operations
    usd_per_token: float = 0.0
    values: dict[Plan, float] = field(default_factory=dict)
    levers: dict[Plan, str] = field(default_factory=dict)  # what was pulled where a plan was first tried

    @property
    def problem(self) -> Problem:
        """The problem in its base state."""
        return self.cache.problem

    @cached_property
    def changed(self) -> Problem:
        """The problem in that state."""
        return under(self.cache.problem, self.state)

    def value(self, plan: Plan, lever: str = "") -> float:
        """Net tokens/s of the plan in that state; -inf: it cannot run in the base state, or not in this one."""
        if plan not in self.values:
            self.levers[plan] = lever
            index = self._add(plan)
            self.values[plan] = -np.inf if index is None else self.rate(self.cache, index)
        return self.values[plan]

    def rate(self, cache: PlanCache, index: int) -> float:
        """Net tokens/s of a configuration of any cache of the problem in that state; -inf: it cannot run."""
        slower = None if self.compute is None else self.compute[None]
        seconds = cache.step_time_s(index, self.state.bandwidth_bytes_per_s[None], self.state.latency_s[None], slower)
        tokens = cache.tokens_per_step * cache.configurations[index].worth
        egress = cache.egress_usd_per_step(index) / self.usd_per_token if self.usd_per_token > 0 else 0.0
        return float((tokens - egress) / seconds[0]) if np.isfinite(seconds[0]) else -np.inf

    def index(self, plan: Plan) -> int:
        """The place of a plan that was tried and can run."""
        found = self._add(plan)
        assert found is not None
        return found

    def _add(self, plan: Plan) -> int | None:
        return self.cache.add(plan, origin="lever", lever=self.levers.get(plan, ""))


def pull(
    cache: PlanCache,
    index: int,
    bandwidth_bytes_per_s: Floats,
    latency_s: Floats,
    *,
    compute: Floats | None = None,
    usd_per_token: float = 0.0,
) -> list[int]:
    """Pulls the levers of a configuration under one state of the links, (E,), and of the domains, (K,).

    Returns the configurations, added where the cache did not know them, that each do more than the one before, from
    the best backwards; none: no lever helps. Some tens of ms.
    """
    bench = Bench(PlanCache(cache.problem), Net(bandwidth_bytes_per_s, latency_s), compute, usd_per_token)
    found = better(bench, cache.configurations[index].plan)
    added = []
    for plan, _ in found:
        added.append(cache.adopt(bench.cache, bench.index(plan)))
    return added[::-1]


def better(bench: Bench, plan: Plan) -> list[tuple[Plan, str]]:
    """Plans with levers pulled, each on the one before where that was better, and what was pulled."""
    best, value, pulled, found = plan, bench.value(plan), "", []
    for name, variants in LEVERS:
        top, tried = value, None
        for each in _possible(variants(bench, best)):
            if bench.value(each, name) > top:
                top, tried = bench.value(each, name), each
        if tried is not None and (not np.isfinite(value) or top > value + GAIN * abs(value)):
            best, value = tried, top
            pulled = f"{pulled}+{name}" if pulled else name
            found.append((best, pulled))
    return found


def better_again(bench: Bench, plan: Plan) -> list[Plan]:
    """The plans of ``better``. While plans made anew are remembered, levers are, too: those of one plan in one state
    are pulled once for all benches."""
    replanner = Replanner.of(bench.problem)
    if not replanner.remembers:
        return [each for each, _ in better(bench, plan)]
    compute = None if bench.compute is None else bench.compute.tobytes()
    key = "levers", plan, *(each.tobytes() for each in bench.state), compute, bench.usd_per_token
    if key not in replanner.known:
        alone = replace(bench, cache=PlanCache(bench.problem), values={}, levers={})
        found = [each for each, _ in better(alone, plan)]
        replanner.known[key] = found, alone.values, alone.levers
    found, values, levers = replanner.known[key]
    for each, value in values.items():
        if each not in bench.values:
            bench.values[each], bench.levers[each] = value, levers[each]
    return list(found)


def _possible(variants: Iterator[Plan]) -> Iterator[Plan]:
    """Those that can be made; none where the state lacks a link that the plan needs, or no memory is left."""
    try:
        yield from variants
    except (InputError, InfeasibleError):
        return


def routed(bench: Bench, plan: Plan) -> Iterator[Plan]:
    """The plan relayed as suits the state, and, where it has relays, without any; nothing where the runtime relays
    nothing."""
    if not bench.problem.rules.relays:
        return
    chosen = _relays(bench.problem, plan, bench.state)
    if set(chosen) != set(plan.relays):
        yield replace(plan, relays=chosen)
    if plan.relays and chosen:
        yield replace(plan, relays=())


def timed(bench: Bench, plan: Plan) -> Iterator[Plan]:
    """The plan with orders of operations made for the state, and with the run-ahead that suits it."""
    rules = bench.problem.rules
    if plan.interleave > 1 or all(len(line.stages) == 1 for line in plan.pipelines):
        return
    if rules.live_limit:
        yield from _run_ahead(bench.changed, plan)
    if rules.live_limit and rules.schedules is None:
        yield from _ordered(bench.changed, plan)


def compressed(bench: Bench, plan: Plan) -> Iterator[Plan]:
    """The plan with every border between domains in eight bits, or again without, each with orders of its own, too."""
    for other in either(bench.problem, plan)[1:]:
        yield other
        yield from timed(bench, other)


def split(bench: Bench, plan: Plan) -> Iterator[Plan]:
    """The plan with micro-batches of half and of twice the size, each with orders of its own."""
    lines = plan.pipelines
    if plan.micro_batch % 2 == 0:
        halved = tuple(_waves(line, 2 * line.num_micro_batches) for line in lines)
        yield from timed(bench, replace(plan, pipelines=halved, micro_batch=plan.micro_batch // 2))
    if all(line.num_micro_batches % 2 == 0 for line in lines):
        doubled = tuple(_waves(line, line.num_micro_batches // 2) for line in lines)
        yield from timed(bench, replace(plan, pipelines=doubled, micro_batch=2 * plan.micro_batch))


def dealt(bench: Bench, plan: Plan) -> Iterator[Plan]:
    """The plan with the batch dealt to its pipelines by the pace that each of them keeps in that state."""
    widths = [line.stages[0].dp for line in plan.pipelines]
    if len(widths) < 2 or len(set(widths)) > 1 or bench.problem.rules.equal_shares:
        return
    pace = np.array([_seconds_per_wave(bench, plan, index) for index in range(len(widths))])
    total, share = sum(line.num_micro_batches for line in plan.pipelines), (1.0 / pace) / (1.0 / pace).sum()
    waves = np.maximum(1, np.floor(share * total)).astype(int)
    for each in np.argsort(-(share * total - waves), kind="stable")[: max(0, total - int(waves.sum()))]:
        waves[each] += 1
    if waves.sum() == total and waves.tolist() != [line.num_micro_batches for line in plan.pipelines]:
        lines = tuple(_waves(line, int(count)) for line, count in zip(plan.pipelines, waves, strict=True))
        yield replace(plan, pipelines=lines, schedule=ScheduleChoice("1f1b"))


Lever = Callable[[Bench, Plan], Iterator[Plan]]
LEVERS: tuple[tuple[str, Lever], ...] = (
    ("relay", routed),
    ("order", timed),
    ("fp8", compressed),
    ("micro-batch", split),
    ("shares", dealt),
)
"""In the order in which they are pulled."""


def either(problem: Problem, plan: Plan) -> tuple[Plan, ...]:
    """The plan, and, where what crosses domains may be compressed, the same with every border in eight bits or, of one
    that has them, with none."""
    pairs = () if plan.compression else border_compression(problem, plan.pipelines)
    return (plan, replace(plan, compression=pairs)) if pairs or plan.compression else (plan,)


# ------------------------------------------------------------------------------------------------------------- relays
def _borders(plan: Plan) -> list[Pair]:
    """Directed pairs of domains that follow each other in a pipeline, both ways."""
    pairs: dict[Pair, None] = {}
    for line in plan.pipelines:
        for one, two in zip(line.stages, line.stages[1:], strict=False):
            if one.domain != two.domain:
                pairs[one.domain, two.domain] = pairs[two.domain, one.domain] = None
    return list(pairs)


def _pairs(problem: Problem, plan: Plan) -> list[Pair]:
    """The same, and the pairs that agree: both ends of a pipeline on a tied embedding, replicas on their gradients."""
    pairs = dict.fromkeys(_borders(plan))
    for line in plan.pipelines:
        one, two = line.stages[0].domain, line.stages[-1].domain
        if problem.model.tied and one != two:
            pairs |= {(one, two): None, (two, one): None}
    names = plan.domains if len(plan.pipelines) > 1 else ()
    pairs |= {(one, two): None for one in names for two in names if one != two}
    return list(pairs)


def _relays(problem: Problem, plan: Plan, state: Net) -> tuple[Relay, ...]:
    """A relay for every pair that is much slower directly, the slowest first; links already in use count as shared."""
    at, borders = problem.cluster.link_index, set(_borders(plan))
    bandwidth = state.bandwidth_bytes_per_s
    load: Counter[Pair] = Counter(borders)

    def rate(source: str, destination: str, more: int) -> float:
        link = at.get((source, destination), -1)
        return 0.0 if link < 0 else float(bandwidth[link]) / max(1, load[source, destination] + more)

    found = []
    for pair in sorted(_pairs(problem, plan), key=lambda each: rate(each[0], each[1], 0)):
        own = 1 if pair in borders else 0
        direct = rate(pair[0], pair[1], 1 - own)
        ways = [
            (min(rate(pair[0], domain.name, own), rate(domain.name, pair[1], own)), domain.name)
            for domain in problem.cluster.domains
            if domain.name not in pair
        ]
        best = max(ways, default=(0.0, ""))
        if best[0] > FASTER * direct:
            found.append(Relay(*pair, best[1]))
            load[pair] -= own
            load[pair[0], best[1]] += own
            load[best[1], pair[1]] += own
    return tuple(found)


# ------------------------------------------------------------------------------------------------------------- orders
def _waves(line: Pipeline, count: int) -> Pipeline:
    """The pipeline with so many waves; its order is made anew."""
    return replace(line, num_micro_batches=count, warm_up=(), order=())


def _plain(plan: Plan) -> Plan:
    """The plan with plain 1F1B, from which orders are made."""
    lines = tuple(replace(line, warm_up=(), order=()) for line in plan.pipelines)
    return replace(plan, pipelines=lines, schedule=ScheduleChoice("1f1b"))


def _ordered(problem: Problem, plan: Plan) -> Iterator[Plan]:
    longest = max(3 * len(line.stages) * line.num_micro_batches for line in plan.pipelines)
    found = orders(problem, _plain(plan), rules=FEW_RULES) if longest <= LONG else None
    if found is not None:
        lines = tuple(replace(line, warm_up=(), order=own) for line, own in zip(plan.pipelines, found, strict=True))
        yield replace(plan, pipelines=lines, schedule=ScheduleChoice("best"))


def _run_ahead(problem: Problem, plan: Plan) -> Iterator[Plan]:
    """The plan whose stages run ahead: as deep as memory allows, and no deeper than the pace needs."""
    program = lower(problem, _plain(plan))
    chains = [_chain(problem, plan, program, index) for index in range(len(plan.pipelines))]
    found = [warm_ups(chain) for chain in chains]
    if not all(found):
        return
    for pick in (0, -1):
        lines = tuple(
            replace(line, warm_up=ways[pick], order=()) for line, ways in zip(plan.pipelines, found, strict=True)
        )
        depth = max((line.warm_up[0] for line in lines if line.warm_up), default=1)
        yield replace(plan, pipelines=lines, schedule=ScheduleChoice("cross-domain", depth))


def _chain(problem: Problem, plan: Plan, program: Program, index: int) -> ChainTimes:
    rows = np.flatnonzero(program.rank_pipeline == index)
    forward, seconds = program.forward_s[rows, 0], _busy_s(program, rows)
    trips = np.array([_trip_s(program, int(row)) for row in rows[:-1]])
    usable, start = cost_model(problem).usable_memory_bytes(), int(rows[0])
    stages = memory(problem, _plain(plan))[start : start + len(rows)]
    room = [(usable - each.peak_bytes + each.activation_bytes * each.live_micro_batches) for each in stages]
    waves = plan.pipelines[index].num_micro_batches
    return ChainTimes(
        forward_s=forward,
        seconds=seconds,
        delays_s=np.concatenate([[0.0], [trip for trip, _ in trips]]) if len(trips) else np.zeros(1),
        room=np.array(
            [np.floor(left / max(each.activation_bytes, 1.0)) for left, each in zip(room, stages, strict=True)]
        ),
        waves=waves,
        slowest_s=float(trips[:, 1].max()) if len(trips) else 0.0,
    )


def _busy_s(program: Program, rows: NDArray[np.int64]) -> Floats:
    """Seconds of one wave on each rank, (p,)."""
    found: Floats = (program.forward_s + program.backward_s + program.weight_s)[rows].sum(axis=1)
    return found


def _trip_s(program: Program, rank: int) -> tuple[float, float]:
    """Round trip of one wave between a rank and the next, and the longer time that it takes on a link."""
    there = _way_s(program, "down", rank)
    back = _way_s(program, "up", rank + 1)
    return there[0] + back[0], max(there[1], back[1])


def _way_s(program: Program, side: str, rank: int) -> tuple[float, float]:
    """Seconds until one wave has arrived, and how long it takes on its slowest link."""
    size, route = float(getattr(program, f"{side}_bytes")[rank, 0]), getattr(program, f"{side}_route")[rank, 0]
    nic, delay = (
        float(getattr(program, f"{side}_nic_bytes_per_s")[rank, 0]),
        getattr(program, f"{side}_delay_s")[rank, 0],
    )
    links = [int(link) for link in route if link >= 0]
    if not links:
        return float(delay), 0.0
    sending = size / min(nic, *(float(program.link_bandwidth_bytes_per_s[link]) for link in links))
    return sending + float(program.link_latency_s[links].sum()), sending


def _seconds_per_wave(bench: Bench, plan: Plan, index: int) -> float:
    """Pace of one pipeline alone: its slowest stage, or its slowest border."""
    program = lower(bench.changed, _plain(plan))
    rows = np.flatnonzero(program.rank_pipeline == index)
    slower = np.ones(len(rows)) if bench.compute is None else bench.compute[program.rank_domain[rows]]
    borders = max((_trip_s(program, int(row))[1] for row in rows[:-1]), default=0.0)
    return max(float((_busy_s(program, rows) * slower).max()), borders)
