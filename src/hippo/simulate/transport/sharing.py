"""Flows of one sum that share a link: by how much the last of them ends later than the link alone would say.

A fluid model, 64 instants a round trip, of what the congestion controls do (no constant is fitted to a run):

* ``bbr`` (Cardwell et al. 2016; Linux ``tcp_bbr.c``): a flow is paced at the most it saw delivered in ten round trips,
  a sample never above what it sent; one round trip in eight it tries 1.25 of that, then 0.75. So what a flow leaves
  that has ended, the others take up by a quarter in eight round trips.
* ``cubic`` (RFC 9438): a window, cut to 0.7 by a loss, then on its cubic or as Reno would. After silence it is sent at
  once into the queue, flow after flow, in the same order every step: the last ones find no room, and stay small.

Flows have equal bytes and start together, step after step, with what they know from the step before. Where the link
back is loaded too, acknowledgements wait in its queue and take room on it; they come out of it in a row, so windows
leave in a row, and both queues swing while the link is idle in between (Zhang, Shenker and Clark 1991): that needs
instants much shorter than a round trip. Letters: D ways, n flows, L instants that are remembered.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil, floor
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.problem.transport import GOODPUT, SEGMENT_BYTES

Floats = NDArray[np.float64]

PER_ROUND_TRIP = 64  # instants
STARTS = 3  # states of the flows at the start of a run, drawn: the mean of their runs counts
LEAST_STEPS, MOST_STEPS = 3, 8  # of a run, the first of which does not count
MOST_INSTANTS = 150_000  # of a run; what is sent for longer is as a part of it
ACK_BYTES = 70  # on the wire: 52 of headers, 18 of framing
BURST_S, LEAST_BURST = 1e-3, 2  # a sender hands over segments of a millisecond, and two at least, at once
SAMPLES, PHASES = 10, np.array([1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0])  # of bbr
CUT, CUBIC_PER_S3, RENO = 0.7, 0.4, 3 * (1 - 0.7) / (1 + 0.7)  # of cubic: RFC 9438, sections 4.1 to 4.6


class SharedLink(NamedTuple):
    """A link as flows find it; seconds of sending at its rate stand for bytes."""

    rate_bytes_per_s: float  # of payload
    round_trip_s: float
    queue_s: float  # that may wait
    loaded_back: bool  # the way back carries as much at the same time


@lru_cache(maxsize=256)
def stretch(flows: int, send_s: float, link: SharedLink, control: str) -> float:
    """How many times ``send_s`` it takes until so many flows have sent what the link alone carries in ``send_s``."""
    if control not in ("bbr", "cubic") or link.round_trip_s <= 0 or (flows == 1 and not link.loaded_back):
        return 1.0
    instant_s = link.round_trip_s / PER_ROUND_TRIP
    played_s = min(send_s, MOST_INSTANTS / LEAST_STEPS * instant_s)
    steps = int(np.clip(MOST_INSTANTS * instant_s / played_s, LEAST_STEPS, MOST_STEPS))
    burst = max(LEAST_BURST, floor(BURST_S * link.rate_bytes_per_s / flows / SEGMENT_BYTES))
    ack_share = ACK_BYTES * GOODPUT / (burst * SEGMENT_BYTES) if link.loaded_back else 0.0
    facts = Facts(
        control == "bbr",
        played_s,
        instant_s,
        link.round_trip_s,
        link.queue_s,
        SEGMENT_BYTES / link.rate_bytes_per_s,
        ack_share,
        PER_ROUND_TRIP + ceil(2 * link.queue_s / instant_s) + 4,
    )
    lasted_s, rng = np.empty((STARTS, steps)), np.random.default_rng(0)
    for each in lasted_s:
        _run(facts, _known(facts, (2 if link.loaded_back else 1, flows), rng), each)
    return max(1.0, float(lasted_s[:, 1:].mean()) / played_s)


class Facts(NamedTuple):
    """A run's numbers; amounts in seconds of the link."""

    paced: bool  # bbr; else cubic
    send_s: float  # of all flows of a way
    instant_s: float
    round_trip_s: float
    queue_s: float
    segment_s: float
    ack_share: float  # of what comes in, that its acknowledgements take on the way back
    longest: int  # instants until an acknowledgement is there, at most


class FlowsSoFar(NamedTuple):
    """What flows know from step to step, (D, n) but ``samples``, and what is on its way."""

    rate: Floats  # bbr: the most that was delivered
    samples: Floats  # (SAMPLES, D, n)
    phase: NDArray[np.int64]
    phase_s: Floats
    window: Floats  # cubic
    peak: Floats  # before it was cut
    cut_s: Floats  # when
    acks: Floats  # (L, D, n) by instant, as all below
    losses: Floats
    sent: Floats  # so far in the step
    acked: Floats


def _known(facts: Facts, shape: tuple[int, int], rng: np.random.Generator) -> FlowsSoFar:
    flows, window = shape[1], rng.uniform(0.9, 1.1, shape) * facts.round_trip_s / shape[1]
    rate = rng.uniform(0.9, 1.1, shape) / flows
    phase, times = rng.integers(1, len(PHASES), shape), (2 * facts.longest + 4, *shape)
    zeros = np.zeros(shape), np.zeros(times), np.zeros(times), np.zeros(times), np.zeros(times)
    samples = np.tile(rate, (SAMPLES, 1, 1))
    return FlowsSoFar(rate, samples, phase, np.zeros(shape), window, window.copy(), *zeros)


@kernel
def _run(facts, known, lasted_s):  # type: ignore[no-untyped-def]
    """Seconds of each step until all flows of both ways have delivered their bytes, (steps,)."""
    ways, flows = known.rate.shape
    memory, instant_s = len(known.acks), facts.instant_s
    now_s, drawn = 0.0, 1
    for step in range(len(lasted_s)):
        left = np.full((ways, flows), facts.send_s / flows)
        undelivered, queue = left.copy(), np.zeros((ways, flows))
        flying, deaf_s = np.zeros((ways, flows)), np.zeros((ways, flows))  # deaf: further losses are of the same trip
        out, waits_s, trip_s = np.zeros((ways, flows)), np.zeros(ways), np.zeros(ways)
        sampled = np.zeros(ways, np.int64)
        for history in (known.acks, known.losses, known.sent, known.acked):
            history[:] = 0.0
        at = 0
        while undelivered.max() > 1e-9:
            at += 1
            now_s += instant_s
            here, before = at % memory, (at - 1) % memory
            for way in range(ways):
                waits_s[way] = queue[way].sum()
            trip_s[:] = facts.round_trip_s + waits_s.sum()
            for way in range(ways):
                trip = max(1, round(trip_s[way] / instant_s))
                samples = facts.paced and at >= sampled[way]
                if samples:
                    sampled[way] = at + trip
                total = 0.0
                for flow in range(flows):
                    each = way, flow
                    came, known.acks[here, way, flow] = known.acks[here, way, flow], 0.0
                    lost, known.losses[here, way, flow] = known.losses[here, way, flow], 0.0
                    known.acked[here, way, flow] = known.acked[before, way, flow] + came
                    flying[each] -= came + lost
                    left[each] += lost  # to be sent again
                    if lost > 0.0 and now_s >= deaf_s[each]:
                        deaf_s[each] = now_s + trip_s[way]
                        _cut(facts, known, each, now_s)
                    if samples:
                        _sample(facts, known, each, (at, trip), left[each] > 0.0)
                    if facts.paced:
                        room = _paced(facts, known, each, flying[each], left[each] > 0.0)
                    else:
                        room = _windowed(facts, known, each, (flying[each], came, now_s))
                    sending = min(max(0.0, room), left[each])
                    known.sent[here, way, flow] = known.sent[before, way, flow] + sending
                    total += sending
                    left[each] -= sending
                    flying[each] += sending
                    queue[each] += sending
                over = total - max(0.0, facts.queue_s + instant_s - waits_s[way])
                if over > 0.0:  # the queue is full: of one flow after the other, by chance
                    drawn = (drawn * 1103515245 + 12345) % 2147483648
                    first = drawn // 65536 % flows
                    for turn in range(flows):
                        flow = (first - turn) % flows
                        dropped = min(over, known.sent[here, way, flow] - known.sent[before, way, flow])
                        over -= dropped
                        queue[way, flow] -= dropped
                        known.losses[(at + 1 + trip) % memory, way, flow] += dropped
            came_back = np.zeros(ways)
            for way in range(ways):
                came_back[way] = facts.ack_share * out[ways - 1 - way].sum()
            for way in range(ways):
                waiting = queue[way].sum()
                share = min(1.0, (instant_s - came_back[way]) / max(waiting, 1e-300))
                there = (at + max(1, round((trip_s[way] - waits_s[way]) / instant_s))) % memory
                for flow in range(flows):
                    out[way, flow] = share * queue[way, flow]
                    queue[way, flow] -= out[way, flow]
                    undelivered[way, flow] -= out[way, flow]
                    known.acks[there, way, flow] += out[way, flow]
        lasted_s[step] = at * instant_s


@kernel
def _sample(facts, known, each, times, busy):  # type: ignore[no-untyped-def]
    """Of a round trip: what was delivered, but no more than was sent in the one before."""
    (at, trip), (way, flow), memory = times, each, len(known.acked)
    since, earlier = at - trip, max(0, at - 2 * trip)
    if since <= 0:
        return  # nothing came back yet
    got = known.acked[at % memory, way, flow] - known.acked[since % memory, way, flow]
    rate = got / (trip * facts.instant_s)
    if since > earlier:
        sent = known.sent[since % memory, way, flow] - known.sent[earlier % memory, way, flow]
        rate = min(rate, sent / ((since - earlier) * facts.instant_s))
    if busy or rate > known.rate[each]:  # a flow without bytes shows no rate
        for place in range(SAMPLES - 1, 0, -1):
            known.samples[place, way, flow] = known.samples[place - 1, way, flow]
        known.samples[0, way, flow] = rate
        known.rate[each] = known.samples[:, way, flow].max()


@kernel
def _paced(facts, known, each, flying, busy):  # type: ignore[no-untyped-def]
    """What bbr may send in an instant; its phases go on."""
    phase, own = known.phase[each], known.rate[each] * facts.round_trip_s
    paced = PHASES[phase] * known.rate[each] * facts.instant_s
    room = 2 * own + 3 * LEAST_BURST * facts.segment_s - flying
    known.phase_s[each] += facts.instant_s
    ends = known.phase_s[each] >= facts.round_trip_s
    if phase == 0:
        ends = ends and (flying >= 1.25 * own or not busy)
    elif phase == 1:
        ends = ends or flying <= own
    if ends:
        known.phase[each], known.phase_s[each] = (phase + 1) % len(PHASES), 0.0
    return min(paced, room)


@kernel
def _windowed(facts, known, each, state):  # type: ignore[no-untyped-def]
    """What cubic may send in an instant; a window that is used grows with what is acknowledged."""
    flying, came, now_s = state
    if came > 0.0 and flying + came >= 0.9 * known.window[each]:
        since_s, peak = now_s - known.cut_s[each], known.peak[each] / facts.segment_s
        cubic = CUBIC_PER_S3 * (since_s - np.cbrt(peak * (1 - CUT) / CUBIC_PER_S3)) ** 3 + peak
        reno = CUT * peak + RENO * since_s / facts.round_trip_s
        aim = max(cubic, reno) * facts.segment_s
        known.window[each] += min(0.5, max(0.0, aim / known.window[each] - 1.0)) * came
    return known.window[each] - flying


@kernel
def _cut(facts, known, each, now_s):  # type: ignore[no-untyped-def]
    """A loss: cubic's window is cut, at most once a round trip; bbr does not mind."""
    window = known.window[each]
    known.peak[each] = window * (1 + CUT) / 2 if window < known.peak[each] else window
    known.cut_s[each] = now_s
    known.window[each] = max(CUT * window, 2 * facts.segment_s)
