"""A step as the engine plays it (``engine.program``), made once per program and kept as long as it lives.

Letters: S = G * C slots (rank * C + chunk), N operations, Q groups. A *place* is ``kind * S + slot``: what forwards of
a slot send goes down (activations), what backwards send goes up.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from hippo.engine.program import (
    BACKWARD,
    BYTES,
    DELAY,
    DEST,
    FORWARD,
    LINK,
    NEVER_PLAYED,
    NIC,
    NO_CALLS,
    PORT,
    RECEIVER,
    SECOND_LINK,
    Packed,
    read_only,
)
from hippo.simulate.calls import Calls, calls
from hippo.simulate.program import Program, SyncGroup

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


_TABLES: WeakKeyDictionary[Program, Packed] = WeakKeyDictionary()


def pack(program: Program) -> Packed:
    """The tables of a program; the same object for the same program."""
    tables = _TABLES.get(program)
    if tables is None:
        tables = _TABLES[program] = _pack(program)
    return tables


def durations(program: Program) -> Floats:
    """Seconds of F, B and W without any waiting for parameters, (3, G, C); a fused B contains W."""
    backward = program.backward_s + program.weight_s if program.fused else program.backward_s
    return np.stack([program.forward_s, backward, program.weight_s])


def stretched_durations(program: Program, bandwidth_bytes_per_s: Floats, latency_s: Floats) -> Floats:
    """The same, (3, G, C); no pass ends before its parameters have come over the WAN (``program.gather``)."""
    seconds, gather = durations(program), program.gather
    if gather is None:
        return seconds
    links = list(gather.links)
    per_byte, latency = float(np.max(1.0 / bandwidth_bytes_per_s[links])), float(np.max(latency_s[links]))
    for kind, num_bytes in ((FORWARD, gather.forward_bytes), (BACKWARD, gather.backward_bytes)):
        wait = np.where(num_bytes > 0, num_bytes * per_byte + gather.rounds * latency, 0.0)
        seconds[kind] = np.maximum(seconds[kind], wait)
    return seconds


def destinations(program: Program) -> Ints:
    """Slot that receives what each slot sends down and up, (2, S); -1 at the ends of a pipeline."""
    return _destinations(tuple(np.bincount(program.rank_pipeline).tolist()), program.forward_s.shape[1])


@lru_cache(maxsize=256)
def _destinations(stages: tuple[int, ...], chunks: int) -> Ints:
    """The same for pipelines of so many stages, one after the other."""
    of_rank = np.repeat(stages, stages)[:, None]
    slot = np.arange(len(of_rank) * chunks).reshape(-1, chunks)
    stage, chunk = np.concatenate([np.arange(p) for p in stages])[:, None], np.arange(chunks)[None, :]
    around = (of_rank - 1) * chunks - 1  # from the last stage to the next chunk of the first
    down = np.where(stage == of_rank - 1, np.where(chunk == chunks - 1, -1, slot - around), slot + chunks)
    up = np.where(stage == 0, np.where(chunk == 0, -1, slot + around), slot - chunks)
    found = np.stack([down.ravel(), up.ravel()])
    found.setflags(write=False)
    return found


def _pack(program: Program) -> Packed:
    ranks, chunks = program.forward_s.shape
    route, transfer = _places(program)
    made = calls(program, destinations(program))
    return Packed(
        slots=ranks * chunks,
        chunks=chunks,
        waves=int(program.num_waves.max()),
        queued=made is not None or _needs_queue(route[:, :, [LINK, SECOND_LINK]], program),
        order=read_only(program.order),
        order_start=read_only(program.order_start),
        sequence=np.empty((len(program.order), 4), dtype=np.int64),
        known=np.full(1, NEVER_PLAYED),
        duration=durations(program).ravel(),
        route=route.reshape(-1, 5),
        transfer=transfer.reshape(-1, 3),
        sync_s=np.array(program.sync_s, dtype=np.float64),
        finish_s=np.array(program.finish_s, dtype=np.float64),
        **_group_tables(program.groups, ranks),
        **_gather_tables(program, ranks * chunks),
        **_call_tables(made),
    )


def _places(program: Program) -> tuple[Ints, Floats]:
    """Routes (2, S, 5) and transfers (2, S, 3) of what each slot sends down and up."""
    chunks = program.forward_s.shape[1]
    dest = destinations(program)
    slots = dest.shape[1]
    route, transfer = np.empty((2, slots, 5), dtype=np.int64), np.empty((2, slots, 3))
    for side, way, size, delay, nic in (
        (FORWARD, program.down_route, program.down_bytes, program.down_delay_s, program.down_nic_bytes_per_s),
        (BACKWARD, program.up_route, program.up_bytes, program.up_delay_s, program.up_nic_bytes_per_s),
    ):
        route[side, :, LINK : SECOND_LINK + 1] = way.reshape(slots, 2)
        transfer[side, :, DELAY], transfer[side, :, BYTES] = delay.ravel(), size.ravel()
        transfer[side, :, NIC] = nic.ravel()
    route[(dest < 0) | (transfer[:, :, BYTES] <= 0), LINK : SECOND_LINK + 1] = -1
    end_of_model = np.flatnonzero(dest[FORWARD] < 0)
    route[FORWARD, :, DEST] = dest[FORWARD]
    route[BACKWARD, :, DEST] = np.where(dest[BACKWARD] < 0, -1, dest[BACKWARD] + slots)
    route[FORWARD, end_of_model, DEST] = end_of_model + slots  # hands over to its own backward, at once
    transfer[FORWARD, end_of_model, DELAY] = 0.0
    route[:, :, RECEIVER] = route[:, :, DEST] % slots // chunks
    capped = np.isfinite(transfer[:, :, NIC])
    route[:, :, PORT] = np.where(capped, _ports(program, route[:, :, LINK]), -1) if capped.any() else -1
    return route, transfer


def sending_nodes(program: Program) -> Ints:
    """Number of the nodes each rank sends from, (G,): ranks with the same number share the caps of these nodes."""
    return np.arange(len(program.rank_stage)) if program.rank_nodes is None else program.rank_nodes


def _ports(program: Program, link: Ints) -> Ints:
    """Sending port of each place, (2, S): one per nodes and first link; ``link`` (2, S) as crossed first."""
    nodes = np.repeat(sending_nodes(program), program.forward_s.shape[1])
    _, port = np.unique(nodes[None, :] * (int(link.max()) + 2) + link + 1, return_inverse=True)
    return np.asarray(port, dtype=np.int64).reshape(link.shape)


def _needs_queue(link: Ints, program: Program) -> bool:
    """Whether the order of requests on some link is only known while playing: it is used by two ranks, or as the second
    link behind two others, or by a rank beside a group that may ask before the rank has sent all. A group with the
    first stage of the rank's pipeline asks later: that stage ends with the last wave's backward.

    ``link`` (2, S, 2) as crossed.
    """
    side, slot, hop = np.nonzero(link >= 0)
    behind = np.where(hop == 1, link[side, slot, 0], -1)
    users = set(
        map(tuple, np.column_stack([link[side, slot, hop], slot // program.forward_s.shape[1], behind]).tolist())
    )
    sender, pipeline = {user[0]: user[1] for user in users}, program.rank_pipeline
    if len(users) > len(sender):
        return True
    for group in program.groups:
        done = {int(pipeline[rank]) for rank in group.ranks if program.rank_stage[rank] == 0}
        if any(each in sender and pipeline[sender[each]] not in done for each in group.links):
            return True
    return False


def _group_tables(groups: tuple[SyncGroup, ...], ranks: int) -> dict[str, Any]:
    of_rank: list[list[int]] = [[] for _ in range(ranks)]
    for index, group in enumerate(groups):
        for member in group.ranks:
            of_rank[member].append(index)
    routes = [group.routes or tuple((link,) for link in group.links) for group in groups]
    return {
        "rank_group": _ints([index for members in of_rank for index in members]),
        "rank_group_start": _starts([len(members) for members in of_rank]),
        "group_size": _ints([len(group.ranks) for group in groups]),
        "group_local": _floats([group.local_s for group in groups]),
        "group_hops": _floats([group.hops for group in groups]),
        "group_link_start": _starts([len(group.links) for group in groups]),
        "group_of_link": _ints([index for index, group in enumerate(groups) for _ in group.links]),
        "group_link": _ints([link for group in groups for link in group.links]),
        "group_bytes": _floats([size for group in groups for size in group.taken_bytes]),
        "group_nic": _floats([cap for g in groups for cap in (g.nic_bytes_per_s or (np.inf,) * len(g.links))]),
        "group_route_start": _starts([len(pairs) for pairs in routes]),
        "group_route": _ints([(*pair, -1)[:2] for pairs in routes for pair in pairs]).reshape(-1, 2),
    }


def _gather_tables(program: Program, slots: int) -> dict[str, Any]:
    gather = program.gather
    if gather is None:
        return {"gather_link": _ints([]), "gather_bytes": np.zeros(2 * slots), "gather_rounds": 0.0}
    both = np.concatenate([gather.forward_bytes.ravel(), gather.backward_bytes.ravel()])
    return {"gather_link": _ints(gather.links), "gather_bytes": both, "gather_rounds": float(gather.rounds)}


def _call_tables(made: Calls | None) -> dict[str, Any]:
    return NO_CALLS if made is None else {name: read_only(each) for name, each in made._asdict().items()}


def _ints(values: object) -> Ints:
    return np.asarray(values, dtype=np.int64)


def _floats(values: object) -> Floats:
    return np.asarray(values, dtype=np.float64)


def _starts(lengths: list[int]) -> Ints:
    return np.array([0, *accumulate(lengths)], dtype=np.int64)
