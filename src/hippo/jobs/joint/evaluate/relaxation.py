"""What no scheduler can undercut, whatever it knows: jobs as fluids.

The relaxed world forgets all but this: a job does no work before it comes, and on g GPUs no more work a second than the
upper concave hull, over sizes and 0, of the best that any offer with room on the site does at what links carry at best
in that stretch of time (of p parts: over p - 1 links, each of another pair of domains); and jobs hold no more devices
together than there are, less those of broken nodes and of other tenants, which hindsight knows. Devices are shared in
any fractions and at no cost; links are shared by nobody; data, state and restarts take no time.

With a price on device-seconds in each stretch of time instead of the limit, each job for itself takes the cheapest way
to its end: what all pay, less what the prices earn from the devices that there are, is a lower bound *whatever the
prices are* (Lagrange; as each job counts by its own end, the bound is that of the mixture of whole schedules of each
job, Dantzig and Wolfe, 1960, above the one by mean busy times of Goemans et al., Single machine scheduling with release
dates, 2002). Prices are raised where devices are wanted more than there are (volume algorithm, Barahona and Anbil,
2000). No solver's tolerance is in it.

Letters: n jobs, C classes of jobs with equal hulls, T stretches of time, S segments of a hull, O offers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.jobs.engine.running import time_to_failure
from hippo.jobs.joint.env import WorldScene

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

STRETCHES = 400
"""Of time, beside those that arrivals part."""
ROUNDS, PATIENCE = 200, 40
"""Of prices at most, and without a gain of ``GAIN``."""
GAIN = 1e-5


class FluidWorld(NamedTuple):
    """The relaxed world; the last stretch never ends."""

    begin_s: Floats  # (T,)
    length_s: Floats  # (T,)
    devices: Floats  # (T,)
    first: Ints  # (n,) stretch in which a job comes
    arrival_s: Floats  # (n,)
    work: Floats  # (n,)
    row: Ints  # (n,) its class, -1: it can never run
    width: Floats  # (C, T, S) GPUs of each segment; 0: no such segment
    slope: Floats  # (C, T, S) work per second and GPU, falling from segment to segment


class ByPrice(NamedTuple):
    """Room for work: what a job takes so far, the cheapest first."""

    unit: Floats  # what a second of work costs
    amount: Floats  # work
    device_s: Floats  # a second of work takes
    at: Ints  # stretch


@dataclass(frozen=True)
class FluidBound:
    """What no scheduler reaches in a world: means of the jobs, as ``suite`` tells them; jobs that never can run count
    nothing."""

    priced_s: float
    mean_completion_s: float
    goodput: float  # at most
    never: int  # jobs that never can run


# ------------------------------------------------------------------------------------------------------- relaxed world
def fluid(scene: WorldScene, stretches: int = STRETCHES) -> FluidWorld:
    """The relaxed world of a scene."""
    work, row = scene.workload, scene.offers.rows(scene.workload)
    device_s, first_s = scene.offers.device_s(work), float(work.arrival_s[0])
    longest_s = float((work.duration_s / scene.offers.quickest(work)).max())
    until_s = float(work.arrival_s[-1]) + 2.0 * float(device_s.sum()) / scene.site.devices + longest_s
    begin_s = np.unique(np.concatenate([np.linspace(first_s, until_s, stretches), work.arrival_s]))
    length_s = np.append(np.diff(begin_s), 1e3 * (until_s + float(device_s.sum())))

    # classes: elastic jobs of one kind between the same sizes, gangs of one size
    kinds = np.stack([row, np.where(row < 0, work.devices, work.least), np.where(row < 0, 0, work.most)], axis=1)
    classes, of = np.unique(kinds, axis=0, return_inverse=True)
    rates, state = _best_rates(scene, begin_s)
    sizes, speed = scene.offers.gpus.sum(axis=1), max(pool.speed for pool in scene.site.pools)
    hulls: list[list[list[tuple[float, float]]]] = []  # of each class, in each state of the links
    for kind, least, most in classes.tolist():
        if kind < 0:
            hulls.append([[(float(least), speed / least)]] * len(rates))
            continue
        may = np.flatnonzero((scene.offers.kind == kind) & (sizes >= least) & (sizes <= most))
        hulls.append([_hull(sizes[may], rate[may]) for rate in rates])
    segments = max(len(hull) for each in hulls for hull in each)
    table = np.zeros((2, len(classes), len(rates), max(1, segments)))
    for number, each in enumerate(hulls):
        for at, hull in enumerate(each):
            table[:, number, at, : len(hull)] = np.array(hull).reshape(-1, 2).T
    width, slope = np.ascontiguousarray(table[:, :, state])
    devices, most = _devices(scene, begin_s)
    width = np.diff(np.minimum(np.cumsum(width, axis=2), most[:, None]), axis=2, prepend=0.0)  # no job has more
    never = (width[:, :, 0] > 0).sum(axis=1) == 0
    return FluidWorld(
        begin_s,
        length_s,
        devices,
        np.searchsorted(begin_s, work.arrival_s),
        work.arrival_s,
        work.duration_s,
        np.where(never[of], -1, of).astype(np.int64),
        width,
        slope,
    )


def _hull(sizes: Ints, rates: Floats) -> list[tuple[float, float]]:
    """Segments (GPUs, work per second and GPU) of the upper concave hull of rates over sizes, and of 0 at 0."""
    found = [(0.0, 0.0)]
    for size, rate in sorted(zip(sizes.tolist(), rates.tolist(), strict=True)):
        if rate <= found[-1][1]:
            continue
        if size == found[-1][0]:
            found.pop()
        while len(found) > 1:
            (g1, v1), (g2, v2) = found[-2:]
            if (v2 - v1) * (size - g2) > (rate - v2) * (g2 - g1):
                break
            found.pop()
        found.append((size, rate))
    pairs = zip(found, found[1:], strict=False)
    return [(after[0] - before[0], (after[1] - before[1]) / (after[0] - before[0])) for before, after in pairs]


def _best_rates(scene: WorldScene, begin_s: Floats) -> tuple[Floats, Ints]:
    """(states, O) rates of all offers at what links carry at best, 0 where the site has no room for one; and which of
    them holds in each stretch (T,)."""
    site, offers = scene.site, scene.offers
    domains = np.array([sum(each.devices for each in site.pools if each.domain == name) for name in site.domains])
    room = np.zeros(offers.gpus.shape[1])
    room[: len(domains)] = np.sort(domains)[::-1][: len(room)]
    fits = (offers.gpus <= room).all(axis=1)
    if len(domains) < 2:
        return np.where(fits & (offers.parts == 1), offers.rate[:, 0, -1], 0.0)[None], np.zeros(len(begin_s), np.int64)
    here, there = np.triu_indices(len(domains), 1)
    if site.history is None:
        tables = np.array(site.bandwidth_bytes_per_s)[None]
        low = high = np.zeros(len(begin_s), np.int64)
    else:  # all states from the one that holds when a stretch begins to the last that begins in it
        tables, time_s = site.history.bandwidth_bytes_per_s, site.history.time_s
        low = np.maximum(np.searchsorted(time_s, begin_s, side="right") - 1, 0)
        high = np.append(low[1:], len(time_s) - 1)
    late = np.array(site.latency_s)[None] if site.history is None else site.history.latency_s
    late = np.broadcast_to(np.array(site.latency_s), tables.shape) if late is None else late
    spans = list(zip(low.tolist(), high.tolist(), strict=True))

    def best(tables: Floats) -> Floats:  # (T, pairs) the largest of each pair of domains in each stretch, largest first
        pairs = np.maximum(tables[:, here, there], tables[:, there, here])
        return -np.sort(-np.stack([pairs[first : last + 1].max(axis=0) for first, last in spans]), axis=1)

    states, state = np.unique(np.concatenate([best(tables), -best(-late)], axis=1), axis=0, return_inverse=True)
    hop = np.minimum(np.maximum(offers.parts - 2, 0), len(here) - 1)  # over so many better ones
    every = np.arange(len(offers))
    rates = []
    for each in states:
        carried, near = np.where(offers.parts > 1, each[hop], np.inf), each[len(here) + hop]
        at = offers.rate_at(every, np.maximum(carried, 1e-9), near)
        rates.append(np.where(fits & (carried > 0) & (offers.parts <= len(domains)), at, 0.0))
    return np.array(rates), state.reshape(-1).astype(np.int64)


def _devices(scene: WorldScene, begin_s: Floats) -> tuple[Floats, Floats]:
    """(T,) devices that neither are in a broken node nor belong to others, in the mean of each stretch and at most; all
    of them after ``begin_s`` ends."""
    site, rules, start_s, until_s = scene.site, scene.settings, float(begin_s[0]), float(begin_s[-1])
    sizes = np.concatenate([np.full(pool.nodes, pool.per_node) for pool in site.pools])
    held: list[list[tuple[float, int]]] = [[] for _ in sizes]  # (instant, devices of others from then on) of each node
    if scene.tenants is not None:
        for time_s, node, more in zip(*(each.tolist() for each in _columns(scene)), strict=True):
            before = held[node][-1][1] if held[node] else 0
            held[node].append((time_s, int(min(max(before + more, 0), sizes[node]))))
    changes: list[tuple[float, int]] = []  # (instant, devices more that are away)
    for node, size in enumerate(sizes.tolist()):
        downs: list[tuple[float, float]] = []
        at_s = start_s
        while rules.failures is not None and at_s < until_s:
            down_s = at_s + time_to_failure(rules.seed, node, len(downs), rules.failures.mtbf_s)
            at_s = down_s + rules.failures.repair_s
            downs.append((down_s, at_s))
        times_s = np.array(sorted({*(each for down in downs for each in down), *(each for each, _ in held[node])}))
        if not len(times_s):
            continue
        down = np.zeros(len(times_s), bool)
        for down_s, up_s in downs:
            down |= (times_s >= down_s) & (times_s < up_s)
        theirs = np.array([0, *(each for _, each in held[node])])
        count = np.searchsorted(np.array([each for each, _ in held[node]]), times_s, side="right")
        away = np.where(down, size, theirs[count])
        changes += zip(times_s.tolist(), np.diff(away, prepend=0).tolist(), strict=True)
    time_s = np.clip(np.array([each for each, _ in changes]), start_s, until_s)
    grid = np.unique(np.concatenate([begin_s, time_s]))
    gone = np.zeros(len(grid), np.int64)
    np.add.at(gone, np.searchsorted(grid, time_s), np.array([each for _, each in changes], np.int64))
    there, begins = sizes.sum() - np.cumsum(gone)[:-1], np.searchsorted(grid, begin_s)[:-1]
    mean = np.add.reduceat(there * np.diff(grid), begins) / np.diff(begin_s)
    every = float(sizes.sum())
    return np.append(mean, every), np.append(np.maximum.reduceat(there, begins), every)


def _columns(scene: WorldScene) -> tuple[Floats, Ints, Ints]:
    assert scene.tenants is not None
    return scene.tenants.time_s, scene.tenants.node, scene.tenants.devices


# --------------------------------------------------------------------------------------------------------------- bounds
def least_cost(world: FluidWorld, price: Floats) -> float:
    """A lower bound of the sum of prices (n,) times the time that jobs are in the system."""
    return _dual(world, price, goodput=False)


def most_work(world: FluidWorld, weight: Floats) -> float:
    """An upper bound of the sum of weights (n,) times the work that is done when the last job comes."""
    return -_dual(world, weight, goodput=True)


def _dual(world: FluidWorld, value: Floats, *, goodput: bool) -> float:
    """The best bound found, of what is minimised."""
    there = world.devices * world.length_s
    priced = np.ones(len(there), bool)
    priced[int(world.first[-1]) if goodput else -1 :] = False  # later devices count nothing, or are never short
    there, scale = np.where(priced, there, 0.0), np.where(priced, 1.0 / np.maximum(there, 1e-9), 0.0)
    width = world.width.shape[2]
    entries = width * len(there)
    room = ByPrice(np.zeros(entries), np.zeros(entries), np.zeros(entries), np.zeros(entries, np.int64))
    used, prices = np.zeros(len(there)), np.zeros(len(there))
    best, at_best, pull, push, since, reach = -np.inf, prices, np.zeros(len(there)), 1.0, 0, 0.05
    stale = 0
    for _ in range(ROUNDS):
        used[:] = 0.0
        paid = worth_of(world, value, prices, room, used) if goodput else cost_of(world, value, prices, room, used)
        found = float(paid - prices @ there)
        stale = 0 if found > best + GAIN * abs(found) else stale + 1
        if found > best:
            best, at_best, since = found, prices.copy(), 0
        else:
            since += 1
        if stale >= PATIENCE:
            break
        if since >= 8:  # too far: shorter steps, from the best prices on
            push, since, prices, pull = 0.6 * push, 0, at_best.copy(), np.zeros(len(there))
            continue
        lacks = np.where(priced, used - there, 0.0)
        pull = lacks if not pull.any() else 0.7 * pull + 0.3 * lacks
        length = float((pull**2 * scale).sum())
        if length <= 0.0:
            break
        aim = best + reach * abs(best) - found
        prices = np.maximum(0.0, prices + push * aim / length * pull * scale)
    return best


def bound(scene: WorldScene, price: Floats) -> FluidBound:
    """What no scheduler reaches in a scene with these prices (n,)."""
    world, n = fluid(scene), len(price)
    work = scene.workload
    weight = (1.0 + np.maximum(work.priority, 0)) * np.nan_to_num(scene.offers.device_s(work) / work.duration_s)
    lasts_s = float(work.arrival_s[-1] - work.arrival_s[0])
    return FluidBound(
        least_cost(world, price) / n,
        least_cost(world, np.ones(n)) / n,
        most_work(world, weight) / (lasts_s * scene.site.devices) if lasts_s > 0 else float("nan"),
        int((world.row < 0).sum()),
    )


# -------------------------------------------------------------------------------------------------------------- kernels
@kernel(lean=True)
def cost_of(f, value, price, room, used):  # type: ignore[no-untyped-def]
    """What all jobs cost, each on its cheapest way: time in the system by ``value`` (n,), device-seconds by ``price``
    (T,), which are added to ``used`` (T,). In the stretch of a job's end, work takes time as on its most devices."""
    total = 0.0
    for job in range(len(f.row)):
        if f.row[job] < 0:
            continue
        best, last = np.inf, -1
        count, had, paid = 0, 0.0, 0.0
        for at in range(f.first[job], len(f.begin_s)):
            since = value[job] * (f.begin_s[at] - f.arrival_s[job])
            if since >= best:
                break
            cost = since + _end_in(f, job, at, value[job], price, room, count, had, paid, used, False)
            if cost < best:
                best, last = cost, at
            count, had, paid = _add(f, job, at, price, room, count, had, paid)
        total += best
        count, had, paid = 0, 0.0, 0.0
        for at in range(f.first[job], last):
            count, had, paid = _add(f, job, at, price, room, count, had, paid)
        _end_in(f, job, last, value[job], price, room, count, had, paid, used, True)
    return total


@kernel(lean=True)
def _add(f, job, at, price, room, count, had, paid):  # type: ignore[no-untyped-def]
    """Offer a stretch's segments to a job, which keeps the cheapest that are enough for its work; returns how many
    entries it has, their work, and what they cost."""
    width, slope, work = f.width[f.row[job], at], f.slope[f.row[job], at], f.work[job]
    for segment in range(len(width)):
        if width[segment] <= 0.0:
            break
        unit = price[at] / slope[segment]
        if had >= work and count > 0 and unit >= room.unit[count - 1]:
            break
        place = count
        while place > 0 and room.unit[place - 1] > unit:
            room.unit[place], room.amount[place] = room.unit[place - 1], room.amount[place - 1]
            room.device_s[place], room.at[place] = room.device_s[place - 1], room.at[place - 1]
            place -= 1
        more = width[segment] * slope[segment] * f.length_s[at]
        room.unit[place], room.amount[place] = unit, more
        room.device_s[place], room.at[place] = 1.0 / slope[segment], at
        count, had, paid = count + 1, had + more, paid + unit * more
        while count > 0 and had > work:
            less = min(had - work, room.amount[count - 1])
            room.amount[count - 1] -= less
            had, paid = had - less, paid - less * room.unit[count - 1]
            if room.amount[count - 1] > 0.0:
                break
            count -= 1
    return count, had, paid


@kernel(lean=True)
def _end_in(f, job, at, value, price, room, count, had, paid, used, take):  # type: ignore[no-untyped-def]
    """What a job's device-seconds and the time since the stretch began cost if it ends in it, inf: it cannot;
    ``take``: and its device-seconds are added to ``used``."""
    width, slope = f.width[f.row[job], at], f.slope[f.row[job], at]
    quickest = 0.0
    for segment in range(len(width)):
        quickest += width[segment] * slope[segment]
    gap, cost, top = f.work[job] - had, paid, count - 1
    rest = room.amount[top] if top >= 0 else 0.0
    for segment in range(len(width)):
        if width[segment] <= 0.0:
            break
        unit, can, taken = price[at] / slope[segment] + value / quickest, width[segment] * slope[segment], 0.0
        can *= f.length_s[at]
        if gap > 0.0:
            taken = min(gap, can)
            gap, can, cost = gap - taken, can - taken, cost + taken * unit
        while can > 0.0 and top >= 0 and room.unit[top] > unit:  # in place of what was dearer before
            swapped = min(can, rest)
            can, rest, taken = can - swapped, rest - swapped, taken + swapped
            cost += swapped * (unit - room.unit[top])
            if take:
                room.amount[top] = rest
            if rest <= 0.0:
                top -= 1
                rest = room.amount[top] if top >= 0 else 0.0
        if take:
            used[at] += taken / slope[segment]
    if take:
        for entry in range(count):
            used[room.at[entry]] += room.amount[entry] * room.device_s[entry]
    return cost if gap <= 1e-9 * f.work[job] else np.inf


@kernel(lean=True)
def worth_of(f, value, price, room, used):  # type: ignore[no-untyped-def]
    """Minus what all jobs' work until the last one comes is worth by ``value`` (n,), less what its device-seconds cost
    by ``price`` (T,), which are added to ``used``: each job does what is worth more than it costs."""
    total, last = 0.0, f.first[-1]
    for job in range(len(f.row)):
        if f.row[job] < 0:
            continue
        count, had, paid = 0, 0.0, 0.0
        for at in range(f.first[job], last):
            count, had, paid = _add(f, job, at, price, room, count, had, paid)
        for entry in range(count):
            if room.unit[entry] < value[job]:
                total += (room.unit[entry] - value[job]) * room.amount[entry]
                used[room.at[entry]] += room.amount[entry] * room.device_s[entry]
    return total
