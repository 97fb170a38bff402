"""Replicas sum their gradients: bucket by bucket, each sent as soon as its layers are done, while others still work.

A sum goes the way that the plan says (``Sync.all_reduce``): on two levels, inside the domains and between them, or over
one flat ring. Both are ``messages``, of domains or of ranks that stand for one each.
All members of a group hand in the buckets in one order (last layers first). Matrices that tensor parallelism cuts are
agreed part by part (``work.Agreement``); what every rank of a team holds whole is agreed by the leaders, who tell their
team. Gradients are added up in fp32 where they are made, and travel in the precision of the weights, as plans count
them (Megatron-LM's ``--grad-reduce-in-bf16``, torch's DDP).
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from threading import Event, Lock
from types import MappingProxyType
from typing import Any, Protocol

import torch

from hippo.run.executor.channels import Channel, GroupTeam
from hippo.run.model.stage import Part
from hippo.run.model.weights import Weight
from hippo.run.work import GradientGroup, Work, Worker

# ---------------------------------------------------------------------------------------------------------- all-reduce
# A sum whose receives were posted ahead: each hop costs one way, never a round trip. A piece goes on in the thread that
# heard it come, while the worker computes. All ranks get the same bits: each piece is added up once, in one order.

Tensor = torch.Tensor
Span = tuple[Fraction, Fraction]  # of the elements that are summed: from, to


@dataclass(frozen=True)
class SumMessage:
    """What one rank sends to, or hears from, a partner in a sum."""

    partner: int
    span: Span
    how: str  # send; add: what comes is added to what is there; copy: it takes its place

    def ends(self, rank: int) -> tuple[int, int]:
        """Sender and receiver, of which ``rank`` is one."""
        return (rank, self.partner) if self.how == "send" else (self.partner, rank)


@dataclass(frozen=True)
class SumRing:
    """Ranks that add up a span of the elements in as many pieces; in the end the i-th rank has the i-th sum first."""

    ranks: tuple[int, ...]
    span: Span

    def hop(self, rank: int, number: int, how: str) -> tuple[SumMessage, SumMessage]:
        """What a rank sends and hears at a hop of a lap: the first lap adds the pieces up, the second hands them out.

        The ring algorithm of Patarasuk and Yuan 2009: n - 1 hops a lap, so a rank sends 2 (n - 1) / n of the span.
        """
        place, size = self.ranks.index(rank), len(self.ranks)
        held = (place - number - (how == "add")) % size
        onward = SumMessage(self.ranks[(place + 1) % size], self._piece(held), "send")
        return onward, SumMessage(self.ranks[place - 1], self._piece((held - 1) % size), how)

    def _piece(self, index: int) -> Span:
        start, stop = self.span
        each = (stop - start) / len(self.ranks)
        return start + index * each, start + (index + 1) * each


def messages(levels: Sequence[Sequence[int]], rank: int) -> tuple[SumMessage, ...]:
    """What a rank sends and hears in a sum over the ranks of K domains, in order; a sending waits for what is before.

    First each domain's ranks add up among themselves: rank i of n holds the i-th of n shares. Then the domains add
    theirs up, every element on a ring of the K ranks that hold it. Then each domain's ranks tell one another. Domains
    with unlike numbers of ranks cut unlike shares: elements between two cuts of any domain have the same K holders,
    and a rank goes round with each of the runs of its share. A domain sends 2 (K - 1) / K of the elements to the next,
    whatever the numbers. With one rank a domain this is one flat ring; with one domain too.
    """
    home = tuple(next(ranks for ranks in levels if rank in ranks))
    cuts = sorted({Fraction(i, len(ranks)) for ranks in levels for i in range(len(ranks))})
    shards = [
        SumRing(tuple(ranks[int(start * len(ranks))] for ranks in levels), (start, stop))
        for start, stop in zip(cuts, (*cuts[1:], Fraction(1)), strict=True)
    ]
    inside, across = [SumRing(home, (Fraction(0), Fraction(1)))], [ring for ring in shards if rank in ring.ranks]
    found: list[SumMessage] = []
    for rings, how in ((inside, "add"), (across, "add"), (across, "copy"), (inside, "copy")):
        for number in range(len(rings[0].ranks) - 1):
            pairs = [ring.hop(rank, number, how) for ring in rings]
            found += [sent for sent, _ in pairs] + [heard for _, heard in pairs]
    return tuple(found)


class AllReduce:
    """A rank's sums with others. They are asked for in one order by all.

    ``channels``: one for each of ``messages``, those that are sent to one partner may share theirs. What comes has a
    channel, and so a thread, for each message of a sum: at one hop sums come in their order, but the last hop of one
    may come after the first of the next, and must not keep it back. ``most``: elements of a message to a partner, where
    stand-ins cut them short. ``first_tag``: of the messages of a step.
    """

    def __init__(
        self,
        messages: Sequence[SumMessage],
        channels: Sequence[Channel],
        check: Callable[[], None],
        most: Mapping[int, int] = MappingProxyType({}),
        *,
        first_tag: int = 0,
    ) -> None:
        self.messages, self.channels, self.check, self.most = messages, channels, check, most
        self._first_tag = first_tag
        self._expected: deque[Sum] = deque()

    def give_up(self) -> None:
        """Sums that have not begun are no more; what comes for them late is heard by nobody."""
        while self._expected:
            self._expected.popleft().give_up()

    def expect(self, sizes: Iterable[int], like: Tensor) -> None:
        """Posts the receives of the sums of the next step, each of so many elements of the sort of ``like``."""
        assert not self._expected, "sums of the step before are missing"
        tags: Counter[tuple[int, bool]] = Counter()  # messages of the step so far, to and from each partner
        for elements in sizes:
            numbers = []
            for message in self.messages:
                way = message.partner, message.how == "send"
                numbers.append(self._first_tag + tags[way])
                tags[way] += 1
            self._expected.append(Sum(self, elements, like, numbers))

    def allreduce(self, tensors: Sequence[Tensor]) -> Sum:
        """Begins the next sum of a step; the one tensor becomes the sum when ``wait`` returns."""
        (flat,) = tensors
        one = self._expected.popleft()
        one.begin(flat)
        return one


class Sum:
    """One sum."""

    def __init__(self, group: AllReduce, elements: int, like: Tensor, tags: Sequence[int]) -> None:
        self._group, self._tags = group, tags
        self._flat: Tensor | None = None
        self._heard: dict[int, Tensor] = {}
        self._done, self._given_up = 0, False
        self._lock, self._over = Lock(), Event()
        self._spans = [self._span(message, elements) for message in group.messages]
        for at, message in enumerate(group.messages):
            if message.how != "send":
                room = torch.empty(len(self._spans[at]), dtype=like.dtype, device=like.device)
                group.channels[at].receive(room, tags[at], partial(self._hear, at, room))

    def _span(self, message: SumMessage, elements: int) -> range:
        start, stop = (int(each * elements) for each in message.span)
        return range(start, min(stop, start + self._group.most.get(message.partner, elements)))

    def begin(self, flat: Tensor) -> None:
        """The rank's own addends, which become the sums."""
        with self._lock:
            assert not self._given_up, "a sum of a step that was given up"
            self._flat = flat
            self._advance()

    def give_up(self) -> None:
        """The step was given up: a link that was dead may still bring what was sent over it, and the addends, which may
        be the gradients themselves, are those of another step by then."""
        with self._lock:
            self._given_up, self._flat = True, None

    def _hear(self, at: int, came: Tensor) -> None:
        with self._lock:
            self._heard[at] = came
            self._advance()

    @torch.no_grad()
    def _advance(self) -> None:
        """Does what can be done with what has come in."""
        if self._flat is None:
            return
        for at in range(self._done, len(self._spans)):
            how, span = self._group.messages[at].how, self._spans[at]
            piece = self._flat[span.start : span.stop]
            if how == "send":
                self._group.channels[at].send(piece.clone(), self._tags[at])
            elif at not in self._heard:
                return
            elif how == "add":
                piece.add_(self._heard.pop(at))
            else:
                piece.copy_(self._heard.pop(at))
            self._done = at + 1
        self._over.set()

    def wait(self) -> None:
        """Returns when the sums are there; ``check`` may raise."""
        while not self._over.wait(1.0):
            self._group.check()


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


def parameters(work: Work, bucket: Bucket) -> int:
    """Of a bucket, all its parts together."""
    model = work.model
    matrix = model.vocab * model.hidden
    if bucket.tied:
        return matrix
    count = sum(model.layers[layer].parameters for layer in bucket.members)
    return count - matrix if work.tied and 0 in bucket.members else count  # the matrix has a bucket of its own


def _name(ranks: Sequence[int]) -> str:
    return "agree-" + "-".join(str(rank) for rank in ranks)


class Gradients(Protocol):
    """What a worker has to agree on."""

    @property
    def sent(self) -> torch.dtype:
        """In what sums travel, and partial sums are kept on the way."""
        ...

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
        """Posts the receives of the next step, where the groups are hippo's own."""
        sizes: dict[str, list[int]] = {}
        for bucket in buckets(self.work, self.worker):
            pieces = self.gradients.pieces(bucket)
            if pieces:
                sizes.setdefault(bucket.name, []).append(sum(piece.numel() for piece in pieces))
                like = pieces[0].new_empty(0, dtype=self.gradients.sent)
        for name, elements in sizes.items():
            if isinstance(self.groups[name], AllReduce):
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
                flat = torch.cat([piece.reshape(-1) for piece in pieces]) if len(pieces) > 1 else pieces[0].reshape(-1)
                flat = flat.to(self.gradients.sent)
                self._sent.append((pieces, flat, self.groups[bucket.name].allreduce([flat])))

    def give_up(self) -> None:
        """Nothing of what was handed in is summed any more."""
        for _, _, sending in self._sent:
            if isinstance(sending, Sum):
                sending.give_up()
        for group in self.groups.values():
            if isinstance(group, AllReduce):
                group.give_up()
        self._sent.clear()

    def finish(self) -> None:
        """Waits for every sum and puts it in place, for all who share it."""
        self.collect()
        self.gradients.spread()

    def collect(self) -> None:
        """Waits for every sum that this rank takes part in, and puts it in place."""
        assert not self._waiting, "a layer was never done"
        for pieces, flat, sending in self._sent:
            sending.wait()
            shares = torch.split(flat, [piece.numel() for piece in pieces])
            for piece, share in zip(pieces, shares, strict=True):
                piece.copy_(share.view_as(piece))
        self._sent.clear()


class PartGradients:
    """Of real layers."""

    def __init__(self, work: Work, worker: Worker, part: Part, team: GroupTeam | None) -> None:
        self.work, self.worker, self.part, self.team = work, worker, part, team

    @property
    def sent(self) -> torch.dtype:
        """As the weights."""
        return self.part.settings.dtype

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
        self._work, self._bytes, self._sync_s = work, bytes_per_parameter, sync_s
        self._zeros = torch.zeros(0)

    @property
    def sent(self) -> torch.dtype:
        """As the zeros."""
        return self._zeros.dtype

    def pieces(self, bucket: Bucket) -> list[Tensor]:
        """Zeros, the same for all: the machine is spared."""
        size = max(1, round(parameters(self._work, bucket) * self._bytes / 4))
        if size > len(self._zeros):
            self._zeros = torch.zeros(size)
        return [self._zeros[:size]]

    def complete(self, layer: int) -> None:
        """Nothing to do."""

    def spread(self) -> None:
        """Waits as long as the lanes of the stage need to agree."""
        time.sleep(self._sync_s)
