"""At most 24 answers worth choosing among, with the figures that speak for each; one kernel in use and in training.

To keep stands first. Then come the live levers of the place that do most soon, and the places that promise most once
the price of stopping for them is paid, each by both ways to move; while a move is under way, to give it up; at the
start, the places to begin at. What cannot arrive is left out. Live levers are free, so a place promises, at every
horizon, what its best configuration does then. Worths follow ``hippo.network.rules.worth``, with the preferences'
share of utilisation and of egress in every rate.

Letters: M options, C configurations, P places, H horizons, G cells of time ahead, E links, K domains, V windows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.dynamics.forecast import HORIZONS
from hippo.network.observation.features import MOST_OPTIONS, OPTION_FEATURES, OPTIONS
from hippo.network.observation.scene import (
    EPOCH_S,
    LEAST_RATE,
    RESTART_S,
    SHADOW_SHARE,
    TAIL,
    TOKENS_PER_STEP,
    USD_PER_TOKEN,
    USUAL,
)
from hippo.network.rules.move import STILL, STOPPED
from hippo.network.rules.view import How
from hippo.network.rules.worth import EDGES, Ahead, between, stop, stream, total

KEEP, SWITCH, STOP, BACKGROUND, CANCEL = range(5)
HOWS = (How.KEEP, How.SWITCH, How.STOP, How.BACKGROUND, How.CANCEL)
"""What the numbers of ``OptionTable.how`` mean."""

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


class RunState(NamedTuple):
    """Where a run stands."""

    instant: int  # of the scene
    epochs_left: float  # the one that begins now included
    running: int  # -1: nothing yet
    target: int  # of the move under way, or -1
    phase: int  # network.rules.move
    arrived: float  # share of the move
    quiet: float  # epochs since the last decision that changed something
    outlook: int  # row of ``Scene.ahead``: of this instant, under the preferences of the run


class OptionTable(NamedTuple):
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


def empty_options() -> OptionTable:
    """Room for the options of one state."""
    return OptionTable(
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


MOST_LEVERS = 7
WINDOWS = (4.0, 16.0, 64.0)


@kernel
def find_options(scene, now, weights, found):  # type: ignore[no-untyped-def]
    """Fills ``found``; returns how many options there are (the first, to keep, is masked where nothing runs yet)."""
    found.how[:] = KEEP
    found.target[:] = -1
    found.mask[:] = False
    found.features[:] = 0.0
    worths = np.empty(len(scene.usd))
    per_usd = gains_of_tokens(scene.usd, scene.busy, scene.scalars, weights, worths)
    time = _time(scene, now)
    if now.running < 0:
        return _starts(scene, now, worths, time, found)
    if now.phase != STILL:
        return _moving(scene, now, per_usd, worths, time, found)
    return _still(scene, now, per_usd, worths, time, found)


@kernel(lean=True)
def gains_of_tokens(usd, busy, scalars, weights, found):  # type: ignore[no-untyped-def]
    """Fills ``found`` (C,): what a token of each configuration counts, its egress off, its utilisation added, by the
    preferences; returns the tokens that a USD of egress counts. ``usd``, ``busy``, ``scalars``: of the scene."""
    price = scalars[USD_PER_TOKEN]
    per_usd = (weights[0] + weights[2]) / price if price > 0.0 else 0.0
    for each in range(len(found)):
        found[each] = weights[0] - per_usd * usd[each] + weights[1] * scalars[USUAL] * busy[each]
    return per_usd


@kernel
def _time(scene, now):  # type: ignore[no-untyped-def]
    count = 1
    while count < len(EDGES) and EDGES[count] < now.epochs_left:
        count += 1
    edges, ends = np.empty(count + 1), np.full(len(WINDOWS) + 1, now.epochs_left)
    edges[:count], edges[count] = EDGES[:count], now.epochs_left
    for window in range(len(WINDOWS)):
        ends[window] = min(WINDOWS[window], now.epochs_left)
    low, high, share = np.empty(count, np.int64), np.empty(count, np.int64), np.empty(count)
    bandwidth = scene.bandwidth[now.instant]
    carried = np.zeros((count + 1, bandwidth.shape[1]))
    for cell in range(count):
        low[cell], high[cell], share[cell] = between(AHEAD, edges[cell], edges[cell + 1])
        seconds = (edges[cell + 1] - edges[cell]) * scene.scalars[EPOCH_S]
        early, late = bandwidth[low[cell]], bandwidth[high[cell]]
        for link in range(bandwidth.shape[1]):
            mean = (1.0 - share[cell]) * early[link] + share[cell] * late[link]
            carried[cell + 1, link] = carried[cell, link] + seconds * mean
    return Time(edges, low, high, share, carried, ends, scene.scalars[EPOCH_S])


@kernel
def _summed(scene, time, rates):  # type: ignore[no-untyped-def]
    """Tokens up to the end of each cell, (G + 1,), of rates at the horizons (H,)."""
    found = np.zeros(len(time.edges))
    for cell in range(len(found) - 1):
        mean = (1.0 - time.share[cell]) * rates[time.low[cell]] + time.share[cell] * rates[time.high[cell]]
        found[cell + 1] = found[cell] + (time.edges[cell + 1] - time.edges[cell]) * scene.scalars[EPOCH_S] * mean
    return found


@kernel(lean=True)
def _of_place(scene, now, worths, place, rates):  # type: ignore[no-untyped-def]
    """Fills ``rates`` (H,) with the best of the place at each horizon; returns the configuration that is best soon
    (-1: none of the place is known yet)."""
    best, most = -1, -np.inf
    rates[:] = -np.inf
    for at in range(scene.first[place], scene.first[place + 1]):
        each = scene.member[at]
        if scene.since[each] > now.instant:
            continue
        soon = 0.0
        for horizon in range(len(rates)):
            rate = scene.tokens[now.instant, horizon, each] * worths[each]
            rates[horizon] = max(rates[horizon], rate)
            if horizon < 3:
                soon += rate
        if soon > most:
            best, most = each, soon
    return best


@kernel
def _of_one(scene, now, worths, each):  # type: ignore[no-untyped-def]
    """Rates of one configuration at the horizons, (H,)."""
    rates = np.empty(len(AHEAD))
    for horizon in range(len(rates)):
        rates[horizon] = scene.tokens[now.instant, horizon, each] * worths[each]
    return rates


@kernel(lean=True)
def _take_best(scores):  # type: ignore[no-untyped-def]
    """The place of the highest score (ties: the first), which is then struck out."""
    best = 0
    for each in range(1, len(scores)):
        if scores[each] > scores[best]:
            best = each
    scores[best] = -np.inf
    return best


@kernel
def _starts(scene, now, worths, time, found):  # type: ignore[no-untyped-def]
    """Where the run may begin: the places that promise most over all of it."""
    places = len(scene.first) - 1
    best, promise = np.empty(places, np.int64), np.full(places, -np.inf)
    rates, zero, way = np.empty(len(AHEAD)), np.zeros(len(time.edges)), np.zeros(3)
    for place in range(places):
        best[place] = _of_place(scene, now, worths, place, rates)
        if best[place] >= 0:
            promise[place] = _summed(scene, time, rates)[-1]
    count = 1
    for _ in range(min(places, MOST_OPTIONS - 1)):
        if promise.max() == -np.inf:
            break
        place = _take_best(promise)
        _of_place(scene, now, worths, place, rates)
        gave = _gains(time, zero, _summed(scene, time, rates), way, 0.0)
        describe(scene, now, worths, time, found, put(found, count, SWITCH, best[place]), way, gave)
        count += 1
    return count


@kernel
def _moving(scene, now, per_usd, worths, time, found):  # type: ignore[no-untyped-def]
    """Go on with the move under way, or give it up."""
    look = _look(scene, now)
    source, destination = scene.place[now.running], scene.place[now.target]
    needed, way = scene.move_bytes[source, destination].astype(np.float64), np.zeros(3)
    if now.phase == STOPPED:
        stop(look, time.edges, time.carried, needed * (1.0 - now.arrived), 0.0, way, 1.0)
    else:
        stream(look, time.edges, time.carried, 0, destination + 1, needed * now.arrived, way, 0.0)
    rates = np.empty(len(AHEAD))
    _of_place(scene, now, worths, destination, rates)
    after = _summed(scene, time, rates)
    _of_place(scene, now, worths, source, rates)
    before = _summed(scene, time, rates)
    if way[1] == np.inf:
        way[0], way[2] = (now.epochs_left * scene.scalars[EPOCH_S] if now.phase == STOPPED else 0.0), 0.0
        way[1] = now.epochs_left * scene.scalars[EPOCH_S]
    going = _gains(time, before, after, way, per_usd)
    nothing, none = np.zeros(len(time.ends)), np.zeros(3)
    describe(scene, now, worths, time, found, put(found, 0, KEEP, now.target), way, nothing)
    describe(scene, now, worths, time, found, put(found, 1, CANCEL, now.running), none, -going)
    found.target[0] = found.target[1] = -1
    return 2


@kernel
def _still(scene, now, per_usd, worths, time, found):  # type: ignore[no-untyped-def]
    """Keep, levers, moves."""
    nothing, none = np.zeros(len(time.ends)), np.zeros(3)
    describe(scene, now, worths, time, found, put(found, 0, KEEP, now.running), none, nothing)
    found.target[0] = -1
    count = _levers(scene, now, worths, time, found)
    return _moves(scene, now, per_usd, worths, time, found, count)


@kernel
def _levers(scene, now, worths, time, found):  # type: ignore[no-untyped-def]
    """Other configurations of the place: those that do most soon."""
    here = scene.place[now.running]
    members = scene.member[scene.first[here] : scene.first[here + 1]]
    soon = np.full(len(members), -np.inf)
    for at in range(len(members)):
        if members[at] != now.running and scene.since[members[at]] <= now.instant:
            soon[at] = 0.0
            for horizon in range(3):
                soon[at] += scene.tokens[now.instant, horizon, members[at]] * worths[members[at]]
    count, none = 1, np.zeros(3)
    before = _summed(scene, time, _of_one(scene, now, worths, now.running))
    for _ in range(min(len(members) - 1, MOST_LEVERS)):
        if soon.max() == -np.inf:
            break
        at = _take_best(soon)
        after = _summed(scene, time, _of_one(scene, now, worths, members[at]))
        gains = _gains(time, before, after, none, 0.0)
        describe(scene, now, worths, time, found, put(found, count, SWITCH, members[at]), none, gains)
        count += 1
    return count


@kernel
def _moves(scene, now, per_usd, worths, time, found, count):  # type: ignore[no-untyped-def]
    """Other places: those that are worth most over any window, by the quicker look at stopping for them."""
    places, here, look = len(scene.first) - 1, scene.place[now.running], _look(scene, now)
    rates, needed = np.empty(len(AHEAD)), np.empty(scene.move_bytes.shape[2])
    _of_place(scene, now, worths, here, rates)
    before, zero = _summed(scene, time, rates), np.zeros(scene.move_bytes.shape[2])
    best, promise = np.zeros(places, np.int64), np.full(places, -np.inf)
    after, ways, gave = np.zeros((places, len(time.edges))), np.zeros((places, 3)), np.zeros((places, len(time.ends)))
    for place in range(places):
        if place == here:
            continue
        best[place] = _of_place(scene, now, worths, place, rates)
        if best[place] < 0:
            continue
        needed[:] = scene.move_bytes[here, place]
        stop(look, time.edges, time.carried, needed, 0.0, ways[place], 1.0)
        if ways[place, 1] < np.inf:
            after[place] = _summed(scene, time, rates)
            gave[place] = _gains(time, before, after[place], ways[place], per_usd)
            promise[place] = gave[place, 1:].max()
    way = np.zeros(3)
    for _ in range((MOST_OPTIONS - count) // 2):
        if promise.max() == -np.inf:
            break
        place = _take_best(promise)
        describe(scene, now, worths, time, found, put(found, count, STOP, best[place]), ways[place], gave[place])
        count += 1
        stream(look, time.edges, time.carried, 0, place + 1, zero, way, 0.0)
        if way[1] < np.inf and scene.move_bytes[here, place].max() > 0.0:  # a lever carries nothing: the stop is all
            streamed = _gains(time, before, after[place], way, per_usd)
            describe(scene, now, worths, time, found, put(found, count, BACKGROUND, best[place]), way, streamed)
            count += 1
    return count


@kernel
def _look(scene, now):  # type: ignore[no-untyped-def]
    """The links ahead as ``worth`` looks at them: column 0 is what runs, 1 + p is place p."""
    places = len(scene.first) - 1
    tokens, place = np.zeros((len(AHEAD), 1)), np.zeros(places + 1, np.int64)
    for horizon in range(len(AHEAD)):
        tokens[horizon, 0] = scene.tokens[now.instant, horizon, now.running]
    place[0] = scene.place[now.running]
    for each in range(places):
        place[each + 1] = each
    return Ahead(
        scene.scalars[EPOCH_S],
        now.epochs_left,
        scene.scalars[RESTART_S],
        scene.scalars[SHADOW_SHARE],
        scene.scalars[TOKENS_PER_STEP],
        scene.scalars[USD_PER_TOKEN],
        AHEAD,
        tokens,
        tokens,
        scene.bandwidth[now.instant],
        scene.sent[now.running : now.running + 1],
        scene.usd_per_byte,
        place,
        scene.move_bytes,
    )


@kernel
def _gains(time, before, after, way, per_usd):  # type: ignore[no-untyped-def]
    """What a change gives over each window, (V,), less going on as ``before`` (G + 1,)."""
    found = np.empty(len(time.ends))
    end = min(way[1] / time.epoch_s, time.edges[-1])
    begin = max(0.0, end - way[0] / time.epoch_s)
    arrived = total(time.edges, after, end)
    for window in range(len(found)):
        until = time.ends[window]
        trained = total(time.edges, before, min(begin, until))
        if until > end:
            trained += total(time.edges, after, until) - arrived
        paid = 1.0 if until >= end or end <= 0.0 else until / end
        found[window] = trained - way[2] * per_usd * paid - total(time.edges, before, until)
    return found
