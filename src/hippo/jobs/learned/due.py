"""What the learned policy knows of deadlines in a replay, and the weights of its network, as a checked file.

Letters: n jobs, B bins, P priorities told apart, F features, h units, D moments written down.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.jobs.learned.deadline import FEATURES
from hippo.jobs.learned.past import BINS, EDGES_S
from hippo.jobs.workload import Workload
from hippo.learn.weights import Form

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
Ints = NDArray[np.int64]

FORM = Form("policy for deadlines", {"key": list(FEATURES)}, "give weights that the training of deadlines wrote")
SHIPPED = "deadlines.npz"
UNITS = 16
RANKS = 4
"""Priorities told apart: the lowest of a workload, the next, the one after, all higher ones."""
ESTIMATE_SPREAD = 1.0
"""Deviation of log(estimate / duration) before anybody has finished."""


class DueWeights(NamedTuple):
    """Of the key's logarithm, single precision."""

    windows: Floats32  # (B, B) how often a duration (column) has a window (row), before anybody has finished
    straight: Floats32  # (F,)
    first: Floats32  # (F, h)
    first_bias: Floats32  # (h,)
    last: Floats32  # (h,)
    last_bias: Floats32  # (1,)


class DueTrial(NamedTuple):
    """Noise for training, and what was seen when it was used first. Empty arrays: no noise."""

    noise: Floats  # (n,) of the key's logarithm; 0: none
    told: Ints  # (n,) 1: written down
    seen: Floats32  # (D, F)
    job: Ints  # (D,)
    push: Floats  # (D,) with its noise
    used: Ints  # (1,)


class Due(NamedTuple):
    """State of a replay; arrays that the kernels of ``deadline`` write into."""

    weights: DueWeights
    seen: Floats  # (P, B, B) finished jobs by window and duration
    total: Floats  # (P, B) the same by duration
    gap: Floats  # (2B + 2,) finished jobs by bins between estimate and duration, and their number
    rank: Ints  # (n,) of the job's priority
    weight: Floats  # (n,) of a miss: 2 ** rank
    window: Ints  # (n,) bin of deadline less arrival, -1: no deadline
    log_window: Floats  # (n,)
    estimate: Ints  # (n,) bin of the estimate, -1: none
    belief: Floats32  # (n, B)
    believed_at: Ints  # (n,) bin of the attained time when the belief was formed, -1: never
    believed_s: Floats  # (n,) and when
    over: Ints  # (n,) 1: its deadline has passed
    live: Floats  # (1,) devices of jobs that may still be in time
    capacity: Floats  # (1,) devices of the site
    clairvoyant: Ints  # (1,) 1: durations are known
    believes: Ints  # (1,) 0: the weights do not look at beliefs, and none are formed
    found: Floats  # (4,) room
    features: Floats32  # (F,) room
    one: Floats32  # (h,) room
    trial: DueTrial


def ranks(priority: Ints) -> Ints:
    """(n,) 0 for the lowest priority among them, 1 for the next, at most ``RANKS`` - 1."""
    if not len(priority):
        return priority
    return np.minimum(np.unique(priority, return_inverse=True)[1].reshape(-1).astype(np.int64), RANKS - 1)


def due(
    workload: Workload,
    weights: DueWeights | None = None,
    *,
    devices: float,
    clairvoyant: bool = False,
    trial: DueTrial | None = None,
) -> Due:
    """The state before the first job; empty where no job has a deadline. ``devices``: of the site."""
    ends = np.isfinite(workload.deadline_s)
    weights = (shipped() if ends.any() else untrained()) if weights is None else weights
    rank, n = ranks(workload.priority), len(workload)
    window_s = np.where(ends, workload.deadline_s - workload.arrival_s, 1.0)
    told = np.isfinite(workload.estimate_s)
    estimate = np.searchsorted(EDGES_S, np.where(told, workload.estimate_s, 1.0), side="right")
    gap = np.exp(-0.5 * ((np.arange(2 * BINS + 1) - BINS) * np.log(1.4) / ESTIMATE_SPREAD) ** 2) + 1e-4
    return Due(
        weights=weights,
        seen=np.zeros((RANKS, BINS, BINS)),
        total=np.zeros((RANKS, BINS)),
        gap=np.append(10.0 * gap / gap.sum(), 10.0),
        rank=rank,
        weight=np.exp2(rank.astype(np.float64)),
        window=np.where(ends, np.searchsorted(EDGES_S, window_s, side="right"), -1),
        log_window=np.log(np.maximum(window_s, 1.0)),
        estimate=np.where(told, estimate, -1),
        belief=np.zeros((n if ends.any() else 0, BINS), np.float32),
        believed_at=np.full(n, -1, np.int64),
        believed_s=np.zeros(n),
        over=np.zeros(n, np.int64),
        live=np.zeros(1),
        capacity=np.array([float(devices)]),
        clairvoyant=np.array([int(clairvoyant)]),
        believes=np.array([int(not clairvoyant and _looks_at_beliefs(weights))]),
        found=np.zeros(4),
        features=np.zeros(len(FEATURES), np.float32),
        one=np.zeros_like(weights.first_bias),
        trial=due_trial(np.zeros(0)) if trial is None else trial,
    )


def _looks_at_beliefs(weights: DueWeights) -> bool:
    known = [name in ("devices", "priority", "slack", "window", "load_slack", "running", "load") for name in FEATURES]
    return bool(np.any(weights.last != 0) or np.any(weights.straight[~np.array(known)] != 0))


def due_trial(noise: Floats, moments: int = 0) -> DueTrial:
    """Noise (n,), and room for what is seen at so many moments."""
    return DueTrial(
        noise=noise,
        told=np.zeros(len(noise), np.int64),
        seen=np.zeros((moments, len(FEATURES)), np.float32),
        job=np.zeros(moments, np.int64),
        push=np.zeros(moments),
        used=np.zeros(1, np.int64),
    )


def untrained(**straight: float) -> DueWeights:
    """A rule that is linear in the features (those named, 0 otherwise), without a network, and flat windows.

    ``untrained(slack=10)`` is the earliest deadline first, ``untrained(window=10, devices=3)`` the smallest window
    times devices first: both keep jobs whose deadline has passed for the end.
    """
    line = dict(straight)
    unknown = set(line) - set(FEATURES)
    assert not unknown, f"no such features: {unknown}"
    return _flat(np.array([line.get(name, 0.0) for name in FEATURES], np.float32), UNITS)


def _flat(line: Floats32, units: int) -> DueWeights:
    size = len(FEATURES)
    return DueWeights(
        np.full((BINS, BINS), 1.0 / BINS, np.float32),
        line,
        np.zeros((size, units), np.float32),
        np.zeros(units, np.float32),
        np.zeros(units, np.float32),
        np.zeros(1, np.float32),
    )


def packed(weights: DueWeights) -> bytes:
    """The weights as the bytes of a file."""
    return FORM.packed(weights._asdict())


def unpacked(content: bytes, source: str) -> DueWeights:
    """Weights from the bytes of a file; ``InputError`` when it is something else, or damaged."""
    arrays, _ = FORM.unpacked(content, source)
    like = untrained()
    if set(arrays) != set(like._fields) or any(each.dtype.kind != "f" for each in arrays.values()):
        raise FORM.wrong(source)
    found = DueWeights(*(np.array(arrays[name], np.float32, order="C") for name in like._fields))
    units = found.first.shape[-1] if found.first.ndim == 2 else 0
    shapes = [each.shape for each in _flat(like.straight, units)]
    whole = [each.shape for each in found] == shapes and all(np.isfinite(each).all() for each in found)
    if not whole or not (found.windows >= 0).all():
        raise FORM.wrong(source)
    return found


@lru_cache(maxsize=1)
def shipped() -> DueWeights:
    """The weights that come with the package."""
    return unpacked((files("hippo.jobs.learned") / SHIPPED).read_bytes(), SHIPPED)
