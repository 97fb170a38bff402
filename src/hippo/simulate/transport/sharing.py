"""Flows of one sum that share a link: by how much the last of them ends later than the link alone would say.

A fluid model, eight instants a round trip, of what the congestion controls do (no constant is fitted to a run):

* ``bbr`` (Cardwell et al. 2016; Linux ``tcp_bbr.c``): a flow is paced at the most it saw delivered in ten round trips,
  a sample never above what it sent; one round trip in eight it tries 1.25 of that, then 0.75. So what a flow leaves
  that has ended, the others take up by a quarter in eight round trips.
* ``cubic`` (RFC 9438): a window, cut to 0.7 by a loss, then on its cubic or as Reno would. After silence it is sent at
  once into the queue, and whose frames come last are dropped.

Flows have equal bytes and start together, step after step, with what they know from the step before. Where the link
back is loaded too, acknowledgements wait in its queue and take room on it. Letters: D ways, n flows.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from math import floor

import numpy as np
from numpy.typing import NDArray

from hippo.problem.transport import GOODPUT, SEGMENT_BYTES

Floats = NDArray[np.float64]

PER_ROUND_TRIP = 8  # instants
LEAST_STEPS, MOST_STEPS, MOST_INSTANTS = 3, 8, 20_000  # of a run of steps, the first of which does not count
ACK_BYTES = 70  # on the wire: 52 of headers, 18 of framing
BURST_S, LEAST_BURST = 1e-3, 2  # a sender hands over segments of a millisecond, and two at least, at once
SAMPLES, PHASES = 10, np.array([1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0])  # of bbr
CUT, CUBIC_PER_S3, RENO = 0.7, 0.4, 3 * (1 - 0.7) / (1 + 0.7)  # of cubic: RFC 9438, sections 4.1 to 4.6


@dataclass(frozen=True)
class SharedLink:
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
    world = _Flows(flows, link, control)
    instants = send_s / world.instant_s
    steps = int(np.clip(MOST_INSTANTS // max(instants, 1.0), LEAST_STEPS, MOST_STEPS))
    lasted = [world.step(send_s) for _ in range(steps)]
    return max(1.0, float(np.mean(lasted[1:])) / send_s)


class _Flows:
    """Both ways of a link, and what each flow knows. Amounts in seconds of the link, arrays (D, n)."""

    def __init__(self, flows: int, link: SharedLink, control: str) -> None:
        self.link, self.control = link, control
        self.shape = (2 if link.loaded_back else 1, flows)
        self.instant_s = link.round_trip_s / PER_ROUND_TRIP
        self.segment_s = SEGMENT_BYTES / link.rate_bytes_per_s
        burst = max(LEAST_BURST, floor(BURST_S * link.rate_bytes_per_s / flows / SEGMENT_BYTES))
        self.ack_share = ACK_BYTES * GOODPUT / (burst * SEGMENT_BYTES) if link.loaded_back else 0.0
        self.rng = np.random.default_rng(0)  # which phase a flow is in, whose frames come last
        self.now_s = 0.0
        self.rate = self.rng.uniform(0.9, 1.1, self.shape) / flows  # bbr: the most that was delivered
        self.samples = np.tile(self.rate, (SAMPLES, 1, 1))
        self.phase, self.phase_s = self.rng.integers(1, len(PHASES), self.shape), np.zeros(self.shape)
        self.window = np.full(self.shape, link.round_trip_s / flows)  # cubic
        self.peak, self.cut_s = self.window.copy(), np.zeros(self.shape)  # before and when it was cut

    def step(self, send_s: float) -> float:
        """Seconds until all flows of both ways have delivered their bytes."""
        self.left = np.full(self.shape, send_s / self.shape[1])
        undelivered, self.queue, self.flying = self.left.copy(), np.zeros(self.shape), np.zeros(self.shape)
        self.deaf_s = np.zeros(self.shape)  # until when further losses are of the same round trip
        self.sent, self.acked = [np.zeros(self.shape)], [np.zeros(self.shape)]  # so far, by instant
        acks: defaultdict[int, Floats] = defaultdict(lambda: np.zeros(self.shape))
        losses: defaultdict[int, Floats] = defaultdict(lambda: np.zeros(self.shape))
        sampled, out, at = [0] * self.shape[0], np.zeros(self.shape), 0
        while (undelivered > 1e-9).any():
            at += 1
            self.now_s += self.instant_s
            waits_s = self.queue.sum(axis=1)
            trip_s = self.link.round_trip_s + waits_s + (waits_s[::-1] if self.ack_share else 0.0)
            came = acks.pop(at, np.zeros(self.shape))
            self.flying -= came
            self.acked.append(self.acked[-1] + came)
            if at in losses:
                self._lose(losses.pop(at), trip_s)
            if self.control == "bbr":
                for way, trip in enumerate(np.maximum(1, np.round(trip_s / self.instant_s)).astype(int).tolist()):
                    if at >= sampled[way]:
                        self._sample(way, at, trip)
                        sampled[way] = at + trip
                sending = self._paced()
            else:
                sending = self._windowed(came)
            self.sent.append(self.sent[-1] + sending)
            dropped = self._dropped(sending, self.link.queue_s + self.instant_s - waits_s)
            for way in np.flatnonzero(dropped.any(axis=1)).tolist():
                losses[at + 1 + round(trip_s[way] / self.instant_s)][way] += dropped[way]
            self.left -= sending
            self.flying += sending
            self.queue += sending - dropped
            room = self.instant_s - self.ack_share * out.sum(axis=1)[::-1]
            waiting = np.maximum(self.queue.sum(axis=1), 1e-300)
            out = self.queue * np.minimum(1.0, room / waiting)[:, None]
            self.queue -= out
            undelivered -= out
            for way, back_s in enumerate(trip_s - waits_s):
                acks[at + max(1, round(back_s / self.instant_s))][way] += out[way]
        return at * self.instant_s

    def _sample(self, way: int, at: int, trip: int) -> None:
        """Of a round trip: what was delivered, but no more than was sent in the one before."""
        since, before = at - trip, max(0, at - 2 * trip)
        if since <= 0:
            return  # nothing came back yet
        rate = (self.acked[at][way] - self.acked[since][way]) / ((at - since) * self.instant_s)
        if since > before:
            sent = self.sent[since][way] - self.sent[before][way]
            rate = np.minimum(rate, sent / ((since - before) * self.instant_s))
        newer = np.roll(self.samples[:, way], 1, axis=0)
        newer[0] = rate
        counts = (self.left[way] > 0) | (rate > self.rate[way])  # a flow without bytes shows no rate
        self.samples[:, way] = np.where(counts, newer, self.samples[:, way])
        self.rate[way] = self.samples[:, way].max(axis=0)

    def _paced(self) -> Floats:
        """What bbr sends in an instant; its phases go on."""
        trip_s = self.link.round_trip_s
        own, paced = self.rate * trip_s, PHASES[self.phase] * self.rate * self.instant_s
        room = np.maximum(0.0, 2 * own + 3 * LEAST_BURST * self.segment_s - self.flying)
        sending: Floats = np.minimum(np.minimum(paced, room), self.left)
        self.phase_s += self.instant_s
        over = self.phase_s >= trip_s
        more = over & ((self.flying >= 1.25 * own) | (self.left <= 0))
        ends = np.where(self.phase == 0, more, over | ((self.phase == 1) & (self.flying <= own)))
        self.phase = np.where(ends, (self.phase + 1) % len(PHASES), self.phase)
        self.phase_s = np.where(ends, 0.0, self.phase_s)
        return sending

    def _windowed(self, came: Floats) -> Floats:
        """What cubic sends in an instant; a window that is used grows with what is acknowledged."""
        since_s, peak = self.now_s - self.cut_s, self.peak / self.segment_s
        cubic = CUBIC_PER_S3 * (since_s - np.cbrt(peak * (1 - CUT) / CUBIC_PER_S3)) ** 3 + peak
        reno = CUT * peak + RENO * since_s / self.link.round_trip_s
        aim = np.maximum(cubic, reno) * self.segment_s
        used = self.flying + came >= 0.9 * self.window
        grown = self.window + np.clip(aim / self.window - 1.0, 0.0, 0.5) * came
        self.window = np.where(used, grown, self.window)
        sending: Floats = np.minimum(np.maximum(0.0, self.window - self.flying), self.left)
        return sending

    def _dropped(self, sending: Floats, room_s: Floats) -> Floats:
        """Of what is sent, that which finds the queue full: of one flow after the other, in an order by chance."""
        dropped = np.zeros(self.shape)
        for way in np.flatnonzero(sending.sum(axis=1) > room_s).tolist():
            over = sending[way].sum() - max(0.0, room_s[way])
            for flow in self.rng.permutation(self.shape[1]).tolist():
                dropped[way, flow] = min(sending[way, flow], over)
                over -= dropped[way, flow]
        return dropped

    def _lose(self, lost: Floats, trip_s: Floats) -> None:
        """Senders learn of losses: the bytes are sent again; cubic's window is cut once a round trip."""
        self.flying -= lost
        self.left += lost
        hit = (lost > 0) & (self.now_s >= self.deaf_s)
        self.deaf_s = np.where(hit, self.now_s + trip_s[:, None], self.deaf_s)
        if self.control == "cubic":
            converging = np.where(self.window < self.peak, self.window * (1 + CUT) / 2, self.window)
            self.peak, self.cut_s = np.where(hit, converging, self.peak), np.where(hit, self.now_s, self.cut_s)
            self.window = np.where(hit, np.maximum(CUT * self.window, 2 * self.segment_s), self.window)
