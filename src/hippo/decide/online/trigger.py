"""When a decision is due: a link or a load has moved since the last one, or it has been long.

Between triggers the run goes on as it is. E links, K domains.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hippo.decide.online.view import View
from hippo.simulate.moving import STILL

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Thresholds:
    """How far something may move from what it was at the last decision before the next one is due."""

    link_share: float = 0.10  # of a link's bandwidth
    latency_share: float = 0.30  # of a link's latency
    load_share: float = 0.05  # of the length of a domain's operations
    every: int = 8  # epochs after which a decision is due whatever happens

    def __post_init__(self) -> None:
        shares = (self.link_share, self.latency_share, self.load_share)
        assert min(shares) >= 0.0
        assert self.every >= 1


@dataclass(frozen=True, eq=False)
class Seen:
    """What the last decision looked at."""

    epoch: int
    bandwidth_bytes_per_s: Floats  # (E,)
    latency_s: Floats  # (E,)
    compute: Floats  # (K,)
    running: int
    phase: int
    weights: tuple[float, float, float]


@dataclass(frozen=True)
class Due:
    """What made a decision due; empty: nothing did."""

    links: tuple[int, ...] = ()  # bandwidth moved
    latencies: tuple[int, ...] = ()
    loads: tuple[int, ...] = ()  # domains
    lost: tuple[int, ...] = ()  # links that went down
    back: tuple[int, ...] = ()  # links that came back
    started: bool = False  # nothing was decided before
    arrived: bool = False  # a move is done
    stands: bool = False  # what runs needs a link that is down
    asked: bool = False  # the preferences are others
    long: bool = False  # the last decision is ``every`` epochs ago

    def __bool__(self) -> bool:
        return any(vars(self).values())


def seen(view: View) -> Seen:
    """What this view shows, to compare the next one with: the forecast's first horizon is what is known of now."""
    now = view.forecast
    return Seen(
        epoch=view.epoch,
        bandwidth_bytes_per_s=now.bandwidth_bytes_per_s[0],
        latency_s=now.latency_s[0],
        compute=now.compute[0],
        running=view.running,
        phase=view.phase,
        weights=view.weights,
    )


def due(view: View, last: Seen | None, thresholds: Thresholds) -> Due:
    """What makes a decision due now, against what the last one looked at."""
    stands = view.running >= 0 and view.phase == STILL and not runs(view, view.running)
    if last is None:
        return Due(started=True, stands=stands)
    now = seen(view)
    was, is_ = last.bandwidth_bytes_per_s, now.bandwidth_bytes_per_s
    moved = (np.abs(is_ - was) > thresholds.link_share * was) & (was > 0) & (is_ > 0)
    later = np.abs(now.latency_s - last.latency_s) > thresholds.latency_share * last.latency_s
    loaded = np.abs(now.compute - last.compute) > thresholds.load_share * last.compute
    return Due(
        links=_where(moved),
        latencies=_where(later),
        loads=_where(loaded),
        lost=_where((was > 0) & (is_ <= 0)),
        back=_where((was <= 0) & (is_ > 0)),
        arrived=last.phase != STILL and view.phase == STILL,
        stands=stands,
        asked=view.weights != last.weights,
        long=view.epoch - last.epoch >= thresholds.every,
    )


def runs(view: View, index: int) -> bool:
    """Whether a configuration can run now: every link that it sends over is up, every domain that it uses answers."""
    if index < 0:
        return False
    now = view.forecast
    used = view.book.bytes_per_step(index) > 0
    up = bool((now.bandwidth_bytes_per_s[0, used] > 0).all())
    return up and bool(np.isfinite(now.compute[0, view.book.domains_used(index)]).all())


def _where(marks: NDArray[np.bool_]) -> tuple[int, ...]:
    return tuple(int(place) for place in np.flatnonzero(marks))
