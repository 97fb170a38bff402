"""What is remembered for many runs over the same states: what is played for a plan, and how long its step takes.

Who asks for the states of one epoch after another is going to ask for the next ones, too, so these are played with
them. Nothing but time depends on what is remembered. Letters: S states, T epochs, H horizons, E links, K domains.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from hippo.plan.plan import Plan
from hippo.simulate.program import Program

Floats = NDArray[np.float64]
States = tuple[Floats, Floats, Floats | None]  # bandwidths (S, E), latencies (S, E), factors on compute (S, K)
Play = Callable[[Floats, Floats, Floats | None], Floats]
TOGETHER = 16  # epochs that are played at once


class Played:
    """Step times by program and states. Each key keeps its program, so that no other one can get its id."""

    def __init__(self) -> None:
        self.moves: dict[tuple[object, object], Floats] = {}  # bytes of a move, by what is equal where places are
        self._known: dict[tuple[int, bytes], tuple[Program, Floats]] = {}
        self._next: dict[bytes, tuple[int, int, int]] = {}  # states to come: series, epoch, how many of its horizons
        self._series: list[tuple[tuple[Floats, Floats, Floats], dict[int, list[bytes]]]] = []
        self._programs: dict[Plan, Program | None] = {}
        self._last: tuple[States | None, bytes] = None, b""

    def program(self, plan: Plan, make: Callable[[Plan], Program | None]) -> Program | None:
        """What is played for a plan, the same for every book; None: it cannot run."""
        if plan not in self._programs:
            self._programs[plan] = make(plan)
        return self._programs[plan]

    def expect(self, bandwidth_bytes_per_s: Floats, latency_s: Floats, compute: Floats) -> None:
        """States that will be asked for epoch after epoch, (T, H, E), (T, H, E) and (T, H, K): all horizons of an
        epoch, or the first alone."""
        states = bandwidth_bytes_per_s, latency_s, compute
        keys: dict[int, list[bytes]] = {}
        for rows in (1, bandwidth_bytes_per_s.shape[1]):
            keys[rows] = [_key(states, epoch, rows) for epoch in range(len(bandwidth_bytes_per_s))]
            if keys[rows][0] in self._next:
                return  # the same as before
        for rows, each in keys.items():
            self._next |= {key: (len(self._series), epoch, rows) for epoch, key in enumerate(each)}
        self._series.append((states, keys))

    def seconds(self, program: Program, states: States, play: Play) -> Floats:
        """Step times of a program, (S,); what is not known is played."""
        asked, key = self._last
        if asked is None or any(one is not other for one, other in zip(asked, states, strict=True)):
            key = _key(states)
            self._last = states, key
        known = self._known.get((id(program), key))
        if known is None:
            self._play(program, key, states, play)
            known = self._known[id(program), key]
        return known[1].copy()

    def _play(self, program: Program, key: bytes, states: States, play: Play) -> None:
        series, epoch, rows = self._next.get(key, (-1, 0, 0))
        if series >= 0:
            whole, keys = self._series[series]
            if epoch > 0 and (id(program), keys[rows][epoch - 1]) in self._known:
                wanted = keys[rows][epoch : epoch + TOGETHER]
                stop = epoch + len(wanted)
                found = play(*(np.concatenate(each[epoch:stop, :rows]) for each in whole))
                for place, each in enumerate(wanted):
                    self._known[id(program), each] = program, found[place * rows : (place + 1) * rows]
                return
        self._known[id(program), key] = program, play(*states)


def _key(states: States, epoch: int | None = None, rows: int = 0) -> bytes:
    """What is equal where states are; ``epoch``: of (T, H, ..), the first ``rows`` of that one."""
    given = [each if epoch is None else each[epoch, :rows] for each in states if each is not None]
    told = b"".join(each.tobytes() for each in given)
    return blake2b(told, digest_size=16).digest() + bytes([len(given)])
