"""Layers go from the processes of one plan to those of another: whole state, whatever both plans' cuts.

Both sides derive the same list of pieces from the two plans. A piece is an equal part of one weight (or all of it), as
large as both tensor-parallel cuts allow; for each its master copy and both moments travel, in full precision. All
pieces of a layer between two processes are one message. Receives are posted when the processes meet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import lcm
from pathlib import Path
from typing import Any

import torch

from hippo.run.executor.channels import Meeting, settle
from hippo.run.handover import BEFORE, STATE, Hand, hands
from hippo.run.job import RunJob
from hippo.run.model.optimizer import AdamState
from hippo.run.model.stage import Part
from hippo.run.model.weights import Weight, WeightForm, forms
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
    job: RunJob  # the new one

    @classmethod
    def of(cls, before: RunJob, after: RunJob) -> Both:
        """Of two jobs for one model."""
        return cls(before.work, after.work, after)

    def messages(self) -> dict[Key, dict[int, list[Piece]]]:
        """Pieces of every message: by pair of processes, then by layer, in one order that both sides know."""
        found: dict[Key, dict[int, list[Piece]]] = {}
        for hand in hands(self.old, self.new, self.job.problem.cluster):
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


def views(part: Part, piece: Piece, size: int) -> tuple[Weight, AdamState, list[Tensor]]:
    """The weight of a piece, its state, and the three views that travel; ``size``: ranks of the holder's team."""
    layer = piece.layer
    if piece.name == MATRIX and piece.name not in part.states.get(layer, {}):
        layer = 0 if 0 in part.weights else part.model.num_layers - 1  # embedding and head share it
    weight, state = part.weights[layer][piece.name], part.states[layer][piece.name]
    tensors = [state.master, state.first, state.second]
    if piece.dim is None or piece.parts == 1:
        return weight, state, tensors
    held = piece.parts // (size if weight.form.split is not None else 1)
    return weight, state, [tensor.chunk(held, dim=piece.dim)[piece.at % held] for tensor in tensors]


class _Side:
    """What both sides know: the messages of one process, and a channel for each of its partners."""

    def __init__(self, before: RunJob, after: RunJob, folder: Path, *, rank: int, gives: bool) -> None:
        self.both, self.device = Both.of(before, after), after.options.device
        old, options = len(self.both.old.workers), after.options
        me = rank if gives else old + rank
        count = old + len(self.both.new.workers)
        meeting = Meeting(str(folder), me, world=count, device=options.device)
        place = 0 if gives else 1
        found = self.both.messages()
        self.messages = {pair[1 - place]: layers for pair, layers in found.items() if pair[place] == rank}
        self.groups: dict[int, Any] = {}
        for pair in sorted(pair for pair in found if pair[place] == rank):
            name = f"hand-{pair[0]:06d}-{pair[1]:06d}"
            self.groups[pair[1 - place]] = meeting.group(name, (pair[0], old + pair[1]))

    def room(self, part: Part | None, pieces: list[Piece]) -> list[Tensor]:
        """The tensors of a message; of a stand-in: as many numbers as its layers have."""
        if part is not None:
            return [one for piece in pieces for one in views(part, piece, part.split.size)[2]]
        layers = self.both.new.model.layers
        return [torch.zeros(STATE * round(layers[piece.layer].parameters)) for piece in pieces]


class Giver(_Side):
    """A process of the old plan."""

    def __init__(self, before: RunJob, after: RunJob, folder: Path, rank: int) -> None:
        super().__init__(before, after, folder, rank=rank, gives=True)

    def give(self, part: Part | None) -> int:
        """Sends every layer that somebody needs; the bytes that were sent."""
        sent, total = [], 0
        for partner, layers in self.messages.items():
            for tag, pieces in enumerate(layers.values()):
                flat = torch.cat([one.reshape(-1) for one in self.room(part, pieces)])
                sent.append((self.groups[partner].send([flat], 1, tag), flat))
                total += flat.nbytes
        for sending, _ in sent:
            sending.wait()
        settle(self.device)  # the process may end as soon as it has answered
        return total


class Taker(_Side):
    """A process of the new plan. Its part is as at the start of the training until everything is taken."""

    def __init__(self, before: RunJob, after: RunJob, folder: Path, rank: int, part: Part | None) -> None:
        super().__init__(before, after, folder, rank=rank, gives=False)
        self._part = part
        self._posted: list[tuple[Any, Tensor, list[Piece]]] = []
        for partner, layers in self.messages.items():
            for tag, pieces in enumerate(layers.values()):
                tensors = self.room(part, pieces)
                count, like = sum(one.numel() for one in tensors), tensors[0]
                flat = torch.empty(count, dtype=like.dtype, device=like.device)
                self._posted.append((self.groups[partner].recv([flat], 0, tag), flat, pieces))

    @torch.no_grad()
    def take(self) -> int:
        """Waits for everything and puts it in place; the bytes that came."""
        total = 0
        for receiving, flat, pieces in self._posted:
            receiving.wait()
            total += flat.nbytes
            tensors = self.room(self._part, pieces)
            at = 0
            for tensor in tensors:
                tensor.copy_(flat[at : at + tensor.numel()].view_as(tensor))
                at += tensor.numel()
        self._posted.clear()
        if self._part is not None:
            _round(self._part)
        settle(self.device)
        return total


def _round(part: Part) -> None:
    """Weights of less precision follow their master copies."""
    for layer, states in part.states.items():
        for name, state in states.items():
            value = part.weights[layer][name].value
            if value.dtype != state.master.dtype:
                value.detach().copy_(state.master)


class Mover:
    """One process in a move, as the launcher conducts it."""

    def __init__(self, job: RunJob, folder: Path, rank: int, part: Part | None) -> None:
        self._job, self._folder, self._rank, self._part = job, folder, rank, part
        self._giver: Giver | None = None
        self._taker: Taker | None = None

    def do(self, order: Mapping[str, Any]) -> dict[str, int]:
        """``{"meet": folder of the new plan}``, ``{"give": true}`` or ``{"take": true}``: what to answer."""
        if "give" in order:
            assert self._giver is not None, "give comes after meet"
            return {"given": self._giver.give(self._part)}
        if "take" in order:
            assert self._taker is not None, "take comes after meet"
            return {"taken": self._taker.take()}
        folder = Path(order["meet"])
        if folder == self._folder:
            self._taker = Taker(RunJob.read(folder / BEFORE), self._job, folder, self._rank, self._part)
        else:
            self._giver = Giver(self._job, RunJob.read(folder), folder, self._rank)
        return {"met": self._rank}
