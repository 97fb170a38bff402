"""Averages that may be late: what a step waits for, by hand, and bytes that are all counted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.simulate.conftest import PlanOf

from hippo.plan.plan import Plan, Sync
from hippo.problem.problem import Problem
from hippo.simulate.fast import step_time
from hippo.simulate.lower import lower
from hippo.simulate.streamed import waited_s
from hippo.simulate.timeline import link_bytes


def test_a_link_serves_one_piece_after_the_other():
    assert waited_s([(1.0, 2.0), (2.0, 2.0)], 4.0) == pytest.approx(1.0)
    assert waited_s([(1.0, 0.5), (3.0, 0.5)], 4.0) == 0.0


@pytest.fixture
def replicas(plan_of: PlanOf) -> Plan:
    return plan_of(("a/0/0 0-8",), ("b/0/0 0-8",))


def times(problem: Problem, plan: Plan, sync: Sync) -> tuple[float, float]:
    """Step time, and bytes on all links."""
    program = lower(problem, replace(plan, sync=sync))
    return step_time(program), float(np.sum(link_bytes(program)))


def test_late_averages_are_waited_for_where_they_are_longer_than_the_steps_between(problem: Problem, replicas: Plan):
    alone_s = step_time(replace(lower(problem, replicas), groups=()))
    whole_s, sent = times(problem, replicas, Sync("local_sgd", 1))
    takes_s = whole_s - alone_s
    for every, fragments, delay in ((2, 1, 1), (8, 2, 1), (8, 2, 3), (1000, 1, 999)):
        step_s, bytes_sent = times(problem, replicas, Sync("local_sgd", every, fragments=fragments, delay=delay))
        # latencies are few here: a fragment takes its share of the whole
        expected = alone_s + max(0.0, takes_s / fragments - delay * alone_s) * fragments / every
        assert step_s == pytest.approx(expected, rel=0.02)
        assert bytes_sent == pytest.approx(sent / every)


def test_a_delay_never_hurts_and_in_the_end_hides_everything(problem: Problem, replicas: Plan):
    alone_s = step_time(replace(lower(problem, replicas), groups=()))
    steps = [times(problem, replicas, Sync("local_sgd", 1000, delay=delay))[0] for delay in (0, 1, 4, 16, 999)]
    assert steps == sorted(steps, reverse=True)
    assert steps[-1] == pytest.approx(alone_s)
    assert steps[0] > alone_s


def test_four_bits_send_a_quarter_of_sixteen(problem: Problem, replicas: Plan):
    (_, usual), (_, few) = (times(problem, replicas, Sync("local_sgd", 10, bits=bits)) for bits in (0, 4))
    assert few == pytest.approx(usual / 4)
