"""Measured layer times and sizes, which overrule formulas (contract: ``Profile`` JSON)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ProfileRow:
    """One measured layer at one (tp, micro_batch): seconds per micro-batch, bytes per device."""

    layer_kind: str | None  # embedding, block, head; None when layer_index is given
    layer_index: int | None
    gpu: str
    tp: int
    micro_batch: int
    forward_s: float
    backward_s: float  # input gradient (with the weight gradient when weight_gradient_s is None)
    weight_gradient_s: float | None
    parameter_bytes: float
    activation_bytes: float
    output_bytes: float
    recompute: str = "none"


@dataclass(frozen=True)
class Profile:
    """Rows of one precision. Only the (tp, micro_batch) pairs that have rows may be used."""

    precision: str
    state_bytes_per_parameter: float
    rows: tuple[ProfileRow, ...]
    source: str = ""
