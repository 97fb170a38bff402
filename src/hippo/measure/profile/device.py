"""The device at hand: its name in the catalogue, or its figures where the catalogue does not hold it."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch

from hippo.errors import InputError
from hippo.problem.cluster import Gpu
from hippo.problem.gpus import ALIASES, GPUS

CPU = "cpu"
DTYPES = MappingProxyType({"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16})
_PRODUCT, _COPIED_BYTES, _TRIES = 1024, 1 << 26, 7

# What torch calls a device, to the catalogue's name; the first that is found in it.
_NAMES: Mapping[str, str] = MappingProxyType(
    {
        r"GB300": "GB300",
        r"GB200": "GB200",
        r"B300": "B300",
        r"B200": "B200",
        r"GH200": "GH200-96GB",
        r"H200(?! NVL)": "H200-SXM-141GB",
        r"H800(?! PCIe)": "H800-80GB",
        r"H100 80GB HBM3": "H100-SXM-80GB",
        r"A100-SXM\d?-80GB": "A100-SXM-80GB",
        r"A100-SXM\d?-40GB": "A100-SXM-40GB",
        r"V100-SXM2-16GB": "V100-SXM2-16GB",
    }
)


def device_at_hand() -> torch.device:
    """The GPU where there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def catalogue_name(told: str) -> str | None:
    """The catalogue's name for what torch calls a device; None: it is not there."""
    return next((name for pattern, name in _NAMES.items() if re.search(pattern, told)), None)


def name_of(device: torch.device) -> str:
    """The name that a profile's rows carry: the catalogue's, else torch's own, ``cpu`` for the CPU."""
    if device.type == "cpu":
        return CPU
    told = torch.cuda.get_device_name(device)
    return catalogue_name(told) or told


def gpu_of(device: torch.device, name: str, precision: str) -> Gpu:
    """The device as a GPU that a cluster file can hold: the catalogue's, else measured.

    Measured, best of a few tries: a large matrix product (``peak_flops`` of this precision), a large copy. Devices
    of one node are taken to be joined by memory, half of it each way. Rent is 0: nobody has said one. Figures are
    rounded in a cluster file's units, so that the file says them exactly.

    Raises
    ------
    InputError
        The catalogue's GPU has no rate for this precision, or the device is a CPU and no GPU.
    """
    known = GPUS.get(ALIASES.get(name, name))
    if known is not None and device.type == "cpu":
        remedy = "leave it out, or give a name of your own; a cluster file with this CPU is written beside --out"
        raise InputError("the device at hand is a CPU", source="--gpu", value=name, remedy=remedy)
    if known is not None:
        if precision not in known.peak_flops:
            remedy = f"give one of {', '.join(key for key in known.peak_flops if key in DTYPES)}"
            raise InputError(f"{known.name} has no rate for it", source="--precision", value=precision, remedy=remedy)
        return known
    bytes_per_s = _rounded(_copy_bytes_per_s(device), 1e9)
    return Gpu(
        name=name,
        peak_flops=MappingProxyType({precision: _rounded(_product_flops(device, DTYPES[precision]), 1e12)}),
        memory_bytes=round(memory_bytes(device) / 1e9, 3) * 1e9,
        hbm_bytes_per_s=bytes_per_s,
        nvlink_bytes_per_s=bytes_per_s / 2,
        price_usd_per_hour=0.0,
        source=f"measured by hippo profile with torch {torch.__version__}, {torch.get_num_threads()} threads",
    )


def _rounded(measured: float, unit: float) -> float:
    """Four digits of ``unit``. Not of the value itself: three in a hundred are no double times 1e9 or 1e12."""
    return float(f"{measured / unit:.4g}") * unit


def memory_bytes(device: torch.device) -> float:
    """Memory of the device."""
    if device.type == "cuda":
        return float(torch.cuda.get_device_properties(device).total_memory)
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def free_bytes(device: torch.device) -> float:
    """Memory that is free now."""
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    try:
        with open("/proc/meminfo") as lines:
            told = next(line for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return memory_bytes(device)
    return 1024.0 * float(told.split()[1])


def settle(device: torch.device) -> None:
    """Waits until the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds_of(device: torch.device, body: Callable[[], object]) -> float:
    """Seconds of one run, from an idle device to an idle device."""
    settle(device)
    began_s = time.perf_counter()
    body()
    settle(device)
    return time.perf_counter() - began_s


def _product_flops(device: torch.device, dtype: torch.dtype) -> float:
    size = _PRODUCT * (8 if device.type == "cuda" else 1)
    one, two = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    return 2.0 * size**3 / _least_s(device, lambda: one @ two)


def _copy_bytes_per_s(device: torch.device) -> float:
    source = torch.ones(_COPIED_BYTES, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2.0 * _COPIED_BYTES / _least_s(device, lambda: target.copy_(source))


def _least_s(device: torch.device, body: Callable[[], object]) -> float:
    body()
    return min(seconds_of(device, body) for _ in range(_TRIES))
