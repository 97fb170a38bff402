"""Planners that say what they are told to: who is asked, who wins, what is dropped."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

import pytest

from hippo.decide.choose import Panel, choose, compare, decide, row_of
from hippo.decide.pareto import pareto_front
from hippo.errors import InfeasibleError
from hippo.plan.plan import Plan
from hippo.planners.base import Proposal, Status, Stop
from hippo.planners.effort import LIMITED
from hippo.planners.exact.search import LIKE, OPEN
from hippo.problem.objective import Objective
from hippo.problem.problem import Problem
from hippo.problem.workload import Workload
from hippo.score.judge import Judged, evaluate, judge

WAVES = 64
STOP = Stop(time_limit_s=5.0)


@dataclass(frozen=True)
class Says:
    """Proposes what it was made with, and notes that it was asked."""

    name: str
    plan: Plan | Judged | None
    gap: float | None = None
    bound_s: float | None = None
    status: Status = Status.FEASIBLE
    runners_up: tuple = ()
    work_s: float = 0.0
    cut_short: str = ""
    notes: tuple = ("a note",)
    asked: list = field(default_factory=list)

    def propose(self, problem, stop, *, seed=0, progress=None):
        self.asked.append((problem, stop, seed))
        if progress is not None:
            progress("thinking", 1.0)
        return Proposal(
            self.name,
            self.status,
            self.plan,
            gap=self.gap,
            lower_bound_s=self.bound_s,
            planning_s=0.5,
            rejected={"memory": 2},
            runners_up=self.runners_up,
            notes=self.notes,
            work_s=self.work_s,
            cut_short=self.cut_short,
        )


@pytest.fixture
def problem(worlds):
    return Problem(
        worlds.model(), worlds.cluster(bandwidth=1e9, latency_s=1e-4), Workload(global_batch=WAVES, seq=1024)
    )


@pytest.fixture
def across(worlds):
    return worlds.across_plan(WAVES)


@pytest.fixture
def alone(worlds):
    return worlds.alone_plan(WAVES)


def test_the_best_of_all_wins_and_rows_keep_their_order(problem, across, alone):
    decision = decide(problem, [Says("slow", alone), Says("fast", across)], STOP)
    assert decision.planner == "fast"
    assert decision.plan == across
    assert decision.score == evaluate(problem, across)
    assert [row.planner for row in decision.rows] == ["slow", "fast"]
    assert decision.planning_s == 1.0
    assert decision.status is Status.FEASIBLE


def test_a_tie_goes_to_the_first(problem, across):
    assert decide(problem, [Says("first", across), Says("second", across)], STOP).planner == "first"


def test_the_objective_decides(problem, across, alone):
    money = replace(problem, objective=Objective("cost", 0, 0, 1))
    assert decide(money, [Says("across", across), Says("alone", alone)], STOP).planner == "alone"


def test_rewards_pick_among_all_plans_of_a_planner(problem, across, alone):
    weighted = replace(problem, objective=Objective("weighted", 0.0, 0.0, 1.0))  # egress alone counts
    exact = Says("exact", across, gap=0.0, status=Status.OPTIMAL, runners_up=(judge(problem, alone),))
    decision = decide(weighted, [exact], STOP, baseline=[Says("even", across)])
    assert decision.plan == alone
    assert decision.score.reward == pytest.approx(0.0)
    assert (decision.status, decision.gap) == (Status.FEASIBLE, None)  # its bound was on the step time


def test_a_bound_on_time_says_nothing_where_rewards_are_weighed(problem, across):
    """Else the answer would say that nothing is proven, and why what is proven is not more."""
    weighted, notes = replace(problem, objective=Objective("weighted", 0.0, 1.0, 0.0)), (OPEN.format(cause=LIKE), "two")
    exact = Says("exact", across, gap=0.3, bound_s=0.1, notes=notes)
    for asked, told in ((problem, notes), (weighted, notes[1:])):
        decision = decide(asked, [exact], STOP, baseline=[Says("even", across)])
        (gap,) = (reason for reason in decision.reasons if reason.kind == "gap")
        assert gap.notes[-len(told) :] == told
        assert (gap.gap is None) is (asked is weighted)
        assert ("stays open" in gap.sentence()) is (asked is problem)


def test_rewards_are_weighed_over_the_plans_that_none_beats(problem, across, alone):
    def search(asked, known, stop, progress):
        assert asked.objective.name == "time"
        assert [found.plan for found in known] == [across]
        return [*known, judge(asked, alone)], True

    weighted = replace(problem, objective=Objective("weighted", 0.0, 0.0, 1.0))  # egress alone counts
    decision = decide(weighted, [Says("exact", across)], STOP, baseline=[Says("even", across)], search=search)
    assert (decision.plan, decision.planner, decision.gap) == (alone, "front", None)
    assert (
        "It weighed 2 plans; no plan without chunks or weights sharded over domains that exact knows beats"
        in decision.summary()
    )


def test_the_search_for_rewards_is_not_asked_for_time(problem, across):
    decision = decide(problem, [Says("exact", across)], STOP, search=lambda *_: 1 / 0)
    assert decision.planner == "exact"


def test_balance_is_a_constraint(problem, across, alone):
    lopsided = replace(across, pipelines=(replace(across.pipelines[0], stages=_cut(across, 1)),))
    strict = replace(problem, objective=Objective(balance_delta=0.5))
    decision = decide(strict, [Says("lopsided", lopsided), Says("alone", alone)], STOP)
    assert decision.planner == "alone"
    assert "further apart" in decision.rows[0].dropped


def _cut(plan, layer):
    first, second = plan.pipelines[0].stages
    return replace(first, layers=(0, layer)), replace(second, layers=(layer, 6))


def test_the_proven_gap_is_carried_over_to_another_planners_plan(problem, across, alone):
    best = evaluate(problem, across).step_time_s
    exact = Says("exact", alone, gap=0.9, bound_s=0.8 * best)
    decision = decide(problem, [exact, Says("lucky", across)], STOP)
    assert (decision.planner, decision.prover, decision.status) == ("lucky", "exact", Status.FEASIBLE)
    assert decision.gap == pytest.approx(0.2)
    assert decision.lower_bound_s == 0.8 * best
    assert "no plan that exact knows" in decision.summary()


def test_a_plan_at_the_bound_is_optimal(problem, across, alone):
    exact = Says("exact", alone, gap=0.9, bound_s=evaluate(problem, across).step_time_s)
    decision = decide(problem, [exact, Says("lucky", across)], STOP)
    assert (decision.status, decision.gap) == (Status.OPTIMAL, 0.0)


def test_a_bound_that_the_winner_lies_below_says_nothing_of_it(problem, across, alone):
    exact = Says("exact", alone, gap=0.1, bound_s=1.2 * evaluate(problem, across).step_time_s)
    decision = decide(problem, [exact, Says("outside", across)], STOP)
    assert (decision.planner, decision.gap, decision.lower_bound_s) == ("outside", None, None)


def test_bounds_on_time_say_nothing_of_money(problem, across, alone):
    money = replace(problem, objective=Objective("cost", 0, 0, 1))
    decision = decide(money, [Says("exact", across, gap=0.9, bound_s=1e-3), Says("alone", alone)], STOP)
    assert (decision.planner, decision.gap) == ("alone", None)


def test_nobody_is_asked_after_a_proof(problem, across, alone):
    last = Says("last", alone)
    decision = decide(problem, [Says("exact", across, gap=0.0, status=Status.OPTIMAL), last], STOP)
    assert last.asked == []
    assert decision.status is Status.OPTIMAL
    assert decision.gap == 0.0


def about_as_quick(problem, across, alone, longer):
    """The plan in one domain, said to take so much longer than the one across both."""
    found, quick_s = judge(problem, alone), evaluate(problem, across).step_time_s
    rent_usd = found.score.usd_per_step / found.step_time_s * quick_s
    return replace(found, score=replace(found.score, step_time_s=quick_s * (1 + longer), usd_per_step=rent_usd))


@pytest.mark.parametrize(("longer", "winner"), [(0.004, "alone"), (0.006, "across"), (-0.001, "alone")])
def test_of_plans_about_as_quick_the_cheapest_is_taken(problem, across, alone, longer, winner):
    cheap = about_as_quick(problem, across, alone, longer)
    decision = decide(problem, [Says("across", across), Says("alone", cheap)], STOP)
    assert decision.planner == winner


def test_a_cheaper_plan_of_the_exact_search_stands_beside_its_bound(problem, across, alone):
    quick, last = judge(problem, across), Says("last", alone)
    exact = Says("exact", quick, gap=0.0, bound_s=quick.step_time_s, status=Status.OPTIMAL)
    cheap = about_as_quick(problem, across, alone, 0.004)
    decision = decide(problem, [exact, last], STOP, thrift=lambda *_: cheap)
    assert (decision.planner, decision.plan, decision.status) == ("exact", alone, Status.FEASIBLE)
    assert decision.gap == pytest.approx(1 - 1 / 1.004)
    assert decision.lower_bound_s == quick.step_time_s
    assert "within 0.5 % of the quickest it takes the cheapest" in decision.summary()
    assert [each.plan for each in decision.runners_up] == [across]
    assert last.asked == []  # the search had proven the quickest plan


def test_where_money_is_the_objective_nobody_looks_for_a_cheaper_plan(problem, across, alone):
    money = replace(problem, objective=Objective("cost", 0, 0, 1))
    decision = decide(money, [Says("exact", judge(money, across))], STOP, thrift=lambda *_: 1 / 0)
    assert decision.plan == across


def test_a_search_that_its_limit_cut_short_says_so(problem, across):
    cut = Says("exact", across, gap=0.1, bound_s=1e-9, cut_short="Cut short.")
    decision = decide(problem, [cut], STOP)
    assert decision.cut_short == "Cut short."
    assert (decision.document()["cut_short"], decision.document()["rows"][0]["cut_short"]) == ("Cut short.",) * 2
    assert decide(problem, [replace(cut, gap=0.0)], STOP).cut_short == ""


def test_work_that_is_done_is_not_left_for_others(problem, across, alone):
    last = Says("last", alone)
    decide(problem, [Says("first", across, work_s=4.0), last], STOP)
    assert [stop.time_limit_s for _, stop, _ in last.asked] == [1.0]


def test_everyone_is_asked_for_the_sake_of_comparison(problem, across, alone):
    last = Says("last", alone)
    decision = decide(problem, [Says("exact", across, gap=0.0), last], STOP, everyone=True)
    assert (len(last.asked), decision.planner) == (1, "exact")


@pytest.mark.parametrize(("gap", "asked"), [(0.002, 0), (0.004, 1)])
def test_a_gap_too_small_to_matter_settles_it(problem, across, alone, gap, asked):
    last = Says("last", alone)
    decide(problem, [Says("exact", across, gap=gap), last], STOP)
    assert len(last.asked) == asked


def test_nobody_is_asked_after_the_time_limit(problem, across, alone):
    last = Says("last", alone)
    decide(problem, [Says("first", across), last], Stop(time_limit_s=0.0))
    assert last.asked == []


@pytest.mark.parametrize(("gap", "work_s", "told"), [(0.1, 5.0, True), (0.1, 4.0, False), (0.001, 5.0, False)])
def test_an_answer_for_which_some_were_not_asked_says_that_it_was_cut_short(problem, across, alone, gap, work_s, told):
    planners = [Says("first", across, gap=gap, bound_s=1e-9, work_s=work_s), Says("last", alone)]
    decision = decide(problem, planners, STOP)
    assert decision.cut_short == (LIMITED if told else "")
    assert decision.document()["cut_short"] == (LIMITED if told else None)


def test_compare_asks_everyone_with_the_whole_time(problem, across, alone):
    planners = [Says("exact", across, gap=0.0), Says("late", alone)]
    decision = compare(problem, planners, STOP, seed=7)
    assert [row.planner for row in decision.rows] == ["exact", "late"]
    assert [(stop.time_limit_s, seed) for planner in planners for _, stop, seed in planner.asked] == [(5.0, 7)] * 2


def test_the_baseline_is_the_first_that_finds_a_plan(problem, across, alone):
    usual = [Says("even", None, status=Status.INFEASIBLE), Says("single", alone)]
    decision = decide(problem, [Says("exact", across)], STOP, baseline=usual)
    assert decision.baseline is not None
    assert decision.baseline.planner == "single"
    times = decision.score.step_time_s, decision.baseline.score.step_time_s
    assert decision.score.r_eff == pytest.approx(1 - times[0] / times[1])
    assert [row.planner for row in decision.rows] == ["exact"]


def test_the_baseline_does_not_move_with_the_weights(problem, across, alone):
    """One that answers with another plan where it is asked for the reward is measured by its quickest plan."""

    class Wavers:
        name = "even"

        def propose(self, problem, stop, *, seed=0, progress=None):
            plan = across if problem.objective == Objective() else alone
            return Proposal(self.name, Status.FEASIBLE, plan)

    def against(objective):
        asked = replace(problem, objective=objective)
        plan = decide(asked, [Says("exact", alone)], STOP, baseline=[Wavers()])
        front = pareto_front(asked, [Says("exact", alone)], STOP, baseline=[Wavers()])
        assert front.points[0][1] == plan.score
        return plan.baseline.plan, plan.score.r_eff

    timed = against(Objective())
    assert timed[0] == across
    assert against(Objective("weighted", 0.2, 0.8, 0.0)) == against(Objective("cost", 0.0, 0.0, 1.0)) == timed


def test_a_baseline_that_also_competes_is_asked_once(problem, across, alone):
    even = Says("even", alone)
    decision = decide(problem, [Says("exact", across), even], STOP, baseline=[even])
    assert len(even.asked) == 1
    assert [row.planner for row in decision.rows] == ["exact", "even"]


def test_a_plan_that_breaks_a_rule_is_dropped_and_told(problem, across, alone):
    broken = replace(across, micro_batch=7)  # 7 x 64 sequences are not the batch
    decision = decide(problem, [Says("broken", broken), Says("sound", alone)], STOP)
    assert decision.planner == "sound"
    row = decision.rows[0]
    assert (row.plan, row.score, row.status) == (None, None, Status.INFEASIBLE)
    assert row.dropped
    assert "dropped" in {reason.kind for reason in decision.reasons}


def test_a_plan_that_does_not_fit_is_dropped(problem, across, worlds):
    small = replace(problem, cluster=replace(problem.cluster, gpu=worlds.gpu(1e9)))
    row = row_of(small, Proposal("big", Status.FEASIBLE, across), None)
    assert row.dropped is not None
    assert "memory" in row.dropped


def test_what_a_planner_had_judged_is_not_judged_again(problem, across):
    found = judge(problem, across)
    decision = choose(problem, Panel((Says("exact", found),)), STOP)
    assert decision.judged is found
    assert decision.rows[0].best is found


def test_what_was_judged_under_other_wishes_is_checked_under_these(problem, across):
    wild = judge(replace(problem, allow_local_sgd=True), replace(across, micro_batch=7))
    row = row_of(problem, Proposal("wild", Status.FEASIBLE, wild), None)
    assert (row.best, row.status) == (None, Status.INFEASIBLE)
    assert row.dropped is not None


def test_runners_up_join_in_another_way_and_come_from_anyone(problem, across, alone):
    first = Says("exact", across, runners_up=(judge(problem, alone), judge(problem, across)))
    decision = decide(problem, [first], STOP)
    assert [other.plan for other in decision.runners_up] == [alone]
    kinds = [reason.kind for reason in decision.reasons]
    assert kinds.count("runner_up") == 1
    assert "switch" in kinds


def test_local_sgd_is_told_but_not_chosen(problem, across, alone):
    local = Says("diloco", alone)
    decision = decide(problem, [Says("exact", across)], STOP, local_sgd=local)
    assert local.asked[0][0].allow_local_sgd
    assert "local_sgd" in {reason.kind for reason in decision.reasons}
    assert decision.plan == across
    allowed = replace(problem, allow_local_sgd=True)
    decision = decide(allowed, [Says("exact", across)], STOP, local_sgd=local)
    assert "local_sgd" not in {reason.kind for reason in decision.reasons}


def test_progress_names_the_planner(problem, across):
    seen = []
    decide(problem, [Says("exact", across)], STOP, progress=lambda phase, share: seen.append((phase, share)))
    assert seen == [("exact: thinking", 1.0)]


def test_equal_questions_get_equal_answers(problem, across, alone):
    planners = [Says("slow", alone), Says("fast", across)]
    assert decide(problem, planners, STOP) == decide(problem, planners, STOP)


def test_choose_gives_no_reasons(problem, across):
    assert choose(problem, Panel((Says("exact", across),)), STOP).reasons == ()


def test_nothing_fits_is_an_answer(problem):
    nobody = Says("exact", None, status=Status.INFEASIBLE)
    decision = decide(problem, [nobody, Says("even", None, status=Status.INFEASIBLE)], STOP)
    assert decision.status is Status.INFEASIBLE
    assert decision.plan is None
    assert decision.rejected == {"memory": 4}
    assert "no plan fits" in decision.summary()
    assert decision.document()["plan"] is None


def test_a_planner_that_raises_leaves_the_answer_to_others(problem, across):
    class Raises:
        name = "even"

        def propose(self, problem, stop, *, seed=0, progress=None):
            raise InfeasibleError(["No room left."])

    decision = decide(problem, [Raises(), Says("exact", across)], STOP, baseline=[Raises()])
    assert (decision.planner, decision.plan) == ("exact", across)
    first = decision.rows[0]
    assert (first.planner, first.status, first.notes) == ("even", Status.INFEASIBLE, ("No room left.",))


def test_the_document_has_the_keys_of_the_contract(problem, across, alone):
    decision = decide(problem, [Says("exact", across, gap=0.0)], STOP, baseline=[Says("even", alone)])
    document = json.loads(json.dumps(decision.document(), allow_nan=False))
    assert {"status", "plan", "score", "gap", "planning_s", "planner", "reasons", "rejected"} <= set(document)
    assert {"planner", "status", "score", "gap", "planning_s"} <= set(document["rows"][0])
    assert {"kind", "subject", "figures", "sentence"} == set(document["reasons"][0])
    assert document["plan"]["hippo_plan"] == 1


def test_the_summary_says_every_reason(problem, across, alone):
    decision = decide(problem, [Says("exact", across, gap=0.0)], STOP, baseline=[Says("even", alone)])
    summary = decision.summary()
    assert summary.startswith(decision.headline())
    assert all(reason.sentence() in summary for reason in decision.reasons)
