"""The processes that links and domains follow: swing, daily curve, outages, collapses, load of others, congestion.

Each gives a factor, or whether a link is up, at the instants of a trace; factors of several causes multiply. T
instants, E links (in a column each), K domains. Whoever calls seeds the generator.

* *Swing* (Ornstein-Uhlenbeck): B(t) = B_base (1 + eps(t)), eps clipped to +-``swing``. ``eps`` has mean 0, stationary
  standard deviation ``sigma`` and correlation ``exp(-dt / tau)`` between instants dt apart: the exact discretisation,
  so the length of a step does not matter.
* *Daily curve*: traffic of others peaks once a day, and leaves less of the link to us.
* *Outages*: up and down times are exponential (an on/off process).
* *Load* of others on a domain's GPUs and hosts: a factor on the length of operations, 1.25 is a quarter longer.
* *Congestion* couples latency to load. A queue with load rho holds rho / (1 - rho) packets on average (M/M/1); a
  router's buffer bounds it at one bandwidth-delay product, so that a full link about doubles its one-way latency.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hippo.problem.cluster import Dynamics

DAY_S = 86400.0
Floats = NDArray[np.float64]


def daily_factor(time_s: Floats, peak_to_trough: float, peak_s: Floats) -> Floats:
    """Factor on the bandwidth at the instants, (T, links), mean 1 over a day.

    The best hour has ``peak_to_trough`` times the bandwidth of the worst, at second ``peak_s`` (links,) of the day.
    """
    amplitude = (peak_to_trough - 1.0) / (peak_to_trough + 1.0)
    phase = 2.0 * np.pi * (time_s[:, None] - peak_s[None, :]) / DAY_S
    factor: Floats = 1.0 - amplitude * np.cos(phase)
    return factor


def swing_path(dynamics: Dynamics, time_s: Floats, links: int, rng: np.random.Generator) -> Floats:
    """One path of eps per link at the instants, (T, links); starts in the stationary state."""
    keep = np.exp(-np.diff(time_s, prepend=-np.inf) / dynamics.tau_s)[:, None]
    kick = dynamics.sigma * np.sqrt(1.0 - keep**2) * rng.standard_normal((len(time_s), links))
    eps = np.zeros((len(time_s), links))
    state = np.zeros(links)
    for instant in range(len(time_s)):
        state = keep[instant] * state + kick[instant]
        eps[instant] = state
    return np.clip(eps, -dynamics.swing, dynamics.swing)


def links_up(
    dynamics: Dynamics, time_s: NDArray[np.float64], links: int, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Whether each link is up at the instants, (T, links); all are up at the start."""
    alive = np.ones((len(time_s), links), dtype=bool)
    if dynamics.outages_per_day <= 0:
        return alive
    mean_up_s, end = DAY_S / dynamics.outages_per_day, float(time_s[-1])
    for link in range(links):
        now = float(time_s[0]) + rng.exponential(mean_up_s)
        while now <= end:
            back = now + rng.exponential(dynamics.outage_s)
            alive[(time_s >= now) & (time_s < back), link] = False
            now = back + rng.exponential(mean_up_s)
    return alive


REGIMES = (1.0, 0.6, 0.25)
"""Levels of a link that others share: free, busy, crowded. A judgement; such routes are known to be bistable."""


@dataclass(frozen=True)
class Collapse:
    """From ``start_s`` on, for ``length_s`` (inf: to the end), a link carries ``share`` of what it else would."""

    link: int
    start_s: float
    length_s: float
    share: float  # 0: it is out


def collapsed(time_s: Floats, links: int, collapses: Sequence[Collapse]) -> Floats:
    """Factor of these collapses on the links, (T, links); where two overlap the worse holds."""
    factor = np.ones((len(time_s), links))
    for each in collapses:
        during = (time_s >= each.start_s) & (time_s < each.start_s + each.length_s)
        factor[during, each.link] = np.minimum(factor[during, each.link], each.share)
    return factor


def regimes(
    time_s: Floats, links: int, rng: np.random.Generator, *, stay_s: float, levels: Sequence[float] = REGIMES
) -> Floats:
    """Levels between which links jump, (T, links): stays are exponential with mean ``stay_s``, the first level and
    each next one drawn evenly, half of the next being the first level again."""
    shares = np.asarray(levels)
    factor = np.ones((len(time_s), links))
    for link in range(links):
        now = float(time_s[0])
        level = float(rng.choice(shares))
        while now <= time_s[-1]:
            until = now + rng.exponential(stay_s)
            factor[(time_s >= now) & (time_s < until), link] = level
            others = shares[shares != level]
            back = level != shares[0] and rng.random() < 0.5
            level, now = float(shares[0] if back else rng.choice(others)), until
    return factor


SWING = 0.2
"""Load moves by +-20 %."""
SLOWEST = 2.5
"""Longest an operation takes on a straggling GPU. A judgement: thermal throttling halves a clock, a sick host less."""


def fluctuating(
    time_s: Floats, domains: int, rng: np.random.Generator, *, swing: float = SWING, tau_s: float = 1800.0
) -> Floats:
    """Factor (T, domains) of load that swings by +-``swing`` about its mean; standard deviation half of the swing."""
    moving = Dynamics(swing=swing, sigma=0.5 * swing, tau_s=tau_s)
    return 1.0 + swing_path(moving, time_s, domains, rng) if swing > 0 else np.ones((len(time_s), domains))


def straggling(
    time_s: Floats, domains: int, rng: np.random.Generator, *, per_day: float, length_s: float, slowest: float = SLOWEST
) -> Floats:
    """Factor (T, domains): now and then a domain has a straggler, for an exponential while of mean ``length_s``.

    All of a domain's stages wait for it, so the factor is the domain's; drawn evenly from 1.2 to ``slowest``.
    """
    factor = np.ones((len(time_s), domains))
    for domain in range(domains):
        now = float(time_s[0])
        while per_day > 0:
            now += rng.exponential(86400.0 / per_day)
            if now > time_s[-1]:
                break
            until = now + rng.exponential(length_s)
            factor[(time_s >= now) & (time_s < until), domain] = rng.uniform(1.2, slowest)
            now = until
    return factor


BUFFER = 1.0
"""Queueing delay of a full buffer over the base latency: the rule of thumb of one bandwidth-delay product."""
USUAL_LOAD = 0.3
"""Load of others at the base bandwidth. A judgement, in the range that backbone operators plan for."""


def congested_latency(base_latency_s: Floats, share: Floats) -> Floats:
    """Latency (T, E) where links carry ``share`` (T, E) of their base bandwidth for us; the base one where it is 1.

    With less left for us, others load the link more: rho = 1 - (1 - USUAL_LOAD) share.
    """
    rho = np.clip(1.0 - (1.0 - USUAL_LOAD) * np.minimum(share, 1.0), 0.0, 0.999)
    queue = rho / (1.0 - rho) - USUAL_LOAD / (1.0 - USUAL_LOAD)
    full = 20.0  # packets-in-queue at which the buffer counts as full
    factor: Floats = 1.0 + BUFFER * np.minimum(queue, full) / full
    return np.asarray(base_latency_s * factor)
