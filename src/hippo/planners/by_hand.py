"""The plan that someone has in mind: one layout, given by its degrees, in one data centre of just enough nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from itertools import product

from hippo.errors import InputError
from hippo.plan.plan import Plan, ScheduleChoice
from hippo.planners.cuts import even_cuts
from hippo.planners.placement import PipelineSketch, StageSketch, place
from hippo.planners.recipe import Recipe
from hippo.problem.cluster import Cluster
from hippo.problem.cluster_yaml import cluster_from_document
from hippo.problem.problem import Problem
from hippo.problem.runtimes import MODULES, RECOMPUTE, SHARDING, is_recomputation

DOMAIN = "site"


@dataclass(frozen=True)
class Degrees:
    """How wide a layout is, and the choices its stages share; names as in the plan file. All degrees are at least 1."""

    tp: int = 1
    dp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    etp: int | None = None  # None: tp
    micro_batch: int = 1
    interleave: int = 1
    schedule: str | None = None  # None: 1f1b, or interleaved where ``interleave`` is above 1
    recompute: str = "none"
    sharding: str = "none"
    sequence_parallel: bool = True
    overlap_exchange: bool = False

    def __post_init__(self) -> None:
        for key in ("tp", "dp", "pp", "cp", "ep", "etp", "micro_batch", "interleave"):
            value = 1 if key == "etp" and self.etp is None else getattr(self, key)
            if not 1 <= value <= 1_000_000:
                raise _refusal(key, "must be from 1 to 1000000", value, "give a positive whole number")
        recomputed = "recompute", is_recomputation(self.recompute), (*RECOMPUTE, "full:N", *MODULES)
        for key, fine, known in (recomputed, ("sharding", self.sharding in SHARDING, SHARDING)):
            if not fine:
                raise _refusal(key, "is unknown", getattr(self, key), f"use one of {', '.join(known)}")

    @property
    def gpus(self) -> int:
        """GPUs of the layout."""
        return self.tp * self.cp * self.dp * self.pp


def site(gpu: str, gpus: int, *, gpus_per_node: int = 8, inter_node_gbps: float | None = None) -> Cluster:
    """One data centre of just enough nodes, on the GPU type's usual fabric unless ``inter_node_gbps`` is given."""
    per_node = min(gpus_per_node, gpus)
    domain: dict[str, object] = {"name": DOMAIN, "nodes": -(-gpus // per_node), "gpus_per_node": per_node}
    if inter_node_gbps is not None:
        domain["inter_node_gbps"] = inter_node_gbps
    document = {"name": f"{gpus} x {gpu}", "gpu": gpu, "domains": [domain], "links": []}
    return cluster_from_document(document, source="the options", name="site")


def one_layout(problem: Problem, degrees: Degrees) -> Plan:
    """The plan with these degrees over the first domain, blocks dealt evenly; ``InputError`` names a wrong degree."""
    chunks = degrees.pp * degrees.interleave
    blocks = problem.model.num_blocks
    if chunks > max(blocks, 1):
        if degrees.pp > max(blocks, 1):
            told = f"exceeds the {blocks} blocks of {problem.model.name}"
            raise _refusal("pp", told, degrees.pp, f"give at most {max(blocks, 1)}")
        told = f"makes {chunks} chunks on --pp {degrees.pp}, more than the {blocks} blocks of {problem.model.name}"
        raise _refusal("interleave", told, degrees.interleave, f"give at most {blocks // degrees.pp}, or fewer stages")
    cuts = even_cuts(problem.model.num_layers, degrees.pp)
    stages = tuple(
        StageSketch(problem.cluster.domains[0].name, (start, stop), degrees.tp, degrees.dp)
        for start, stop in zip(cuts[:-1], cuts[1:], strict=True)
    )
    pipelines = place(problem.cluster, [PipelineSketch(stages, _waves(problem, degrees))], cp=degrees.cp)
    schedule = degrees.schedule or ("interleaved" if degrees.interleave > 1 else "1f1b")
    recipe = Recipe(
        micro_batch=degrees.micro_batch,
        recompute=degrees.recompute,
        sharding=degrees.sharding,
        schedule=ScheduleChoice(schedule),
        interleave=degrees.interleave,
    )
    plan = recipe.plan(problem, pipelines)
    return replace(
        plan,
        sequence_parallel=degrees.sequence_parallel and problem.rules.sequence_parallel,
        context_parallel=degrees.cp,
        expert_parallel=degrees.ep,
        expert_tensor_parallel=degrees.etp,
        overlap_exchange=degrees.overlap_exchange,
    )


def nearest_change(degrees: Degrees, fits: Callable[[Degrees], bool]) -> Degrees | None:
    """The nearest layout that ``fits``; None when there is none within 64 times the GPUs.

    Nearest: on as few more GPUs as possible; there with the fewest options changed, recomputation before sharding.
    """
    for times in (1, 2, 4, 8, 16, 32, 64):
        for wider in _wider(degrees, times):
            for changed in _thriftier(wider):
                if changed != degrees and fits(changed):
                    return changed
    return None


def as_options(degrees: Degrees, before: Degrees) -> str:
    """Options that turn ``before`` into ``degrees``, as one types them."""
    changed = [field.name for field in fields(Degrees) if getattr(degrees, field.name) != getattr(before, field.name)]
    return " ".join(f"--{name.replace('_', '-')} {getattr(degrees, name)}" for name in changed)


def _wider(degrees: Degrees, times: int) -> Iterator[Degrees]:
    """Layouts on ``times`` the GPUs: wider tensor parallelism first, then more stages, then more lanes."""
    for tp in (times, 1) if times > 1 else (1,):
        if degrees.tp * tp <= 8:
            yield replace(degrees, tp=degrees.tp * tp, pp=degrees.pp * times // tp)
    if times > 1:
        yield replace(degrees, dp=degrees.dp * times)


def _thriftier(degrees: Degrees) -> Iterator[Degrees]:
    """The layout as it is, then with more recomputation, with more of the state sharded, with both."""
    known = degrees.recompute in RECOMPUTE
    recompute = RECOMPUTE[RECOMPUTE.index(degrees.recompute) :] if known else (degrees.recompute, "full")
    lanes = degrees.dp * degrees.cp > 1
    sharding = [degrees.sharding, *(("optimizer", "full") if lanes and degrees.sharding == "none" else ())]
    for state, again in product(sharding, recompute):
        yield replace(degrees, recompute=again, sharding=state)
    if degrees.micro_batch > 1:
        yield replace(degrees, micro_batch=1, recompute=recompute[-1], sharding=sharding[-1])


def _waves(problem: Problem, degrees: Degrees) -> int:
    """Micro-batches per lane and step."""
    batch, wave = problem.workload.global_batch, degrees.micro_batch * degrees.dp
    if batch % wave:
        remedy = f"give a multiple of {wave} (--micro-batch times --dp), for instance {max(batch // wave, 1) * wave}"
        raise _refusal("global_batch", "is not dealt evenly among the data-parallel ranks", batch, remedy)
    return batch // wave


def _refusal(key: str, problem: str, value: object, remedy: str) -> InputError:
    return InputError(problem, source=f"--{key.replace('_', '-')}", value=value, remedy=remedy)
