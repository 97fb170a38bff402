"""The closed form of a step: slowest stage, what crosses domains, bubble. An estimate, held against ``fast``.

``T_step = T_compute + T_comm + T_bubble`` for each pipeline of p stages with v chunks and m waves, then agreement:

* ``T_compute = m * max_s t_s``, t_s the seconds of forward, backward and weight gradient of one wave on stage s;
* ``T_bubble = (sum_s t_s - max_s t_s) / v``: one wave fills and drains the other stages (p - 1 waves where all are
  equal, Narayanan et al. 2021, section 2.2);
* ``T_comm``: one wave's way down and up through all hops, bytes over bandwidth plus latency each; and, where the wire
  is slower than the slowest stage, the rest of ``m * period`` beyond T_compute. The period is the longest of t_s, the
  seconds that all pipelines' waves keep a link busy per wave, the way from a stage to another and back over the waves
  that may pass meanwhile (what 1F1B pays for a slow border), and, with chunks, a round through all stages over p.

Exact for equal stages without links (tests); it does not know which message queues behind which.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hippo.errors import InputError
from hippo.plan.plan import WITH_ORDER, Plan
from hippo.problem.problem import Problem
from hippo.simulate.lower import lower
from hippo.simulate.packed import destinations, stretched_durations
from hippo.simulate.program import BACKWARD, FORWARD, Program
from hippo.simulate.timeline import link_bytes

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def step_time(problem: Problem, plan: Plan) -> float:
    """Estimated seconds of one step of a plan in the base state of the links; raises as ``lower`` does, and
    ``InputError`` for an order of its own, or messages that wait for their receivers: it knows neither."""
    program = lower(problem, plan)
    if plan.schedule.name == WITH_ORDER or program.messages.calls != "free":
        what = "orders that were made for a plan" if plan.schedule.name == WITH_ORDER else "messages that have to meet"
        raise InputError(f"does not know {what}", source="--engine analytic", remedy="use --engine fast")
    return closed_form(program)


def closed_form(program: Program) -> float:
    """Estimated seconds of one step of a program in its base state."""
    bandwidth, latency = program.link_bandwidth_bytes_per_s, program.link_latency_s
    wave = stretched_durations(program, bandwidth, latency).sum(axis=(0, 2))
    if program.fused:
        wave = wave - program.weight_s.sum(axis=1)  # the third row: a fused backward holds it already
    hop, busy = _hop_seconds(program), _busy_per_link(program)
    ends = [
        _pipeline_seconds(program, np.flatnonzero(program.rank_pipeline == index), wave, (hop, busy))
        for index in range(len(program.num_waves))
    ]
    return max(ends) + float(program.sync_s.max()) + _agreement_seconds(program) + float(program.finish_s.max())


def _pipeline_seconds(program: Program, ranks: Ints, wave: Floats, wire: tuple[Floats, Floats]) -> float:
    """Seconds of one pipeline until its last backward; ``wave`` and ``wire[0]`` per rank (G,), ``wire[1]`` (E,)."""
    m, chunks = int(program.num_waves[program.rank_pipeline[ranks[0]]]), program.forward_s.shape[1]
    t, trip = wave[ranks], wire[0][ranks]
    used = np.unique(np.stack([program.down_route[ranks], program.up_route[ranks]]))
    link_s = float(wire[1][used[used >= 0]].max(initial=0.0)) / m
    forward = float(program.forward_s[ranks].sum())
    around = max(forward, float(t.sum()) - forward) + float(trip.sum()) / 2
    loop = around / len(ranks) if chunks > 1 else 0.0  # p chunks are done before the first comes round again
    period = max(float(t.max()), link_s, _circuit_seconds(t, trip, _ahead(program, ranks), m * chunks), loop)
    filling = (t.sum() - t.max()) / chunks + trip[:-1].sum() / chunks
    return float(t.max() + (m - 1) * period + filling)


def _circuit_seconds(t: Floats, trip: Floats, ahead: Ints, forwards: int) -> float:
    """Longest time per wave that stages i and j >= i force on each other, all (p,).

    What leaves i runs down to j, and what comes back lets i go on ``1 + ahead_i - ahead_j`` turns later: the mean of
    that circuit of the precedence graph (Baccelli et al. 1992, section 2.5). Stages that run all their forwards ahead
    wait for nobody.
    """
    before = np.concatenate([[0.0], np.cumsum(t)])
    hops = np.concatenate([[0.0], np.cumsum(trip)])
    way = (before[None, 1:] - before[:-1, None]) + (hops[None, :-1] - hops[:-1, None])  # (i, j)
    turns = 1 + ahead[:, None] - ahead[None, :]
    forced = np.triu(np.ones_like(way, dtype=bool)) & (ahead[:, None] < forwards)
    return float(np.max(np.where(forced, way / np.maximum(turns, 1), 0.0), initial=0.0))


def _ahead(program: Program, ranks: Ints) -> Ints:
    """Forwards (of chunks) that each rank runs before its first backward."""
    kinds = [program.order[program.order_start[rank] : program.order_start[rank + 1], 0] for rank in ranks]
    return np.array([int(np.argmax(kind != FORWARD)) for kind in kinds], dtype=np.int64)


def _hop_seconds(program: Program) -> Floats:
    """Seconds of one wave from each rank to the next and back, all its chunks, alone on the links, (G,)."""
    chunks = program.forward_s.shape[1]
    dest = destinations(program)
    sides = (
        (program.down_bytes, program.down_route, program.down_delay_s, program.down_nic_bytes_per_s),
        (program.up_bytes, program.up_route, program.up_delay_s, program.up_nic_bytes_per_s),
    )
    down, up = (_alone_s(program, *side).ravel() * (to >= 0) for side, to in zip(sides, dest, strict=True))
    total = down.copy()
    has = dest[BACKWARD] >= 0
    np.add.at(total, dest[BACKWARD][has], up[has])
    hops: Floats = total.reshape(-1, chunks).sum(axis=1)
    return hops


def _alone_s(program: Program, num_bytes: Floats, route: Ints, delay_s: Floats, nic: Floats) -> Floats:
    """Seconds of each message with its links to itself: a relay streams, so its slower link counts, (G, C)."""
    bandwidth = np.append(program.link_bandwidth_bytes_per_s, np.inf)
    latency = np.append(program.link_latency_s, 0.0)
    seconds = num_bytes / np.minimum(bandwidth[route].min(axis=2), nic) + latency[route].sum(axis=2)
    return np.where((route[:, :, 0] >= 0) & (num_bytes > 0), seconds, delay_s)


def _busy_per_link(program: Program) -> Floats:
    """Seconds in which the messages of all waves of all pipelines keep each link busy, (E,)."""
    agreed = np.zeros_like(program.link_bandwidth_bytes_per_s)
    for group in program.groups:
        np.add.at(agreed, list(group.links), group.link_bytes)
    busy: Floats = (link_bytes(program) - program.extra_link_bytes - agreed) / program.link_bandwidth_bytes_per_s
    return busy


def _agreement_seconds(program: Program) -> float:
    """Seconds in which all groups agree: those on one link one after the other, all links at once."""
    busy = np.zeros_like(program.link_bandwidth_bytes_per_s)
    local_s = latency_s = 0.0
    for group in program.groups:
        caps = group.nic_bytes_per_s or (np.inf,) * len(group.links)
        for link, size, cap in zip(group.links, group.taken_bytes, caps, strict=True):
            busy[link] += size / min(program.link_bandwidth_bytes_per_s[link], cap)
        routes = group.routes or tuple((link,) for link in group.links)
        slowest = max((float(program.link_latency_s[list(route)].sum()) for route in routes), default=0.0)
        local_s, latency_s = max(local_s, group.local_s), max(latency_s, group.hops * slowest)
    return local_s + float(busy.max(initial=0.0)) + latency_s
