"""GPU types, and other accelerators: peak rates, memory, links, rent. Every figure's source stands beside it.

Sources: ``data/gpu_facts.json`` names the public document of each figure; [NVIDIA ...] NVIDIA's data sheets. The
sources of Ascend 910B contradict each other; taken is what its 24 cube cores do at 1.8 GHz. TPUs have no nodes: cubes
of 64 chips stand for them, and the links of a 3D torus that leave a cube for its network.
Peaks are dense (data sheets often print the doubled, sparse figure). NVLink is one direction (half of the printed
bidirectional figure). Node networks are the usual reference design of the generation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from hippo.errors import UnknownNameError
from hippo.problem.cluster import Gpu


def _gpu(
    name: str,
    family: str,
    *,
    tflops: Mapping[str, float],
    memory_gb: float,
    hbm_gb_per_s: float,
    nvlink_gb_per_s: float,
    node_gbps: float,
    usd: float,
    source: str,
    nvlink_domain: int = 8,
) -> Gpu:
    return Gpu(
        name=name,
        peak_flops=MappingProxyType({precision: rate * 1e12 for precision, rate in tflops.items()}),
        memory_bytes=memory_gb * 1e9,
        hbm_bytes_per_s=hbm_gb_per_s * 1e9,
        nvlink_bytes_per_s=nvlink_gb_per_s * 1e9,
        price_usd_per_hour=usd,
        source=source,
        family=family,
        node_bytes_per_s=node_gbps * 1e9 / 8,
        nvlink_domain=nvlink_domain,
    )


_A100 = {"bf16": 312.0, "fp16": 312.0, "tf32": 156.0, "fp32": 19.5}
_H100 = {"bf16": 989.0, "fp16": 989.0, "fp8": 1979.0, "tf32": 494.0, "fp32": 67.0}
# 500 W: between the PCIe card (756 TFLOP/s at 350 W) and the SXM module (989 TFLOP/s at 700 W), by power.
_H100_500W = {"bf16": 856.0, "fp16": 856.0, "fp8": 1712.0, "tf32": 428.0, "fp32": 58.0}
_H20 = {"bf16": 148.0, "fp16": 148.0, "fp8": 296.0, "tf32": 74.0, "fp32": 44.0}
_MI300X = {"bf16": 1307.4, "fp16": 1307.4, "fp8": 2614.9, "tf32": 653.7, "fp32": 163.4}
_L40S = {"bf16": 362.05, "fp16": 362.05, "fp8": 733.0, "tf32": 183.0, "fp32": 91.6}
_RTX_4090 = {"bf16": 165.2, "fp16": 165.2, "fp8": 330.3, "tf32": 82.6, "fp32": 82.6}  # sums in 32 bit
_ASCEND_910B = {"bf16": 353.9, "fp16": 353.9, "fp32": 88.5}
_TPU_V5P = {"bf16": 459.0, "fp16": 459.0, "fp32": 76.5}  # 32 bit: six passes
_TPU_V7X = {"bf16": 2307.0, "fp16": 2307.0, "fp8": 4614.0, "fp32": 384.5}
_B200 = {"bf16": 2250.0, "fp16": 2250.0, "fp8": 4500.0, "nvfp4": 9000.0, "tf32": 1100.0, "fp32": 75.0}
_GB200 = {"bf16": 2450.0, "fp16": 2450.0, "fp8": 4900.0, "nvfp4": 9800.0, "tf32": 1225.0, "fp32": 80.0}
_GB300 = {"bf16": 2450.0, "fp16": 2450.0, "fp8": 4900.0, "nvfp4": 14700.0, "tf32": 1225.0, "fp32": 80.0}

_ALL = (
    _gpu("V100-SXM2-16GB", "volta", tflops={"fp16": 125.0, "bf16": 125.0, "fp32": 15.7}, memory_gb=16, hbm_gb_per_s=900,
         nvlink_gb_per_s=150, node_gbps=100, usd=2.86, source="data/gpu_facts.json; rent: Sailor constants.py"),
    _gpu("A800-80GB", "ampere", tflops=_A100, memory_gb=80, hbm_gb_per_s=2039, nvlink_gb_per_s=200, node_gbps=1600,
         usd=1.80, source="data/gpu_facts.json; rent: that of the A100"),
    _gpu("A100-SXM-40GB", "ampere", tflops=_A100, memory_gb=40, hbm_gb_per_s=1555, nvlink_gb_per_s=300, node_gbps=1600,
         usd=3.67, source="data/gpu_facts.json; rent: GCP as in Sailor constants.py"),
    _gpu("A100-SXM-80GB", "ampere", tflops=_A100, memory_gb=80, hbm_gb_per_s=2039,
         nvlink_gb_per_s=300, node_gbps=1600, usd=1.80, source="data/gpu_facts.json"),
    _gpu("H100-SXM-80GB", "hopper", tflops=_H100, memory_gb=80, hbm_gb_per_s=3350, nvlink_gb_per_s=450, node_gbps=3200,
         usd=3.00, source="data/gpu_facts.json"),
    _gpu("H100-96GB-HBM2e", "hopper", tflops=_H100_500W, memory_gb=96, hbm_gb_per_s=2400,
         nvlink_gb_per_s=450, node_gbps=3200, usd=3.00,
         source="data/gpu_facts.json Grand Teton, 500 W; peak below 989 is not stated"),
    _gpu("H200-SXM-141GB", "hopper", tflops=_H100, memory_gb=141, hbm_gb_per_s=4800,
         nvlink_gb_per_s=450, node_gbps=3200, usd=3.75, source="data/gpu_facts.json"),
    _gpu("H800-80GB", "hopper", tflops=_H100, memory_gb=80, hbm_gb_per_s=3350, nvlink_gb_per_s=200, node_gbps=3200,
         usd=2.00, source="data/gpu_facts.json"),
    _gpu("H20-96GB", "hopper", tflops=_H20, memory_gb=96, hbm_gb_per_s=4000, nvlink_gb_per_s=450, node_gbps=3200,
         usd=1.80, source="data/gpu_facts.json; rent: that of the A100"),
    _gpu("GH200-96GB", "hopper", tflops=_H100, memory_gb=96, hbm_gb_per_s=4000, nvlink_gb_per_s=450, node_gbps=400,
         usd=3.00, source="data/gpu_facts.json"),
    _gpu("B200", "blackwell", tflops=_B200, memory_gb=180, hbm_gb_per_s=7700, nvlink_gb_per_s=900, node_gbps=3200,
         usd=5.00, source="data/gpu_facts.json"),
    _gpu("GB200", "blackwell", tflops=_GB200, memory_gb=186, hbm_gb_per_s=8000, nvlink_gb_per_s=900, node_gbps=28_800,
         usd=6.00, source="data/gpu_facts.json", nvlink_domain=72),
    _gpu("B300", "blackwell-ultra", tflops=_GB300, memory_gb=270, hbm_gb_per_s=8000, nvlink_gb_per_s=900,
         node_gbps=6400, usd=6.50, source="NVIDIA DGX B300"),
    _gpu("GB300", "blackwell-ultra", tflops=_GB300, memory_gb=279, hbm_gb_per_s=8000, nvlink_gb_per_s=900,
         node_gbps=57_600, usd=7.00, source="NVIDIA GB300 NVL72", nvlink_domain=72),
    # Families that nobody has measured, as Volta: answers about them say so (cost.calibration.uncalibrated).
    _gpu("MI300X-192GB", "cdna3", tflops=_MI300X, memory_gb=192, hbm_gb_per_s=5300, nvlink_gb_per_s=448,
         node_gbps=3200, usd=1.85, source="data/gpu_facts.json"),
    _gpu("L40S-48GB", "ada", tflops=_L40S, memory_gb=48, hbm_gb_per_s=864, nvlink_gb_per_s=32, node_gbps=400, usd=1.46,
         source="data/gpu_facts.json; PCIe in place of NVLink"),
    _gpu("Ascend-910B", "ascend", tflops=_ASCEND_910B, memory_gb=64, hbm_gb_per_s=1600, nvlink_gb_per_s=196,
         node_gbps=1600, usd=1.80,
         source="910B2 in Huawei's models of its devices (cores, clock, HBM, HCCS in place of NVLink); others measured "
         "328 TFLOP/s (data/gpu_facts.json has other figures); rent: that of the A100"),
    _gpu("TPU-v5p", "tpu", tflops=_TPU_V5P, memory_gb=102, hbm_gb_per_s=2765, nvlink_gb_per_s=600, node_gbps=76_800,
         usd=4.20, nvlink_domain=64, source="docs.cloud.google.com/tpu/docs/v5p (95 GiB; ICI in place of NVLink)"),
    _gpu("TPU-v7x", "tpu", tflops=_TPU_V7X, memory_gb=206, hbm_gb_per_s=7380, nvlink_gb_per_s=600, node_gbps=76_800,
         usd=6.00, nvlink_domain=64,
         source="docs.cloud.google.com/tpu/docs/tpu7x (192 GiB; ICI in place of NVLink); rent: that of the GB200"),
    _gpu("RTX-4090-24GB", "ada", tflops=_RTX_4090, memory_gb=24, hbm_gb_per_s=1008, nvlink_gb_per_s=32, node_gbps=100,
         usd=0.40, source="data/gpu_facts.json; PCIe in place of NVLink; network and rent: usual offers"),
)  # fmt: skip

GPUS: Mapping[str, Gpu] = MappingProxyType({each.name: each for each in _ALL})

FAMILIES = tuple(sorted({each.family for each in _ALL}))
"""Families of the catalogue; a GPU of one's own may be of another."""

ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "A100": "A100-SXM-80GB",
        "A100 (memory size not stated)": "A100-SXM-80GB",
        "A100-80GB": "A100-SXM-80GB",
        "A100-80GB (memory size not stated)": "A100-SXM-80GB",
        "A100-SXM (README says 40GB; paper 80GB from memory: unverified)": "A100-SXM-80GB",
        "A100-40GB": "A100-SXM-40GB",
        "A100-SXM4-40GB": "A100-SXM-40GB",
        "A100-SXM4-80GB": "A100-SXM-80GB",
        "H100": "H100-SXM-80GB",
        "H100-80GB": "H100-SXM-80GB",
        "H100-96GB-HBM2e-2.4TB/s-500W": "H100-96GB-HBM2e",
        "H100-96GB-HBM2e (Meta Grand Teton, 500 W)": "H100-96GB-HBM2e",
        "H200": "H200-SXM-141GB",
        "H800": "H800-80GB",
        "H20": "H20-96GB",
        "A800": "A800-80GB",
        "MI300X": "MI300X-192GB",
        "L40S": "L40S-48GB",
        "Ascend 910": "Ascend-910B",
        "TPU7x": "TPU-v7x",
        "RTX 4090": "RTX-4090-24GB",
        "4090": "RTX-4090-24GB",
        "GH200": "GH200-96GB",
        "B200-180GB": "B200",
        "GB200 (186GB)": "GB200",
        "GB200 (per GPU)": "GB200",
        "V100": "V100-SXM2-16GB",
    }
)


def gpu(name: str, *, source: str | None = None, key: str | None = None) -> Gpu:
    """The GPU of that name or alias, in capitals or not, with or without ``SXM`` where one such is known.

    Raises
    ------
    UnknownNameError
        It lists the known names, and says how to describe another.
    """
    found = _BY_NAME.get(_plain(name))
    if found is None:
        other = ", or write a mapping of its figures in the place of the name, as docs/contracts.md shows"
        raise UnknownNameError("gpu", name[:60], GPUS, source=source, key=key, other=other)
    return found


def _plain(name: str) -> str:
    """What two spellings of one type share: ``h100-sxm``, ``H100 SXM5`` and ``NVIDIA H100-SXM-80GB`` begin alike."""
    word = name.strip().lower().replace("_", "-").replace(" ", "-")
    word = re.sub(r"^(nvidia|amd)-", "", word)
    word = re.sub(r"^(geforce|instinct)-", "", word)
    return re.sub(r"-sxm\d?\b", "-sxm", word)


_BY_NAME: Mapping[str, Gpu] = MappingProxyType(
    {
        **{_plain(f"{short}-SXM"): GPUS[ALIASES[short]] for short in ("V100", "A100", "H100", "H200")},
        **{_plain(alias): GPUS[name] for alias, name in ALIASES.items()},
        **{_plain(name): each for name, each in GPUS.items()},
    }
)
