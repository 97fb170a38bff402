"""The constants of the performance model: few, physical, fitted once (``benchmarks/fit_calibration.py``).

Every field says what it means; ``RANGES`` says what is physically plausible for those that are fitted to step times,
and the fit stays inside. The last two, of memory, are set by hand from the BigScience rows (results/cost_model.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from hippo.problem.problem import Problem


@dataclass(frozen=True)
class Generation:
    """What changes from one GPU generation to the next."""

    multiprocessors: int  # streaming multiprocessors (data sheet, not fitted); tiles are dealt to them in waves
    gemm_efficiency: float  # share of the dense peak that a large 16-bit matrix product reaches
    attention_efficiency: float  # share of the 16-bit peak of a fused attention kernel tuned for it
    flash2_efficiency: float  # the same of FlashAttention-2, written for Ampere
    measured: bool = True  # False: no published row is of it, and its shares are set by hand


@dataclass(frozen=True)
class Calibration:
    """All fitted constants in one place."""

    generations: Mapping[str, Generation] = field(
        default_factory=lambda: MappingProxyType(
            {
                "volta": Generation(80, 0.75, 0.328, 0.328, measured=False),
                "ampere": Generation(108, 0.771, 0.328, 0.328),
                "hopper": Generation(132, 0.665, 0.633, 0.177),
                "blackwell": Generation(148, 0.555, 0.4, 0.177),
                "blackwell-ultra": Generation(148, 0.608, 0.75, 0.177),
            }
        )
    )
    low_precision: float = 1.1  # share of the 8 and 4 bit peak against gemm_efficiency
    k_half: float = 32.8  # inner dimension at which a product reaches half of its best rate
    tile_halving: float = 0.886  # rate of an output tile of half the area against the larger one
    misaligned: float = 0.0571  # rate of products whose inner dimension is no multiple of 8
    hbm_efficiency: float = 0.82  # share of the HBM bandwidth that elementwise kernels reach
    cast_bytes: float = 6.63  # HBM bytes per value cast to 8 or 4 bit, with its transposed copy
    launch_s: float = 3.16e-05  # seconds the CPU needs to launch one kernel
    checkpoint_serial: float = 0.115  # share of launches that full recomputation puts in line with the kernels
    bus_efficiency_intra: float = 0.757  # share of NVLink that collectives reach
    bus_efficiency_inter: float = 0.4  # share of the node's network that collectives reach
    latency_intra_s: float = 4.66e-05  # start of a collective inside a node
    hop_latency_s: float = 2e-07  # one more rank on a ring that crosses nodes
    exposed_tp: float = 0.338  # share of overlapped tensor-parallel communication that stays visible
    exchange_inter: float = 0.81  # share of the node's network that an exchange of tokens reaches
    exposed_ep: float = 0.539  # share of an exchange of tokens beside another micro-batch's work that stays visible
    permutation_passes: float = 9.14  # readings and writings of each copy of a token that sorting and adding up take
    expert_launches: float = 0.656  # launches of router, sorting, exchange and grouped products against a dense block's
    expert_streams: float = 0.724  # share of the launches of single experts' products and casts that stand in line
    eager_traffic: float = 1.66  # HBM traffic of eager elementwise kernels against fused ones
    exposed_fsdp: float = 0.214  # share of parameter gathers that overlap never hides
    exposed_dp: float = 0.194  # share of the overlapped gradient synchronisation that stays visible
    optimizer_bytes_per_parameter: float = 28.0  # HBM bytes moved per updated parameter
    step_overhead_s: float = 0.00552  # per step: data loading, loss scale, logging
    context_bytes: float = 1e9  # CUDA context and kernels' own memory
    reserved_share: float = 0.08  # of the device memory: communicators, buckets, blocks of no use (fragmentation)


CALIBRATION = Calibration()


def constant(calibration: Calibration, name: str) -> float:
    """A constant by name, ``generation.field`` for one of a generation of GPUs."""
    generation, _, key = name.rpartition(".")
    return float(getattr(calibration.generations[generation] if generation else calibration, key))


def uncalibrated(problem: Problem) -> str | None:
    """What an answer rests on where nobody measured the family of the GPU, nor the user its layers; None: they did."""
    gpu = problem.cluster.gpu
    found = CALIBRATION.generations.get(gpu.family)
    if problem.profile is not None or (found is not None and found.measured):
        return None
    shares = "the shares of its peaks that Ampere reaches" if found is None else "estimated shares of its peaks"
    return f"uncalibrated: nobody measured {gpu.name}; it is taken to reach {shares}"


RANGES: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        "ampere.gemm_efficiency": (0.5, 0.95),
        "hopper.gemm_efficiency": (0.5, 0.95),
        "blackwell.gemm_efficiency": (0.5, 0.95),
        "blackwell-ultra.gemm_efficiency": (0.5, 0.95),
        "low_precision": (0.6, 1.1),
        "hopper.attention_efficiency": (0.2, 0.75),
        "blackwell.attention_efficiency": (0.2, 0.75),
        "blackwell-ultra.attention_efficiency": (0.2, 0.9),
        "ampere.flash2_efficiency": (0.1, 0.6),
        "hopper.flash2_efficiency": (0.1, 0.6),
        "k_half": (32.0, 1024.0),
        "tile_halving": (0.7, 1.0),
        "misaligned": (0.05, 1.0),
        "hbm_efficiency": (0.5, 0.95),
        "cast_bytes": (3.0, 12.0),
        "launch_s": (2e-6, 6e-5),
        "checkpoint_serial": (0.1, 1.0),
        "bus_efficiency_intra": (0.4, 0.95),
        "bus_efficiency_inter": (0.2, 0.95),
        "latency_intra_s": (2e-6, 6e-5),
        "hop_latency_s": (2e-7, 1e-5),
        "exposed_tp": (0.1, 1.0),
        "exchange_inter": (0.3, 1.0),
        "exposed_ep": (0.1, 1.0),
        "permutation_passes": (2.0, 12.0),
        "expert_launches": (0.3, 6.0),
        "expert_streams": (0.02, 1.0),
        "eager_traffic": (1.0, 4.0),
        "exposed_fsdp": (0.02, 0.5),
        "exposed_dp": (0.1, 1.0),
        "optimizer_bytes_per_parameter": (28.0, 60.0),
        "step_overhead_s": (0.001, 0.1),
    }
)
"""The constants that ``benchmarks/fit_calibration.py`` fits, and the range of each that is physically plausible."""

BY_HAND: Mapping[str, str] = MappingProxyType(
    {
        "volta.*": "no published row of one place is of it",
        "multiprocessors": "data sheets",
        "ampere.attention_efficiency": "as FlashAttention-2 there: the rows of the time had no fused kernel",
        "context_bytes": "the BigScience rows' memory",
        "reserved_share": "the BigScience rows' memory",
    }
)
"""The constants that no fit chose, and what they rest on."""
