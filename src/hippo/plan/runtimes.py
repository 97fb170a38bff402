"""What a training runtime can express, as data that planners and checks share.

Read from the runtimes' own parsers and sources: Megatron-LM 0.16 (``validate_args``, ``PipelineParallelLayerLayout``),
torch 2.13 with torchtitan 0.3 (one ``DeviceMesh``, schedules from CSV), DeepSpeed 0.19 (``PipelineEngine``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from hippo.plan.plan import RECOMPUTE, SHARDING
from hippo.problem.model import Model


@dataclass(frozen=True)
class RuntimeRules:
    """Limits of one runtime; the defaults limit nothing."""

    name: str = "any"
    uniform_tp_dp: bool = False  # every stage of every pipeline has the same tp and dp, every pipeline as many stages
    uniform_cuts_across_replicas: bool = False  # every pipeline is cut at the same layers
    equal_shares: bool = False  # every pipeline works through the same number of waves
    schedules: frozenset[str] | None = None  # None: any order of micro-batches
    live_limit: bool = True  # takes a limit of live micro-batches that differs from the schedule's own
    interleave: bool = True  # several chunks of layers per rank
    interleave_in_rounds: bool = False  # with chunks, the waves must be a multiple of the stages
    shardings: tuple[str, ...] = SHARDING
    shardings_with_pipeline: tuple[str, ...] = SHARDING  # where a pipeline has more than one stage
    recompute: tuple[str, ...] = RECOMPUTE
    context_parallel: bool = True
    expert_parallel: bool = True
    compression: bool = True
    local_sgd: bool = True
    kv_heads_divide: bool = False  # tp must divide the key-value heads; otherwise they may be repeated


_ONE_MESH = RuntimeRules(uniform_tp_dp=True, uniform_cuts_across_replicas=True, equal_shares=True)

RUNTIME_RULES: Mapping[str, RuntimeRules] = MappingProxyType(
    {
        "any": RuntimeRules(),
        "megatron": replace(
            _ONE_MESH,
            name="megatron",
            schedules=frozenset({"1f1b", "interleaved"}),
            live_limit=False,
            interleave_in_rounds=True,
            shardings=("none", "optimizer"),
            shardings_with_pipeline=("none", "optimizer"),
            compression=False,
            local_sgd=False,
            kv_heads_divide=True,
        ),
        "torch": replace(
            _ONE_MESH,
            name="torch",
            shardings=("none", "gradients", "full", "hybrid"),
            shardings_with_pipeline=("none", "gradients", "full", "hybrid"),
            compression=False,
            kv_heads_divide=True,
        ),
        "deepspeed": replace(
            _ONE_MESH,
            name="deepspeed",
            schedules=frozenset({"1f1b"}),
            live_limit=False,
            interleave=False,
            shardings_with_pipeline=("none", "optimizer"),
            recompute=("none", "full"),
            context_parallel=False,
            compression=False,
            local_sgd=False,
            kv_heads_divide=True,
        ),
    }
)
"""Rules by the name that ``--runtime`` takes."""


def runtime_rules(runtime: str) -> RuntimeRules:
    """The rules of a runtime; ``KeyError`` for a name that ``problem/load.py`` would have refused."""
    return RUNTIME_RULES[runtime]


def tp_refusal(model: Model, tp: int, rules: RuntimeRules) -> str | None:
    """Why the model cannot be split over ``tp`` tensor-parallel ranks, in words; None: it can.

    Heads and widths must divide; fewer key-value heads than ranks are repeated where the runtime can do that.
    """
    for layer in model.distinct_layers:
        attention, feed_forward = layer.attention, layer.feed_forward
        if attention is not None and attention.heads % tp:
            return f"tp {tp} does not divide the {attention.heads} attention heads"
        if attention is not None and attention.latent is None and attention.kv_heads % tp:
            repeated = tp % attention.kv_heads == 0 and not rules.kv_heads_divide
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
