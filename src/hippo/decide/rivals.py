"""What else was possible: the runners-up, what would have to change for one to win, idle domains, local SGD.

Each alternative is searched as the answer was, from the answer's own tables (``DomainReplanner``), while the effort
lasts; what was found without that says so, and what the effort did not reach is told as left out. A threshold is an
interval: at one end the plan of the whole changed problem does as today, or at least not as the rival, at the other it
does as the rival. Without a ``DomainReplanner``, and where the objective is not time, both plans stay as they are, and
the limit is found by bisection on the simulator.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import islice, pairwise
from math import exp, inf, log

import numpy as np

from hippo.decide.pace import activation_tokens_per_s, gpu_tokens_per_s, link_name, pair_rate_bytes_per_s
from hippo.decide.reasons import IdleDomain, LeftOut, NoSwitch, Reason, RunnerUp, Switch
from hippo.decide.what_if import Links, changed_links, crossing, scaled_link, time_with_links
from hippo.decide.wording import Way, described, joining, listed, way_of
from hippo.plan.plan import Plan
from hippo.planners.base import Stop
from hippo.planners.effort import Effort
from hippo.planners.exact.replan import DomainReplanner
from hippo.planners.exact.space import Only
from hippo.planners.exact.thrift import EQUAL
from hippo.problem.cluster import Link
from hippo.problem.problem import Problem
from hippo.score.judge import Judged, evaluate, flaw, judge
from hippo.score.score import objective_value, worse_by
from hippo.units import gbps_from_bytes_per_s, ms_from_s

WIDEST = 30.0  # thresholds are looked for within this factor either way
TOLERANCE = 0.005
CONFIRM = 1.03  # a threshold of plans that stay as they are is confirmed by scoring 3 % on either side of it
WIDEST_ANEW = 16.0  # the same factor where whole plans are made for it,
ENDS = (WIDEST_ANEW, 1 / WIDEST_ANEW, WIDEST_ANEW**0.5, WIDEST_ANEW**-0.5)  # at these before it is said that none wins
WIDTH = 1.1  # most that the ends of an interval may differ
MORE = 4.0  # times today's bandwidth: what plans do there is told before other runners-up
STEPS = 16  # of the factors either way at which known plans are compared, to guess where an interval may lie
POOLED = 3  # plans of every factor that are compared at the others
SAFE = 1.045  # an interval is looked for this far on either side of the guess: a little less than half of WIDTH
WORK_S, WORK = 12.0, 1.2  # seconds of work, at most, and times the limit of planners that reasons may take for searches
FOR_OTHERS = 0.3  # share of it after which ways that are not told are left as they were found
HOPELESS = 1.5  # times the worth of the answer from which on another way is not searched, unless it is told
MOST_OF_A_WAY = 8  # whole plans made for one interval
MOST_IDLE = 10  # domains, of more no sets with idle ones are searched before an answer is settled: bounds of hundreds
# of sets take longer than the rest of the search
MOST_SETS = 4  # of domains that are searched for one idle domain
KEEP_PLAN, KEEP_DOMAINS = "keep this plan", "keep the domains of this plan"
SAME = 1e-4  # shares of time and price within which plans are as good: domains may be alike


def effort_of(stop: Stop) -> Effort:
    """What reasons of a plan that was searched for so long may take."""
    return Effort(min(WORK_S, WORK * stop.time_limit_s))


Priced = tuple[float, float, Plan]
"""Seconds and USD of a step, and its plan."""


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

    def factors(self, game: Judged, factor: float) -> dict[str, np.ndarray]:
        """What ``time_with_links`` takes, (E,)."""
        size = len(game.program.link_latency_s)
        factors = np.ones(size)
        factors[list(self.links or range(size))] = factor
        return {self.quantity: factors}


@dataclass(frozen=True)
class Bracket:
    """Between ``low`` and ``high``, factors, the first nearer to 1, it starts to pay to go over; ``settled``: they are
    as close as asked. ``high`` None: at no factor that was ``tried``."""

    low: float
    high: float | None
    settled: bool
    tried: tuple[float, ...] = ()


@dataclass(eq=False)
class Alternatives:
    """What else was possible beside the ``answer`` to a problem, searched while the ``effort`` lasts.

    ``known``: the best plans of other ways to join domains that the planners handed over, best first.
    """

    answer: Judged
    known: tuple[Judged, ...]
    replanner: DomainReplanner | None = None
    baseline: Judged | None = None
    effort: Effort = field(default_factory=lambda: Effort(WORK_S))  # no search begins once it is spent
    searched: set[Way] = field(default_factory=set)  # of ``known``, those that were searched like the answer
    better: Judged | None = None  # that joins domains as the answer does, found since
    _sets: set[Only] = field(default_factory=set)
    sweeps: dict[Knob, Sweep] = field(default_factory=dict)
    left: set[Only | Knob] = field(default_factory=set)  # of what was asked, that for which the effort did not last

    @cached_property
    def foreign(self) -> tuple[Plan, ...]:
        """Plans that the searches do not play by themselves: other planners', and orders made for the answer."""
        first = frozenset() if self.replanner is None else self.replanner.first
        return tuple(each.plan for each in (self.answer, *self.known) if each.plan not in first)

    @property
    def problem(self) -> Problem:
        """What was asked."""
        return self.answer.problem

    @property
    def anew(self) -> DomainReplanner | None:
        """Who makes whole plans of changed problems; None: plans stay as they are."""
        objective = self.problem.objective
        return self.replanner if objective.name == "time" and objective.balance_delta is None else None

    def search(self) -> tuple[Judged, ...]:
        """The known plans, best first, after a search of every idle domain, of the plans told, and of the others.

        It begins from the answer's own layout on all of its domains but one: levers that the answer has, compression
        for one, may lead the answer's search to poor plans of other ways.
        """
        if self.replanner is not None and not self.effort.over():
            for plan in self.replanner.without_each(self._planned, self.answer.plan, self.effort):
                self._learn(plan)
        for domain in self.problem.cluster.domains:
            if domain.name not in self.answer.plan.domains:
                self.best_with(domain.name)
        at = self.problem.cluster.domain_index
        for name in self.answer.plan.domains if len(self.answer.plan.domains) > 1 else ():
            self.over(Only(frozenset({at[name]}), 1))
        for _ in range(MOST_SETS):  # a search may find another plan to be told
            for other in self.told(self.answer):
                self.over(self._only(other.plan))
        for other in self.known:
            if not self.effort.over(FOR_OTHERS) and _value(other) < HOPELESS * _value(self.answer):
                self.over(self._only(other.plan))
        return self.known

    def settle(self) -> Judged:
        """The best of the answer and of all that would be told beside it, to be called before the answer is chosen.

        The sets of domains that ``search`` looks at, the answer's without each of its domains and itself are searched,
        only for what beats it.
        """
        at, used = self.problem.cluster.domain_index, self.answer.plan.domains
        rest = [frozenset(at[each] for each in used if each != name) for name in (None, *used)]
        sets = dict.fromkeys(Only(each) for each in rest if len(each) > 1)
        if self.replanner is not None:
            near = [frozenset(each.plan.domains) for each in (self.answer, *self.known)]
            for name in at if 1 < len(at) <= MOST_IDLE else ():
                if name not in used:
                    likely = islice(self.replanner.sets_with(name, near), MOST_SETS)
                    may = (only.domains for bound, only in likely if bound < _value(self.best))
                    sets |= dict.fromkeys(map(Only, may))
        close = [each for each in self.known if _value(each) < HOPELESS * _value(self.answer)]
        sets |= dict.fromkeys(Only(self._only(each.plan).domains) for each in close)
        for only in sets:
            self.over(only, below=_value(self.best))
        return self.best

    @property
    def best(self) -> Judged:
        """Of all plans; of equals the answer."""
        return min((self.answer, *([] if self.better is None else [self.better]), *self.known), key=_value)

    def beside(self, answer: Judged) -> Alternatives:
        """The same with another ``answer``: no set is searched again but those of which only what beat the last one
        was looked for."""
        every = sorted((self.best, self.answer, *self.known, answer), key=_value)
        ways: dict[Way, Judged] = {}
        for each in every:
            ways.setdefault(way_of(each.plan), each)
        ways.pop(way_of(answer.plan))
        known = tuple(sorted(ways.values(), key=self._rank))
        whole = {each for each in self._sets if each.groups is not None}
        return replace(self, answer=answer, known=known, better=None, _sets=whole, sweeps={})

    def over(self, only: Only, *, below: float = inf) -> bool:
        """Searches plans over a set of domains, only what is worth less than ``below``; whether that was done, now or
        before."""
        if only not in self._sets:
            if self.replanner is None:
                return False
            for _, plan in self.planned_anew(self.replanner, self._planned, only, below=below):
                self._learn(plan)
            if only in self.left:
                return False
            self._sets.add(only)
            if below == inf:
                self.searched |= {way_of(each.plan) for each in self.known if self._only(each.plan) == only}
        return True

    def planned_anew(
        self, replanner: DomainReplanner, problem: Problem, what: Only | Knob, *, below: float = inf
    ) -> tuple[tuple[float, Plan], ...]:
        """Plans of a problem, with their worth; none, or some, where effort does not last: then ``what`` is left."""
        self.left.add(what)
        if self.effort.over():
            return ()
        self.effort.cut = ""
        found = replanner.plans(problem, self.effort, what if isinstance(what, Only) else None, below=below)
        if not self.effort.cut:
            self.left.discard(what)
        return found

    @property
    def _planned(self) -> Problem:
        """The problem as it is searched: no search weighs objectives."""
        objective = self.problem.objective
        weighed = objective.name == "weighted"
        return replace(self.problem, objective=replace(objective, name="time")) if weighed else self.problem

    def _only(self, plan: Plan) -> Only:
        at = self.problem.cluster.domain_index
        groups = len({pipeline.domains for pipeline in plan.pipelines})
        return Only(frozenset(at[name] for name in plan.domains), groups)

    def _learn(self, plan: Plan) -> None:
        """Takes in a plan where it is the best of its way to join."""
        if flaw(self.problem, plan) is not None:
            return
        base = None if self.baseline is None else self.baseline.score
        found = judge(self.problem, plan).under(self.problem, baseline=base)
        if way_of(plan) == way_of(self.answer.plan):
            self.better = min([self.better or self.answer, found], key=_value)
            return
        others = [each for each in self.known if way_of(each.plan) != way_of(plan)]
        same = [each for each in self.known if way_of(each.plan) == way_of(plan)]
        self.known = tuple(sorted([*others, min([*same, found], key=_value)], key=self._rank))

    def _rank(self, found: Judged) -> tuple[float, int, int]:
        """Its worth; among equals those come first that use few domains which the answer does not, then by place."""
        at, mine = self.problem.cluster.domain_index, self.answer.plan.domains
        new = [name not in mine for name in found.plan.domains]
        return float(f"{_value(found):.6g}"), sum(new), min(at[name] for name in found.plan.domains)

    def told(self, game: Judged) -> list[Judged]:
        """The plans told beside ``game``: see the function ``told``."""
        every = sorted((self.answer, *self.known), key=self._rank)
        rivals = [each for each in every if each.plan != game.plan and not self._twin(each, game)]
        likely: frozenset[Way] = frozenset()
        if self.anew is not None and self.sweep(Knob("bandwidth")).plan(MORE):
            likely = self.sweep(Knob("bandwidth")).points[MORE]
        return told(game.plan, rivals, likely)

    def _twin(self, one: Judged, other: Judged) -> bool:
        """Whether two plans do the same, each in domains of its own that are alike."""
        kinds = [sorted(self.problem.cluster.domain(name).nodes for name in each.plan.domains) for each in (one, other)]
        same = abs(_value(one) - _value(other)) <= SAME * abs(_value(other))
        return same and joining(one.plan) == joining(other.plan) and kinds[0] == kinds[1]

    def best_with(self, name: str) -> tuple[Judged | None, bool]:
        """The best plan that uses this domain, and whether every set of domains that could hold a better one was
        searched."""
        whole = self.replanner is not None
        near = [frozenset(each.plan.domains) for each in (self.answer, *self.known)]
        sets = () if self.replanner is None else self.replanner.sets_with(name, near)
        for done, (bound, only) in enumerate(sets):
            best = self._best_with(name)
            least = inf if best is None else _value(best)
            if bound >= least:
                break
            if done >= MOST_SETS or not self.over(only, below=least if only.groups is None else inf):
                whole = False
                break
        return self._best_with(name), whole

    def _best_with(self, name: str) -> Judged | None:
        return min((each for each in self.known if name in each.plan.domains), key=_value, default=None)

    def sweep(self, knob: Knob) -> Sweep:
        """Whole plans with this knob changed."""
        if knob not in self.sweeps:
            self.sweeps[knob] = Sweep(self, knob)
        return self.sweeps[knob]


def _value(found: Judged) -> float:
    return objective_value(found.problem.objective, found.score)


@dataclass(eq=False)
class Sweep:
    """Whole plans of a problem whose links are changed by one knob, at several factors."""

    others: Alternatives
    knob: Knob
    points: dict[float, frozenset[Way]] = field(default_factory=dict)  # factor to what its plan does, or any as good
    planned: dict[float, list[Priced]] = field(default_factory=dict)  # the best that were found at a factor
    pool: dict[Plan, Judged] = field(default_factory=dict)  # plans found anywhere, under the links of today
    _times: dict[tuple[Plan, float], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        others = self.others
        self.points[1.0] = frozenset({way_of(others.answer.plan)})
        self.pool |= {each.plan: each for each in (others.answer, *others.known)}

    def plan(self, factor: float) -> bool:
        """Makes the plan at a factor; False: no plans are left."""
        if factor in self.points:
            return True
        others = self.others
        if others.anew is None:
            return False
        changed = self.knob.changed(others.problem, factor)
        found = list(others.planned_anew(others.anew, changed, self.knob))
        if self.knob in others.left:
            return False
        known = (judge(changed, plan) for plan in others.foreign if flaw(changed, plan) is None)
        found = sorted([*found, *((each.step_time_s, each.plan) for each in known)], key=lambda item: item[0])
        if not found:
            return False
        self.planned[factor] = self._close(changed, found)
        self.points[factor] = best_ways(self.planned[factor])
        for _, plan in found[:POOLED]:
            if plan not in self.pool:
                self.pool[plan] = judge(others.problem, plan)
        self._confirmed((factor,))
        return True

    def _close(self, changed: Problem, found: Sequence[tuple[float, Plan]]) -> list[Priced]:
        """Of plans with their seconds under changed links those near the quickest."""
        least = min(seconds for seconds, _ in found)
        scores = [(evaluate(changed, plan), plan) for seconds, plan in found if seconds <= least * (1 + 2 * EQUAL)]
        return [(score.step_time_s, score.usd_per_step, plan) for score, plan in scores]

    def _confirmed(self, factors: Iterable[float]) -> bool:
        """Whether plans found elsewhere, at any factor of any knob, leave what is best at these factors as it is; where
        they do not, they count from now on."""
        before, pools = dict(self.points), [sweep.pool for sweep in self.others.sweeps.values()]
        every = {plan: game for pool in pools for plan, game in pool.items()}
        for factor in factors:
            changed = self.knob.changed(self.others.problem, factor)
            here = [(seconds, plan) for seconds, _, plan in self.planned[factor]]
            known = {plan for _, plan in here}
            quick = min(seconds for seconds, _ in here) * (1 + 2 * EQUAL)
            timed = [(self._seconds(game, factor), plan) for plan, game in every.items() if plan not in known]
            sound = [each for each in timed if each[0] <= quick and flaw(changed, each[1]) is None]
            if sound:
                self.planned[factor] = self._close(changed, [*here, *sound])
                self.points[factor] = best_ways(self.planned[factor])
        return before == self.points

    def _seconds(self, game: Judged, factor: float) -> float:
        """Step of a plan of today at a factor."""
        if (game.plan, factor) not in self._times:
            self._times[game.plan, factor] = time_with_links(game, **self.knob.factors(game, factor))
        return self._times[game.plan, factor]

    def _goes(self, factor: float, way: Way, found: frozenset[Way] | None = None) -> bool:
        """Whether the plan at a factor is of this way, and no plan of today's is as good."""
        ways = self.points[factor] if found is None else found
        return way in ways and way_of(self.others.answer.plan) not in ways

    def interval(self, way: Way, ends: Sequence[float] = ENDS) -> Bracket:
        """Where plans start to be of this way, nearest to today; looked for up to these ``ends``."""
        low, high, missed = min((1.0, *ends)), max((1.0, *ends)), False
        for _ in range(MOST_OF_A_WAY):
            bracket = self._bracket(way, low, high)
            if bracket is not None and abs(log(bracket[1] / bracket[0])) <= log(WIDTH) + 1e-9:
                if self._confirmed(self._tried):
                    return Bracket(*bracket, settled=True, tried=self._tried)
                continue
            if bracket is None:
                target = self._likely(way, low, high, ends)
            else:
                target = (bracket[0] * bracket[1]) ** 0.5 if missed else self._between(way, *bracket)
            if target is None:
                if self._confirmed(self._tried):
                    return Bracket(1.0, None, settled=True, tried=self._tried)
                continue
            guess = self._guess(target, way)
            if not self.plan(target):
                break
            missed = guess != self._goes(target, way)
        bracket = self._bracket(way, low, high)
        if bracket is None:
            settled = all(end in self.points for end in ends) and self._confirmed(self._tried)
            return Bracket(1.0, None, settled=settled, tried=self._tried)
        return Bracket(*bracket, settled=False, tried=self._tried)

    @property
    def _tried(self) -> tuple[float, ...]:
        return tuple(sorted(each for each in self.points if each != 1.0))

    def _bracket(self, way: Way, low: float, high: float) -> tuple[float, float] | None:
        """The factor of this way nearest to today, and the one before it, which is not; None: there is none."""
        hits = [factor for factor in self.points if self._goes(factor, way) and low <= factor <= high]
        if not hits:
            return None
        nearest = min(hits, key=lambda factor: abs(log(factor)))
        side = [each for each in self.points if abs(log(each)) < abs(log(nearest)) and log(each) * log(nearest) >= 0]
        return max(side, key=lambda each: abs(log(each))), nearest

    def _between(self, way: Way, inner: float, outer: float) -> float:
        """Where to plan next inside a bracket: on either side of where the known plans change over, else its middle."""
        a, b, safe = log(inner), log(outer), log(SAFE) * (1 if outer > inner else -1)
        guess = self._turn(way, inner, outer)
        middle = 0.5 * (a + b)
        if guess is None:
            return exp(middle)
        inside = (each for each in (guess + safe, guess - safe) if min(abs(each - a), abs(each - b)) > abs(safe) / 2)
        return exp(next((each for each in inside if min(a, b) < each < max(a, b)), middle))

    def _turn(self, way: Way, inner: float, outer: float) -> float | None:
        """Logarithm of the factor from which on the known plans go this way; None: they do so on both sides, or on
        neither."""
        if self._guess(inner, way) or not self._guess(outer, way):
            return None
        found = crossing(lambda factor: self._guess(factor, way), start=inner, end=outer, tolerance=0.01)
        return None if found is None else log(found)

    def _likely(self, way: Way, low: float, high: float, ends: Sequence[float]) -> float | None:
        """Where known plans go this way, nearest to today, away from what is planned; then the ends; None: all are."""
        grid = np.exp(np.linspace(0.0, log(WIDEST_ANEW), STEPS + 1))
        for before, here in pairwise(grid.tolist()):
            for inner, outer in ((before, here), (1 / before, 1 / here)):
                if low <= outer <= high and not self._near(outer) and self._guess(outer, way):
                    turn = self._turn(way, inner, outer)
                    safe = log(SAFE) if outer > 1 else -log(SAFE)
                    target = outer if turn is None else exp(turn + safe)
                    return target if low <= target <= high and not self._near(target) else outer
        return next((end for end in ends if end not in self.points), None)

    def _near(self, factor: float) -> bool:
        return any(abs(log(factor / each)) < 0.5 * log(WIDTH) for each in self.points)

    def _guess(self, factor: float, way: Way) -> bool:
        """``_goes`` by the best of the known plans, as they are."""
        rows = []
        for plan, game in self.pool.items():
            seconds, score = self._seconds(game, factor), game.score
            rent = (score.usd_per_step - score.egress_usd_per_step) * seconds / score.step_time_s
            rows.append((seconds, rent + score.egress_usd_per_step, plan))
        return self._goes(factor, way, best_ways(rows))


def best_ways(rows: Sequence[Priced]) -> frozenset[Way]:
    """Of (seconds, USD, plan) the ways of the cheapest of those that are as quick as the quickest, and of any as
    good."""
    quickest = min(row[0] for row in rows)
    equal = [row for row in rows if row[0] <= quickest * (1 + EQUAL)]
    seconds, usd, _ = min(equal, key=lambda row: (row[1], row[0]))
    limits = seconds * (1 + SAME), usd * (1 + SAME)
    return frozenset(way_of(plan) for own_s, price, plan in equal if own_s <= limits[0] and price <= limits[1])


@dataclass(frozen=True, eq=False)
class Rivalry:
    """The chosen plan against one runner-up of the same problem, both as they are."""

    winner: Judged
    rival: Judged
    baseline: Plan | None = None

    def rival_wins(self, knob: Knob, factor: float) -> bool:
        """Whether the rival is better when the knob is multiplied by ``factor``; quick for the objective ``time``."""
        if self.winner.problem.objective.name != "time":
            return self.rival_wins_from_scratch(knob, factor)
        times = [time_with_links(game, **knob.factors(game, factor)) for game in (self.rival, self.winner)]
        return times[0] < times[1]

    def rival_wins_from_scratch(self, knob: Knob, factor: float) -> bool:
        """The same by scoring both plans under the changed problem."""
        changed = knob.changed(self.winner.problem, factor)
        rival, winner = (value_from_scratch(changed, game.plan, self.baseline) for game in (self.rival, self.winner))
        return rival < winner


def value_from_scratch(problem: Problem, plan: Plan, baseline: Plan | None) -> float:
    """Objective of a plan under a changed problem, scored anew; the baseline too where the reward needs it."""
    reference = None
    if problem.objective.name == "weighted" and baseline is not None:
        reference = evaluate(problem, baseline)
    return objective_value(problem.objective, evaluate(problem, plan, baseline=reference))


def runner_up_reasons(others: Alternatives, game: Judged | None = None) -> tuple[Reason, ...]:
    """The runners-up told, each followed by what would have to change for it to win.

    ``game``: the plan that they stand beside, where it is not the answer; one that is better than it says what would
    have to change for ``game`` to win.
    """
    reasons: list[Reason] = []
    game = others.answer if game is None else game
    beside = [(other, *sorted((game, other), key=_value)) for other in others.told(game)]
    for _, *pair in beside if others.anew is not None else ():
        switches(others, *pair)  # plans found for one may change what is told of another: all are confirmed below
    for other, *pair in beside:
        plan, theirs = other.plan, other.score
        worse = worse_by(game.problem.objective, theirs, game.score)
        figures = theirs.step_time_s, theirs.usd_per_step, theirs.egress_usd_per_step
        searched = way_of(plan) in others.searched or other is others.answer
        better = game is others.answer and worse < -EQUAL
        used = {*plan.domains, *(relay.via for relay in plan.relays)}
        without = tuple(each.name for each in game.problem.cluster.domains if each.name not in used)
        who = described(plan), plan.domains, joining(plan)
        reasons.append(RunnerUp(*who, *figures, worse, searched, beats_answer=better, without=without))
        changes = switches(others, *pair)
        reasons += changes if pair[0] is game else [_kept(change) for change in changes]
    return tuple(reasons)


def _kept(change: Reason) -> Reason:
    """The same change, told to who has the plan that is worse: to keep it is what starts to pay."""
    if isinstance(change, Switch):
        return replace(change, runner_up=KEEP_DOMAINS if change.planned_anew else KEEP_PLAN)
    return replace(change, subject=KEEP_DOMAINS if isinstance(change, NoSwitch) and change.planned_at else KEEP_PLAN)


def told(plan: Plan, runners_up: Sequence[Judged], likely: frozenset[Way] = frozenset()) -> list[Judged]:
    """The best runner-up, and where the plan crosses the best of the other sort: that stays in a domain, or crosses.

    Of the latter one of the ``likely`` ways, where there is one: what plans with more bandwidth do.
    """
    first, rest = list(runners_up[:1]), list(runners_up[1:])
    if len(plan.domains) > 1 and first:
        alone = len(first[0].plan.domains) == 1
        rest = [item for item in rest if (len(item.plan.domains) == 1) != alone] or rest
    return first + ([item for item in rest if way_of(item.plan) in likely] or rest)[:1]


def switches(others: Alternatives, winner: Judged, rival: Judged) -> tuple[Reason, ...]:
    """Where it starts to pay to do as the rival: of all links together, and of the link that tells most."""
    if others.anew is None or way_of(rival.plan) == way_of(others.answer.plan):
        return switches_as_they_are(Rivalry(winner, rival, None if others.baseline is None else others.baseline.plan))
    told, links = [], _links_apart(winner, rival)
    if len(winner.pairs_used) + len(rival.pairs_used) != 1:  # else all links together would say the same again
        told.append(_between(others, winner, rival, Knob("bandwidth"), ENDS))
    ends = tuple(end for end in ENDS if links and (end > 1) == (links[0] in rival.links_used))[:1]
    if links:
        told.append(_between(others, winner, rival, Knob("bandwidth", links), ends))
    return tuple(told)


def _links_apart(winner: Judged, rival: Judged) -> Links:
    """The links between two domains that the rival loads most, or the winner, and the other does not use; else none."""
    for mine, theirs in ((rival.pairs_used, winner.pairs_used), (winner.pairs_used, rival.pairs_used)):
        apart = [links for links in mine if links not in theirs]
        if apart:
            return apart[0]
    return ()


def _between(others: Alternatives, winner: Judged, rival: Judged, knob: Knob, ends: Sequence[float]) -> Reason:
    """What the whole plans at several factors of the knob say of going over to the rival."""
    found = others.sweep(knob).interval(way_of(rival.plan), ends)
    subject, todo = _subject(winner, knob), advice(winner.plan, rival.plan)
    if found.high is None and not found.settled:  # effort is spent: what the two plans do as they are
        contest = Rivalry(winner, rival)
        factor = threshold(contest, knob)
        if factor is not None:
            return _switch(contest, knob, factor)
        if not found.tried:
            return NoSwitch(todo, (knob.quantity,), WIDEST, subject if knob.links else "")
    if found.high is None:
        on = subject if knob.links else ""
        return NoSwitch(todo, (knob.quantity,), WIDEST_ANEW, on, found.tried, found.settled)
    actual, unit = _actual(knob, winner, rival)
    factor = (found.low * found.high) ** 0.5
    limits = actual * factor, factor, found.settled, True, actual * found.low, actual * found.high
    return Switch(subject, todo, knob.quantity, unit, actual, *limits)


def _subject(game: Judged, knob: Knob) -> str:
    return link_name(game.problem.cluster, knob.links) if knob.links else "all links"


def switches_as_they_are(contest: Rivalry) -> tuple[Reason, ...]:
    """The smallest change of one link, and of all links, that let the rival win as it is; ``NoSwitch`` where none
    does."""
    found = [(knob, factor) for knob in _knobs(contest) if (factor := threshold(contest, knob)) is not None]
    every = [item for item in found if not item[0].links]
    single = sorted((item for item in found if item[0].links), key=lambda item: abs(log(item[1])))[:1]
    told = single + sorted(every, key=lambda item: abs(log(item[1])))[: 2 if not single else 1]
    if told:
        return tuple(_switch(contest, knob, factor) for knob, factor in told)
    tried = tuple(sorted({knob.quantity for knob in _knobs(contest)}))
    return (NoSwitch(advice(contest.winner.plan, contest.rival.plan), tried, WIDEST),)


def advice(winner: Plan, rival: Plan) -> str:
    """What one does who goes over to the rival, after ``it pays to``: ``add c``, ``stay in a``, ``leave out b``."""
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
    quantities = ["bandwidth", "latency"]
    if contest.winner.problem.objective.name != "time":
        quantities.append("price")
    rival, winner = contest.rival.pairs_used, contest.winner.pairs_used
    loaded = dict.fromkeys((*rival[:3], *winner[:3]))
    if len(rival) + len(winner) == 1:
        quantities.remove("bandwidth")  # one link is all they use: all links together would say the same again
    return tuple(Knob(name) for name in quantities) + tuple(Knob("bandwidth", links) for links in loaded)


def threshold(contest: Rivalry, knob: Knob) -> float | None:
    """Factor nearest to 1 at which the rival, as it is, starts to win, or None."""

    @cache
    def wins(factor: float) -> bool:
        return contest.rival_wins(knob, factor)

    found = [crossing(wins, start=1.0, end=end, tolerance=TOLERANCE) for end in (WIDEST, 1 / WIDEST)]
    return min((each for each in found if each is not None), key=lambda factor: abs(log(factor)), default=None)


def _switch(contest: Rivalry, knob: Knob, factor: float) -> Switch:
    """The threshold in the unit of the link, confirmed on both sides by scoring from scratch."""
    low, high = (factor / CONFIRM, factor * CONFIRM)[:: 1 if factor > 1 else -1]
    verified = contest.rival_wins_from_scratch(knob, high) and not contest.rival_wins_from_scratch(knob, low)
    actual, unit = _actual(knob, contest.winner, contest.rival)
    subject, todo = _subject(contest.winner, knob), advice(contest.winner.plan, contest.rival.plan)
    limits = actual * factor, factor, verified, False, actual * low, actual * high
    return Switch(subject, todo, knob.quantity, unit, actual, *limits)


def _actual(knob: Knob, winner: Judged, rival: Judged) -> tuple[float, str]:
    """Today's value of the knob and its unit; of all links together only where they are alike, else 1 (times today)."""
    links = winner.problem.cluster.links
    if knob.links and knob.quantity == "bandwidth":
        game = rival if knob.links[0] in rival.links_used else winner
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


def left_out(others: Alternatives, local_sgd: bool) -> tuple[LeftOut, ...]:
    """What the effort did not reach, where that is anything; ``local_sgd``: neither did that of its own search."""
    sets = [each for each in others.left if isinstance(each, Only)]
    knobs = {_subject(others.answer, each) for each in others.left if isinstance(each, Knob)}
    if not (sets or knobs or local_sgd):
        return ()
    return (LeftOut("reasons", others.effort.limit_s, len(sets), tuple(sorted(knobs)), local_sgd),)


def idle_domains(others: Alternatives, game: Judged | None = None) -> tuple[IdleDomain, ...]:
    """Every domain the plan leaves idle: its best link to the domains in use, and the best plan found that uses it."""
    game = others.answer if game is None else game
    problem, used = game.problem, set(game.plan.domains)
    needed, _ = gpu_tokens_per_s(game)
    reasons = []
    for domain in problem.cluster.domains:
        if domain.name in used:
            continue
        link, rate = _best_link(problem, domain.name, used)
        best, searched = others.best_with(domain.name)
        carried, with_it = (
            activation_tokens_per_s(problem.model.hidden, rate),
            None if best is None else best.step_time_s,
        )
        alone = best is not None and len(best.plan.domains) == 1
        told = link, carried, needed, with_it, game.step_time_s, searched, alone
        reasons.append(IdleDomain(domain.name, domain.gpus, *told))
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
