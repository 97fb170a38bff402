"""MaxText: DiLoCo and Streaming DiLoCo as a configuration of its trainer, an island a slice (MaxText 0.2.5).

One program over all islands: the axis ``diloco`` of its mesh stands between data centres, all others inside one.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import yaml

from hippo.decide.wording import capital, count, described
from hippo.errors import InexpressibleError
from hippo.export.base import Export, Wishes
from hippo.export.expected import expected
from hippo.files import json_text
from hippo.plan.plan import Plan
from hippo.problem.problem import Problem
from hippo.problem.runtimes import ACROSS

RUNTIME, FILE = "torch", "hippo.yml"  # its islands are timed as torch's: neither waits for an average that is late
MODELS: Mapping[str, str] = MappingProxyType(
    {
        **{f"llama-2-{size}": f"llama2-{size}" for size in ("7b", "13b", "70b")},
        **{f"llama-3-{size}": f"llama3-{size}" for size in ("8b", "70b")},
        "llama-3-405b": "llama3.1-405b",
        **{f"qwen3-{size}": f"qwen3-{size}" for size in ("0.6b", "1.7b", "4b", "8b", "14b", "32b")},
        **{name: name for name in ("mistral-7b", "mixtral-8x7b", "mixtral-8x22b", "qwen3-30b-a3b", "qwen3-235b-a22b")},
        **{f"qwen2.5-{size}": f"qwen2.5-{size}" for size in ("1.5b", "7b", "14b")},
    }
)
"""Models of the catalogue that MaxText holds and scans as one stack of layers, which it cuts into fragments."""

NUMBERS = {"bf16": "bfloat16", "fp32": "float32"}
RECOMPUTE = {"none": "minimal", "selective": "minimal", "full": "full"}
AXES = {"none": "data", "optimizer": "data", ACROSS: "data", "gradients": "data", "full": "fsdp", "hybrid": "fsdp"}
GRADIENTS = "MaxText shards the optimizer's state over lanes, not gradients as the plan does: they need more memory."
LEFT_OUT = "MaxText has no policy without recomputation: 'minimal' computes again what lies between products."
EMBEDDING = (
    "Of the fragments one holds what is not scanned: embedding, last norm and head; the others interleaved layers."
)
FP32 = "What parameters changed by goes in fp32, where the plan counts the bytes of gradients."
OUTER = "The outer optimizer is the plan's, SGD with Nesterov momentum 0.9; its rate is MaxText's default of 0.3."


def export(problem: Problem, plan: Plan, wishes: Wishes) -> Export:
    """``FILE`` and the command that starts it on every host. ``InexpressibleError`` as ``unsaid`` says."""
    found = unsaid(problem, plan)
    if found:
        reasons, ways = ("; ".join(part) for part in zip(*found, strict=True))
        raise InexpressibleError([f"MaxText cannot run this plan: {reasons}.", f"To fix: {ways}."])
    told, command = expected(problem, plan, RUNTIME), f"python -m maxtext.trainers.pre_train.train {FILE}"
    notes = [OUTER, *([EMBEDDING] if plan.sync.fragments > 1 else []), *([FP32] if plan.sync.bits == 0 else [])]
    notes += [LEFT_OUT] if plan.recompute == "none" else []
    notes += [GRADIENTS] if plan.sharding == "gradients" else []
    text = "\n\n".join(
        (
            f"# {problem.model.name} with MaxText",
            f"{capital(described(plan))}; {count(plan.sync.fragments, 'fragment')}, used {plan.sync.delay} steps late.",
            *told.sentences(),
            "## Launch",
            f"On every host, with `RUN`, `OUTPUT` and `DATASET` set:\n\n```bash\n{command} run_name=$RUN "
            "base_output_directory=$OUTPUT dataset_path=$DATASET\n```",
            f"Islands are the slices {', '.join(plan.domains)}, in this order.",
            "## Good to know",
            "\n".join(f"- {note}" for note in notes),
        )
    )
    config = yaml.safe_dump(configuration(problem, plan), sort_keys=False)
    files = {FILE: config, "README.md": text + "\n", "expected.json": json_text(told.document())}
    return Export(files, command, tuple(notes), told)


def configuration(problem: Problem, plan: Plan) -> dict[str, object]:
    """What the plan decides, over MaxText's ``base.yml``."""
    line, sync, islands = plan.pipelines[0], plan.sync, len(plan.pipelines)
    stage, streaming = line.stages[0], sync.fragments > 1
    found: dict[str, object] = {
        "base_config": "base.yml",
        "model_name": MODELS[problem.model.name],
        "num_slices": islands,
        "dcn_diloco_parallelism": islands,
        "dcn_data_parallelism": 1,
        "ici_data_parallelism": 1,
        "ici_fsdp_parallelism": 1,
        f"ici_{AXES[plan.sharding]}_parallelism": stage.dp // plan.expert_parallel,
        "shard_optimizer_over_data": plan.sharding in ("optimizer", ACROSS, "gradients"),
        "ici_tensor_parallelism": stage.tp,
        "ici_context_parallelism": plan.context_parallel,
        "ici_expert_parallelism": plan.expert_parallel,
        "per_device_batch_size": plan.micro_batch / (stage.tp * plan.context_parallel),
        "gradient_accumulation_steps": line.num_micro_batches,
        "max_target_length": problem.workload.seq,
        "dtype": NUMBERS[plan.precision],
        "remat_policy": RECOMPUTE[plan.recompute],
        "scan_layers": True,
        "enable_diloco": True,
        "diloco_sync_period": sync.every,
    }
    if streaming:
        found |= {
            "enable_streaming_diloco": True,
            "num_diloco_fragments": sync.fragments,
            "num_communication_overlapping_steps": sync.delay,
        }
    return found


def unsaid(problem: Problem, plan: Plan) -> list[tuple[str, str]]:
    """What of a plan MaxText cannot be told here, each with what to do instead."""
    sync, lines, blocks, found = plan.sync, plan.pipelines, problem.model.num_blocks, []
    if sync.method != "local_sgd":
        found.append(("its replicas agree every step", "plan with --runtime torch --allow-local-sgd"))
    elif sync.bits not in (0, 32):
        given = f"{sync.every},{sync.fragments},{sync.delay},32"
        found.append((f"it sends {sync.bits} bits of a parameter", f"plan with --outer-step {given}"))
    if sync.fragments > 1 and blocks % (sync.fragments - 1):
        fitting = [each for each in range(2, blocks + 2) if blocks % (each - 1) == 0 and sync.every % each == 0]
        way = f"take {', '.join(map(str, fitting[:6]))} of {sync.every} steps" if fitting else "take another period"
        told = f"{blocks} layers do not divide into {sync.fragments - 1} fragments beside that of the embedding"
        found.append((told, f"{way} (--outer-step H,FRAGMENTS)"))
    if sync.fragments == 1 and sync.delay:
        found.append(("an average of the whole model cannot be late there", f"plan with --outer-step {sync.every}"))
    if problem.model.name not in MODELS:
        told = f"it holds no {problem.model.name} whose layers it scans as one stack"
        found.append((told, f"take one of {', '.join(sorted(MODELS))}, or --to torchft"))
    if any(len(line.stages) > 1 for line in lines):
        found.append(("islands are pipelines", "edit the plan to one stage a replica, which hippo explain checks"))
    if len({(line.stages[0].tp, line.stages[0].dp, line.num_micro_batches) for line in lines}) > 1:
        found.append(("islands are not alike", "plan with --runtime torch, which has equal ones"))
    if plan.recompute not in RECOMPUTE or plan.expert_tensor_parallel is not None:
        told = f"recomputation of {plan.recompute} and experts cut by a degree of their own are not written here"
        found.append((told, "plan with --runtime torch, which has neither"))
    if plan.precision not in NUMBERS:
        found.append((f"precision {plan.precision} is not written here", f"take one of {', '.join(NUMBERS)}"))
    if problem.workload.software.dispatcher != "alltoall":
        found.append((f"dispatcher {problem.workload.software.dispatcher} is not written here", "plan with alltoall"))
    return found
