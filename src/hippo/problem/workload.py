"""What one optimizer step has to do."""

from __future__ import annotations

from dataclasses import dataclass

from hippo.errors import InputError, UnknownNameError
from hippo.problem.model import Model
from hippo.problem.routing import Routing

DISPATCHERS = ("alltoall", "deepep", "hybridep")
"""What brings tokens to experts: each copy alone, or once to each node and to each rank there. The last two are said to
send the same bytes, and *assumed* to take as long: one published step tells them apart (docs/theory.md)."""


@dataclass(frozen=True)
class Software:
    """What the training software does for speed; the default is today's Megatron-LM with Transformer Engine."""

    attention: str = "tuned"  # unfused; flash2 (FlashAttention-2 on any GPU); tuned (cuDNN, FlashAttention-3)
    fused_elementwise: bool = (
        True  # fused norms, activations, optimizer (Transformer Engine, torch.compile); False: eager
    )
    overlap_dp: bool = True  # gradient reduction and parameter gathers run beside computation
    overlap_tp: bool = True  # tensor-parallel collectives run beside matrix products
    blocking_launches: bool = False  # the CPU waits for every kernel before the next (CUDA_LAUNCH_BLOCKING=1)
    dispatcher: str = "alltoall"  # of tokens to experts (``DISPATCHERS``)
    context_way: str = (
        ""  # of context parallelism (``runtimes.CONTEXT_WAYS``); empty: the quickest that the runtime has
    )
    overlap_ep: bool = False  # the exchange of one micro-batch runs beside another's computation
    fused_experts: bool = False  # experts of 8 and 4 bit are one kernel, with their sorting
    graphs: str = "none"  # launched as CUDA graphs: none, routing (of tokens), attention (and routing), full (the step)
    logit_bytes: float = 6.0  # that the loss keeps of a logit: 16 bit and fp32; 10 with another fp32 result beside them
    late_sums: bool = False  # 16-bit gradients stand beside their fp32 sums until the backward pass has ended
    list_gathers: bool = False  # sharded weights come one tensor at a time, as a list of one piece per rank


@dataclass(frozen=True)
class Workload:
    """Batch, sequence length, precision and optimizer of the training run."""

    global_batch: int = 1024  # sequences per optimizer step
    seq: int = 4096  # tokens per sequence
    precision: str = "bf16"  # bf16, fp16, fp8, fp32 (and mxfp8, nvfp4 in validation)
    state_bytes_per_parameter: float = (
        16.0  # bf16 weights 2, fp32 master 4, two fp32 moments 8, gradient 2: a move carries 16
    )
    gradient_bytes_per_parameter: float = 2.0  # what gradient all-reduce sends per parameter
    software: Software = Software()
    routing: Routing = Routing()  # how unevenly tokens go to experts

    @property
    def tokens_per_step(self) -> int:
        """Tokens of one optimizer step."""
        return self.global_batch * self.seq


def check_dispatcher_of(model: Model, name: str, *, source: str, key: str | None = None) -> None:
    """``InputError`` for an unknown dispatcher, or one of a model without experts."""
    if name not in DISPATCHERS:
        raise UnknownNameError("dispatcher", name[:60], DISPATCHERS, source=source, key=key)
    if name != DISPATCHERS[0] and not any(layer.expert_parameters for layer in model.layers):
        remedy = "leave it out, or name a mixture of experts"
        raise InputError(f"{model.name} has no experts", source=source, key=key, value=name, remedy=remedy)
