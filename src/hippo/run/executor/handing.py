"""Layers go from the processes of one plan to those of another: whole state, whatever both plans' cuts.

Both sides derive the same list of pieces from the two plans. A piece is an equal part of one weight (or all of it), as
large as both tensor-parallel cuts allow; for each its master copy and both moments travel, in full precision, and of
replicas that train alone where all began and the outer momentum. All pieces of a layer between two processes are one
message. Receives are posted when the processes meet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import lcm
from typing import Any

import torch

from hippo.problem.cluster import Cluster
from hippo.run.executor.channels import Meeting, settle
from hippo.run.handover import Hand, hands, state_numbers
from hippo.run.model.optimizer import AdamState
from hippo.run.model.stage import Part
from hippo.run.model.weights import WeightForm, forms
from hippo.run.version import Version
from hippo.run.work import Work

Tensor = torch.Tensor
MATRIX = "matrix"
Key = tuple[int, int]  # old rank, new rank


@dataclass(frozen=True)
class Piece:
    """Part ``at`` of ``parts`` along ``dim`` of one weight; ``dim`` None: all of it."""

    layer: int
    name: str
    dim: int | None
    at: int
    parts: int


@dataclass(frozen=True)
class Both:
    """The old plan and the new one, as processes."""

    old: Work
    new: Work
    cluster: Cluster
    kept: Mapping[int, int] = field(default_factory=dict)  # as ``handover.hands`` takes it

    @classmethod
    def of(cls, old: Version, new: Version) -> Both:
        """Of two versions of a run."""
        return cls(old.job.work, new.job.work, new.job.problem.cluster, old.kept(new))

    @property
    def numbers(self) -> int:
        """That travel for each parameter."""
        return state_numbers(self.old, self.new)

    def messages(self) -> dict[Key, dict[int, list[Piece]]]:
        """Pieces of every message: by pair of processes, then by layer, in one order that both sides know."""
        found: dict[Key, dict[int, list[Piece]]] = {}
        for hand in hands(self.old, self.new, self.cluster, self.kept):
            for source, piece in self._pieces(hand) if not self.new.whole_stages else self._stand_in(hand):
                pair = found.setdefault((source, hand.destination), {})
                pair.setdefault(piece.layer, []).append(piece)
        return found

    def _pieces(self, hand: Hand) -> Iterator[tuple[int, Piece]]:
        worker = self.new.workers[hand.destination]
        had, has = len(hand.team), self.new.widths(self.new.stage(worker))[0]
        pairs = zip(self._forms(hand, self.old), self._forms(hand, self.new), strict=True)
        for before, after in pairs:
            cut = lcm(had if before.split is not None else 1, has if after.split is not None else 1)
            dim = before.split if before.split is not None else after.split
            own = cut // has if after.split is not None else cut
            first = worker.tp_index * own if after.split is not None else 0
            for at in range(first, first + own):
                source = at * had // cut if before.split is not None else worker.tp_index % had
                yield hand.team[source], Piece(hand.layer, after.name, dim, at, cut)

    def _stand_in(self, hand: Hand) -> Iterator[tuple[int, Piece]]:
        """A layer as one piece, where it crosses the WAN; a matrix that is shared is not counted twice."""
        source = hand.team[0]
        if self.old.workers[source].domain != self.new.workers[hand.destination].domain and not hand.tied:
            yield source, Piece(hand.layer, "", None, 0, 1)

    def _forms(self, hand: Hand, work: Work) -> tuple[WeightForm, ...]:
        if hand.tied:
            return tuple(form for form in forms(work.model, 0, work.parts) if form.name == MATRIX)
        return forms(work.model, hand.layer, work.parts)


@dataclass(frozen=True, eq=False)
class PieceViews:
    """What a process holds of a piece: its state, and the sum of its gradients."""

    state: AdamState
    total: Tensor
    outer: tuple[Tensor, ...] = ()  # of replicas that train alone: where all began, and the outer momentum

    @property
    def tensors(self) -> list[Tensor]:
        """Those that travel, in order."""
        return [self.state.master, self.state.first, self.state.second, *self.outer]


def views(part: Part, piece: Piece, size: int) -> PieceViews:
    """Views of a piece in a part that holds it; ``size``: ranks of the holder's team."""
    layer = piece.layer
    if piece.name == MATRIX and piece.name not in part.states.get(layer, {}):
        layer = 0 if 0 in part.weights else part.model.num_layers - 1  # embedding and head share it
    weight, state = part.weights[layer][piece.name], part.states[layer][piece.name]
    outer = [held[layer, piece.name] for held in part.outer.values()]
    tensors = [state.master, state.first, state.second, weight.total, *outer]
    if piece.dim is not None and piece.parts > 1:
        held = piece.parts // (size if weight.form.split is not None else 1)
        tensors = [one.chunk(held, dim=piece.dim)[piece.at % held] for one in tensors]
    master, first, second, total, *outer = tensors
    return PieceViews(AdamState(master, first, second), total, tuple(outer))


@dataclass(frozen=True)
class LayerExchange:
    """What one process gives and takes when a version of the run follows another: pieces by layer, by process."""

    both: Both
    give: Mapping[int, Mapping[int, list[Piece]]]
    take: Mapping[int, Mapping[int, list[Piece]]]
    own: Mapping[int, list[Piece]]  # it has them, cut otherwise

    @classmethod
    def of(cls, old: Version, new: Version, process: int) -> LayerExchange:
        """Of a process, whether it gives, takes or does neither."""
        both = Both.of(old, new)
        give: dict[int, dict[int, list[Piece]]] = {}
        take: dict[int, dict[int, list[Piece]]] = {}
        for (one, two), layers in both.messages().items():
            source, destination = old.members[one], new.members[two]
            if source == process:
                give[destination] = layers
            if destination == process:
                take[source] = layers
        give.pop(process, None)
        own = take.pop(process, {})
        return cls(both, give, take, own)

    def room(self, part: Part | None, pieces: list[Piece]) -> list[Tensor]:
        """The tensors of some pieces that travel; of a stand-in: as many numbers as its layers have."""
        numbers, layers = self.both.numbers, self.both.new.model.layers
        if part is not None:
            return [one for piece in pieces for one in views(part, piece, part.split.size).tensors[:numbers]]
        return [torch.zeros(numbers * round(layers[piece.layer].parameters)) for piece in pieces]

    @torch.no_grad()
    def put_own(self, before: Part | None, after: Part | None) -> None:
        """What the process has, cut as it needs it from now on; weights of less precision follow their masters."""
        if before is not None:
            for pieces in self.own.values():
                for one, two in zip(self.room(before, pieces), self.room(after, pieces), strict=True):
                    two.copy_(one)
        if after is not None:
            for layer, states in after.states.items():
                for name, state in states.items():
                    value = after.weights[layer][name].value
                    if value.dtype != state.master.dtype:
                        value.detach().copy_(state.master)


class Handing:
    """What one process gives and takes when a version of the run follows another.

    Receives are posted at once; ``do`` is called when all have posted theirs, at the border of a step. A part that
    takes is as at the start of the training until then, but for layers that its process keeps.
    """

    def __init__(
        self,
        old: Version,
        new: Version,
        process: int,
        meeting: Meeting,
        parts: tuple[Part | None, Part | None],
        beat: Callable[[str], None] = lambda waits: None,
    ) -> None:
        self._beat = beat
        exchange = self._exchange = LayerExchange.of(old, new, process)
        self._before, self._after = parts
        options = new.job.options
        self._computes_on = options.computes_on
        self._talks_on = None if options.talks_on == options.computes_on else options.talks_on  # None: where layers lie
        give, take = exchange.give, exchange.take
        ways = {f"hand-{process:06d}-{other:06d}": (process, other) for other in give}
        ways |= {f"hand-{other:06d}-{process:06d}": (other, process) for other in take}
        groups = {ways[name]: group for name, group in meeting.groups(ways).items()}
        self._give = {groups[process, other]: layers for other, layers in give.items()}
        self._posted: list[tuple[Any, Tensor, list[Piece]]] = []
        for other, layers in take.items():
            for tag, pieces in enumerate(layers.values()):
                tensors = self._exchange.room(self._after, pieces)
                like = tensors[0]
                flat = torch.empty(
                    sum(one.numel() for one in tensors), dtype=like.dtype, device=self._talks_on or like.device
                )
                self._posted.append((groups[other, process].recv([flat], 0, tag), flat, pieces))

    @torch.no_grad()
    def do(self) -> int:
        """Sends every layer that somebody needs and puts in place all that comes; the bytes that were sent."""
        sent, total = [], 0
        for group, layers in self._give.items():
            for tag, pieces in enumerate(layers.values()):
                flat = torch.cat([one.reshape(-1) for one in self._exchange.room(self._before, pieces)])
                flat = flat.to(self._talks_on or flat.device)
                sent.append((group.send([flat], 1, tag), flat))
                total += flat.nbytes
                self._beat("")
        for receiving, flat, pieces in self._posted:
            self._beat("waits for layers")
            receiving.wait()
            self._beat("")
            at = 0
            for tensor in self._exchange.room(self._after, pieces):
                tensor.copy_(flat[at : at + tensor.numel()].view_as(tensor))
                at += tensor.numel()
        self._posted.clear()
        for sending, _ in sent:
            self._beat("waits for layers to go")
            sending.wait()
            self._beat("")
        self._exchange.put_own(self._before, self._after)
        settle(self._computes_on)  # the process may end as soon as it has answered
        return total

    def close(self) -> None:
        """It is given up: what was posted stays so in its groups, which nobody uses again."""
        self._posted.clear()
