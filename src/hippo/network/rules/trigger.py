"""When a decision is due: what runs fell behind or cannot run, a link that matters has moved, or it has been long.

The rule of the environment in which the agents learn (``hippo.network.env.env``), and what only production knows of:
a first decision, other preferences, and configurations that were found between decisions. *Used* are the links and
domains of what runs and of the best configuration that is known for the network as it is believed to be now. Between
triggers the run goes on as it is. E links, K domains, C configurations.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.network.plans.plan_cache import net_tokens_per_step
from hippo.network.plans.step_times import approximate_step_times
from hippo.network.rules.move import STILL
from hippo.network.rules.view import View

Floats = NDArray[np.float64]
Marks = NDArray[np.bool_]


@dataclass(frozen=True)
class Thresholds:
    """How far something may move from what it was at the last decision before the next one is due."""

    link_share: float = 0.10  # of the bandwidth of a used link
    pace_share: float = 0.05  # of the pace of what runs against the best known configuration
    every: int = 8  # epochs after which a decision is due whatever happens
    latency_share: float = 0.30  # of a used link's latency: told with a decision, but makes none due
    load_share: float = 0.05  # of the length of a used domain's operations: told as well

    def __post_init__(self) -> None:
        assert min(self.link_share, self.pace_share, self.latency_share, self.load_share) >= 0.0
        assert self.every >= 1


@dataclass(frozen=True, eq=False)
class Seen:
    """What the last decision looked at."""

    epoch: int
    bandwidth_bytes_per_s: Floats  # (E,)
    latency_s: Floats  # (E,)
    compute: Floats  # (K,)
    running: int
    known: int  # configurations
    weights: tuple[float, float, float]
    pace: float = 1.0  # tokens/s of what ran over those of the best


@dataclass(frozen=True)
class Due:
    """What made a decision due; false: nothing did."""

    links: tuple[int, ...] = ()  # bandwidth moved
    latencies: tuple[int, ...] = ()  # links; told with a decision, but no reason for one
    loads: tuple[int, ...] = ()  # domains; told as well
    lost: tuple[int, ...] = ()  # links that went down
    back: tuple[int, ...] = ()  # links that came back
    started: bool = False  # nothing was decided before
    arrived: bool = False  # a move is done
    stands: bool = False  # what runs needs what is down
    behind: bool = False  # what runs fell behind the best configuration
    found: bool = False  # more configurations are known
    asked: bool = False  # the preferences are others
    long: bool = False  # the last decision is ``every`` epochs ago

    def __bool__(self) -> bool:
        told = ("latencies", "loads")
        return any(value for name, value in vars(self).items() if name not in told)


NEAR, MOST_LEVERS = 0.03, 4
"""How far below the best one a lever may be, as believed, that is looked at more closely; how many at most."""


class Standing(NamedTuple):
    """What runs against the best configuration, as believed now."""

    best: int
    pace: float  # tokens/s of what runs over those of the best; 1: nothing runs, or nothing can
    levers: tuple[int, ...] = ()  # configurations of the place where it runs that may do most net work, best first


def standing(view: View) -> Standing:
    """By the planes of their step times (``approximate_step_times``), as in training."""
    cache, now = view.cache, view.forecast
    state = now.bandwidth_bytes_per_s[:1], now.latency_s[:1], now.compute[:1]
    steps = 1.0 / approximate_step_times(cache, *state)[0]
    net = steps * net_tokens_per_step(cache, view.usd_per_token)
    best = int(np.argmax(net))
    if view.running < 0 or steps[best] <= 0.0:
        return Standing(best, 1.0)
    worth = cache.configurations[view.running].worth / cache.configurations[best].worth
    here = cache.of_place(cache.configurations[view.running].place)
    levers = sorted(here, key=lambda index: -float(net[index]))[:MOST_LEVERS]
    close = tuple(index for index in levers if net[index] >= (1.0 - NEAR) * net[levers[0]])
    return Standing(best, float(steps[view.running] / steps[best]) * worth, close)


def seen(view: View, now: Standing | None = None) -> Seen:
    """What this view shows, to compare the next one with: the forecast's first horizon is what is known of now.

    ``now``: how what runs stands, where somebody has worked it out.
    """
    pace = 1.0
    if view.running >= 0:
        pace = (standing(view) if now is None else now).pace
    return Seen(
        epoch=view.epoch,
        bandwidth_bytes_per_s=view.forecast.bandwidth_bytes_per_s[0],
        latency_s=view.forecast.latency_s[0],
        compute=view.forecast.compute[0],
        running=view.running,
        known=len(view.cache),
        weights=view.weights,
        pace=pace,
    )


def due(view: View, last: Seen | None, thresholds: Thresholds, *, now: Standing | None = None) -> Due:
    """What makes a decision due now, against what the last one looked at."""
    if last is None:
        return Due(started=True, stands=_stands(view))
    now, cache = standing(view) if now is None else now, view.cache
    matter = [index for index in (view.running, now.best) if index >= 0]
    links = np.logical_or.reduce([cache.bytes_per_step(index) > 0 for index in matter])
    domains = np.logical_or.reduce([cache.domains_used(index) for index in matter])
    still = view.phase == STILL
    return replace(
        moved(view, last, thresholds, links=links, domains=domains),
        arrived=still and view.running >= 0 and last.running >= 0 and _other_place(view, last.running),
        behind=still and now.pace < (1.0 - thresholds.pace_share) * last.pace,
        found=len(cache) > last.known,
        long=view.epoch - last.epoch >= thresholds.every,
    )


def moved(
    view: View, last: Seen, thresholds: Thresholds, *, links: Marks | None = None, domains: Marks | None = None
) -> Due:
    """What of the network has moved past a threshold, among these ``links`` (E,) and ``domains`` (K,); default: all."""
    now = view.forecast
    was, is_ = last.bandwidth_bytes_per_s, now.bandwidth_bytes_per_s[0]
    wandered = (np.abs(is_ - was) > thresholds.link_share * was) & (was > 0) & (is_ > 0)
    later = np.abs(now.latency_s[0] - last.latency_s) > thresholds.latency_share * last.latency_s
    with np.errstate(invalid="ignore"):  # lost before, lost now
        loaded = np.abs(now.compute[0] - last.compute) > thresholds.load_share * last.compute
    return Due(
        links=_where(wandered, links),
        latencies=_where(later, links),
        loads=_where(loaded, domains),
        lost=_where((was > 0) & (is_ <= 0), links),
        back=_where((was <= 0) & (is_ > 0), links),
        stands=_stands(view),
        asked=view.weights != last.weights,
    )


def runs(view: View, index: int) -> bool:
    """Whether a configuration can run now: every link that it sends over is up, every domain that it uses answers."""
    if index < 0:
        return False
    now = view.forecast
    used = view.cache.bytes_per_step(index) > 0
    up = bool((now.bandwidth_bytes_per_s[0, used] > 0).all())
    return up and bool(np.isfinite(now.compute[0, view.cache.domains_used(index)]).all())


def _stands(view: View) -> bool:
    return view.running >= 0 and view.phase == STILL and not runs(view, view.running)


def _other_place(view: View, before: int) -> bool:
    known = view.cache.configurations
    return known[view.running].place != known[before].place


def _where(marks: Marks, among: Marks | None) -> tuple[int, ...]:
    return tuple(int(place) for place in np.flatnonzero(marks if among is None else marks & among))
