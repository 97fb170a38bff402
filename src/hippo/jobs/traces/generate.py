"""Draws a workload like a given trace: a fit of the trace's bursts, and jobs drawn burst by burst from it.

A burst is a run of jobs by one user in which each follows the one before within a minute: three of four jobs of
Philly's trace are such followers, nearly always of the same size and much the same duration. So bursts are what
arrives, hour by hour; jobs of long bursts are short and small, so sizes and durations are fitted for three lengths of
burst apart.

Letters: U users, S sizes (numbers of devices), Q points of a quantile function, C classes of duration, 3 lengths of
burst (up to 10, up to 100, more).
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from hippo.errors import InputError
from hippo.jobs.workload import JobWorkload

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Rng = np.random.Generator

BURST_S = 60.0
HOUR_S, WEEK_H = 3600.0, 168
LEAST_JOBS = 50
LENGTHS = (10, 100)
"""Most jobs of a short burst and of a middling one."""

CLASS_JOBS = 200
"""Jobs of one size that are enough for durations of their own; smaller sizes are put together with the next ones."""

_EVEN = np.linspace(0.0, 1.0, 201)
_TAIL = np.array([0.9975, 0.999, 0.9995, 0.9999])
POINTS: Floats = np.unique(np.concatenate((_EVEN, _TAIL, 1.0 - _TAIL)))


@dataclass(frozen=True, eq=False)
class TraceFit:
    """A workload in numbers that draw another like it."""

    users: tuple[str, ...]  # (U,)
    user_share: Floats  # (U,) of the bursts
    burst_length: Floats  # (U, Q) jobs of a burst, quantiles
    sizes: Ints  # (S,) devices
    size_share: Floats  # (3, U, S) of each user's jobs in bursts of such a length
    duration_class: Ints  # (3, S) index of the class whose durations a size has in bursts of such a length
    duration_s: Floats  # (C, Q) quantiles
    alike: float  # correlation of the durations in a burst, as normal scores
    follow_s: Floats  # (Q,) quantiles of the time to the next job of a burst
    bursts_per_hour: Floats  # (168,) by hour of the week
    evenness: float  # k of the gamma factor (mean 1) on every hour's rate; inf: none
    begin_s: float  # where in the week the trace begins, s


def fitted(workload: JobWorkload, *, begin_s: float | None = None) -> TraceFit:
    """The fit of a trace; ``begin_s``: Unix seconds of its first arrival (None: the week begins there).

    Raises
    ------
    InputError
        Fewer than 50 jobs, or all at one instant.
    """
    if len(workload) < LEAST_JOBS or workload.arrival_s[-1] <= workload.arrival_s[0]:
        remedy = f"give a trace with {LEAST_JOBS} jobs or more, over some time"
        raise InputError(f"too little to fit: {len(workload)} jobs", source="--like", remedy=remedy)
    first, follow_s = bursts(workload)
    burst = np.cumsum(first) - 1  # of every job, in the order of ``_by_user``
    order = _by_user(workload)
    user, devices = workload.user[order], workload.devices[order]
    lengths = np.bincount(burst)
    sizes = np.unique(devices)
    length, size = length_class(lengths)[burst], np.searchsorted(sizes, devices)
    share = np.zeros((len(LENGTHS) + 1, len(workload.users), len(sizes)))
    np.add.at(share, (length, user, size), 1.0)
    classes = _classes(share.sum(axis=1))
    duration_s, scores = _durations(workload.duration_s[order], classes[length, size])
    begin = 0.0 if begin_s is None else begin_s % (WEEK_H * HOUR_S)
    rate, evenness = _rate(workload.arrival_s[order][first], begin, float(workload.arrival_s[-1]))
    by_user = np.bincount(user[first], minlength=len(workload.users)).astype(np.float64)
    return TraceFit(
        users=workload.users,
        user_share=by_user / by_user.sum(),
        burst_length=np.array([_quantiles(lengths[user[first] == u]) for u in range(len(workload.users))]),
        sizes=sizes,
        size_share=share / np.maximum(share.sum(axis=2, keepdims=True), 1.0),
        duration_class=classes,
        duration_s=duration_s,
        alike=_alike(scores, first),
        follow_s=_quantiles(follow_s),
        bursts_per_hour=rate,
        evenness=evenness,
        begin_s=begin,
    )


def bursts(workload: JobWorkload) -> tuple[NDArray[np.bool_], Floats]:
    """(n,) whether each job, user by user in order of arrival, begins a burst; the times between jobs of bursts, s."""
    order = _by_user(workload)
    user, arrival_s = workload.user[order], workload.arrival_s[order]
    gap_s = np.diff(arrival_s, prepend=-np.inf)
    first = np.ones(len(order), np.bool_)
    first[1:] = (user[1:] != user[:-1]) | (gap_s[1:] > BURST_S)
    return first, gap_s[~first]


def ks_distance(one: NDArray[np.generic], other: NDArray[np.generic]) -> float:
    """Kolmogorov-Smirnov distance of two samples: the largest difference of their distribution functions."""
    every = np.union1d(one, other)
    ranks = [np.searchsorted(np.sort(sample), every, side="right") / len(sample) for sample in (one, other)]
    return float(np.abs(ranks[0] - ranks[1]).max())


# -------------------------------------------------------------------------------------------------------------- parts
def _by_user(workload: JobWorkload) -> Ints:
    return np.lexsort((np.arange(len(workload)), workload.user))


def _quantiles(values: NDArray[np.generic]) -> Floats:
    if not len(values):
        return np.ones(len(POINTS))
    return np.quantile(values.astype(np.float64), POINTS, method="inverted_cdf")


def length_class(lengths: Ints) -> Ints:
    """0, 1 or 2 for short, middling and long bursts."""
    return np.searchsorted(np.array(LENGTHS), lengths).astype(np.int64)


def _classes(jobs: Floats) -> Ints:
    """(3, S) class of every length of burst and size: neighbouring sizes together until a class holds enough jobs.

    Where a length of burst has too few jobs of such sizes, the class is that of short bursts.
    """
    size_class, held, number = np.zeros(jobs.shape[1], np.int64), 0.0, 0
    amount = jobs.sum(axis=0)
    for size in range(jobs.shape[1]):
        size_class[size] = number
        held += amount[size]
        if held >= CLASS_JOBS and amount[size + 1 :].sum() >= CLASS_JOBS:
            number, held = number + 1, 0.0
    found = np.tile(size_class, (len(jobs), 1))
    following = number + 1
    for length in range(1, len(jobs)):
        for each in range(number + 1):
            if jobs[length][size_class == each].sum() >= CLASS_JOBS:
                found[length][size_class == each] = following
                following += 1
    return found


def _durations(duration_s: Floats, of_class: Ints) -> tuple[Floats, Floats]:
    """Quantiles of each class (C, Q), and the normal score of every job in its class (n,).

    A class that only longer bursts have jobs of takes its quantiles from all jobs.
    """
    table, scores = [], np.zeros(len(duration_s))
    for number in range(int(of_class.max()) + 1):
        chosen = np.flatnonzero(of_class == number)
        table.append(_quantiles(duration_s[chosen] if len(chosen) else duration_s))
        rank = np.empty(len(chosen))
        rank[np.argsort(duration_s[chosen], kind="stable")] = (np.arange(len(chosen)) + 0.5) / len(chosen)
        scores[chosen] = [NormalDist().inv_cdf(share) for share in rank]
    return np.array(table), scores


def _alike(scores: Floats, first: NDArray[np.bool_]) -> float:
    """Correlation of neighbours in bursts; 0 where there are too few."""
    follow = np.flatnonzero(~first)
    if len(follow) < LEAST_JOBS:
        return 0.0
    return float(np.clip(np.corrcoef(scores[follow], scores[follow - 1])[0, 1], 0.0, 0.999))


def _rate(arrival_s: Floats, begin_s: float, span_s: float) -> tuple[Floats, float]:
    """Bursts per hour by hour of the week (168,), and k of the gamma factor that makes hours as uneven as they are.

    Hours of the week that the trace hardly covers lean on the mean over all. Var(n) = m + m^2 / k (moments).
    """
    hours = int(span_s // HOUR_S) + 1
    counts = np.bincount((arrival_s // HOUR_S).astype(np.int64), minlength=hours)[:hours].astype(np.float64)
    slot = ((np.arange(hours) + int(begin_s // HOUR_S)) % WEEK_H).astype(np.int64)
    seen = np.bincount(slot, minlength=WEEK_H)
    mean = counts.mean()
    rate = (np.bincount(slot, counts, WEEK_H) + mean) / (seen + 1.0)
    rate *= mean / max(rate[slot].mean(), 1e-300)
    expected = rate[slot]
    excess = float(((counts - expected) ** 2).sum() - expected.sum())
    return rate, float((expected**2).sum() / excess) if excess > 0 else float("inf")


MOST_JOBS = 10_000_000
AT_ONCE_H = 24 * 7
LAST_DIGIT = 3  # of seconds that are written


def generated(fit: TraceFit, jobs: int, rng: Rng) -> JobWorkload:
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
    return JobWorkload.of_columns(chosen, names=[f"job-{number}" for number in range(jobs)], users=fit.users)


def distances(fit_to: JobWorkload, drawn: JobWorkload) -> dict[str, float]:
    """Kolmogorov-Smirnov distances of a drawn workload from the one it was fitted to."""
    pairs = {
        "duration_s": (fit_to.duration_s, drawn.duration_s),
        "devices": (fit_to.devices, drawn.devices),
        "gap_s": (np.diff(fit_to.arrival_s), np.diff(drawn.arrival_s)),
        "jobs_per_burst": (_lengths(fit_to), _lengths(drawn)),
    }
    return {name: ks_distance(one, other) for name, (one, other) in pairs.items()}


def moments(workload: JobWorkload) -> dict[str, float]:
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


def _lengths(workload: JobWorkload) -> Ints:
    return np.bincount(np.cumsum(bursts(workload)[0]) - 1)


# -------------------------------------------------------------------------------------------------------------- draws
def _drawn_bursts(fit: TraceFit, jobs: int, rng: Rng) -> tuple[Floats, Ints, Ints]:
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


def _jobs(fit: TraceFit, begin_s: Floats, user: Ints, length: Ints, rng: Rng) -> dict[str, NDArray[np.generic]]:
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


def _sizes(fit: TraceFit, user: Ints, kind: Ints, rng: Rng) -> Ints:
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
