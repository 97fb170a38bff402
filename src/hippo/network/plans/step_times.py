"""Step times of all configurations under any state of the network, in microseconds: planes instead of plays.

A step time is close to a convex function of seconds per byte, latencies and lengths of operations
(``simulate.critical``), so a few planes, each the critical path of one play, say what it is: their maximum. States to
play are drawn around the base state, the same for every plan; a plane is kept where those that are kept are furthest
off, until none is off by more than ``CLOSE``. What is found depends on the plan alone, never on a trace: training and
use see the same.

Letters: S states, E links, K domains, C configurations, R quantities (of each link used: seconds per byte and latency,
of each domain used: length of operations; all over the base state's).
"""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.network.plans.plan_cache import PlanCache
from hippo.simulate.critical import planes
from hippo.simulate.program import Program

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

DRAWN, MOST_PLANES, CLOSE = 128, 64, 0.002
"""States played for a plan, planes kept at most, and how far off the last state may be."""
SHARED, OWN, COLLAPSE, COLLAPSED = 0.15, 0.3, 2.5, 0.25
"""Spread of log bandwidths drawn, for all links and for each; how deep links fall, and how many do."""


class Planes(NamedTuple):
    """One plan."""

    links: Ints
    domains: Ints
    rest: Floats  # (n,) seconds that nothing changes
    slope: Floats  # (n, R) seconds per unit


class AllPlanes(NamedTuple):
    """All configurations of a cache, one after the other."""

    links: Ints
    first_link: Ints  # (C + 1,)
    domains: Ints
    first_domain: Ints  # (C + 1,)
    rest: Floats
    first_plane: Ints  # (C + 1,)
    slope: Floats
    first_slope: Ints  # (C + 1,)


_FITTED: WeakKeyDictionary[Program, Planes] = WeakKeyDictionary()
_JOINED: WeakKeyDictionary[PlanCache, AllPlanes] = WeakKeyDictionary()


def approximate_step_times(cache: PlanCache, bandwidth: Floats, latency: Floats, compute: Floats) -> Floats:
    """Seconds of a step, (S, C), of every configuration under bandwidths (S, E), latencies (S, E) and factors on the
    length of operations (S, K); inf: it needs what is down."""
    program = cache.program(0)
    base, usual_s = program.link_bandwidth_bytes_per_s, program.link_latency_s
    slow = np.where(bandwidth > 0.0, base / np.where(bandwidth > 0.0, bandwidth, 1.0), np.inf)
    late = latency / np.where(usual_s > 0.0, usual_s, 1.0)
    found = np.empty((len(bandwidth), len(cache)))
    _fill(fits(cache), slow, late, np.ascontiguousarray(compute, dtype=np.float64), found)
    return found


def fits(cache: PlanCache) -> AllPlanes:
    """The planes of a cache; made for what is new in it."""
    known = _JOINED.get(cache)
    if known is None or len(known.first_link) != len(cache) + 1:
        each = [fit(cache, index) for index in range(len(cache))]
        known = _JOINED[cache] = AllPlanes(
            np.concatenate([one.links for one in each]),
            _starts([len(one.links) for one in each]),
            np.concatenate([one.domains for one in each]),
            _starts([len(one.domains) for one in each]),
            np.concatenate([one.rest for one in each]),
            _starts([len(one.rest) for one in each]),
            np.concatenate([one.slope.ravel() for one in each]),
            _starts([one.slope.size for one in each]),
        )
    return known


def _starts(counts: list[int]) -> Ints:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def fit(cache: PlanCache, index: int) -> Planes:
    """The planes of a configuration; kept beside its program, which copies of a cache have in common."""
    program = cache.program(index)
    if program not in _FITTED:
        links, domains = np.flatnonzero(cache.bytes_per_step(index) > 0), np.flatnonzero(cache.domains_used(index))
        _FITTED[program] = _fit(program, links, domains, len(cache.problem.cluster.domains))
    return _FITTED[program]


def _fit(program: Program, links: Ints, domains: Ints, all_domains: int) -> Planes:
    drawn = _drawn(len(links), len(domains))
    seconds, rest, slope = _planes(program, links, domains, drawn, all_domains)
    told_by = rest + drawn @ slope.T  # (DRAWN, DRAWN) by the plane of the second
    over = np.maximum(0.0, (told_by - (1.0 + CLOSE) * seconds[:, None]).max(axis=0))
    told_by, rest = told_by - over, rest - over  # no higher anywhere than what was played
    told, kept = told_by[:, 0], [0]
    while len(kept) < MOST_PLANES:
        furthest = int(np.argmin(told / seconds))
        plane = int(np.argmax(told_by[furthest]))
        if told[furthest] > (1.0 - CLOSE) * seconds[furthest] or plane in kept:
            break
        kept.append(plane)
        told = np.maximum(told, told_by[:, plane])
    return Planes(links, domains, rest[kept], slope[kept])


def _planes(
    program: Program, links: Ints, domains: Ints, drawn: Floats, all_domains: int
) -> tuple[Floats, Floats, Floats]:
    """Step times, and the plane that holds at each of the states drawn."""
    found = planes(program, *_states(program, links, domains, drawn, all_domains))
    per_byte = 1.0 / program.link_bandwidth_bytes_per_s[links]
    slope = np.concatenate(
        [
            found.bytes[:, links] * per_byte,
            found.latencies[:, links] * program.link_latency_s[links],
            found.compute[:, domains],
        ],
        axis=1,
    )
    return found.seconds, found.seconds - (slope * drawn).sum(axis=1), slope


def _drawn(links: int, domains: int) -> Floats:
    """States to play, (DRAWN, R): the base state first, then all links slow, then at random, a part of them far off."""
    rng = np.random.default_rng(11)
    ratio = rng.normal(0.0, SHARED, (DRAWN, 1)) + rng.normal(0.0, OWN, (DRAWN, links))
    ratio -= np.where(rng.random((DRAWN, links)) < COLLAPSED, rng.uniform(0.0, COLLAPSE, (DRAWN, links)), 0.0)
    late = np.where(rng.random((DRAWN, links)) < 0.5, 0.0, rng.uniform(-0.3, 1.2, (DRAWN, links)))
    loaded = rng.uniform(-0.2, 0.25, (DRAWN, domains))
    loaded = np.where(rng.random((DRAWN, domains)) < 0.8, loaded, rng.uniform(0.0, 1.5, (DRAWN, domains)))
    ratio[0], late[0], loaded[0] = 0.0, 0.0, 0.0
    ratio[1], late[1], loaded[1] = -0.5 * COLLAPSE, 0.0, 0.0
    return np.concatenate([np.exp(-ratio), np.exp(late), 1.0 + loaded], axis=1)


def _states(program: Program, links: Ints, domains: Ints, drawn: Floats, all_domains: int) -> tuple[Floats, ...]:
    """The same as states of all links and domains."""
    count, used = len(drawn), len(links)
    bandwidth = np.repeat(program.link_bandwidth_bytes_per_s[None], count, axis=0)
    latency, compute = np.repeat(program.link_latency_s[None], count, axis=0), np.ones((count, all_domains))
    bandwidth[:, links] /= drawn[:, :used]
    latency[:, links] *= drawn[:, used : 2 * used]
    compute[:, domains] = drawn[:, 2 * used :]
    return bandwidth, latency, compute


@kernel
def _fill(fits, slow, late, compute, found):  # type: ignore[no-untyped-def]
    quantities = np.empty(2 * slow.shape[1] + compute.shape[1])
    for state in range(found.shape[0]):
        for each in range(found.shape[1]):
            links = fits.links[fits.first_link[each] : fits.first_link[each + 1]]
            domains = fits.domains[fits.first_domain[each] : fits.first_domain[each + 1]]
            count, most = 0, 0.0
            for link in links:
                quantities[count], quantities[count + len(links)] = slow[state, link], late[state, link]
                most = max(most, slow[state, link])
                count += 1
            count += len(links)
            for domain in domains:
                quantities[count] = compute[state, domain]
                most = max(most, compute[state, domain])
                count += 1
            found[state, each] = _highest(fits, each, quantities[:count]) if most < np.inf else np.inf


@kernel
def _highest(fits, each, quantities):  # type: ignore[no-untyped-def]
    """The highest plane at a state, (R,)."""
    highest, at = 0.0, fits.first_slope[each]
    for plane in range(fits.first_plane[each], fits.first_plane[each + 1]):
        height = fits.rest[plane]
        for quantity in quantities:
            height += fits.slope[at] * quantity
            at += 1
        highest = max(highest, height)
    return highest
