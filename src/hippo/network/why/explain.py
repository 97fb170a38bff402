"""From a view and the answer to it to reasons: what crossed which threshold, what was changed, what it is worth.

For every method alike; a method that has more to say of itself (what simulation refused, a missed deadline) adds its
own reasons. E links, K domains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from hippo.decide.reasons import Reason, RewardParts
from hippo.decide.wording import count, gb, listed
from hippo.errors import InputError
from hippo.network.rules.move import STILL
from hippo.network.rules.outlook import Expected, outlook
from hippo.network.rules.trigger import Due, Seen, Thresholds, due, runs, standing
from hippo.network.rules.view import Action, How, View, levers_alone
from hippo.network.why import reasons as why
from hippo.plan.diff import diff
from hippo.plan.plan import Pipeline, Plan
from hippo.problem.links import base_bandwidth, base_latency
from hippo.problem.problem import Problem

Each = TypeVar("Each")
KEEP = Action()
ARROW = " -> "
ALIKE = 0.05
"""Two directions of a pair that differ by less are told together."""
MOST_LINKS = 3
"""Links told one by one; of more, those that training leans on most."""


def explain(
    view: View,
    action: Action,
    *,
    last: Seen | None,
    thresholds: Thresholds = Thresholds(),  # noqa: B008 - frozen
    told: Sequence[Reason] = (),
) -> tuple[Reason, ...]:
    """Reasons of one decision: what happened, what the method itself says (``told``), what changes, what it is worth.

    ``last``: what the decision before looked at; None: this is the first.
    """
    happened = due(view, last, thresholds)
    found = [*stale(view), *events(view, happened, last, thresholds), *told]
    if view.running < 0:
        return (*found, _begun(view, action))
    ahead = outlook(view, [action.target] if action.target >= 0 else [])
    answer, keeping = ahead.play(action), ahead.play(KEEP)
    if action.how is How.KEEP:
        halted = view.phase == STILL and not runs(view, view.running)
        return (*found, *([_stands(view)] if halted else []))
    return (*found, _changed(view, action, answer), _worth(answer, keeping), *_reward(view, answer, keeping))


# ------------------------------------------------------------------------------------------------------ what happened
def stale(view: View) -> list[Reason]:
    """Links whose value of now did not arrive, as one reason."""
    fresh = view.telemetry.fresh
    silent = np.flatnonzero(~fresh[-1])
    if not len(silent):
        return []
    ages = [_age(fresh[:, link]) for link in silent]
    goodput = np.array([link.goodput for link in view.cache.problem.cluster.links])
    rates = view.forecast.bandwidth_bytes_per_s[0] / goodput
    names = link_names(view)
    if len(silent) == len(names):
        subject = "any link"
    else:
        subject = names[silent[0]] if len(silent) == 1 else count(len(silent), "link")
    links = tuple(names[link] for link in silent)
    return [why.Stale(subject, links, max(ages) * view.epoch_s, tuple(float(rates[link]) for link in silent))]


def _age(fresh: np.ndarray) -> int:
    """Epochs since the last value that arrived."""
    arrived = np.flatnonzero(fresh)
    return int(len(fresh) - 1 - arrived[-1]) if len(arrived) else len(fresh)


def events(view: View, happened: Due, last: Seen | None, thresholds: Thresholds) -> list[Reason]:
    """What crossed a threshold since the last decision, the gravest first."""
    if last is None:
        return []
    found: list[Reason] = []
    if happened.lost:
        found.append(_lost(view, happened.lost))
    if happened.back:
        names = link_names(view)
        links = tuple(names[link] for link in happened.back)
        found.append(why.Back(listed(links) if len(links) <= MOST_LINKS else count(len(links), "link"), links))
    moved = [_moved(view, "bandwidth", link, last, thresholds) for link in _weightiest(view, happened.links, last)]
    found += _both_ways(moved)[:MOST_LINKS]
    found += [_moved(view, "latency", link, last, thresholds) for link in happened.latencies[:1] if not moved]
    for domain in happened.loads[:MOST_LINKS]:
        name = view.cache.problem.cluster.domains[domain].name
        before, actual = float(last.compute[domain]), float(view.forecast.compute[0, domain])
        found.append(why.LoadMoved(name, before, actual, thresholds.load_share))
    if happened.behind and not happened.lost:
        now = standing(view)
        told = placement(view.cache.configurations[now.best].plan)
        found.append(why.FellBehind(told, last.pace, now.pace, thresholds.pace_share))
    return found


def _weightiest(view: View, links: Sequence[int], last: Seen) -> list[int]:
    """Of the links that moved, those that training leans on most; ties: those that moved further."""
    carried = _traffic(view)
    now = view.forecast.bandwidth_bytes_per_s[0]
    moved = np.abs(now / np.where(last.bandwidth_bytes_per_s > 0, last.bandwidth_bytes_per_s, 1.0) - 1.0)
    return sorted(links, key=lambda link: (-carried[link], -moved[link]))[: 2 * MOST_LINKS]


def _moved(view: View, quantity: str, link: int, last: Seen, thresholds: Thresholds) -> why.LinkMoved:
    forecast, cluster = view.forecast, view.cache.problem.cluster
    rate, edge = quantity == "bandwidth", cluster.links[link]
    values = forecast.bandwidth_bytes_per_s if rate else forecast.latency_s
    before = last.bandwidth_bytes_per_s if rate else last.latency_s
    usual = base_bandwidth(cluster) if rate else base_latency(cluster)

    last_told = int(np.searchsorted(forecast.horizons, view.epochs_left - 1, side="right")) - 1  # the run ends there

    def on_the_wire(value: float) -> float:
        return float(value) / edge.goodput if rate else float(value) - edge.overhead_s

    return why.LinkMoved(
        link_names(view)[link],
        quantity,
        on_the_wire(before[link]),
        on_the_wire(values[0, link]),
        on_the_wire(usual[link]),
        on_the_wire(values[last_told, link]),
        float(forecast.horizons[last_told] * view.epoch_s),
        thresholds.link_share if rate else thresholds.latency_share,
        float(_traffic(view)[link]),
    )


def _both_ways(moved: Sequence[why.LinkMoved]) -> list[Reason]:
    """The two directions of a pair as one reason (of the busier one) where they moved alike."""
    found: dict[frozenset[str], why.LinkMoved] = {}
    apart: list[why.LinkMoved] = []
    for each in moved:
        pair = frozenset(each.subject.split(ARROW))
        first = found.setdefault(pair, each)
        if first is not each and abs(first.actual - each.actual) <= ALIKE * first.actual:
            found[pair] = replace(first, subject=first.subject.replace(ARROW, " <-> "))
        elif first is not each:
            apart.append(each)
    return [*found.values(), *apart]


def _lost(view: View, links: Sequence[int]) -> Reason:
    names, cluster = link_names(view), view.cache.problem.cluster
    down = view.forecast.bandwidth_bytes_per_s[0] <= 0
    needed = bool(view.running >= 0 and (view.cache.bytes_per_step(view.running)[list(links)] > 0).any())
    told = tuple(names[link] for link in links)
    cut_off = [
        domain.name
        for domain in cluster.domains
        for touching in [[n for n, one in enumerate(cluster.links) if domain.name in (one.source, one.destination)]]
        if touching and down[touching].all() and set(links) <= set(touching)
    ]
    if len(cut_off) == 1:
        return why.Lost(f"Domain {cut_off[0]}", told, True, needed)
    return why.Lost(listed(told) if len(told) <= MOST_LINKS else count(len(told), "link"), told, False, needed)


def _traffic(view: View) -> np.ndarray:
    """Share of each link's bandwidth that what runs takes now, (E,)."""
    rates = view.forecast.bandwidth_bytes_per_s[0]
    if view.running < 0:
        return np.zeros(len(rates))
    sent = view.cache.bytes_per_step(view.running) / step_now_s(view, view.running)
    return np.where(rates > 0, sent / np.where(rates > 0, rates, 1.0), np.where(sent > 0, 1.0, 0.0))


# ------------------------------------------------------------------------------------------------------ what changes
def _begun(view: View, action: Action) -> Reason:
    chosen = view.cache.configurations[action.target]
    return why.Begun(placement(chosen.plan), chosen.origin, step_now_s(view, action.target))


def _stands(view: View) -> Reason:
    able = sum(runs(view, index) for index in range(len(view.cache)))
    return why.Stands("it waits until what is down is back", able)


def _changed(view: View, action: Action, answer: Expected) -> Reason:
    cache = view.cache
    before = cache.configurations[view.running].plan
    if action.how is How.CANCEL:
        return why.Cancelled(placement(cache.configurations[view.target].plan), view.arrived)
    after = cache.configurations[action.target].plan
    then, now = step_now_s(view, view.running), step_now_s(view, action.target)
    if levers_alone(cache, view.running, action):
        told = listed(changes(before, after)) or "nothing that shows"
        return why.LeverPulled(told, answer.downtime_s, then, now)
    return why.Moved(
        moves_said(view, before, after),
        action.how.value,
        _planned_bytes(view, before, after),
        _price(view, action),
        answer.move_s,
        answer.downtime_s,
        then,
        now,
        cuts(before),
        cuts(after),
    )


def _planned_bytes(view: View, before: Plan, after: Plan) -> float:
    """Bytes that leave a domain and arrive in another."""
    try:
        return diff(view.cache.problem, before, after).num_bytes
    except InputError:
        return 0.0


def _price(view: View, action: Action) -> float:
    """Egress of the bytes of a move."""
    cache = view.cache
    places = (cache.configurations[index].place for index in (view.running, action.target))
    return float(cache.move_bytes(*places) @ cache.usd_per_byte)


def changes(before: Plan, after: Plan) -> tuple[str, ...]:
    """What differs between two plans of one placement, in words."""
    found = [f"{each.source} -> {each.destination} through {each.via}" for each in _new(before.relays, after.relays)]
    relayed = {(each.source, each.destination) for each in after.relays}
    direct = [each for each in before.relays if (each.source, each.destination) not in relayed]
    found += [f"{each.source} -> {each.destination} direct again" for each in direct]
    found += [
        f"{each.source} -> {each.destination} compressed as {each.kind}"
        for each in _new(before.compression, after.compression)
    ]
    found += [
        f"{each.source} -> {each.destination} as it is, no longer {each.kind}"
        for each in _new(after.compression, before.compression)
    ]
    if before.schedule != after.schedule:
        found.append(f"schedule {_schedule(before)} becomes {_schedule(after)}")
    pairs = (
        ("micro-batches", _waves(before), _waves(after)),
        ("micro-batches ahead", _ahead(before), _ahead(after)),
        ("sequences a micro-batch", str(before.micro_batch), str(after.micro_batch)),
        ("recomputation", before.recompute, after.recompute),
        ("steps between agreements", str(before.sync.every), str(after.sync.every)),
    )
    found += [f"{name} {old} become {new}" for name, old, new in pairs if old != new]
    orders = [[(line.order, line.warm_up) for line in plan.pipelines] for plan in (before, after)]
    return tuple(found) if found or orders[0] == orders[1] else ("operations in another order",)


def _new(old: Sequence[Each], new: Sequence[Each]) -> list[Each]:
    """What is in the second and not in the first."""
    return [each for each in new if each not in old]


def _schedule(plan: Plan) -> str:
    limit = plan.schedule.live_limit
    return plan.schedule.name if limit is None else f"{plan.schedule.name} (at most {limit} live)"


def _waves(plan: Plan) -> str:
    return "/".join(str(pipeline.num_micro_batches) for pipeline in plan.pipelines)


def _ahead(plan: Plan) -> str:
    most = [max(pipeline.run_ahead) for pipeline in plan.pipelines if pipeline.run_ahead]
    return "/".join(map(str, most)) if most else "as the schedule has them"


def cuts(plan: Plan) -> tuple[int, ...]:
    """Layers at which the model passes from one domain to another, over all pipelines."""
    return tuple(sorted({cut for pipeline in plan.pipelines for cut in _cuts_of(pipeline)}))


def _cuts_of(pipeline: Pipeline) -> list[int]:
    pairs = zip(pipeline.stages, pipeline.stages[1:], strict=False)
    return [after.layers[0] for before, after in pairs if before.domain != after.domain]


def placement(plan: Plan) -> str:
    """``beijing [0-24) -> guizhou [24-82)``; several pipelines are set apart by bars, equal ones said once."""
    return " | ".join(dict.fromkeys(_pipeline(pipeline) for pipeline in plan.pipelines))


def _pipeline(pipeline: Pipeline) -> str:
    spans: list[list[object]] = []
    for stage in pipeline.stages:
        if spans and spans[-1][0] == stage.domain:
            spans[-1][2] = stage.layers[1]
        else:
            spans.append([stage.domain, stage.layers[0], stage.layers[1]])
    return " -> ".join(f"{domain} [{start}-{stop})" for domain, start, stop in spans)


def moves_said(view: View, before: Plan, after: Plan) -> str:
    """``layers 24 to 30 from a to b``; without a range that changes domain: what is arranged anew."""
    try:
        found = diff(view.cache.problem, before, after)
    except InputError:
        return f"to {placement(after)}"
    told = [
        f"layers {each.layers[0]} to {each.layers[1] - 1} from {each.source} to {each.destination} "
        f"({gb(each.num_bytes)})"
        for each in found.moves
    ]
    if len(told) > MOST_LINKS:
        return f"{', '.join(told[:MOST_LINKS])} and {count(len(told) - MOST_LINKS, 'more range')}"
    return listed(told) or f"stages in {listed(found.rearranged or after.domains)} are arranged anew"


def answer_words(view: View, action: Action) -> str:
    """An answer as one does it: ``keep what runs``, ``move to a [0-3) -> b [3-6) by stopping``."""
    cache = view.cache
    if action.how is How.KEEP:
        return "keep what runs"
    if action.how is How.CANCEL:
        return "give up the move under way"
    after = cache.configurations[action.target].plan
    way = {How.STOP: " by stopping", How.BACKGROUND: " in the background"}.get(action.how, "")
    if view.running >= 0 and levers_alone(cache, view.running, action):
        return f"change {listed(changes(cache.configurations[view.running].plan, after)) or 'nothing that shows'}{way}"
    return f"move to {placement(after)}{way}"


# ---------------------------------------------------------------------------------------------------- what it is worth
def _worth(answer: Expected, keeping: Expected) -> Reason:
    return why.ExpectedWork(
        "keeping",
        answer.seconds,
        answer.net_tokens,
        keeping.net_tokens,
        answer.egress_usd,
        keeping.egress_usd,
    )


def _reward(view: View, answer: Expected, keeping: Expected) -> list[Reason]:
    """R_eff, R_util and R_cost of the answer against keeping, over what is left of the run."""
    if keeping.tokens <= 0 or answer.tokens <= 0:
        return []
    per_step = view.cache.tokens_per_step
    step_s, kept_s = (each.seconds * per_step / each.tokens for each in (answer, keeping))
    usd, kept_usd = (each.egress_usd * per_step / each.tokens for each in (answer, keeping))
    rent_usd = view.usd_per_token * per_step
    r_eff, r_util = (kept_s - step_s) / kept_s, answer.busy_s / answer.seconds
    r_cost = usd / (kept_usd or rent_usd or usd) if usd else 0.0  # as in ``score.score.reward``
    w_eff, w_util, w_cost = view.weights
    total = w_eff * r_eff + w_util * r_util - w_cost * r_cost
    parts, kept = (r_eff, r_util, r_cost, w_eff, w_util, w_cost, total), (kept_s, kept_usd, kept_usd + rent_usd)
    return [RewardParts("keeping", *parts, *kept, answer.seconds)]


def step_now_s(view: View, index: int) -> float:
    """Seconds of a step of a configuration as the network is known to be now; inf: it cannot run."""
    now = view.forecast
    arrays = (now.bandwidth_bytes_per_s[:1], now.latency_s[:1], now.compute[:1])
    return float(view.cache.step_time_s(index, *arrays)[0])


def link_names(view: View) -> tuple[str, ...]:
    """``a -> b`` of every link, (E,)."""
    return link_words(view.cache.problem)


def link_words(problem: Problem) -> tuple[str, ...]:
    """``a -> b`` of every link of a problem, (E,)."""
    return tuple(f"{link.source} -> {link.destination}" for link in problem.cluster.links)
