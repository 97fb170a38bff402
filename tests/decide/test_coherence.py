"""No two sentences of one answer contradict: about what binds, what keeps up, and which plan is the best."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from hippo.decide.choose import decide
from hippo.decide.explain import Context, explain, reasons_of
from hippo.decide.pace import ALLOWED
from hippo.decide.reasons import (
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
from hippo.planners.effort import Effort
from hippo.planners.exact.replan import DomainReplanner
from hippo.planners.exact.search import Exact
from hippo.planners.exact.space import Only
from hippo.problem.load import load_problem
from hippo.score.judge import judge


def one(reasons: Sequence[Reason], kind: type[Reason]) -> Reason:
    (found,) = (reason for reason in reasons if isinstance(reason, kind))
    return found


def agree(reasons: Sequence[Reason]) -> None:
    """One verdict about what binds, in all sentences."""
    binds, tightest = one(reasons, Binding), one(reasons, Bottleneck)
    assert isinstance(binds, Binding)
    assert isinstance(tightest, Bottleneck)
    assert tightest.alone is not binds.matched
    if not binds.matched:
        assert tightest.subject.startswith("the link") is (binds.subject in ("bandwidth", "latency"))
        assert binds.subject in ("compute", "bubble", "synchronisation") or binds.compute_share <= 0.9
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
