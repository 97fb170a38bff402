"""Who sits where: small worlds by hand, and any plan."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings

from hippo.export.seats import LANES, PLAN, STAGES, seat
from hippo.plan.plan import Pipeline, Plan, Stage
from hippo.problem.problem import Problem

from ..strategies import planned
from .examples import devices, example, replicas

EVERY = (STAGES, LANES, PLAN)


def test_the_example_is_numbered_stage_by_stage_and_host_by_host():
    seating = seat(example()[1])
    assert seating.order == STAGES
    assert [(host.domain, host.position, host.seats[0].rank) for host in seating.hosts] == [
        ("dc-a", 0, 0),
        ("dc-b", 0, 8),
    ]
    assert [(each.stage, each.lane, each.tensor) for each in seating.seats[:6]] == [
        *((0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 1)),
        *((1, 0, 0), (1, 0, 1)),
    ]
    assert seating.whole


def test_replicas_in_different_domains_are_numbered_lane_by_lane():
    seating = seat(replicas()[1])
    assert seating.order == LANES
    assert seating.whole
    first = seating.hosts[0].agents[0]
    # lane 0: stage 0 on GPUs 0, 1, stage 1 on 2, 3; lane 1: stage 0 on 4, 5, stage 1 on 6, 7
    assert first.gpus == (0, 1, 2, 3, 4, 5, 6, 7)
    assert [each.stage for each in first.seats] == [0, 0, 1, 1, 0, 0, 1, 1]


def test_without_that_order_a_host_needs_two_agents():
    seating = seat(replicas()[1], (STAGES,))
    assert [len(host.agents) for host in seating.hosts] == [2, 2]
    assert [agent.index for host in seating.hosts for agent in host.agents] == [0, 2, 1, 3]
    assert seating.num_agents == 4


def test_gpus_are_counted_among_those_in_use():
    stages = (Stage("dc-a", (0, 34), 2, 1, devices("dc-a", 7, 5)),)
    (host,) = seat(Plan((Pipeline(stages, 8),), 1)).hosts
    assert host.agents[0].gpus == (1, 0)


def test_a_program_that_reads_the_map_never_needs_two_agents():
    """Two pipelines over the same two hosts, each with a stage on each: no order of degrees is whole."""
    lines = tuple(
        Pipeline(
            (
                Stage("dc-a", (0, 17), 2, 2, devices("dc-a", *range(4 * p, 4 * p + 4))),
                Stage("dc-b", (17, 34), 2, 2, devices("dc-b", *range(4 * p, 4 * p + 4))),
            ),
            4,
        )
        for p in range(2)
    )
    plan = replace(example()[1], pipelines=lines)
    assert seat(plan, (STAGES,)).whole  # stage 0 of both, then stage 1 of both
    assert not seat(plan, (LANES,)).whole
    assert seat(plan, (PLAN,)).whole


@pytest.mark.parametrize("order", EVERY)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(drawn=planned())
def test_every_rank_has_its_own_device_in_its_stages_domain(order: str, drawn: tuple[Problem, Plan]):
    _, plan = drawn
    seating = seat(plan, (order,))
    wanted = sorted(device for line in plan.pipelines for stage in line.stages for device in stage.devices)
    assert [each.rank for each in seating.seats] == list(range(plan.gpus))
    assert sorted(each.device for each in seating.seats) == wanted
    for each in seating.seats:
        stage = plan.pipelines[each.pipeline].stages[each.stage]
        assert each.device.startswith(f"{stage.domain}/")
        at = (each.lane * plan.context_parallel + each.context) * stage.tp + each.tensor
        assert stage.devices[at] == each.device
    _agents_tile_the_ranks(seating)


def _agents_tile_the_ranks(seating):
    agents = sorted((agent for host in seating.hosts for agent in host.agents), key=lambda agent: agent.index)
    assert [seat.rank for agent in agents for seat in agent.seats] == list(range(len(seating.seats)))
    assert all(host.index < other.index for host, other in pairwise(seating.hosts))
    for host in seating.hosts:
        assert {seat.node for seat in host.seats} == {f"{host.domain}/{host.node}"}
        gpus = [gpu for agent in host.agents for gpu in agent.gpus]
        assert sorted(gpus) == list(range(len(gpus)))
    for domain in seating.domains:
        assert [host.position for host in seating.hosts_of(domain)] == list(range(len(seating.hosts_of(domain))))
