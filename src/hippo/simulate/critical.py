"""What the step time hangs on: how much of the critical path is each link's bytes and latency, each domain's compute.

A play whose orders of operations are fixed is a maximum of sums, so its step time is a convex function of seconds per
byte, latencies and lengths of operations, made of planes; the critical path of one play is the plane that holds there.
(Messages of several senders on one link go in the order in which they come, which bends this a little.)

Letters: S states, E links, K domains, N operations.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.engine.fixed_order import play
from hippo.engine.program import (
    BYTES,
    DEST,
    LINK,
    NIC,
    PORT,
    SECOND_LINK,
    WEIGHT,
    Network,
    Packed,
    Record,
)
from hippo.simulate.batch import step_times
from hippo.simulate.packed import pack
from hippo.simulate.program import Program

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


LITTLE, LEAST_LATENCY_S = 1e-4, 1e-3  # of a figure, in differences


class StatePlanes(NamedTuple):
    """Step time of each state, and what it grows by."""

    seconds: Floats  # (S,)
    bytes: Floats  # (S, E) per second per byte of a link
    latencies: Floats  # (S, E) per second of latency
    compute: Floats  # (S, K) per unit of the factor on the length of operations


class _Lists(NamedTuple):
    """Where things are."""

    op_at: NDArray[np.int64]  # (3 S * waves,) operation of a place and micro-batch
    rank_of: NDArray[np.int64]  # (N,)
    sender: NDArray[np.int64]  # (2 S,) place whose result a place waits for; -1: none
    domain: NDArray[np.int64]  # (G,) of a rank
    per_node: NDArray[np.float64]  # (E,) base bandwidth where caps follow the link, else 0
    streams: NDArray[np.int64]  # (E + 1,) first stream of a link: what one rank sends over it at one hop, in order
    stream: NDArray[np.int64]  # first message of each stream, and where the last one ends
    message: NDArray[np.int64]  # slots of messages in a record, stream after stream


def planes(program: Program, bandwidth_bytes_per_s: Floats, latency_s: Floats, compute: Floats) -> StatePlanes:
    """Plays a program under states (S, E) of links that are up and (S, K) of compute."""
    if program.messages.calls != "free":
        return _by_differences(program, bandwidth_bytes_per_s, latency_s, compute)
    tables, (count, links) = pack(program), bandwidth_bytes_per_s.shape
    per_node = np.zeros(links)
    if program.link_per_node is not None:
        per_node = np.where(program.link_per_node, program.link_bandwidth_bytes_per_s, 0.0)
    base = np.where(per_node > 0, per_node, 1.0)
    scale = np.where(per_node > 0, bandwidth_bytes_per_s / base, 1.0)
    found = StatePlanes(np.empty(count), np.zeros((count, links)), np.zeros((count, links)), np.zeros(compute.shape))
    lists = _lists(program, per_node)
    ops, groups, ranks = len(tables.order), len(tables.group_link), len(tables.sync_s)
    record = Record(
        np.zeros(ops + 2 * ranks), np.zeros(ops + 2 * ranks), np.zeros(2 * ops + groups), np.zeros(2 * ops + groups)
    )
    states = tuple(np.array(each, dtype=np.float64, order="C") for each in (bandwidth_bytes_per_s, latency_s, scale))
    _planes(tables, lists, record, states, np.array(compute, dtype=np.float64, order="C"), found)
    assert not np.isnan(found.seconds).any(), "the order of operations deadlocks"
    return found


def _by_differences(program: Program, bandwidth: Floats, latency: Floats, compute: Floats) -> StatePlanes:
    """The same where senders and receivers have to meet: one more play for each figure, a little larger."""
    (count, links), domains = bandwidth.shape, compute.shape[1]
    used = [link for link in np.unique(pack(program).route[:, [LINK, SECOND_LINK]]).tolist() if link >= 0]
    used = sorted({*used, *(link for group in program.groups for link in group.links)})
    seconds = step_times(program, bandwidth_bytes_per_s=bandwidth, latency_s=latency, compute=compute)
    found = StatePlanes(seconds, np.zeros((count, links)), np.zeros((count, links)), np.zeros((count, domains)))
    for link in used:
        slower, later = bandwidth.copy(), latency.copy()
        slower[:, link] /= 1.0 + LITTLE
        later[:, link] += LITTLE * np.maximum(latency[:, link], LEAST_LATENCY_S)
        more = step_times(program, bandwidth_bytes_per_s=slower, latency_s=latency, compute=compute) - seconds
        found.bytes[:, link] = more * bandwidth[:, link] / LITTLE
        more = step_times(program, bandwidth_bytes_per_s=bandwidth, latency_s=later, compute=compute) - seconds
        found.latencies[:, link] = more / (later - latency)[:, link]
    for domain in np.unique(program.rank_domain).tolist():
        busier = compute.copy()
        busier[:, domain] += LITTLE
        more = step_times(program, bandwidth_bytes_per_s=bandwidth, latency_s=latency, compute=busier) - seconds
        found.compute[:, domain] = more / LITTLE
    return found


def _lists(program: Program, per_node: Floats) -> _Lists:
    tables = pack(program)
    rank_of = np.repeat(np.arange(len(tables.sync_s)), np.diff(tables.order_start))
    place = tables.order[:, 0] * tables.slots + rank_of * tables.chunks + tables.order[:, 1]
    op_at = np.full(3 * tables.slots * tables.waves, -1)
    op_at[place * tables.waves + tables.order[:, 2]] = np.arange(len(place))
    sender, sends = np.full(2 * tables.slots, -1), np.flatnonzero(tables.route[:, DEST] >= 0)
    sender[tables.route[sends, DEST]] = sends
    streams = _streams(tables, place, rank_of, len(per_node))
    return _Lists(op_at, rank_of, sender, np.asarray(program.rank_domain, dtype=np.int64), per_node, *streams)


def _streams(tables: Packed, place: Ints, rank_of: Ints, links: int) -> tuple[Ints, Ints, Ints]:
    """Messages by link, hop and sending rank; what one rank sends over a link leaves in its order."""
    sending = np.flatnonzero(place < 2 * tables.slots)
    rows = [
        np.stack(
            [tables.route[place[sending], column], np.full(len(sending), hop), rank_of[sending], 2 * sending + hop]
        )
        for hop, column in enumerate((LINK, SECOND_LINK))
    ]
    both = np.concatenate(rows, axis=1)
    both = both[:, both[0] >= 0]
    both = both[:, np.lexsort(both[::-1])]
    begins = np.ones(both.shape[1], dtype=bool)
    begins[1:] = (np.diff(both[:3], axis=1) != 0).any(axis=0)
    first = np.flatnonzero(begins)
    messages = np.ascontiguousarray(both[3])  # else, by the shape, kernels are compiled a second time
    return np.searchsorted(both[0, first], np.arange(links + 1)), np.append(first, both.shape[1]), messages


@kernel
def _planes(tables, lists, record, states, compute, found):  # type: ignore[no-untyped-def]
    bandwidth, latency, scale = states
    usual, none = tables.duration.copy(), np.empty(0)
    for sample in range(len(found.seconds)):
        for place in range(len(usual)):
            rank = place % tables.slots // tables.chunks
            tables.duration[place] = usual[place] * compute[sample, lists.domain[rank]]
        network = Network(bandwidth[sample], latency[sample], scale[sample], none, none, none)
        record.message_start[:] = -1.0
        found.seconds[sample] = play(tables, network, record)
        plane = found.bytes[sample], found.latencies[sample], found.compute[sample]
        if found.seconds[sample] < np.inf:
            _follow(tables, lists, record, network, usual, plane)
    tables.duration[:] = usual


@kernel(lean=True)
def _follow(tables, lists, record, network, usual, plane):  # type: ignore[no-untyped-def]
    """Goes back along the critical path from the end of the step."""
    ops = len(tables.order)
    op, slot = _last(tables, lists, record, network, plane)
    for _ in range(8 * ops + 8 * len(tables.group_link) + 8):
        if op < 0 and slot < 0:
            return
        if op >= 0:
            op, slot = _before_operation(tables, lists, record, network, usual, plane, op)
        elif slot < 2 * ops:
            op, slot = _before_message(tables, lists, record, network, plane, slot)
        else:
            op, slot = _before_share(tables, lists, record, network, plane, slot)


@kernel(lean=True)
def _last(tables, lists, record, network, plane):  # type: ignore[no-untyped-def]
    """Operation or message slot that the end of the step waited for."""
    ops, rank = len(tables.order), 0
    for each in range(len(tables.sync_s)):
        if record.op_end[ops + 2 * each + 1] > record.op_end[ops + 2 * rank + 1]:
            rank = each
    agreed = record.op_end[ops + 2 * rank]
    if agreed <= record.op_start[ops + 2 * rank] + tables.sync_s[rank]:
        return tables.order_start[rank + 1] - 1, -1
    most, chosen, slot = -1.0, -1, -1
    for entry in range(tables.rank_group_start[rank], tables.rank_group_start[rank + 1]):
        group = tables.rank_group[entry]
        hops = tables.group_hops[group] * _slowest(tables, network, plane, group, 0.0)
        for index in range(tables.group_link_start[group], tables.group_link_start[group + 1]):
            end = record.message_start[2 * ops + index] + _share_s(tables, network, index) + hops
            if end > most:
                most, chosen, slot = end, group, 2 * ops + index
    if chosen < 0:  # replicas of one domain
        for entry in range(tables.rank_group_start[rank], tables.rank_group_start[rank + 1]):
            group = tables.rank_group[entry]
            ready, other = _ready(tables, record, group)
            if ready + tables.group_local[group] > most:
                most, chosen = ready + tables.group_local[group], other
        return tables.order_start[chosen + 1] - 1, -1
    _slowest(tables, network, plane, chosen, tables.group_hops[chosen])
    index = slot - 2 * ops
    _sent(tables, lists, network, plane, tables.group_link[index], tables.group_bytes[index], tables.group_nic[index])
    return -1, slot


@kernel(lean=True)
def _share_s(tables, network, index):  # type: ignore[no-untyped-def]
    link, num_bytes = tables.group_link[index], tables.group_bytes[index]
    cap = tables.group_nic[index] * network.nic_scale[link]
    return max(num_bytes / network.bandwidth[link], num_bytes / cap)


@kernel(lean=True)
def _slowest(tables, network, plane, group, times):  # type: ignore[no-untyped-def]
    """Longest latency on the ring of a group; counts it so many ``times``."""
    longest, chosen = 0.0, -1
    for pair in range(tables.group_route_start[group], tables.group_route_start[group + 1]):
        latency = 0.0
        for hop in range(2):
            if tables.group_route[pair, hop] >= 0:
                latency += network.latency[tables.group_route[pair, hop]]
        if latency > longest:
            longest, chosen = latency, pair
    if times > 0.0 and chosen >= 0:
        for hop in range(2):
            if tables.group_route[chosen, hop] >= 0:
                plane[1][tables.group_route[chosen, hop]] += times
    return longest


@kernel(lean=True)
def _sent(tables, lists, network, plane, link, num_bytes, nic):  # type: ignore[no-untyped-def]
    """Counts the bytes of a message for as long as it takes the link, or its port where that is slower."""
    if num_bytes / network.bandwidth[link] >= num_bytes / (nic * network.nic_scale[link]):
        plane[0][link] += num_bytes
    elif lists.per_node[link] > 0.0:
        plane[0][link] += num_bytes * lists.per_node[link] / nic


@kernel(lean=True)
def _before_operation(tables, lists, record, network, usual, plane, op):  # type: ignore[no-untyped-def]
    """What an operation waited for; counts its length."""
    rank, kind, micro_batch = lists.rank_of[op], tables.order[op, 0], tables.order[op, 2]
    place = kind * tables.slots + rank * tables.chunks + tables.order[op, 1]
    length = record.op_end[op] - record.op_start[op]
    if len(tables.gather_link) > 0 and length > tables.duration[place] * (1.0 + 1e-9):
        _gathered(tables, network, plane, place)
    else:
        plane[2][lists.domain[rank]] += usual[place]
    first = op == tables.order_start[rank]
    free = 0.0 if first else record.op_end[op - 1]
    if kind == WEIGHT or lists.sender[place] < 0 or record.op_start[op] <= free:
        return (-1 if first else op - 1), -1
    sent = lists.sender[place]
    source = lists.op_at[sent * tables.waves + micro_batch]
    if tables.route[sent, LINK] < 0:
        return source, -1
    second = tables.route[sent, SECOND_LINK]
    if second >= 0:
        plane[1][second] += 1.0
        num_bytes = tables.transfer[sent, BYTES]
        through = record.message_start[2 * source + 1] + num_bytes / network.bandwidth[second]
        if through >= record.message_end[2 * source]:
            plane[0][second] += num_bytes
            return -1, 2 * source + 1
    link = tables.route[sent, LINK]
    plane[1][link] += 1.0
    _sent(tables, lists, network, plane, link, tables.transfer[sent, BYTES], tables.transfer[sent, NIC])
    return -1, 2 * source


@kernel(lean=True)
def _gathered(tables, network, plane, place):  # type: ignore[no-untyped-def]
    """Counts what a pass waits for its parameters."""
    slow, late = tables.gather_link[0], tables.gather_link[0]
    for link in tables.gather_link:
        slow = link if network.bandwidth[link] < network.bandwidth[slow] else slow
        late = link if network.latency[link] > network.latency[late] else late
    plane[0][slow] += tables.gather_bytes[place]
    plane[1][late] += tables.gather_rounds


@kernel(lean=True)
def _place(tables, lists, op):  # type: ignore[no-untyped-def]
    return tables.order[op, 0] * tables.slots + lists.rank_of[op] * tables.chunks + tables.order[op, 1]


@kernel(lean=True)
def _before_message(tables, lists, record, network, plane, slot):  # type: ignore[no-untyped-def]
    """What a message waited for before it took its link."""
    op, start = slot >> 1, record.message_start[slot]
    place, tiny = _place(tables, lists, op), 1e-12 * record.message_start[slot]
    if slot & 1:
        first = tables.route[place, LINK]
        if start <= record.message_start[slot - 1] + network.latency[first] + tiny:
            plane[1][first] += 1.0
            return -1, slot - 1
        return _holder(tables, lists, record, network, plane, slot, tables.route[place, SECOND_LINK], -1)
    if start <= record.op_end[op] + tiny:
        return op, -1
    return _holder(tables, lists, record, network, plane, slot, tables.route[place, LINK], tables.route[place, PORT])


@kernel(lean=True)
def _holder(tables, lists, record, network, plane, slot, link, port):  # type: ignore[no-untyped-def]
    """The message that held the link or the port until this one took it; counts its bytes."""
    ops, start = len(tables.order), record.message_start[slot]
    tiny = 1e-9 * start
    for stream in range(lists.streams[link], lists.streams[link + 1]):
        low, high = lists.stream[stream], lists.stream[stream + 1]
        while low < high:  # the first of the stream that does not begin before
            middle = (low + high) >> 1
            if record.message_start[lists.message[middle]] < start:
                low = middle + 1
            else:
                high = middle
        if low > lists.stream[stream]:
            other = lists.message[low - 1]
            if _held(tables, lists, record, network, plane, other, link, port, start, tiny):
                return -1, other
    for index in range(len(tables.group_link)):
        other = 2 * ops + index
        if other != slot and tables.group_link[index] == link:
            on_link = tables.group_bytes[index] / network.bandwidth[link]
            if abs(record.message_start[other] + on_link - start) <= tiny:
                plane[0][link] += tables.group_bytes[index]
                return -1, other
    return -1, -1


@kernel(lean=True)
def _held(tables, lists, record, network, plane, other, link, port, start, tiny):  # type: ignore[no-untyped-def]
    """Whether a message let go of the link or the port at ``start``; counts its bytes if so."""
    begun, place = record.message_start[other], _place(tables, lists, other >> 1)
    num_bytes, own = tables.transfer[place, BYTES], tables.route[place, SECOND_LINK if other & 1 else LINK]
    if own == link and abs(begun + num_bytes / network.bandwidth[link] - start) <= tiny:
        plane[0][link] += num_bytes
        return True
    if other & 1 or port < 0 or tables.route[place, PORT] != port:
        return False
    if abs(begun + num_bytes / (tables.transfer[place, NIC] * network.nic_scale[own]) - start) > tiny:
        return False
    if lists.per_node[own] > 0.0:
        plane[0][own] += num_bytes * lists.per_node[own] / tables.transfer[place, NIC]
    return True


@kernel(lean=True)
def _before_share(tables, lists, record, network, plane, slot):  # type: ignore[no-untyped-def]
    """What a group's share on one link waited for: the link, or its last member."""
    ops = len(tables.order)
    index = slot - 2 * ops
    group = tables.group_of_link[index]
    ready, rank = _ready(tables, record, group)
    if record.message_start[slot] <= (ready + tables.group_local[group]) * (1.0 + 1e-12):
        return tables.order_start[rank + 1] - 1, -1
    return _holder(tables, lists, record, network, plane, slot, tables.group_link[index], -1)


@kernel(lean=True)
def _ready(tables, record, group):  # type: ignore[no-untyped-def]
    """When the last member of a group is ready to agree, and which rank that is."""
    ops, most, chosen = len(tables.order), -1.0, -1
    for rank in range(len(tables.sync_s)):
        for entry in range(tables.rank_group_start[rank], tables.rank_group_start[rank + 1]):
            if tables.rank_group[entry] == group:
                ready = record.op_start[ops + 2 * rank] + tables.sync_s[rank]
                if ready > most:
                    most, chosen = ready, rank
    return most, chosen
