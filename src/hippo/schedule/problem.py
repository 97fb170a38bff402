"""What a micro-batch schedule is made for: times, links and memory of one pipeline. Any unit of time.

Letters: p ranks, v chunks per rank, m micro-batches, S = p v slots (slot ``rank * v + chunk``). A chunk of a rank is a
*virtual stage*; the placement says in which order a micro-batch visits them:

* ``plain``: one stage per rank (v = 1);
* ``looped``: chunk c of rank r is virtual stage ``c p + r`` (Narayanan et al. 2021, section 2.2);
* ``v``: down the ranks with chunk 0 and up again with chunk 1 (Qi et al. 2024, arXiv 2405.15362, section 3);
* ``bidirectional``: two copies of the model; the first half of the micro-batches goes down the ranks with chunk 0, the
  others up with chunk 1 (DualPipe).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.engine.program import BYTES as TRANSFER  # over a link of one byte per unit of time
from hippo.engine.program import (
    DELAY,
    DEST,
    LINK,
    NEVER_PLAYED,
    NIC,
    NO_CALLS,
    RECEIVER,
    Network,
    Packed,
    quiet,
    read_only,
)
from hippo.errors import InputError

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

PLACEMENTS = ("plain", "looped", "v", "bidirectional")


@dataclass(frozen=True)
class RankLink:
    """One direction between two neighbouring ranks; messages leave one after the other."""

    latency: float = 0.0  # from the last byte sent to the last byte received, >= 0
    transfer: float = 0.0  # time that a message occupies the link: bytes / bandwidth, >= 0


@dataclass(frozen=True)
class MicroBatchMemory:
    """What a chunk keeps of one micro-batch, in the unit of the limit."""

    at_forward: float = 1.0  # taken at the start of F, > 0
    at_backward: float = 0.0  # given back at the end of B, from 0 to ``at_forward``; the rest at the end of W


class Tables(NamedTuple):
    """The problem as flat arrays for kernels. Slot = ``rank * v + chunk``; kinds are F, B, W = 0, 1, 2."""

    ranks: int  # p
    chunks: int  # v
    micro_batches: int  # m
    duration: Floats  # (3, S)
    onward: Ints  # (2, S) slot that waits for the result of F (the next) or of B (the one before); -1: none
    delay: Floats  # (2, S) latency of that message; 0 on the same rank
    transfer: Floats  # (2, S) time that it occupies its port
    port: Ints  # (2, S) directed link that the message queues for, FIFO; -1: none
    offset: Ints  # (S,) first micro-batch of the slot
    passes: Ints  # (S,) micro-batches of the slot
    taken: Floats  # (S,) memory at the start of F
    freed: Floats  # (S,) of it at the end of B
    limit: Floats  # (p,) most memory; inf: no limit
    reduction: Floats  # (p,) time after the last operation until the gradients of the rank are agreed


@dataclass(frozen=True)
class ScheduleProblem:
    """p ranks, m micro-batches; checked when made (``InputError`` names the key of ``--problem`` files).

    A rank's times are those of all its layers together; with ``looped`` and ``v`` each of its chunks takes the v-th
    part of them and of the memory, with ``bidirectional`` each chunk takes them whole.

    ``reduction`` is the time from the end of a rank's last operation until its gradients are agreed with its replicas,
    on the network while other ranks still compute; the step ends when all ranks have agreed.
    """

    micro_batches: int
    forward: tuple[float, ...]  # (p,) > 0
    backward: tuple[float, ...]  # (p,) input gradient, > 0
    weight: tuple[float, ...]  # (p,) weight gradient, > 0
    down: tuple[RankLink, ...]  # (p - 1,) from rank r to rank r + 1
    up: tuple[RankLink, ...]  # (p - 1,) from rank r + 1 to rank r
    limit: tuple[float, ...]  # (p,) most memory; inf: no limit
    memory: tuple[MicroBatchMemory, ...] = ()  # (p,); empty: one unit at F, all of it given back at W
    placement: str = "plain"
    chunks: int = 1
    name: str = ""
    reduction: tuple[float, ...] = ()  # (p,) >= 0 after the last operation of each rank; empty: none

    def __post_init__(self) -> None:
        _check(self)

    @classmethod
    def uniform(
        cls,
        ranks: int,
        micro_batches: int,
        times: tuple[float, float, float] = (1.0, 1.0, 1.0),
        *,
        comm: float | Sequence[float] = 0.0,
        live_limit: int | None = None,
    ) -> ScheduleProblem:
        """Equal ranks; ``comm`` is the delay of every link, or of each of the p - 1; the limit counts micro-batches."""
        delays = [float(comm)] * (ranks - 1) if isinstance(comm, (int, float)) else [float(each) for each in comm]
        links = tuple(RankLink(latency=each) for each in delays)
        limit = (inf if live_limit is None else float(live_limit),) * ranks
        forward, backward, weight = ((float(each),) * ranks for each in times)
        return cls(micro_batches, forward, backward, weight, links, links, limit)

    @property
    def ranks(self) -> int:
        """Number of ranks p."""
        return len(self.forward)

    @property
    def work(self) -> tuple[float, ...]:
        """Busy time of each rank, (p,)."""
        busy = self.micro_batches * np.add(np.add(self.forward, self.backward), self.weight)
        return tuple(busy.tolist())

    def placed(self, placement: str, chunks: int | None = None) -> ScheduleProblem:
        """The same ranks, micro-batches and limits with the model laid out otherwise; the count of chunks as usual."""
        usual = {"plain": 1, "looped": max(2, self.chunks), "v": 2, "bidirectional": 2}
        return replace(self, placement=placement, chunks=usual[placement] if chunks is None else chunks)

    @cached_property
    def tables(self) -> Tables:
        """Flat arrays for the kernels; read only."""
        found = _tables(self)
        for array in found:
            if isinstance(array, np.ndarray):
                array.setflags(write=False)
        return found

    @cached_property
    def packed(self) -> tuple[Packed, Packed]:
        """The pipeline as the engine plays it, without an order; of the second a backward holds its weight gradient."""
        return _packed(self.tables)

    def program(self, order: Ints, order_start: Ints, *, fused: bool, again: bool = False) -> Packed:
        """An order of it as the engine plays it over ``network``; ``again``: its first play notes the sequence."""
        return self.packed[int(fused)]._replace(
            order=read_only(order),
            order_start=read_only(order_start),
            sequence=np.empty((len(order), 4), np.int64),
            known=np.full(1, 0 if again else NEVER_PLAYED),
        )

    @cached_property
    def network(self) -> Network:
        """The links that ``packed`` numbers: a byte takes a unit of time, so that bytes are times."""
        port, first = np.unique(self.tables.port, return_index=True)
        latency = self.tables.delay.ravel()[first[port >= 0]]
        return quiet(np.ones(len(latency)), latency, np.ones(len(latency)))


def _packed(tables: Tables) -> tuple[Packed, Packed]:
    """One pipeline whose ranks share no link: nobody agrees with anybody, nothing queues for what another sends."""
    p, v, slots = tables.ranks, tables.chunks, tables.ranks * tables.chunks
    place, slot = np.arange(2 * slots), np.arange(slots)
    dest = np.where(tables.onward < 0, -1, tables.onward + slots * np.arange(2)[:, None])
    dest[0] = np.where(dest[0] < 0, slots + slot, dest[0])  # the end of the model hands over to its own backward
    route, transfer = np.full((2 * slots, 5), -1), np.zeros((2 * slots, 3))
    number = np.unique(tables.port, return_inverse=True)[1].reshape(-1) - int((tables.port < 0).any())
    route[:, DEST], route[:, LINK] = dest.ravel(), number[place]
    route[:, RECEIVER] = route[:, DEST] % slots // v
    transfer[:, DELAY], transfer[:, TRANSFER], transfer[:, NIC] = tables.delay.ravel(), tables.transfer.ravel(), inf
    no_ints, no_floats, one_start = np.empty(0, np.int64), np.empty(0), np.zeros(1, np.int64)
    fused = tables.duration.copy()
    fused[1] += fused[2]
    separate = Packed(
        slots=slots,
        chunks=v,
        waves=tables.micro_batches,
        queued=False,
        order=np.empty((0, 3), np.int64),
        order_start=np.zeros(p + 1, np.int64),
        sequence=np.empty((0, 4), np.int64),
        known=np.zeros(1, np.int64),
        duration=tables.duration.flatten(),
        route=route,
        transfer=transfer,
        sync_s=tables.reduction.copy(),
        finish_s=np.zeros(p),
        rank_group=no_ints,
        rank_group_start=np.zeros(p + 1, np.int64),
        group_size=no_ints,
        group_local=no_floats,
        group_hops=no_floats,
        group_link_start=one_start,
        group_of_link=no_ints,
        group_link=no_ints,
        group_bytes=no_floats,
        group_nic=no_floats,
        group_route_start=one_start,
        group_route=np.empty((0, 2), np.int64),
        gather_link=no_ints,
        gather_bytes=np.zeros(2 * slots),
        gather_rounds=0.0,
        **NO_CALLS,
    )
    return separate, separate._replace(duration=fused.ravel())


def _tables(problem: ScheduleProblem) -> Tables:
    p, v, m = problem.ranks, problem.chunks, problem.micro_batches
    share = 1.0 if problem.placement == "bidirectional" else 1.0 / v
    duration = share * np.repeat([problem.forward, problem.backward, problem.weight], v, axis=1)
    onward, first, count = np.full((2, p * v), -1), np.zeros(p * v, np.int64), np.full(p * v, m)
    if problem.placement == "bidirectional":
        first[1::2], count[0::2], count[1::2] = (m + 1) // 2, (m + 1) // 2, m // 2
    for chain in chains(problem):
        onward[0, chain[:-1]], onward[1, chain[1:]] = chain[1:], chain[:-1]
    delay, transfer, port = np.zeros((2, p * v)), np.zeros((2, p * v)), np.full((2, p * v), -1)
    for kind, slot in zip(*np.nonzero(onward >= 0), strict=True):
        sender, receiver = int(slot) // v, int(onward[kind, slot]) // v
        if sender != receiver:
            link = link_between(problem, sender, receiver)
            delay[kind, slot], transfer[kind, slot] = link.latency, link.transfer
            port[kind, slot] = sender * p + receiver if link.transfer > 0 else -1
    memory = problem.memory or (MicroBatchMemory(),) * p
    taken = share * np.repeat([each.at_forward for each in memory], v)
    freed = share * np.repeat([each.at_backward for each in memory], v)
    limit, reduction = np.array(problem.limit), np.array(problem.reduction or (0.0,) * p)
    return Tables(p, v, m, duration, onward, delay, transfer, port, first, count, taken, freed, limit, reduction)


def chains(problem: ScheduleProblem) -> tuple[tuple[int, ...], ...]:
    """Slots in the order a micro-batch visits them: one chain, or two that go opposite ways."""
    p, v = problem.ranks, problem.chunks
    if problem.placement == "v":
        return (tuple([2 * r for r in range(p)] + [2 * r + 1 for r in reversed(range(p))]),)
    if problem.placement == "bidirectional":
        return tuple(2 * r for r in range(p)), tuple(2 * r + 1 for r in reversed(range(p)))
    return (tuple(r * v + c for c in range(v) for r in range(p)),)


def link_between(problem: ScheduleProblem, sender: int, receiver: int) -> RankLink:
    """The directed link of two ranks; between ranks that are no neighbours as slow as the slowest link on the way."""
    low, high = sorted((sender, receiver))
    way = (problem.down if sender < receiver else problem.up)[low:high]
    return RankLink(max(link.latency for link in way), max(link.transfer for link in way))


# ------------------------------------------------------------------------------------------------------------- checks
def _check(problem: ScheduleProblem) -> None:
    p = len(problem.forward)
    if p < 1:
        raise InputError("must be at least 1", key="p", value=p, remedy="give the number of pipeline stages")
    if problem.micro_batches < 1:
        remedy = "give the number of micro-batches"
        raise InputError("must be at least 1", key="m", value=problem.micro_batches, remedy=remedy)
    for key, times in (("f", problem.forward), ("b", problem.backward), ("w", problem.weight)):
        _check_length(key, times, p)
        for each in times:
            if not 0 < each < inf:
                raise InputError("must be a positive number", key=key, value=each, remedy="give a time above 0")
    for links in (problem.down, problem.up):
        _check_length("comm", links, p - 1)
        for link in links:
            if not (0 <= link.latency < inf and 0 <= link.transfer < inf):
                value = link.latency if not 0 <= link.latency < inf else link.transfer
                raise InputError("must be 0 or more", key="comm", value=value, remedy="give a delay, 0 for none")
    _check_reduction(problem)
    _check_memory(problem)
    _check_placement(problem)


def _check_length(key: str, given: Sequence[object], wanted: int) -> None:
    if len(given) != wanted:
        what = f"{wanted} number{'s' if wanted != 1 else ''}"
        raise InputError(f"must have {what}", key=key, value=len(given), remedy=f"give {what}, one per rank or link")


def _check_reduction(problem: ScheduleProblem) -> None:
    if problem.reduction:
        _check_length("reduction", problem.reduction, problem.ranks)
    for each in problem.reduction:
        if not 0 <= each < inf:
            raise InputError("must be 0 or more", key="reduction", value=each, remedy="give a time, 0 for none")


def _check_memory(problem: ScheduleProblem) -> None:
    _check_length("K", problem.limit, problem.ranks)
    for each in problem.limit:
        if not each > 0:
            raise InputError("must be above 0", key="K", value=each, remedy="give a limit, or null for none")
    if problem.memory:
        _check_length("memory", problem.memory, problem.ranks)
    for given in problem.memory:
        if not (0 < given.at_forward < inf and 0 <= given.at_backward <= given.at_forward):
            remedy = "take more than 0 at F, and give back from 0 to as much at B"
            raise InputError("is no memory of a micro-batch", key="memory", value=given, remedy=remedy)


def _check_placement(problem: ScheduleProblem) -> None:
    if problem.placement not in PLACEMENTS:
        remedy = f"use one of {', '.join(PLACEMENTS)}"
        raise InputError("unknown placement", key="placement", value=problem.placement, remedy=remedy)
    right = {"plain": problem.chunks == 1, "looped": problem.chunks >= 2}
    if not right.get(problem.placement, problem.chunks == 2):
        remedy = "plain has 1, looped 2 or more, v and bidirectional 2"
        raise InputError(
            f"does not go with the placement '{problem.placement}'", key="chunks", value=problem.chunks, remedy=remedy
        )
