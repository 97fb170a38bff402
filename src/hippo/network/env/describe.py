"""The figures that speak for one option, as the upper agent sees them.

Letters: M options, H horizons, G cells of time ahead, E links, K domains, V windows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.network.env.scene import EPOCH_S, LEAST_RATE, TAIL, USD_PER_TOKEN, USUAL
from hippo.network.env.spaces import MOST_OPTIONS, OPTION_FEATURES, OPTIONS
from hippo.network.rules.view import HORIZONS, How

KEEP, SWITCH, STOP, BACKGROUND, CANCEL = range(5)
HOWS = (How.KEEP, How.SWITCH, How.STOP, How.BACKGROUND, How.CANCEL)
"""What the numbers of ``Options.how`` mean."""

AHEAD = np.array(HORIZONS, dtype=np.int64)
LEAST_AHEAD = 8.0
"""What an impossible sequence shows, signed logarithm of epochs."""
FLOOR_SHARE = 0.5
"""The bandwidth floor: share of its base bandwidth below which a link is weak."""
FLOOR_USUAL = 0.05
"""Worths are told in epochs of what runs usually does, or of this share of the best, if that is more."""

_AT = {name: place for place, name in enumerate(OPTION_FEATURES)}
_CONSTRUCTED, _GAIN, _DOWNTIME, _DURATION, _USD, _WORTH, _DOUBT = (
    _AT[name] for name in ("constructed", "gain_now", "downtime", "duration", "usd", "worth_soon", "worth_doubt")
)
_UTILIZATION, _EGRESS, _IMBALANCE, _WEAK, _ROBUST, _AHEAD = (
    _AT[name] for name in ("utilization", "egress", "imbalance", "weak", "robust", "ahead")
)


class Standing(NamedTuple):
    """Where a run stands."""

    instant: int  # of the scene
    epochs_left: float  # the one that begins now included
    running: int  # -1: nothing yet
    target: int  # of the move under way, or -1
    phase: int  # simulate.moving
    arrived: float  # share of the move
    quiet: float  # epochs since the last decision that changed something
    outlook: int  # row of ``Scene.ahead``: of this instant, under the preferences of the run


class Options(NamedTuple):
    """What may be answered. Rows beyond the last option are zero and masked."""

    how: NDArray[np.int64]  # (M,) places in ``HOWS``
    target: NDArray[np.int64]  # (M,) configuration, or -1
    mask: NDArray[np.bool_]  # (M,)
    features: NDArray[np.float32]  # (M, OPTIONS)


class Time(NamedTuple):
    """Cells of the time ahead, and what links carry up to their ends."""

    edges: NDArray[np.float64]  # (G + 1,) epochs
    low: NDArray[np.int64]  # (G,) horizons on either side
    high: NDArray[np.int64]
    share: NDArray[np.float64]  # (G,) of the later one
    carried: NDArray[np.float64]  # (G + 1, E) bytes
    ends: NDArray[np.float64]  # (V,) of the windows, epochs
    epoch_s: float


def empty_options() -> Options:
    """Room for the options of one state."""
    return Options(
        np.zeros(MOST_OPTIONS, np.int64),
        np.zeros(MOST_OPTIONS, np.int64),
        np.zeros(MOST_OPTIONS, np.bool_),
        np.zeros((MOST_OPTIONS, OPTIONS), np.float32),
    )


@kernel(lean=True)
def put(found, row, how, each):  # type: ignore[no-untyped-def]
    """Writes what an option is: how to answer, and the configuration; returns ``row``. Apart from ``describe``, which
    would be compiled once for every constant that it is called with."""
    found.how[row], found.target[row], found.mask[row] = how, each, True
    return row


@kernel(lean=True)
def describe(scene, now, worths, time, found, row, way, gave):  # type: ignore[no-untyped-def]
    """Writes the figures of the option in ``row``: what its configuration does once it runs."""
    how, each = found.how[row], found.target[row]
    features = found.features[row]
    features[how] = 1.0  # kinds stand first, in the order of ``HOWS``
    features[_CONSTRUCTED] = scene.constructed[each]
    runs, epoch_s = now.running, scene.scalars[EPOCH_S]
    usual = FLOOR_USUAL * scene.scalars[USUAL] if runs >= 0 else scene.scalars[USUAL]
    if runs >= 0:
        usual = max(usual, scene.base_tokens[runs] * worths[runs])
    least = LEAST_RATE * scene.scalars[USUAL]
    for horizon in range(len(AHEAD)):
        kept = scene.scalars[USUAL]
        if runs >= 0:
            kept = max(least, scene.tokens[now.instant, horizon, runs] * worths[runs])
        gain = max(least, scene.tokens[now.instant, horizon, each] * worths[each]) / kept
        features[_GAIN + horizon] = min(TAIL, max(-TAIL, np.log(gain)))
    features[_DOWNTIME] = np.log1p(way[0] / epoch_s)
    features[_DURATION] = np.log1p(way[1] / epoch_s)
    if scene.scalars[USD_PER_TOKEN] > 0.0:
        features[_USD] = np.log1p(way[2] / scene.scalars[USD_PER_TOKEN] / (usual * epoch_s))
        features[_EGRESS] = min(2.0, scene.usd[each] / scene.scalars[USD_PER_TOKEN])
    for window in range(len(gave)):
        features[_WORTH + window] = _signed_log(gave[window] / (usual * epoch_s))
    doubted = gave[-1] + _doubted(scene, now, worths, time, each, way)
    features[_DOUBT] = _signed_log(doubted / (usual * epoch_s))
    features[_UTILIZATION] = min(1.0, scene.busy[each] * scene.tokens[now.instant, 0, each])
    features[_IMBALANCE] = imbalance(scene, scene.load[now.instant, 0], each)
    features[_WEAK] = weak_share(scene, scene.bandwidth[now.instant, 0], each)
    met = scene.met[now.instant, each] - (scene.met[now.instant, runs] if runs >= 0 else 0.0)
    features[_ROBUST] = min(TAIL, max(-TAIL, met))
    features[_AHEAD] = max(-LEAST_AHEAD, _signed_log(_followed(scene, now, how, each, gave) / (usual * epoch_s)))


@kernel(lean=True)
def _followed(scene, now, how, each, gave):  # type: ignore[no-untyped-def]
    """What the option gives if the best sequence of moves follows, less what keeping gives. A lever can be taken back,
    so it counts for the next epochs only; a start is held against the best one."""
    ahead, place = scene.ahead[now.outlook], scene.place[each]
    if now.running < 0:
        best = -np.inf
        for other in range(len(scene.place)):
            if scene.since[other] <= now.instant:
                best = max(best, ahead[scene.place[other], 2 * scene.place[other]])
        return ahead[place, 2 * place] - best
    if how == KEEP:
        return 0.0
    if how == SWITCH:
        return gave[0]
    if how == CANCEL:
        return gave[2]
    return ahead[scene.place[now.running], 2 * place + (0 if how == STOP else 1)]


@kernel(lean=True)
def _signed_log(value):  # type: ignore[no-untyped-def]
    return np.log1p(value) if value >= 0.0 else -np.log1p(-value)


@kernel(lean=True)
def _doubted(scene, now, worths, time, each, way):  # type: ignore[no-untyped-def]
    """Tokens that the option loses to keeping over the rest of the run if its links do a standard deviation worse.

    Links that both use do worse for both; the others of what runs do better. The deviation grows linearly between the
    last two horizons.
    """
    runs, instant = now.running, now.instant
    left = time.edges[-1]
    epochs = _grown(left) - _grown(min(left, way[1] / time.epoch_s))
    lost = (scene.low[instant, each] - scene.tokens[instant, -1, each]) * worths[each]
    if runs >= 0:
        all_bytes, both = 0.0, 0.0
        for link in range(scene.sent.shape[1]):
            all_bytes += scene.sent[runs, link]
            if scene.sent[each, link] > 0.0:
                both += scene.sent[runs, link]
        share = both / all_bytes if all_bytes > 0.0 else 1.0
        kept = share * scene.low[instant, runs] + (1.0 - share) * scene.high[instant, runs]
        lost -= (kept - scene.tokens[instant, -1, runs]) * worths[runs]
    return lost * epochs * time.epoch_s


@kernel(lean=True)
def _grown(epochs):  # type: ignore[no-untyped-def]
    """Integral up to ``epochs`` of a weight that is 0 up to the last horizon but one and 1 from the last on."""
    early, late = AHEAD[-2], AHEAD[-1]
    if epochs <= early:
        return 0.0
    if epochs <= late:
        return (epochs - early) ** 2 / (2.0 * (late - early))
    return 0.5 * (late - early) + epochs - late


@kernel(lean=True)
def imbalance(scene, load, each):  # type: ignore[no-untyped-def]
    """(max - min) / mean of the compute times of the domains that a configuration uses; ``load`` (K,)."""
    most, least, total_s, count = 0.0, np.inf, 0.0, 0
    for domain in range(len(load)):
        if scene.layers[each, domain] > 0.0:
            seconds = scene.domain_busy[each, domain] * load[domain]
            most, least = max(most, seconds), min(least, seconds)
            total_s += seconds
            count += 1
    return (most - least) * count / total_s if total_s > 0.0 else 0.0


@kernel(lean=True)
def weak_share(scene, bandwidth, each):  # type: ignore[no-untyped-def]
    """Share of a configuration's traffic over links below the bandwidth floor; ``bandwidth`` (E,)."""
    all_bytes, weak = 0.0, 0.0
    for link in range(len(bandwidth)):
        sent = scene.sent[each, link]
        all_bytes += sent
        if bandwidth[link] < FLOOR_SHARE * scene.base[link]:
            weak += sent
    return weak / all_bytes if all_bytes > 0.0 else 0.0
