"""Who sits where: small worlds by hand, and any plan."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given

from hippo.export.ranks import LANES, PLAN, STAGES, rank_order
from hippo.plan.plan import Pipeline, Plan, Stage
from hippo.problem.problem import Problem

from ..strategies import planned
from .examples import devices, example, replicas

EVERY = (STAGES, LANES, PLAN)


def test_the_example_is_numbered_stage_by_stage_and_host_by_host():
    placed = rank_order(example()[1])
    assert placed.order == STAGES
    assert [(host.domain, host.position, host.ranks[0].rank) for host in placed.hosts] == [
        ("dc-a", 0, 0),
        ("dc-b", 0, 8),
    ]
    assert [(each.stage, each.lane, each.tensor) for each in placed.ranks[:6]] == [
        *((0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 1)),
        *((1, 0, 0), (1, 0, 1)),
    ]
    assert placed.whole


def test_replicas_in_different_domains_are_numbered_lane_by_lane():
    placed = rank_order(replicas()[1])
    assert placed.order == LANES
    assert placed.whole
    first = placed.hosts[0].agents[0]
    # lane 0: stage 0 on GPUs 0, 1, stage 1 on 2, 3; lane 1: stage 0 on 4, 5, stage 1 on 6, 7
    assert first.gpus == (0, 1, 2, 3, 4, 5, 6, 7)
    assert [each.stage for each in first.ranks] == [0, 0, 1, 1, 0, 0, 1, 1]


def test_without_that_order_a_host_needs_two_agents():
    placed = rank_order(replicas()[1], (STAGES,))
    assert [len(host.agents) for host in placed.hosts] == [2, 2]
    assert [agent.index for host in placed.hosts for agent in host.agents] == [0, 2, 1, 3]
    assert placed.num_agents == 4


def test_gpus_are_counted_among_those_in_use():
    stages = (Stage("dc-a", (0, 34), 2, 1, devices("dc-a", 7, 5)),)
    (host,) = rank_order(Plan((Pipeline(stages, 8),), 1)).hosts
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
    assert rank_order(plan, (STAGES,)).whole  # stage 0 of both, then stage 1 of both
    assert not rank_order(plan, (LANES,)).whole
    assert rank_order(plan, (PLAN,)).whole


@pytest.mark.parametrize("order", EVERY)
@given(drawn=planned())
def test_every_rank_has_its_own_device_in_its_stages_domain(order: str, drawn: tuple[Problem, Plan]):
    _, plan = drawn
    placed = rank_order(plan, (order,))
    wanted = sorted(device for line in plan.pipelines for stage in line.stages for device in stage.devices)
    assert [each.rank for each in placed.ranks] == list(range(plan.gpus))
    assert sorted(each.device for each in placed.ranks) == wanted
    for each in placed.ranks:
        stage = plan.pipelines[each.pipeline].stages[each.stage]
        assert each.device.startswith(f"{stage.domain}/")
        at = (each.lane * plan.context_parallel + each.context) * stage.tp + each.tensor
        assert stage.devices[at] == each.device
    _agents_tile_the_ranks(placed)


def _agents_tile_the_ranks(placed):
    agents = sorted((agent for host in placed.hosts for agent in host.agents), key=lambda agent: agent.index)
    assert [each.rank for agent in agents for each in agent.ranks] == list(range(len(placed.ranks)))
    assert all(host.index < other.index for host, other in pairwise(placed.hosts))
    for host in placed.hosts:
        assert {each.node for each in host.ranks} == {f"{host.domain}/{host.node}"}
        gpus = [gpu for agent in host.agents for gpu in agent.gpus]
        assert sorted(gpus) == list(range(len(gpus)))
    for domain in placed.domains:
        assert [host.position for host in placed.hosts_of(domain)] == list(range(len(placed.hosts_of(domain))))
