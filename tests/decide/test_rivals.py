"""A pipeline over a and b against a alone: two GPUs behind a link, or one GPU without."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

import pytest

from hippo.decide.reasons import NoSwitch, RunnerUp, Switch
from hippo.decide.rivals import (
    Alternatives,
    Knob,
    Rivalry,
    advice,
    idle_domains,
    left_out,
    runner_up_reasons,
    switches,
    switches_as_they_are,
    threshold,
    told,
    value_from_scratch,
)
from hippo.plan.plan import Pipeline, Plan, Relay
from hippo.planners.effort import Effort
from hippo.planners.exact.replan import DomainReplanner
from hippo.problem.objective import Objective
from hippo.problem.problem import Problem
from hippo.problem.workload import Workload
from hippo.score.judge import evaluate, judge
from hippo.score.score import objective_value, worse_by

WAVES = 64


def problem_of(worlds, bandwidth, objective=None, **cluster) -> Problem:
    workload = Workload(global_batch=WAVES, seq=1024)
    cluster = worlds.cluster(bandwidth=bandwidth, latency_s=1e-4, **cluster)
    return Problem(worlds.model(), cluster, workload, objective or Objective())


def contest(problem, winner, rival) -> Rivalry:
    return Rivalry(judge(problem, winner), judge(problem, rival))


def test_more_bandwidth_lets_the_pipeline_win(worlds):
    problem = problem_of(worlds, 1e8)
    (reason,) = switches_as_they_are(contest(problem, worlds.alone_plan(WAVES), worlds.across_plan(WAVES)))
    assert isinstance(reason, Switch)  # all links together are the same two links, and are not told again
    assert (reason.subject, reason.quantity, reason.unit) == ("the link a <-> b", "bandwidth", "Gbit/s")
    assert reason.runner_up == "add b (pipeline across domains)"
    assert reason.actual == pytest.approx(0.8)
    assert reason.threshold > reason.actual
    assert reason.verified
    changed = problem_of(worlds, 1e8 * reason.factor * 1.02)
    times = [evaluate(changed, plan(WAVES)).step_time_s for plan in (worlds.across_plan, worlds.alone_plan)]
    assert times[0] < times[1]


@pytest.mark.parametrize(
    ("here", "there", "words"),
    [
        ("a", "ab", "add b (pipeline across domains)"),
        ("a", "abc", "add b and c (pipeline across domains)"),
        ("abc", "ab", "leave out c"),
        ("ab", "ac", "leave out b and add c"),
        ("ab", "a", "stay in a alone"),
        ("bc", "a", "go to a alone"),
        ("ab", "ba", "take the runner-up"),
    ],
)
def test_what_one_does_who_goes_over(worlds, here, there, words):
    def plan(names: str) -> Plan:
        stage = worlds.across_plan().pipelines[0].stages[0]
        stages = tuple(replace(stage, domain=name) for name in names)
        return Plan((Pipeline(stages, 4),), micro_batch=1)

    assert advice(plan(here), plan(there)) == words


def test_the_limit_of_a_world_solved_by_hand(worlds):
    """Four micro-batches over a and b take 15 s and four messages of s seconds (s <= 3), in a alone 24 s.

    The pipeline wins where s is below 9/4, and messages take 10 s today: above 40/9 times the bandwidth, both ways.
    """
    match = Rivalry(worlds.alone(), worlds.across(send_s=10.0))
    assert threshold(match, Knob("bandwidth", (0, 1))) == pytest.approx(40 / 9, rel=0.005)
    assert threshold(match, Knob("bandwidth", (0,))) is None  # the way back still takes too long
    back = Rivalry(worlds.across(send_s=1.0), worlds.alone())
    assert threshold(back, Knob("bandwidth")) == pytest.approx(4 / 9, rel=0.005)


def test_less_bandwidth_or_more_latency_lets_one_domain_win(worlds):
    problem = problem_of(worlds, 1e9)
    found = switches_as_they_are(contest(problem, worlds.across_plan(WAVES), worlds.alone_plan(WAVES)))
    assert all(isinstance(reason, Switch) and reason.verified for reason in found)
    assert all(reason.factor < 1 for reason in found if reason.quantity == "bandwidth")


def test_both_sides_of_a_threshold_scored_from_scratch(worlds):
    problem = problem_of(worlds, 1e8)
    across, alone = worlds.across_plan(WAVES), worlds.alone_plan(WAVES)
    (limit,) = switches_as_they_are(contest(problem, alone, across))
    for factor, pipeline_wins in ((limit.factor * 1.02, True), (limit.factor / 1.02, False)):
        changed = Knob("bandwidth", (0, 1)).changed(problem, factor)
        assert (evaluate(changed, across).step_time_s < evaluate(changed, alone).step_time_s) is pipeline_wins


def test_quick_and_thorough_agree(worlds):
    problem = problem_of(worlds, 1e8)
    match = contest(problem, worlds.alone_plan(WAVES), worlds.across_plan(WAVES))
    for knob in (Knob("bandwidth"), Knob("bandwidth", (0,)), Knob("latency"), Knob("latency", (1, 0))):
        for factor in (0.1, 3.0, 30.0):
            assert match.rival_wins(knob, factor) == match.rival_wins_from_scratch(knob, factor)


def test_money_has_a_price_at_which_it_turns(worlds):
    problem = problem_of(worlds, 1e9, Objective("cost", 0, 0, 1), price=0.02)
    across, alone = worlds.across_plan(WAVES), replace(worlds.alone_plan(WAVES), recompute="full")
    cheap, dear = evaluate(problem, alone), evaluate(problem, across)
    assert cheap.usd_per_step < dear.usd_per_step
    found = switches_as_they_are(contest(problem, alone, across))
    price = next(reason for reason in found if reason.quantity == "price")
    assert (price.unit, price.actual, price.verified) == ("USD/GB", 0.02, True)
    rent = dear.usd_per_step - dear.egress_usd_per_step
    assert price.threshold == pytest.approx((cheap.usd_per_step - rent) / dear.cross_domain_gb_per_step, rel=0.01)


def test_what_never_wins_is_told(worlds):
    problem = problem_of(worlds, 1e9)
    slow = replace(worlds.alone_plan(WAVES), recompute="full")
    (reason,) = switches_as_they_are(contest(problem, worlds.alone_plan(WAVES), slow))
    assert isinstance(reason, NoSwitch)
    assert reason.tried == ("bandwidth", "latency")


def test_both_sorts_of_runners_up_are_told(worlds):
    across, alone = worlds.across_plan(), worlds.alone_plan()
    wide, slow = replace(across, micro_batch=2), replace(alone, recompute="full")
    problem = problem_of(worlds, 1e9)

    def plans(plan, *others):
        return [other.plan for other in told(plan, [judge(problem, each) for each in others])]

    assert plans(across, wide, slow, alone) == [wide, slow]
    assert plans(across, alone, slow, wide) == [alone, wide]
    assert plans(across, wide) == [wide]
    assert plans(alone, across, wide, slow) == [across, wide]
    assert plans(alone) == []


def test_runner_up_comes_with_its_switches(worlds):
    problem = problem_of(worlds, 1e8)
    across, alone = worlds.across_plan(WAVES), worlds.alone_plan(WAVES)
    winner, rival = judge(problem, alone), judge(problem, across)
    first, *rest = runner_up_reasons(Alternatives(winner, (rival,)))
    assert isinstance(first, RunnerUp)
    assert first.worse_share == pytest.approx(rival.step_time_s / winner.step_time_s - 1)
    assert rest
    # seen from the plan that loses, the same limit: what it needs to win
    _, *back = runner_up_reasons(Alternatives(rival, (winner,)))
    assert [item.threshold for item in back] == [item.threshold for item in rest]


def test_where_no_effort_is_left_a_threshold_is_that_of_both_plans_as_they_are(worlds):
    problem = problem_of(worlds, 1e8)
    winner, rival = judge(problem, worlds.alone_plan(WAVES)), judge(problem, worlds.across_plan(WAVES))
    others = Alternatives(winner, (rival,), DomainReplanner.of(problem), effort=Effort(1.0, 1.0))
    limit, *_ = switches(others, winner, rival)
    assert isinstance(limit, Switch)
    assert not limit.planned_anew
    assert limit.verified
    assert limit.sentence().endswith("both plans kept as they are.")


def test_what_the_effort_did_not_reach_is_told_as_left_out(worlds):
    problem = problem_of(worlds, 1e8)
    winner, rival = judge(problem, worlds.alone_plan(WAVES)), judge(problem, worlds.across_plan(WAVES))
    spent, whole = (Alternatives(winner, (rival,), DomainReplanner.of(problem), effort=each) for each in TWO_EFFORTS)
    for others in (spent, whole):
        others.search()
        runner_up_reasons(others)
    assert left_out(whole, local_sgd=False) == ()
    (reason,) = left_out(spent, local_sgd=True)
    assert reason.document()["figures"] == {
        "limit_s": 1.0,
        "sets_of_domains": 2,  # b alone, and a pipeline over a and b
        "links": ["all links", "the link a <-> b"],
        "local_sgd": True,
    }
    assert "2 sets of domains" in reason.sentence()
    assert spent.effort.spent_s == 1.0


TWO_EFFORTS = Effort(1.0, 1.0), Effort()


@dataclass(frozen=True)
class Forgetful:
    """Says that it plays both plans in every search, and hands over the second only from 8 times the bandwidth on."""

    known: tuple[Plan, Plan]
    today_bytes_per_s: float

    @property
    def first(self) -> frozenset[Plan]:
        return frozenset(self.known)

    def plans(
        self, problem: Problem, effort: Effort, only: None = None, *, below: float = inf
    ) -> tuple[tuple[float, Plan], ...]:
        plan = self.known[problem.cluster.links[0].bandwidth_bytes_per_s >= 8 * self.today_bytes_per_s]
        return ((evaluate(problem, plan).step_time_s, plan),)


def test_both_ends_are_held_against_plans_that_were_found_elsewhere(worlds):
    problem = problem_of(worlds, 1e8)
    alone, across = worlds.alone_plan(WAVES), worlds.across_plan(WAVES)
    winner, rival = judge(problem, alone), judge(problem, across)
    (reason,) = switches(Alternatives(winner, (rival,), Forgetful((alone, across), 1e8)), winner, rival)
    assert isinstance(reason, Switch)
    assert reason.planned_anew
    assert reason.verified
    for value, wins in ((reason.low, False), (reason.high, True)):
        changed = Knob("bandwidth").changed(problem, value / reason.actual)
        times = [evaluate(changed, plan).step_time_s for plan in (across, alone)]
        assert (times[0] < times[1]) == wins


@pytest.mark.parametrize(("better", "told"), [(0.1, True), (0.004, False)])
def test_a_runner_up_that_is_better_than_the_answer_says_so_and_how_to_get_it(worlds, better, told):
    problem = problem_of(worlds, 1e8)
    answer = judge(problem, worlds.across_plan(WAVES))
    other = judge(problem, worlds.alone_plan(WAVES))
    found = replace(other, score=replace(other.score, step_time_s=(1 - better) * answer.step_time_s))
    first, *_ = runner_up_reasons(Alternatives(answer, (found,)))
    assert isinstance(first, RunnerUp)
    assert first.document()["figures"]["beats_answer"] is told
    assert first.without == ("b",)
    assert first.sentence().startswith("Better than the answer:") is told
    assert first.sentence().endswith("leave b out of the cluster file.") is told


def test_a_domain_that_relays_stays_in_the_cluster_file(worlds):
    problem = problem_of(worlds, 1e8)
    answer = judge(problem, worlds.across_plan(WAVES))
    other = judge(problem, replace(worlds.alone_plan(WAVES), relays=(Relay("a", "c", "b"),)))
    found = replace(other, score=replace(other.score, step_time_s=0.9 * answer.step_time_s))
    first, *_ = runner_up_reasons(Alternatives(answer, (found,)))
    assert isinstance(first, RunnerUp)
    assert first.beats_answer
    assert first.without == ()


def test_a_plan_explained_that_is_not_the_answer_is_told_its_rivals_as_runners_up(worlds):
    problem = problem_of(worlds, 1e8)
    answer, given = judge(problem, worlds.alone_plan(WAVES)), judge(problem, worlds.across_plan(WAVES))
    first, *_ = runner_up_reasons(Alternatives(answer, ()), given)
    assert isinstance(first, RunnerUp)
    assert first.worse_share < 0
    assert not first.beats_answer


def test_an_idle_domain_says_what_its_link_carries(worlds):
    problem = problem_of(worlds, 1e8)
    across = worlds.across_plan(WAVES)
    game = judge(problem, worlds.alone_plan(WAVES))
    (reason,) = idle_domains(Alternatives(game, (judge(problem, across),)))
    assert (reason.subject, reason.gpus, reason.best_link) == ("b", 1, "a -> b")
    assert reason.best_link_tokens_per_s == pytest.approx(1e8 / (2 * 256))
    assert reason.best_with_it_s == pytest.approx(evaluate(problem, across).step_time_s)
    assert not reason.searched  # nobody looked for a better one
    assert idle_domains(Alternatives(judge(problem, across), ())) == ()


def test_a_domain_without_links_is_idle_for_that_reason(worlds):
    problem = problem_of(worlds, 1e8)
    cut_off = replace(problem, cluster=replace(problem.cluster, links=()))
    (reason,) = idle_domains(Alternatives(judge(cut_off, worlds.alone_plan(WAVES)), ()))
    assert reason.best_link is None
    assert "no pair of links" in reason.sentence()


@pytest.mark.parametrize("objective", [Objective(), Objective("cost", 0, 0, 1), Objective("weighted", 0.5, 0.3, 0.2)])
def test_lower_values_are_better(worlds, objective):
    problem = problem_of(worlds, 1e9, objective)
    base = evaluate(problem, worlds.alone_plan(WAVES))
    score = evaluate(problem, worlds.across_plan(WAVES), baseline=base)
    expected = {"time": score.step_time_s, "cost": score.usd_per_step, "weighted": -score.reward}[objective.name]
    assert objective_value(objective, score) == expected
    assert value_from_scratch(problem, worlds.across_plan(WAVES), worlds.alone_plan(WAVES)) == pytest.approx(expected)
    assert worse_by(objective, score, score) == 0
