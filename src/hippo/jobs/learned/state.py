"""What the learned policy carries along a replay, and the four moments at which the engine calls it.

``arrived``, ``passed``, ``finished`` keep the books; ``order`` ranks a job (smallest first): the Gittins rank of its
hazards times devices ** power. In training what was seen of the bins at some keys is written down (``BinNotes``).

Letters: n jobs, B bins, V what is seen of a bin, g units, E keys written down, G room for groups of jobs that may use
different pools.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.jobs.learned.deadline import DueMemory, DueWeights, due
from hippo.jobs.learned.past import (
    BINS,
    EDGES_S,
    SEEN,
    History,
    empty_history,
    ended,
    judge,
    look,
    passed_level,
    rank,
    recall,
)
from hippo.jobs.learned.weights import KeyWeights, shipped, untrained
from hippo.jobs.settings import MOST_GROUPS
from hippo.jobs.workload import JobWorkload

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
Ints = NDArray[np.int64]

NOT_RANKED = 1e18


class BinNotes(NamedTuple):
    """What was seen of the bins at some keys, for training. Empty arrays: nothing is written down."""

    seen: Floats32  # (E, B, V)
    job: Ints  # (E,)
    own: Ints  # (E,) bin in which it was
    used: Ints  # (2,) how many of the E, and keys so far
    every: int  # this many keys apart; 0: none


class KeyMemory(NamedTuple):
    """State of the learned policy in a replay; arrays that the kernels write into."""

    weights: KeyWeights
    history: History
    arrival_s: Floats  # (n,)
    log_devices: Floats  # (n,) base 2
    devices: Ints  # (n,)
    wanting: Ints  # (1,) jobs that wait or run
    active: Ints  # (n,) the first ``wanting[0]`` are the jobs that wait or run
    active_at: Ints  # (n,) where each stands among them
    keyed_at: Ints  # (n,) bin at which the engine asked for the order last; -1: never
    keyed_s: Floats  # (n,) and when
    order: Floats  # (n,) as of then
    front: (
        Ints  # (G, n) heaps (``engine.heaps``) of those that rank first and fill the site, see ``engine.learned_keys``
    )
    front_due: Floats  # (G, n) by which they are heaps
    front_at: Ints  # (G, n) where each job stands in them; -1: not there
    front_size: Ints  # (G,)
    front_held: Ints  # (G,) devices of their jobs
    behind: Ints  # (G, n) heaps of those behind them
    behind_due: Floats  # (G, n)
    behind_at: Ints  # (G, n)
    behind_size: Ints  # (G,)
    hazard: Floats  # (B,) room
    seen: Floats32  # (B, V) room
    hazard_room: Floats32  # (g,) room
    notes: BinNotes
    due: DueMemory  # deadlines


def memory(
    workload: JobWorkload,
    weights: KeyWeights,
    *,
    deadlines: DueMemory,
    past: JobWorkload | None = None,
    notes: BinNotes | None = None,
) -> KeyMemory:
    """The state before the first job arrives.

    ``past``: jobs that came before, with their durations, on a clock that ends where the workload's begins; they are
    taken as if each had run at once, and those that had not ended by then as survivors.
    """
    history = _history(workload, weights, past)
    n = len(workload)
    return KeyMemory(
        weights=weights,
        history=history,
        arrival_s=workload.arrival_s,
        log_devices=np.log2(workload.devices.astype(np.float64)),
        devices=workload.devices,
        wanting=np.zeros(1, np.int64),
        active=np.zeros(n, np.int64),
        active_at=np.zeros(n, np.int64),
        keyed_at=np.full(n, -1, np.int64),
        keyed_s=np.zeros(n),
        order=np.full(n, NOT_RANKED),
        front=np.zeros((MOST_GROUPS, n), np.int64),
        front_due=np.zeros((MOST_GROUPS, n)),
        front_at=np.full((MOST_GROUPS, n), -1, np.int64),
        front_size=np.zeros(MOST_GROUPS, np.int64),
        front_held=np.zeros(MOST_GROUPS, np.int64),
        behind=np.zeros((MOST_GROUPS, n), np.int64),
        behind_due=np.zeros((MOST_GROUPS, n)),
        behind_at=np.full((MOST_GROUPS, n), -1, np.int64),
        behind_size=np.zeros(MOST_GROUPS, np.int64),
        hazard=np.zeros(BINS),
        seen=np.zeros((BINS, len(SEEN)), np.float32),
        hazard_room=np.zeros_like(weights.hazard_first_bias),
        notes=bin_notes() if notes is None else notes,
        due=deadlines,
    )


def bin_notes(keys: int = 0, *, every: int = 0) -> BinNotes:
    """Room for what is seen of the bins at so many keys, every ``every``-th; none: nothing is written down."""
    return BinNotes(
        seen=np.zeros((keys, BINS, len(SEEN)), np.float32),
        job=np.zeros(keys, np.int64),
        own=np.zeros(keys, np.int64),
        used=np.zeros(2, np.int64),
        every=every,
    )


@cache
def nothing() -> KeyMemory:
    """What a replay with another policy carries: a memory of no jobs."""
    nobody = JobWorkload.of(())
    return writable(memory(nobody, untrained(1), deadlines=due(nobody, devices=1.0)))


def writable(state: KeyMemory) -> KeyMemory:
    """The same state for kernels, which are compiled for arrays of one kind: those that nobody may write are copied."""
    return _writable(state)  # type: ignore[no-any-return]


def _writable(value: Any) -> Any:
    if isinstance(value, tuple):
        return type(value)(*map(_writable, value))
    if not isinstance(value, np.ndarray) or value.flags.carray:
        return value
    assert not value.flags.writeable, "what kernels write must land in the state itself"
    return np.array(value, order="C")


def _history(workload: JobWorkload, weights: KeyWeights, past: JobWorkload | None) -> History:
    """The tables before the first job, with what the past says in them."""
    if past is None or not len(past):
        return empty_history(workload.arrival_s, workload.user, workload.devices, len(workload.users))
    number = {name: index for index, name in enumerate(dict.fromkeys((*past.users, *workload.users)))}
    user, before = (np.array([number[name] for name in each.users])[each.user] for each in (workload, past))
    until_s = float(past.arrival_s[-1]) + 1.0
    arrival_s = np.concatenate([past.arrival_s, workload.arrival_s + until_s])
    devices = np.concatenate([past.devices, workload.devices])
    found = empty_history(arrival_s, np.concatenate([before, user]), devices, len(number))
    ends = np.argsort(past.arrival_s + past.duration_s, kind="stable")
    recall(found, ends, past.arrival_s, past.duration_s, until_s, weights.keep)
    rows, m = found.row[len(past) :], len(past)
    return found._replace(row=rows.copy(), place=found.place[m:].copy(), level=found.level[m:].copy())


@kernel(lean=True)
def arrived(memory, job):  # type: ignore[no-untyped-def]
    """A job joins the queue."""
    at = memory.wanting[0]
    memory.active[at], memory.active_at[job] = job, at
    memory.wanting[0] += 1


@kernel(lean=True)
def passed(memory, job):  # type: ignore[no-untyped-def]
    """The work that a job has done has reached the next of ``EDGES_S``."""
    passed_level(memory.history, job)


@kernel(lean=True)
def finished(memory, job):  # type: ignore[no-untyped-def]
    """A job is done."""
    ended(memory.history, job, memory.weights.keep)
    memory.wanting[0] -= 1
    last = memory.active[memory.wanting[0]]
    at = memory.active_at[job]
    memory.active[at], memory.active_at[last] = last, at


@kernel(lean=True)
def next_level_s(memory, job):  # type: ignore[no-untyped-def]
    """Seconds of work at which a job passes its next edge; inf behind the last."""
    level = memory.history.level[job]
    return EDGES_S[level] if level < len(EDGES_S) else np.inf


@kernel(lean=True)
def order(memory, job, now_s, attained_s):  # type: ignore[no-untyped-def]
    """The order of a job that has done ``attained_s`` of its work; smallest first."""
    predict(memory, job, now_s)
    _note(memory, job)
    index = rank(memory.hazard, memory.history.level[job], attained_s)
    return index * memory.devices[job] ** memory.weights.power[0]


@kernel(lean=True)
def predict(memory, job, now_s):  # type: ignore[no-untyped-def]
    """Writes the job's hazards into ``memory.hazard``, from its bin on."""
    waited_s = now_s - memory.arrival_s[job]
    look(memory.history, memory.weights, job, memory.log_devices[job], waited_s, memory.seen)
    judge(memory.weights, memory.seen, memory.history.level[job], memory.hazard_room, memory.hazard)


@kernel(lean=True)
def _note(memory, job):  # type: ignore[no-untyped-def]
    """Writes down what was seen of the job's bins, if it is its turn."""
    notes = memory.notes
    notes.used[1] += 1
    at = notes.used[0]
    if notes.every > 0 and notes.used[1] % notes.every == 0 and at < len(notes.job):
        for b in range(memory.seen.shape[0]):
            for i in range(memory.seen.shape[1]):
                notes.seen[at, b, i] = memory.seen[b, i]
        notes.job[at], notes.own[at] = job, memory.history.level[job]
        notes.used[0] += 1


@dataclass(frozen=True, eq=False)
class LearnedSetup:
    """Who plays under the learned policy: its weights, and the past that it has seen."""

    weights: KeyWeights | None = None  # None: those that ship
    past: JobWorkload | None = None  # jobs that came before, on a clock that ends where the workload's begins
    notes: BinNotes | None = None  # what is written down in training
    deadlines: DueWeights | None = None  # of the key where jobs have deadlines; None: those that ship
    clairvoyant: bool = False  # the key for deadlines looks at what is left of a job: a limit for those who do not

    def begin(self, workload: JobWorkload, devices: int) -> KeyMemory:
        """The state before the first job, on a site of so many devices."""
        weights = shipped() if self.weights is None else self.weights
        ends = due(workload, self.deadlines, devices=devices, clairvoyant=self.clairvoyant)
        return memory(workload, weights, deadlines=ends, past=self.past, notes=self.notes)
