"""What trains: what a runtime can express, how its sums go, and what carries its messages. Data that all rooms share.

Read from the runtimes' own parsers and sources: Megatron-LM 0.16 (``validate_args``, ``PipelineParallelLayerLayout``),
torch 2.13 with torchtitan 0.3 (one ``DeviceMesh``, schedules from CSV), DeepSpeed 0.19 (``PipelineEngine``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from types import MappingProxyType

from hippo.errors import UnknownNameError
from hippo.problem.model import Model
from hippo.problem.prices import FREE, LIVE, RELAUNCHED, ChangePrices
from hippo.problem.transport import HIPPO, IDEAL, NCCL, STOCK_WINDOW_BYTES, TORCH, Transport

RECOMPUTE = ("none", "selective", "full")
SELECTIVE = frozenset({"layernorm", "mla_up_proj", "moe_act"})
"""What ``selective`` computes again where attention is fused: little work for what it frees."""
MODULES = ("core_attn", "layernorm", "mla_up_proj", "mlp", "moe", "moe_act", "shared_experts")
"""What Megatron-LM computes again by itself (``--recompute-modules``); a recomputation names some, joined by ``+``."""
ACROSS = "optimizer-across"
"""The optimizer's state sharded over all replicas, those in other domains too: ``optimizer`` does inside a stage."""
SHARDING = ("none", "optimizer", ACROSS, "gradients", "full", "hybrid")
_NOT_ACROSS = tuple(name for name in SHARDING if name != ACROSS)
ALL_REDUCE = ("two-level", "ring")
"""Ways of a sum over ranks in several domains (``plan.Sync``)."""


CONTEXT_WAYS = ("ring", "gather", "alltoall")
"""Ways in which the parts of a sequence meet under context parallelism (``cost.layers.context_seconds``)."""
LEVERS = frozenset({"relay", "order", "fp8", "micro-batch", "shares"})
"""What changes a plan and leaves every weight where it is (``network.plans.levers``)."""


WHOLE_BLOCKS = "full:"
"""``full:4``: the first four blocks of each chunk of layers are computed again whole, the others not at all
(Megatron-LM's ``--recompute-method block``)."""


def recomputed_blocks(recompute: str) -> int | None:
    """How many first blocks of each chunk are computed again whole (``full:4``); None: another kind, or no number."""
    number = recompute.removeprefix(WHOLE_BLOCKS)
    counts = number != recompute and number.isascii() and number.isdigit() and len(number) < 7
    return int(number) if counts and int(number) > 0 else None


def is_recomputation(recompute: str) -> bool:
    """Whether a text is one: a degree, modules joined by ``+``, or a number of blocks."""
    return recompute in RECOMPUTE or bool(recomputed_modules(recompute)) or recomputed_blocks(recompute) is not None


def recomputed_modules(recompute: str) -> frozenset[str]:
    """The modules that a recomputation names (``layernorm+moe_act``); none for the other kinds, or an unknown name."""
    named = frozenset(recompute.split("+"))
    return named if named <= frozenset(MODULES) else frozenset()


@dataclass(frozen=True)
class Messages:
    """How messages between stages and the operations of a rank wait for each other (``simulate.calls``)."""

    calls: str = "free"  # they go when they are made, receives are posted ahead; coupled, apart, late, stream
    sender: str = "taken"  # when the sender's part is over: taken, by its receiver, or met: the receiver is there
    notice: bool = False  # whether the receiver's word that it is there comes back over the link, behind what it sent


@dataclass(frozen=True)
class End:
    """One end of what is assumed of a runtime over a WAN."""

    told: str
    transport: Transport
    sum_turn_bytes: float = inf  # as of ``Runtime``


@dataclass(frozen=True)
class Runtime:
    """A runtime; the defaults limit nothing."""

    name: str = "ideal"
    told: str = "no runtime does this"
    uniform_tp_dp: bool = False  # every stage of every pipeline has the same tp and dp, every pipeline as many stages
    uniform_cuts_across_replicas: bool = False  # every pipeline is cut at the same layers
    equal_shares: bool = False  # every pipeline works through the same number of waves
    schedules: frozenset[str] | None = None  # None: any order of micro-batches
    live_limit: bool = True  # takes a limit of live micro-batches that differs from the schedule's own
    gradients_first: bool = False  # of a fused backward the gradient leaves before the weight gradients are made
    interleave: bool = True  # several chunks of layers per rank
    interleave_in_rounds: bool = False  # with chunks, the waves must be a multiple of the stages
    shardings: tuple[str, ...] = SHARDING
    shardings_with_pipeline: tuple[str, ...] = SHARDING  # where a pipeline has more than one stage
    recompute: tuple[str, ...] = RECOMPUTE
    sequence_parallel: bool = True  # ranks of a tensor-parallel group cut what lies between its products by tokens
    context_ways: tuple[str, ...] = CONTEXT_WAYS  # of context parallelism; none: it has no such
    recompute_modules: bool = True  # single modules, by Megatron-LM's names; whole blocks by their number
    expert_parallel: bool = True
    overlaps_exchange: bool = False  # of experts, beside another micro-batch: forward and backward of a rank merged
    whole_experts: bool = True  # experts may be cut over fewer ranks than everything else
    compression: bool = True
    relays: bool = True  # traffic of two domains through a third
    local_sgd: bool = True
    prices: ChangePrices = FREE  # of changes: levers that it pulls while it trains, and stops for all else
    kv_heads_divide: bool = False  # tp must divide the key-value heads; otherwise they may be repeated
    two_level: tuple[str, ...] = _NOT_ACROSS  # shardings with which sums can go on two levels; a flat ring always can
    copies_tied: bool = False  # first and last stage each sum a tied matrix of their own; else all holders do at once
    sum_turn_bytes: float = inf  # that a rank of a ring hands on in a turn, which makes all its hops before the next
    sum_flight_bytes: float = inf  # that each ring keeps on its way between two ranks, the receiver having asked for it
    transport: Transport = IDEAL
    messages: Messages = Messages()
    assumed: tuple[str, ...] = ()  # what nobody measured of its time over a WAN, in sentences
    ends: tuple[End, ...] = ()  # of what is assumed: the slow one and the fast one

    @property
    def live_levers(self) -> frozenset[str]:
        """That it pulls while it trains."""
        return LEVERS.intersection(self.prices.levers)

    @property
    def context_parallel(self) -> bool:
        """Whether it splits sequences over ranks."""
        return bool(self.context_ways)

    def recomputes(self, recompute: str) -> bool:
        """Whether it can compute this again."""
        return recompute in self.recompute or (self.recompute_modules and is_recomputation(recompute))

    def all_reduces(self, sharding: str) -> tuple[str, ...]:
        """Ways in which replicas of several domains can sum, the one that sends less first."""
        if sharding == "hybrid" and self.two_level == ("hybrid",):
            return ("two-level",)  # a mesh of its own: there is no flat way
        return tuple(way for way in ALL_REDUCE if way == "ring" or sharding in self.two_level)


NCCL_ASSUMED = "NCCL over a WAN was not measured: it is taken to fill links as TCP can, without loss"
NCCL_TURN_BYTES = 2 * 4 * 2**20 / 2
"""Two channels, each with half of its buffer of 4 MiB (``collectives.h``: ``ALLREDUCE_CHUNKSTEPS`` 4 of ``NCCL_STEPS``
8). How many channels NCCL takes between hosts without RDMA is an assumption."""
GLOO_FLIGHT_BYTES = 2 * 2 * 2**20
"""Two segments of 1 MiB (gloo's ``allreduce.h``: ``kMaxSegmentSize``), two sums at a time (``ProcessGroupGloo``'s
threads). Each is asked for by its receiver, so no more than that goes in a round trip."""
_STOCK = "a flow a GPU with the kernel's stock buffers"
_NCCL_ENDS = (
    End(f"{_STOCK}, one channel", replace(NCCL, window_bytes=STOCK_WINDOW_BYTES), NCCL_TURN_BYTES / 2),
    End("full links, sums in one turn", NCCL),
)
_ONE_MESH = Runtime(
    uniform_tp_dp=True,
    uniform_cuts_across_replicas=True,
    equal_shares=True,
    relays=False,
    prices=RELAUNCHED,
)

RUNTIMES: Mapping[str, Runtime] = MappingProxyType(
    {
        "hippo": Runtime(
            name="hippo",
            told="hippo's executor",
            gradients_first=True,
            shardings=("none",),
            shardings_with_pipeline=("none",),
            context_ways=(),
            expert_parallel=False,
            whole_experts=False,
            recompute=("none", "full"),
            recompute_modules=False,
            sequence_parallel=False,
            prices=RELAUNCHED,
            transport=HIPPO,
        ),
        "megatron": replace(
            _ONE_MESH,
            name="megatron",
            told="Megatron-LM",
            schedules=frozenset({"1f1b", "interleaved"}),
            live_limit=False,
            interleave_in_rounds=True,
            overlaps_exchange=True,  # --overlap-moe-expert-parallel-comm
            shardings=("none", "optimizer", ACROSS),
            shardings_with_pipeline=("none", "optimizer", ACROSS),
            compression=False,
            local_sgd=False,
            kv_heads_divide=True,
            two_level=("optimizer",),  # --num-distributed-optimizer-instances
            copies_tied=True,
            sum_turn_bytes=NCCL_TURN_BYTES,
            transport=NCCL,
            messages=Messages("coupled"),
            assumed=(NCCL_ASSUMED,),
            ends=_NCCL_ENDS,
        ),
        "torch": replace(
            _ONE_MESH,
            name="torch",
            told="torch's pipelining",
            context_ways=("gather",),  # torchtitan's usual one; its other hands pieces on, too, without overlap
            shardings=("none", "gradients", "full", "hybrid"),
            shardings_with_pipeline=("none", "gradients", "full", "hybrid"),
            whole_experts=False,
            recompute_modules=False,
            compression=False,
            kv_heads_divide=True,
            two_level=("hybrid",),  # HSDP: a mesh of (replicate, shard)
            sum_flight_bytes=GLOO_FLIGHT_BYTES,
            transport=TORCH,
            messages=Messages("late", sender="met", notice=True),
            assumed=("between domains torch is taken to run gloo, as it was measured in the emulator",),
            ends=(
                End(_STOCK, replace(TORCH, window_bytes=STOCK_WINDOW_BYTES)),
                End("no time for gloo's copies and wake-ups", replace(TORCH, overhead_s=0.0)),
            ),
        ),
        "deepspeed": replace(
            _ONE_MESH,
            name="deepspeed",
            told="DeepSpeed",
            schedules=frozenset({"1f1b"}),
            live_limit=False,
            interleave=False,
            shardings=("none", "optimizer", ACROSS, "gradients", "full"),
            shardings_with_pipeline=("none", "optimizer", ACROSS),
            recompute=("none", "full"),
            context_ways=(),
            whole_experts=False,
            recompute_modules=False,
            compression=False,
            local_sgd=False,
            kv_heads_divide=True,
            two_level=(),  # MiCS was taken out in 0.19.7, which 0.19.7 took out
            copies_tied=True,
            sum_turn_bytes=NCCL_TURN_BYTES,
            transport=NCCL,
            messages=Messages("apart"),
            assumed=(NCCL_ASSUMED,),
            ends=_NCCL_ENDS,
        ),
        "ideal": Runtime(),
    }
)
"""Runtimes by the name that ``--runtime`` takes."""

OTHER_NAMES: Mapping[str, str] = MappingProxyType({"any": "ideal"})
AT_END: Mapping[str, Runtime] = MappingProxyType(
    {
        f"{name}:{side}": replace(
            runtime,
            told=f"{runtime.told}, {end.told}",
            transport=end.transport,
            sum_turn_bytes=end.sum_turn_bytes,
            ends=(),
        )
        for name, runtime in RUNTIMES.items()
        for side, end in zip(("slow", "fast"), runtime.ends, strict=False)
    }
)
"""Runtimes at an end of what is assumed of them: ``megatron:slow``. A plan is played under both, none is asked for."""
TAKING_ORDERS: Mapping[str, Runtime] = MappingProxyType(
    {"hippo:live": replace(RUNTIMES["hippo"], told="hippo's executor, which takes orders", prices=LIVE)}
)
"""Runtimes that change their plan while they train (``hippo run --control``): all else is as of the one that does not.
Asked for by name."""
_OTHERS = MappingProxyType({**AT_END, **TAKING_ORDERS})


def name_of(name: str, *, source: str = "--runtime") -> str:
    """The name that a runtime has here; ``UnknownNameError`` lists them."""
    found = OTHER_NAMES.get(name, name)
    if found not in RUNTIMES and found not in _OTHERS:
        raise UnknownNameError("runtime", str(name)[:60], (*RUNTIMES, *TAKING_ORDERS), source=source)
    return found


def runtime_of(name: str) -> Runtime:
    """A runtime by name; raises as ``name_of``."""
    found = name_of(name)
    return RUNTIMES[found] if found in RUNTIMES else _OTHERS[found]


def not_run_here(model: Model, seq: int) -> str | None:
    """What of a model hippo's executor cannot run on sequences of ``seq`` tokens, in words; None: it can run it."""
    for layer in model.distinct_layers:
        feed_forward, attention = layer.feed_forward, layer.attention
        if layer.parts == 1:
            return "blocks of attention or a feed-forward network alone"
        if feed_forward is None or attention is None:
            continue
        parts = (
            (feed_forward.experts is not None, "mixtures of experts"),
            (attention.latent is not None, "multi-head latent attention"),
            (attention.linear is not None, "linear attention"),
            (attention.within(seq).window is not None, f"windows of attention below the {seq} tokens of a sequence"),
            (attention.sinks or attention.output_gate, "sinks and gates of attention"),
            (attention.wide_qk_norm, "norms over all heads together"),
            (layer.norms != 2, "norms behind attention and feed-forward network"),
        )
        for found, part in parts:
            if found:
                return part
    return None


def not_overlapped(recompute: str, precision: str, *, chunks: int, stages: int) -> str | None:
    """What keeps Megatron Core from merging the forward of one micro-batch with the backward of another, so that the
    exchange of one runs beside the other's work, in words; None: it can (``TransformerConfig.__post_init__``)."""
    if stages > 1 and chunks == 1:
        return "several stages of one chunk of layers each"
    if recompute.startswith("full") or "moe" in recomputed_modules(recompute):
        return f"recompute {recompute}, which exchanges again"
    return None if precision in ("bf16", "fp16", "fp8") else f"precision {precision}"


def usual_runtime(model: Model, seq: int, *, local_sgd: bool = False) -> str:
    """hippo's executor; for models that it cannot run Megatron-LM, or torch where replicas may average now and then."""
    if not_run_here(model, seq) is None:
        return "hippo"
    return "torch" if local_sgd else "megatron"


def tp_refusal(model: Model, tp: int, rules: Runtime) -> str | None:
    """Why the model cannot be split over ``tp`` tensor-parallel ranks, in words; None: it can.

    Heads and widths must divide; fewer key-value heads than ranks are repeated where the runtime can do that.
    """
    for layer in model.distinct_layers:
        attention, feed_forward = layer.attention, layer.feed_forward
        if attention is not None and attention.heads % tp:
            return f"tp {tp} does not divide the {attention.heads} attention heads"
        if attention is not None and attention.latent is None and attention.kv_heads % tp:
            repeats = attention.linear is None and not rules.kv_heads_divide  # the delta rule has a state per head
            repeated = tp % attention.kv_heads == 0 and repeats
            if not repeated:
                return f"tp {tp} does not divide the {attention.kv_heads} key-value heads"
        if feed_forward is not None:
            width = feed_forward.width if feed_forward.experts is None else feed_forward.experts.width
            if width % tp:
                return f"tp {tp} does not divide the width {width} of the feed-forward network"
    return None


def cuts_are_uniform(stages: Sequence[tuple[int, int]], num_layers: int) -> bool:
    """Whether these [start, stop) ranges hold equally many blocks, or differ by one where they do not divide.

    The embedding rides with the first blocks and the head with the last.
    """
    blocks = [min(stop, num_layers - 1) - max(start, 1) for start, stop in stages]
    return max(blocks) - min(blocks) <= 1
