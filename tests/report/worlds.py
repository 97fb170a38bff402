"""Stories made by hand: small enough to know every figure, and one as large as a report must still draw."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hippo.cost.stage import StageMemory
from hippo.decide.decision import Decision, PlannerRow
from hippo.decide.reasons import Binding, Bottleneck, Capacity
from hippo.plan.plan import Pipeline, Plan, Stage
from hippo.planners.base import Status
from hippo.problem.cluster import Cluster, Domain, Gpu, Link
from hippo.problem.model import gpt_model
from hippo.problem.problem import Problem
from hippo.problem.workload import Workload
from hippo.report.story import PlanStory
from hippo.score.judge import Judged
from hippo.score.score import Score
from hippo.simulate.program import Program
from hippo.simulate.timeline import Timeline

GPU = Gpu("A100-SXM-80GB", {"bf16": 312e12}, 80e9, 2.0e12, 300e9, 1.8, family="ampere")
GB = 1e9


def make_problem(names: tuple[str, ...], *, model: str = "toy-4b", layers: int = 22, gbps: float = 4.0) -> Problem:
    """Domains of 2 x 8 GPUs, a link in either direction between neighbours of a ring."""
    domains = tuple(Domain(name, 2, 8, 300e9, 100e9, 5e-6) for name in names)
    pairs = {(a, b) for i, a in enumerate(names) for b in (names[(i + 1) % len(names)], names[i - 1]) if a != b}
    links = tuple(Link(a, b, gbps / 8 * GB, 0.02, 0.02) for a, b in sorted(pairs))
    cluster = Cluster("hand-made", GPU, domains, links)
    toy = gpt_model(model, layers=layers, hidden=1024, heads=8, vocab=32000, seq=2048, gated=True)
    return Problem(toy, cluster, Workload(global_batch=8, seq=2048))


def make_plan(problem: Problem, domains: tuple[str, ...], *, stages: int, micro_batches: int) -> Plan:
    """One pipeline of equal stages, dealt evenly to the domains, tp 2 and dp 1."""
    total, bounds = problem.model.num_layers, [problem.model.num_layers * s // stages for s in range(stages + 1)]
    assert bounds[-1] == total
    built = tuple(
        Stage(
            domains[s * len(domains) // stages], (bounds[s], bounds[s + 1]), 2, 1, (f"d/0/{2 * s}", f"d/0/{2 * s + 1}")
        )
        for s in range(stages)
    )
    return Plan((Pipeline(built, micro_batches),), 1)


def make_program(problem: Problem, plan: Plan) -> Program:
    """Only what drawings read is true in it: routes between domains and bytes."""
    stages = plan.pipelines[0].stages
    size, index = len(stages), problem.cluster.link_index
    routes = np.full((size, 1, 2), -1)
    for s in range(size - 1):
        routes[s, 0, 0] = index.get((stages[s].domain, stages[s + 1].domain), -1)
    ones, zeros = np.ones((size, 1)), np.zeros((size, 1))
    sent = np.where(np.arange(size)[:, None] < size - 1, 0.25 * GB, 0.0)
    return Program(
        num_waves=np.array([plan.pipelines[0].num_micro_batches]),
        rank_pipeline=np.zeros(size, dtype=np.int64),
        rank_stage=np.arange(size),
        rank_domain=np.array([problem.cluster.domain_index[stage.domain] for stage in stages]),
        forward_s=ones,
        backward_s=ones,
        weight_s=ones,
        fused=True,
        sync_s=zeros[:, 0],
        finish_s=zeros[:, 0],
        down_bytes=sent,
        up_bytes=sent[::-1],
        down_route=routes,
        up_route=np.full((size, 1, 2), -1),
        down_delay_s=zeros,
        up_delay_s=zeros,
        down_nic_bytes_per_s=np.full((size, 1), np.inf),
        up_nic_bytes_per_s=np.full((size, 1), np.inf),
        order=np.zeros((0, 3), dtype=np.int64),
        order_start=np.zeros(size + 1, dtype=np.int64),
        groups=(),
        link_bandwidth_bytes_per_s=np.array([link.bandwidth_bytes_per_s for link in problem.cluster.links]),
        link_latency_s=np.array([link.latency_s for link in problem.cluster.links]),
        extra_link_bytes=np.zeros(len(problem.cluster.links)),
    )


def make_timeline(
    problem: Problem,
    ops: list[tuple[int, int, int, float, float]],
    messages: list[tuple[int, int, int, int, float, float]],
) -> Timeline:
    """From (rank, kind, micro-batch, start, end) and (link, rank, kind, micro-batch, start, end); 0.25 GB a message."""
    table, sent = np.array(ops), np.array(messages).reshape(-1, 6)
    whole = table[:, :3].astype(np.int64)
    ranks = int(whole[:, 0].max()) + 1
    computing = whole[:, 1] <= 2
    links = sent[:, 0].astype(np.int64)
    return Timeline(
        step_time_s=float(table[:, 4].max()),
        op_rank=whole[:, 0],
        op_kind=whole[:, 1],
        op_chunk=np.zeros(len(ops), dtype=np.int64),
        op_micro_batch=whole[:, 2],
        op_start_s=table[:, 3],
        op_end_s=table[:, 4],
        message_link=links,
        message_rank=sent[:, 1].astype(np.int64),
        message_kind=sent[:, 2].astype(np.int64),
        message_micro_batch=sent[:, 3].astype(np.int64),
        message_start_s=sent[:, 4],
        message_end_s=sent[:, 5],
        message_bytes=np.full(len(sent), 0.25 * GB),
        rank_busy_s=np.bincount(whole[computing, 0], (table[:, 4] - table[:, 3])[computing], ranks),
        link_bytes=np.bincount(links, minlength=len(problem.cluster.links)) * 0.25 * GB,
    )


def make_score(step_time_s: float, **changes: float) -> Score:
    figures = {
        "step_time_s": step_time_s,
        "utilization": 0.6,
        "utilization_all": 0.4,
        "cross_domain_gb_per_step": 1.0,
        "egress_usd_per_step": 0.02,
        "usd_per_step": 0.2,
        "tokens_per_s": 16384 / step_time_s,
        "mfu": 0.31,
        "peak_memory_gb": 55.0,
        "reward": 0.0,
    }
    return Score(**{**figures, **changes})


def make_memory(stages: int) -> tuple[StageMemory, ...]:
    return tuple(
        StageMemory(10 * GB, 5 * GB, 20 * GB, 2 * GB, float(stages - s), 3 * GB, 1 * GB) for s in range(stages)
    )


HAND_OPS = [
    (0, 0, 0, 0.0, 1.0),
    (0, 0, 1, 1.0, 2.0),
    (0, 1, 0, 5.0, 7.0),
    (0, 1, 1, 8.0, 10.0),
    (0, 3, -1, 10.0, 10.5),
    (0, 4, -1, 10.5, 11.0),
    (1, 0, 0, 1.5, 2.5),
    (1, 1, 0, 2.5, 4.5),
    (1, 0, 1, 4.5, 5.5),
    (1, 1, 1, 5.5, 7.5),
    (1, 3, -1, 7.5, 8.0),
    (1, 4, -1, 8.0, 8.5),
]
"""1F1B of two stages and two micro-batches: forward 1 s, backward 2 s, half a second on the way; 11 s in all."""


def make_story(names: tuple[str, ...] = ("beijing", "guizhou", "wuhu"), *, model: str = "toy-4b") -> PlanStory:
    """The hand-played step on the first two domains, with reasons, rivals and a front."""
    problem = make_problem(names, model=model)
    first, second = names[:2]
    plan = make_plan(problem, (first, second), stages=2, micro_batches=2)
    there, back = problem.cluster.link_index[first, second], problem.cluster.link_index[second, first]
    messages = [
        (there, 0, 0, 0, 1.0, 1.5),
        (there, 0, 0, 1, 2.0, 2.5),
        (back, 1, 1, 0, 4.5, 5.0),
        (back, 1, 1, 1, 7.5, 8.0),
    ]
    timeline = make_timeline(problem, HAND_OPS, messages)
    game = Judged(problem, plan, make_program(problem, plan), make_score(11.0), make_memory(2), timeline)
    alone = make_plan(problem, (first,), stages=1, micro_batches=2)
    cheaper = make_score(14.5, egress_usd_per_step=0.0, utilization=0.9)
    rows = (
        PlannerRow("exact", Status.OPTIMAL, game, 0.0, 11.0, 0.4),
        PlannerRow("single_domain", Status.FEASIBLE, replace(game, plan=alone, score=cheaper), None, None, 0.01),
        PlannerRow("zero", Status.INFEASIBLE, notes=(f"{first} holds no shard of it.",)),
    )
    reasons = (
        Binding("bubble", 6 / 11, 3 / 11, 1 / 11, 0.0, 1 / 11, 0.3, 0.08, 0.01, 0.0),
        Bottleneck(f"stage 0 in {first}", 0.06, 0.05, 6 / 11),
        *(Capacity(f"{first} -> {second}, lane {lane}", 5e8, 31_000.0, 4_000.0, 9_000.0, True) for lane in range(6)),
    )
    front = ((plan, make_score(11.0)), (alone, cheaper))
    return PlanStory(
        game, make_score(11.0), make_memory(2), "exact", 0.0, 11.0, "exact", 0.41, reasons, rows, front=front
    )


def make_wide_story(stages: int = 64, micro_batches: int = 256) -> PlanStory:
    """All forwards, then all backwards, over four domains: as many operations as a large schedule has."""
    names = ("north", "east", "south", "west")
    problem = make_problem(names, layers=126)
    plan = make_plan(problem, names, stages=stages, micro_batches=micro_batches)
    half = float(stages + micro_batches)
    ops, messages = [], []
    for s in range(stages):
        ops += [(s, 0, m, float(s + m), s + m + 0.9) for m in range(micro_batches)]
        ops += [
            (s, 1, m, half + 2 * (stages - 1 - s + m), half + 2 * (stages - s + m) - 0.1) for m in range(micro_batches)
        ]
        ops.append((s, 4, -1, half + 2 * (stages - s + micro_batches), half + 2 * (stages - s + micro_batches) + 4))
    for s, (here, there) in enumerate(zip(plan.pipelines[0].stages, plan.pipelines[0].stages[1:], strict=False)):
        if here.domain != there.domain:
            link = problem.cluster.link_index[here.domain, there.domain]
            messages += [(link, s, 0, m, s + m + 0.9, s + m + 3.0) for m in range(micro_batches)]
    timeline = make_timeline(problem, ops, messages)
    score, memory = make_score(timeline.step_time_s), make_memory(stages)
    return PlanStory(Judged(problem, plan, make_program(problem, plan), score, memory, timeline), score, memory, "even")


def decision_of(story: PlanStory) -> Decision:
    """The decision that the story tells of."""
    return Decision(
        story.problem,
        Status.OPTIMAL,
        story.planner,
        story.game,
        gap=story.gap,
        lower_bound_s=story.lower_bound_s,
        prover=story.prover,
        planning_s=story.planning_s,
        reasons=story.reasons,
        rows=story.rows,
    )
