"""What a chain of domains would do, in closed form: quick enough to look one domain ahead before every choice.

The step of a pipeline that runs as far ahead as memory lets it (``planners.run_ahead``), m waves:

    T = (m - 1) max_k(slowest stage, border, trip_k / room_k) + round trip + most once per step + tied embeddings

``border`` is one wave on the slower direction of a border, ``trip_k`` the round trip of a wave from domain k to the end
and back, ``room_k`` the waves that a stage of k has memory for. Layouts are chosen from the last domain to the first,
each the one with the least T of its own. Played plans judge it; it orders choices, it never reports a step time.

Letters as in ``table``: K domains, R recipes, n domains of a chain. A *claim* is a domain's layers over what its GPUs'
share would be (1: in proportion).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.network.construction.layout_table import Arrays, LinkPaces
from hippo.planners.run_ahead import fitting_warm_up, least_warm_up

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

HALVINGS = 30
ROUNDED = 0.5
"""Waves that every border takes up because a stage runs ahead by whole ones."""
SLACKS = (1.0, 1.04, 1.1, 1.2)
"""Of the least pace: what it takes to run ahead at a little more may leave fewer layers elsewhere."""
LOOKED_AHEAD = 10  # recipes that are looked at with one more domain: the best of the chain as it is


class Buffers(NamedTuple):
    """Room for chains of all domains and one more, and for stages of one layer each: kernels make no arrays."""

    chain: Ints  # (K + 1,)
    claims: Floats  # (K + 1,)
    cuts: Ints  # (K + 2,)
    rows: Ints  # (K + 1,)
    trips: Floats  # (K + 1, 2)
    relayed: NDArray[np.bool_]  # (K, 2)
    load: Floats  # (K, K) seconds per byte on each link
    place: Ints  # (N,) of a stage's domain in the chain
    tried: Ints  # (N + 1,) cuts
    stages: Floats  # (6, N) see ``settle``


def buffers(table: Arrays) -> Buffers:
    """Room for chains of the table's domains."""
    size, layers = len(table.kind), len(table.work) - 1
    return Buffers(
        np.zeros(size + 1, np.int64),
        np.zeros(size + 1),
        np.zeros(size + 2, np.int64),
        np.zeros(size + 1, np.int64),
        np.zeros((size + 1, 2)),
        np.zeros((size, 2), np.bool_),
        np.zeros((size, size)),
        np.zeros(layers, np.int64),
        np.zeros(layers + 1, np.int64),
        np.zeros((6, layers)),
    )


@kernel(lean=True)
def shared_layers(table, chain, claims, count, cuts):  # type: ignore[no-untyped-def]
    """Fills ``cuts`` (n + 1,): layers in proportion to GPUs times claim, at least one each; False: too few layers."""
    layers = len(table.work) - 1
    if count > layers:
        return False
    total = 0.0
    for i in range(count):
        total += table.gpus[chain[i]] * claims[i]
    reached, cuts[0] = 0.0, 0
    for i in range(count):
        reached += table.gpus[chain[i]] * claims[i] / total
        at = cuts[i] + 1
        while at < layers and 0.5 * (table.work[at] + table.work[at + 1]) < reached:
            at += 1
        cuts[i + 1] = min(at, layers - (count - 1 - i))
    cuts[count] = layers
    return True


@kernel(lean=True)
def lies(table, row, start, stop, behind, slower):  # type: ignore[no-untyped-def]
    """(slowest stage, trip, room, once) of layers [start, stop) in a layout with ``behind`` stages after the domain."""
    q, x, y = min(table.stages[row], stop - start), table.timing[row], table.holding[row]
    held = stop - start
    fullest = np.ceil(held / q) / held
    seconds = (table.seconds[x, stop] - table.seconds[x, start]) * slower
    passing = 0.0
    for layer in range(start, stop):
        passing = max(passing, table.passing[x, layer])
    kept = (table.kept[y, stop] - table.kept[y, start]) * fullest + passing
    leaves = (table.leaves[x, stop] - table.leaves[x, start]) * fullest
    room = np.floor((table.usable_bytes - kept) / leaves)
    once = (table.once_s[y, stop] - table.once_s[y, start]) * fullest + table.once_fixed_s[y]
    return seconds * fullest, seconds + 2.0 * (q - 1) * table.hop_s[row], room, once


@kernel(lean=True)
def join(links, chain, count, relayed, load):  # type: ignore[no-untyped-def]
    """Fills ``relayed`` (n - 1, 2), which directions of each border go through a third domain; the seconds per byte of
    the link that carries most. ``load`` (K, K): a buffer.

    Relays load two links, perhaps those of other borders: so pairs are relayed from some pace on, whichever is best.
    """
    best, chosen = np.inf, np.inf
    for at in range(-1, 2 * (count - 1)):
        a, b = (chain[at // 2], chain[at // 2 + 1]) if at >= 0 else (0, 0)
        ceiling = np.inf if at < 0 else links.pace[a, b] if at % 2 == 0 else links.pace[b, a]
        found = _busiest(links, chain, count, ceiling if at >= 0 else 1e300, load)
        if found < best * (1 - 1e-9):
            best, chosen = found, ceiling if at >= 0 else 1e300
    for i in range(count - 1):
        a, b = chain[i], chain[i + 1]
        relayed[i, 0] = links.via[a, b] >= 0 and links.pace[a, b] >= chosen
        relayed[i, 1] = links.via[b, a] >= 0 and links.pace[b, a] >= chosen
    return best if count > 1 else 0.0


@kernel(lean=True)
def _busiest(links, chain, count, ceiling, load):  # type: ignore[no-untyped-def]
    """Seconds per byte on the link that carries most, with pairs as slow as ``ceiling`` relayed."""
    load[:] = 0.0
    most = 0.0
    for i in range(count - 1):
        for way in range(2):
            a, b = (chain[i], chain[i + 1]) if way == 0 else (chain[i + 1], chain[i])
            k = links.via[a, b]
            if k >= 0 and links.pace[a, b] >= ceiling:
                load[a, k] += links.pace[a, k]
                load[k, b] += links.pace[k, b]
                most = max(most, max(load[a, k], load[k, b]))
            else:
                load[a, b] += links.pace[a, b]
                most = max(most, load[a, b])
    return most


@kernel(lean=True)
def crossing(links, a, b, relayed):  # type: ignore[no-untyped-def]
    """(seconds per byte, latency) of a message from a to b; a relay takes both links in turn."""
    if not relayed:
        return links.pace[a, b], links.latency_s[a, b]
    k = links.via[a, b]
    return max(links.pace[a, k], links.pace[k, b]), links.latency_s[a, k] + links.latency_s[k, b]


@kernel(lean=True)
def round_trips(table, links, chain, count, room):  # type: ignore[no-untyped-def]
    """Fills ``room.trips`` (n, 2): seconds per byte and latency, there and back, of the border behind each domain, and
    ``room.relayed`` (``join``); returns the seconds per byte of the busiest link, and the seconds in which both ends
    agree on tied embeddings."""
    trips, relayed = room.trips, room.relayed
    busiest = join(links, chain, count, relayed, room.load)
    trips[:count] = 0.0
    for i in range(count - 1):
        there, onward = crossing(links, chain[i], chain[i + 1], relayed[i, 0])
        back, home = crossing(links, chain[i + 1], chain[i], relayed[i, 1])
        trips[i, 0], trips[i, 1] = there + back, onward + home
    if table.tied_bytes == 0.0 or count == 1:
        return busiest, 0.0
    a, b = chain[0], chain[count - 1]
    there, onward = crossing(links, a, b, links.via[a, b] >= 0)
    back, home = crossing(links, b, a, links.via[b, a] >= 0)
    return busiest, table.tied_bytes * max(there, back) + 2.0 * max(onward, home)


@kernel(lean=True)
def weigh(table, slower, chain, cuts, count, borders, recipe, rows):  # type: ignore[no-untyped-def]
    """T of a chain under a recipe; ``rows`` (n,) become the layouts. inf: it does not fit. ``borders``: what
    ``round_trips`` returns and fills."""
    busiest, tail, trips = borders
    wave = table.wave[recipe]
    waves = table.batch / wave
    wave_bytes = wave * table.border_bytes
    pace, trip, once, behind = wave_bytes * busiest, 0.0, 0.0, 0
    for i in range(count - 1, -1, -1):
        domain = chain[i]
        trip += wave_bytes * trips[i, 0] + trips[i, 1]
        kind = table.kind[domain]
        best, best_pace, best_trip, best_once = np.inf, 0.0, 0.0, 0.0
        for row in range(table.first[kind, recipe], table.last[kind, recipe]):
            if table.stages[row] > cuts[i + 1] - cuts[i]:
                continue
            slowest, way, room, spent = lies(table, row, cuts[i], cuts[i + 1], behind, slower[domain])
            if room < 1:
                continue
            spare = max(room - ROUNDED * (count - 1 - i), 0.5)
            own = max(pace, max(slowest, (trip + way) / min(spare, waves)))
            value = (waves - 1) * own + trip + way + max(once, spent)
            if value < best:
                best, best_pace, best_trip, best_once, rows[i] = value, own, trip + way, max(once, spent), row
        if best == np.inf:
            return np.inf
        pace, trip, once = best_pace, best_trip, best_once
        behind += table.stages[rows[i]]
    return (waves - 1) * pace + trip + once + tail


@kernel(lean=True)
def weigh_recipes(table, links, slower, chain, claims, count, room, found, rows):  # type: ignore[no-untyped-def]
    """Fills ``found`` (R,) with T under every recipe and ``rows`` (R, n) with the layouts."""
    found[:] = np.inf
    busiest, tail = round_trips(table, links, chain, count, room)
    if busiest + tail < np.inf and shared_layers(table, chain, claims, count, room.cuts):
        for recipe in range(len(table.wave)):
            found[recipe] = weigh(
                table, slower, chain, room.cuts, count, (busiest, tail, room.trips), recipe, rows[recipe]
            )


@kernel(lean=True)
def look_ahead(table, links, slower, chain, claims, count, recipes, room, found):  # type: ignore[no-untyped-def]
    """Fills ``found`` (K, 2) with the least T over ``recipes`` with each domain added in proportion, behind the chain
    and before it; inf: cannot."""
    size = len(table.kind)
    longer, claimed, cuts = room.chain, room.claims, room.cuts
    found[:] = np.inf
    for domain in range(size):
        used = False
        for i in range(count):
            used = used or chain[i] == domain
        for end in range(0 if used else 2 if count else 1):
            for i in range(count):
                longer[i + end], claimed[i + end] = chain[i], claims[i]
            at = 0 if end else count
            longer[at], claimed[at] = domain, 1.0
            if not shared_layers(table, longer, claimed, count + 1, cuts):
                continue
            busiest, tail = round_trips(table, links, longer, count + 1, room)
            if busiest + tail < np.inf:
                for recipe in recipes:
                    borders = (busiest, tail, room.trips)
                    value = weigh(table, slower, longer, cuts, count + 1, borders, recipe, room.rows)
                    found[domain, end] = min(found[domain, end], value)


@kernel(lean=True)
def weigh_layouts(table, links, slower, chain, cuts, rows, wave, place, low, high, room, found):  # type: ignore[no-untyped-def]
    """Fills ``found`` (high - low, 6) for the layouts ``low..high`` of the domain at ``place`` of a chain whose others
    lie as in ``rows``: T, slowest stage, trip, room, once, pace that the rest of the chain allows."""
    waves, wave_bytes, trips = table.batch / wave, wave * table.border_bytes, room.trips
    busiest, tail = round_trips(table, links, chain, len(chain), room)
    rest_pace = wave_bytes * busiest
    rest_trip, rest_once, after = 0.0, 0.0, 0.0
    for i in range(len(chain) - 1, -1, -1):
        border = wave_bytes * trips[i, 0] + trips[i, 1]
        rest_trip += border
        after += border if i >= place else 0.0
        if i != place:
            slowest, way, _, spent = lies(table, rows[i], cuts[i], cuts[i + 1], 0, slower[chain[i]])
            rest_pace, rest_trip, rest_once = max(rest_pace, slowest), rest_trip + way, max(rest_once, spent)
            after += way if i > place else 0.0
    for row in range(low, high):
        slowest, way, spare, spent = lies(table, row, cuts[place], cuts[place + 1], 0, slower[chain[place]])
        own = max(slowest, (after + way) / spare) if spare >= 1 else np.inf
        value = (waves - 1) * max(own, rest_pace) + rest_trip + way + max(rest_once, spent) + tail
        at = row - low
        found[at, 0], found[at, 1], found[at, 2] = value, slowest, way
        found[at, 3], found[at, 4], found[at, 5] = spare, spent, rest_pace


@kernel(lean=True)
def settle(table, links, slower, chain, claims, rows, wave, room, cuts):  # type: ignore[no-untyped-def]
    """Fills ``cuts`` (p + 1,) of all stages such that the slowest, each over its domain's claim, is as fast as it can
    be and each fits in memory with the waves it keeps; False: none fit.

    Filling each stage as far as time and memory allow is optimal for a bound on the slowest; the bound is halved. First
    stages keep what 1F1B does; then what it takes to run ahead at (nearly) the pace so found. The least pace counts.
    """
    layers, waves = len(table.work) - 1, table.batch // wave
    stages = len(cuts) - 1
    if stages > layers:
        return False
    place, tried, trips = room.place[:stages], room.tried[: stages + 1], room.trips
    border, seconds, live = room.stages[0, :stages], room.stages[1, :stages], room.stages[2, :stages]
    warm_up, own, spare = room.stages[3, :stages], room.stages[4, :stages], room.stages[5, :stages]
    busiest, _ = round_trips(table, links, chain, len(chain), room)
    wave_bytes, stage = wave * table.border_bytes, 0
    for i in range(len(chain)):
        for inner in range(table.stages[rows[i]]):
            place[stage], border[stage] = i, 2.0 * table.hop_s[rows[i]]
            if inner == 0:
                border[stage] = wave_bytes * trips[i - 1, 0] + trips[i - 1, 1] if i > 0 else 0.0
            stage += 1
    for s in range(stages):
        live[s] = min(waves, stages - s)
    if not _halve(table, slower, chain, claims, rows, place, live, cuts):
        return False
    least = wave_bytes * busiest
    best = _pace(table, slower, chain, rows, place, waves, border, cuts, least, seconds, warm_up, spare)
    for s in range(stages):
        least, own[s] = max(least, seconds[s]), seconds[s]
    for slack in SLACKS:
        if least * slack >= best * (1 - 1e-9):
            break
        least_warm_up(own, border, least * slack, float(waves), live)
        for s in range(stages):
            live[s] = max(live[s], min(waves, stages - s))
        if _halve(table, slower, chain, claims, rows, place, live, tried):
            floor = wave_bytes * busiest
            found = _pace(table, slower, chain, rows, place, waves, border, tried, floor, seconds, warm_up, spare)
            if found < best * (1 - 1e-9):
                best = found
                for s in range(stages + 1):
                    cuts[s] = tried[s]
    return True


@kernel(lean=True)
def _pace(table, slower, chain, rows, place, waves, border, cuts, least, seconds, warm_up, room):  # type: ignore[no-untyped-def]
    """Seconds per wave with these cuts and the room they leave, ``least`` or more; fills ``seconds``, ``room`` (p,)."""
    lowest = float(waves)
    for s in range(len(place)):
        i, start, stop = place[s], cuts[s], cuts[s + 1]
        x, y = table.timing[rows[i]], table.holding[rows[i]]
        seconds[s], passing = (table.seconds[x, stop] - table.seconds[x, start]) * slower[chain[i]], 0.0
        for layer in range(start, stop):
            passing = max(passing, table.passing[x, layer])
        free = table.usable_bytes - (table.kept[y, stop] - table.kept[y, start]) - passing
        lowest = min(lowest, np.floor(free / (table.leaves[x, stop] - table.leaves[x, start])))
        room[s], least = lowest, max(least, seconds[s])
    return fitting_warm_up(seconds, border, least, waves, room, warm_up)


@kernel(lean=True)
def _halve(table, slower, chain, claims, rows, place, live, cuts):  # type: ignore[no-untyped-def]
    """Cuts of the least bound on the slowest stage with ``live`` (p,) waves kept; False: none fit."""
    low, high = 0.0, 0.0
    for i in range(len(chain)):
        high = max(high, table.seconds[table.timing[rows[i]], -1] * slower[chain[i]] / claims[i])
    if not _fill(table, slower, chain, claims, rows, place, live, high, cuts):
        return False
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        if _fill(table, slower, chain, claims, rows, place, live, middle, cuts):
            high = middle
        else:
            low = middle
    return _fill(table, slower, chain, claims, rows, place, live, high, cuts)


@kernel(lean=True)
def _fill(table, slower, chain, claims, rows, place, live, bound, cuts):  # type: ignore[no-untyped-def]
    """Whether stages filled one after the other reach the last layer within ``bound``."""
    layers, stages = len(table.work) - 1, len(place)
    at = cuts[0] = 0
    for stage in range(stages):
        i = place[stage]
        x, y = table.timing[rows[i]], table.holding[rows[i]]
        factor = slower[chain[i]] / claims[i]
        start, passing, most = at, 0.0, layers - (stages - 1 - stage)
        while at < most:
            passing = max(passing, table.passing[x, at])
            peak = table.kept[y, at + 1] - table.kept[y, start] + passing
            peak += live[stage] * (table.leaves[x, at + 1] - table.leaves[x, start])
            if (table.seconds[x, at + 1] - table.seconds[x, start]) * factor > bound or peak > table.usable_bytes:
                break
            at += 1
        if at == start:
            return False
        cuts[stage + 1] = at
    return at == layers


def weighed(table: Arrays, links: LinkPaces, slower: Floats, chain: Ints, claims: Floats) -> tuple[Floats, Ints]:
    """T (R,) of a chain (n,) with its claims (n,) under every recipe, and the layouts (R, n) that it takes."""
    found, rows = np.empty(len(table.wave)), np.zeros((len(table.wave), len(chain)), np.int64)
    weigh_recipes(table, links, slower, chain, claims, len(chain), buffers(table), found, rows)
    return found, rows


def ahead(table: Arrays, links: LinkPaces, slower: Floats, chain: Ints, claims: Floats, now: Floats) -> Floats:
    """Least T (K, 2) with each domain added behind and before the chain, over the recipes best for the chain as it is
    (``now``, (R,))."""
    recipes = np.arange(len(now)) if len(chain) == 0 else np.argsort(now, kind="stable")[:LOOKED_AHEAD]
    found = np.empty((len(table.kind), 2))
    look_ahead(table, links, slower, chain, claims, len(chain), recipes, buffers(table), found)
    return found
