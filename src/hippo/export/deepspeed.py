"""DeepSpeed: ``ds_config.json``, ``hostfile``, and a ``PipelineModule`` with the plan's cuts.

DeepSpeed cuts by number, parameters or name of layers only; a subclass that sets its own bounds cuts anywhere. Lines of
the hostfile are hosts in the order of ranks; axes of the topology say which degree is outermost.
"""

from __future__ import annotations

import re

from hippo.export import sums
from hippo.export.base import Export, Wishes, slugs
from hippo.export.program import Blank, LaunchedProgram, refuse_unsaid
from hippo.export.ranks import STAGES, rank_order
from hippo.export.templates import rendered
from hippo.export.torchrun import Launch, export_program, launched
from hippo.files import json_text
from hippo.plan.plan import Plan
from hippo.problem.problem import Problem
from hippo.problem.runtimes import ACROSS

RUNTIME = "deepspeed"
ZERO = {"none": 0, "optimizer": 1, ACROSS: 1, "gradients": 2, "full": 3}
NUMBERS = {"bf16": {"bf16": {"enabled": True}}, "fp16": {"fp16": {"enabled": True}}, "fp32": {}}
STAND_IN = (
    "model.py is a stand-in: a plain decoder of the model's sizes on random tokens, so that the launch can be tried. "
    "Put your own layers in its place: embedding, blocks, head, as many as the plan has layers."
)
WHOLE = (
    "DeepSpeed leaves tensor parallelism to the layers: every tensor-parallel rank of the stand-in holds whole layers."
)
UNIVERSAL = (
    "To load a checkpoint under other cuts, tp or pp, convert it: ds_to_universal.py --input_folder .. --output_folder "
    '.., then "load_universal": true under "checkpoint" in ds_config.json.'
)


def export(problem: Problem, plan: Plan, wishes: Wishes) -> Export:
    """Launched by ``deepspeed`` from one host, or by ``launch.sh`` where a host's ranks or GPUs are not in a row."""
    made = program(problem, plan)
    hosts = made.placed.hosts
    if not made.placed.whole or any(host.agents[0].gpus != tuple(range(len(host.ranks))) for host in hosts):
        return export_program("torchrun", problem, plan, made)
    command = 'source program.sh && deepspeed --hostfile hostfile --no_local_rank "${PROGRAM[@]}"'
    blanks = (Blank("hostfile", "each line's first word: the host's name, as ssh knows it from the first host"),)
    names = slugs(made.placed.domains)
    hostfile = "".join(f"{names[host.domain]}-{host.position} slots={len(host.ranks)}\n" for host in hosts)
    return launched(problem, plan, made, Launch("DeepSpeed", command, {"hostfile": hostfile}, blanks))


def program(problem: Problem, plan: Plan) -> LaunchedProgram:
    """``train.py`` with the plan's cuts; ``InexpressibleError`` as ``refuse_unsaid`` raises it."""
    refuse_unsaid(problem, plan, RUNTIME, unsaid)
    placed = rank_order(plan)
    stage = plan.pipelines[0].stages[0]
    lanes = sum(pipeline.stages[0].dp for pipeline in plan.pipelines)
    sizes = {"pipe": len(plan.pipelines[0].stages), "data": lanes, "model": stage.tp}
    axes = ("pipe", "data", "model") if placed.order == STAGES else ("data", "pipe", "model")
    bounds = [0, *(each.layers[1] for each in plan.pipelines[0].stages)]
    deep = len(bounds) > 2
    cuts = rendered("cut_pipeline.py.jinja", bounds=bounds, axes=axes, dims=[sizes[axis] for axis in axes], sizes=sizes)
    return LaunchedProgram(
        name="DeepSpeed",
        runtime=RUNTIME,
        words=("train.py", "--deepspeed_config ds_config.json", "${TRAIN:-}"),
        placed=placed,
        files={
            "ds_config.json": json_text(ds_config(problem, plan)),
            **({"cut_pipeline.py": cuts} if deep else {}),
            "train.py": rendered("deepspeed_train.py.jinja", recompute=plan.recompute == "full", deep=deep),
            "model.py": rendered("deepspeed_model.py.jinja", **_sizes(problem)),
        },
        blanks=(
            Blank("model.py", "your layers and data in place of the stand-in"),
            Blank("TRAIN", "arguments for train.py: --steps N, --save DIR; may stay empty"),
        ),
        environment=sums.environment(plan),
        notes=(STAND_IN, *([WHOLE] if stage.tp > 1 else []), UNIVERSAL),
    )


def unsaid(problem: Problem, plan: Plan) -> list[str]:
    """What the configuration cannot say of precision, sharding and experts."""
    found = []
    if plan.precision not in NUMBERS:
        found.append(f"DeepSpeed has no precision {plan.precision} here, only {', '.join(NUMBERS)}")
    if plan.expert_parallel > 1:
        found.append("DeepSpeed leaves expert parallelism to the layers, the stand-in has none")
    return found


def ds_config(problem: Problem, plan: Plan) -> dict[str, object]:
    """``ds_config.json``; batch = micro-batch x waves x lanes, which DeepSpeed checks."""
    interval = 1 if plan.recompute == "full" else 0
    stages = len(plan.pipelines[0].stages)
    document: dict[str, object] = {
        "train_batch_size": plan.global_batch,
        "train_micro_batch_size_per_gpu": plan.micro_batch,
        "gradient_accumulation_steps": plan.pipelines[0].num_micro_batches,
        "zero_optimization": {"stage": ZERO[plan.sharding]},
        **NUMBERS[plan.precision],
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "betas": [0.9, 0.95], "weight_decay": 0.1}},
        "gradient_clipping": 1.0,
        "steps_per_print": 1,
    }
    if stages > 1:
        document["pipeline"] = {"stages": stages, "activation_checkpoint_interval": interval}
        document["checkpoint"] = {"parallel_write": {"pipeline_stage": True}}
    return document


def _sizes(problem: Problem) -> dict[str, object]:
    """What the stand-in is made of: the sizes of the first attention and of the first feed-forward network."""
    model = problem.model
    attention = next(layer.attention for layer in model.layers if layer.attention is not None)
    feed_forward = next(layer.feed_forward for layer in model.layers if layer.feed_forward is not None)
    return {
        "name": re.sub(r"[^\w .:/-]", "", model.name),  # it stands in a docstring
        "hidden": model.hidden,
        "heads": attention.heads,
        "width": feed_forward.width,
        "blocks": model.num_blocks,
        "vocab": model.vocab,
        "seq": problem.workload.seq,
    }
