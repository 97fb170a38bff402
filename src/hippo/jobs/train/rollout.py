"""Replays with noise on keys, and what each moment of noise was worth.

The reward is minus the number of jobs in the system, integrated. Queues remember for days, so what follows a decision
is nearly all chance: of the arrivals, not of the decision. So each window is played twice, once without noise, and a
moment is credited with the difference between the two from then on, discounted: arrivals and durations are the same
in both (the input-dependent baseline of Mao et al. 2019, with the policy's own play as the baseline).

Letters: n jobs, N moments with noise, F features.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hippo.jobs.learned.features import FEATURES
from hippo.jobs.learned.past import BINS
from hippo.jobs.learned.state import KeyTrial, trial
from hippo.jobs.learned.weights import KeyWeights
from hippo.jobs.train.windows import Window

Floats = NDArray[np.float64]

MOST_MOMENTS = 4000  # of one window


@dataclass(frozen=True, eq=False)
class Moments:
    """What was decided with noise, and what came of it."""

    features: Tensor  # (N, F)
    push: Tensor  # (N,) with its noise
    credit: Tensor  # (N,) the less waiting the better; job-horizons


def noise(n: int, deviation: float, share: float, generator: np.random.Generator) -> Floats:
    """Noise (n, B) of the pushes of each job in each bin; 0 at all moments but a share of them."""
    drawn = generator.normal(scale=deviation, size=(n, BINS))
    return np.where(generator.random((n, BINS)) < share, drawn, 0.0)


def need(jobs: int, share: float, rolls: int) -> float:
    """Bytes of the moments of an update: so many windows, each with its mirror image, apart, joined, and as they are
    learned from."""
    moments = min(float(MOST_MOMENTS), jobs * BINS * share)
    return rolls * 2 * moments * 4 * (len(FEATURES) + 2) * 4


def roll(
    window: Window, weights: KeyWeights, base_finish_s: Floats, noise: Floats, horizon_s: float
) -> tuple[Moments, Floats]:
    """One window under noise (n, B), against its play without (``base_finish_s`` (n,)); its own finishes (n,)."""
    written = trial(noise, moments=MOST_MOMENTS)
    finish_s = window.play(weights, written)
    return _moments(written, finish_s, base_finish_s, horizon_s), finish_s


def joined(parts: list[Moments]) -> Moments:
    """The moments of several windows."""
    fields = ("features", "push", "credit")
    return Moments(*(torch.cat([getattr(each, name) for each in parts]) for name in fields))


def credits(when_s: Floats, finish_s: Floats, base_finish_s: Floats, horizon_s: float) -> Floats:
    """What came after each moment (N,): minus the discounted integral of jobs in the system, less that of the base."""
    changed = np.abs(finish_s - base_finish_s) > 1e-6
    own, base = finish_s[changed], base_finish_s[changed]
    found = np.zeros(len(when_s))
    for at, now_s in enumerate(when_s):
        found[at] = _kept(base - now_s, horizon_s) - _kept(own - now_s, horizon_s)
    return found


def _kept(left_s: Floats, horizon_s: float) -> float:
    """Discounted time in the system of jobs that end in ``left_s``, in horizons."""
    return float((-np.expm1(-np.maximum(left_s, 0.0) / horizon_s)).sum())


def _moments(written: KeyTrial, finish_s: Floats, base_finish_s: Floats, horizon_s: float) -> Moments:
    used = int(written.used[0])
    found = credits(written.when_s[:used], finish_s, base_finish_s, horizon_s)
    return Moments(
        torch.from_numpy(written.seen[:used].copy()),
        torch.from_numpy(written.push[:used].astype(np.float32)),
        torch.from_numpy(found.astype(np.float32)),
    )
