"""No two sentences of one answer contradict: about what binds, what keeps up, and which plan is the best."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from tests.planners.tiny import random_problem

from hippo.decide.choose import decide
from hippo.decide.explain import Context, explain, reasons_of
from hippo.decide.pace import ALLOWED, binding
from hippo.decide.reasons import (
    HARDLY_WAITS,
    MATCHED,
    Binding,
    Bottleneck,
    Capacity,
    IdleDomain,
    LinkThreshold,
    MemoryHeadroom,
    Reason,
    RunnerUp,
)
from hippo.planners.base import Stop
from hippo.planners.baselines.crosspipe import CrossPipe
from hippo.planners.baselines.even import Even
from hippo.planners.effort import Effort
from hippo.planners.exact.replan import DomainReplanner
from hippo.planners.exact.search import Exact
from hippo.planners.exact.space import Only
from hippo.problem.load import load_problem
from hippo.score.judge import flaw, judge


def one(reasons: Sequence[Reason], kind: type[Reason]) -> Reason:
    (found,) = (reason for reason in reasons if isinstance(reason, kind))
    return found


def agree(reasons: Sequence[Reason]) -> None:
    """One verdict about what binds, in all sentences."""
    binds, tightest = one(reasons, Binding), one(reasons, Bottleneck)
    assert isinstance(binds, Binding)
    assert isinstance(tightest, Bottleneck)
    assert tightest.alone is not binds.matched
    links = max(binds.bandwidth_gain_share, binds.latency_gain_share)
    ahead = links - binds.compute_gain_share if binds.of_links else binds.compute_gain_share - links
    if binds.matched:
        assert "neither binds alone" in binds.sentence()
        assert ahead < MATCHED
    else:
        assert tightest.subject.startswith("the link") is binds.of_links
        assert ahead >= MATCHED or binds.subject == "synchronisation"
        assert ("the GPUs close behind" in binds.sentence()) is (binds.of_links and binds.compute_share > HARDLY_WAITS)
    if ahead >= MATCHED:  # what helps by far most is what binds
        assert not binds.matched
    waited = {
        frozenset(reason.subject.removeprefix("the link ").split(" <-> "))
        for reason in reasons
        if isinstance(reason, LinkThreshold) and reason.crossed and reason.quantity == "bandwidth"
    }
    for reason in reasons:
        if isinstance(reason, Capacity) and reason.in_use and "keeps up" in reason.sentence():
            assert frozenset(reason.subject.removeprefix("the link ").split(" -> ")) not in waited
            assert reason.lost_share < ALLOWED


@pytest.mark.parametrize(("send_s", "latency_s"), [(10.0, 0.0), (1.0, 0.0), (0.01, 0.0), (1e-6, 20.0), (3.0, 0.1)])
def test_one_verdict_about_what_binds(worlds, send_s, latency_s):
    game = worlds.across(send_s=send_s, latency_s=latency_s)
    agree(reasons_of(game, MemoryHeadroom("stage 1 in a", (50e9,), 76e9), Context("even")))


@pytest.mark.parametrize("seed", range(60))
def test_what_binds_is_what_helps_in_drawn_answers(worlds, seed):
    random = Random(seed)
    game = worlds.across(
        send_s=10 ** random.uniform(-2, 1),
        latency_s=random.choice((0.0, 10 ** random.uniform(-2, 1))),
        forward=(random.uniform(0.5, 2.0), random.uniform(0.5, 2.0)),
        waves=random.choice((2, 4, 16, 40)),
    )
    agree(reasons_of(game, MemoryHeadroom("stage 1 in a", (50e9,), 76e9), Context("even")))


def test_drawn_answers_are_of_every_kind(worlds):
    found = set()
    for send_s in (0.3, 3.0, 10.0):
        binds = binding(worlds.across(send_s=send_s, waves=40), 0.5)
        found.add("matched" if binds.matched else binds.sentence().partition(" binds")[0])
    assert found == {"matched", "Compute", "Bandwidth between domains"}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("planner", [CrossPipe(), Even()])
def test_what_binds_is_what_helps_in_plans(planner, seed):
    problem = random_problem(seed)
    plan = planner.propose(problem, Stop(10.0)).plan
    if plan is not None and flaw(problem, plan) is None:
        agree(explain(judge(problem, plan), Context(planner.name)))


@pytest.mark.parametrize("groups", [1, 2])
def test_a_link_keeps_up_only_where_the_step_does_not_wait_for_it(groups):
    """Replicas send all their gradients at once: over the whole step the link could carry them, and the step waits."""
    problem = load_problem(model="llama-3-8b", cluster="toy", global_batch=64, seq=4096, runtime="hippo")
    both = Only(frozenset(problem.cluster.domain_index.values()), groups)
    (_, plan), *_ = DomainReplanner.of(problem).plans(problem, Effort(), both)
    agree(explain(judge(problem, plan), Context("exact")))


def test_no_plan_told_beside_the_best_is_better_than_it():
    problem = load_problem(model="llama-3-8b", cluster="four-hubs", global_batch=128, seq=4096, runtime="hippo")
    decision = decide(problem, (Exact(),), Stop(10.0), replanner=DomainReplanner)
    agree(decision.reasons)
    told = [reason for reason in decision.reasons if isinstance(reason, RunnerUp)]
    assert told
    assert all(reason.searched and reason.worse_share >= 0 for reason in told)
    idle = [reason for reason in decision.reasons if isinstance(reason, IdleDomain)]
    known = {each.plan.domains: each.step_time_s for each in decision.runners_up}
    for reason in idle:
        with_it = [seconds for domains, seconds in known.items() if reason.subject in domains]
        assert reason.best_with_it_s == min(with_it)
        assert reason.best_with_it_s >= decision.score.step_time_s
