"""What else was possible: the runners-up, what would have to change for one to win, idle domains, local SGD.

A threshold keeps both plans as they are and changes one thing: bandwidth, latency or price, of one link or of all. It
is found by bisection on the simulator and confirmed by scoring both plans from scratch on either side. Where a
``DomainReplanner`` is at hand, both are planned anew for every change instead, over the domains they use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from math import inf, isfinite, log

import numpy as np

from hippo.decide.pace import activation_tokens_per_s, gpu_tokens_per_s, link_name, pair_rate_bytes_per_s
from hippo.decide.reasons import IdleDomain, NoSwitch, Reason, RunnerUp, Switch
from hippo.decide.what_if import Links, changed_links, crossing, scaled_link, sign_change, time_with_links
from hippo.decide.wording import described, joining, listed
from hippo.plan.plan import Plan
from hippo.planners.exact.replan import DomainReplanner, joining_of
from hippo.planners.exact.ways import Groups
from hippo.problem.cluster import Link
from hippo.problem.problem import Problem
from hippo.score.judge import Judged, evaluate, flaw, judge
from hippo.score.score import Score, objective_value, worse_by
from hippo.units import gbps_from_bytes_per_s, ms_from_s

WIDEST = 30.0  # thresholds are looked for within this factor either way
TOLERANCE = 0.005
WIDEST_ANEW = 16.0  # the same where both are planned anew, which takes longer
TOLERANCE_ANEW = 0.02
CONFIRM = 1.03  # a threshold is confirmed by scoring 3 % on either side of it


@dataclass(frozen=True)
class Knob:
    """One thing to change: a quantity of one link (its index; both ways: two), or of all links (none named)."""

    quantity: str  # "bandwidth", "latency" or "price"
    links: Links = ()

    def changed(self, problem: Problem, factor: float) -> Problem:
        """The problem with the knob multiplied by ``factor``."""
        edges = [problem.cluster.links[link] for link in self.links]
        chosen = {(edge.source, edge.destination) for edge in edges}

        def change(link: Link) -> Link:
            here = not chosen or (link.source, link.destination) in chosen
            return scaled_link(link, **{self.quantity: factor}) if here else link

        return changed_links(problem, change)


@dataclass(frozen=True, eq=False)
class Rivalry:
    """The chosen plan against one runner-up of the same problem; with a ``replanner``, domains against domains."""

    winner: Judged
    rival: Judged
    baseline: Plan | None = None
    replanner: DomainReplanner | None = None

    @cached_property
    def joinings(self) -> tuple[Groups, Groups] | None:
        """The domains of the rival and of the winner, where both are planned anew; None: the plans stay as they are."""
        problem = self.winner.problem
        if self.replanner is None or problem.objective.name != "time" or problem.objective.balance_delta is not None:
            return None
        rival, winner = (joining_of(problem, game.plan) for game in (self.rival, self.winner))
        return None if rival is None or winner is None else (rival, winner)

    def lead(self, knob: Knob, factor: float, *, played_too: bool = False) -> float:
        """Logarithm of the rival's step time over the winner's, both planned anew with the knob at ``factor``.

        By the bounds of the search, or as the best plans play.
        """
        assert self.joinings is not None
        assert self.replanner is not None
        changed = knob.changed(self.winner.problem, factor)
        seconds = self.replanner.step_time_s if played_too else self.replanner.bound_s
        rival, winner = (seconds(changed, joining) for joining in self.joinings)
        return log(rival / winner) if isfinite(rival) and isfinite(winner) else inf if isfinite(winner) else -inf

    def rival_wins(self, knob: Knob, factor: float) -> bool:
        """Whether the rival is better when the knob is multiplied by ``factor``; quick for the objective ``time``."""
        if self.winner.problem.objective.name != "time":
            return self.rival_wins_from_scratch(knob, factor)
        size = len(self.winner.program.link_latency_s)
        factors = np.ones(size)
        factors[list(knob.links or range(size))] = factor
        times = [time_with_links(game, **{knob.quantity: factors}) for game in (self.rival, self.winner)]
        return times[0] < times[1]

    def rival_wins_from_scratch(self, knob: Knob, factor: float) -> bool:
        """The same by scoring both plans, or playing the new ones, under the changed problem."""
        changed = knob.changed(self.winner.problem, factor)
        if self.joinings is not None and self.replanner is not None:
            rival, winner = (self.replanner.step_time_s(changed, joining) for joining in self.joinings)
        else:
            rival, winner = (
                value_from_scratch(changed, game.plan, self.baseline) for game in (self.rival, self.winner)
            )
        return rival < winner


def value_from_scratch(problem: Problem, plan: Plan, baseline: Plan | None) -> float:
    """Objective of a plan under a changed problem, scored anew; the baseline too where the reward needs it."""
    reference = None
    if problem.objective.name == "weighted" and baseline is not None:
        reference = evaluate(problem, baseline)
    return objective_value(problem.objective, evaluate(problem, plan, baseline=reference))


def runner_up_reasons(
    game: Judged,
    runners_up: Sequence[Judged],
    *,
    baseline: Plan | None,
    replanner: DomainReplanner | None = None,
) -> tuple[Reason, ...]:
    """The runners-up told, each followed by what would have to change for it to win (or, where it wins, to lose)."""
    reasons: list[Reason] = []
    for other in told(game.plan, runners_up):
        plan, theirs = other.plan, other.score
        worse, usd = worse_by(game.problem.objective, theirs, game.score), theirs.egress_usd_per_step
        reasons.append(RunnerUp(described(plan), plan.domains, joining(plan), theirs.step_time_s, usd, worse))
        pair = (game, other) if worse >= 0 else (other, game)
        reasons += switches(Rivalry(*pair, baseline, replanner))
    return tuple(reasons)


def told(plan: Plan, runners_up: Sequence[Judged]) -> list[Judged]:
    """The best runner-up, and where the plan crosses the best of the other sort: that stays in a domain, or crosses."""
    first, rest = list(runners_up[:1]), list(runners_up[1:])
    if len(plan.domains) == 1 or not first:
        return first + rest[:1]
    alone = len(first[0].plan.domains) == 1
    other = [item for item in rest if (len(item.plan.domains) == 1) != alone]
    return first + (other or rest)[:1]


def improved(
    winner: Judged, runners_up: Sequence[Judged], replanner: DomainReplanner | None, *, baseline: Score | None = None
) -> tuple[Judged, ...]:
    """The runners-up, of which those told are planned anew where that is better; the best first."""
    if replanner is None:
        return tuple(runners_up)
    problem, better = winner.problem, dict[Plan, Judged]()
    timed = replace(problem, objective=replace(problem.objective, name="time"))
    for other in told(winner.plan, runners_up):
        groups = joining_of(problem, other.plan)
        anew = None if groups is None else replanner.plan(timed, groups)
        if anew is not None and anew != winner.plan and flaw(problem, anew) is None:
            found = judge(problem, anew).under(problem, baseline=baseline)
            if worse_by(problem.objective, found.score, other.score) < 0:
                better[other.plan] = found
    every = [better.get(item.plan, item) for item in runners_up]
    return tuple(sorted(every, key=lambda item: objective_value(problem.objective, item.score)))


def switches(contest: Rivalry) -> tuple[Reason, ...]:
    """The smallest change of one link, and of all links, that let the rival win; ``NoSwitch`` where none does."""
    found = [(knob, factor) for knob in _knobs(contest) if (factor := threshold(contest, knob)) is not None]
    every = [item for item in found if not item[0].links]
    single = sorted((item for item in found if item[0].links), key=lambda item: abs(log(item[1])))[:1]
    told = single + sorted(every, key=lambda item: abs(log(item[1])))[: 2 if not single else 1]
    if told:
        return tuple(_switch(contest, knob, factor) for knob, factor in told)
    tried = tuple(sorted({knob.quantity for knob in _knobs(contest)}))
    return (NoSwitch(advice(contest), tried, WIDEST if contest.joinings is None else WIDEST_ANEW),)


def advice(contest: Rivalry) -> str:
    """What one does who goes over to the rival, after ``it pays to``: ``add c``, ``stay in a``, ``leave out b``."""
    winner, rival = contest.winner.plan, contest.rival.plan
    here, there = winner.domains, rival.domains
    more, less = ([name for name in one if name not in other] for one, other in ((there, here), (here, there)))
    way = "" if joining(rival) == joining(winner) else f" ({joining(rival)})"
    if len(there) == 1:
        return f"stay in {there[0]} alone" if there[0] in here else f"go to {there[0]} alone"
    if not more and not less:
        return f"join them otherwise, {joining(rival)}" if way else "take the runner-up"
    changes = [f"{verb} {listed(names)}" for verb, names in (("leave out", less), ("add", more)) if names]
    return " and ".join(changes) + way


def _knobs(contest: Rivalry) -> tuple[Knob, ...]:
    """What is tried: all links together, and those between each two domains that either plan loads most."""
    anew = contest.joinings is not None
    quantities = ["bandwidth"] if anew else ["bandwidth", "latency"]
    if contest.winner.problem.objective.name != "time":
        quantities.append("price")
    rival, winner = contest.rival.pairs_used, contest.winner.pairs_used
    if anew:  # a link that both use helps both: all links together say that
        both = set(rival) & set(winner)
        rival, winner = (tuple(links for links in one if links not in both) for one in (rival, winner))
    most = 1 if anew else 3
    loaded = dict.fromkeys((*rival[:most], *winner[:most]))
    if len(contest.rival.pairs_used) + len(contest.winner.pairs_used) == 1:
        quantities.remove("bandwidth")  # one link is all they use: all links together would say the same again
    return tuple(Knob(name) for name in quantities) + tuple(Knob("bandwidth", links) for links in loaded)


def threshold(contest: Rivalry, knob: Knob) -> float | None:
    """Factor nearest to 1 at which the rival starts to win, or None."""
    if contest.joinings is not None:
        return _nearest([_turn(contest, knob, end) for end in _ends_anew(contest, knob)])

    @cache
    def wins(factor: float) -> bool:
        return contest.rival_wins(knob, factor)

    return _nearest([crossing(wins, start=1.0, end=end, tolerance=TOLERANCE) for end in (WIDEST, 1 / WIDEST)])


def _turn(contest: Rivalry, knob: Knob, end: float) -> float | None:
    """Factor towards ``end`` at which the rival planned anew takes the lead: by bounds, then as played there."""
    by_bound = cache(partial(contest.lead, knob))
    found = sign_change(by_bound, end=end, tolerance=TOLERANCE_ANEW)
    if found is None:
        return None
    offset = contest.lead(knob, found, played_too=True) - by_bound(found)
    if not isfinite(offset) or abs(offset) < TOLERANCE_ANEW / 4:
        return found
    return sign_change(lambda factor: by_bound(factor) + offset, end=end, tolerance=TOLERANCE_ANEW)


def _nearest(factors: list[float | None]) -> float | None:
    return min((factor for factor in factors if factor is not None), key=lambda factor: abs(log(factor)), default=None)


def _ends_anew(contest: Rivalry, knob: Knob) -> tuple[float, ...]:
    """How far the knob is turned where both are planned anew: only the way that can help the rival.

    More bandwidth helps whoever uses the link; where both do, whoever uses more domains.
    """
    uses = [bool(knob.links) and set(knob.links) <= set(game.links_used) for game in (contest.rival, contest.winner)]
    more = [len(game.plan.domains) for game in (contest.rival, contest.winner)] if uses[0] == uses[1] else uses
    up, down = WIDEST_ANEW, 1 / WIDEST_ANEW
    return (up,) if more[0] > more[1] else (down,) if more[0] < more[1] else (up, down)


def _switch(contest: Rivalry, knob: Knob, factor: float) -> Switch:
    """The threshold in the unit of the link, confirmed on both sides by scoring from scratch."""
    beyond = factor * CONFIRM if factor > 1 else factor / CONFIRM
    before = factor / CONFIRM if factor > 1 else factor * CONFIRM
    verified = contest.rival_wins_from_scratch(knob, beyond) and not contest.rival_wins_from_scratch(knob, before)
    actual, unit = _actual(contest, knob)
    subject = link_name(contest.winner.problem.cluster, knob.links) if knob.links else "all links"
    anew = contest.joinings is not None
    return Switch(subject, advice(contest), knob.quantity, unit, actual, actual * factor, factor, verified, anew)


def _actual(contest: Rivalry, knob: Knob) -> tuple[float, str]:
    """Today's value of the knob and its unit; of all links together only where they are alike, else 1 (times today)."""
    links = contest.winner.problem.cluster.links
    if knob.links and knob.quantity == "bandwidth":
        game = contest.rival if knob.links[0] in contest.rival.links_used else contest.winner
        return gbps_from_bytes_per_s(pair_rate_bytes_per_s(game, knob.links) / links[knob.links[0]].goodput), "Gbit/s"
    values = {_in_unit(links[link], knob.quantity) for link in knob.links or range(len(links))}
    return next(iter(values)) if len(values) == 1 else (1.0, "x")


def _in_unit(link: Link, quantity: str) -> tuple[float, str]:
    """Bandwidth, latency or price of a link as people say it."""
    if quantity == "latency":
        return ms_from_s(link.latency_s), "ms"
    if quantity == "price":
        return link.price_usd_per_gb, "USD/GB"
    shared = link.bandwidth_bytes_per_s
    return (1.0, "x") if shared is None else (gbps_from_bytes_per_s(shared), "Gbit/s")


def idle_domains(game: Judged, runners_up: Sequence[Judged]) -> tuple[IdleDomain, ...]:
    """Every domain the plan leaves idle: its best link to the domains in use, and the best plan found that uses it."""
    problem, used = game.problem, set(game.plan.domains)
    needed, _ = gpu_tokens_per_s(game)
    reasons = []
    for domain in problem.cluster.domains:
        if domain.name in used:
            continue
        link, rate = _best_link(problem, domain.name, used)
        with_it = [other.step_time_s for other in runners_up if domain.name in other.plan.domains]
        carried = activation_tokens_per_s(problem.model.hidden, rate)
        best = min(with_it, default=None)
        reasons.append(IdleDomain(domain.name, domain.gpus, link, carried, needed, best, game.step_time_s))
    return tuple(reasons)


def _best_link(problem: Problem, name: str, used: set[str]) -> tuple[str | None, float]:
    """The link between ``name`` and a used domain whose slower direction is fastest, and that rate (bytes/s)."""
    best: tuple[str | None, float] = (None, 0.0)
    for other in sorted(used):
        there, back = problem.cluster.link(other, name), problem.cluster.link(name, other)
        if there is None or back is None:
            continue
        rates = [edge.rate_bytes_per_s(problem.cluster.domain(edge.source).nodes) for edge in (there, back)]
        if min(rates) > best[1]:
            slower = there if rates[0] <= rates[1] else back
            best = (f"{slower.source} -> {slower.destination}", min(rates))
    return best
