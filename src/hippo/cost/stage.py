"""What one stage costs: seconds per micro-batch and per step, bytes it sends, bytes it keeps.

Letters: a *rank* is one device; a stage has ``tp * cp * dp`` of them; a *wave* is one micro-batch on every dp lane.
All seconds and bytes are per rank unless the name says otherwise. These types are the border of the cost floor:
planners, simulators and scores see nothing below them.
"""

from __future__ import annotations

from dataclasses import dataclass

from hippo.problem.runtimes import recomputed_blocks


@dataclass(frozen=True)
class Layout:
    """How the layers of one stage lie on its ranks."""

    tp: int
    dp: int
    micro_batch: int  # sequences per rank and micro-batch
    cp: int = 1
    ep: int = 1
    recompute: str = "none"
    sharding: str = "none"
    sequence_parallel: bool = True
    interleave: int = 1
    precision: str = "bf16"
    num_stages: int = 1  # pipeline ranks of the pipeline this stage belongs to (memory of in-flight activations)
    replicas: int = 1  # data-parallel ranks over all pipelines (what a world-wide sharding divides by)
    etp: int | None = None  # ranks that an expert is cut over; None: tp
    in_open: float | None = None  # share of its exchanges of experts with nothing to run beside; None: none runs beside

    @property
    def expert_tp(self) -> int:
        """Ranks that an expert is cut over."""
        return self.tp if self.etp is None else self.etp

    def blocks_again(self, blocks: int) -> int | None:
        """Of so many blocks of a rank those that are computed again whole, the first of each chunk; None: all alike."""
        most = recomputed_blocks(self.recompute)
        if most is None:
            return None
        each, more = divmod(blocks, self.interleave)
        return more * min(most, each + 1) + (self.interleave - more) * min(most, each)


@dataclass(frozen=True)
class StageMemory:
    """Peak bytes on the fullest rank of a stage."""

    weights_bytes: float
    gradients_bytes: float
    optimizer_bytes: float
    activation_bytes: float  # of ONE micro-batch, all chunks of the rank
    live_micro_batches: float  # how many of them are live at the peak (fractions: interleaving)
    workspace_bytes: float  # logits, gathered parameters, communication buffers
    reserved_bytes: float  # CUDA context, communicators, what the allocator cannot use

    @property
    def allocated_bytes(self) -> float:
        """What the framework's allocator counts at the peak (``torch.cuda.max_memory_allocated``)."""
        return self.peak_bytes - self.reserved_bytes

    @property
    def peak_bytes(self) -> float:
        """All of it together."""
        kept = self.weights_bytes + self.gradients_bytes + self.optimizer_bytes
        return kept + self.activation_bytes * self.live_micro_batches + self.workspace_bytes + self.reserved_bytes


@dataclass(frozen=True)
class StageCost:
    """What the simulator plays for one stage (rank of the pipeline)."""

    forward_s: float  # per micro-batch, all layers of the stage, tp/cp/ep communication included
    backward_s: float  # input gradient, recomputation included
    weight_gradient_s: float
    output_bytes: float  # activations one dp lane (all tp, cp ranks) sends to the next stage per micro-batch
    sync_s: float  # exposed gradient synchronisation among the dp lanes inside the domain, once per step
    optimizer_s: float  # optimizer update (and parameter all-gather of a sharded optimizer), once per step
    gradient_bytes: float  # gradients of the whole stage (all tp ranks, one replica): what crosses domains to agree
    parameter_bytes: float  # weights of the whole stage (one replica), in training precision
    flops: float  # model FLOPs of one micro-batch and dp lane (all tp, cp ranks), both passes, recompute not counted
    tp_s: float = 0.0  # of forward + backward + weight gradient: exposed tensor/context/expert communication
    fixed_s: float = 0.0  # per step, per rank: launch of the step, data loading
