"""From a plan to a program: durations from the cost floor, routes from the links, orders from the schedule.

The dp lanes of a stage move in lockstep: one message per wave carries the bytes of all of them. Between domains it goes
over the directed link (or the two links of the plan's relay), no faster than the nodes of the sending stage may send;
inside a domain it is a pure delay over NVLink or the fabric.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hippo.cost.cost_model import CostModel
from hippo.cost.stage import StageCost
from hippo.dynamics.links import base_bandwidth, base_latency, per_node_only
from hippo.pipeline.schedule import order_of
from hippo.plan.plan import Pipeline, Plan, Stage
from hippo.problem.problem import Problem
from hippo.simulate.agree import Replicas, sync_groups, wan_gather
from hippo.simulate.layouts import chunk_layers, cost_model, lanes_face, layout, nodes
from hippo.simulate.program import Program
from hippo.simulate.routes import Routes


@dataclass(frozen=True)
class Message:
    """What one chunk of a stage sends in one direction per wave."""

    num_bytes: float = 0.0
    route: tuple[int, int] = (-1, -1)
    delay_s: float = 0.0
    nic_bytes_per_s: float = np.inf


NOTHING = Message()


@dataclass
class _Columns:
    """Rows of the program as they are collected, one per rank."""

    seconds: list[list[tuple[float, float, float]]] = field(default_factory=list)
    once: list[tuple[float, float]] = field(default_factory=list)
    down: list[list[Message]] = field(default_factory=list)
    up: list[list[Message]] = field(default_factory=list)


def lower(problem: Problem, plan: Plan, *, cost: CostModel | None = None) -> Program:
    """The program of one optimizer step of ``plan``.

    Raises ``InputError`` when domains that exchange data have no link, when lanes do not share a wave evenly, or when
    the schedule does not exist for the plan's numbers.
    """
    cost = cost or cost_model(problem)
    routes = Routes.of(problem.cluster, plan)
    columns = _Columns()
    for pipeline in plan.pipelines:
        _lower_pipeline(columns, plan, pipeline, cost, routes)
    replicas = Replicas.of(plan, cost, routes)
    gather, extra = wan_gather(replicas)
    seconds, once = np.array(columns.seconds), np.array(columns.once)
    lengths = [len(pipeline.stages) for pipeline in plan.pipelines]
    domain = problem.cluster.domain_index
    return Program(
        num_waves=np.array([pipeline.num_micro_batches for pipeline in plan.pipelines]),
        rank_pipeline=np.repeat(np.arange(len(lengths)), lengths),
        rank_stage=np.concatenate([np.arange(length) for length in lengths]),
        rank_domain=np.array([domain[stage.domain] for stage in replicas.stages]),
        forward_s=np.ascontiguousarray(seconds[:, :, 0]),
        backward_s=np.ascontiguousarray(seconds[:, :, 1]),
        weight_s=np.ascontiguousarray(seconds[:, :, 2]),
        sync_s=np.ascontiguousarray(once[:, 0]),
        finish_s=np.ascontiguousarray(once[:, 1]),
        **_message_arrays("down", columns.down),
        **_message_arrays("up", columns.up),
        **_orders(plan),
        groups=sync_groups(replicas),
        link_bandwidth_bytes_per_s=base_bandwidth(problem.cluster),
        link_latency_s=base_latency(problem.cluster),
        extra_link_bytes=extra,
        link_per_node=per_node_only(problem.cluster),
        gather=gather,
    )


def _lower_pipeline(columns: _Columns, plan: Plan, pipeline: Pipeline, cost: CostModel, routes: Routes) -> None:
    stages, chunks = pipeline.stages, plan.interleave
    costs = [cost.stage(stage.domain, *stage.layers, layout(plan, pipeline, stage)) for stage in stages]
    ranges = chunk_layers(pipeline, chunks)
    sizes = [each.output_bytes * stage.dp for each, stage in zip(costs, stages, strict=True)]
    for s, stage in enumerate(stages):
        columns.seconds.append(_chunk_seconds(plan, pipeline, stage, ranges[s], costs[s], cost))
        columns.once.append((costs[s].sync_s, costs[s].optimizer_s + costs[s].fixed_s))
        after, before = stages[(s + 1) % len(stages)], stages[s - 1]
        down = _message(plan, stage, after, sizes[s], cost, routes) if s + 1 < len(stages) or chunks > 1 else NOTHING
        up = _message(plan, stage, before, sizes[s - 1], cost, routes) if s > 0 or chunks > 1 else NOTHING
        wraps_down, wraps_up = s + 1 == len(stages), s == 0
        columns.down.append([NOTHING if wraps_down and c == chunks - 1 else down for c in range(chunks)])
        columns.up.append([NOTHING if wraps_up and c == 0 else up for c in range(chunks)])


def _chunk_seconds(
    plan: Plan, pipeline: Pipeline, stage: Stage, ranges: Sequence[tuple[int, int]], total: StageCost, cost: CostModel
) -> list[tuple[float, float, float]]:
    """Forward, backward and weight seconds of each chunk of a stage."""
    if len(ranges) == 1:
        return [(total.forward_s, total.backward_s, total.weight_gradient_s)]
    seconds = cost.layer_seconds(stage.domain, layout(plan, pipeline, stage))
    return [tuple(seconds[start:stop].sum(axis=0).tolist()) for start, stop in ranges]


def _message(plan: Plan, sender: Stage, receiver: Stage, num_bytes: float, cost: CostModel, routes: Routes) -> Message:
    """What ``sender`` sends to ``receiver`` per wave, all lanes together."""
    if sender.domain == receiver.domain:
        return Message(delay_s=_inside(sender, receiver, num_bytes, cost))
    links = routes.links(sender.domain, receiver.domain)
    sent = num_bytes * routes.compressed(sender.domain, receiver.domain, plan.precision)
    cap = routes.cluster.links[links[0]].per_node_bytes_per_s
    nic = np.inf if cap is None else cap * len(nodes(sender.devices))
    return Message(sent, (links[0], links[1] if len(links) > 1 else -1), 0.0, nic)


def _inside(sender: Stage, receiver: Stage, num_bytes: float, cost: CostModel) -> float:
    """Seconds inside a domain: lanes over NVLink where both stages share the node, else over the nodes' networks."""
    if sender.devices == receiver.devices:
        return 0.0
    if sender.dp == receiver.dp and lanes_face(sender.devices, receiver.devices, sender.dp):
        return cost.p2p_seconds(sender.domain, num_bytes / sender.dp, same_node=True)
    return cost.p2p_seconds(sender.domain, num_bytes / len(nodes(sender.devices)), same_node=False)


def _message_arrays(side: str, rows: list[list[Message]]) -> dict[str, Any]:
    """Columns of one direction, (G, C) each, routes (G, C, 2)."""
    return {
        f"{side}_bytes": np.array([[each.num_bytes for each in row] for row in rows]),
        f"{side}_route": np.array([[each.route for each in row] for row in rows], dtype=np.int64),
        f"{side}_delay_s": np.array([[each.delay_s for each in row] for row in rows]),
        f"{side}_nic_bytes_per_s": np.array([[each.nic_bytes_per_s for each in row] for row in rows]),
    }


def _orders(plan: Plan) -> dict[str, Any]:
    """The operations of every rank, pipeline after pipeline."""
    schedules = [order_of(plan, pipeline) for pipeline in plan.pipelines]
    offsets = np.cumsum([0] + [len(schedule.order) for schedule in schedules])
    starts = [schedule.order_start[:-1] + offset for schedule, offset in zip(schedules, offsets, strict=False)]
    return {
        "fused": schedules[0].fused,
        "order": np.concatenate([schedule.order for schedule in schedules]),
        "order_start": np.concatenate([*starts, offsets[-1:]]),
    }
