"""Replicas sum their gradients: bucket by bucket, each sent as soon as its layers are done, while others still work.

All members of a group hand in the buckets in one order (last layers first). Matrices that tensor parallelism cuts are
agreed part by part (``work.Agreement``); what every rank of a team holds whole is agreed by the leaders, who tell their
team.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from hippo.launch.executor.wires import GroupTeam
from hippo.launch.model.stage import Part
from hippo.launch.model.weights import Weight
from hippo.launch.work import Agreement, Seat, Work

Tensor = torch.Tensor
BUCKET_BYTES = 8_000_000
TIED = "tied"


@dataclass(frozen=True)
class Bucket:
    """Layers [start, stop) of one agreement; of the tied matrix alone where ``tied``."""

    name: str  # of the group: ranks that agree
    ranks: tuple[int, ...]
    layers: tuple[int, int]
    part: int
    parts: int
    tied: bool = False


def buckets(work: Work, seat: Seat) -> list[Bucket]:
    """What a seat agrees on with others, in the order in which it is handed in; the tied matrix last."""
    found = [one for agreement in work.agreements if seat.rank in agreement.ranks for one in _cut(work, agreement)]
    if seat.rank in work.tied:
        last = work.model.num_layers - 1
        ends = (0, last)
        found.append(Bucket(_name(work.tied), work.tied, ends, 0, 1, tied=True))
    return found


def _cut(work: Work, agreement: Agreement) -> Iterator[Bucket]:
    """An agreement in runs of layers of at least ``BUCKET_BYTES`` (4 a parameter), the last layers first."""
    first, stop = agreement.layers
    size, name = 0.0, _name(agreement.ranks)
    for layer in reversed(range(first, stop)):
        size += 4.0 * work.model.layers[layer].parameters / agreement.parts
        if size >= BUCKET_BYTES or layer == first:
            yield Bucket(name, agreement.ranks, (layer, stop), agreement.part, agreement.parts)
            stop, size = layer, 0.0


def _name(ranks: Sequence[int]) -> str:
    return "agree-" + "-".join(str(rank) for rank in ranks)


class Agreeing:
    """Agreement of one seat over the steps of a run."""

    def __init__(self, work: Work, seat: Seat, part: Part, groups: dict[str, Any], team: GroupTeam | None) -> None:
        self.work, self.seat, self.part, self.groups, self.team = work, seat, part, groups, team
        self._undone: set[int] = set()
        self._waiting: list[Bucket] = []
        self._sent: list[tuple[Bucket, Tensor, Any]] = []

    def begin(self) -> None:
        """A step starts: nothing is done."""
        self._undone = {layer for start, stop in self.part.chunks for layer in range(start, stop)}
        self._waiting, self._sent = buckets(self.work, self.seat), []

    def ready(self, layer: int) -> None:
        """A layer's gradients are whole: hands in the buckets that are ready, in their order."""
        if self.team is not None:
            for weight in self._own(layer):
                if weight.form.partial:
                    self.team.sum(weight.total)
        self._undone.discard(layer)
        while self._waiting and not self._undone & set(self._layers(self._waiting[0])):
            bucket = self._waiting.pop(0)
            pieces = [piece.reshape(-1) for piece in self._pieces(bucket)]
            if not pieces:  # nothing but a tied matrix
                continue
            flat = torch.cat(pieces)
            self._sent.append((bucket, flat, self.groups[bucket.name].allreduce([flat])))

    def finish(self) -> None:
        """Waits for every sum and puts it in place."""
        assert not self._waiting, "a layer was never done"
        for bucket, flat, sending in self._sent:
            sending.wait()
            place = 0
            for piece in self._pieces(bucket):
                piece.copy_(flat[place : place + piece.numel()].view_as(piece))
                place += piece.numel()
        self._sent.clear()
        if self.team is not None:
            self._tell_team()

    def _tell_team(self) -> None:
        """The leader's sums of what every rank of the team holds whole."""
        assert self.team is not None
        agreed = [layer for one in self.work.agreements if self._leader in one.ranks for layer in range(*one.layers)]
        for layer in sorted(set(agreed)):
            for weight in self._own(layer):
                if weight.form.split is None:
                    self.team.tell(weight.total)
        if self._leader in self.work.tied:
            self.team.tell(self._tied_matrix().total)

    @property
    def _leader(self) -> int:
        return self.work.tensor_group(self.seat)[0]

    def _tied_matrix(self) -> Weight:
        last = self.work.model.num_layers - 1
        return self.part.weights[0 if 0 in self.part.weights else last]["matrix"]

    def _layers(self, bucket: Bucket) -> Iterator[int]:
        """The seat's own layers of a bucket."""
        layers = bucket.layers if bucket.tied else range(*bucket.layers)
        return (layer for layer in layers if layer in self.part.weights)

    def _own(self, layer: int) -> Iterator[Weight]:
        """Weights of a layer without the tied matrix, which has a bucket of its own."""
        ends = (0, self.work.model.num_layers - 1)
        for name, weight in self.part.weights[layer].items():
            if not (name == "matrix" and layer in ends and self.work.model.tied):
                yield weight

    def _pieces(self, bucket: Bucket) -> Iterator[Tensor]:
        """Views of the sums that a bucket carries."""
        if bucket.tied:
            yield self._tied_matrix().total
            return
        size = self.part.split.size
        for layer in self._layers(bucket):
            for weight in self._own(layer):
                if weight.form.split is not None:
                    own = bucket.part - self.seat.tp_index * bucket.parts // size
                    yield weight.total.chunk(bucket.parts // size, dim=weight.form.split)[own]
                elif bucket.part == 0:
                    yield weight.total
