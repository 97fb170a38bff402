"""From a plan to a program: durations from the cost model, routes from the links, orders from the schedule.

The dp lanes of a stage move in lockstep: one message per wave carries the bytes of all of them. Between domains it goes
over the directed link (or the two links of the plan's relay), no faster than the nodes of the sending stage may send;
inside a domain it is a pure delay over NVLink or the fabric.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.cost.cost_model import CostModel
from hippo.cost.stage import StageCost
from hippo.plan.plan import Pipeline, Plan, Stage
from hippo.problem.problem import Problem
from hippo.schedule.schedule import Schedule, order_of, split
from hippo.simulate.agree import Replicas, sync_groups, wan_gather
from hippo.simulate.costs import Costs, chunk_layers, costs, lanes_face, layout, nodes, shared_nodes
from hippo.simulate.program import Program
from hippo.simulate.routes import Routes
from hippo.simulate.streamed import streamed
from hippo.simulate.transport.carried import controlled

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Message(NamedTuple):
    """What one chunk of a stage sends in one direction per wave, all lanes together."""

    num_bytes: float = 0.0
    link: int = -1
    second_link: int = -1
    delay_s: float = 0.0
    nic_bytes_per_s: float = np.inf


NOTHING = Message()


def lower(problem: Problem, plan: Plan, *, cost: CostModel | None = None) -> Program:
    """The program of one optimizer step of ``plan``.

    Raises ``InputError`` when domains that exchange data have no link, when lanes do not share a wave evenly, or when
    the schedule does not exist for the plan's numbers.
    """
    known = Costs(cost) if cost is not None else costs(problem)
    border = Border(plan, known.model, Routes.of(problem.cluster, plan))
    pipelines = [_lower_pipeline(pipeline, border, known.stages(plan, pipeline)) for pipeline in plan.pipelines]
    rows = np.concatenate(pipelines) if len(pipelines) > 1 else pipelines[0]
    replicas = Replicas.of(plan, known.model, border.routes)
    gather, extra = wan_gather(replicas)
    lengths = [len(pipeline.stages) for pipeline in plan.pipelines]
    domain = problem.cluster.domain_index
    program = Program(
        num_waves=np.array([pipeline.num_micro_batches for pipeline in plan.pipelines]),
        rank_pipeline=np.repeat(np.arange(len(lengths)), lengths),
        rank_stage=np.concatenate([np.arange(length) for length in lengths]),
        rank_domain=np.array([domain[stage.domain] for stage in replicas.stages]),
        **_columns(rows),
        **_orders(problem, plan),
        groups=sync_groups(replicas),
        link_bandwidth_bytes_per_s=known.bandwidth,
        link_latency_s=known.latency,
        extra_link_bytes=extra,
        link_per_node=known.per_node,
        gather=gather,
        rank_nodes=shared_nodes(replicas.stages) if known.capped else None,
        messages=problem.rules.messages,
    )
    transport = problem.rules.transport.controlled(problem.cluster.congestion)
    program = controlled(program, transport) if transport.congestion.control else program
    return streamed(program, plan.sync) if plan.sync.delay else program


def reordered(program: Program, problem: Problem, plan: Plan) -> Program:
    """The program of a plan that differs from the one that was lowered in nothing but its orders of operations."""
    return replace(program, **_orders(problem, plan))


def _lower_pipeline(pipeline: Pipeline, border: Border, stages: Sequence[StageCost]) -> Floats:
    """Rows of the ranks of a pipeline, (p, C, 15): what ``_columns`` reads."""
    p, chunks = len(pipeline.stages), border.plan.interleave
    hops = p if chunks > 1 else p - 1  # the last stage sends to the first where chunks go round
    there, back = border.both_ways(pipeline, [cost.output_bytes for cost in stages[:hops]])
    seconds = _seconds(pipeline, border, stages)
    rows = []
    for s, cost in enumerate(stages):
        down, up = there[s] if s < hops else NOTHING, back[s - 1] if s > 0 or chunks > 1 else NOTHING
        once = (cost.sync_s, cost.optimizer_s + cost.fixed_s)
        for c in range(chunks):
            ends_down, ends_up = s + 1 == p and c + 1 == chunks, s == 0 and c == 0
            messages = (NOTHING if ends_down else down) + (NOTHING if ends_up else up)
            rows.append(seconds[s][c] + once + messages)
    return np.array(rows).reshape(p, chunks, -1)


def _columns(rows: Floats) -> dict[str, Any]:
    """Arrays of the program by name from rows (G, C, 15)."""
    forward_s, backward_s, weight_s, sync_s, finish_s, *messages = np.ascontiguousarray(rows.transpose(2, 0, 1))
    found = {
        "forward_s": forward_s,
        "backward_s": backward_s,
        "weight_s": weight_s,
        "sync_s": sync_s[:, 0].copy(),
        "finish_s": finish_s[:, 0].copy(),
    }
    for side, (size, first, second, delay, nic) in (("down", messages[:5]), ("up", messages[5:])):
        found |= {f"{side}_bytes": size, f"{side}_delay_s": delay, f"{side}_nic_bytes_per_s": nic}
        found[f"{side}_route"] = np.stack([first, second], axis=2).astype(np.int64)
    return found


def _seconds(pipeline: Pipeline, border: Border, stages: Sequence[StageCost]) -> list[list[tuple[float, ...]]]:
    """Forward, backward and weight seconds of chunk c of stage s at ``[s][c]``."""
    if border.plan.interleave == 1:
        return [[(cost.forward_s, cost.backward_s, cost.weight_gradient_s)] for cost in stages]
    found = []
    for stage, ranges in zip(pipeline.stages, chunk_layers(pipeline, border.plan.interleave), strict=True):
        asked = layout(border.plan, pipeline, stage)
        found.append([border.cost.chunk_seconds(stage.domain, start, stop, asked) for start, stop in ranges])
    return found


@dataclass(frozen=True)
class Border:
    """How neighbours in a pipeline of a plan reach each other."""

    plan: Plan
    cost: CostModel
    routes: Routes

    def both_ways(self, pipeline: Pipeline, lane_bytes: Sequence[float]) -> tuple[list[Message], list[Message]]:
        """What stage s sends on to the next (the last to the first), and what comes back to it, (hops,) each."""
        there, back = [], []
        for s, each in enumerate(lane_bytes):
            one, two = pipeline.stages[s], pipeline.stages[(s + 1) % len(pipeline.stages)]
            if one.domain == two.domain:
                down, up = self._inside(one, two, each * one.dp)
            else:
                down, up = self._between(one, two, each * one.dp), self._between(two, one, each * one.dp)
            there.append(down)
            back.append(up)
        return there, back

    def _between(self, sender: Stage, receiver: Stage, num_bytes: float) -> Message:
        """Over the link or the two links of a relay, no faster than the nodes of the sender may send."""
        links = self.routes.links(sender.domain, receiver.domain)
        sent = num_bytes * self.routes.compressed(sender.domain, receiver.domain, self.plan.precision)
        nic = self.routes.nic_bytes_per_s(links[0], len(nodes(sender.devices)))
        return Message(sent, links[0], links[1] if len(links) > 1 else -1, 0.0, nic)

    def _inside(self, one: Stage, two: Stage, num_bytes: float) -> tuple[Message, Message]:
        """There and back in a domain: over NVLink where lanes face each other in a node, else over nodes' networks."""
        if one.devices == two.devices:
            return NOTHING, NOTHING
        if one.dp == two.dp and lanes_face(one.devices, two.devices, one.dp):
            message = self._delayed(one.domain, num_bytes / one.dp, same_node=True)
            return message, message
        here, over_there = len(nodes(one.devices)), len(nodes(two.devices))
        down = self._delayed(one.domain, num_bytes / here, same_node=False)
        same = here == over_there
        return down, down if same else self._delayed(one.domain, num_bytes / over_there, same_node=False)

    def _delayed(self, domain: str, num_bytes: float, *, same_node: bool) -> Message:
        seconds = self.cost.p2p_seconds(domain, num_bytes, same_node=same_node)
        return Message(0.0, -1, -1, seconds + self.cost.problem.rules.transport.overhead_s, np.inf)


def orders_of(problem: Problem, plan: Plan) -> list[Schedule]:
    """The order of every pipeline as the runtime runs it: B and at once W where gradients leave first and there is
    somebody to send them to; where one pipeline splits its backwards, so do all."""
    schedules = [order_of(plan, pipeline) for pipeline in plan.pipelines]
    sends = any(len(pipeline.stages) > 1 for pipeline in plan.pipelines)
    if (sends and problem.rules.gradients_first) or not all(schedule.fused for schedule in schedules):
        schedules = [split(schedule) for schedule in schedules]
    return schedules


def _orders(problem: Problem, plan: Plan) -> dict[str, Any]:
    """The operations of every rank, pipeline after pipeline."""
    schedules = orders_of(problem, plan)
    if len(schedules) == 1:
        return {"fused": schedules[0].fused, "order": schedules[0].order, "order_start": schedules[0].order_start}
    offsets = np.cumsum([0] + [len(schedule.order) for schedule in schedules])
    starts = [schedule.order_start[:-1] + offset for schedule, offset in zip(schedules, offsets, strict=False)]
    return {
        "fused": schedules[0].fused,
        "order": np.concatenate([schedule.order for schedule in schedules]),
        "order_start": np.concatenate([*starts, offsets[-1:]]),
    }
