"""At most 24 answers worth choosing among, with the figures that speak for each; one kernel in use and in training.

To keep stands first. Then come the levers of the place that do most soon, and the places that promise most once the
price of stopping for them is paid, each by both ways to move; while a move is under way, to give it up; at the start,
the places to begin at. What cannot arrive is left out. Levers are free, so a place promises, at every horizon, what its
best configuration does then. Worths follow ``decide.online.worth``, with the preferences' share of utilisation and of
egress in every rate.

Letters: M options, C configurations, P places, H horizons, G cells of time ahead, E links, V windows.
"""

from __future__ import annotations

import numpy as np

from hippo.compiling import kernel
from hippo.network.env.describe import AHEAD, BACKGROUND, CANCEL, KEEP, STOP, SWITCH, Time, describe, put
from hippo.network.env.scene import EPOCH_S, RESTART_S, SHADOW_SHARE, TOKENS_PER_STEP, USD_PER_TOKEN, USUAL
from hippo.network.env.spaces import MOST_OPTIONS
from hippo.network.moving import STILL, STOPPED
from hippo.network.rules.worth import EDGES, Ahead, between, stop, stream, total

MOST_LEVERS = 7
WINDOWS = (4.0, 16.0, 64.0)


@kernel
def find_options(scene, now, weights, found):  # type: ignore[no-untyped-def]
    """Fills ``found``; returns how many options there are (the first, to keep, is masked where nothing runs yet)."""
    found.how[:] = KEEP
    found.target[:] = -1
    found.mask[:] = False
    found.features[:] = 0.0
    worths = gains_of_tokens(scene, weights)
    time = _time(scene, now)
    if now.running < 0:
        return _starts(scene, now, worths, time, found)
    if now.phase != STILL:
        return _moving(scene, now, weights, worths, time, found)
    return _still(scene, now, weights, worths, time, found)


@kernel
def gains_of_tokens(scene, weights):  # type: ignore[no-untyped-def]
    """What a token of each configuration counts, (C,): its egress off, its utilisation added, by the preferences."""
    found = np.empty(len(scene.usd))
    per_usd = tokens_of_usd(scene, weights)
    for each in range(len(found)):
        found[each] = weights[0] - per_usd * scene.usd[each] + weights[1] * scene.scalars[USUAL] * scene.busy[each]
    return found


@kernel(lean=True)
def tokens_of_usd(scene, weights):  # type: ignore[no-untyped-def]
    """Tokens that a USD of egress counts."""
    price = scene.scalars[USD_PER_TOKEN]
    return (weights[0] + weights[2]) / price if price > 0.0 else 0.0


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
def _moving(scene, now, weights, worths, time, found):  # type: ignore[no-untyped-def]
    """Go on with the move under way, or give it up."""
    look = _look(scene, now)
    source, destination = scene.place[now.running], scene.place[now.target]
    needed, way = scene.move_bytes[source, destination].astype(np.float64), np.zeros(3)
    if now.phase == STOPPED:
        stop(look, time.edges, time.carried, needed * (1.0 - now.arrived), 0.0, way)
    else:
        stream(look, time.edges, time.carried, 0, destination + 1, needed * now.arrived, way)
    rates = np.empty(len(AHEAD))
    _of_place(scene, now, worths, destination, rates)
    after = _summed(scene, time, rates)
    _of_place(scene, now, worths, source, rates)
    before = _summed(scene, time, rates)
    if way[1] == np.inf:
        way[0], way[2] = (now.epochs_left * scene.scalars[EPOCH_S] if now.phase == STOPPED else 0.0), 0.0
        way[1] = now.epochs_left * scene.scalars[EPOCH_S]
    going = _gains(time, before, after, way, tokens_of_usd(scene, weights))
    nothing, none = np.zeros(len(time.ends)), np.zeros(3)
    describe(scene, now, worths, time, found, put(found, 0, KEEP, now.target), way, nothing)
    describe(scene, now, worths, time, found, put(found, 1, CANCEL, now.running), none, -going)
    found.target[0] = found.target[1] = -1
    return 2


@kernel
def _still(scene, now, weights, worths, time, found):  # type: ignore[no-untyped-def]
    """Keep, levers, moves."""
    nothing, none = np.zeros(len(time.ends)), np.zeros(3)
    describe(scene, now, worths, time, found, put(found, 0, KEEP, now.running), none, nothing)
    found.target[0] = -1
    count = _levers(scene, now, worths, time, found)
    return _moves(scene, now, weights, worths, time, found, count)


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
def _moves(scene, now, weights, worths, time, found, count):  # type: ignore[no-untyped-def]
    """Other places: those that are worth most over any window, by the quicker look at stopping for them."""
    places, here, look = len(scene.first) - 1, scene.place[now.running], _look(scene, now)
    per_usd, rates = tokens_of_usd(scene, weights), np.empty(len(AHEAD))
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
        stop(look, time.edges, time.carried, scene.move_bytes[here, place], 0.0, ways[place])
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
        stream(look, time.edges, time.carried, 0, place + 1, zero, way)
        if way[1] < np.inf:
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
