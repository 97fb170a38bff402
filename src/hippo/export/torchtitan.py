"""torchtitan: a recipe (a Python function that returns ``Trainer.Config``) and the schedule as torch's CSV.

The one mainstream runtime here that runs an order of micro-batches of its own. One mesh for all stages, pipeline
outermost: (pp, replicas, shards, cp, tp).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from hippo.engine.program import BACKWARD
from hippo.export import sums
from hippo.export.base import Export, Wishes
from hippo.export.program import Blank, LaunchedProgram, refuse_unsaid
from hippo.export.ranks import STAGES, rank_order
from hippo.export.templates import rendered
from hippo.export.torchrun import export_program
from hippo.plan.plan import Pipeline, Plan
from hippo.problem.catalogue.models import MODELS
from hippo.problem.model import Model
from hippo.problem.problem import Problem
from hippo.schedule.schedule import Schedule, order_of
from hippo.schedule.torch_csv import torch_schedule
from hippo.simulate.costs import chunk_layers
from hippo.simulate.ordering import ordering

RUNTIME = "torch"
NUMBERS = {"bf16": "bfloat16", "fp32": "float32"}
RECOMPUTE = {"none": "None", "selective": "SelectiveAC.Config()", "full": "FullAC.Config()"}
FLAVORS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "llama-3.2-1b": ("llama3", "1B"),
        "llama-3.2-3b": ("llama3", "3B"),
        "llama-3-8b": ("llama3", "8B"),
        "llama-3-70b": ("llama3", "70B"),
        "llama-3-405b": ("llama3", "405B"),
        "qwen3-0.6b": ("qwen3", "0.6B"),
        "qwen3-1.7b": ("qwen3", "1.7B"),
        "qwen3-4b": ("qwen3", "4B"),
        "qwen3-8b": ("qwen3", "8B"),
        "qwen3-14b": ("qwen3", "14B"),
        "qwen3-32b": ("qwen3", "32B"),
        "qwen3-30b-a3b": ("qwen3", "30B-A3B"),
        "qwen3-235b-a22b": ("qwen3", "235B-A22B"),
        "deepseek-v3": ("deepseek_v3", "671B"),
    }
)
"""Models of the catalogue that torchtitan 0.3 holds, by family and flavour."""

OWN_NAMES: Mapping[str, str] = MappingProxyType({"gpipe": "GPipe", "1f1b": "1F1B"})
CHECKPOINTS = (
    "Checkpoints are re-plannable from the first: torchtitan's are distributed checkpoints, which load under other tp, "
    "pp and cuts."
)
COPY = "The schedule stands in schedule*.csv; torch adds sends and receives to it itself."


@dataclass(frozen=True)
class Resume:
    """Where a run begins: all of a checkpoint but some of its parts."""

    folder: str  # of the step
    dropped: tuple[str, ...] = ()


def export(problem: Problem, plan: Plan, wishes: Wishes) -> Export:
    """``hippo_recipe.py``, the schedule, and ``launch.sh`` for each host."""
    return export_program("torchrun", problem, plan, program(problem, plan))


def program(problem: Problem, plan: Plan, *, resume: Resume | None = None, told: Sequence[str] = ()) -> LaunchedProgram:
    """``torchtitan.train`` with the plan's recipe; ``told``: more notes. ``InexpressibleError`` as ``refuse_unsaid``
    raises it."""
    refuse_unsaid(problem, plan, RUNTIME, unsaid)
    family, flavor = flavor_of(problem.model)
    name, orders = _schedules(problem, plan)
    texts = {f"schedule{'' if len(orders) == 1 else f'-{at}'}.csv": text for at, text in enumerate(orders)}
    recipe = rendered(
        "titan_recipe.py.jinja", family=family, flavor=flavor, resume=resume, **_values(problem, plan, name, texts)
    )
    own_model = [] if family else [Blank("MODEL_SPEC", "MODULE:FUNCTION of yours that returns the model's ModelSpec")]
    return LaunchedProgram(
        name="torchtitan",
        runtime=RUNTIME,
        words=("-m torchtitan.train", "--module hippo_recipe", "--config planned", "${TRAIN:-}"),
        placed=rank_order(plan, (STAGES,)),
        files={"hippo_recipe.py": recipe, **texts},
        blanks=(
            *own_model,
            Blank("HF_ASSETS", "the folder of the model's tokenizer (torchtitan: scripts/download_hf_assets.py)"),
            Blank("DATASET, STEPS, SAVE_EVERY", "data set (c4), steps (100), steps between checkpoints (100)"),
            Blank("TRAIN", "further options of torchtitan's, --section.option value; may stay empty"),
        ),
        notes=(*told, CHECKPOINTS, *([COPY] if texts else [])),
        environment={"PYTHONPATH": ".", **sums.environment(plan)},
    )


def unsaid(problem: Problem, plan: Plan) -> list[str]:
    """Number formats and dispatchers that the recipe cannot say; tied embeddings of a pipeline (``Decoder`` of
    torchtitan 0.3)."""
    found = []
    if plan.precision not in NUMBERS:
        found.append(f"torchtitan has no precision {plan.precision} here, only {', '.join(NUMBERS)}")
    if problem.model.tied and len(plan.pipelines[0].stages) > 1:
        found.append(f"torchtitan refuses tied embeddings in a pipeline of several stages ({problem.model.name})")
    if problem.workload.software.dispatcher != "alltoall":
        found.append(f"the recipe names no dispatcher {problem.workload.software.dispatcher}, only alltoall")
    return found


def flavor_of(model: Model) -> tuple[str, str]:
    """Family and flavour of the model in torchtitan, by its layers; empty: it holds none like it."""
    return next((at for name, at in FLAVORS.items() if MODELS[name].layers == model.layers), ("", ""))


def _schedules(problem: Problem, plan: Plan) -> tuple[str, list[str]]:
    """Torch's name of the schedule, and CSV texts: none where torch's own is meant, one for all pipelines or each."""
    if len(plan.pipelines[0].stages) == 1:
        return "1F1B", []
    name, limit = plan.schedule.name, plan.schedule.live_limit
    waves, stages = plan.pipelines[0].num_micro_batches, len(plan.pipelines[0].stages)
    if name == "interleaved" and plan.interleave > 1:
        texts = [] if limit is None and waves % stages == 0 else [_fused_csv(order_of(plan, plan.pipelines[0]))]
        return "Interleaved1F1B", texts
    if name in OWN_NAMES and limit is None:
        return OWN_NAMES[name], []
    texts = [schedule_csv(problem, plan, at) for at in range(len(plan.pipelines))]
    return "1F1B", texts[:1] if len(set(texts)) == 1 else texts


def schedule_csv(problem: Problem, plan: Plan, index: int) -> str:
    """The order of one pipeline as torch's CSV (``compute_only``)."""
    schedule = order_of(plan, plan.pipelines[index])
    return _fused_csv(schedule) if schedule.fused else torch_schedule(ordering(problem, plan, index), schedule).text


def _fused_csv(schedule: Schedule) -> str:
    """Every backward whole; chunk c of rank r is stage c p + r."""
    p = schedule.shape.stages

    def cell(rank: int, kind: int, chunk: int, wave: int) -> str:
        return f"{chunk * p + rank}{'B' if kind == BACKWARD else 'F'}{wave}"

    return "".join(",".join(cell(rank, *row) for row in schedule.rank(rank).tolist()) + "\n" for rank in range(p))


def _values(problem: Problem, plan: Plan, schedule: str, texts: Mapping[str, str]) -> dict[str, object]:
    """What the recipe is filled with."""
    first = plan.pipelines[0]
    stage, pp, waves = first.stages[0], len(first.stages), first.num_micro_batches
    lanes = [pipeline.stages[0].dp for pipeline in plan.pipelines]
    names = list(texts)
    per_lane = [names[at if len(names) > 1 else 0] for at, dp in enumerate(lanes) for _ in range(dp)] if names else []
    replicate, shard = _data_parallel(plan, sum(lanes))
    return {
        "stages": _modules(first, plan, problem.model),
        "schedules": per_lane,
        "schedule": schedule,
        "lanes": sum(lanes),
        "blocks": problem.model.num_blocks,
        "pp": pp,
        "tp": stage.tp,
        "cp": plan.context_parallel,
        "ep": plan.expert_parallel,
        "sequence_parallel": plan.sequence_parallel,
        "replicate": replicate,
        "shard": shard,
        "reshard": "never" if plan.sharding == "gradients" else "always",
        "micro_batch": plan.micro_batch,
        "waves": waves,
        "local_batch": plan.micro_batch * (waves if pp > 1 else 1),
        "global_batch": plan.global_batch,
        "seq": problem.workload.seq,
        "number": NUMBERS[plan.precision],
        "recompute": RECOMPUTE[plan.recompute],
    }


def _data_parallel(plan: Plan, lanes: int) -> tuple[int, int]:
    """Replicas and shards: none shards nothing; hybrid shards inside each domain where replicas sum over several, which
    makes its sums two-level, else inside each pipeline; the others over all lanes, on one flat ring."""
    if plan.sharding == "none":
        return lanes, 1
    if plan.sharding == "hybrid":
        replicas = sums.replicas_of_shards(plan)
        return replicas, lanes // replicas
    return 1, lanes


def _modules(pipeline: Pipeline, plan: Plan, model: Model) -> list[tuple[bool, tuple[int, int], bool]]:
    """Of each virtual stage: whether it holds the embedding, its blocks [start, stop), whether it holds the head."""
    ranges, last = chunk_layers(pipeline, plan.interleave), model.num_layers - 1
    stages = [ranges[s][c] for c in range(plan.interleave) for s in range(len(ranges))]
    return [(start == 0, (max(start, 1) - 1, min(stop, last) - 1), stop > last) for start, stop in stages]
