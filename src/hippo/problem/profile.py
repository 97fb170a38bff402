"""Measured layer times and sizes, which overrule formulas (contract: ``Profile`` JSON)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields
from typing import Any

from hippo.errors import InputError
from hippo.problem.cluster import Gpu
from hippo.problem.cluster_yaml import PRECISIONS
from hippo.problem.gpus import ALIASES
from hippo.problem.model import LayerKind, Model
from hippo.problem.table import Table, open_table


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


# -------------------------------------------------------------------------------------------------------- profile json
# Measured layer profiles from JSON, and back.
#
#     {"precision": "bf16", "state_bytes_per_parameter": 16, "rows": [
#       {"layer_kind": "block", "gpu": "A100-SXM-80GB", "tp": 1, "micro_batch": 1, "forward_s": 0.01, "backward_s":
# 0.02,
#        "parameter_bytes": 4e8, "activation_bytes": 1e8, "output_bytes": 3e7}]}
#
# Bytes are per device, activations and outputs per micro-batch. ``layer_index`` keys a row to one layer,
# ``layer_kind`` (embedding, block, head) to all of a kind; the index wins. Only (tp, micro_batch) pairs with rows may
# be used.

RECOMPUTE = ("none", "selective", "full")
MAX_ROWS = 1_000_000
MAX_SECONDS = 1e6
MAX_BYTES = 1e18

_ROW = tuple(field.name for field in fields(ProfileRow))
_KINDS = tuple(kind.value for kind in LayerKind)
_MS = "write it in seconds, with the key's name ending in _s"
_HINTS = dict.fromkeys(("forward_ms", "backward_ms", "weight_gradient_ms", "forward", "backward"), _MS)


def profile_from_document(document: object, *, source: str) -> Profile:
    """The profile that a document describes; ``check_profile`` asks whether it suits a model.

    Raises
    ------
    InputError
        Unknown or missing keys, negative or endless figures, two rows for the same layer and layout.
    """
    table = open_table(document, source=source, known=("precision", "state_bytes_per_parameter", "rows", "source"))
    rows = tuple(_row(row) for row in table.tables("rows", known=_ROW, hints=_HINTS, most=MAX_ROWS))
    if not rows:
        table.refuse("rows", "is empty", "write at least one measured row")
    keys = Counter((r.layer_kind, r.layer_index, r.gpu, r.tp, r.micro_batch, r.recompute) for r in rows)
    key, times = keys.most_common(1)[0]
    if times > 1:
        table.refuse("rows", f"hold {times} rows for one layer and layout", "keep one of them", value=key)
    return Profile(
        precision=table.choice("precision", PRECISIONS),
        state_bytes_per_parameter=table.number("state_bytes_per_parameter", default=16.0, least=2.0, most=64.0),
        rows=rows,
        source=table.text("source", default=source),
    )


def _row(row: Table) -> ProfileRow:
    if row.has("layer_kind") == row.has("layer_index"):
        both = row.has("layer_kind")
        problem = "and layer_index are both given" if both else "and layer_index are both missing"
        row.refuse("layer_kind", problem, "write one: a kind of layer, or the index of one layer")
    seconds: dict[str, Any] = {"least": 0.0, "most": MAX_SECONDS}
    size: dict[str, Any] = {"least": 0.0, "most": MAX_BYTES}
    gpu = row.text("gpu")
    return ProfileRow(
        layer_kind=row.choice("layer_kind", _KINDS, default=None),
        layer_index=row.integer("layer_index", default=None, least=0),
        gpu=ALIASES.get(gpu, gpu),
        tp=row.integer("tp", most=1024),
        micro_batch=row.integer("micro_batch", most=1_000_000),
        forward_s=row.number("forward_s", **seconds),
        backward_s=row.number("backward_s", **seconds),
        weight_gradient_s=row.number("weight_gradient_s", default=None, **seconds),
        parameter_bytes=row.number("parameter_bytes", **size),
        activation_bytes=row.number("activation_bytes", **size),
        output_bytes=row.number("output_bytes", **size),
        recompute=row.choice("recompute", RECOMPUTE, default="none"),
    )


def profile_to_document(profile: Profile) -> dict[str, object]:
    """The document of a profile; keys that do not apply are left out."""
    rows = [{key: getattr(row, key) for key in _ROW if getattr(row, key) is not None} for row in profile.rows]
    return {
        "precision": profile.precision,
        "state_bytes_per_parameter": profile.state_bytes_per_parameter,
        "source": profile.source,
        "rows": rows,
    }


def check_profile(profile: Profile, model: Model, gpu: Gpu, *, source: str) -> None:
    """``InputError`` unless the GPU has the profile's precision and every layout measured on it covers every layer."""
    usable = [name for name in gpu.peak_flops if name != "tf32"]
    if profile.precision not in usable:
        problem, remedy = f"{gpu.name} has no rate for it", f"profile in one of {', '.join(usable)}"
        raise InputError(problem, source=source, key="precision", value=profile.precision, remedy=remedy)
    rows = [row for row in profile.rows if row.gpu == gpu.name]
    if not rows:
        seen = ", ".join(sorted({row.gpu for row in profile.rows}))
        problem, remedy = f"no row is measured on {gpu.name}, the cluster's GPU", f"profile on it (rows are of {seen})"
        raise InputError(problem, source=source, key="rows", remedy=remedy)
    layouts = sorted({(row.tp, row.micro_batch, row.recompute) for row in rows})
    for tp, micro_batch, recompute in layouts:
        same = [row for row in rows if (row.tp, row.micro_batch, row.recompute) == (tp, micro_batch, recompute)]
        kinds, indices = {row.layer_kind for row in same}, {row.layer_index for row in same}
        missing = [i for i, layer in enumerate(model.layers) if i not in indices and layer.kind.value not in kinds]
        where = f"tp {tp}, micro_batch {micro_batch}, recompute {recompute}"
        if missing:
            layer = f"{model.layers[missing[0]].kind.value} (layer {missing[0]} of {model.num_layers})"
            problem = f"{where}: no row covers the {layer}, nor {len(missing) - 1} other layers"
            remedy = "add the rows, or remove the others of this layout"
            raise InputError(problem, source=source, key="rows", remedy=remedy)
        beyond = [index for index in indices if index is not None and index >= model.num_layers]
        if beyond:
            problem, remedy = f"{where}: the model has {model.num_layers} layers", "correct the index"
            raise InputError(problem, source=source, key="rows: layer_index", value=max(beyond), remedy=remedy)
