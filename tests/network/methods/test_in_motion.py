"""Planners in motion: whose plans they run, when they ask, and what a change must be worth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.network.online_world import view, weak

from hippo.network.methods.in_motion import InMotion, Motion
from hippo.network.methods.settings import SAILOR, chosen, searched
from hippo.network.methods.static import Static
from hippo.network.plans.plan_cache import PlanCache
from hippo.network.plans.replan import Net, reachable
from hippo.network.rules.view import Action, How
from hippo.plan.plan import Plan
from hippo.planners.base import Progress, Proposal, Status, Stop
from hippo.problem.links import base_bandwidth, base_latency
from hippo.problem.problem import Problem


class Told:
    """A planner that says what it is told to say: the first plan on a whole network, the other one on a weak one."""

    name = "told"

    def __init__(self, usual: Plan | None, other: Plan | None = None) -> None:
        self.usual, self.other, self.asked = usual, other, list[Problem]()

    def propose(self, problem: Problem, stop: Stop, *, seed: int = 0, progress: Progress | None = None) -> Proposal:
        self.asked.append(problem)
        rates = [link.bandwidth_bytes_per_s for link in problem.cluster.links]
        plan = self.usual if self.other is None or rates == self.rates else self.other
        return Proposal(self.name, Status.INFEASIBLE if plan is None else Status.FEASIBLE, plan)

    @property
    def rates(self) -> list[float | None]:
        return [link.bandwidth_bytes_per_s for link in self.asked[0].cluster.links]


def pair(cache: PlanCache) -> tuple[Plan, Plan]:
    """The best plan, over links, and one that needs none."""
    return cache.configurations[0].plan, next(each.plan for each in cache.configurations if len(each.plan.domains) == 1)


def test_it_runs_its_planners_plans_and_levers_of_them(filled: PlanCache) -> None:
    across, alone = pair(filled)
    cache, planner = filled.copy(), Told(alone)
    method = InMotion(lambda: planner)
    first = method.begin(view(cache, running=-1))
    assert method.name == "told"
    assert cache.location(first) == cache.location(cache.add(alone, origin="test") or 0)
    assert across.domains != cache.configurations[first].plan.domains


def test_on_a_still_network_it_asks_once_and_keeps(filled: PlanCache) -> None:
    cache, planner = filled.copy(), Told(pair(filled)[0])
    method = InMotion(lambda: planner)
    first = method.begin(view(cache, running=-1))
    for epoch in range(1, 20):
        assert method.decide(replace(view(cache, running=first), epoch=epoch)) == Action()
    assert len(planner.asked) == 1


def test_where_the_links_are_back_for_good_it_plans_anew_and_moves(filled: PlanCache) -> None:
    across, alone = pair(filled)
    cache, planner = filled.copy(), Told(alone, across)
    method = InMotion(lambda: planner)
    first = method.begin(view(cache, weak(cache, 0, 0.02), running=-1))
    assert cache.configurations[first].plan.domains == alone.domains
    free = replace(view(cache, running=first, left=2000), epoch=12, usd_per_token=0.0)  # egress does not count
    answer = method.decide(free)
    assert len(planner.asked) == 2
    assert answer.how in (How.STOP, How.BACKGROUND)
    assert cache.configurations[answer.target].plan.domains == across.domains


def test_what_does_not_pay_is_not_done(filled: PlanCache) -> None:
    """The links are back at the next horizon: to move a model there and back is not worth an epoch."""
    across, alone = pair(filled)
    cache, planner = filled.copy(), Told(across, alone)
    method = InMotion(lambda: planner)
    first = method.begin(view(cache, running=-1))
    short = replace(view(cache, weak(cache, first, 0.5, until=1), running=first, left=2000), epoch=12)
    answer = method.decide(short)
    assert len(planner.asked) == 2
    assert answer == Action()


def test_without_a_plan_of_its_own_it_begins_as_static_does(filled: PlanCache) -> None:
    cache = filled.copy()
    method = InMotion(lambda: Told(None))
    assert method.begin(view(cache, running=-1)) == Static().begin(view(cache, running=-1))
    assert method.decide(view(cache, running=0)) == Action()


def test_a_domain_that_does_not_answer_is_not_planned_for(filled: PlanCache) -> None:
    problem = filled.problem
    names = [domain.name for domain in problem.cluster.domains]
    lost = np.ones(len(names))
    lost[1] = np.inf
    state = Net(base_bandwidth(problem.cluster), base_latency(problem.cluster))
    found = reachable(problem, state, lost).cluster
    assert [domain.name for domain in found.domains] == [name for name in names if name != names[1]]
    assert all(names[1] not in (link.source, link.destination) for link in found.links)


def test_a_planner_is_asked_again_without_a_domain_that_is_slow_for_it_knows_no_load(filled: PlanCache) -> None:
    cache, planner = filled.copy(), Told(pair(filled)[1])
    (home,) = planner.usual.domains if planner.usual else ()
    slow = view(cache, running=-1)
    slow.forecast.compute[:, [domain.name for domain in cache.problem.cluster.domains].index(home)] = 50.0
    InMotion(lambda: planner).begin(slow)
    assert [home in (domain.name for domain in asked.cluster.domains) for asked in planner.asked] == [True, False]


def test_it_plans_for_the_network_that_is_expected_where_its_setting_says_so(filled: PlanCache) -> None:
    cache, planner = filled.copy(), Told(pair(filled)[0])
    share = np.ones((5, len(cache.problem.cluster.links)))
    share[:3] = 0.5  # until 16 epochs from now on they get better, from then on they are as usual
    InMotion(lambda: planner, Motion(epochs=16.0, expected=True)).begin(view(cache, share, running=-1))
    now, expected = ([link.bandwidth_bytes_per_s or 0.0 for link in asked.cluster.links] for asked in planner.asked)
    assert np.array(expected) / np.array(now) == pytest.approx((4 * 0.5 + 12 * 0.75) / 16 / 0.5)


def test_settings_were_searched_with_as_many_plays_for_each_method() -> None:
    """On training networks, with the default among them; what is kept is no worse than the default there."""
    found = searched()
    assert found["budget"]["split"] == "train"
    assert set(found["methods"]) == {"receding_horizon", "hysteresis", "mast", "sailor", "crosspipe", "diloco"}
    for name, each in found["methods"].items():
        assert each["worlds"] == len(found["budget"]["families"]), name
        assert each["of_hindsight"] >= each["usual_of_hindsight"] >= each["worst_of_hindsight"], name
    assert SAILOR().motion == chosen("sailor", Motion)
    assert chosen("nobody", Motion) == Motion()
