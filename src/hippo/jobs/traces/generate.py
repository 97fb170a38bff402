"""Draws a workload from a fit: bursts hour by hour, in them jobs of one user and size and of durations alike."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hippo.errors import InputError
from hippo.jobs.traces.fit import HOUR_S, POINTS, WEEK_H, Fit, bursts, ks_distance, length_class
from hippo.jobs.workload import Workload

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Rng = np.random.Generator

MOST_JOBS = 10_000_000
AT_ONCE_H = 24 * 7
LAST_DIGIT = 3  # of seconds that are written


def generated(fit: Fit, jobs: int, rng: Rng) -> Workload:
    """A workload of ``jobs`` jobs; the clock starts at the first.

    Each hour's rate of bursts is that of the hour of the week times a gamma factor; within the hour they are uniform.
    Durations follow the class of size exactly; inside a burst they go together (Gaussian copula). ``InputError`` for a
    number of jobs out of range.
    """
    if not 1 <= jobs <= MOST_JOBS:
        remedy = f"give a number from 1 to {MOST_JOBS:,}"
        raise InputError("no such number of jobs", source="--jobs", value=jobs, remedy=remedy)
    begin_s, user, length = _drawn_bursts(fit, jobs, rng)
    columns = _jobs(fit, begin_s, user, length, rng)
    kept = np.argsort(columns["arrival_s"], kind="stable")[:jobs]
    chosen = {name: column[kept] for name, column in columns.items()}
    chosen["arrival_s"] = np.round(chosen["arrival_s"] - chosen["arrival_s"][0], LAST_DIGIT)
    return Workload.of_columns(chosen, names=[f"job-{number}" for number in range(jobs)], users=fit.users)


def distances(fit_to: Workload, drawn: Workload) -> dict[str, float]:
    """Kolmogorov-Smirnov distances of a drawn workload from the one it was fitted to."""
    pairs = {
        "duration_s": (fit_to.duration_s, drawn.duration_s),
        "devices": (fit_to.devices, drawn.devices),
        "gap_s": (np.diff(fit_to.arrival_s), np.diff(drawn.arrival_s)),
        "jobs_per_burst": (_lengths(fit_to), _lengths(drawn)),
    }
    return {name: ks_distance(one, other) for name, (one, other) in pairs.items()}


def moments(workload: Workload) -> dict[str, float]:
    """A few figures of a workload, to hold a drawn one against the one that it was fitted to."""
    counts = np.bincount((workload.arrival_s // HOUR_S).astype(np.int64))
    return {
        "jobs per day": 86400.0 * len(workload) / max(float(workload.arrival_s[-1]), 1.0),
        "mean duration, s": float(workload.duration_s.mean()),
        "median duration, s": float(np.median(workload.duration_s)),
        "mean devices": float(workload.devices.mean()),
        "mean device-seconds": float((workload.duration_s * workload.devices).mean()),
        "variance / mean of jobs an hour": float(counts.var() / counts.mean()),
        "share that follow within a minute": float(1.0 - bursts(workload)[0].mean()),
    }


def _lengths(workload: Workload) -> Ints:
    return np.bincount(np.cumsum(bursts(workload)[0]) - 1)


# -------------------------------------------------------------------------------------------------------------- draws
def _drawn_bursts(fit: Fit, jobs: int, rng: Rng) -> tuple[Floats, Ints, Ints]:
    """Begin, user and length of bursts, week by week, until there are enough jobs."""
    begins, users, lengths = [], [], []
    held, hour = 0, 0
    first = int(fit.begin_s // HOUR_S)
    while held < jobs:
        slots = (first + hour + np.arange(AT_ONCE_H)) % WEEK_H
        rate = fit.bursts_per_hour[slots]
        if np.isfinite(fit.evenness):
            rate = rate * rng.gamma(fit.evenness, 1.0 / fit.evenness, AT_ONCE_H)
        number = rng.poisson(rate)
        begin_s = HOUR_S * (hour + np.repeat(np.arange(AT_ONCE_H), number) + rng.random(int(number.sum())))
        user = rng.choice(len(fit.users), len(begin_s), p=fit.user_share)
        length = _at(fit.burst_length[user], rng.random(len(begin_s))).astype(np.int64)
        begins.append(begin_s)
        users.append(user)
        lengths.append(np.maximum(length, 1))
        held, hour = held + int(length.sum()), hour + AT_ONCE_H
    return np.concatenate(begins), np.concatenate(users), np.concatenate(lengths)


def _jobs(fit: Fit, begin_s: Floats, user: Ints, length: Ints, rng: Rng) -> dict[str, NDArray[np.generic]]:
    """Columns of all jobs of the bursts."""
    burst, kind = np.repeat(np.arange(len(length)), length), length_class(length)
    size = _sizes(fit, user, kind, rng)
    first = np.diff(burst, prepend=-1) > 0
    follow_s = np.where(first, 0.0, _at(fit.follow_s, rng.random(len(burst))))
    since_s = np.cumsum(follow_s)
    since_s -= np.repeat(since_s[first], np.diff(np.append(np.flatnonzero(first), len(burst))))
    score = fit.alike**0.5 * rng.standard_normal(len(begin_s))[burst]
    score += (1.0 - fit.alike) ** 0.5 * rng.standard_normal(len(burst))
    duration_s = _at(fit.duration_s[fit.duration_class[kind, size][burst]], _normal_share(score), smooth=True)
    return {
        "arrival_s": begin_s[burst] + since_s,
        "duration_s": np.maximum(np.round(duration_s, LAST_DIGIT), 10.0**-LAST_DIGIT),
        "devices": fit.sizes[size[burst]],
        "user": user[burst],
    }


def _sizes(fit: Fit, user: Ints, kind: Ints, rng: Rng) -> Ints:
    """Index of the size of every burst, by the share in its user's bursts of such a length."""
    upto = np.cumsum(fit.size_share, axis=2)[kind, user]
    drawn = rng.random(len(user))[:, None] * upto[:, -1:]
    found: Ints = np.minimum((upto <= drawn).sum(axis=1), len(fit.sizes) - 1)
    return found


def _at(quantiles: Floats, share: Floats, *, smooth: bool = False) -> Floats:
    """(n,) the quantile function (Q,) or (n, Q) at the shares; ``smooth``: between points in the logarithm."""
    above = np.clip(np.searchsorted(POINTS, share), 1, len(POINTS) - 1)
    high = quantiles[..., above] if quantiles.ndim == 1 else quantiles[np.arange(len(share)), above]
    if not smooth:
        return high
    low = quantiles[..., above - 1] if quantiles.ndim == 1 else quantiles[np.arange(len(share)), above - 1]
    part = (share - POINTS[above - 1]) / (POINTS[above] - POINTS[above - 1])
    found: Floats = low ** (1.0 - part) * high**part
    return found


def _normal_share(score: Floats) -> Floats:
    """The normal distribution function: Abramowitz and Stegun 26.2.17, to 7.5e-8."""
    t = 1.0 / (1.0 + 0.2316419 * np.abs(score))
    series = t * (0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
    tail = np.exp(-0.5 * score * score) / np.sqrt(2.0 * np.pi) * series
    found: Floats = np.where(score >= 0, 1.0 - tail, tail)
    return found
