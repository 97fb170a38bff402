"""Replicas sum their gradients: bucket by bucket, each sent as soon as its layers are done, while others still work.

All members of a group hand in the buckets in one order (last layers first). Matrices that tensor parallelism cuts are
agreed part by part (``work.Agreement``); what every rank of a team holds whole is agreed by the leaders, who tell their
team.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Event, Lock
from typing import Any, Protocol

import torch

from hippo.run.executor.channels import Channel, GroupTeam
from hippo.run.model.stage import Part
from hippo.run.model.weights import Weight
from hippo.run.work import GradientGroup, Work, Worker

# ---------------------------------------------------------------------------------------------------------------- ring
# A sum over the ranks of a ring whose receives were posted ahead: each hop costs one way, never a round trip.
#
# The ring algorithm (Patarasuk and Yuan 2009): n pieces go round twice, added up on the first lap and handed out on
# the second, so every rank sends 2 (n - 1) / n of the bytes. A piece goes on in the thread that heard it come, while
# the worker computes. All ranks get the same bits: each piece is added up once.

Tensor = torch.Tensor


class GradientRing:
    """Ranks in a ring, of which this one has place ``place`` of ``size``. Sums are asked for in one order by all."""

    def __init__(self, size: int, place: int, channels: tuple[Channel, Channel], check: Callable[[], None]) -> None:
        self.size, self.place, self.check = size, place, check
        self.onward, self.behind = channels
        self._expected: deque[RingSum] = deque()
        self._number = 0

    def expect(self, sizes: Iterable[int], like: Tensor) -> None:
        """Posts the receives of the sums of the next step, each of so many elements of the sort of ``like``."""
        assert not self._expected, "sums of the step before are missing"
        self._expected.extend(RingSum(self, elements, like, number) for number, elements in enumerate(sizes))

    def allreduce(self, tensors: Sequence[Tensor]) -> RingSum:
        """Begins the next sum of a step; the one tensor becomes the sum when ``wait`` returns."""
        (flat,) = tensors
        one = self._expected.popleft()
        one.begin(flat)
        return one


class RingSum:
    """One sum."""

    def __init__(self, ring: GradientRing, elements: int, like: Tensor, number: int) -> None:
        self._ring, self._hops = ring, 2 * (ring.size - 1)
        self._first = number * self._hops  # tag of the first hop
        self._sizes = [len(each) for each in torch.arange(elements).tensor_split(ring.size)]
        self._pieces: list[Tensor] | None = None
        self._heard = self._done = 0
        self._lock, self._over = Lock(), Event()
        self._buffers = [
            torch.empty(self._sizes[self._index(hop)], dtype=like.dtype, device=like.device)
            for hop in range(self._hops)
        ]
        for hop, buffer in enumerate(self._buffers):
            ring.behind.receive(buffer, self._first + hop, partial(self._hear, hop))

    def _index(self, hop: int) -> int:
        """The piece that comes in with a hop."""
        return (self._ring.place - 1 - hop) % self._ring.size

    def begin(self, flat: Tensor) -> None:
        """The rank's own addends, which become the sums."""
        with self._lock:
            self._pieces = list(torch.split(flat, self._sizes))
            self._ring.onward.send(self._pieces[self._ring.place].clone(), self._first)
            self._advance()

    def _hear(self, hop: int) -> None:
        with self._lock:
            self._heard = hop + 1
            self._advance()

    @torch.no_grad()
    def _advance(self) -> None:
        """Does what has come in and can be done."""
        while self._pieces is not None and self._done < self._heard:
            hop, piece = self._done, self._pieces[self._index(self._done)]
            if hop < self._ring.size - 1:
                piece.add_(self._buffers[hop])
            else:
                piece.copy_(self._buffers[hop])
            self._done += 1
            if self._done < self._hops:
                self._ring.onward.send(piece.clone(), self._first + self._done)
            else:
                self._over.set()

    def wait(self) -> None:
        """Returns when the sums are there; ``check`` may raise."""
        while not self._over.wait(1.0):
            self._ring.check()


BUCKET_BYTES = 8_000_000


@dataclass(frozen=True)
class Bucket:
    """Layers [start, stop) of one agreement; of the tied matrix alone where ``tied``."""

    name: str  # of the group: ranks that agree
    ranks: tuple[int, ...]
    layers: tuple[int, int]
    part: int
    parts: int
    tied: bool = False

    @property
    def members(self) -> tuple[int, ...]:
        """Layers whose gradients it needs."""
        return self.layers if self.tied else tuple(range(*self.layers))


def buckets(work: Work, worker: Worker) -> list[Bucket]:
    """What a worker agrees on with others, in the order in which it is handed in; the tied matrix last."""
    found = [one for agreement in work.agreements if worker.rank in agreement.ranks for one in _cut(work, agreement)]
    if worker.rank in work.tied:
        last = work.model.num_layers - 1
        ends = (0, last)
        found.append(Bucket(_name(work.tied), work.tied, ends, 0, 1, tied=True))
    return found


def _cut(work: Work, agreement: GradientGroup) -> Iterator[Bucket]:
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


class Gradients(Protocol):
    """What a worker has to agree on."""

    def pieces(self, bucket: Bucket) -> list[Tensor]:
        """Tensors that a bucket carries; the sums are written into them."""
        ...

    def complete(self, layer: int) -> None:
        """The worker's own work on a layer's gradients is over."""
        ...

    def spread(self) -> None:
        """Everything is agreed: what the rest of a team must know."""
        ...


class Agreeing:
    """Agreement of one worker over the steps of a run."""

    def __init__(self, work: Work, worker: Worker, gradients: Gradients, groups: dict[str, Any]) -> None:
        self.work, self.worker, self.gradients, self.groups = work, worker, gradients, groups
        self._own = {layer for start, stop in work.chunks(worker) for layer in range(start, stop)}
        self._undone: set[int] = set()
        self._waiting: list[Bucket] = []
        self._sent: list[tuple[list[Tensor], Tensor, Any]] = []

    def post(self) -> None:
        """Posts the receives of the next step, where the groups are rings of their own."""
        sizes: dict[str, list[int]] = {}
        for bucket in buckets(self.work, self.worker):
            pieces = self.gradients.pieces(bucket)
            if pieces:
                sizes.setdefault(bucket.name, []).append(sum(piece.numel() for piece in pieces))
                like = pieces[0]
        for name, elements in sizes.items():
            if isinstance(self.groups[name], GradientRing):
                self.groups[name].expect(elements, like)

    def begin(self) -> None:
        """A step starts: nothing is done."""
        self._undone = set(self._own)
        self._waiting, self._sent = buckets(self.work, self.worker), []

    def ready(self, layer: int) -> None:
        """A layer's gradients are whole: hands in the buckets that are ready, in their order."""
        self.gradients.complete(layer)
        self._undone.discard(layer)
        while self._waiting and not self._undone & set(self._waiting[0].members):
            bucket = self._waiting.pop(0)
            pieces = self.gradients.pieces(bucket)
            if pieces:  # else nothing but a tied matrix, which has a bucket of its own
                flat = torch.cat([piece.reshape(-1) for piece in pieces])
                self._sent.append((pieces, flat, self.groups[bucket.name].allreduce([flat])))

    def finish(self) -> None:
        """Waits for every sum and puts it in place."""
        assert not self._waiting, "a layer was never done"
        for pieces, flat, sending in self._sent:
            sending.wait()
            shares = torch.split(flat, [piece.numel() for piece in pieces])
            for piece, share in zip(pieces, shares, strict=True):
                piece.copy_(share.view_as(piece))
        self._sent.clear()
        self.gradients.spread()


class PartGradients:
    """Of real layers."""

    def __init__(self, work: Work, worker: Worker, part: Part, team: GroupTeam | None) -> None:
        self.work, self.worker, self.part, self.team = work, worker, part, team

    def pieces(self, bucket: Bucket) -> list[Tensor]:
        """Views of the sums."""
        if bucket.tied:
            return [self._tied_matrix().total]
        found, size = [], self.part.split.size
        for weight in (w for layer in bucket.members if layer in self.part.weights for w in self._own(layer)):
            if weight.form.split is not None:
                own = bucket.part - self.worker.tp_index * bucket.parts // size
                found.append(weight.total.chunk(bucket.parts // size, dim=weight.form.split)[own])
            elif bucket.part == 0:
                found.append(weight.total)
        return found

    def complete(self, layer: int) -> None:
        """Sums over the team what each rank knows a part of."""
        if self.team is not None:
            for weight in self._own(layer):
                if weight.form.partial:
                    self.team.sum(weight.total)

    def spread(self) -> None:
        """The leader tells the sums of what every rank of the team holds whole."""
        if self.team is None:
            return
        leader = self.work.tensor_group(self.worker)[0]
        agreed = {layer for one in self.work.agreements if leader in one.ranks for layer in range(*one.layers)}
        for weight in (w for layer in sorted(agreed & set(self.part.weights)) for w in self._own(layer)):
            if weight.form.split is None:
                self.team.tell(weight.total)
        if leader in self.work.tied:
            self.team.tell(self._tied_matrix().total)

    def _tied_matrix(self) -> Weight:
        last = self.work.model.num_layers - 1
        return self.part.weights[0 if 0 in self.part.weights else last]["matrix"]

    def _own(self, layer: int) -> Iterator[Weight]:
        """Weights of a layer without the tied matrix, which has a bucket of its own."""
        ends = (0, self.work.model.num_layers - 1)
        for name, weight in self.part.weights[layer].items():
            if not (name == "matrix" and layer in ends and self.work.model.tied):
                yield weight


class StandInGradients:
    """As many bytes as real ones would be, of whole layers; inside the domain the plan's seconds are waited."""

    def __init__(self, work: Work, *, bytes_per_parameter: float, sync_s: float) -> None:
        self._model, self._bytes, self._sync_s = work.model, bytes_per_parameter, sync_s

    def pieces(self, bucket: Bucket) -> list[Tensor]:
        """Zeros."""
        model = self._model
        if bucket.tied:
            count = model.vocab * model.hidden
        else:
            count = sum(model.layers[layer].parameters for layer in bucket.members)
        return [torch.zeros(max(1, round(count * self._bytes / 4)))]

    def complete(self, layer: int) -> None:
        """Nothing to do."""

    def spread(self) -> None:
        """Waits as long as the lanes of the stage need to agree."""
        time.sleep(self._sync_s)
