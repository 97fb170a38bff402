"""Which configurations are worth knowing before the network moves: of the base state, and of states that may come.

The exact search plans for the base state and tells the best plan of every other way to join domains; where local SGD
is allowed, DiLoCo's plan stands beside. For each designed
state (a link weak or down, a domain lost, all links weaker or twice as quick) plans are made anew
from the tables of that search, and the levers of the best places are pulled. All of them are played under all states;
kept are those that are best somewhere: first locations, then of each what does more than its other configurations.

Letters: S states, N trials, E links as in ``cluster.links``, K domains.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from hippo.network.plans.levers import Bench, better, better_again, either
from hippo.network.plans.plan_cache import PlanCache, net_tokens_per_step
from hippo.network.plans.replan import Net, Replanner
from hippo.plan.plan import Plan
from hippo.planners.answers import answer_of, at_degree
from hippo.planners.base import Progress, Stop
from hippo.planners.baselines.diloco import Diloco
from hippo.planners.exact.search import Exact
from hippo.problem.links import base_bandwidth, base_latency
from hippo.problem.problem import Problem

Floats = NDArray[np.float64]
SEARCH = Stop(time_limit_s=30.0, gap=0.02)
MOST_LOCATIONS, FEW_LOCATIONS = 20, 10
MOST_OF_MAIN, MOST_OF_OTHERS = 7, 3  # configurations of the location that is best in the base state, and of another
MOST_PAIRS = 4  # of domains whose links are weak, or down, in a designed state: those that carry most
MOST_LOST = 6  # domains lost in a designed state
WEAK = 0.2  # of its bandwidth that a link has left
SWINGS = (0.2, 0.2, 0.2, 0.2, 0.5, 0.5, 0.5, 0.5)  # of the log bandwidth of every link, in states that only judge
GAIN = 0.003  # of the work, in the mean over the states, that a configuration must add to be kept
WORTH_KNOWING = 0.01  # share by which a plan made on the way must do more than what is known
HOPELESS = 0.5  # of the best plan's work that a plan must reach in some state for its levers to be pulled


def fill(cache: PlanCache, *, watch: Progress | None = None) -> None:
    """Puts configurations into the cache: plans of the base state and of designed ones, with the levers that matter.
    From then on its problem has the degrees of context and expert parallelism that are best in the base state.

    Deterministic, 1 to 2 s. Raises nothing: a cache that stays empty belongs to a problem without a plan.
    """
    _say(watch, "planning for the base state", 0.0)
    base = Net(base_bandwidth(cache.problem.cluster), base_latency(cache.problem.cluster))
    found = answer_of(Exact(), cache.problem, SEARCH)
    if found.plan is not None:
        cache.problem = at_degree(cache.problem, found.plan)
    trials = PlanCache(cache.problem)
    for plan in (found.plan, *(other.plan for other in found.runners_up)):
        for each in () if plan is None else either(cache.problem, plan):
            trials.add(each, origin="exact")
    trained_alone(trials, cache.problem)
    if len(trials) == 0:
        return
    for index in worth_knowing(trials, [base, *designed(trials)], watch=watch):
        cache.adopt(trials, index)


def trained_alone(trials: PlanCache, problem: Problem) -> None:
    """Adds the plan of DiLoCo for ``problem`` (that of ``trials``, or some of its domains), where local SGD is allowed:
    domains that differ each get a layout of their own there, which the exact search gives replicas alone."""
    plan = answer_of(Diloco(), problem, SEARCH).plan
    for each in () if plan is None else either(trials.problem, plan):
        trials.add(each, origin="diloco")


def worth_knowing(trials: PlanCache, wanted: Sequence[Net], *, watch: Progress | None = None) -> list[int]:
    """Adds plans for these states, and levers, to ``trials``; those configurations of it that do most somewhere.

    States in which links swing by chance around the first one judge with them. About 0.2 s a state.
    """
    base, replanner = wanted[0], Replanner.of(trials.problem)
    for done, state in enumerate(wanted):
        _say(watch, "planning for states that may come", done / len(wanted))
        for plan in replanner.plans(state, most=1 if (state.bandwidth_bytes_per_s <= 0).any() else 2):
            for each in either(trials.problem, plan):
                trials.add(each, origin="anew")
    price = usd_per_token(trials, base)
    _say(watch, "pulling levers", 0.0)
    rates, swings = net_rates(trials, wanted, price), list(_swings(base))
    _pull(trials, wanted, rates, price)
    plain, pulled = range(rates.shape[1]), range(rates.shape[1], len(trials))
    rates = np.concatenate([rates, net_rates(trials, swings, price, among=plain)])
    if pulled:
        rates = np.hstack([rates, net_rates(trials, [*wanted, *swings], price, among=pulled)])
    return _chosen(trials, rates)


def designed(cache: PlanCache) -> Iterator[Net]:
    """States that the plans known so far would suffer from or profit by: all links twice as quick, and weaker; links
    that the best plan uses weak, then down; domains lost."""
    cluster = cache.problem.cluster
    base, latency = base_bandwidth(cluster), base_latency(cluster)
    main = best_under(cache, base, latency)
    for share in (2.0, 0.7, 0.4):
        yield Net(share * base, latency)
    pairs = _pairs(cache, main)[:MOST_PAIRS]
    for share in (WEAK, 0.0):
        for pair in pairs:
            bandwidth = base.copy()
            bandwidth[pair] *= share
            yield Net(bandwidth, latency)
    for name in cache.configurations[main].plan.domains[:MOST_LOST]:
        touched = np.array([name in (link.source, link.destination) for link in cluster.links], dtype=bool)
        yield Net(np.where(touched, 0.0, base), latency)


def best_under(
    cache: PlanCache,
    bandwidth_bytes_per_s: Floats,
    latency_s: Floats,
    compute: Floats | None = None,
    *,
    among: Sequence[int] | None = None,
) -> int:
    """The configuration (``among`` these; default: all) that trains most tokens/s under one state of the links, (E,),
    and of the domains, (K,); ties: the first. -1: none can run."""
    slower, chosen = None if compute is None else compute[None, :], range(len(cache)) if among is None else among
    times = [
        cache.step_time_s(index, bandwidth_bytes_per_s[None, :], latency_s[None, :], slower)[0]
        / cache.configurations[index].worth
        for index in chosen
    ]
    return chosen[int(np.argmin(times))] if times and np.isfinite(min(times)) else -1


def plan_under(
    cache: PlanCache, bandwidth_bytes_per_s: Floats, latency_s: Floats, *, without: frozenset[int] = frozenset()
) -> int | None:
    """Plans anew under one state of the links, (E,), ``without`` some domains, and adds what comes of it to the cache;
    the best of the new plans, or None: there is none. Tens of ms."""
    state = Net(bandwidth_bytes_per_s, latency_s)
    plans = Replanner.of(cache.problem).plans(state, without=without)
    added = [cache.add(each, origin="anew") for plan in plans for each in either(cache.problem, plan)]
    best = best_under(cache, *state, among=[index for index in added if index is not None])
    return best if best >= 0 else None


def renew(
    cache: PlanCache, state: Net, *, running: int, compute: Floats | None = None, price: float = 0.0
) -> list[int]:
    """Looks for configurations that the cache lacks in one state of the links and of the domains' ``compute``, (K,):
    levers of what is ``running`` and of the best that is known, and plans made anew with theirs.

    Returns what was added: only what does clearly more than all that was known, for levers of the location. ``price``
    in USD per token. Some 100 ms.
    """
    bench = Bench(PlanCache(cache.problem), state, compute, price)
    known = [bench.rate(cache, index) for index in range(len(cache))]
    location, added = cache.location(running), []
    best = int(np.argmax(known))
    here = max(known[index] for index in range(len(known)) if cache.location(index) == location)
    for plan, least in ((cache.configurations[running].plan, here), (cache.configurations[best].plan, known[best])):
        added += _adopted(cache, bench, better_again(bench, plan)[-1:], least)
    for plan in Replanner.of(cache.problem).plans(state):
        pulled = [plan, *better_again(bench, plan)]
        added += _adopted(cache, bench, pulled[-1:], max(known))
    return list(dict.fromkeys(added))


def _adopted(cache: PlanCache, bench: Bench, plans: Sequence[Plan], least: float) -> list[int]:
    """Adds those plans that do clearly more than ``least``."""
    good = [plan for plan in plans if bench.value(plan) > least + WORTH_KNOWING * abs(least)]
    before, found = len(cache), [cache.adopt(bench.cache, bench.index(plan)) for plan in good]
    return [index for index in found if index >= before]


def usd_per_token(cache: PlanCache, state: Net) -> float:
    """What a token is worth: rent of all GPUs per second over the tokens/s of the quickest plan in that state; 0: none
    runs."""
    best = best_under(cache, *state)
    if best < 0:
        return 0.0
    seconds = cache.step_time_s(best, state.bandwidth_bytes_per_s[None], state.latency_s[None])[0]
    return float(cache.rent_usd_per_s * seconds / cache.tokens_per_step)


def net_rates(cache: PlanCache, states: Sequence[Net], price: float, *, among: Sequence[int] | None = None) -> Floats:
    """Tokens/s less egress in tokens of every configuration (``among`` these, N; default: all) in every state, (S, N);
    0: it cannot run. ``price``: USD per token; 0: egress does not count."""
    bandwidth, latency = (np.stack(column) for column in zip(*states, strict=True))
    chosen, tokens = range(len(cache)) if among is None else among, net_tokens_per_step(cache, price)
    return np.stack([tokens[index] / cache.step_time_s(index, bandwidth, latency) for index in chosen], axis=1)


def _pull(trials: PlanCache, states: Sequence[Net], rates: Floats, price: float) -> None:
    """Pulls levers under every state: of what is best there, and of what is best in the first."""
    best = [int(np.argmax(row)) for row in rates]
    for state, row, here in zip(states, rates, best, strict=True):
        bench = Bench(trials, state, usd_per_token=price)
        for index in dict.fromkeys((best[0], here)):
            if rates[:, index].max() > HOPELESS * row.max():
                better(bench, trials.configurations[index].plan)


def _chosen(trials: PlanCache, rates: Floats) -> list[int]:
    """Configurations worth keeping, location after location, plain plans first."""
    quality = np.maximum(rates, 0.0) / np.maximum(rates.max(axis=1, keepdims=True), 1e-300)  # (S, N)
    location = np.array([trials.location(index) for index in range(len(trials))])
    plain = np.array([not each.lever for each in trials.configurations])
    envelope = np.stack([quality[:, location == each].max(axis=1) for each in range(location.max() + 1)], axis=1)
    first = int(location[np.argmax(np.where(plain, quality[0], -1.0))])
    order = _greedy(envelope, first, most=MOST_LOCATIONS, few=FEW_LOCATIONS)
    found: list[int] = []
    for each in order:
        mine = np.flatnonzero(location == each)
        known = mine[plain[mine]]
        lead = known[int(np.argmax(quality[0, known]))] if len(known) else mine[int(np.argmax(quality[0, mine]))]
        most = MOST_OF_MAIN if each == first else MOST_OF_OTHERS
        found += [int(mine[at]) for at in _greedy(quality[:, mine], int(np.flatnonzero(mine == lead)[0]), most=most)]
    return found


def _greedy(quality: Floats, first: int, *, most: int, few: int = 1) -> list[int]:
    """Columns of (S, n) from ``first`` on, each the one that adds most to the mean over S of the best; once none adds
    ``GAIN``, those that are best alone until there are ``few``."""
    found, best = [first], quality[:, first].copy()
    alone = quality.mean(axis=0)
    while len(found) < min(most, quality.shape[1]):
        added = np.maximum(quality - best[:, None], 0.0).mean(axis=0)
        added[found] = -np.inf
        top = int(np.argmax(added))
        if added[top] < GAIN:
            if len(found) >= few:
                break
            top = int(np.argmax(np.where(np.isfinite(added), alone, -np.inf)))
        found.append(top)
        best = np.maximum(best, quality[:, top])
    return found


def _pairs(cache: PlanCache, index: int) -> list[list[int]]:
    """Links that a configuration uses, both ways of a pair together, those with most bytes first."""
    sent, links = cache.bytes_per_step(index), cache.problem.cluster.links
    pairs: dict[frozenset[str], list[int]] = {}
    for link in np.argsort(-sent, kind="stable"):
        pairs.setdefault(frozenset((links[link].source, links[link].destination)), []).append(int(link))
    return [pair for pair in pairs.values() if sent[pair].any()]


def _swings(base: Net) -> Iterator[Net]:
    """States in which every link differs from its base by chance, always the same ones."""
    rng = np.random.default_rng(0)
    for swing in SWINGS:
        yield Net(base.bandwidth_bytes_per_s * np.exp(rng.normal(0.0, swing, len(base.latency_s))), base.latency_s)


def _say(watch: Progress | None, phase: str, share: float) -> None:
    if watch is not None:
        watch(phase, share)
