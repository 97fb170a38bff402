"""Measured kernels against those of the cost model, from the tables of ``kernels/*.csv.gz`` as they are.

Products by shape and numbers, experts by the tokens of one, attention by the era of its kernel. A row that no kernel
can have reached (faster than the peak, no number) or of a group that its publishers call odd is left out and counted.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hippo.cost.calibration import CALIBRATION, Calibration
from hippo.cost.kernels import Kernels, peak_flops, roofline_s
from hippo.cost.surfaces import product_slowdown
from hippo.errors import InputError
from hippo.problem.gpus import gpu
from hippo.problem.model import Attention

SYSTEMS: Mapping[str, str] = {
    **{"a100_sxm": "A100-SXM-80GB", "h100_sxm": "H100-SXM-80GB", "h200_sxm": "H200-SXM-141GB", "b200_sxm": "B200"},
    **{"gb200": "GB200", "b300_sxm": "B300", "gb300": "GB300", "l40s": "L40S-48GB"},
}
"""Names of these tables and the catalogue's."""
PRECISIONS: Mapping[str, str] = {"bfloat16": "bf16", "fp8": "fp8", "fp8_block": "mxfp8", "nvfp4": "nvfp4"}
"""Scales of blocks are taken as those of microscaled numbers."""
FLASH2 = ("flash_attention", "vllm_flash_attn_fa2", "triton", "flashinfer", "vllm_flashinfer", "torch_flow_flashinfer")
"""Attention kernels written for Ampere, or for any GPU; all others are tuned for their GPU."""
UNGATED = ((2688, 1856), (1024, 2688), (4096, 2688), (2048, 5120), (8192, 5120))
"""(hidden, width) of experts without gates: Nemotron 3."""
LARGE = 2048
"""A product is large where each of its three sizes is at least this."""
MANY = 512
"""Tokens of an expert from which its rows fill a tile as well as more would."""
FASTEST = 1.02
"""A kernel that takes less than the roofline by more than this was not measured: clocks read to some per cent."""
TABLES = ("gemm.csv.gz", "moe_experts.csv.gz", "context_attention.csv.gz")

Row = Mapping[str, str]


@dataclass(frozen=True)
class KernelTable:
    """Rows of one file by column."""

    name: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class KernelErrors:
    """Predicted against measured seconds of one sort of kernels on one GPU, as fractions."""

    kind: str  # product, experts or attention
    gpu: str
    group: str  # numbers and shape; routing and tokens an expert; era and head
    n: int
    median: float | None  # of the sizes of errors
    bias: float | None  # median of predicted over measured, less 1
    by_table: float | None = None  # of products: median of the sizes of errors of the table of measured shapes
    left_out: int = 0  # rows that cannot be, or whose group is called odd
    why: str = ""


def read_table(path: str | Path) -> KernelTable:
    """The rows of a file; ``InputError`` where it is no gzip-compressed table of kernels."""
    path = Path(path)
    try:
        with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
            rows = tuple(csv.DictReader(io.StringIO(file.read())))
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise InputError(
            f"cannot read the table of kernels: {error}", source=str(path), remedy="give the .csv.gz as published"
        ) from None
    needed = {"gemm.csv.gz": "gemm_dtype", "moe_experts.csv.gz": "moe_dtype"}.get(path.name, "attn_dtype")
    missing = [key for key in ("system", needed) if not rows or key not in rows[0]]
    if missing:
        remedy = "give the table as published, with its header"
        raise InputError("is no table of kernels", source=str(path), key=", ".join(missing), remedy=remedy)
    return KernelTable(path.name, rows)


def kernel_folder(folder: str | Path) -> Path | None:
    """Where the tables of kernels lie under a folder of published data; None: it has none."""
    places = (Path(folder) / "kernels", Path(folder) / "published" / "kernels")
    return next((each for each in places if any((each / name).is_file() for name in TABLES)), None)


def kernel_errors(folder: Path, calibration: Calibration = CALIBRATION) -> tuple[KernelErrors, ...]:
    """Errors of every table in ``folder``, by GPU and group; of GPUs that the catalogue lacks, their count."""
    found: list[KernelErrors] = []
    for name in TABLES:
        if (folder / name).is_file():
            found += _errors(read_table(folder / name), calibration)
    return tuple(found)


def _errors(table: KernelTable, calibration: Calibration) -> Iterator[KernelErrors]:
    read = {"gemm.csv.gz": _product, "moe_experts.csv.gz": _experts}.get(table.name, _attention)
    kind = {"gemm.csv.gz": "product", "moe_experts.csv.gz": "experts"}.get(table.name, "attention")
    ratios: dict[tuple[str, str], list[float]] = {}
    tables: dict[tuple[str, str], list[float]] = {}
    dropped: dict[tuple[str, str], dict[str, int]] = {}
    for row in table.rows:
        system = row["system"]
        name = SYSTEMS.get(system)
        if name is None:
            whys = dropped.setdefault((system, "all"), {})
            whys["the catalogue lacks this GPU"] = whys.get("the catalogue lacks this GPU", 0) + 1
            continue
        group, measured_s, predicted_s, why = read(row, name, calibration)
        if why:
            whys = dropped.setdefault((name, group), {})
            whys[why] = whys.get(why, 0) + 1
            continue
        ratios.setdefault((name, group), []).append(predicted_s / measured_s)
        if kind == "product":
            tables.setdefault((name, group), []).append(_by_table_s(row, name) / measured_s)
    for key in sorted({*ratios, *dropped}):
        each, whys = np.array(ratios.get(key, ())), dropped.get(key, {})
        median, bias = (float(np.median(np.abs(each - 1))), float(np.median(each) - 1)) if len(each) else (None, None)
        by_table = float(np.median(np.abs(np.array(tables[key]) - 1))) if key in tables else None
        yield KernelErrors(kind, *key, len(each), median, bias, by_table, sum(whys.values()), "; ".join(whys))


Read = tuple[str, float, float, str]  # group, measured and predicted seconds, why it is left out ("": it is not)


def _number(row: Row, key: str) -> float:
    """A column as a number; not a number where it holds none."""
    try:
        return float(row.get(key) or "nan")
    except ValueError:
        return float("nan")


def _product(row: Row, name: str, calibration: Calibration) -> Read:
    device, precision = gpu(name), PRECISIONS.get(row["gemm_dtype"], "bf16")
    m, n, k, best = (_number(row, key) for key in ("m", "n", "k", "latency_ms_best"))
    size = "large" if min(m, n, k) >= LARGE else "thin or small"
    group = f"{row['gemm_dtype']}, {size}"
    if not best > 0 or not m * n * k > 0:
        return group, 0.0, 0.0, "no number"
    if best / 1e3 * FASTEST < roofline_s(device, precision, (m, n, k)):
        return group, 0.0, 0.0, "faster than the peak"
    return group, best / 1e3, Kernels(device, precision, calibration).gemm_s(m, n, k), ""


def _by_table_s(row: Row, name: str) -> float:
    """Seconds of a product by the table of measured shapes (``cost.surfaces``), which holds this row among others."""
    device, precision = gpu(name), PRECISIONS.get(row["gemm_dtype"], "bf16")
    m, n, k = (_number(row, key) for key in ("m", "n", "k"))
    return roofline_s(device, precision, (m, n, k)) * product_slowdown(device.family, precision, m, n, k)


def _experts(row: Row, name: str, calibration: Calibration) -> Read:
    """Both products of the rank's experts, a grouped call each; even routing alone says how many tokens each has."""
    device, precision = gpu(name), PRECISIONS.get(row["moe_dtype"], "bf16")
    keys = ("num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size")
    tokens, hidden, width, chosen, experts, tp, ep = (_number(row, key) for key in keys)
    measured = _number(row, "latency_ms_best") / 1e3
    each = tokens * chosen / max(experts, 1.0)
    wide_enough = next((f">= {least}" for least in (1024, 512) if width / tp >= least), "< 512")
    many = f"{'>=' if each >= MANY else '<'} {MANY} tokens each"
    even = row["distribution"] == "balanced"
    group = f"{row['moe_dtype']}, width {wide_enough}, {many if even else 'uneven'}"
    if not measured > 0:
        return group, 0.0, 0.0, "no number"
    if device.family == "ampere":
        return group, 0.0, 0.0, "called odd by its publishers"
    local, kernels = max(1.0, experts / ep), Kernels(device, precision, calibration)
    wide = 1 if (hidden, width) in UNGATED else 2
    first, second = (each, wide * width / tp, hidden), (each, hidden, width / tp)
    least = sum(2.0 * m * n * k * local for m, n, k in (first, second)) / peak_flops(device, precision)
    if measured * FASTEST < least:
        return group, 0.0, 0.0, "faster than the peak"
    return group, measured, sum(kernels.gemm_s(m, n, k, count=local) for m, n, k in (first, second)), ""


def _attention(row: Row, name: str, calibration: Calibration) -> Read:
    """The causal core on a prompt: half of the square, less under a window."""
    device = gpu(name)
    keys = ("batch_size", "isl", "num_heads", "num_key_value_heads", "head_dim", "window_size")
    batch, seq, heads, groups, dim, window = (_number(row, key) for key in keys)
    measured = _number(row, "latency_ms_median") / 1e3
    old = row["kernel_source"] in FLASH2
    group = f"{'flash2' if old else 'tuned'}, heads of {dim:.0f}{', window' if window else ''}"
    if not measured > 0 or not batch * seq * heads * dim > 0:
        return group, 0.0, 0.0, "no number"
    core = Attention(int(heads), int(groups), int(dim), window=int(window) or None)
    flops = batch * seq * 2 * core.seen(int(seq)) * heads * 2 * dim
    if measured * FASTEST < flops / peak_flops(device, "bf16"):
        return group, 0.0, 0.0, "faster than the peak"
    return group, measured, Kernels(device, "bf16", calibration).fused_attention_s(flops, not old), ""
