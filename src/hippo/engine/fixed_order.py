"""Each rank keeps to its order: no events for operations, a heap of requests only where links are shared.

How it works. A rank runs its operations in order; each starts when the rank is free and its input has arrived, so a
rank can be played ahead until it misses an input, whatever the other ranks do. Only the order of requests on a shared
link depends on time: those requests go through a heap and are served in order of (time, rank, operation).

Rules, the same in ``simulate.reference``:

* A message of nodes with a cap waits for its port (one per nodes and link; of those that wait, the lower rank first,
  then the earlier operation), then for its first link (FIFO).
* A link is taken for ``bytes / bandwidth``, a port for ``bytes / cap``; the last byte leaves after the longer of both.
* Relays stream: the second link is asked for when the first byte has arrived at the middle, and its last byte cannot
  leave before the last byte has arrived there.
* Requests at the same instant on one link: lower rank first, then earlier operation; groups last, in their order.

How tuples are handed over. Their dozens of arrays, handed over one by one, cost more than a message does: whoever
loops over messages hands over places alone. Only ``replay``, which loops by itself, and what it takes in are flat.
"""

from __future__ import annotations

import numpy as np

from hippo.compiling import kernel
from hippo.engine.program import (
    BYTES,
    CALLS,
    DELAY,
    DEST,
    LINK,
    MET,
    NEVER_PLAYED,
    NIC,
    NOTICE,
    NOTING,
    PORT,
    RECEIVER,
    SECOND_LINK,
    SENDER,
    TAKEN,
    WAY,
    WEIGHT,
    Network,
    Playing,
    Record,
)

LEAST_FACTOR = 0.1  # noise never makes an operation or a transfer shorter than this share of its length
_RANK_SHIFT = 40  # a key is (rank, operation, hop) in one integer; groups come after all ranks, notices after them
AWAITS = -10  # in ``Playing.blocked``, less the number of the call that a rank waits for


@kernel
def play(packed, network, record):  # type: ignore[no-untyped-def]
    """Seconds of the step; NaN when the order deadlocks."""
    return play_in(packed, network, record, new_state(packed, network))


@kernel
def play_in(packed, network, record, state):  # type: ignore[no-untyped-def]
    """The same in a state made for this network, whatever was played in it before."""
    wipe(packed, state)
    if packed.known[0] == len(packed.order) and not packed.queued:
        replay(packed, network, record, state)
    else:
        state.sizes[NOTING] = packed.known[0] != NEVER_PLAYED and not packed.queued
        packed.known[0] = 0
    return run(packed, network, record, state)


@kernel
def play_many(packed, states, noise, rng, found):  # type: ignore[no-untyped-def]
    """Play once per row of the states (bandwidth, latency, scale of caps, factor on each rank's compute; that one has
    no rows where all are 1), with fresh noise each time."""
    bandwidth, latency, scale, compute = states
    usual, none = packed.duration.copy(), np.empty(0)
    record = Record(none, none, none, none)
    noisy, ranks = len(packed.order) if noise > 0.0 else 0, len(packed.sync_s)
    seconds, factor = np.empty(noisy), np.empty(noisy)
    for sample in range(len(found)):
        for place in range(len(usual) if len(compute) > 0 else 0):
            packed.duration[place] = usual[place] * compute[sample, place % packed.slots // packed.chunks]
        network = Network(bandwidth[sample], latency[sample], scale[sample], seconds, factor, none)
        if noisy > 0:
            duration = stretched(packed, network) if len(packed.gather_link) > 0 else packed.duration
            for rank in range(ranks):
                for op in range(packed.order_start[rank], packed.order_start[rank + 1]):
                    place = packed.order[op, 0] * packed.slots + rank * packed.chunks + packed.order[op, 1]
                    seconds[op] = duration[place] * max(LEAST_FACTOR, 1.0 + noise * rng.standard_normal())
                    factor[op] = max(LEAST_FACTOR, 1.0 + noise * rng.standard_normal())
        found[sample] = play(packed, network, record)
    packed.duration[:] = usual


@kernel
def close_many(packed, states, free, link_free, found):  # type: ignore[no-untyped-def]
    """Play on, once per row of the states, where ranks have run their operations until ``free`` (rows, G), and the last
    messages have left the links at ``link_free`` (rows, E)."""
    none = np.empty(0)
    record = Record(none, none, none, none)
    for sample in range(len(found)):
        network = Network(states[0][sample], states[1][sample], states[2][sample], none, none, none)
        state = new_state(packed, network)
        wipe(packed, state)
        state.free[:], state.link_free[:], state.next_op[:] = free[sample], link_free[sample], packed.order_start[1:]
        found[sample] = run(packed, network, record, state)


@kernel
def new_state(packed, network):  # type: ignore[no-untyped-def]
    """Room to play in, not wiped."""
    ops, slots, ranks = len(packed.order), packed.slots, len(packed.sync_s)
    requests = len(packed.group_link) + 1 + (2 * ops if packed.queued else 0) + len(packed.call_rank)
    groups, calls = len(packed.group_size), len(packed.call_rank)
    return Playing(
        stretched(packed, network) if len(packed.gather_link) > 0 else packed.duration,
        np.empty(2 * slots * packed.waves),
        np.empty(ranks, np.int64),
        np.empty(ranks),
        np.empty(ranks, np.int64),
        np.empty(ranks + 1, np.int64),
        np.empty(4, np.int64),
        np.empty(len(network.bandwidth)),
        np.empty(2 * slots),
        np.empty(ops if packed.queued else 0),
        np.empty(requests),
        np.empty(requests, np.int64),
        np.empty(groups, np.int64),
        np.empty(groups),
        np.empty(groups),
        np.empty(calls + 1, np.int64),
        np.empty(calls),
        np.empty(calls),
        np.empty(calls),
        np.empty(calls, np.int64),
        np.empty(ops if calls > 0 else 0),
        np.empty(2 * ranks if calls > 0 else 0),
    )


@kernel(lean=True)
def wipe(packed, state):  # type: ignore[no-untyped-def]
    """Everything idle; the first stages have all their inputs."""
    slots, waves = packed.slots, packed.waves
    state.arrived[:] = -1.0
    for slot in range(slots):
        if packed.route[slots + slot, DEST] < 0:
            state.arrived[slot * waves : (slot + 1) * waves] = 0.0
    for rank in range(len(state.free)):
        state.next_op[rank], state.free[rank], state.blocked[rank] = packed.order_start[rank], 0.0, -1
    for group in range(len(state.group_left)):
        state.group_left[group] = packed.group_size[group]
        state.group_ready[group], state.group_last[group] = 0.0, 0.0
    state.sizes[:], state.link_free[:], state.port_free[:] = 0, 0.0, 0.0
    state.call_asked[:], state.call_begun[:], state.met[:] = -1.0, -1.0, -1.0
    state.call_over[:], state.sent[:] = 0.0, 0.0
    for call in range(len(packed.call_rank)):
        state.call_left[call] = packed.call_part[call + 1] - packed.call_part[call]


@kernel
def stretched(packed, network):  # type: ignore[no-untyped-def]
    """Durations (3 S,): no pass ends before its parameters have come over the WAN."""
    duration = packed.duration.copy()
    seconds_per_byte, latency = 0.0, 0.0
    for link in packed.gather_link:
        seconds_per_byte = max(seconds_per_byte, 1.0 / network.bandwidth[link])
        latency = max(latency, network.latency[link])
    for place in range(2 * packed.slots):
        gather = packed.gather_bytes[place]
        if gather > 0.0:
            wait = gather * seconds_per_byte + packed.gather_rounds * latency
            duration[place] = max(duration[place], wait)
    return duration


@kernel(lean=True)
def run(packed, network, record, state):  # type: ignore[no-untyped-def]
    """Play everything; requests of shared links in the order of the heap."""
    ranks = len(packed.sync_s)
    for call in range(packed.call_of_rank[ranks] if len(packed.call_of_rank) > 0 else 0):
        make_call(packed, state, call, 0.0)
    begin_calls(packed, network, state)
    for rank in range(ranks - 1, -1, -1):
        wake(state, rank)
    run_ready(packed, network, record, state)
    while state.sizes[1] > 0:
        serve(packed, network, record, state)
        if state.sizes[CALLS] > 0:
            begin_calls(packed, network, state)
        run_ready(packed, network, record, state)
    step = 0.0
    for rank in range(ranks):
        if state.next_op[rank] < packed.order_start[rank + 1]:
            return np.nan
        step = max(step, finish(packed, network, record, state, rank))
    return step


@kernel(lean=True, flat=True)
def replay(packed, network, record, state):  # type: ignore[no-untyped-def]
    """Play all operations in the sequence of an earlier play: no search for what can go on."""
    waves, sequence, arrived, free = packed.waves, packed.sequence, state.arrived, state.free
    noisy, recorded, backwards = len(network.seconds) > 0, len(record.op_start) > 0, 2 * packed.slots
    for row in range(len(sequence)):
        op, rank, place, micro_batch = sequence[row, 0], sequence[row, 1], sequence[row, 2], sequence[row, 3]
        start = free[rank]
        if place < backwards:
            start = max(start, arrived[place * waves + micro_batch])
        now = start + (network.seconds[op] if noisy else state.duration[place])
        free[rank] = now
        if recorded:
            record.op_start[op], record.op_end[op] = start, now
        if place < backwards and packed.route[place, DEST] >= 0:
            index = packed.route[place, DEST] * waves + micro_batch
            arrived[index] = arrival_of(packed, network, record, state, op, place, now)
    for rank in range(len(packed.sync_s)):
        state.next_op[rank] = packed.order_start[rank + 1]


@kernel(lean=True)
def wake(state, rank):  # type: ignore[no-untyped-def]
    """Put a rank on the stack of those that can go on."""
    state.ready[state.sizes[0]] = rank
    state.sizes[0] += 1


@kernel(lean=True)
def run_ready(packed, network, record, state):  # type: ignore[no-untyped-def]
    """Play every rank that can go on until each misses an input or is done."""
    while state.sizes[0] > 0:
        state.sizes[0] -= 1
        rank = state.ready[state.sizes[0]]
        advance(packed, network, record, state, rank)
        if state.next_op[rank] == packed.order_start[rank + 1] and state.blocked[rank] != -2:
            state.blocked[rank] = -2
            join_groups(packed, state, rank)


@kernel(lean=True)
def advance(packed, network, record, state, rank):  # type: ignore[no-untyped-def]
    """Play one rank until it misses an input or is done."""
    waves, slots, order, arrived, sequence = packed.waves, packed.slots, packed.order, state.arrived, packed.sequence
    noisy, recorded, noting = len(network.seconds) > 0, len(record.op_start) > 0, state.sizes[NOTING] > 0
    meeting = len(packed.awaited) > 0
    op, end, now = state.next_op[rank], packed.order_start[rank + 1], state.free[rank]
    first_place = rank * packed.chunks
    while op < end:
        kind, micro_batch = order[op, 0], order[op, 2]
        place = kind * slots + first_place + order[op, 1]
        start = now
        if kind != WEIGHT:
            arrival = arrived[place * waves + micro_batch]
            if arrival < 0.0:
                state.blocked[rank] = place * waves + micro_batch
                break
            start = max(now, arrival)
        if meeting and packed.awaited[op] >= 0:
            call = packed.awaited[op]
            if state.call_begun[call] < 0.0 or state.call_left[call] > 0:
                state.blocked[rank] = AWAITS - call
                break
            start = max(start, state.call_over[call])
        now = start + (network.seconds[op] if noisy else state.duration[place])
        if recorded:
            record.op_start[op], record.op_end[op] = start, now
        if noting:
            row = packed.known[0]
            sequence[row, 0], sequence[row, 1], sequence[row, 2], sequence[row, 3] = op, rank, place, micro_batch
            packed.known[0] = row + 1
        if kind != WEIGHT and packed.route[place, DEST] >= 0 and not (meeting and packed.send_call[op] >= 0):
            send(packed, network, record, state, rank, op, place, micro_batch, now)
        if meeting:
            for call in range(packed.call_of_op[op], packed.call_of_op[op + 1]):
                make_call(packed, state, call, now)
            if state.sizes[CALLS] > 0:
                begin_calls(packed, network, state)
        op += 1
    state.next_op[rank], state.free[rank] = op, now


@kernel(lean=True)
def send(packed, network, record, state, rank, op, place, micro_batch, now):  # type: ignore[no-untyped-def]
    """Pass on the result of an operation that ends at ``now``."""
    if packed.queued and packed.route[place, LINK] >= 0:
        heap_push(state, now, (rank << _RANK_SHIFT) | (op << 1))
    else:
        deliver(packed, state, place, micro_batch, arrival_of(packed, network, record, state, op, place, now))


@kernel(lean=True, flat=True)
def arrival_of(packed, network, record, state, op, place, now):  # type: ignore[no-untyped-def]
    """When a result of ``now`` arrives that stays in its domain or has its links to itself."""
    if packed.route[place, LINK] >= 0:
        port, link = packed.route[place, PORT], packed.route[place, LINK]
        start = now if port < 0 else max(now, state.port_free[port])
        first_byte = max(start, state.link_free[link]) + latency_of(network, op, link)
        arrival = cross(packed, network, record, state, op, place, start)
        if packed.route[place, SECOND_LINK] < 0:
            return arrival
        return second_hop(packed, network, record, state, op, place, first_byte, arrival)
    delay = packed.transfer[place, DELAY]
    if len(network.transfer_factor) > 0:
        delay *= network.transfer_factor[op]
    return now + delay


@kernel(lean=True, flat=True)
def latency_of(network, op, link):  # type: ignore[no-untyped-def]
    """Of a link for the message of an operation."""
    latency = network.latency[link]
    return latency * network.latency_factor[op] if len(network.latency_factor) > 0 else latency


@kernel(lean=True)
def deliver(packed, state, place, micro_batch, arrival):  # type: ignore[no-untyped-def]
    """A result has arrived: note it, and wake the receiver if it waits for it."""
    index = packed.route[place, DEST] * packed.waves + micro_batch
    state.arrived[index] = arrival
    receiver = packed.route[place, RECEIVER]
    if state.blocked[receiver] == index:
        state.blocked[receiver] = -1
        wake(state, receiver)


@kernel(lean=True, flat=True)
def cross(packed, network, record, state, op, place, now):  # type: ignore[no-untyped-def]
    """Cross the first link, asked for at ``now`` with the port free; when the last byte has arrived."""
    link, port, num_bytes = packed.route[place, LINK], packed.route[place, PORT], packed.transfer[place, BYTES]
    if len(network.transfer_factor) > 0:
        num_bytes *= network.transfer_factor[op]
    on_link = num_bytes / network.bandwidth[link]
    start = max(now, state.link_free[link])
    last = start + on_link
    state.link_free[link] = last
    if port >= 0:
        state.port_free[port] = start + num_bytes / (packed.transfer[place, NIC] * network.nic_scale[link])
        last = max(last, state.port_free[port])
    arrival = last + latency_of(network, op, link)
    if len(record.message_start) > 0:
        record.message_start[2 * op], record.message_end[2 * op] = start, arrival
    return arrival


@kernel(lean=True)
def serve(packed, network, record, state):  # type: ignore[no-untyped-def]
    """Serve the request of a link that comes first."""
    now, key = heap_pop(state)
    rank, op = key >> _RANK_SHIFT, (key & ((1 << _RANK_SHIFT) - 1)) >> 1
    if rank >= len(packed.sync_s):
        if rank == len(packed.sync_s):
            serve_group(packed, network, record, state, now, op)
        else:
            notice(packed, network, state, op, now)
        return
    micro_batch = packed.order[op, 2]
    place = packed.order[op, 0] * packed.slots + rank * packed.chunks + packed.order[op, 1]
    if key & 1:
        arrival = second_hop(packed, network, record, state, op, place, now, state.first_hop[op])
        hand_over(packed, network, state, op, place, micro_batch, arrival)
        return
    port, link = packed.route[place, PORT], packed.route[place, LINK]
    if port >= 0 and state.port_free[port] > now:
        heap_push(state, state.port_free[port], key)
        return
    first_byte = max(now, state.link_free[link]) + latency_of(network, op, link)
    arrival = cross(packed, network, record, state, op, place, now)
    if packed.route[place, SECOND_LINK] < 0:
        hand_over(packed, network, state, op, place, micro_batch, arrival)
    else:
        state.first_hop[op] = arrival
        heap_push(state, first_byte, key | 1)


@kernel(lean=True)
def make_call(packed, state, call, now):  # type: ignore[no-untyped-def]
    """A rank makes a call: it begins when the one before it is over."""
    state.call_asked[call] = now
    before = packed.call_before[call]
    if before < 0 or (state.call_begun[before] >= 0.0 and state.call_left[before] == 0):
        if before >= 0:
            state.call_asked[call] = max(now, state.call_over[before])
        state.calls[state.sizes[CALLS]] = call
        state.sizes[CALLS] += 1


@kernel(lean=True)
def begin_calls(packed, network, state):  # type: ignore[no-untyped-def]
    """All calls that can begin do; a message whose sender and receiver have met asks for its link."""
    while state.sizes[CALLS] > 0:
        state.sizes[CALLS] -= 1
        call = state.calls[state.sizes[CALLS]]
        now = state.call_asked[call]
        state.call_begun[call] = now
        for at in range(packed.call_part[call], packed.call_part[call + 1]):
            op = packed.part[at] >> 1
            if packed.part[at] & 1 == 0:
                if state.met[op] >= 0.0:
                    meet(packed, network, state, op, max(now, state.met[op]))
            elif packed.meeting[NOTICE] == WAY:
                heap_push(state, now, (len(packed.sync_s) + 1 << _RANK_SHIFT) | (op << 1))
            else:
                take(packed, network, state, op, now)


@kernel(lean=True)
def take(packed, network, state, op, now):  # type: ignore[no-untyped-def]
    """The sender of an operation's result learns at ``now`` that its receiver is there."""
    state.met[op] = now
    begun = state.call_begun[packed.send_call[op]]
    if begun >= 0.0:
        meet(packed, network, state, op, max(now, begun))


@kernel(lean=True)
def notice(packed, network, state, op, now):  # type: ignore[no-untyped-def]
    """What a receiver says at ``now`` goes to the sender behind what it sent that way before, and takes a latency."""
    rank = packed.call_rank[packed.send_call[op]]
    kind = packed.order[op, 0]
    place = kind * packed.slots + rank * packed.chunks + packed.order[op, 1]
    back = (packed.route[place, DEST] + packed.slots) % (2 * packed.slots)
    if packed.route[back, LINK] >= 0:
        now = max(now, state.sent[2 * packed.route[place, RECEIVER] + 1 - kind])
        for hop in (LINK, SECOND_LINK):
            if packed.route[back, hop] >= 0:
                now += network.latency[packed.route[back, hop]]
    take(packed, network, state, op, now)


@kernel(lean=True)
def meet(packed, network, state, op, now):  # type: ignore[no-untyped-def]
    """Sender and receiver of an operation's result have met: it goes."""
    if packed.meeting[SENDER] == MET:
        part_over(packed, state, packed.send_call[op], now)
    rank = packed.call_rank[packed.send_call[op]]
    place = packed.order[op, 0] * packed.slots + rank * packed.chunks + packed.order[op, 1]
    if packed.route[place, LINK] >= 0:
        heap_push(state, now, (rank << _RANK_SHIFT) | (op << 1))
        return
    delay = packed.transfer[place, DELAY]
    if len(network.transfer_factor) > 0:
        delay *= network.transfer_factor[op]
    hand_over(packed, network, state, op, place, packed.order[op, 2], now + delay)


@kernel(lean=True)
def hand_over(packed, network, state, op, place, micro_batch, arrival):  # type: ignore[no-untyped-def]
    """A result has arrived; where it was sent in a call, that is a part over on both sides."""
    deliver(packed, state, place, micro_batch, arrival)
    if len(packed.awaited) == 0 or packed.send_call[op] < 0:
        return
    left, last = arrival, packed.route[place, LINK]
    if packed.route[place, SECOND_LINK] >= 0:
        last = packed.route[place, SECOND_LINK]
    if last >= 0:
        left -= latency_of(network, op, last)
        state.sent[2 * packed.call_rank[packed.send_call[op]] + packed.order[op, 0]] = left
    if packed.meeting[SENDER] == TAKEN:
        part_over(packed, state, packed.send_call[op], arrival)
    part_over(packed, state, packed.take_call[op], arrival)


@kernel(lean=True)
def part_over(packed, state, call, now):  # type: ignore[no-untyped-def]
    """A part of a call is over; with the last one the call, for whoever waits for it."""
    state.call_left[call] -= 1
    state.call_over[call] = max(state.call_over[call], now)
    if state.call_left[call] > 0:
        return
    rank, then = packed.call_rank[call], packed.call_then[call]
    if state.blocked[rank] == AWAITS - call:
        state.blocked[rank] = -1
        wake(state, rank)
    if then >= 0 and state.call_asked[then] >= 0.0:
        state.call_asked[then] = max(state.call_asked[then], state.call_over[call])
        state.calls[state.sizes[CALLS]] = then
        state.sizes[CALLS] += 1


@kernel(lean=True)
def second_hop(packed, network, record, state, op, place, now, whole):  # type: ignore[no-untyped-def]
    """Cross the second link of a relay, its first byte there at ``now``, all at ``whole``; when all has arrived."""
    link, num_bytes = packed.route[place, SECOND_LINK], packed.transfer[place, BYTES]
    if len(network.transfer_factor) > 0:
        num_bytes *= network.transfer_factor[op]
    start = max(now, state.link_free[link])
    state.link_free[link] = start + num_bytes / network.bandwidth[link]
    arrival = max(state.link_free[link], whole) + latency_of(network, op, link)
    if len(record.message_start) > 0:
        record.message_start[2 * op + 1], record.message_end[2 * op + 1] = start, arrival
    return arrival


@kernel(lean=True)
def join_groups(packed, state, rank):  # type: ignore[no-untyped-def]
    """A rank is ready to agree; a group with all its members asks for its links."""
    now = state.free[rank] + packed.sync_s[rank]
    for entry in range(packed.rank_group_start[rank], packed.rank_group_start[rank + 1]):
        group = packed.rank_group[entry]
        state.group_ready[group] = max(state.group_ready[group], now)
        state.group_left[group] -= 1
        if state.group_left[group] == 0:
            start = state.group_ready[group] + packed.group_local[group]
            state.group_last[group] = start
            for index in range(packed.group_link_start[group], packed.group_link_start[group + 1]):
                heap_push(state, start, (len(packed.sync_s) << _RANK_SHIFT) | (index << 1))


@kernel(lean=True)
def serve_group(packed, network, record, state, now, index):  # type: ignore[no-untyped-def]
    """One link of a group's ring carries its share."""
    link, group, num_bytes = packed.group_link[index], packed.group_of_link[index], packed.group_bytes[index]
    on_link = num_bytes / network.bandwidth[link]
    on_port = num_bytes / (packed.group_nic[index] * network.nic_scale[link])
    start = max(now, state.link_free[link])
    state.link_free[link] = start + on_link
    last = start + max(on_link, on_port)
    state.group_last[group] = max(state.group_last[group], last)
    if len(record.message_start) > 0:
        slot = 2 * len(packed.order) + index
        record.message_start[slot], record.message_end[slot] = start, last + network.latency[link]


@kernel(lean=True)
def finish(packed, network, record, state, rank):  # type: ignore[no-untyped-def]
    """When the rank has agreed and updated its parameters."""
    agreed = state.free[rank] + packed.sync_s[rank]
    for entry in range(packed.rank_group_start[rank], packed.rank_group_start[rank + 1]):
        group = packed.rank_group[entry]
        agreed = max(agreed, state.group_last[group] + packed.group_hops[group] * slowest_route(packed, network, group))
    end = agreed + packed.finish_s[rank]
    if len(record.op_start) > 0:
        at = len(packed.order) + 2 * rank
        record.op_start[at], record.op_end[at] = state.free[rank], agreed
        record.op_start[at + 1], record.op_end[at + 1] = agreed, end
    return end


@kernel(lean=True)
def slowest_route(packed, network, group):  # type: ignore[no-untyped-def]
    """Longest latency between neighbours on the ring of a group."""
    longest = 0.0
    for pair in range(packed.group_route_start[group], packed.group_route_start[group + 1]):
        latency = 0.0
        for hop in range(2):
            if packed.group_route[pair, hop] >= 0:
                latency += network.latency[packed.group_route[pair, hop]]
        longest = max(longest, latency)
    return longest


@kernel(lean=True)
def heap_push(state, time, key):  # type: ignore[no-untyped-def]
    """Add a request; the smallest (time, key) is on top."""
    times, keys, at = state.heap_time, state.heap_key, state.sizes[1]
    state.sizes[1] += 1
    while at > 0:
        above = (at - 1) >> 1
        if times[above] < time or (times[above] == time and keys[above] < key):
            break
        times[at], keys[at] = times[above], keys[above]
        at = above
    times[at], keys[at] = time, key


@kernel(lean=True)
def heap_pop(state):  # type: ignore[no-untyped-def]
    """Take the first request: (time, key)."""
    times, keys = state.heap_time, state.heap_key
    state.sizes[1] -= 1
    size, top_time, top_key = state.sizes[1], times[0], keys[0]
    time, key, at = times[size], keys[size], 0
    while 2 * at + 1 < size:
        child = 2 * at + 1
        right = child + 1
        if right < size and (
            times[right] < times[child] or (times[right] == times[child] and keys[right] < keys[child])
        ):
            child = right
        if times[child] > time or (times[child] == time and keys[child] > key):
            break
        times[at], keys[at] = times[child], keys[child]
        at = child
    times[at], keys[at] = time, key
    return top_time, top_key
