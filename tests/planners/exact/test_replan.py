"""Searching a problem again under other links, or over some of its domains, against the exact search asked anew."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
from tests.planners.tiny import A100, both, domain

from hippo.decide.reasons import Switch
from hippo.decide.rivals import Alternatives, Knob, switches
from hippo.decide.what_if import changed_links, scaled_link
from hippo.decide.wording import joining
from hippo.planners import effort as efforts
from hippo.planners.base import Stop
from hippo.planners.effort import Effort
from hippo.planners.exact import search, space
from hippo.planners.exact.replan import DomainReplanner
from hippo.planners.exact.search import Exact
from hippo.planners.exact.space import Only
from hippo.problem.catalogue.clusters import cluster as catalogued
from hippo.problem.catalogue.models import model as known_model
from hippo.problem.cluster import Cluster, Domain, Link
from hippo.problem.gpus import gpu
from hippo.problem.load import load_problem
from hippo.problem.objective import Objective
from hippo.problem.problem import Problem
from hippo.problem.workload import Workload
from hippo.score.judge import Judged, flaw, judge

STOP = Stop(time_limit_s=30.0)


@pytest.fixture(scope="module")
def problem() -> Problem:
    return load_problem(model="llama-3-8b", cluster="toy", global_batch=64, seq=4096, runtime="hippo")


def under(problem: Problem, factor: float) -> Problem:
    return changed_links(problem, lambda link: scaled_link(link, bandwidth=factor))


@pytest.mark.parametrize("factor", [0.5, 1.0, 8.0])
def test_a_changed_problem_is_planned_as_well_as_when_it_is_asked_itself(problem, factor):
    changed = under(problem, factor)
    (seconds, best), *_ = DomainReplanner.of(problem).plans(changed, Effort())
    itself = Exact().propose(changed, STOP)
    assert judge(changed, best).step_time_s == pytest.approx(seconds)
    assert seconds <= itself.score.step_time_s * 1.005


@pytest.mark.parametrize("chosen", [slice(1), slice(1, 2), slice(2)])
def test_plans_over_some_domains_use_all_of_them_and_no_other(problem, chosen):
    at = problem.cluster.domain_index
    chosen = tuple(domain.name for domain in problem.cluster.domains)[chosen]
    found = DomainReplanner.of(problem).plans(problem, Effort(), Only(frozenset(at[name] for name in chosen)))
    assert found
    for _, plan in found:
        assert set(plan.domains) == set(chosen)
        assert flaw(problem, plan) is None


def test_replicas_alone_are_found_where_pipelines_are_quicker(problem):
    at = problem.cluster.domain_index
    found = DomainReplanner.of(problem).plans(problem, Effort(), Only(frozenset(at.values()), groups=len(at)))
    assert {len({pipeline.domains for pipeline in plan.pipelines}) for _, plan in found} == {len(at)}


def test_a_search_over_unlike_domains_ends_with_its_effort(monkeypatch):
    """Fits of domains that lie differently are most of its work: six sizes stand in 64 mixes."""
    for clock in ("process_time", "monotonic"):
        monkeypatch.setattr(efforts, clock, lambda: 0.0)
    domains = tuple(domain(f"d{at}", nodes, 8 // nodes) for at, nodes in enumerate((1, 2, 4, 8)))
    domains += (domain("d4", 3, 4), domain("d5", 5, 2))
    links = tuple(link for one, two in combinations(domains, 2) for link in both(one.name, two.name, 1e10))
    balanced, work = Objective("time", balance_delta=0.3), Workload(64, 2048)
    asked = Problem(known_model("llama-3-8b"), Cluster("unlike", A100, domains, links), work, balanced)
    short, whole = Effort(0.3), Effort()
    cut, found = (DomainReplanner.of(replace(asked)).plans(asked, each) for each in (short, whole))
    assert 0.3 <= short.spent_s <= 0.36
    assert whole.spent_s > 2 * short.spent_s
    assert short.cut
    assert not whole.cut
    assert cut
    assert found[0][0] <= cut[0][0]


def test_local_sgd_alone(problem):
    found = DomainReplanner.of(problem).plans(replace(problem, allow_local_sgd=True), Effort(), local_sgd=True)
    assert {plan.sync.method for _, plan in found} == {"local_sgd"}


def test_at_either_end_of_an_interval_the_exact_search_does_as_told(problem):
    """At the end near today its plan does as the answer, at the other as the rival."""
    proposal = Exact().propose(problem, STOP)
    known = tuple(each for each in proposal.runners_up)
    others = Alternatives(proposal.best, known, DomainReplanner.of(problem))
    rival = next(each for each in others.search() if len(each.plan.domains) != len(proposal.plan.domains))
    (limit,) = switches(others, proposal.best, rival)
    assert isinstance(limit, Switch)
    assert limit.planned_anew
    assert limit.verified
    assert max(limit.low, limit.high) / min(limit.low, limit.high) <= 1.1
    for value, domains in ((limit.high, rival.plan.domains), (limit.low, proposal.plan.domains)):
        changed = Knob("bandwidth").changed(problem, value / limit.actual)
        assert len(Exact().propose(changed, STOP).plan.domains) == len(domains)


def test_an_answer_asked_twice_has_the_same_intervals(problem):
    def told() -> list[str]:
        asked = replace(problem)
        proposal = Exact().propose(asked, STOP)
        others = Alternatives(proposal.best, proposal.runners_up, DomainReplanner.of(asked))
        others.search()
        return [each.sentence() for rival in others.known for each in switches(others, proposal.best, rival)]

    assert told() == told()


def test_levers_of_the_answer_do_not_spoil_what_else_was_possible():
    """With eight bits over borders, the search of the answer meets only poor pipelines over three of four regions."""
    names = ("aws-eu-central-1", "azure-eastus", "gcp-us-central1", "gcp-europe-west4")
    whole = catalogued("twelve-cloud-regions")
    domains = tuple(replace(domain, nodes=2) for domain in whole.domains if domain.name in names)
    links = tuple(link for link in whole.links if {link.source, link.destination} <= set(names))
    asked = Problem(
        known_model("megatron-39b"),
        replace(whole, domains=domains, links=links),
        Workload(1024, 2048),
        runtime="hippo",
        allow_compression=True,
    )
    answer = Exact().propose(asked, Stop(10.0)).best
    assert isinstance(answer, Judged)
    others = Alternatives(answer, (), DomainReplanner.of(asked, answer.plan))
    crossing = [each for each in others.search() if joining(each.plan) == "pipeline across domains"]
    three = [each for each in crossing if len(each.plan.domains) == 3]
    assert {each.plan.domains for each in three if each.plan.compression}
    best_plain_s = 59.6  # over three of them without compression: eight bits shorten a step, or leave it
    assert all(each.step_time_s <= 1.02 * best_plain_s for each in three)
    assert len({frozenset(each.plan.domains) for each in three}) == 4


def test_twice_the_patience_finds_no_better_local_sgd(monkeypatch):
    """The best lies behind more than a dozen shapes that look as good before their operations are ordered."""
    domains = tuple(Domain(name, 16, 8, 3e11, 2e11, 5e-6) for name in ("d0", "d1", "d2"))
    pairs = ("d0", "d1", 0.62e9, 0.02), ("d0", "d2", 3.5e9, 0.05), ("d1", "d2", 2.6e9, 0.04)
    links = tuple(Link(*ways, rate, late, 0.02) for one, two, rate, late in pairs for ways in ((one, two), (two, one)))
    where = Cluster("alike", gpu("A100-SXM-80GB"), domains, links)
    asked = Problem(known_model("mixtral-8x7b"), where, Workload(256, 4096), runtime="hippo", allow_local_sgd=True)
    (seconds, _), *_ = DomainReplanner.of(asked).plans(asked, Effort(), local_sgd=True)
    monkeypatch.setattr(search, "FIRST_WAYS", 2 * search.FIRST_WAYS)
    for name in ("PATIENCE", "LONG_PATIENCE", "ORDERED_PATIENCE"):
        monkeypatch.setattr(space, name, 2 * getattr(space, name))
    (patient, _), *_ = DomainReplanner.of(replace(asked)).plans(asked, Effort(), local_sgd=True)
    assert seconds == pytest.approx(patient, rel=1e-3)
