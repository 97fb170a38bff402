"""What the learned policy carries along a replay, and the four moments at which the engine calls it.

``arrived``, ``passed``, ``finished`` keep the books; ``order`` ranks a job (smallest first). An order is

    rank x devices ** power x exp(push)

with the Gittins rank of the job's hazards, and a push from the key network that is looked up when the job arrives and
whenever it passes an edge of the bins, and holds in between. In training the push carries noise at some of these
moments, which are then written down (``KeyTrial``).

Letters: n jobs, B bins, V what is seen of a bin, F of a job, h units, U users, D moments and E keys written down,
G room for groups of jobs that may use different pools.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.jobs.learned.deadline import DueMemory, DueWeights, due
from hippo.jobs.learned.features import FEATURES, describe
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

MOST_PUSH = 5.0  # of the logarithm of an order
NOT_RANKED = 1e18


class KeyTrial(NamedTuple):
    """Noise for training, and what was seen when it was used. Empty arrays: no noise."""

    noise: Floats  # (n, B) added to the push of a job in a bin; 0: none, and nothing is written down
    seen: Floats32  # (D, F)
    job: Ints  # (D,)
    when_s: Floats  # (D,)
    push: Floats  # (D,) with its noise
    bins: Floats32  # (E, B, V) what was seen of the bins at some keys
    bins_job: Ints  # (E,)
    bins_own: Ints  # (E,) bin in which it was
    used: Ints  # (3,) how many of the D, of the E, and keys so far
    every: int  # this many keys apart; 0: none


class KeyMemory(NamedTuple):
    """State of the learned policy in a replay; arrays that the kernels write into."""

    weights: KeyWeights
    history: History
    arrival_s: Floats  # (n,)
    deadline_s: Floats  # (n,)
    log_devices: Floats  # (n,) base 2
    devices: Ints  # (n,)
    kind: Ints  # (n,)
    user: Ints  # (n,)
    priority: Ints  # (n,)
    capacity: Floats  # (1,) devices of the site
    wanting: Floats  # (2,) jobs that wait or run, and their devices
    active: Ints  # (n,) the first ``wanting[0]`` are the jobs that wait or run
    active_at: Ints  # (n,) where each stands among them
    user_wanting: Floats  # (U,) devices of a user's jobs that wait or run
    push: Floats  # (n,) of the order's logarithm
    pushed_at: Ints  # (n,) bin at which the push was looked up; -1: never
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
    features: Floats32  # (F,) room
    one: Floats32  # (h,) room
    two: Floats32  # (h,) room
    hazard_room: Floats32  # (g,) room
    trial: KeyTrial
    due: DueMemory  # deadlines


def memory(
    workload: JobWorkload,
    weights: KeyWeights,
    *,
    devices: float,
    past: JobWorkload | None = None,
    trial: KeyTrial | None = None,
    deadlines: DueMemory | None = None,
) -> KeyMemory:
    """The state before the first job arrives.

    ``past``: jobs that came before, with their durations, on a clock that ends where the workload's begins; they are
    taken as if each had run at once, and those that had not ended by then as survivors. ``devices``: of the site.
    """
    history, users, user = _history(workload, weights, past)
    n = len(workload)
    return KeyMemory(
        weights=weights,
        history=history,
        arrival_s=workload.arrival_s,
        deadline_s=workload.deadline_s,
        log_devices=np.log2(workload.devices.astype(np.float64)),
        devices=workload.devices,
        kind=workload.kind,
        user=user,
        priority=workload.priority,
        capacity=np.array([float(devices)]),
        wanting=np.zeros(2),
        active=np.zeros(n, np.int64),
        active_at=np.zeros(n, np.int64),
        user_wanting=np.zeros(users),
        push=np.zeros(n),
        pushed_at=np.full(n, -1, np.int64),
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
        features=np.zeros(len(FEATURES), np.float32),
        one=np.zeros_like(weights.key_first_bias),
        two=np.zeros_like(weights.key_first_bias),
        hazard_room=np.zeros_like(weights.hazard_first_bias),
        trial=no_trial() if trial is None else trial,
        due=due(workload, devices=devices) if deadlines is None else deadlines,
    )


def trial(noise: Floats, *, moments: int = 0, bins: int = 0, every: int = 0) -> KeyTrial:
    """Room for what a trial writes down: ``moments`` of noise, and what was seen of the bins at ``bins`` keys, every
    ``every``-th."""
    return KeyTrial(
        noise=noise,
        seen=np.zeros((moments, len(FEATURES)), np.float32),
        job=np.zeros(moments, np.int64),
        when_s=np.zeros(moments),
        push=np.zeros(moments),
        bins=np.zeros((bins, BINS, len(SEEN)), np.float32),
        bins_job=np.zeros(bins, np.int64),
        bins_own=np.zeros(bins, np.int64),
        used=np.zeros(3, np.int64),
        every=every,
    )


def no_trial() -> KeyTrial:
    """No noise, and nothing is written down."""
    return trial(np.zeros((0, 0)))


@cache
def nothing() -> KeyMemory:
    """What a replay with another policy carries: a memory of no jobs."""
    return writable(memory(JobWorkload.of(()), untrained(1, 1), devices=1.0))


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


def _history(workload: JobWorkload, weights: KeyWeights, past: JobWorkload | None) -> tuple[History, int, Ints]:
    """The tables, how many users they know, and (n,) the number of each job's user in them."""
    if past is None or not len(past):
        found = empty_history(workload.arrival_s, workload.user, workload.devices, len(workload.users))
        return found, len(workload.users), workload.user
    number = {name: index for index, name in enumerate(dict.fromkeys((*past.users, *workload.users)))}
    user, before = (np.array([number[name] for name in each.users])[each.user] for each in (workload, past))
    until_s = float(past.arrival_s[-1]) + 1.0
    arrival_s = np.concatenate([past.arrival_s, workload.arrival_s + until_s])
    devices = np.concatenate([past.devices, workload.devices])
    found = empty_history(arrival_s, np.concatenate([before, user]), devices, len(number))
    ends = np.argsort(past.arrival_s + past.duration_s, kind="stable")
    recall(found, ends, past.arrival_s, past.duration_s, until_s, weights.keep)
    rows, m = found.row[len(past) :], len(past)
    return (
        found._replace(row=rows.copy(), place=found.place[m:].copy(), level=found.level[m:].copy()),
        len(number),
        user,
    )


@kernel(lean=True)
def arrived(memory, job):  # type: ignore[no-untyped-def]
    """A job joins the queue."""
    at = int(memory.wanting[0])
    memory.active[at], memory.active_at[job] = job, at
    memory.wanting[0] += 1
    memory.wanting[1] += memory.devices[job]
    memory.user_wanting[memory.user[job]] += memory.devices[job]


@kernel(lean=True)
def passed(memory, job):  # type: ignore[no-untyped-def]
    """The work that a job has done has reached the next of ``EDGES_S``."""
    passed_level(memory.history, job)


@kernel(lean=True)
def finished(memory, job):  # type: ignore[no-untyped-def]
    """A job is done."""
    ended(memory.history, job, memory.weights.keep)
    memory.wanting[0] -= 1
    last = memory.active[int(memory.wanting[0])]
    at = memory.active_at[job]
    memory.active[at], memory.active_at[last] = last, at
    memory.wanting[1] -= memory.devices[job]
    memory.user_wanting[memory.user[job]] -= memory.devices[job]


@kernel(lean=True)
def next_level_s(memory, job):  # type: ignore[no-untyped-def]
    """Seconds of work at which a job passes its next edge; inf behind the last."""
    level = memory.history.level[job]
    return EDGES_S[level] if level < len(EDGES_S) else np.inf


@kernel(lean=True)
def order(memory, job, now_s, attained_s, running):  # type: ignore[no-untyped-def]
    """The order of a job that has done ``attained_s`` of its work; smallest first."""
    predict(memory, job, now_s)
    _sample(memory, job)
    level = memory.history.level[job]
    index = rank(memory.hazard, level, attained_s)
    if memory.pushed_at[job] != level:
        memory.pushed_at[job] = level
        describe(memory, job, now_s, attained_s, running, index)
        memory.push[job] = _push(memory, job, level, now_s)
    return index * memory.devices[job] ** memory.weights.power[0] * np.exp(memory.push[job])


@kernel(lean=True)
def predict(memory, job, now_s):  # type: ignore[no-untyped-def]
    """Writes the job's hazards into ``memory.hazard``, from its bin on."""
    waited_s = now_s - memory.arrival_s[job]
    look(memory.history, memory.weights, job, memory.log_devices[job], waited_s, memory.seen)
    judge(memory.weights, memory.seen, memory.history.level[job], memory.hazard_room, memory.hazard)


@kernel(lean=True)
def _sample(memory, job):  # type: ignore[no-untyped-def]
    """Writes down what was seen of the job's bins, if it is its turn."""
    trial = memory.trial
    trial.used[2] += 1
    at = trial.used[1]
    if trial.every > 0 and trial.used[2] % trial.every == 0 and at < len(trial.bins_job):
        for b in range(memory.seen.shape[0]):
            for i in range(memory.seen.shape[1]):
                trial.bins[at, b, i] = memory.seen[b, i]
        trial.bins_job[at], trial.bins_own[at] = job, memory.history.level[job]
        trial.used[1] += 1


@kernel(lean=True)
def _push(memory, job, level, now_s):  # type: ignore[no-untyped-def]
    """What the key network adds to the order's logarithm, with the noise of a trial."""
    push = network(memory.weights, memory.features, memory.one, memory.two)
    trial = memory.trial
    if len(trial.noise) == 0 or trial.noise[job, level] == 0.0:
        return push
    push += trial.noise[job, level]
    at = trial.used[0]
    if at < len(trial.job):
        for i in range(len(memory.features)):
            trial.seen[at, i] = memory.features[i]
        trial.job[at], trial.when_s[at], trial.push[at] = job, now_s, push
        trial.used[0] += 1
    return push


@kernel(lean=True, fastmath=True)
def network(weights, features, one, two):  # type: ignore[no-untyped-def]
    """The push that the key network gives to features (F,); ``one`` and ``two`` (h,) are room."""
    first, second, last = weights.key_first, weights.key_second, weights.key_last
    first_bias, second_bias = weights.key_first_bias, weights.key_second_bias
    for j in range(len(one)):
        one[j] = first_bias[j]
        two[j] = second_bias[j]
    for i in range(len(features)):
        value = features[i]
        if value != 0:
            for j in range(len(one)):
                one[j] += value * first[i, j]
    for i in range(len(one)):
        value = max(one[i], np.float32(0.0))
        for j in range(len(two)):
            two[j] += value * second[i, j]
    push = weights.key_last_bias[0]
    for j in range(len(two)):
        push += max(two[j], np.float32(0.0)) * last[j]
    return MOST_PUSH * np.tanh(push / MOST_PUSH)


@dataclass(frozen=True, eq=False)
class LearnedSetup:
    """Who plays under the learned policy: its weights, and the past that it has seen."""

    weights: KeyWeights | None = None  # None: those that ship
    past: JobWorkload | None = None  # jobs that came before, on a clock that ends where the workload's begins
    trial: KeyTrial | None = None  # noise, and what is written down in training
    deadlines: DueWeights | None = None  # of the key where jobs have deadlines; None: those that ship
    clairvoyant: bool = False  # the key for deadlines looks at what is left of a job: a limit for those who do not

    def begin(self, workload: JobWorkload, devices: int) -> KeyMemory:
        """The state before the first job, on a site of so many devices."""
        weights = shipped() if self.weights is None else self.weights
        ends = due(workload, self.deadlines, devices=devices, clairvoyant=self.clairvoyant)
        return memory(workload, weights, devices=devices, past=self.past, trial=self.trial, deadlines=ends)
