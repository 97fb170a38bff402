"""Megatron-LM: flags of ``pretrain_gpt.py``, launched by torchrun.

Layout: ``--pipeline-model-parallel-layout``, E embedding, t block, L loss, ``|`` between stages; stage k lies on
pipeline rank k mod pp in chunk k div pp. Rank order: stage outermost, or lane outermost with
``--use-tp-pp-dp-mapping``.
"""

from __future__ import annotations

from itertools import groupby

from hippo.export import sums
from hippo.export.base import Export, Wishes
from hippo.export.expected import under
from hippo.export.program import Blank, LaunchedProgram, refuse_unsaid
from hippo.export.ranks import LANES, rank_order
from hippo.export.torchrun import export_program
from hippo.plan.plan import Plan
from hippo.problem.model import Attention, FeedForward, Layer, LayerKind, Model
from hippo.problem.problem import Problem
from hippo.problem.runtimes import ACROSS, SELECTIVE, recomputed_blocks, recomputed_modules
from hippo.problem.workload import Workload
from hippo.simulate.costs import chunk_layers, cost_model
from hippo.simulate.costs import layout as layout_of

# ------------------------------------------------------------------------------------------------------ megatron model
# A model as flags of Megatron-LM. Sizes and forms that its flags cannot say are named.
#
# Flags: ``megatron/training/arguments.py`` and ``TransformerConfig`` of Megatron Core 0.16 to 0.20.

Flags = list[str]

ROUTER = (
    "Routing of experts (score function, groups, losses) is not part of a plan: Megatron-LM's defaults stand until you "
    "add flags such as --moe-router-score-function."
)


def unsaid_of_model(model: Model, seq: int) -> list[str]:
    """What Megatron-LM's flags cannot say of the model on sequences of ``seq``, in sentences without a full stop."""
    found = []
    first, blocks = model.layers[0], [layer for layer in model.distinct_layers if layer.kind is LayerKind.BLOCK]
    if first.embedding_norm:
        found.append(f"Megatron-LM has no norm behind the embedding ({model.name})")
    if len({layer.attention.within(seq) for layer in blocks if layer.attention is not None}) > 1:
        found.append("Megatron-LM has one kind of attention for all blocks")
    for layer in blocks:
        attention, feed_forward = layer.attention, layer.feed_forward
        if attention is None or feed_forward is None:
            found.append(f"No flag is written here for blocks of attention or a network alone ({model.name})")
            continue
        forms = (
            (attention.linear is not None, "linear attention"),
            (attention.within(seq).window is not None, f"windows of attention below the {seq} tokens of a sequence"),
            (attention.sinks, "sinks of attention"),
            (attention.output_gate, "gates of attention"),
            (attention.wide_qk_norm, "norms over all heads together"),
            (layer.norms != 2, "norms behind attention and feed-forward network"),
            (feed_forward.experts is not None and feed_forward.experts.shared_gate, "a gate of the shared expert"),
        )
        found += [f"No flag is written here for {form} ({model.name})" for unsaid, form in forms if unsaid]
        if attention.out_bias != feed_forward.bias:
            found.append(
                "Megatron-LM has biases on both the attention's output and the feed-forward network, or neither"
            )
    return list(dict.fromkeys(found))


def model_flags(model: Model, workload: Workload) -> Flags:
    """Sizes, positions, norms, biases, attention, experts."""
    first, last = model.layers[0], model.layers[-1]
    block = model.layers[1]
    attention, feed_forward = block.attention, _widest(model)
    assert attention is not None
    positions = "learned_absolute" if first.positions else "rope"
    flags = [
        f"--num-layers {model.num_blocks}",
        f"--hidden-size {model.hidden}",
        f"--ffn-hidden-size {feed_forward.width}",
        *_attention(attention, model),
        f"--seq-length {workload.seq}",
        f"--max-position-embeddings {max(first.positions or model.max_seq, workload.seq)}",
        f"--position-embedding-type {positions}",
        f"--normalization {'LayerNorm' if block.norm_bias else 'RMSNorm'}",
    ]
    flags += ["--swiglu"] * feed_forward.gated
    flags += ["--disable-bias-linear"] * (not feed_forward.bias)
    flags += ["--add-qkv-bias"] * (attention.qkv_bias and not feed_forward.bias)
    flags += ["--untie-embeddings-and-output-weights"] * (not last.tied)
    return flags + _experts(model, workload)


def _attention(attention: Attention, model: Model) -> Flags:
    flags = [f"--num-attention-heads {attention.heads}"]
    latent = attention.latent
    if latent is not None:
        flags += ["--multi-latent-attention", f"--kv-lora-rank {latent.kv_lora_rank}"]
        flags += [f"--q-lora-rank {latent.q_lora_rank}"] * (latent.q_lora_rank is not None)
        flags += [f"--qk-head-dim {latent.qk_nope_head_dim}", f"--qk-pos-emb-head-dim {latent.qk_rope_head_dim}"]
        return [*flags, f"--v-head-dim {latent.v_head_dim}", "--qk-layernorm"]
    if attention.kv_heads != attention.heads:
        flags += ["--group-query-attention", f"--num-query-groups {attention.kv_heads}"]
    flags += [f"--kv-channels {attention.head_dim}"] * (attention.head_dim * attention.heads != model.hidden)
    return flags + ["--qk-layernorm"] * attention.qk_norm


def _experts(model: Model, workload: Workload) -> Flags:
    """Which blocks are mixtures of experts, of how many, and what brings tokens to them."""
    found = [layer.feed_forward.experts for layer in _blocks(model) if layer.feed_forward is not None]
    sparse = [experts for experts in found if experts is not None]
    if not sparse:
        return []
    experts = sparse[0]
    flags = [
        f"--num-experts {experts.count}",
        f"--moe-router-topk {experts.per_token}",
        f"--moe-ffn-hidden-size {experts.width}",
        *DISPATCHERS[workload.software.dispatcher],
    ]
    flags += ["--overlap-moe-expert-parallel-comm"] * workload.software.overlap_ep
    if experts.all_shared_width:
        flags.append(f"--moe-shared-expert-intermediate-size {experts.all_shared_width}")
    if len(sparse) < len(found):
        runs = groupby(int(experts is not None) for experts in found)
        pattern = "+".join(f"[{kind}]*{len(list(run))}" for kind, run in runs)
        flags.append(f"--moe-layer-freq '({pattern})'")
    return flags


def _blocks(model: Model) -> tuple[Layer, ...]:
    return model.layers[1:-1]


def _widest(model: Model) -> FeedForward:
    """The dense feed-forward network where there is one: its width is the model's."""
    found = [layer.feed_forward for layer in _blocks(model) if layer.feed_forward is not None]
    return next((each for each in found if each.experts is None), found[0])


RUNTIME, CHECKPOINTS = "megatron", "CHECKPOINTS"
DISPATCHERS = {
    "alltoall": ("--moe-token-dispatcher-type alltoall",),
    "deepep": ("--moe-token-dispatcher-type flex", "--moe-flex-dispatcher-backend deepep"),
    "hybridep": ("--moe-token-dispatcher-type flex", "--moe-flex-dispatcher-backend hybridep"),
}
_BF16 = ("--bf16", "--grad-reduce-in-bf16")  # by itself --bf16 sums gradients in fp32, twice the plan's bytes
PRECISIONS = {"bf16": _BF16, "fp16": ("--fp16",), "fp32": (), "fp8": (*_BF16, "--fp8-format hybrid")}
CONTEXT = {"ring": "p2p", "gather": "all_gather", "alltoall": "a2a"}
"""``--cp-comm-type`` by way (``runtimes.CONTEXT_WAYS``)."""
FULL = ("--recompute-granularity full", "--recompute-method uniform", "--recompute-num-layers 1")
RESHARDABLE = (
    "Checkpoints are re-plannable from the first: --ckpt-format torch_dist loads under other tp, pp and cuts, "
    "--dist-ckpt-optim-fully-reshardable lets the optimizer's state follow."
)
EINOPS = "Several instances of the optimizer need the Python package einops on every host."
WHERE = "Flags are those of Megatron-LM with Megatron Core 0.16 and later; the layout needs 0.14."


def export(problem: Problem, plan: Plan, wishes: Wishes) -> Export:
    """``program.sh`` with the flags, ``launch.sh`` for each host."""
    return export_program("torchrun", problem, plan, program(problem, plan))


def program(problem: Problem, plan: Plan) -> LaunchedProgram:
    """``pretrain_gpt.py`` with the plan's flags; ``InexpressibleError`` as ``refuse_unsaid`` raises it."""
    refuse_unsaid(problem, plan, RUNTIME, unsaid)
    placed = rank_order(plan)
    order = ["--use-tp-pp-dp-mapping"] if placed.order == LANES else []
    return LaunchedProgram(
        name="Megatron-LM",
        runtime=RUNTIME,
        words=(
            '"${MEGATRON_LM:?the folder of your Megatron-LM checkout}/pretrain_gpt.py"',
            *model_flags(problem.model, problem.workload),
            *parallel_flags(problem, plan),
            *order,
            *batch_flags(problem, plan),
            *_data(problem),
        ),
        placed=placed,
        files={},
        blanks=(
            Blank("MEGATRON_LM", "the folder of your Megatron-LM checkout, on every host"),
            Blank(CHECKPOINTS, "the folder that checkpoints are written to and read from"),
            Blank("DATA", "flags for data and tokenizer; until it is set: mock data and no tokenizer"),
            Blank("TRAIN", "flags for the rest: iterations, learning rate, logging; until it is set: 100 iterations"),
        ),
        notes=(
            _order_note(problem, plan),
            *([EINOPS] if _instances(plan) > 1 else []),
            RESHARDABLE,
            WHERE,
            *([ROUTER] if _sparse(problem.model) else []),
        ),
        environment={"CUDA_DEVICE_MAX_CONNECTIONS": _connections(problem, plan), **sums.environment(plan)},
    )


def _connections(problem: Problem, plan: Plan) -> str:
    """Queues of work of a GPU: one keeps the order that tensor parallelism overlaps by, the exchange beside another
    micro-batch needs more (Megatron-LM warns of either)."""
    beside = plan.overlap_exchange or (problem.workload.software.overlap_ep and _sparse(problem.model))
    return "32" if beside else "1"


def _order_note(problem: Problem, plan: Plan) -> str:
    """Which order of micro-batches Megatron-LM runs, and whether the plan was made for its way of running it."""
    if len(plan.pipelines[0].stages) == 1:
        return "One stage: micro-batches run one after the other."
    name = "interleaved 1F1B" if plan.interleave > 1 else "1F1B"
    own = f"Micro-batches run in Megatron-LM's own {name}"
    if problem.runtime == RUNTIME:
        return f"{own}, as planned."
    return f"{own}; the plan was made {under(problem.runtime)}, and the time told above is Megatron-LM's."


def unsaid(problem: Problem, plan: Plan) -> list[str]:
    """What flags cannot say of the model, the precision and the expert parallelism."""
    found = unsaid_of_model(problem.model, problem.workload.seq)
    if plan.precision not in PRECISIONS:
        found.append(f"Megatron-LM has no flag here for precision {plan.precision}")
    first = plan.pipelines[0].stages[0]
    lanes = sum(pipeline.stages[0].dp for pipeline in plan.pipelines) * plan.context_parallel
    ranks, apart = lanes * first.tp, plan.expert_parallel * (plan.expert_tensor_parallel or first.tp)
    if ranks % apart:
        found.append(
            f"Megatron-LM divides experts among the {lanes} data-parallel lanes, so expert parallel "
            f"{plan.expert_parallel} must divide them (tp {first.tp} is used inside each expert)"
        )
    number = _instances(plan)
    each = ranks // apart
    if each % number:
        found.append(
            f"Megatron-LM divides the {each} lanes of each expert among the {number} instances of its optimizer, so "
            "their number must divide them"
        )
    return found


def layout(model: Model, plan: Plan) -> str:
    """The cuts in the grammar of ``--pipeline-model-parallel-layout``; one word, to be quoted in a shell."""
    ranges = chunk_layers(plan.pipelines[0], plan.interleave)
    stages = [ranges[s][c] for c in range(plan.interleave) for s in range(len(ranges))]
    return "|".join(_letters(start, stop, model.num_layers) for start, stop in stages)


def _letters(start: int, stop: int, num_layers: int) -> str:
    kinds = ["E" if layer == 0 else "L" if layer == num_layers - 1 else "t" for layer in range(start, stop)]
    runs = [(kind, len(list(run))) for kind, run in groupby(kinds)]
    return "".join(kind if times == 1 else f"{kind}*{times}" for kind, times in runs)


def parallel_flags(problem: Problem, plan: Plan) -> list[str]:
    """Degrees, cuts, recomputation, sharding."""
    pipeline = plan.pipelines[0]
    tp, pp = pipeline.stages[0].tp, len(pipeline.stages)
    flags = [f"--tensor-model-parallel-size {tp}", f"--pipeline-model-parallel-size {pp}"]
    if pp > 1:
        flags.append(f"--pipeline-model-parallel-layout '{layout(problem.model, plan)}'")
    flags += ["--sequence-parallel"] * (tp > 1 and plan.sequence_parallel)
    if plan.context_parallel > 1:
        flags += [f"--context-parallel-size {plan.context_parallel}", f"--cp-comm-type {context_words(problem, plan)}"]
    flags += [f"--expert-model-parallel-size {plan.expert_parallel}"] * (plan.expert_parallel > 1)
    etp = plan.expert_tensor_parallel or tp  # said where it may not be what Megatron-LM takes by itself
    flags += [f"--expert-tensor-parallel-size {etp}"] * (tp > 1 and _sparse(problem.model))
    flags += ["--overlap-moe-expert-parallel-comm"] * plan.overlap_exchange
    flags += _optimizer_flags(plan)
    return [*flags, *_recompute_flags(problem.model, plan)]


def _recompute_flags(model: Model, plan: Plan) -> list[str]:
    """Blocks or modules that are computed again, those that the model has; of 8 bit, by a recipe that knows how."""
    if plan.recompute in ("none", "full"):
        return [*FULL] if plan.recompute == "full" else []
    if (blocks := recomputed_blocks(plan.recompute)) is not None:
        return [FULL[0], "--recompute-method block", f"--recompute-num-layers {blocks}"]
    experts = _sparse(model)
    latent = any(layer.attention and layer.attention.latent for layer in _blocks(model))
    missing = {*(() if experts else ("moe", "moe_act", "shared_experts")), *(() if latent else ("mla_up_proj",))}
    named = (recomputed_modules(plan.recompute) or SELECTIVE) - missing
    if not named:
        return []
    flags = ["--recompute-granularity selective", f"--recompute-modules {' '.join(sorted(named))}"]
    flags += ["--moe-grouped-gemm"] * ("moe_act" in named)
    return flags + ["--fp8-recipe tensorwise"] * (plan.precision == "fp8" and bool(named & {"layernorm", "moe_act"}))


def context_words(problem: Problem, plan: Plan) -> str:
    """How the parts of a sequence meet: a word for all blocks, or one for each."""
    pipeline = plan.pipelines[0]
    stage = pipeline.stages[0]
    ways = cost_model(problem).context_ways(stage.domain, layout_of(plan, pipeline, stage))
    return " ".join(CONTEXT[way] for way in (ways if len(set(ways)) > 1 else ways[:1]))


def _sparse(model: Model) -> bool:
    """Whether the model is a mixture of experts."""
    return any(layer.feed_forward is not None and layer.feed_forward.experts for layer in model.distinct_layers)


def _instances(plan: Plan) -> int:
    """Instances of a sharded optimizer: one in each domain where sums are two-level, one where they are a flat ring."""
    two_level = plan.sharding == "optimizer" and plan.sync.all_reduce == "two-level" and sums.crosses(plan)
    return (sums.instances(plan) or 1) if two_level else 1


def _optimizer_flags(plan: Plan) -> list[str]:
    if plan.sharding not in ("optimizer", ACROSS):
        return []
    number = [f"--num-distributed-optimizer-instances {_instances(plan)}"] if sums.crosses(plan) else []
    return ["--use-distributed-optimizer", *number]


def batch_flags(problem: Problem, plan: Plan) -> list[str]:
    """Batch and number format. That the batch divides is checked here: Megatron-LM finds out at the first step."""
    lanes = sum(pipeline.stages[0].dp for pipeline in plan.pipelines)
    waves = plan.pipelines[0].num_micro_batches
    assert waves * lanes * plan.micro_batch == plan.global_batch, "equal shares have been asked for"
    return [
        f"--micro-batch-size {plan.micro_batch}",
        f"--global-batch-size {plan.global_batch}",
        *PRECISIONS[plan.precision],
    ]


def _data(problem: Problem) -> list[str]:
    """Checkpoints that may be re-planned, and what the user fills in."""
    size = problem.model.vocab - 1  # NullTokenizer adds one
    return [
        "--make-vocab-size-divisible-by 128",
        "--ckpt-format torch_dist",
        "--dist-ckpt-optim-fully-reshardable",
        '--save "${CHECKPOINTS:?a folder for checkpoints}" --load "$CHECKPOINTS" --save-interval 100',
        "--distributed-timeout-minutes 60",
        f"${{DATA:---mock-data --tokenizer-type NullTokenizer --vocab-size {size}}}",
        "${TRAIN:---train-iters 100 --lr 1e-4 --log-interval 1}",
    ]
