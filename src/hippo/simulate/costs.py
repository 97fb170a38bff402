"""How the cost model is asked about a plan: the layout of each stage, and one cost model per problem."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from hippo.cost.collectives import Fabric
from hippo.cost.cost_model import CostModel
from hippo.cost.stage import Layout, StageCost, StageMemory
from hippo.errors import InputError
from hippo.plan.plan import Pipeline, Plan, Stage
from hippo.problem.links import base_bandwidth, base_latency, per_node_only
from hippo.problem.problem import Problem
from hippo.problem.runtimes import ACROSS

_KEPT = 8
_KNOWN: OrderedDict[int, tuple[Problem, Costs]] = OrderedDict()
_MOST_ANSWERS = 200_000

Floats = NDArray[np.float64]
_Answer = TypeVar("_Answer")
Span = tuple[str, int, int]  # domain, layers [start, stop)


@dataclass(frozen=True, eq=False)
class Costs:
    """A cost model that remembers what it was asked about stages: plans of one search share most of their stages."""

    model: CostModel
    _stages: dict[Layout, dict[Span, StageCost]] = field(default_factory=dict)
    _memories: dict[Layout, dict[Span, StageMemory]] = field(default_factory=dict)

    @cached_property
    def bandwidth(self) -> Floats:
        """Base bytes/s of the links, (E,)."""
        return _fixed(base_bandwidth(self.model.problem.cluster))

    @cached_property
    def latency(self) -> Floats:
        """Base one-way seconds of the links, (E,)."""
        return _fixed(base_latency(self.model.problem.cluster))

    @cached_property
    def per_node(self) -> NDArray[np.bool_]:
        """Links with nothing but a cap per node, (E,)."""
        return per_node_only(self.model.problem.cluster)

    @cached_property
    def capped(self) -> bool:
        """Whether nodes have a cap of their own on some link."""
        return any(link.per_node_bytes_per_s is not None for link in self.model.problem.cluster.links)

    @cached_property
    def alike(self) -> dict[str, str]:
        """Of every domain the first with the same fabric: stages cost the same in both."""
        first: dict[Fabric, str] = {}
        return {name: first.setdefault(fabric, name) for name, fabric in self.model.fabrics.items()}

    def stages(self, plan: Plan, pipeline: Pipeline) -> list[StageCost]:
        """Costs of the stages of a pipeline; raises as ``layout`` does."""
        found = []
        for stage, lay, known in _asked(plan, pipeline, self._stages):
            key = (self.alike[stage.domain], *stage.layers)
            cost = known.get(key)
            if cost is None:
                cost = known[key] = self.model.stage(*key, lay)
            found.append(cost)
        return found

    def memories(self, plan: Plan, pipeline: Pipeline) -> list[StageMemory]:
        """Memory of the stages of a pipeline with nothing in flight; raises as ``layout`` does."""
        found = []
        for stage, lay, known in _asked(plan, pipeline, self._memories):
            key = (self.alike[stage.domain], *stage.layers)
            memory = known.get(key)
            if memory is None:
                memory = known[key] = self.model.memory(*key, lay, live=0.0)
            found.append(memory)
        return found


def _fixed(array: Floats) -> Floats:
    array.setflags(write=False)
    return array


def _asked(
    plan: Plan, pipeline: Pipeline, known: dict[Layout, dict[Span, _Answer]]
) -> Iterator[tuple[Stage, Layout, dict[Span, _Answer]]]:
    """Each stage with its layout and what is known about that layout; equal layouts are looked up once."""
    last: tuple[int, int, int] | None = None
    for stage in pipeline.stages:
        own = stage.tp, stage.dp, replicas(plan, stage)
        if own != last:
            last, lay = own, layout(plan, pipeline, stage)
            answers = known.setdefault(lay, {})
            if len(answers) > _MOST_ANSWERS:
                answers.clear()
        yield stage, lay, answers


def costs(problem: Problem) -> Costs:
    """What is known about the costs of a problem; the same object for the same problem."""
    found = _KNOWN.get(id(problem))
    if found is None or found[0] is not problem:
        found = _KNOWN[id(problem)] = (problem, _costs(problem))
        while len(_KNOWN) > _KEPT:
            _KNOWN.popitem(last=False)
    return found[1]


def _costs(problem: Problem) -> Costs:
    """What was asked about a problem that costs the same (other links or wishes) need not be found again."""
    parts = _priced(problem)
    for other, known in reversed(_KNOWN.values()):
        if all(one is two for one, two in zip(parts, _priced(other), strict=True)):
            return replace(known, model=replace(known.model, problem=problem))
    return Costs(CostModel(problem))


def _priced(problem: Problem) -> tuple[object, ...]:
    """All that costs of stages depend on, and the degrees for which memory is estimated."""
    where = problem.cluster.gpu, problem.cluster.domains
    degrees = problem.context_parallel, problem.expert_parallel, problem.expert_tensor_parallel
    rules = problem.rules.context_ways, problem.rules.sequence_parallel
    return problem.model, problem.workload, problem.profile, *rules, *where, *degrees


def cost_model(problem: Problem) -> CostModel:
    """The cost model of a problem, with its caches; the same object for the same problem."""
    return costs(problem).model


def layout(plan: Plan, pipeline: Pipeline, stage: Stage) -> Layout:
    """The layout of one stage of a plan.

    Raises ``InputError`` when the lanes of the stage cannot share a wave evenly.
    """
    wave = plan.micro_batch * pipeline.stages[0].dp
    if wave % stage.dp:
        remedy = f"give the stage a dp that divides {wave}, the sequences of one wave"
        raise InputError(
            "a wave does not split over the lanes of the stage", key="stages.dp", value=stage.dp, remedy=remedy
        )
    return Layout(
        tp=stage.tp,
        dp=stage.dp,
        micro_batch=wave // stage.dp,
        cp=plan.context_parallel,
        ep=plan.expert_parallel,
        etp=plan.expert_tensor_parallel,
        in_open=in_open(plan, pipeline),
        recompute=plan.recompute,
        sharding=plan.sharding,
        sequence_parallel=plan.sequence_parallel,
        interleave=plan.interleave,
        precision=plan.precision,
        num_stages=len(pipeline.stages),
        replicas=replicas(plan, stage),
    )


def in_open(plan: Plan, pipeline: Pipeline) -> float | None:
    """Share of a pipeline's exchanges of experts that run beside nothing; None: none runs beside other work.

    On the way of the first micro-batch down, through all that the last rank runs ahead, and of the last one up, ``p``
    stages by ``v`` chunks are passed whose forward or backward has no partner: ``p`` of the ``m`` micro-batches. They
    are spread evenly over all operations, which each then last as long in every wave.
    """
    return min(1.0, len(pipeline.stages) / pipeline.num_micro_batches) if plan.overlap_exchange else None


def replicas(plan: Plan, stage: Stage) -> int:
    """Data-parallel lanes that hold all layers of a stage: its own, where nothing is sharded over other ones."""
    if plan.sharding not in ("full", ACROSS) or plan.sync.method == "local_sgd":
        return stage.dp
    start, stop = stage.layers
    every = [each for line in plan.pipelines for each in line.stages]
    firsts = {start, *(each.layers[0] for each in every if start < each.layers[0] < stop)}
    return min(sum(each.dp for each in every if each.layers[0] <= layer < each.layers[1]) for layer in firsts)


def chunk_layers(pipeline: Pipeline, chunks: int) -> list[list[tuple[int, int]]]:
    """Layers [start, stop) of chunk c of stage s at ``[s][c]``: dealt round robin, the stage's count kept.

    Where a stage's count does not divide by the chunks, its first chunks hold one layer more (on the last stage its
    last ones).
    """
    if chunks == 1:
        return [[stage.layers] for stage in pipeline.stages]
    last = len(pipeline.stages) - 1
    sizes = [_split(stage.num_layers, chunks, late=index == last) for index, stage in enumerate(pipeline.stages)]
    ranges: list[list[tuple[int, int]]] = [[] for _ in pipeline.stages]
    start = 0
    for chunk in range(chunks):
        for stage, parts in enumerate(sizes):
            ranges[stage].append((start, start + parts[chunk]))
            start += parts[chunk]
    return ranges


def _split(total: int, parts: int, *, late: bool) -> list[int]:
    small, more = divmod(total, parts)
    sizes = [small + 1] * more + [small] * (parts - more)
    return sizes[::-1] if late else sizes


@lru_cache(maxsize=4096)
def nodes(devices: tuple[str, ...]) -> frozenset[str]:
    """Nodes (``domain/node``) on which the devices sit."""
    return frozenset(device.rsplit("/", 1)[0] for device in devices)


@lru_cache(maxsize=4096)
def lane_nodes(devices: tuple[str, ...], lanes: int) -> tuple[frozenset[str], ...]:
    """Nodes of each of so many lanes."""
    step = len(devices) // lanes
    return tuple(nodes(devices[at : at + step]) for at in range(0, len(devices), step))


@lru_cache(maxsize=4096)
def lanes_face(sender: tuple[str, ...], receiver: tuple[str, ...], lanes: int) -> bool:
    """Whether every lane of two stages with ``lanes`` lanes each starts on the same node in both."""
    step, other = len(sender) // lanes, len(receiver) // lanes
    pairs = ((sender[lane * step], receiver[lane * other]) for lane in range(lanes))
    return all(one.rsplit("/", 1)[0] == two.rsplit("/", 1)[0] for one, two in pairs)


def shared_nodes(stages: Sequence[Stage]) -> NDArray[np.int64]:
    """A number per stage, (G,), the same for stages that have nodes in common, directly or through others."""
    number_of: dict[str, int] = {}
    found = list(range(len(stages)))
    for rank, stage in enumerate(stages):
        met = {number_of[node] for node in nodes(stage.devices) if node in number_of}
        found[rank] = min(met, default=rank)
        if len(met) > 1:
            found = [found[rank] if number in met else number for number in found]
            number_of = {node: found[rank] if number in met else number for node, number in number_of.items()}
        number_of |= dict.fromkeys(nodes(stage.devices), found[rank])
    return np.array(found)
