"""A worker that asks what is next: messages and announcements in, operations out (``dispatch.rank`` decides).

A producer sends a note when it begins an operation: which, and how many it has begun of each kind. So the receiver
knows what is coming long before it comes, and when (its clock at the note's coming and the promised time: no clocks are
compared), and waiting is a choice. Notes have streams of their own, or they would queue behind the messages.

Where links are *played*, all on one machine with one clock, messages go over the loopback and are held by the receiver
for as long as the link of the plan would have had them: one after the other on the link, then its latency. A second
note says when a message was made, so that what the loopback takes is within that, not on top.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from functools import partial
from math import inf
from typing import NamedTuple

import torch

from hippo.dispatch.rank import RankDispatch
from hippo.engine.program import BACKWARD, FORWARD
from hippo.run.dispatching import WorkerNoise
from hippo.run.executor.channels import Channel, Inbox
from hippo.run.work import Operation, Transfer
from hippo.schedule.problem import ScheduleProblem

BEGUN, MADE = 0, 1
"""What a note says of an operation."""
LOOK_S = 1.0  # who waits says so that often

Note = tuple[int, int, int, float, list[float]]  # kind, wave, what it says, when it came (monotonic), its numbers


class WayIn(NamedTuple):
    """How inputs of a kind come in; seconds as promised."""

    sources: int  # workers that each send a part
    delay_s: float
    sending_s: float
    lasts_s: float  # the operation that makes one


class NoteChannels(NamedTuple):
    """The streams of notes, beside those of messages."""

    incoming: Mapping[Transfer, Channel]
    outgoing: Mapping[Transfer, Channel]


class Asking:
    """One worker's questions, through all steps."""

    def __init__(
        self,
        rank: RankDispatch,
        ways: tuple[WayIn, WayIn],
        notes: NoteChannels,
        *,
        waves: int,
        announces: bool,
        played: bool,
        noise: WorkerNoise,
    ) -> None:
        self._rank, self._ways, self._notes, self._waves = rank, ways, notes, waves
        self._announces, self._played, self._noise = announces, played, noise
        self._said = ([BEGUN] if announces else []) + ([MADE] if played else [])
        self._heard: deque[Note] = deque()
        self._step, self._start_s = 0, 0.0
        self._wipe()
        self.asked, self.asked_s = 0, 0.0  # decisions of this step, and their CPU seconds

    def _wipe(self) -> None:
        """No message has come in this step."""
        self._heard = deque()  # threads may still hold that of the step before
        self._there = [0, 0]  # inputs of each kind that have been told to the rank
        self._free_s = [0.0, 0.0]  # when the link is
        self._notes_of: dict[tuple[int, int, int], list[Note]] = {}
        self._made_s: dict[tuple[int, int], float] = {}

    def post(self, inbox: Inbox) -> None:
        """Posts receives of all notes of the next step."""
        self._wipe()
        for transfer, channel in self._notes.incoming.items():
            for wave in range(self._waves):
                for what in self._said:
                    told = torch.empty(4, dtype=torch.float64)
                    note = partial(self._note, self._heard, inbox, (transfer.kind, wave, what), told)
                    channel.receive(told, 2 * wave + what, note)

    @staticmethod
    def _note(heard: deque[Note], inbox: Inbox, about: tuple[int, int, int], told: torch.Tensor) -> None:
        """In a channel's thread."""
        with inbox.news:
            heard.append((*about, time.monotonic(), told.tolist()))
            inbox.news.notify()

    def begin(self, step: int, start_s: float) -> None:
        """A step starts."""
        self._step, self._start_s = step, start_s
        self.asked, self.asked_s = 0, 0.0
        self._rank.begin()

    def next(self, inbox: Inbox) -> int | None:
        """The kind to begin now; None: wait for ``patience_s``, then ask again. The lock of the inbox is held."""
        self._hear(inbox)
        now = time.monotonic() - self._start_s
        if now < self._rank.wake:
            return None
        time.thread_time()  # the clock of a thread that has slept takes longer than the second look at it
        began = time.thread_time()
        kind = self._rank.next(now)
        self.asked_s += time.thread_time() - began
        self.asked += 1
        return kind

    def patience_s(self) -> float:
        """Until the rank is to be asked, if nothing is heard."""
        return min(LOOK_S, max(0.0, self._rank.wake - (time.monotonic() - self._start_s)))

    def begins(self, operation: Operation, now_s: float) -> None:
        """An operation begins: whoever needs its result is told."""
        kind, _, wave = operation
        counts = self._rank.begins(kind)
        if self._announces:
            self._tell(kind, wave, BEGUN, (now_s, *counts))

    def made(self, operation: Operation, now_s: float) -> None:
        """Its result is there and leaves."""
        if self._played:
            self._tell(operation[0], operation[2], MADE, (now_s, 0, 0, 0))

    def ended(self, kind: int, began_s: float, end_s: float) -> None:
        """The worker is free."""
        self._rank.ended(kind, began_s, end_s)

    def _tell(self, kind: int, wave: int, what: int, numbers: tuple[float, ...]) -> None:
        for transfer, channel in self._notes.outgoing.items():
            if transfer.kind == kind:
                channel.send(torch.tensor(numbers, dtype=torch.float64), 2 * wave + what)

    def _hear(self, inbox: Inbox) -> None:
        """Tells the rank of what has come since it was told last."""
        while self._heard:
            note = self._heard.popleft()
            same = self._notes_of.setdefault(note[:3], [])
            same.append(note)
            if len(same) == self._ways[note[0]].sources:
                self._take(note[:3], same)
        for kind in (FORWARD, BACKWARD):
            while self._ways[kind].sources and self._there[kind] < self._waves:
                at_s = self._arrival(inbox, kind, self._there[kind])
                if at_s == inf:
                    break
                self._rank.arrives(kind, self._there[kind], at_s)
                self._there[kind] += 1

    def _take(self, about: tuple[int, int, int], notes: list[Note]) -> None:
        """All parts of an input are announced, or made."""
        kind, wave, what = about
        way, said = self._ways[kind], max(numbers[0] for *_, numbers in notes)
        if what == MADE:
            stretch = self._noise.message(kind, wave)
            self._free_s[kind] = max(said, self._free_s[kind]) + way.sending_s * stretch
            self._made_s[kind, wave] = self._free_s[kind] + way.delay_s * stretch
            return
        came_s = max(came for *_, came, _ in notes) - self._start_s
        heard_s = said + way.delay_s if self._played else came_s
        f, b, w = (int(count) for count in notes[-1][-1][1:])
        self._rank.announced(kind, wave, heard_s, heard_s + way.lasts_s + way.sending_s, (f, b, w))

    def _arrival(self, inbox: Inbox, kind: int, wave: int) -> float:
        """When an input is there, seconds from the start of the step; inf: nobody knows."""
        key = (kind, 0, wave)
        if not inbox.has(key) or key not in inbox.came_at_s:
            return inf
        came_s = inbox.came_at_s[key] - self._start_s
        if self._played:
            return max(came_s, self._made_s.get((kind, wave), inf))
        way = self._ways[kind]
        return came_s + max(0.0, self._noise.message(kind, wave) - 1) * (way.delay_s + way.sending_s)


def ways_in(problem: ScheduleProblem, stage: int, incoming: Mapping[Transfer, Channel]) -> tuple[WayIn, WayIn]:
    """How activations and gradients come in to a worker of a stage."""
    tables = problem.tables

    def way(kind: int, source: int) -> WayIn:
        sources = sum(transfer.kind == kind for transfer in incoming)
        if not 0 <= source < problem.ranks:
            return WayIn(0, 0.0, 0.0, 0.0)
        figures = (each[kind, source] for each in (tables.delay, tables.transfer, tables.duration))
        return WayIn(sources, *map(float, figures))

    return way(FORWARD, stage - 1), way(BACKWARD, stage + 1)
