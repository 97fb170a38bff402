"""Small worlds of two domains, a and b, in which every figure can be worked out by hand."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from hippo.plan.plan import Pipeline, Plan, Stage
from hippo.problem.cluster import Cluster, Domain, Gpu, Link
from hippo.problem.model import Attention, FeedForward, Layer, LayerKind, Model
from hippo.problem.problem import Problem
from hippo.problem.workload import Workload
from hippo.schedule.schedule import order
from hippo.score.judge import Judged
from hippo.score.score import Score
from hippo.simulate.abstract import PlannedLine, abstract_program, on_links
from hippo.simulate.fast import play
from hippo.simulate.program import Program

HIDDEN = 256


def tiny_model(blocks: int = 4) -> Model:
    block = Layer(
        LayerKind.BLOCK,
        HIDDEN,
        attention=Attention(4, 4, HIDDEN // 4),
        feed_forward=FeedForward(4 * HIDDEN, gated=False),
    )
    ends = Layer(LayerKind.EMBEDDING, HIDDEN, vocab=1000), Layer(LayerKind.HEAD, HIDDEN, vocab=1000)
    return Model("tiny", HIDDEN, 1000, 128, (ends[0], *[block] * blocks, ends[1]))


def small_gpu(memory_bytes: float = 80e9) -> Gpu:
    return Gpu("A100-SXM-80GB", {"bf16": 312e12}, memory_bytes, 2.0e12, 300e9, 1.8, family="ampere")


def two_domains(*, bandwidth: float = 1e9, latency_s: float = 0.0, price: float = 0.02) -> Cluster:
    """Two domains of one node with one GPU; a link either way."""
    domains = tuple(Domain(name, 1, 1, 300e9, 25e9, 5e-6) for name in "ab")
    links = (Link("a", "b", bandwidth, latency_s, price), Link("b", "a", bandwidth, latency_s, price))
    return Cluster("pair", small_gpu(), domains, links)


def across_plan(micro_batches: int = 4) -> Plan:
    """Layers 0-2 in a, 3-5 in b."""
    stages = (Stage("a", (0, 3), 1, 1, ("a/0/0",)), Stage("b", (3, 6), 1, 1, ("b/0/0",)))
    return Plan((Pipeline(stages, micro_batches),), micro_batch=1)


def alone_plan(micro_batches: int = 4) -> Plan:
    """All layers in a."""
    return Plan((Pipeline((Stage("a", (0, 6), 1, 1, ("a/0/0",)),), micro_batches),), micro_batch=1)


def score(step_time_s: float, **figures: float) -> Score:
    """So many seconds a step, and nothing else unless it is said."""
    known = dict.fromkeys((field.name for field in fields(Score)), 0.0)
    return Score(**(known | {"step_time_s": step_time_s} | figures))


def by_hand(problem: Problem, plan: Plan, program: Program) -> Judged:
    """A plan whose program is not lowered from it."""
    timeline = play(program)
    return Judged(problem, plan, program, score(timeline.step_time_s), played=timeline)


def world(
    *, send_s: float, latency_s: float = 0.0, forward: tuple[float, float] = (1.0, 1.0), waves: int = 4
) -> Judged:
    """The plan across a and b played with bare numbers: backward twice the forward, a message takes ``send_s``."""
    problem = Problem(tiny_model(), two_domains(latency_s=latency_s), Workload(global_batch=waves, seq=100))
    schedule = order("1f1b", stages=2, micro_batches=waves)
    line = PlannedLine(1e9, latency_s)
    program = abstract_program(schedule, forward_s=forward, backward_s=tuple(2 * f for f in forward))
    program = on_links(program, [line, line], down=[[0], []], up=[[], [1]], num_bytes=send_s * 1e9)
    return by_hand(problem, across_plan(waves), program)


def alone(*, forward: float = 2.0, waves: int = 4) -> Judged:
    """The plan in a alone."""
    problem = Problem(tiny_model(), two_domains(), Workload(global_batch=waves, seq=100))
    program = abstract_program(order("1f1b", stages=1, micro_batches=waves), forward_s=forward, backward_s=2 * forward)
    program = replace(program, link_bandwidth_bytes_per_s=np.full(2, 1e9), link_latency_s=np.zeros(2))
    program = replace(program, extra_link_bytes=np.zeros(2))
    return by_hand(problem, alone_plan(waves), program)


@pytest.fixture
def worlds() -> type:
    """The builders above, as one name (test folders are not packages)."""

    class Worlds:
        model, gpu, cluster = staticmethod(tiny_model), staticmethod(small_gpu), staticmethod(two_domains)
        across_plan, alone_plan = staticmethod(across_plan), staticmethod(alone_plan)
        across, alone = staticmethod(world), staticmethod(alone)

    return Worlds
