"""Which plans are worth knowing before the network moves: the best in the base state, and under states that may come.

The exact search plans for the base state and tells the best plan of every other way to join domains. For each designed
state (a link at a fifth, or down; a domain lost; all links at the day's trough) plans are made anew from the tables of
that search. What a plan is worth is decided by playing it, so a poor candidate costs memory and time, never quality.

Letters: S states, E links as in ``cluster.links``, K domains.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.decide.online.configuration import Book
from hippo.dynamics.links import base_bandwidth, base_latency
from hippo.plan.plan import Plan
from hippo.planners.base import Progress, Stop
from hippo.planners.exact import Exact
from hippo.planners.exact_ways import Groups
from hippo.planners.replan import Replanner
from hippo.problem.cluster import Link
from hippo.problem.problem import Problem

Floats = NDArray[np.float64]
MOST_PLACES = 24
SEARCH = Stop(time_limit_s=5.0, gap=0.01)
WEAK = 0.2  # of its bandwidth that a link has left in a designed state
TROUGH = 0.7  # of the bandwidth of all links
MOST_JOININGS = 64  # ways to join domains that are looked at for a state
PLANNED = 2  # of them that are planned, those of least bound


class Net(NamedTuple):
    """One state of the links."""

    bandwidth_bytes_per_s: Floats  # (E,), 0: down
    latency_s: Floats  # (E,)


def fill(book: Book, *, states: Sequence[Net] | None = None, watch: Progress | None = None) -> None:
    """Puts plans of the problem into the book: those of the base state, then those of ``states`` (default: designed).

    Deterministic; raises nothing: a book that stays empty belongs to a problem without a plan.
    """
    _say(watch, "planning for the base state", 0.0)
    found = Exact().propose(book.problem, SEARCH)
    for plan in (found.plan, *(plan for plan, _ in found.runners_up)):
        if plan is not None:
            book.add(plan, origin="exact")
    if len(book) == 0:
        return
    wanted = list(designed(book) if states is None else states)
    replanner = Replanner.of(book.problem)
    for done, state in enumerate(wanted):
        _say(watch, "planning for states that may come", done / len(wanted))
        if book.places >= MOST_PLACES:
            return
        for plan in _plans_under(book, replanner, state):
            book.add(plan, origin="replan")


def designed(book: Book) -> Iterator[Net]:
    """States that the plans known so far would suffer from: the links that the best one uses weak, then down; the
    day's trough; each domain lost."""
    cluster = book.problem.cluster
    base, latency = base_bandwidth(cluster), base_latency(cluster)
    used = _pairs(book, best_under(book, base, latency))
    for share in (WEAK, 0.0):
        for pair in used:
            bandwidth = base.copy()
            bandwidth[pair] *= share
            yield Net(bandwidth, latency)
    yield Net(TROUGH * base, latency)
    for domain in cluster.domains:
        touched = np.array([domain.name in (link.source, link.destination) for link in cluster.links], dtype=bool)
        yield Net(np.where(touched, 0.0, base), latency)


def best_under(
    book: Book,
    bandwidth_bytes_per_s: Floats,
    latency_s: Floats,
    compute: Floats | None = None,
    *,
    among: Sequence[int] | None = None,
) -> int:
    """The configuration (``among`` these; default: all) that trains most tokens/s under one state of the links, (E,),
    and of the domains, (K,); ties: the first. -1: none can run."""
    slower, chosen = None if compute is None else compute[None, :], range(len(book)) if among is None else among
    times = [
        book.step_time_s(index, bandwidth_bytes_per_s[None, :], latency_s[None, :], slower)[0]
        / book.configurations[index].worth
        for index in chosen
    ]
    return chosen[int(np.argmin(times))] if times and np.isfinite(min(times)) else -1


def plan_under(book: Book, bandwidth_bytes_per_s: Floats, latency_s: Floats) -> int | None:
    """Plans anew under one state of the links, (E,); the best of the new plans, or None: there is none. Tens of ms."""
    replanner = Replanner.of(book.problem)
    state = Net(bandwidth_bytes_per_s, latency_s)
    added = [book.add(plan, origin="replan") for plan in _plans_under(book, replanner, state)]
    known = [index for index in added if index is not None]
    times = [book.step_time_s(index, state.bandwidth_bytes_per_s[None], state.latency_s[None])[0] for index in known]
    return known[int(np.argmin(times))] if known and np.isfinite(min(times)) else None


def under(problem: Problem, state: Net) -> Problem:
    """The problem with its links in that state; links that are down are not there."""
    links, base = problem.cluster.links, base_bandwidth(problem.cluster)
    changed = tuple(
        _changed(link, bandwidth, bandwidth / usual, latency)
        for link, usual, bandwidth, latency in zip(links, base, *state, strict=True)
        if bandwidth > 0
    )
    return replace(problem, cluster=replace(problem.cluster, links=changed))


def _changed(link: Link, bandwidth: float, share: float, latency: float) -> Link:
    if link.bandwidth_bytes_per_s is None:
        assert link.per_node_bytes_per_s is not None
        return replace(link, per_node_bytes_per_s=link.per_node_bytes_per_s * share, latency_s=float(latency))
    return replace(link, bandwidth_bytes_per_s=float(bandwidth), latency_s=float(latency))


def _plans_under(book: Book, replanner: Replanner, state: Net) -> Iterator[Plan]:
    """Plans over the sets of domains of least bound under that state."""
    problem = under(book.problem, state)
    bounds = [(replanner.bound_s(problem, joining), joining) for joining in _joinings(len(problem.cluster.domains))]
    ranked = sorted((each for each in bounds if np.isfinite(each[0])), key=lambda each: each[0])
    for _, joining in ranked[:PLANNED]:
        plan = replanner.plan(problem, joining)
        if plan is not None:
            yield plan


def _joinings(domains: int) -> list[Groups]:
    """Pipelines over every set of domains, small sets first."""
    sets = (chosen for size in range(1, domains + 1) for chosen in combinations(range(domains), size))
    return [(chosen,) for chosen, _ in zip(sets, range(MOST_JOININGS), strict=False)]


def _pairs(book: Book, index: int) -> list[list[int]]:
    """Links that a configuration uses, both ways of a pair together, those with most bytes first."""
    sent, links = book.bytes_per_step(index), book.problem.cluster.links
    pairs: dict[frozenset[str], list[int]] = {}
    for link in np.argsort(-sent, kind="stable"):
        pairs.setdefault(frozenset((links[link].source, links[link].destination)), []).append(int(link))
    return [pair for pair in pairs.values() if sent[pair].any()]


def _say(watch: Progress | None, phase: str, share: float) -> None:
    if watch is not None:
        watch(phase, share)
