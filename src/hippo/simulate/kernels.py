"""The numba kernel that plays a program: no events for operations, a heap of requests only where links are shared.

How it works. A rank runs its operations in order; each starts when the rank is free and its input has arrived, so a
rank can be played ahead until it misses an input, whatever the other ranks do. Only the order of requests on a shared
link depends on time: those requests go through a heap and are served in order of (time, rank, operation).

Rules, the same in ``reference``:

* A message of nodes with a cap waits for its port (one per nodes and link; of those that wait, the lower rank first,
  then the earlier operation), then for its first link (FIFO).
* A link is taken for ``bytes / bandwidth``, a port for ``bytes / cap``; the last byte leaves after the longer of both.
* Relays stream: the second link is asked for when the first byte has arrived at the middle, and its last byte cannot
  leave before the last byte has arrived there.
* Requests at the same instant on one link: lower rank first, then earlier operation; groups last, in their order.
"""

from __future__ import annotations

import numpy as np

from hippo.compiling import kernel
from hippo.simulate.packed import BYTES, DELAY, DEST, LINK, NEVER_PLAYED, NIC, PORT, RECEIVER, SECOND_LINK
from hippo.simulate.program import WEIGHT
from hippo.simulate.state import Network, Record, State

LEAST_FACTOR = 0.1  # noise never makes an operation or a transfer shorter than this share of its length
_RANK_SHIFT = 40  # a key is (rank, operation, hop) in one integer; groups come after all ranks


@kernel
def play(tables, network, record):  # type: ignore[no-untyped-def]
    """Seconds of the step; NaN when the order deadlocks."""
    if tables.known[0] == len(tables.order) and not tables.queued:
        state = new_state(tables, network, False)
        replay(tables, network, record, state)
    else:
        state = new_state(tables, network, tables.known[0] != NEVER_PLAYED and not tables.queued)
        tables.known[0] = 0
    return run(tables, network, record, state)


@kernel
def play_many(tables, states, noise, rng, found):  # type: ignore[no-untyped-def]
    """Play once per row of the states (bandwidth, latency, scale of caps, factor on each rank's compute; that one has
    no rows where all are 1), with fresh noise each time."""
    bandwidth, latency, scale, compute = states
    usual, none = tables.duration.copy(), np.empty(0)
    record = Record(none, none, none, none)
    noisy = len(tables.order) if noise > 0.0 else 0
    op_factor, message_factor = np.empty(noisy), np.empty(noisy)
    for sample in range(len(found)):
        for op in range(noisy):
            op_factor[op] = max(LEAST_FACTOR, 1.0 + noise * rng.standard_normal())
            message_factor[op] = max(LEAST_FACTOR, 1.0 + noise * rng.standard_normal())
        for place in range(len(usual) if len(compute) > 0 else 0):
            tables.duration[place] = usual[place] * compute[sample, place % tables.slots // tables.chunks]
        network = Network(bandwidth[sample], latency[sample], scale[sample], op_factor, message_factor)
        found[sample] = play(tables, network, record)
    tables.duration[:] = usual


@kernel
def close_many(tables, states, free, link_free, found):  # type: ignore[no-untyped-def]
    """Play on, once per row of the states, where ranks have run their operations until ``free`` (rows, G), and the last
    messages have left the links at ``link_free`` (rows, E)."""
    none = np.empty(0)
    record = Record(none, none, none, none)
    for sample in range(len(found)):
        network = Network(states[0][sample], states[1][sample], states[2][sample], none, none)
        state = new_state(tables, network, False)
        state.free[:], state.link_free[:], state.next_op[:] = free[sample], link_free[sample], tables.order_start[1:]
        found[sample] = run(tables, network, record, state)


@kernel
def new_state(tables, network, noting):  # type: ignore[no-untyped-def]
    """Everything idle; the first stages have all their inputs."""
    ops, slots, ranks, waves = len(tables.order), tables.slots, len(tables.sync_s), tables.waves
    arrived = np.full(2 * slots * waves, -1.0)
    for slot in range(slots):
        if tables.route[slots + slot, DEST] < 0:
            arrived[slot * waves : (slot + 1) * waves] = 0.0
    requests = len(tables.group_link) + 1 + (2 * ops if tables.queued else 0)
    groups = len(tables.group_size)
    return State(
        stretched(tables, network) if len(tables.gather_link) > 0 else tables.duration,
        arrived,
        tables.order_start[:-1].copy(),
        np.zeros(ranks),
        np.full(ranks, -1),
        np.empty(ranks + 1, np.int64),
        np.zeros(2, np.int64),
        np.zeros(len(network.bandwidth)),
        np.zeros(2 * slots),
        np.empty(ops if tables.queued else 0),
        np.empty(requests),
        np.empty(requests, np.int64),
        tables.group_size.copy(),
        np.zeros(groups),
        np.zeros(groups),
        noting,
    )


@kernel
def stretched(tables, network):  # type: ignore[no-untyped-def]
    """Durations (3 S,): no pass ends before its parameters have come over the WAN."""
    duration = tables.duration.copy()
    seconds_per_byte, latency = 0.0, 0.0
    for link in tables.gather_link:
        seconds_per_byte = max(seconds_per_byte, 1.0 / network.bandwidth[link])
        latency = max(latency, network.latency[link])
    for place in range(2 * tables.slots):
        gather = tables.gather_bytes[place]
        if gather > 0.0:
            wait = gather * seconds_per_byte + tables.gather_rounds * latency
            duration[place] = max(duration[place], wait)
    return duration


@kernel(lean=True)
def run(tables, network, record, state):  # type: ignore[no-untyped-def]
    """Play everything; requests of shared links in the order of the heap."""
    ranks = len(tables.sync_s)
    for rank in range(ranks - 1, -1, -1):
        wake(state, rank)
    run_ready(tables, network, record, state)
    while state.sizes[1] > 0:
        serve(tables, network, record, state)
        run_ready(tables, network, record, state)
    step = 0.0
    for rank in range(ranks):
        if state.next_op[rank] < tables.order_start[rank + 1]:
            return np.nan
        step = max(step, finish(tables, network, record, state, rank))
    return step


@kernel(lean=True)
def replay(tables, network, record, state):  # type: ignore[no-untyped-def]
    """Play all operations in the sequence of an earlier play: no search for what can go on."""
    waves, sequence, arrived, free = tables.waves, tables.sequence, state.arrived, state.free
    noisy, recorded, backwards = len(network.op_factor) > 0, len(record.op_start) > 0, 2 * tables.slots
    for row in range(len(sequence)):
        op, rank, place, micro_batch = sequence[row, 0], sequence[row, 1], sequence[row, 2], sequence[row, 3]
        start = free[rank]
        if place < backwards:
            start = max(start, arrived[place * waves + micro_batch])
        now = start + (state.duration[place] * network.op_factor[op] if noisy else state.duration[place])
        free[rank] = now
        if recorded:
            record.op_start[op], record.op_end[op] = start, now
        if place < backwards and tables.route[place, DEST] >= 0:
            index = tables.route[place, DEST] * waves + micro_batch
            arrived[index] = arrival_of(tables, network, record, state, op, place, now)
    for rank in range(len(tables.sync_s)):
        state.next_op[rank] = tables.order_start[rank + 1]


@kernel(lean=True)
def wake(state, rank):  # type: ignore[no-untyped-def]
    """Put a rank on the stack of those that can go on."""
    state.ready[state.sizes[0]] = rank
    state.sizes[0] += 1


@kernel(lean=True)
def run_ready(tables, network, record, state):  # type: ignore[no-untyped-def]
    """Play every rank that can go on until each misses an input or is done."""
    while state.sizes[0] > 0:
        state.sizes[0] -= 1
        rank = state.ready[state.sizes[0]]
        advance(tables, network, record, state, rank)
        if state.next_op[rank] == tables.order_start[rank + 1] and state.blocked[rank] != -2:
            state.blocked[rank] = -2
            join_groups(tables, state, rank)


@kernel(lean=True)
def advance(tables, network, record, state, rank):  # type: ignore[no-untyped-def]
    """Play one rank until it misses an input or is done."""
    waves, slots, order, arrived, sequence = tables.waves, tables.slots, tables.order, state.arrived, tables.sequence
    noisy, recorded = len(network.op_factor) > 0, len(record.op_start) > 0
    op, end, now = state.next_op[rank], tables.order_start[rank + 1], state.free[rank]
    first_place = rank * tables.chunks
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
        now = start + (state.duration[place] * network.op_factor[op] if noisy else state.duration[place])
        if recorded:
            record.op_start[op], record.op_end[op] = start, now
        if state.noting:
            row = tables.known[0]
            sequence[row, 0], sequence[row, 1], sequence[row, 2], sequence[row, 3] = op, rank, place, micro_batch
            tables.known[0] = row + 1
        if kind != WEIGHT and tables.route[place, DEST] >= 0:
            send(tables, network, record, state, rank, op, place, micro_batch, now)
        op += 1
    state.next_op[rank], state.free[rank] = op, now


@kernel(lean=True)
def send(tables, network, record, state, rank, op, place, micro_batch, now):  # type: ignore[no-untyped-def]
    """Pass on the result of an operation that ends at ``now``."""
    if tables.queued and tables.route[place, LINK] >= 0:
        heap_push(state, now, (rank << _RANK_SHIFT) | (op << 1))
    else:
        deliver(tables, state, place, micro_batch, arrival_of(tables, network, record, state, op, place, now))


@kernel(lean=True)
def arrival_of(tables, network, record, state, op, place, now):  # type: ignore[no-untyped-def]
    """When a result of ``now`` arrives that stays in its domain or has its links to itself."""
    if tables.route[place, LINK] >= 0:
        port, link = tables.route[place, PORT], tables.route[place, LINK]
        start = now if port < 0 else max(now, state.port_free[port])
        first_byte = max(start, state.link_free[link]) + network.latency[link]
        arrival = cross(tables, network, record, state, op, place, start)
        if tables.route[place, SECOND_LINK] < 0:
            return arrival
        return second_hop(tables, network, record, state, op, place, first_byte, arrival)
    delay = tables.transfer[place, DELAY]
    if len(network.message_factor) > 0:
        delay *= network.message_factor[op]
    return now + delay


@kernel(lean=True)
def deliver(tables, state, place, micro_batch, arrival):  # type: ignore[no-untyped-def]
    """A result has arrived: note it, and wake the receiver if it waits for it."""
    index = tables.route[place, DEST] * tables.waves + micro_batch
    state.arrived[index] = arrival
    receiver = tables.route[place, RECEIVER]
    if state.blocked[receiver] == index:
        state.blocked[receiver] = -1
        wake(state, receiver)


@kernel(lean=True)
def cross(tables, network, record, state, op, place, now):  # type: ignore[no-untyped-def]
    """Cross the first link, asked for at ``now`` with the port free; when the last byte has arrived."""
    link, port, num_bytes = tables.route[place, LINK], tables.route[place, PORT], tables.transfer[place, BYTES]
    if len(network.message_factor) > 0:
        num_bytes *= network.message_factor[op]
    on_link = num_bytes / network.bandwidth[link]
    start = max(now, state.link_free[link])
    last = start + on_link
    state.link_free[link] = last
    if port >= 0:
        state.port_free[port] = start + num_bytes / (tables.transfer[place, NIC] * network.nic_scale[link])
        last = max(last, state.port_free[port])
    arrival = last + network.latency[link]
    if len(record.message_start) > 0:
        record.message_start[2 * op], record.message_end[2 * op] = start, arrival
    return arrival


@kernel(lean=True)
def serve(tables, network, record, state):  # type: ignore[no-untyped-def]
    """Serve the request of a link that comes first."""
    now, key = heap_pop(state)
    rank, op = key >> _RANK_SHIFT, (key & ((1 << _RANK_SHIFT) - 1)) >> 1
    if rank == len(tables.sync_s):
        serve_group(tables, network, record, state, now, op)
        return
    micro_batch = tables.order[op, 2]
    place = tables.order[op, 0] * tables.slots + rank * tables.chunks + tables.order[op, 1]
    if key & 1:
        arrival = second_hop(tables, network, record, state, op, place, now, state.first_hop[op])
        deliver(tables, state, place, micro_batch, arrival)
        return
    port, link = tables.route[place, PORT], tables.route[place, LINK]
    if port >= 0 and state.port_free[port] > now:
        heap_push(state, state.port_free[port], key)
        return
    first_byte = max(now, state.link_free[link]) + network.latency[link]
    arrival = cross(tables, network, record, state, op, place, now)
    if tables.route[place, SECOND_LINK] < 0:
        deliver(tables, state, place, micro_batch, arrival)
    else:
        state.first_hop[op] = arrival
        heap_push(state, first_byte, key | 1)


@kernel(lean=True)
def second_hop(tables, network, record, state, op, place, now, whole):  # type: ignore[no-untyped-def]
    """Cross the second link of a relay, its first byte there at ``now``, all at ``whole``; when all has arrived."""
    link, num_bytes = tables.route[place, SECOND_LINK], tables.transfer[place, BYTES]
    if len(network.message_factor) > 0:
        num_bytes *= network.message_factor[op]
    start = max(now, state.link_free[link])
    state.link_free[link] = start + num_bytes / network.bandwidth[link]
    arrival = max(state.link_free[link], whole) + network.latency[link]
    if len(record.message_start) > 0:
        record.message_start[2 * op + 1], record.message_end[2 * op + 1] = start, arrival
    return arrival


@kernel(lean=True)
def join_groups(tables, state, rank):  # type: ignore[no-untyped-def]
    """A rank is ready to agree; a group with all its members asks for its links."""
    now = state.free[rank] + tables.sync_s[rank]
    for entry in range(tables.rank_group_start[rank], tables.rank_group_start[rank + 1]):
        group = tables.rank_group[entry]
        state.group_ready[group] = max(state.group_ready[group], now)
        state.group_left[group] -= 1
        if state.group_left[group] == 0:
            start = state.group_ready[group] + tables.group_local[group]
            state.group_last[group] = start
            for index in range(tables.group_link_start[group], tables.group_link_start[group + 1]):
                heap_push(state, start, (len(tables.sync_s) << _RANK_SHIFT) | (index << 1))


@kernel(lean=True)
def serve_group(tables, network, record, state, now, index):  # type: ignore[no-untyped-def]
    """One link of a group's ring carries its share."""
    link, group, num_bytes = tables.group_link[index], tables.group_of_link[index], tables.group_bytes[index]
    on_link = num_bytes / network.bandwidth[link]
    on_port = num_bytes / (tables.group_nic[index] * network.nic_scale[link])
    start = max(now, state.link_free[link])
    state.link_free[link] = start + on_link
    last = start + max(on_link, on_port)
    state.group_last[group] = max(state.group_last[group], last)
    if len(record.message_start) > 0:
        slot = 2 * len(tables.order) + index
        record.message_start[slot], record.message_end[slot] = start, last + network.latency[link]


@kernel(lean=True)
def finish(tables, network, record, state, rank):  # type: ignore[no-untyped-def]
    """When the rank has agreed and updated its parameters."""
    agreed = state.free[rank] + tables.sync_s[rank]
    for entry in range(tables.rank_group_start[rank], tables.rank_group_start[rank + 1]):
        group = tables.rank_group[entry]
        agreed = max(agreed, state.group_last[group] + tables.group_hops[group] * slowest_route(tables, network, group))
    end = agreed + tables.finish_s[rank]
    if len(record.op_start) > 0:
        at = len(tables.order) + 2 * rank
        record.op_start[at], record.op_end[at] = state.free[rank], agreed
        record.op_start[at + 1], record.op_end[at + 1] = agreed, end
    return end


@kernel(lean=True)
def slowest_route(tables, network, group):  # type: ignore[no-untyped-def]
    """Longest latency between neighbours on the ring of a group."""
    longest = 0.0
    for pair in range(tables.group_route_start[group], tables.group_route_start[group + 1]):
        latency = 0.0
        for hop in range(2):
            if tables.group_route[pair, hop] >= 0:
                latency += network.latency[tables.group_route[pair, hop]]
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
