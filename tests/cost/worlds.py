"""A machine without losses, so that times can be worked out by hand, and small models on it."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from hippo.cost.calibration import CALIBRATION, Calibration, Generation
from hippo.cost.collectives import Fabric
from hippo.problem.cluster import Cluster, Domain
from hippo.problem.gpus import gpu
from hippo.problem.model import Experts, Model, gpt_model
from hippo.problem.problem import Problem
from hippo.problem.workload import Workload

PERFECT = replace(
    CALIBRATION,
    generations=MappingProxyType({"ampere": Generation(108, 1.0, 1.0, 1.0), "hopper": Generation(132, 1.0, 1.0, 1.0)}),
    low_precision=1.0,
    k_half=0.0,
    tile_halving=1.0,
    hbm_efficiency=1.0,
    launch_s=0.0,
    bus_efficiency_intra=1.0,
    bus_efficiency_inter=1.0,
    exchange_inter=1.0,
    latency_intra_s=0.0,
    hop_latency_s=0.0,
    exposed_tp=1.0,
    exposed_dp=1.0,
    exposed_fsdp=0.0,
    eager_traffic=1.0,
    step_overhead_s=0.0,
)
"""Every kernel at its peak, every link at its rate, nothing to launch."""

FABRIC = Fabric(gpus_per_node=8, intra_bytes_per_s=300e9, inter_bytes_per_s=200e9, inter_latency_s=0.0)


def gpt(*, layers: int = 4, hidden: int = 2048, heads: int = 16, vocab: int = 32768, seq: int = 2048) -> Model:
    """A GPT of full-size matrices and few blocks."""
    return gpt_model("small", layers=layers, hidden=hidden, heads=heads, vocab=vocab, seq=seq)


def mixture(*, count: int = 16, per_token: int = 2, width: int = 1024) -> Model:
    """A gated mixture of experts."""
    experts = Experts(count, per_token, width)
    return gpt_model(
        "mixture", layers=4, hidden=2048, heads=16, vocab=32768, seq=2048, gated=True, ffn=width, experts=experts
    )


def problem(model: Model | None = None, *, card: str = "A100-SXM-80GB", nodes: int = 4, **workload: object) -> Problem:
    """The model on one domain ``d`` of nodes of 8 GPUs, 300 GB/s inside and 200 GB/s per node outside."""
    domain = Domain("d", nodes, 8, FABRIC.intra_bytes_per_s, FABRIC.inter_bytes_per_s, 0.0)
    asked = Workload(**{"global_batch": 64, "seq": 2048, **workload})  # type: ignore[arg-type]
    return Problem(model or gpt(), Cluster("one", gpu(card), (domain,), ()), asked)


def exact(calibration: Calibration = PERFECT, **changes: object) -> Calibration:
    """``calibration`` with some constants changed."""
    return replace(calibration, **changes)  # type: ignore[arg-type]
