"""What every process of a running plan has to do: where it sits, what it computes, with whom it talks. No torch.

A worker is one process. They are numbered pipeline by pipeline, stage by stage, tp fastest, then by data-parallel lane.
Of a stage's tensor-parallel ranks the first (``tp_index`` 0, the leader) talks with other stages; the activations at a
border are the same on all of them. Letters: p stages, v chunks per stage, m waves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import lcm

from hippo.engine.program import BACKWARD, FORWARD
from hippo.plan.plan import WITH_ORDER, Pipeline, Plan, ScheduleChoice, Stage
from hippo.problem.model import LayerKind, Model
from hippo.problem.problem import Problem
from hippo.schedule.schedule import Schedule, letters_of, order_of, split
from hippo.simulate.costs import chunk_layers
from hippo.simulate.ring import ring
from hippo.simulate.routes import Routes

Operation = tuple[int, int, int]  # kind, chunk, wave


@dataclass(frozen=True)
class Worker:
    """One process: a device of a stage, or (stand-in) a lane of it or all of it."""

    rank: int
    pipeline: int
    stage: int
    lane: int  # index among the stage's data-parallel ranks
    tp_index: int
    domain: str
    device: str

    @property
    def leads(self) -> bool:
        """Whether it speaks for its tensor-parallel group."""
        return self.tp_index == 0


@dataclass(frozen=True)
class Transfer:
    """One message per wave: sequences [start, start + count) of the wave, from a chunk to its neighbour."""

    kind: int  # FORWARD: activations; BACKWARD: their gradients
    source: int  # rank that sends
    destination: int  # rank that receives
    source_chunk: int
    destination_chunk: int
    start: int
    count: int


@dataclass(frozen=True)
class GradientGroup:
    """Ranks that sum their gradients of layers [start, stop).

    Matrices that are split lie in ``parts`` equal parts, the finest split among the replicas; ``part`` is agreed here.
    Part 0 also carries what is not split; its members are leaders, who tell their tensor-parallel group.
    """

    layers: tuple[int, int]
    part: int
    parts: int
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Work:
    """A plan as processes. ``whole_stages``: one process per stage (its lanes and tp ranks move as one); with ``lanes``
    one per lane (whose tp ranks do)."""

    model: Model
    plan: Plan
    whole_stages: bool = False
    lanes: bool = False

    @cached_property
    def workers(self) -> tuple[Worker, ...]:
        """Every process, by rank."""
        found: list[Worker] = []
        for p, pipeline in enumerate(self.plan.pipelines):
            for s, stage in enumerate(pipeline.stages):
                tp, dp = self.widths(stage)
                for lane in range(dp):
                    for t in range(tp):
                        device = stage.devices[lane * tp + t]
                        found.append(Worker(len(found), p, s, lane, t, stage.domain, device))
        return tuple(found)

    def widths(self, stage: Stage) -> tuple[int, int]:
        """Tensor-parallel ranks and lanes that are processes of their own."""
        if self.whole_stages:
            return 1, stage.dp if self.lanes else 1
        return stage.tp, stage.dp

    @cached_property
    def _rank_of(self) -> dict[tuple[int, int, int, int], int]:
        return {(worker.pipeline, worker.stage, worker.lane, worker.tp_index): worker.rank for worker in self.workers}

    def rank(self, pipeline: int, stage: int, lane: int = 0, tp_index: int = 0) -> int:
        """The worker's number."""
        return self._rank_of[pipeline, stage, lane, tp_index]

    def stage(self, worker: Worker) -> Stage:
        """The stage of a worker."""
        return self.plan.pipelines[worker.pipeline].stages[worker.stage]

    @cached_property
    def _chunks(self) -> tuple[list[list[tuple[int, int]]], ...]:
        interleave = self.plan.interleave
        return tuple(
            [[(int(one), int(two)) for one, two in ranges] for ranges in chunk_layers(pipeline, interleave)]
            for pipeline in self.plan.pipelines
        )

    def chunks(self, worker: Worker) -> list[tuple[int, int]]:
        """Layers [start, stop) of each chunk of a worker."""
        return self._chunks[worker.pipeline][worker.stage]

    @cached_property
    def schedules(self) -> tuple[Schedule, ...]:
        """The schedule of each pipeline."""
        return tuple(order_of(self.plan, pipeline) for pipeline in self.plan.pipelines)

    def operations(self, worker: Worker) -> list[Operation]:
        """What a worker runs, in the order of the schedule: (kind, chunk, wave)."""
        return [(k, c, w) for k, c, w in self.schedules[worker.pipeline].rank(worker.stage).tolist()]

    def fused(self, worker: Worker) -> bool:
        """Whether a backward operation means the weight gradient too."""
        return self.schedules[worker.pipeline].fused

    def live_limit(self, worker: Worker) -> float:
        """Waves in flight that the plan's order needs on this worker; no order may need more."""
        return self.schedules[worker.pipeline].peak_live[worker.stage]

    def wave(self, pipeline: Pipeline) -> int:
        """Sequences of one wave."""
        return self.plan.micro_batch * pipeline.stages[0].dp

    def share(self, worker: Worker) -> tuple[int, int]:
        """Sequences [start, stop) of every wave that a worker works on."""
        pipeline = self.plan.pipelines[worker.pipeline]
        each = self.wave(pipeline) // self.widths(self.stage(worker))[1]
        return worker.lane * each, (worker.lane + 1) * each

    def sequences(self, worker: Worker, wave: int) -> tuple[int, int]:
        """Sequences [start, stop) of the global batch that a worker works on in a wave: pipeline by pipeline."""
        before = sum(self.wave(p) * p.num_micro_batches for p in self.plan.pipelines[: worker.pipeline])
        first = before + wave * self.wave(self.plan.pipelines[worker.pipeline])
        start, stop = self.share(worker)
        return first + start, first + stop

    @cached_property
    def transfers(self) -> tuple[Transfer, ...]:
        """Every message of a wave, activations down and gradients up."""
        return tuple(one for p in range(len(self.plan.pipelines)) for one in self._transfers(p))

    def _transfers(self, p: int) -> Iterator[Transfer]:
        stages = self.plan.pipelines[p].stages
        for k in range(len(stages) * self.plan.interleave - 1):
            (above, one), (below, two) = divmod(k, len(stages)), divmod(k + 1, len(stages))
            if one == two:
                continue  # a single stage hands chunks to itself
            for sender in self._leaders(p, one):
                for receiver in self._leaders(p, two):
                    start = max(self.share(sender)[0], self.share(receiver)[0])
                    count = min(self.share(sender)[1], self.share(receiver)[1]) - start
                    if count > 0:
                        yield Transfer(FORWARD, sender.rank, receiver.rank, above, below, start, count)
                        yield Transfer(BACKWARD, receiver.rank, sender.rank, below, above, start, count)

    def arrivals(self, worker: Worker) -> list[tuple[Transfer, int]]:
        """Every message that a worker gets in a step and its wave, each sender's in the order of their making."""
        found: list[tuple[int, Transfer, int]] = []
        for one in self.transfers:
            if one.destination == worker.rank:
                made = self.operations(self.workers[one.source])
                places = [at for at, each in enumerate(made) if each[:2] == (one.kind, one.source_chunk)]
                found += [(place, one, made[place][2]) for place in places]
        return [(one, wave) for _, one, wave in sorted(found, key=lambda each: each[0])]

    def _leaders(self, pipeline: int, stage: int) -> list[Worker]:
        return [s for s in self.workers if (s.pipeline, s.stage) == (pipeline, stage) and s.leads]

    def crosses_wan(self, transfer: Transfer) -> bool:
        """Whether a message goes from one domain to another."""
        return self.workers[transfer.source].domain != self.workers[transfer.destination].domain

    @cached_property
    def relays(self) -> dict[tuple[str, str], str]:
        """Of a pair of domains that is relayed: the domain in the middle."""
        return {(relay.source, relay.destination): relay.via for relay in self.plan.relays}

    def tensor_group(self, worker: Worker) -> tuple[int, ...]:
        """Ranks that share the matrices of the worker's lane, itself among them."""
        tp, _ = self.widths(self.stage(worker))
        return tuple(self.rank(worker.pipeline, worker.stage, worker.lane, t) for t in range(tp))

    @cached_property
    def parts(self) -> int:
        """Equal parts that every split matrix can be cut into: the least common multiple of all tp."""
        return lcm(*(self.widths(stage)[0] for p in self.plan.pipelines for stage in p.stages))

    def owner(self, pipeline: int, layer: int) -> int:
        """Stage of a pipeline that holds a layer."""
        for stage, ranges in enumerate(self._chunks[pipeline]):
            if any(start <= layer < stop for start, stop in ranges):
                return stage
        raise AssertionError(f"layer {layer} is on no stage")

    def holders(self, layer: int, part: int) -> tuple[int, ...]:
        """Ranks that hold a part of a layer, in every pipeline and lane."""
        found = []
        for p, pipeline in enumerate(self.plan.pipelines):
            s = self.owner(p, layer)
            tp, dp = self.widths(pipeline.stages[s])
            found += [self.rank(p, s, lane, part * tp // self.parts) for lane in range(dp)]
        return tuple(found)

    @cached_property
    def agreements(self) -> tuple[GradientGroup, ...]:
        """Who sums which gradients: runs of layers with equal holders, the last layers (ready first) first."""
        found: list[GradientGroup] = []
        for part in range(self.parts):
            start = 0
            for layer in range(1, self.model.num_layers + 1):
                if layer == self.model.num_layers or self.holders(layer, part) != self.holders(start, part):
                    found.append(GradientGroup((start, layer), part, self.parts, self.holders(start, part)))
                    start = layer
        shared = (one for one in found if len(one.ranks) > 1)
        return tuple(sorted(shared, key=lambda one: (-one.layers[0], one.part)))

    @cached_property
    def tied(self) -> tuple[int, ...]:
        """Leaders that hold the matrix shared by embedding and head; empty: it is not shared, or one rank holds all."""
        if not self.model.tied:
            return ()
        last = self.model.num_layers - 1
        ranks = tuple(sorted({*self.holders(0, 0), *self.holders(last, 0)}))
        return ranks if len(ranks) > 1 else ()

    def domains(self, ranks: Iterable[int]) -> tuple[str, ...]:
        """Domains of the ranks, each once."""
        return tuple(dict.fromkeys(self.workers[rank].domain for rank in ranks))

    def kinds(self, worker: Worker) -> set[LayerKind]:
        """Kinds of layers that a worker holds."""
        return {self.model.layers[i].kind for start, stop in self.chunks(worker) for i in range(start, stop)}


def in_parts(plan: Plan) -> Plan:
    """The plan with each fused backward as two operations, one at once after the other; one chunk per stage."""
    orders = (letters_of(split(order_of(plan, pipeline))) for pipeline in plan.pipelines)
    pipelines = (
        replace(pipeline, warm_up=(), order=order) for pipeline, order in zip(plan.pipelines, orders, strict=True)
    )
    return replace(plan, pipelines=tuple(pipelines), schedule=ScheduleChoice(WITH_ORDER))


# -------------------------------------------------------------------------------------------------------------- levels
# On which way ranks sum: the order of their domains is that of the simulator's best ring.


def levels(problem: Problem, work: Work, ranks: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """The ranks of a sum, domain by domain in the order of the ring; of a flat ring each for itself, in that order.

    Raises ``InputError`` when no ring of links joins their domains.
    """
    domains = work.domains(ranks)
    if len(domains) > 1:
        routes, links = Routes.of(problem.cluster, work.plan), problem.cluster.links
        num_bytes = problem.workload.gradient_bytes_per_parameter * _parameters(work, domains)
        domains = tuple(links[pair[0]].source for pair in ring(routes, domains, num_bytes))
    found = [tuple(sorted(rank for rank in ranks if work.workers[rank].domain == domain)) for domain in domains]
    if work.plan.sync.all_reduce == "ring":
        # Every second domain is gone through backwards: the ring crosses the WAN between ranks that stand for the same
        # share on two levels, whose connections are warm where a run goes over from the one to the other.
        turned = (members[::-1] if at % 2 else members for at, members in enumerate(found))
        return tuple((rank,) for members in turned for rank in members)
    return tuple(found)


def _parameters(work: Work, domains: tuple[str, ...]) -> float:
    """What all ranks of these domains agree on together: groups on one ring are planned as one."""
    model, same = work.model, [one for one in work.agreements if set(work.domains(one.ranks)) == set(domains)]
    found = sum(sum(model.layers[i].parameters for i in range(*one.layers)) / one.parts for one in same)
    return found or float(model.vocab * model.hidden)  # a tied matrix alone
