"""What a change is worth under the forecast: net work of every configuration and kind of move, less that of keeping.

The forecast is joined by straight lines between its horizons and stays beyond the last; time ahead is cut into cells
(``EDGES``), in each of which rates are constant. Then the rules of ``network.rules.move`` are followed link by link: a
stop costs the time of the slowest link or of the restart; a stream takes what training leaves of every link, keeps
what has arrived in step, and pays for both. So a worth costs microseconds, and a dataset of worlds can ask for
millions.

Letters: H horizons, E links, C configurations, P places, G cells, V windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.network.rules.move import GRADIENT_BYTES
from hippo.network.rules.view import View

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

WINDOWS = (4, 16, 64)
"""Epochs over which a change is judged; the last window is the rest of the run."""
V = len(WINDOWS) + 1

EDGES = np.array(
    (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024), dtype=np.float64
)
"""Epochs ahead at which a cell begins; the last one ends with the run."""

SWITCH, STOP, BACKGROUND = range(3)
"""Ways to another configuration: live levers of the same place (free), stop and copy, in the background."""

DOWNTIME_S, DURATION_S, USD = range(3)
"""Places in what a move costs: training stands still; until the target runs (inf: not within the run); egress."""


class Ahead(NamedTuple):
    """Some configurations under one forecast; what does not change with it is as in ``network.rules.move.Rollout``."""

    epoch_s: float
    epochs_left: float  # the one that begins now included
    restart_s: float
    shadow_share: float
    tokens_per_step: float
    usd_per_token: float  # 0: egress does not count
    horizons: Ints  # (H,)
    tokens_per_s: Floats  # (H, C) worth included
    egress_usd_per_s: Floats  # (H, C)
    bandwidth_bytes_per_s: Floats  # (H, E)
    bytes_per_step: Floats  # (C, E)
    usd_per_byte: Floats  # (E,)
    place: Ints  # (C,)
    move_bytes: Floats  # (P, P, E)


class Now(NamedTuple):
    """Where the run stands: columns of ``Ahead``, -1: none; ``phase`` as in ``network.rules.move``."""

    running: int
    target: int
    phase: int
    arrived: float


class Worth(NamedTuple):
    """Answer: net tokens less those of keeping, over each window; -inf: impossible."""

    net_tokens: Floats  # (C, 3, V) of SWITCH, STOP, BACKGROUND; keeping is 0
    cancel: Floats  # (V,) of giving up the move under way; 0 where there is none
    keep: Floats  # (V,) net tokens of keeping itself
    move: Floats  # (C, 3, 3) DOWNTIME_S, DURATION_S, USD of each kind


def ahead(view: View, indices: Sequence[int] | None = None) -> Ahead:
    """Configurations of the view's cache (default: all, so that columns are indices) under its forecast."""
    cache, forecast = view.cache, view.forecast
    chosen = range(len(cache)) if indices is None else indices
    bandwidth = np.ascontiguousarray(forecast.bandwidth_bytes_per_s)
    times = [cache.step_time_s(index, bandwidth, forecast.latency_s, forecast.compute) for index in chosen]
    steps = 1.0 / np.stack(times, axis=1)
    sent = np.stack([cache.bytes_per_step(index) for index in chosen])
    worth = np.array([cache.configurations[index].worth for index in chosen])
    return Ahead(
        epoch_s=float(view.epoch_s),
        epochs_left=float(view.epochs_left),
        restart_s=float(view.restart_s),
        shadow_share=GRADIENT_BYTES / float(cache.problem.workload.state_bytes_per_parameter),
        tokens_per_step=cache.tokens_per_step,
        usd_per_token=float(view.usd_per_token),
        horizons=np.asarray(forecast.horizons, dtype=np.int64),
        tokens_per_s=np.ascontiguousarray(steps * (cache.tokens_per_step * worth)),
        egress_usd_per_s=np.ascontiguousarray(steps * (sent @ cache.usd_per_byte)),
        bandwidth_bytes_per_s=bandwidth,
        bytes_per_step=sent,
        usd_per_byte=cache.usd_per_byte,
        place=np.array([cache.configurations[index].place for index in chosen], dtype=np.int64),
        move_bytes=cache.moves(),
    )


def worth(look: Ahead, now: Now) -> Worth:
    """What every change is worth; see ``fill_worth``."""
    count = look.tokens_per_s.shape[1]
    found = Worth(np.empty((count, 3, V)), np.empty(V), np.empty(V), np.empty((count, 3, 3)))
    fill_worth(look, now, found)
    return found


def relevered(look: Ahead) -> Ahead:
    """Each configuration with the best live levers of its place at every horizon: they are free, so a place is worth
    what its best configuration is worth at the time."""
    net = _net(look)
    tokens, egress = look.tokens_per_s.copy(), look.egress_usd_per_s.copy()
    for place in np.unique(look.place):
        mine = np.flatnonzero(look.place == place)
        best = mine[np.argmax(net[:, mine], axis=1)]
        rows = np.arange(len(net))
        tokens[:, mine] = look.tokens_per_s[rows, best][:, None]
        egress[:, mine] = look.egress_usd_per_s[rows, best][:, None]
    return look._replace(tokens_per_s=tokens, egress_usd_per_s=egress)


def _net(look: Ahead) -> Floats:
    """Net tokens/s, (H, C)."""
    if look.usd_per_token <= 0.0:
        return look.tokens_per_s
    found: Floats = look.tokens_per_s - look.egress_usd_per_s / look.usd_per_token
    return found


@kernel
def fill_worth(look, now, found):  # type: ignore[no-untyped-def]
    """Fills ``found`` for a run that stands at ``now``. Nothing runs yet (``running`` -1): every configuration is a
    SWITCH, against nothing."""
    ends = window_ends(look)
    configurations, links = look.tokens_per_s.shape[1], look.bandwidth_bytes_per_s.shape[1]
    most = len(EDGES) + 1
    edges, net, carried = np.empty(most), np.empty((most, configurations)), np.empty((most, links))
    cells = grid(look, edges, net, carried)
    edges, net, carried = edges[: cells + 1], net[: cells + 1], carried[: cells + 1]
    zero, idle = np.zeros(len(look.usd_per_byte)), np.zeros(3)
    found.net_tokens[:] = -np.inf
    found.move[:] = 0.0
    found.cancel[:] = 0.0
    _keep(look, now, edges, net, carried, ends, found.keep)
    if now.phase != 0:
        for window in range(len(ends)):
            found.cancel[window] = total(edges, net[:, now.running], ends[window]) - found.keep[window]
        return
    for each in range(look.tokens_per_s.shape[1]):
        here = now.running < 0 or look.place[each] == look.place[now.running]
        if here:
            _value(look, edges, net, -1, each, ends, idle, found.net_tokens[each, 0], found.keep)
        if each == now.running or now.running < 0:
            continue
        if not here:
            source, destination = look.place[now.running], look.place[each]
            needed = look.move_bytes[source, destination]
            stop(look, edges, carried, needed, 0.0, found.move[each, 1], 1.0)
            stream(look, edges, carried, now.running, each, zero, found.move[each, 2], 0.0)
            for mode in (1, 2):
                way, gave = found.move[each, mode], found.net_tokens[each, mode]
                _value(look, edges, net, now.running, each, ends, way, gave, found.keep)


@kernel
def window_ends(look):  # type: ignore[no-untyped-def]
    """(V,) epochs ahead at which the windows end: none lasts longer than the run."""
    ends = np.full(4, look.epochs_left)
    for window, epochs in enumerate((4.0, 16.0, 64.0)):
        ends[window] = min(epochs, look.epochs_left)
    return ends


@kernel(lean=True)
def grid(look, edges, net, carried):  # type: ignore[no-untyped-def]
    """Fills the edges of the cells (G + 1,) in epochs ahead; net tokens of every configuration up to each edge
    (G + 1, C); bytes that each link can carry up to each edge (G + 1, E). Returns G, ``len(EDGES)`` at most."""
    count = 1
    while count < len(EDGES) and EDGES[count] < look.epochs_left:
        count += 1
    for cell in range(count):
        edges[cell] = EDGES[cell]
    edges[count] = look.epochs_left
    configurations, links = look.tokens_per_s.shape[1], look.bandwidth_bytes_per_s.shape[1]
    net[0], carried[0] = 0.0, 0.0
    price = 1.0 / look.usd_per_token if look.usd_per_token > 0.0 else 0.0
    for cell in range(count):
        low, high, share = between(look.horizons, edges[cell], edges[cell + 1])
        seconds = (edges[cell + 1] - edges[cell]) * look.epoch_s
        for each in range(configurations):
            first = look.tokens_per_s[low, each] - look.egress_usd_per_s[low, each] * price
            last = look.tokens_per_s[high, each] - look.egress_usd_per_s[high, each] * price
            net[cell + 1, each] = net[cell, each] + seconds * ((1.0 - share) * first + share * last)
        for link in range(links):
            first, last = look.bandwidth_bytes_per_s[low, link], look.bandwidth_bytes_per_s[high, link]
            carried[cell + 1, link] = carried[cell, link] + seconds * ((1.0 - share) * first + share * last)
    return count


@kernel(lean=True)
def between(horizons, begin, end):  # type: ignore[no-untyped-def]
    """The horizons on either side of the epochs [begin, end), and the share of the later one in their mean.

    The forecast for epoch t stands for [t, t + 1), so the mean of these epochs is what holds at (begin + end - 1) / 2.
    """
    at, last = 0.5 * (begin + max(end - 1.0, begin)), len(horizons) - 1
    for high in range(1, last + 1):
        if at < horizons[high]:
            return high - 1, high, (at - horizons[high - 1]) / (horizons[high] - horizons[high - 1])
    return last, last, 0.0


@kernel(lean=True)
def total(edges, summed, at):  # type: ignore[no-untyped-def]
    """A sum up to each edge, (G + 1,), at ``at`` epochs."""
    for cell in range(len(edges) - 1):
        if at <= edges[cell + 1]:
            share = (at - edges[cell]) / (edges[cell + 1] - edges[cell])
            return summed[cell] + share * (summed[cell + 1] - summed[cell])
    return summed[-1]


@kernel(lean=True)
def reached(edges, summed, wanted):  # type: ignore[no-untyped-def]
    """Epochs ahead at which a growing sum reaches ``wanted``; inf: not within the run."""
    for cell in range(len(edges) - 1):
        if summed[cell + 1] >= wanted and summed[cell + 1] > summed[cell]:
            share = max(0.0, (wanted - summed[cell]) / (summed[cell + 1] - summed[cell]))
            return edges[cell] + share * (edges[cell + 1] - edges[cell])
    return np.inf


@kernel(lean=True)
def stop(look, edges, carried, needed, begin, way, share):  # type: ignore[no-untyped-def]
    """What a stop at ``begin`` epochs costs that brings a share of ``needed`` (E,) bytes over the links; fills ``way``
    (3,)."""
    end, usd = begin + look.restart_s / look.epoch_s, 0.0
    for link in range(len(needed)):
        if needed[link] > 0.0:
            if needed[link] == np.inf:
                end = np.inf
                break
            wanted = total(edges, carried[:, link], begin) + share * needed[link]
            end = max(end, reached(edges, carried[:, link], wanted))
            usd += share * needed[link] * look.usd_per_byte[link]
    if end > look.epochs_left:
        end = np.inf
    way[0] = way[1] = (end - begin) * look.epoch_s
    way[2] = usd


@kernel(lean=True)
def stream(look, edges, carried, now, target, already, way, begin):  # type: ignore[no-untyped-def]
    """What a move in the background costs that starts at ``begin`` epochs, of which ``already`` (E,) bytes have
    arrived; fills ``way`` (3,), its duration counted from ``begin``."""
    needed = look.move_bytes[look.place[now], look.place[target]]
    end, usd = begin, 0.0
    for link in range(len(needed)):
        if needed[link] == np.inf:
            end = np.inf
            break
        if needed[link] > 0.0:
            end = max(end, _streamed(look, edges, now, link, needed[link], already[link], begin))
            usd += (needed[link] - already[link]) * look.usd_per_byte[link]
    if not end < look.epochs_left:
        way[0], way[1], way[2] = 0.0, np.inf, usd
        return
    steps = _steps(look, edges, now, end) - _steps(look, edges, now, begin)
    for link in range(len(needed)):  # half of it has arrived, in the mean
        usd += 0.5 * (needed[link] * look.shadow_share) * steps * look.usd_per_byte[link]
    stop(look, edges, carried, needed, end, way, look.shadow_share)
    way[1] += (end - begin) * look.epoch_s
    way[2] += usd


@kernel(lean=True)
def _streamed(look, edges, now, link, needed, arrived, begin):  # type: ignore[no-untyped-def]
    """Epochs ahead at which a link has streamed all of ``needed`` over what training and shadows leave of it, from
    ``begin`` on; inf: never."""
    left = needed - arrived
    if left <= 0.0:
        return begin
    for cell in range(len(edges) - 1):
        if edges[cell + 1] <= begin:
            continue
        first = max(edges[cell], begin)
        low, high, share = between(look.horizons, edges[cell], edges[cell + 1])
        bandwidth = look.bandwidth_bytes_per_s[low, link] * (1.0 - share)
        bandwidth += look.bandwidth_bytes_per_s[high, link] * share
        steps = (1.0 - share) * look.tokens_per_s[low, now] + share * look.tokens_per_s[high, now]
        steps /= look.tokens_per_step
        seconds = (edges[cell + 1] - first) * look.epoch_s
        shadow = needed * look.shadow_share * steps
        idle = bandwidth - look.bytes_per_step[now, link] * steps - shadow * (1.0 - left / needed)
        if idle <= 0.0:
            continue
        pull = (
            shadow / needed
        )  # idle capacity shrinks as more has arrived: d left / dt = -(idle - shadow sent / needed)
        sent = idle / pull * (1.0 - np.exp(-pull * seconds)) if pull > 0.0 else idle * seconds
        if sent >= left:
            takes = -np.log(1.0 - left * pull / idle) / pull if pull > 0.0 else left / idle
            return first + takes / look.epoch_s
        left -= sent
    return np.inf


@kernel(lean=True)
def _steps(look, edges, each, until):  # type: ignore[no-untyped-def]
    """Optimizer steps of a configuration up to ``until`` epochs."""
    found = 0.0
    for cell in range(len(edges) - 1):
        end = min(until, edges[cell + 1])
        if end <= edges[cell]:
            break
        low, high, share = between(look.horizons, edges[cell], edges[cell + 1])
        rate = (1.0 - share) * look.tokens_per_s[low, each] + share * look.tokens_per_s[high, each]
        found += rate / look.tokens_per_step * (end - edges[cell]) * look.epoch_s
    return found


@kernel(lean=True)
def _value(look, edges, net, now, target, ends, way, gave, keep):  # type: ignore[no-untyped-def]
    """Net tokens up to each window's end of a move as ``way`` says (``now`` trains until it stands still), less
    ``keep``; fills ``gave`` (V,)."""
    if way[1] == np.inf:
        gave[:] = -np.inf
        return
    price = 1.0 / look.usd_per_token if look.usd_per_token > 0.0 else 0.0
    begin, end = (way[1] - way[0]) / look.epoch_s, way[1] / look.epoch_s
    after = total(edges, net[:, target], end)
    for window in range(len(ends)):
        until = ends[window]
        found = 0.0 if now < 0 else total(edges, net[:, now], min(begin, until))
        if until > end:
            found += total(edges, net[:, target], until) - after
        paid = 1.0 if until >= end or end <= 0.0 else until / end
        gave[window] = found - way[2] * price * paid - keep[window]


@kernel
def _keep(look, now, edges, net, carried, ends, keep):  # type: ignore[no-untyped-def]
    """Net tokens of going on as it is, a move under way included; fills ``keep`` (V,)."""
    keep[:] = 0.0
    if now.running < 0:
        return
    if now.phase == 0:
        for window in range(len(ends)):
            keep[window] = total(edges, net[:, now.running], ends[window])
        return
    needed = look.move_bytes[look.place[now.running], look.place[now.target]]
    way, none = np.zeros(3), np.zeros(len(ends))
    if now.phase == 1:
        stop(look, edges, carried, needed * (1.0 - now.arrived), 0.0, way, 1.0)
    else:
        stream(look, edges, carried, now.running, now.target, needed * now.arrived, way, 0.0)
    if way[1] == np.inf:
        for window in range(len(ends)):
            keep[window] = total(edges, net[:, now.running], ends[window]) if now.phase == 2 else 0.0
        return
    _value(look, edges, net, now.running, now.target, ends, way, keep, none)
