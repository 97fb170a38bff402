"""Learned dispatch once more, slowly and in plain Python: dictionaries and lists in place of arrays and kernels."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np

from hippo.dispatch.base import Base
from hippo.dispatch.dispatch import Draws
from hippo.dispatch.network import DispatchWeights
from hippo.schedule.problem import ScheduleProblem

Key = tuple[int, int, int]  # kind, rank, micro-batch
F, B, W, WAIT = range(4)


class PlainPlay:
    """One play. ``choose`` is asked with what the rank may do and what the base would do."""

    def __init__(self, problem: ScheduleProblem, base: Base, draws: Draws, choose: Any) -> None:
        self.problem, self.base, self.draws, self.choose = problem, base, draws, choose
        self.p, self.m = problem.ranks, problem.micro_batches
        self.times = (problem.forward, problem.backward, problem.weight)
        self.done: list[list[int]] = [[0, 0, 0] for _ in range(self.p)]
        self.arrival: dict[Key, float] = {(F, 0, i): 0.0 for i in range(self.m)}
        self.announced: dict[Key, tuple[float, float]] = {}  # heard, expected
        self.wake = [0.0] * self.p
        self.sleep = [""] * self.p
        self.held = [0.0] * self.p
        self.link_free: dict[tuple[int, int], float] = {}
        self.start: dict[Key, float] = {}
        self.ends: list[float] = []

    def run(self) -> float:
        """The makespan."""
        while any(done[W] < self.m for done in self.done):
            now = min(self.wake)
            self.decide(self.wake.index(now), now)
        return max(self.ends)

    def there(self, key: Key, now: float) -> bool:
        return self.arrival.get(key, inf) <= now + 1e-9 * now

    def decide(self, rank: int, now: float) -> None:
        f, b, w = self.done[rank]
        tables = self.problem.tables
        fits = f < self.m and self.held[rank] + tables.taken[rank] <= tables.limit[rank] * (1 + 1e-9)
        ready = [
            kind
            for kind, index, may in ((F, f, fits), (B, b, b < self.m))
            if may and self.there((kind, rank, index), now)
        ]
        ready += [W] if w < b else []
        if not ready:
            self.wake[rank], self.sleep[rank] = self.next_arrival(rank, now), "starved"
            return
        wanted = [(F, rank, f)] * int(fits) + [(B, rank, b)] * int(b < self.m)
        awaited = [key for key in wanted if not self.there(key, now) and self.announced.get(key, (inf,))[0] <= now]
        if len(ready) == 1 and not awaited:
            self.begin(rank, now, ready[0])
            return
        says, until = self.says(rank, now, ready, fits)
        choice = self.choose(rank, now, ready + [WAIT] * bool(awaited), says)
        if choice == WAIT:
            self.wait(rank, now, until)
        else:
            self.begin(rank, now, choice)

    def next_arrival(self, rank: int, now: float) -> float:
        heads = [(F, rank, self.done[rank][F]), (B, rank, self.done[rank][B])]
        return min(
            (self.arrival[key] for key in heads if key in self.arrival and not self.there(key, now)), default=inf
        )

    def says(self, rank: int, now: float, ready: list[int], fits: bool) -> tuple[int, float]:
        left = [kind for kind in (F, B, W) if self.done[rank][kind] < self.m and (kind != F or fits)]
        turns = {kind: self.base.turn[kind, rank, self.done[rank][kind]] for kind in left}
        best, first = min(ready, key=turns.__getitem__), min(left, key=turns.__getitem__)
        heard, expected = self.announced.get((first, rank, self.done[rank][first]), (inf, inf))
        bearable = self.base.patience * self.times[best][rank]
        waits = self.base.patience > 0 and first != best and heard <= now
        if waits and expected - bearable <= now < expected + bearable:
            return WAIT, expected + bearable
        return best, inf

    def wait(self, rank: int, now: float, until: float) -> None:
        moments = [self.next_arrival(rank, now), until if until < inf else now + 0.25 * self.base.beat]
        for kind in (F, B):
            heard = self.announced.get((kind, rank, self.done[rank][kind]), (inf,))[0]
            moments += [heard] if heard > now else []
        self.wake[rank], self.sleep[rank] = min(moments), "waiting"

    def begin(self, rank: int, now: float, kind: int) -> None:
        operations, messages, ranks = self.draws
        index, tables = self.done[rank][kind], self.problem.tables
        at = (kind * self.p + rank) * self.m + index
        begins = now if kind == W else max(now, self.arrival[kind, rank, index])
        end = begins + self.times[kind][rank] * float(ranks[rank]) * float(operations[at])
        self.start[kind, rank, index], self.sleep[rank], self.wake[rank] = begins, "", end
        taken, freed = tables.taken[rank], tables.freed[rank]
        self.held[rank] += {F: taken, B: -freed, W: freed - taken}[kind]
        self.done[rank][kind] += 1
        if self.done[rank][W] == self.m:
            self.wake[rank] = inf
            self.ends.append(end + tables.reduction[rank])
        if kind != W:
            self.send(rank, kind, index, (begins, end), float(messages[at]))

    def send(self, rank: int, kind: int, index: int, during: tuple[float, float], stretch: float) -> None:
        begins, end = during
        receiver = rank + 1 if kind == F else rank - 1
        if receiver == self.p:
            self.arrival[B, rank, index] = end
        if not 0 <= receiver < self.p:
            return
        link = self.problem.down[rank] if kind == F else self.problem.up[receiver]
        sent = end
        if link.transfer > 0:
            sent = max(end, self.link_free.get((rank, kind), 0.0)) + link.transfer * stretch
            self.link_free[rank, kind] = sent
        key = (kind, receiver, index)
        self.arrival[key] = sent + link.latency * stretch
        promised = self.times[kind][rank] + link.transfer + link.latency
        self.announced[key] = (begins + link.latency, begins + promised)
        if self.sleep[receiver]:
            self.wake[receiver] = min(self.wake[receiver], self.arrival[key])
        if self.sleep[receiver] == "waiting":
            self.wake[receiver] = min(self.wake[receiver], self.announced[key][0])


def plain_scores(weights: DispatchWeights, seen: np.ndarray, says: int) -> np.ndarray:
    """The network in numpy, double precision."""
    one = np.maximum(seen.astype(np.float64) @ weights.first + weights.first_bias, 0)
    two = np.maximum(one @ weights.second + weights.second_bias, 0)
    found = two @ weights.last + weights.last_bias
    found[says] += weights.trust[0]
    return found
