"""Which plan: runs planners, keeps the best, all judged alike, by the problem's objective.

``decide`` lies below the registry: planners come as arguments, names are resolved above. The order of the planners
is the order in which they run, and breaks ties.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from time import process_time

from hippo.decide.best_order import passed
from hippo.decide.decision import Baseline, Decision, PlannerRow
from hippo.decide.explain import Context, explain
from hippo.decide.local_sgd import if_allowed
from hippo.decide.reasons import Dropped, Note
from hippo.decide.rivals import WORK_S, Alternatives, effort_of
from hippo.decide.shortfall import shortfall
from hippo.decide.wording import Way, count, listed, percent, usd, way_of
from hippo.plan.plan import Plan
from hippo.planners.answers import answer_of, at_degree
from hippo.planners.base import Planner, Progress, Proposal, Status, Stop
from hippo.planners.effort import Effort
from hippo.planners.exact.front import MARGIN
from hippo.planners.exact.layouts import shards_weights_across
from hippo.planners.exact.replan import DomainReplanner
from hippo.planners.exact.search import GAP_OPEN, SETTLED
from hippo.planners.exact.thrift import EQUAL
from hippo.problem.objective import for_time
from hippo.problem.problem import Problem
from hippo.score.judge import Judged, flaw, judge
from hippo.score.score import Score, objective_value

LOG = logging.getLogger(__name__)
SHORTFALL_S = 5.0  # the most seconds of work spent on what is missing when nothing fits; usually it takes one
MOST_RUNNERS_UP = 8
ORDER_SHARE = 0.2  # of the time limit, beside that of the search, for a better order of each planner's plan
EXACT = "exact"  # whose search ``Panel.thrift`` goes on from
WEIGHED = "front"  # the name in a row of plans weighed one by one
CLOSE = 1e-6  # gaps below this are none
MOST_ANSWERS = 4  # plans in a row that are settled on, each better than the one before
SEARCHED_ON = "Sets of domains were searched one by one, as the gap was open: one of them has a better plan."
COMPRESSED = (
    "Activations and their gradients cross domains in eight bits (--allow-compression), which changes what is trained; "
    "the step time counts none of it."
)


Search = Callable[[Problem, list[Judged], Stop, Progress | None], tuple[list[Judged], bool]]
"""Known plans in, those and others out, and whether every plan of its space is as good as met (``exact.front``)."""
Thrift = Callable[[Problem, Stop], Judged | None]
"""The cheapest plan about as quick as the quickest of the search that was just made (``exact.thrift``)."""
Order = Callable[[Proposal, float, int, float], Proposal]
"""A judged proposal, seconds of work, a seed and what it must beat (seconds of a step) in; the proposal with a better
order of its plan out (``best_order``)."""


@dataclass(frozen=True)
class Panel:
    """Who is asked.

    ``baseline``: whose plan rewards are measured against, the first that finds one; they compete only where they also
    stand in ``planners``. ``local_sgd`` is asked what it would give where the problem does not allow it. ``replanner``
    plans the domains of winner and runners-up anew for other links; without it their plans stay as they are. ``search``
    looks for plans that none beats where the objective weighs time, utilisation and egress. ``thrift`` looks for a
    cheaper plan about as quick as the exact search's, where time is the objective. ``order`` orders the operations of
    every planner's plan once more.
    """

    planners: tuple[Planner, ...]
    baseline: tuple[Planner, ...] = ()
    local_sgd: Planner | None = None
    replanner: type[DomainReplanner] | None = None
    search: Search | None = None
    thrift: Thrift | None = None
    order: Order | None = None


def decide(
    problem: Problem,
    planners: Sequence[Planner],
    stop: Stop,
    *,
    baseline: Sequence[Planner] = (),
    local_sgd: Planner | None = None,
    replanner: type[DomainReplanner] | None = None,
    search: Search | None = None,
    thrift: Thrift | None = None,
    order: Order | None = None,
    everyone: bool = False,
    why: bool = True,
    seed: int = 0,
    progress: Progress | None = None,
) -> Decision:
    """The best plan that the planners find, with reasons (``why``; where none fits, with them in any case).

    Planners run in order while work is left; once one has proven its plan within ``stop.gap`` (or ``SETTLED``), those
    after it are asked only for the sake of comparison (``everyone``). Searches for reasons may take about as long
    again. Infeasible is an answer: ``status`` says so, and the reasons say what is missing. ``baseline``,
    ``local_sgd``, ``replanner``, ``search``, ``thrift`` and ``order``: see ``Panel``.
    """
    panel = Panel(tuple(planners), tuple(baseline), local_sgd, replanner, search, thrift, order)
    found = choose(problem, panel, stop, everyone=everyone, seed=seed, progress=progress)
    return with_reasons(found, panel, stop, seed=seed) if why or found.judged is None else found


def compare(
    problem: Problem,
    planners: Sequence[Planner],
    stop: Stop,
    *,
    baseline: Sequence[Planner] = (),
    local_sgd: Planner | None = None,
    replanner: type[DomainReplanner] | None = None,
    thrift: Thrift | None = None,
    order: Order | None = None,
    why: bool = True,
    seed: int = 0,
    progress: Progress | None = None,
) -> Decision:
    """Like ``decide``, but every planner is asked, each with the whole limit; ``rows`` keep the order given."""
    panel = Panel(tuple(planners), tuple(baseline), local_sgd, replanner, thrift=thrift, order=order)
    asking = _Hearing(problem, panel, stop, seed, progress)
    against = asking.first_plan(panel.baseline)
    proposals = [asking.ask(planner, stop.time_limit_s) for planner in panel.planners]
    spent_s = sum(each.work_s for each in proposals if each.planner == EXACT)
    found = _settled(asking, proposals, against, stop.time_limit_s - spent_s)
    return with_reasons(found, panel, stop, seed=seed) if why or found.judged is None else found


def choose(
    problem: Problem,
    panel: Panel,
    stop: Stop,
    *,
    everyone: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
) -> Decision:
    """``decide`` without its reasons; ``everyone``: planners after a proof are asked, too."""
    asking = _Hearing(problem, panel, stop, seed, progress, everyone=everyone)
    against = asking.first_plan(panel.baseline)
    proposals: list[Proposal] = []
    for planner in panel.planners:
        if proposals and ((not everyone and proposals[-1].planner in asking.settled) or asking.effort.over()):
            break
        proposals.append(asking.ask(planner, asking.effort.left_s))
    if problem.objective.name == "weighted" and panel.search is not None:
        left = replace(stop, time_limit_s=asking.effort.left_s)
        proposals.append(_weighed(problem, panel.search, proposals, left, progress))
    return replace(_settled(asking, proposals, against, asking.effort.left_s), unasked=asking.effort.cut)


def _settled(asking: _Hearing, proposals: list[Proposal], against: Baseline | None, left_s: float) -> Decision:
    """The best of the proposals and of what reasons would tell beside it, which is searched first where a better plan
    may exist: several domains, and a proven gap that is open.

    What is found is counted as the exact search's, whose tables and plans it goes on from; ``left_s``: work that it
    may take.
    """
    problem, stop = asking.problem, asking.stop
    decision = _best(problem, proposals, against)
    at = next((index for index, each in enumerate(proposals) if each.planner == EXACT), None)
    best, limit_s = decision.judged, min(WORK_S, left_s)
    proven = decision.gap is not None and decision.gap <= max(stop.gap, EQUAL)
    if proven or best is None or at is None or asking.panel.replanner is None or limit_s <= 0:
        return decision
    if len(problem.cluster.domains) < 2 or problem.objective.name != "time":
        return decision
    began = process_time()
    alike = at_degree(problem, best.plan)
    replanner = asking.panel.replanner.of(alike, best.plan)
    base = None if against is None else against.best
    others = Alternatives(best.under(alike), decision.runners_up, replanner, base, Effort(limit_s))
    exact = proposals[at]
    for _ in range(MOST_ANSWERS):
        found = others.settle()
        if found.step_time_s * (1.0 + EQUAL) >= others.answer.step_time_s:
            break
        ordered = judged(problem, asking.ordered(Proposal(EXACT, Status.FEASIBLE, found.under(problem))))
        bound = exact.lower_bound_s
        gap = None if bound is None else max(0.0, 1.0 - bound / found.step_time_s)
        known = tuple(each.under(problem) for each in (others.answer, *others.known))
        told = replace(ordered, gap=gap, lower_bound_s=bound, runners_up=known, degrees=exact.degrees)
        notes = (*asking.notes[EXACT], *ordered.notes, SEARCHED_ON)
        told = replace(told, notes=notes, rejected=exact.rejected, cut_short=exact.cut_short)
        proposals = [*proposals[:at], told, *proposals[at + 1 :]]
        decision = _best(problem, proposals, against)
        assert decision.judged is not None, "there was a plan before"
        others = others.beside(decision.judged.under(alike))
    asking.effort.spend(others.effort.spent_s)
    planning_s, work_s = exact.planning_s + process_time() - began, exact.work_s + others.effort.spent_s
    row = replace(decision.rows[at], planning_s=planning_s, work_s=work_s)
    rows = (*decision.rows[:at], row, *decision.rows[at + 1 :])
    others.effort.limit_s = effort_of(stop).limit_s
    others.left.clear()
    return replace(decision, rows=rows, planning_s=sum(row.planning_s for row in rows), others=others)


def _weighed(
    problem: Problem, search: Search, proposals: Sequence[Proposal], stop: Stop, progress: Progress | None
) -> Proposal:
    """The plans that none beats in time, utilisation and egress: the best reward of all is among them."""
    began = process_time()
    timed = replace(problem, objective=replace(problem.objective, name="time"))
    asked = (judged(problem, proposal).best for proposal in proposals)
    known = {found.plan: found.under(timed) for found in sound(problem, asked)}
    found, closed = search(timed, list(known.values()), stop, progress)
    if not found:
        return Proposal(WEIGHED, Status.INFEASIBLE)
    weighed = f"It weighed {count(len(found), 'plan')}"
    left_out = ["chunks"] if problem.rules.interleave else []
    left_out += ["weights sharded over domains"] if shards_weights_across(problem) else []
    without = f" without {listed(left_out, 'or')}" if left_out else ""
    beats = f"beats all of them by more than {percent(MARGIN)} in time, utilisation or egress"
    unbeaten = f"no plan{without} that exact knows {beats}"
    note = f"{weighed}; {unbeaten}." if closed else f"{weighed}, then time ran out."
    first, *others = found
    spent_s = process_time() - began
    return Proposal(WEIGHED, Status.FEASIBLE, first, planning_s=spent_s, runners_up=tuple(others), notes=(note,))


def with_reasons(decision: Decision, panel: Panel, stop: Stop, *, seed: int = 0) -> Decision:
    """The decision with its reasons, timed: why this plan, or what is missing where there is none."""
    began = process_time()
    found = _with_reasons(decision, panel, stop, seed)
    return replace(found, reasons_s=process_time() - began)


def _with_reasons(decision: Decision, panel: Panel, stop: Stop, seed: int) -> Decision:
    problem, best = decision.problem, decision.judged
    dropped = tuple(Dropped(row.planner, row.dropped) for row in decision.rows if row.dropped is not None)
    notes = tuple(note for row in decision.rows if row.planner in (decision.planner, WEIGHED) for note in row.notes)
    if best is None:
        limit_s = min(SHORTFALL_S, stop.time_limit_s)
        missing = shortfall(problem, panel.planners[0], limit_s=limit_s, seed=seed)
        told = tuple(Note(decision.planner, note) for note in notes)
        return replace(decision, reasons=missing + told + dropped)
    others = decision.others
    if others is None:
        alike = at_degree(problem, best.plan)
        anew = None if panel.replanner is None else panel.replanner.of(alike, best.plan)
        against = None if decision.baseline is None else decision.baseline.best
        others = Alternatives(best.under(alike), decision.runners_up, anew, against, effort_of(stop))
    replanner = others.replanner
    decision = replace(decision, runners_up=others.search())
    effort = effort_of(stop)
    local_sgd = if_allowed(decision, panel.local_sgd, seed, replanner=replanner, effort=effort)
    context = Context(
        planner=decision.planner,
        gap=decision.gap,
        lower_bound_s=decision.lower_bound_s,
        prover=decision.prover,
        notes=notes,
        rejected=decision.rejected,
        degrees=next((row.degrees for row in decision.rows if row.planner == decision.planner), ()),
        others=others,
        baseline=decision.baseline,
        local_sgd=local_sgd,
        local_sgd_searched=replanner is not None and not effort.cut,
        local_sgd_left=local_sgd is not None and bool(effort.cut),
    )
    reasons = explain(best, context) + dropped
    return replace(decision, reasons=reasons, runners_up=others.known, searched=frozenset(others.searched))


class _Hearing:
    """Asks planners about one problem, each at most once, and counts their work."""

    def __init__(
        self,
        problem: Problem,
        panel: Panel,
        stop: Stop,
        seed: int,
        progress: Progress | None,
        *,
        everyone: bool = True,
    ) -> None:
        self.everyone = everyone  # whether rows are compared, else only the best plan is wanted
        self.problem, self.panel, self.stop, self.seed, self.progress = problem, panel, stop, seed, progress
        self.settled: set[str] = set()  # planners who have proven that there is next to nothing to gain
        self.ordering = problem.objective.name != "weighted"  # nobody is ordered anew where more than time is weighed
        self.effort = Effort.of(stop)
        self.notes: dict[str, tuple[str, ...]] = {}  # of each planner, before its plan was ordered
        self._answers: dict[str, Proposal] = {}

    def ask(self, planner: Planner, limit_s: float) -> Proposal:
        """The planner's proposal; asked again, the same."""
        if planner.name not in self._answers:
            stop = replace(self.stop, time_limit_s=max(limit_s, 0.0))
            watch = self._watcher(planner.name)
            found = answer_of(planner, self.problem, stop, seed=self.seed, progress=watch)
            for each in (found, *found.asked):
                told = "" if each.gap is None else f", within {percent(each.gap)} of the optimum"
                LOG.info("%s: %s after %.2f CPU s%s", each.planner, each.status.value, each.planning_s, told)
            self.effort.spend(found.work_s)
            self.settled |= {planner.name} if _closed(found, self.stop) else set()
            self.notes[planner.name] = found.notes
            self._answers[planner.name] = self._bettered(judged(self.problem, found))
            for answer in found.asked:  # whoever is asked the same again answers the same
                if answer.planner not in self._answers and not answer.cut_short:
                    self._answers[answer.planner] = self._bettered(judged(self.problem, answer))
        return self._answers[planner.name]

    def _bettered(self, found: Proposal) -> Proposal:
        """The proposal with what the panel does for every planner's plan, timed as part of its planning."""
        if self.panel.thrift is None and self.panel.order is None:
            return found
        began = process_time()
        found = self.ordered(self._thrifty(found))
        return replace(found, planning_s=found.planning_s + process_time() - began)

    def _thrifty(self, found: Proposal) -> Proposal:
        """The proposal, that of the exact search with the cheapest plan about as quick."""
        problem, thrift = self.problem, self.panel.thrift
        if thrift is None or found.planner != EXACT or found.score is None or problem.objective.name != "time":
            return found
        cheap = thrift(problem, self.stop)
        return found if cheap is None or cheap.plan == found.plan else replace(found, cheaper=cheap)

    def ordered(self, found: Proposal) -> Proposal:
        """The proposal with its operations in the best order that is found for them (``best_order``)."""
        order, limit_s = self.panel.order, ORDER_SHARE * self.stop.time_limit_s
        if order is None or not self.ordering:
            return found
        if found.cheaper is not None:
            cheap = order(Proposal(found.planner, Status.FEASIBLE, found.cheaper), limit_s, self.seed, inf).best
            found = replace(found, cheaper=cheap if isinstance(cheap, Judged) else None)
        return order(found, limit_s, self.seed, self._least_s)

    @property
    def _least_s(self) -> float:
        """Seconds from which on no plan is as good as the best so far; inf where all planners stand side by side, or
        more than time counts."""
        if self.everyone or self.problem.objective.name != "time":
            return inf
        steps = (each.score.step_time_s for each in self._answers.values() if each.score is not None)
        return (1.0 + EQUAL) * min(steps, default=inf)

    def first_plan(self, planners: Iterable[Planner]) -> Baseline | None:
        """The first sound plan of ``planners`` as the baseline, scored against itself.

        They are asked for the quickest plan: the measure of a reward must not move with its weights.
        """
        asking = self
        if self.problem.objective.name != "time":
            quickest = replace(self.problem, objective=for_time(self.problem.objective))
            stop = replace(self.stop, time_limit_s=self.effort.left_s)
            asking = _Hearing(quickest, self.panel, stop, self.seed, self.progress)
            asking.ordering = self.ordering
        for planner in planners:
            for found in sound(self.problem, [judged(self.problem, asking.ask(planner, asking.effort.left_s)).best]):
                return Baseline(planner.name, found.under(self.problem, baseline=found.score))
        return None

    def _watcher(self, name: str) -> Progress | None:
        progress = self.progress
        return None if progress is None else lambda phase, share: progress(f"{name}: {phase}", share)


def _closed(proposal: Proposal, stop: Stop) -> bool:
    """Whether the planner has proven that there is next to nothing (or no more than ``stop.gap``) to gain."""
    return proposal.plan is not None and proposal.gap is not None and proposal.gap <= max(stop.gap, SETTLED)


def judged(problem: Problem, proposal: Proposal) -> Proposal:
    """The proposal with its plan judged, where the planner left that to us and the plan counts."""
    if isinstance(proposal.best, Plan) and flaw(problem, proposal.best) is None:
        return replace(proposal, best=judge(problem, proposal.best))
    return proposal


def sound(problem: Problem, plans: Iterable[Plan | Judged | None]) -> Iterator[Judged]:
    """Those that were judged and count."""
    for plan in plans:
        if isinstance(plan, Judged) and flaw(problem, plan) is None:
            yield plan.under(problem)


def row_of(problem: Problem, proposal: Proposal, baseline: Score | None) -> PlannerRow:
    """The proposal as a row; dropped with its flaw where it has one."""
    row = PlannerRow(
        planner=proposal.planner,
        status=proposal.status,
        gap=proposal.gap,
        lower_bound_s=proposal.lower_bound_s,
        planning_s=proposal.planning_s,
        notes=proposal.notes,
        work_s=proposal.work_s,
        cut_short=proposal.cut_short,
        degrees=proposal.degrees,
    )
    if proposal.best is None:
        return row
    broken = flaw(problem, proposal.best)
    if broken is not None:
        return replace(row, status=Status.INFEASIBLE, gap=None, dropped=broken)
    (best,) = (each.under(problem, baseline=baseline) for each in sound(problem, [proposal.best]))
    if problem.objective.name == "weighted":  # any plan handed over may have the best; bounds on time prove nothing
        notes = tuple(note for note in row.notes if not note.startswith(GAP_OPEN))
        row = replace(row, gap=None, lower_bound_s=None, status=Status.FEASIBLE, notes=notes)
        for other in sound(problem, proposal.runners_up):
            other = other.under(problem, baseline=baseline)
            best = other if other.score.reward > best.score.reward else best
    if best.plan.compression:
        best = sparing(best).under(problem, baseline=baseline)
        row = replace(row, notes=(*row.notes, COMPRESSED)) if best.plan.compression else row
    return replace(row, best=best)


def sparing(best: Judged) -> Judged:
    """The plan with as it is what crosses a border where eight bits gain nothing, border by border."""
    problem, value = best.problem, objective_value(best.problem.objective, best.score)
    pairs = dict.fromkeys(frozenset((each.source, each.destination)) for each in best.plan.compression)
    for pair in pairs if problem.objective.name != "weighted" else ():
        kept = tuple(each for each in best.plan.compression if {each.source, each.destination} != pair)
        plain = judge(problem, replace(best.plan, compression=kept))
        if objective_value(problem.objective, plain.score) <= value * (1.0 + CLOSE):
            best = plain
    return best


def _best(problem: Problem, proposals: Sequence[Proposal], against: Baseline | None) -> Decision:
    """The best row by the objective (ties: the first) as a decision without reasons."""
    base = None if against is None else against.score
    proposals = [judged(problem, proposal) for proposal in proposals]
    rows = [row_of(problem, proposal, base) for proposal in proposals]
    known = [row.best for row in rows if row.best is not None]
    known += [each.cheaper for each in proposals if each.cheaper is not None]
    least = min((_value(each) for each in known), default=None)
    for at, proposal in enumerate(proposals):  # one tolerance for all: of the quickest that anybody knows
        if least is not None and rows[at].best is not None and proposal.cheaper is not None:
            proposals[at] = _with_cheaper(proposal, proposal.cheaper, least)
            rows[at] = row_of(problem, proposals[at], base)
    best = 0 if least is None else _chosen(problem, rows, least)
    row = _carried(problem, rows[best], rows)
    rows[best] = replace(rows[best], notes=row.notes)
    rejected = _all_rejected(proposals) if least is None else proposals[best].rejected
    return Decision(
        problem=problem,
        status=Status.INFEASIBLE if least is None else row.status,
        planner=row.planner,
        best=row.best,
        gap=row.gap,
        lower_bound_s=row.lower_bound_s,
        prover=row.prover,
        planning_s=sum(row.planning_s for row in rows),
        rejected=rejected,
        rows=tuple(rows),
        baseline=against,
        runners_up=_runners_up(problem, row, proposals, base),
    )


def _with_cheaper(found: Proposal, cheap: Judged, least: float) -> Proposal:
    """The proposal with its cheaper plan where that is within ``EQUAL`` of the quickest of all; of time alone."""
    quick = found.best
    assert isinstance(quick, Judged), "who has a cheaper plan has judged both"
    near = [each for each in (quick, cheap) if each.step_time_s <= least * (1.0 + EQUAL)]
    if cheap is not min(
        near or [quick, cheap], key=lambda each: (each.score.usd_per_step if near else 0.0, _value(each))
    ):
        return found
    gap, bound, notes = None, found.lower_bound_s, found.notes
    if bound is not None:
        gap = max(0.0, 1.0 - bound / cheap.step_time_s)
    longer = cheap.step_time_s / quick.step_time_s - 1
    if longer > 0:
        price = f"{usd(cheap.score.usd_per_step)} in place of {usd(quick.score.usd_per_step)}"
        taken = f"a step {percent(longer)} longer, {price}"
        notes = (f"Of plans within {percent(EQUAL)} of the quickest it takes the cheapest: {taken}.", *notes)
    status = Status.OPTIMAL if gap is not None and gap <= CLOSE else Status.FEASIBLE
    return replace(found, best=cheap, gap=gap, status=status, runners_up=(quick, *found.runners_up), notes=notes)


def _chosen(problem: Problem, rows: Sequence[PlannerRow], least: float) -> int:
    """The row of the least value of the objective; of time, the cheapest of those within ``EQUAL`` of it (ties: the
    quickest, then the first)."""
    timed = problem.objective.name == "time"
    ranked = []
    for index, row in enumerate(rows):
        if row.score is not None:
            value = objective_value(problem.objective, row.score)
            if value <= least * (1.0 + EQUAL) if timed else value == least:
                ranked.append((row.score.usd_per_step if timed else 0.0, value, index))
    return min(ranked)[2]


def _carried(problem: Problem, row: PlannerRow, rows: Sequence[PlannerRow]) -> PlannerRow:
    """The winner with the best lower bound that any planner proved: the gap of the one is carried over to the other.

    Bounds are on the step time of plans that agree on every step. One that the winner lies below does not hold for its
    kind of plan, and a note says so.
    """
    bounds = [(other.lower_bound_s, other.planner) for other in rows if other.lower_bound_s is not None]
    if row.score is None or not bounds or problem.objective.name != "time":
        return replace(row, prover=row.planner)
    least = (1.0 + CLOSE) * row.score.step_time_s
    broken = tuple(passed(prover, bound) for bound, prover in bounds if bound > least)
    row = replace(row, notes=(*row.notes, *broken))
    if len(broken) == len(bounds):
        return replace(row, gap=None, lower_bound_s=None, prover=row.planner)
    bound, prover = max((each for each in bounds if each[0] <= least), key=lambda item: item[0])
    gap = 1 - (1 + CLOSE) * bound / least
    if row.gap is not None and row.gap <= gap:
        return replace(row, prover=row.planner)
    status = Status.OPTIMAL if gap <= CLOSE else Status.FEASIBLE
    return replace(row, gap=max(gap, 0.0), lower_bound_s=bound, status=status, prover=prover)


def _all_rejected(proposals: Sequence[Proposal]) -> dict[str, int]:
    """Candidates turned down by all planners together, by cause."""
    counts: Counter[str] = Counter()
    for proposal in proposals:
        counts.update(proposal.rejected)
    return dict(counts)


def _runners_up(
    problem: Problem, chosen: PlannerRow, proposals: Sequence[Proposal], baseline: Score | None
) -> tuple[Judged, ...]:
    """The best sound plan of every other (way to join, set of domains) that any planner found, best first."""
    if chosen.plan is None:
        return ()
    own = way_of(chosen.plan)
    handed = [plan for proposal in proposals for plan in proposal.runners_up]
    best: dict[Way, Judged] = {}
    for found in sound(problem, [*handed, *(proposal.best for proposal in proposals)]):
        key = way_of(found.plan)
        if key == own:
            continue
        found = found.under(problem, baseline=baseline)
        known = best.get(key)
        if known is None or _value(found) < _value(known):
            best[key] = found
    return tuple(sorted(best.values(), key=_value)[:MOST_RUNNERS_UP])


def _value(found: Judged) -> float:
    return objective_value(found.problem.objective, found.score)
