"""What every process of a running plan has to do: where it sits, what it computes, with whom it talks. No torch.

A seat is one process. Seats are numbered pipeline by pipeline, stage by stage, tp fastest, then the data-parallel lane.
Of a stage's tensor-parallel ranks the first (``tp_index`` 0, the leader) talks with other stages; the activations at a
border are the same on all of them. Letters: p stages, v chunks per stage, m waves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import lcm

from hippo.engine.program import BACKWARD, FORWARD
from hippo.plan.plan import Pipeline, Plan, Stage
from hippo.problem.model import LayerKind, Model
from hippo.schedule.schedule import Schedule, order_of
from hippo.simulate.layouts import chunk_layers

Operation = tuple[int, int, int]  # kind, chunk, wave


@dataclass(frozen=True)
class Seat:
    """One process: a device of a stage, or (stand-in) a whole stage."""

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
class Agreement:
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
    """A plan as processes. ``whole_stages``: one process per stage (its lanes and tp ranks move as one)."""

    model: Model
    plan: Plan
    whole_stages: bool = False

    @cached_property
    def seats(self) -> tuple[Seat, ...]:
        """Every process, by rank."""
        found: list[Seat] = []
        for p, pipeline in enumerate(self.plan.pipelines):
            for s, stage in enumerate(pipeline.stages):
                tp, dp = self.widths(stage)
                for lane in range(dp):
                    for t in range(tp):
                        device = stage.devices[lane * tp + t]
                        found.append(Seat(len(found), p, s, lane, t, stage.domain, device))
        return tuple(found)

    def widths(self, stage: Stage) -> tuple[int, int]:
        """Tensor-parallel ranks and lanes that are processes of their own."""
        return (1, 1) if self.whole_stages else (stage.tp, stage.dp)

    @cached_property
    def _rank_of(self) -> dict[tuple[int, int, int, int], int]:
        return {(seat.pipeline, seat.stage, seat.lane, seat.tp_index): seat.rank for seat in self.seats}

    def rank(self, pipeline: int, stage: int, lane: int = 0, tp_index: int = 0) -> int:
        """The seat's number."""
        return self._rank_of[pipeline, stage, lane, tp_index]

    def stage(self, seat: Seat) -> Stage:
        """The stage of a seat."""
        return self.plan.pipelines[seat.pipeline].stages[seat.stage]

    @cached_property
    def _chunks(self) -> tuple[list[list[tuple[int, int]]], ...]:
        interleave = self.plan.interleave
        return tuple(
            [[(int(one), int(two)) for one, two in ranges] for ranges in chunk_layers(pipeline, interleave)]
            for pipeline in self.plan.pipelines
        )

    def chunks(self, seat: Seat) -> list[tuple[int, int]]:
        """Layers [start, stop) of each chunk of a seat."""
        return self._chunks[seat.pipeline][seat.stage]

    @cached_property
    def schedules(self) -> tuple[Schedule, ...]:
        """The schedule of each pipeline."""
        return tuple(order_of(self.plan, pipeline) for pipeline in self.plan.pipelines)

    def operations(self, seat: Seat) -> list[Operation]:
        """What a seat runs, in the order of the schedule: (kind, chunk, wave)."""
        return [(k, c, w) for k, c, w in self.schedules[seat.pipeline].rank(seat.stage).tolist()]

    def fused(self, seat: Seat) -> bool:
        """Whether a backward operation means the weight gradient too."""
        return self.schedules[seat.pipeline].fused

    def live_limit(self, seat: Seat) -> float:
        """Waves in flight that the plan's order needs on this seat; no order may need more."""
        return self.schedules[seat.pipeline].peak_live[seat.stage]

    def wave(self, pipeline: Pipeline) -> int:
        """Sequences of one wave."""
        return self.plan.micro_batch * pipeline.stages[0].dp

    def share(self, seat: Seat) -> tuple[int, int]:
        """Sequences [start, stop) of every wave that a seat works on."""
        pipeline = self.plan.pipelines[seat.pipeline]
        each = self.wave(pipeline) // self.widths(self.stage(seat))[1]
        return seat.lane * each, (seat.lane + 1) * each

    def sequences(self, seat: Seat, wave: int) -> tuple[int, int]:
        """Sequences [start, stop) of the global batch that a seat works on in a wave: pipeline by pipeline."""
        before = sum(self.wave(p) * p.num_micro_batches for p in self.plan.pipelines[: seat.pipeline])
        first = before + wave * self.wave(self.plan.pipelines[seat.pipeline])
        start, stop = self.share(seat)
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

    def arrivals(self, seat: Seat) -> list[tuple[Transfer, int]]:
        """Every message that a seat gets in a step and its wave, each sender's in the order in which it makes them."""
        found: list[tuple[int, Transfer, int]] = []
        for one in self.transfers:
            if one.destination == seat.rank:
                made = self.operations(self.seats[one.source])
                places = [at for at, each in enumerate(made) if each[:2] == (one.kind, one.source_chunk)]
                found += [(place, one, made[place][2]) for place in places]
        return [(one, wave) for _, one, wave in sorted(found, key=lambda each: each[0])]

    def _leaders(self, pipeline: int, stage: int) -> list[Seat]:
        return [s for s in self.seats if (s.pipeline, s.stage) == (pipeline, stage) and s.leads]

    def crosses_wan(self, transfer: Transfer) -> bool:
        """Whether a message goes from one domain to another."""
        return self.seats[transfer.source].domain != self.seats[transfer.destination].domain

    def tensor_group(self, seat: Seat) -> tuple[int, ...]:
        """Ranks that share the matrices of the seat's lane, itself among them."""
        tp, _ = self.widths(self.stage(seat))
        return tuple(self.rank(seat.pipeline, seat.stage, seat.lane, t) for t in range(tp))

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
    def agreements(self) -> tuple[Agreement, ...]:
        """Who sums which gradients: runs of layers with equal holders, the last layers (ready first) first."""
        found: list[Agreement] = []
        for part in range(self.parts):
            start = 0
            for layer in range(1, self.model.num_layers + 1):
                if layer == self.model.num_layers or self.holders(layer, part) != self.holders(start, part):
                    found.append(Agreement((start, layer), part, self.parts, self.holders(start, part)))
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

    def kinds(self, seat: Seat) -> set[LayerKind]:
        """Kinds of layers that a seat holds."""
        return {self.model.layers[i].kind for start, stop in self.chunks(seat) for i in range(start, stop)}
