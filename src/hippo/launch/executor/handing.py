"""Layers go from the processes of one plan to those of another: whole state, whatever both plans' cuts.

Both sides derive the same list of pieces from the two plans. A piece is an equal part of one weight (or all of it), as
large as both tensor-parallel cuts allow; for each its master copy and both moments travel, in full precision. All
pieces of a layer between two processes are one message. Receives are posted when the processes meet.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import lcm
from pathlib import Path
from typing import Any

import torch

from hippo.launch.executor.wires import Meeting
from hippo.launch.handover import Hand, hands
from hippo.launch.job import Job
from hippo.launch.model.adamw import Moments
from hippo.launch.model.stage import Part
from hippo.launch.model.weights import Form, Weight, forms
from hippo.launch.work import Work

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
    job: Job  # the new one

    @classmethod
    def of(cls, before: Job, after: Job) -> Both:
        """Of two jobs for one model."""
        stand_in = after.options.stand_in
        works = (Work(job.problem.model, job.plan, whole_stages=stand_in) for job in (before, after))
        return cls(*works, after)

    def messages(self) -> dict[Key, dict[int, list[Piece]]]:
        """Pieces of every message: by pair of processes, then by layer, in one order that both sides know."""
        found: dict[Key, dict[int, list[Piece]]] = {}
        for hand in hands(self.old, self.new, self.job.problem.cluster):
            for source, piece in self._pieces(hand):
                pair = found.setdefault((source, hand.destination), {})
                pair.setdefault(piece.layer, []).append(piece)
        return found

    def _pieces(self, hand: Hand) -> Iterator[tuple[int, Piece]]:
        seat = self.new.seats[hand.destination]
        had, has = len(hand.team), self.new.widths(self.new.stage(seat))[0]
        pairs = zip(self._forms(hand, self.old), self._forms(hand, self.new), strict=True)
        for before, after in pairs:
            cut = lcm(had if before.split is not None else 1, has if after.split is not None else 1)
            dim = before.split if before.split is not None else after.split
            own = cut // has if after.split is not None else cut
            first = seat.tp_index * own if after.split is not None else 0
            for at in range(first, first + own):
                source = at * had // cut if before.split is not None else seat.tp_index % had
                yield hand.team[source], Piece(hand.layer, after.name, dim, at, cut)

    def _forms(self, hand: Hand, work: Work) -> tuple[Form, ...]:
        if hand.tied:
            return tuple(form for form in forms(work.model, 0, work.parts) if form.name == MATRIX)
        return forms(work.model, hand.layer, work.parts)


def views(part: Part, piece: Piece, size: int) -> tuple[Weight, Moments, list[Tensor]]:
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

    def __init__(self, before: Job, after: Job, folder: Path, *, rank: int, gives: bool) -> None:
        both = Both.of(before, after)
        old, options = len(both.old.seats), after.options
        me = rank if gives else old + rank
        count = old + len(both.new.seats)
        meeting = Meeting(str(folder), me, world=count, timeout_s=2 * options.timeout_s, device=options.device)
        place = 0 if gives else 1
        self.messages = {pair[1 - place]: each for pair, each in both.messages().items() if pair[place] == rank}
        names = sorted((_name(rank, one) if gives else _name(one, rank), one) for one in self.messages)
        self.groups: dict[int, Any] = {}
        for name, one in names:
            self.groups[one] = meeting.group(name, (rank, old + one) if gives else (one, old + rank))


def _name(old: int, new: int) -> str:
    return f"hand-{old:06d}-{new:06d}"


class Giver(_Side):
    """A process of the old plan."""

    def __init__(self, before: Job, after: Job, folder: Path, rank: int) -> None:
        super().__init__(before, after, folder, rank=rank, gives=True)

    def give(self, part: Part) -> int:
        """Sends every layer that somebody needs; the bytes that were sent."""
        sent, total = [], 0
        for partner, layers in self.messages.items():
            for tag, pieces in enumerate(layers.values()):
                tensors = [one for piece in pieces for one in views(part, piece, part.split.size)[2]]
                flat = torch.cat([one.reshape(-1) for one in tensors])
                sent.append((self.groups[partner].send([flat], 1, tag), flat))
                total += flat.nbytes
        for sending, _ in sent:
            sending.wait()
        return total


class Taker(_Side):
    """A process of the new plan. Its part is as at the start of the training until everything is taken."""

    def __init__(self, before: Job, after: Job, folder: Path, rank: int, part: Part) -> None:
        super().__init__(before, after, folder, rank=rank, gives=False)
        self._part = part
        self._posted: list[tuple[Any, Tensor, list[Piece]]] = []
        for partner, layers in self.messages.items():
            for tag, pieces in enumerate(layers.values()):
                tensors = [one for piece in pieces for one in views(part, piece, part.split.size)[2]]
                flat = torch.empty(sum(one.numel() for one in tensors), dtype=tensors[0].dtype)
                self._posted.append((self.groups[partner].recv([flat], 0, tag), flat, pieces))

    @torch.no_grad()
    def take(self) -> int:
        """Waits for everything and puts it in place; the bytes that came."""
        total, part = 0, self._part
        for receiving, flat, pieces in self._posted:
            receiving.wait()
            total += flat.nbytes
            at = 0
            for piece in pieces:
                for tensor in views(part, piece, part.split.size)[2]:
                    tensor.copy_(flat[at : at + tensor.numel()].view_as(tensor))
                    at += tensor.numel()
        for layer, states in part.states.items():
            for name, state in states.items():
                value = part.weights[layer][name].value
                if value.dtype != state.master.dtype:
                    value.detach().copy_(state.master)
        self._posted.clear()
        return total
