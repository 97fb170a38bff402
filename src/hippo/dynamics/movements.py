"""How the network of each family moves: the regimes of ``results/evaluation.md``, drawn from a seeded generator.

A movement is a factor on the bandwidth of every link and one on the length of every domain's operations. T epochs,
E links as in ``cluster.links``, P pairs of domains (events strike both directions of a pair), K domains.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from hippo.dynamics.presets import PRESETS
from hippo.dynamics.processes import (
    DAY_S,
    Collapse,
    collapsed,
    daily_factor,
    fluctuating,
    regimes,
    straggling,
    swing_path,
)
from hippo.problem.cluster import Cluster, Dynamics
from hippo.problem.links import base_bandwidth

Floats = NDArray[np.float64]
MINUTE_S, HOUR_S = 60.0, 3600.0
AIMED = 0.6  # share of the events that strike what a plan is likely to use: elsewhere nobody notices them
PATH, LONG_PATH = 3, 5  # domains of such a plan, among few or many
MANY = 7


@dataclass(frozen=True, eq=False)
class Movement:
    """What moves in a world."""

    bandwidth: Floats  # (T, E) factor on the base bandwidth; 0: out
    compute: Floats  # (T, K) factor on the length of operations


@dataclass(frozen=True, eq=False)
class MovementDraw:
    """What a movement is drawn from."""

    cluster: Cluster
    time_s: Floats  # (T,)
    rng: np.random.Generator

    @property
    def pairs(self) -> list[tuple[int, ...]]:
        """Links of each pair of domains."""
        found: dict[frozenset[str], list[int]] = {}
        for index, link in enumerate(self.cluster.links):
            found.setdefault(frozenset((link.source, link.destination)), []).append(index)
        return [tuple(each) for each in found.values()]

    @property
    def path(self) -> list[int]:
        """Domains that a plan is likely to use."""
        return widest_path(self.cluster, PATH if len(self.cluster.domains) < MANY else LONG_PATH)

    def events(self, most: int) -> int:
        """How many things happen: from 1 to ``most``, more among many domains."""
        scale = max(1.0, len(self.cluster.domains) / MANY)
        return round(int(self.rng.integers(1, most + 1)) * scale)

    def swing(self, dynamics: Dynamics) -> Floats:
        """1 + eps of every link, (T, E)."""
        return 1.0 + swing_path(dynamics, self.time_s, len(self.cluster.links), self.rng)

    def load(self, swing: float = 0.1) -> Floats:
        """Fluctuating load of every domain, (T, K)."""
        return fluctuating(self.time_s, len(self.cluster.domains), self.rng, swing=swing)

    def struck(self, count: int) -> list[tuple[int, ...]]:
        """Pairs that something happens to: most often those that a plan would use, else any, the quick ones sooner."""
        pairs, base = self.pairs, base_bandwidth(self.cluster)
        weight = np.array([base[list(pair)].mean() ** 3 for pair in pairs])
        weight /= weight.sum()
        path, at = self.path, self.cluster.link_index
        names = [domain.name for domain in self.cluster.domains]
        used = {at[names[a], names[b]] for a, b in pairwise(path)}
        liked = np.array([not used.isdisjoint(pair) for pair in pairs])
        weight = np.where(liked, AIMED / max(1, liked.sum()), 0.0) + (1.0 - AIMED) * weight
        chosen = self.rng.choice(len(pairs), size=min(count, len(pairs)), replace=False, p=weight / weight.sum())
        return [pairs[each] for each in chosen]

    def domain(self) -> int:
        """A domain that something happens to: most often one that a plan would use."""
        if self.rng.random() < AIMED:
            return int(self.rng.choice(self.path))
        return int(self.rng.integers(len(self.cluster.domains)))

    def collapse(self, count: int, *, length_s: tuple[float, float], share: tuple[float, float]) -> Floats:
        """``count`` collapses within the middle of the trace, (T, E), of lengths and shares drawn evenly."""
        duration, found = float(self.time_s[-1]), []
        for pair in self.struck(count):
            start = float(self.rng.uniform(0.05, 0.7)) * duration
            length, left = float(self.rng.uniform(*length_s)), float(self.rng.uniform(*share))
            found += [Collapse(link, start, length, left) for link in pair]
        return collapsed(self.time_s, len(self.cluster.links), found)


def _still_ou(rng: np.random.Generator) -> Dynamics:
    """A light swing below whatever else happens."""
    return Dynamics(sigma=float(rng.uniform(0.02, 0.08)), tau_s=float(rng.uniform(0.3, 3.0)) * HOUR_S)


def ou3(draw: MovementDraw) -> Movement:
    """Every link swings by up to +-30 %, with memory of a quarter of an hour to hours."""
    sigma, tau_s = float(draw.rng.uniform(0.12, 0.25)), float(draw.rng.uniform(0.25, 2.0)) * HOUR_S
    return Movement(draw.swing(Dynamics(sigma=sigma, tau_s=tau_s)), draw.load())


def transient(draw: MovementDraw) -> Movement:
    """One to three pairs fall to 10-35 % for 20 to 80 minutes."""
    factor = draw.collapse(draw.events(3), length_s=(20 * MINUTE_S, 80 * MINUTE_S), share=(0.1, 0.35))
    return Movement(draw.swing(_still_ou(draw.rng)) * factor, draw.load())


def lasting(draw: MovementDraw) -> Movement:
    """One or two pairs fall to 10-35 % for 8 to 30 hours."""
    factor = draw.collapse(draw.events(2), length_s=(8 * HOUR_S, 30 * HOUR_S), share=(0.1, 0.35))
    return Movement(draw.swing(_still_ou(draw.rng)) * factor, draw.load())


def shifting(draw: MovementDraw) -> Movement:
    """Every pair jumps between a free, a busy and a crowded level and stays there for hours."""
    stay_s = float(draw.rng.uniform(2.0, 10.0)) * HOUR_S
    levels = regimes(draw.time_s, len(draw.pairs), draw.rng, stay_s=stay_s)
    return Movement(draw.swing(_still_ou(draw.rng)) * _per_link(draw, levels), draw.load())


def day(draw: MovementDraw) -> Movement:
    """The daily curve, its peak at another hour on every pair: as strong as drawn over a light swing, or curve and
    swing as published traffic shows them."""
    moving = replace(_still_ou(draw.rng), diurnal_peak_to_trough=float(draw.rng.uniform(1.3, 3.0)))
    if draw.rng.random() < 0.4:
        moving = PRESETS[str(draw.rng.choice(tuple(PRESETS)))]
    peak_s = _per_link(draw, draw.rng.uniform(0.0, DAY_S, len(draw.pairs)))
    curve = daily_factor(draw.time_s, moving.diurnal_peak_to_trough, peak_s)
    return Movement(draw.swing(moving) * curve, draw.load())


def outage(draw: MovementDraw) -> Movement:
    """A domain cannot be reached for 5 to 40 minutes, sometimes two; elsewhere single links go."""
    factor = np.ones((len(draw.time_s), len(draw.cluster.links)))
    duration = float(draw.time_s[-1])
    for _ in range(draw.events(3)):
        start = float(draw.rng.uniform(0.05, 0.8)) * duration
        length = float(draw.rng.uniform(5.0, 40.0)) * MINUTE_S
        hit = of_domain(draw.cluster, draw.domain()) if draw.rng.random() < 0.6 else draw.struck(1)[0]
        factor *= collapsed(draw.time_s, factor.shape[1], [Collapse(link, start, length, 0.0) for link in hit])
    return Movement(draw.swing(_still_ou(draw.rng)) * factor, draw.load())


def halving(draw: MovementDraw) -> Movement:
    """A pair (sometimes two) loses half or more of its bandwidth for good."""
    factor = draw.collapse(draw.events(2), length_s=(1e9, 2e9), share=(0.3, 0.55))
    return Movement(draw.swing(_still_ou(draw.rng)) * factor, draw.load())


def stragglers(draw: MovementDraw) -> Movement:
    """Load swings by +-20 %, and now and then a domain has a straggler."""
    domains = len(draw.cluster.domains)
    slow = straggling(draw.time_s, domains, draw.rng, per_day=3.0, length_s=3.0 * HOUR_S)
    return Movement(draw.swing(_still_ou(draw.rng)), draw.load(0.2) * slow)


MOVEMENTS: Mapping[str, Callable[[MovementDraw], Movement]] = MappingProxyType(
    {
        "ou3": ou3,
        "transient": transient,
        "lasting": lasting,
        "regimes": shifting,
        "day": day,
        "outage": outage,
        "halving": halving,
        "stragglers": stragglers,
    }
)
"""Movements by name; the families that are about sizes draw one of them."""


def widest_path(cluster: Cluster, most: int) -> list[int]:
    """Domains, at most so many, along links of which the slowest is quick: begun at each pair, then extended at the
    end that loses least. The best of them by its slowest link; ties go to the first."""
    rate = np.zeros((len(cluster.domains),) * 2)
    for link, carried in zip(cluster.links, base_bandwidth(cluster), strict=True):
        rate[cluster.domain_index[link.source], cluster.domain_index[link.destination]] = carried
    rate = np.minimum(rate, rate.T)
    best, widest = [0], -1.0
    for begin in np.argsort(-rate, axis=None, kind="stable")[: 2 * len(rate)]:
        path = [int(begin) // len(rate), int(begin) % len(rate)]
        while len(path) < min(most, len(rate)):
            reach = np.where(np.isin(np.arange(len(rate)), path), -1.0, rate[[path[0], path[-1]]])  # (2, K)
            end, found = divmod(int(np.argmax(reach)), len(rate))
            path = [*path, found] if end else [found, *path]
        slowest = min((rate[a, b] for a, b in pairwise(path)), default=0.0)
        if slowest > widest:
            best, widest = path, slowest
    return best


def of_domain(cluster: Cluster, domain: int) -> tuple[int, ...]:
    """Links that begin or end in a domain."""
    name = cluster.domains[domain].name
    return tuple(at for at, link in enumerate(cluster.links) if name in (link.source, link.destination))


def _per_link(draw: MovementDraw, values: Floats) -> Floats:
    """Values of pairs, (.., P), as values of links, (.., E)."""
    place = np.zeros(len(draw.cluster.links), dtype=np.int64)
    for pair, links in enumerate(draw.pairs):
        place[list(links)] = pair
    found: Floats = values[..., place]
    return found


def draw_movement(name: str, cluster: Cluster, time_s: Floats, rng: np.random.Generator) -> Movement:
    """The movement of that name. The first epoch is undisturbed by outages, so that a run can begin."""
    found = MOVEMENTS[name](MovementDraw(cluster, time_s, rng))
    first = np.maximum(found.bandwidth[:1], 0.05)
    return replace(found, bandwidth=np.concatenate([first, np.maximum(found.bandwidth[1:], 0.0)]))
