"""A whole step of a plan under a runtime, message by message (SimPy): pipelines on shared links, then their sums.

Given: the plan, and the seconds that a stage computes, agrees inside its domain and updates (the cost model's). All
else follows the runtimes' rules, without a line of the engine's. The turns of ranks are those of ``message_rules``,
links are shared max-min fairly by all that is under way on them, as TCP shares them, and sums go hop by hop:

* A ring of n: a member sends a piece (1 / n) when it has heard the one before and its own last one has left, 2 (n - 1)
  times in all. ``ring``: all lanes, domain after domain, each a member; a hop between domains leaves from the nodes of
  the one lane that sends it. ``two-level``: a member a domain, whose lanes send shares of it from all their nodes.
* NCCL (``megatron``, ``deepspeed``): ``src/device/all_reduce.h`` hands on at most half of each channel's buffer a hop,
  and makes all hops of that before the next. Sums begin when a stage has no work left: Megatron-LM without
  ``--overlap-grad-reduce``, DeepSpeed's ``ReduceGrads``. Both hold a tied matrix twice: replicas sum each copy, then
  (Megatron-LM, ``finalize_model_grads``) or before (``ReduceTiedGrads``) the ends of each pipeline sum the two.
* gloo (``torch``): one tied matrix, summed by all that hold it, behind the rest. ``allreduce.cc`` keeps two segments of
  1 MiB in flight on each hop, each asked for by its receiver; ``ProcessGroupGloo`` has two threads: four in flight.
* ``hippo``: the executor sums buckets of whole layers of 8 MB, the last layers first, each as soon as it is made in the
  last operation, all at once on the links; a tied matrix as with torch.

Not played: relays, chunks, parameters gathered over links, and the one number that clipping sums.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from math import ceil, inf

import simpy
from simpy.events import Event

from hippo.cost.cost_model import CostModel
from hippo.cost.stage import StageCost
from hippo.plan.plan import Pipeline as PlannedPipeline
from hippo.plan.plan import Plan, Stage
from hippo.problem.problem import Problem
from hippo.schedule.schedule import order_of
from hippo.simulate.costs import layout

from .message_rules import Border, Line, Orders, Pipeline, lines_of, one_f_one_b
from .messages import TRANSPORTS, Player, Steps

NCCL_TURN_BYTES, GLOO_WINDOW_BYTES, BUCKET_BYTES = 4 * 2**20, 4 * 2**20, 8e6
Loads = Mapping[Hashable, float]  # of a flow: what it takes of each resource, per byte


class Wires:
    """Links and nodes' ways out, shared max-min fairly."""

    def __init__(self, env: simpy.Environment, rates: Mapping[Hashable, float]) -> None:
        self.env, self.rates = env, dict(rates)
        self.left, self.pace, self.loads = dict[Event, float](), dict[Event, float](), dict[Event, Loads]()
        self.since, self.version = 0.0, 0

    def carry(self, num_bytes: float, loads: Loads) -> Event:
        """Ends when the last byte has left."""
        done = self.env.event()
        if num_bytes <= 0 or not loads:
            return done.succeed()
        self._advance()
        self.left[done], self.loads[done] = num_bytes, loads
        self._share()
        return done

    def _advance(self) -> None:
        for flow, pace in self.pace.items():
            self.left[flow] -= pace * (self.env.now - self.since)
        self.since = self.env.now

    def _share(self) -> None:
        """The resource that allows least fixes the pace of all that pass it, then the next of what is left."""
        free = {key: self.rates[key] for loads in self.loads.values() for key in loads}
        waiting, self.pace = set(self.left), {}
        while waiting:
            asked: dict[Hashable, float] = {}
            for flow in waiting:
                for key, load in self.loads[flow].items():
                    asked[key] = asked.get(key, 0.0) + load
            tight = min(asked, key=lambda key: free[key] / asked[key])
            pace = free[tight] / asked[tight]
            for flow in [each for each in waiting if tight in self.loads[each]]:
                self.pace[flow] = pace
                waiting.remove(flow)
                for key, load in self.loads[flow].items():
                    free[key] = max(free[key] - load * pace, 0.0)
        self.version += 1
        if self.pace:
            self.env.process(self._wake(self.version, min(self.left[each] / self.pace[each] for each in self.pace)))

    def _wake(self, version: int, after_s: float) -> Steps:
        yield self.env.timeout(max(after_s, 0.0))
        if version != self.version:
            return
        self._advance()
        for flow in [each for each, left in self.left.items() if left <= 1e-9 * self.pace[each] + 1e-3]:
            del self.left[flow], self.loads[flow], self.pace[flow]
            flow.succeed()
        self._share()


Place = tuple[int, int]  # pipeline, stage


@dataclass(frozen=True)
class Hop:
    """A way from GPUs to others."""

    loads: Loads  # empty: inside a domain
    delay_s: float
    seconds_per_byte: float = 0.0  # inside a domain
    near: bool = False  # in one node


@dataclass(frozen=True)
class Member:
    """Of a ring, with its hop to the next."""

    stages: tuple[Place, ...]
    hop: Hop


@dataclass(frozen=True)
class Sum:
    """Stages that hold the same parameters."""

    stages: tuple[Place, ...]
    parameters: float
    first: int = 0  # layer
    held: tuple[float, ...] = ()  # parameters of each layer; empty: of the tied matrix alone


class WholeStep:
    """One step of a plan."""

    def __init__(self, problem: Problem, plan: Plan) -> None:
        assert not plan.relays, "no runtime relays"
        assert plan.interleave == 1, "chunks are not played here"
        assert plan.sharding != "full", "gathers over links are not played here"
        self.problem, self.plan, self.env = problem, plan, simpy.Environment()
        self.runtime, self.cost = problem.runtime, CostModel(problem)
        self.overhead_s = problem.rules.transport.overhead_s
        self.goodput = problem.rules.transport.goodput
        self.wires = Wires(self.env, self._rates())
        self.costs = [[self._cost(line, stage) for stage in line.stages] for line in plan.pipelines]
        self.players_and_lines = [self._player(*each) for each in zip(plan.pipelines, self.costs, strict=True)]
        self.players = [player for player, _ in self.players_and_lines]
        self.over = dict[Place, Event]()  # a stage's last operation has ended
        self.finished = list[float]()

    # ----------------------------------------------------------------------------------------------------------- given
    def _cost(self, line: PlannedPipeline, stage: Stage) -> StageCost:
        return self.cost.stage(stage.domain, *stage.layers, layout(self.plan, line, stage))

    def _rates(self) -> dict[Hashable, float]:
        rates: dict[Hashable, float] = {}
        for link in self.problem.cluster.links:
            pair = link.source, link.destination
            if link.bandwidth_bytes_per_s is not None:
                rates["link", pair] = link.bandwidth_bytes_per_s * self.goodput
            if link.per_node_bytes_per_s is not None:
                for node in range(self.problem.cluster.domain(link.source).nodes):
                    rates[f"{link.source}/{node}", pair] = link.per_node_bytes_per_s * self.goodput
        return rates

    def _away(self, source: str, destination: str, nodes: Sequence[str]) -> Hop:
        """From so many nodes of a domain to another one: each sends its part."""
        pair = source, destination
        link = self.problem.cluster.link(*pair)
        assert link is not None, f"no link from {source} to {destination}"
        loads = {("link", pair): 1.0, **{(node, pair): 1.0 / len(nodes) for node in nodes}}
        delay_s = link.latency_s + self.overhead_s
        return Hop({key: load for key, load in loads.items() if key in self.wires.rates}, delay_s)

    def _inside(self, domain: str, *, same_node: bool) -> Hop:
        """Between two GPUs of a domain."""
        start_s = self.cost.p2p_seconds(domain, 0.0, same_node=same_node)
        seconds = (self.cost.p2p_seconds(domain, 1e9, same_node=same_node) - start_s) / 1e9
        return Hop({}, start_s, seconds, near=same_node)

    # ------------------------------------------------------------------------------------------------------- pipelines
    def _player(self, line: PlannedPipeline, costs: Sequence[StageCost]) -> tuple[Player, list[Line]]:
        orders = self._orders(line)
        seconds = tuple({"F": each.forward_s, "B": each.backward_s, "W": each.weight_gradient_s} for each in costs)
        hops = [
            self._border(one, two, cost) for one, two, cost in zip(line.stages, line.stages[1:], costs, strict=False)
        ]
        pipeline = Pipeline(orders, seconds, tuple(border for border, _ in hops))
        runtime = "torch-csv" if self.runtime == "torch" and not self._is_built_in(line) else self.runtime
        messages = [message for _, message in hops]

        def carry(border: int, way: int) -> Event:
            size, loads = messages[border][way]
            return self.wires.carry(size, loads) if loads else self.env.timeout(size)

        return Player(pipeline, TRANSPORTS[runtime], self.env, carry), lines_of(pipeline, runtime, {})

    def _is_built_in(self, line: PlannedPipeline) -> bool:
        return self.plan.schedule.name in ("1f1b", "gpipe") and line.num_micro_batches >= len(line.stages)

    def _orders(self, line: PlannedPipeline) -> Orders:
        if self.plan.schedule.name == "1f1b":
            return one_f_one_b(len(line.stages), line.num_micro_batches)
        schedule = order_of(self.plan, line)
        letters = {0: "F", 1: "BW" if schedule.fused else "B", 2: "W"}
        ranks = (schedule.rank(rank).tolist() for rank in range(len(line.stages)))
        return tuple(tuple((letters[kind], wave) for kind, _, wave in rank) for rank in ranks)

    def _border(self, one: Stage, two: Stage, cost: StageCost) -> tuple[Border, tuple[tuple[float, Loads], ...]]:
        """Delays, and bytes and loads of a message each way, all lanes together; inside a domain seconds alone."""
        num_bytes = cost.output_bytes * one.dp
        ways = []
        for sender, receiver in ((one, two), (two, one)):
            if sender.domain != receiver.domain:
                sent = num_bytes * self._compressed(sender.domain, receiver.domain)
                hop = self._away(sender.domain, receiver.domain, nodes_of(sender))
                ways.append((hop.delay_s, sent, hop.loads))
                continue
            near = one.dp == two.dp and lane_nodes(one) == lane_nodes(two)
            hop = self._inside(sender.domain, same_node=near)
            share = num_bytes / (one.dp if near else len(nodes_of(sender)))
            ways.append((0.0, hop.delay_s + share * hop.seconds_per_byte + self.overhead_s, {}))
        return Border((ways[0][0], ways[1][0])), tuple((size, loads) for _, size, loads in ways)

    def _compressed(self, source: str, destination: str) -> float:
        bits = {"fp8": 8, "int8": 8, "fp4": 4, "int4": 4}
        kinds = {(each.source, each.destination): each.kind for each in self.plan.compression}
        return bits.get(kinds.get((source, destination), ""), 16) / 16

    # ------------------------------------------------------------------------------------------------------------ sums
    def sums(self) -> Iterator[Sum]:
        """What is summed, in the order of layers; a tied matrix on two stages last, DeepSpeed's first."""
        model, lines = self.problem.model, self.plan.pipelines
        owners = [
            tuple((p, next(s for s, stage in enumerate(line.stages) if layer < stage.layers[1])) for p, line in places)
            for layer, places in ((layer, list(enumerate(lines))) for layer in range(model.num_layers))
        ]
        matrix, first, last = float(model.vocab * model.hidden), owners[0], owners[-1]
        apart = model.tied and first != last
        copied = apart and self.runtime in ("megatron", "deepspeed")
        if copied:
            tied = [Sum((one, two), matrix) for one, two in zip(first, last, strict=True)]
        else:
            tied = [Sum(tuple(sorted({*first, *last})), matrix)] if apart else []
        shared, start = list[Sum](), 0
        for layer in range(1, model.num_layers + 1):
            if layer == model.num_layers or owners[layer] != owners[start]:
                held = [float(each.parameters) for each in model.layers[start:layer]]
                held[0] -= matrix if apart and not copied and start == 0 else 0.0
                held[-1] += matrix if copied and layer == model.num_layers else 0.0
                shared.append(Sum(owners[start], sum(held), start, tuple(held)))
                start = layer
        shared = [each for each in shared if len(each.stages) > 1]
        yield from (*tied, *shared) if self.runtime == "deepspeed" else (*shared, *tied)

    def _begin_sum(self, one: Sum, ended: dict[Place, list[Event]]) -> None:
        """Begins it where and when the runtime does, and notes of each stage what it has to wait for."""
        per, domains = self.problem.workload.gradient_bytes_per_parameter, {self._stage(at).domain for at in one.stages}
        inside = 0.0 if len(domains) > 1 and self.plan.sync.all_reduce == "ring" else 1.0
        pieces = buckets(one) if self.runtime == "hippo" else [(one.parameters, None)]
        done = list[Event]()
        for parameters, first in pieces:
            share = inside * parameters / one.parameters
            if first is None:  # behind all that the stage has begun before
                waits = {at: self.env.process(self._behind(at, [*ended[at]], share)) for at in one.stages}
            else:
                waits = {at: self.env.process(self._made(at, first, share)) for at in one.stages}
            done.append(self._sum(one.stages, parameters * per, waits))
        for at in one.stages:
            ended[at] += done

    def _behind(self, at: Place, before: list[Event], share: float) -> Steps:
        yield self.over[at]
        yield self.env.all_of(before)
        yield self.env.timeout(share * self.costs[at[0]][at[1]].sync_s)

    def _made(self, at: Place, first: int, share: float) -> Steps:
        """A bucket down to layer ``first``: layers' gradients are made evenly in the last operation, the last first."""
        (p, s), stage, cost = at, self._stage(at), self.costs[at[0]][at[1]]
        yield self.players[p].last[s]
        weight_s = cost.weight_gradient_s
        before_s = self.players[p].pipeline.lasts(s, self.players[p].pipeline.orders[s][-1][0]) - weight_s
        done = (stage.layers[1] - max(first, stage.layers[0])) / stage.num_layers
        yield self.env.timeout(before_s + done * weight_s + share * cost.sync_s)

    def _sum(self, stages: Sequence[Place], num_bytes: float, waits: Mapping[Place, Event]) -> Event:
        """One sum, begun by each member when its ``waits`` have come."""
        if len({self._stage(at).domain for at in stages}) == 1:
            return self.env.process(self._near(stages, num_bytes, waits))
        flat = self.plan.sync.all_reduce == "ring"
        members = self._lanes(stages) if flat else self._domains(stages)
        n, rings = len(members), min(len(s.devices) // (s.dp if flat else 1) for s in map(self._stage, stages))
        transport = self.problem.rules.transport.name
        turns = ceil(num_bytes / rings / (n * NCCL_TURN_BYTES)) if transport == "nccl" else 1
        heard = [[self.env.event() for _ in range(turns * 2 * (n - 1))] for _ in members]
        for at, member in enumerate(members):
            if transport == "torch" and member.hop.loads:
                key = "in flight", id(heard), at
                self.wires.rates[key] = rings * GLOO_WINDOW_BYTES / (2 * member.hop.delay_s)
                member = replace(member, hop=replace(member.hop, loads={**member.hop.loads, key: 1.0}))
            local_s = 0.0 if flat else self._local_s(member.stages, num_bytes)
            following = heard[(at + 1) % n]
            self.env.process(
                self._member(
                    member,
                    [waits[each] for each in member.stages],
                    local_s,
                    num_bytes / n / turns,
                    heard[at],
                    following,
                )
            )
        return self.env.all_of([own[-1] for own in heard])

    def _member(
        self,
        member: Member,
        waits: list[Event],
        local_s: float,
        piece: float,
        heard: list[Event],
        following: list[Event],
    ) -> Steps:
        yield self.env.all_of(waits)
        yield self.env.timeout(local_s)
        for step, sent in enumerate(following):
            if step:
                yield heard[step - 1]
            yield self.wires.carry(piece, member.hop.loads)
            yield self.env.timeout(piece * member.hop.seconds_per_byte)
            self.env.process(self._arrive(sent, member.hop.delay_s))

    def _arrive(self, event: Event, after_s: float) -> Steps:
        yield self.env.timeout(after_s)
        event.succeed()

    def _near(self, stages: Sequence[Place], num_bytes: float, waits: Mapping[Place, Event]) -> Steps:
        """Inside one domain."""
        yield self.env.all_of([waits[at] for at in stages])
        yield self.env.timeout(self._local_s(stages, num_bytes))

    def _local_s(self, stages: Sequence[Place], num_bytes: float) -> float:
        """Stages of one domain, over the fabric of its nodes."""
        held = [self._stage(at) for at in stages]
        if len(held) < 2:
            return 0.0
        hop = self._inside(held[0].domain, same_node=len({node for stage in held for node in nodes_of(stage)}) == 1)
        wide = min(len(stage.devices) if hop.near else len(nodes_of(stage)) for stage in held)
        return hop.delay_s + 2 * (len(held) - 1) / len(held) * num_bytes / wide * hop.seconds_per_byte

    def _domains(self, stages: Sequence[Place]) -> list[Member]:
        """A member a domain, whose lanes send from all their nodes."""
        found, names = list[Member](), self._around(stages)
        for domain, following in zip(names, names[1:] + names[:1], strict=True):
            own = tuple(at for at in stages if self._stage(at).domain == domain)
            nodes = {node: None for at in own for node in nodes_of(self._stage(at))}
            found.append(Member(own, self._away(domain, following, tuple(nodes))))
        return found

    def _lanes(self, stages: Sequence[Place]) -> list[Member]:
        """A member a lane, domain after domain."""
        own = [at for domain in self._around(stages) for at in stages if self._stage(at).domain == domain]
        lanes = [(at, nodes) for at in own for nodes in lane_nodes(self._stage(at))]
        found = list[Member]()
        for (at, nodes), (other, there) in zip(lanes, lanes[1:] + lanes[:1], strict=True):
            here, away = self._stage(at).domain, self._stage(other).domain
            hop = self._inside(here, same_node=nodes == there) if here == away else self._away(here, away, nodes)
            rings = len(self._stage(at).devices) // self._stage(at).dp
            hop = replace(hop, seconds_per_byte=hop.seconds_per_byte / (rings if hop.near else len(nodes)))
            found.append(Member((at,), hop))
        return found

    def _around(self, stages: Sequence[Place]) -> list[str]:
        """The domains in the order of ranks, which launchers make that of the quickest ring (docs/export.md)."""
        names = list(dict.fromkeys(self._stage(at).domain for at in stages))

        def slowest(order: Sequence[str]) -> tuple[float, float]:
            links = [self.problem.cluster.link(a, b) for a, b in zip(order, (*order[1:], order[0]), strict=True)]
            if any(link is None for link in links):
                return inf, inf
            rates = [link.rate_bytes_per_s(self.problem.cluster.domain(link.source).nodes) for link in links if link]
            return 1 / min(rates), max(link.latency_s for link in links if link)

        return [names[0], *min(permutations(names[1:]), key=lambda rest: slowest((names[0], *rest)))]

    def _stage(self, at: Place) -> Stage:
        return self.plan.pipelines[at[0]].stages[at[1]]

    # ------------------------------------------------------------------------------------------------------------ step
    def play(self) -> float:
        """Seconds of the step."""
        runs = [player.begin(lines) for player, lines in self.players_and_lines]
        self.over = {(p, s): process for p, ranks in enumerate(runs) for s, process in enumerate(ranks)}
        ended: dict[Place, list[Event]] = {at: [] for at in self.over}
        summed = list(self.sums())
        for one in summed:
            self._begin_sum(one, ended)
        alone = set(self.over) - {at for one in summed for at in one.stages}
        for at in alone:
            ended[at].append(self.env.process(self._behind(at, [], 1.0)))
        for at, events in ended.items():
            self.env.process(self._finish(at, events))
        self.env.run()
        for player in self.players:
            player.played()
        return max(self.finished)

    def _finish(self, at: Place, events: list[Event]) -> Steps:
        yield self.over[at]
        yield self.env.all_of(events)
        cost = self.costs[at[0]][at[1]]
        yield self.env.timeout(cost.optimizer_s + cost.fixed_s)
        self.finished.append(self.env.now)


def buckets(one: Sum) -> list[tuple[float, int | None]]:
    """Parameters of each bucket and its first layer, the last layers first; a tied matrix waits for all."""
    if not one.held:
        return [(one.parameters, None)]
    found, size = list[tuple[float, int | None]](), 0.0
    for at in reversed(range(len(one.held))):
        size += one.held[at]
        if 4.0 * size >= BUCKET_BYTES or at == 0:
            found.append((size, one.first + at))
            size = 0.0
    return [(parameters, first) for parameters, first in found if parameters > 0]


def nodes_of(stage: Stage) -> tuple[str, ...]:
    """Nodes of a stage, each once."""
    return tuple(dict.fromkeys(device.rsplit("/", 1)[0] for device in stage.devices))


def lane_nodes(stage: Stage) -> list[tuple[str, ...]]:
    """Nodes of each lane."""
    step = len(stage.devices) // stage.dp
    nodes = [device.rsplit("/", 1)[0] for device in stage.devices]
    return [tuple(dict.fromkeys(nodes[at : at + step])) for at in range(0, len(nodes), step)]
