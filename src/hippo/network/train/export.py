"""From torch to a policy file that needs no torch: one zip with ONNX graphs and ``meta.json``.

The file is the same, byte for byte, for the same graphs and the same meta. ``serving`` reads it.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hippo.files import write_whole
from hippo.network.hi_ppo.serving import FORMAT, GLOBAL, GLOBAL_INPUTS, GLOBAL_OUTPUTS, META, feature_names
from hippo.network.observation.features import CONTEXT, EDGES, NODES, OPTIONS
from hippo.network.train.upper_network import GlobalAgent

NEVER = -1e8  # log probability of what cannot be chosen: finite
OPSET = 18
EPOCH = (1980, 1, 1, 0, 0, 0)  # the zip's time of every member: files of equal content are equal


def graph(
    module: nn.Module,
    example: Sequence[Tensor],
    *,
    inputs: Sequence[str],
    outputs: Sequence[str],
    axes: Mapping[str, Mapping[int, str]],
) -> bytes:
    """A module as an ONNX graph.

    Parameters
    ----------
    module
        Its ``forward`` takes ``example`` and answers a tensor or a tuple of them.
    example
        Inputs of the right kinds. Axes that are to be free must have sizes of 2 or more that differ between letters.
    inputs, outputs
        Names, in order.
    axes
        Input name -> axis -> letter; equal letters are equal sizes. Axes without a letter are fixed.
    """
    letters = sorted({letter for each in axes.values() for letter in each.values()})
    free = {letter: torch.export.Dim(letter, min=1) for letter in letters}
    shapes = tuple({axis: free[letter] for axis, letter in axes.get(name, {}).items()} for name in inputs)
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                module.eval(),
                tuple(example),
                input_names=list(inputs),
                output_names=list(outputs),
                opset_version=OPSET,
                dynamo=True,
                dynamic_shapes=shapes,
                verbose=False,
            )
            assert program is not None
            return _bare(program.model_proto)
    finally:
        logger.setLevel(level)


def _bare(model: Any) -> bytes:
    """A graph without the notes of its exporter, which name files of this machine."""
    for owner in (model, model.graph, *model.graph.node, *model.graph.input, *model.graph.output):
        owner.ClearField("doc_string")
        owner.ClearField("metadata_props")
    for each in (*model.graph.value_info, *model.graph.initializer, *model.functions):
        each.ClearField("metadata_props")
    data: bytes = model.SerializeToString(deterministic=True)
    return data


def write(path: str | Path, graphs: Mapping[str, bytes], meta: Mapping[str, Any] | None = None) -> None:
    """A policy file.

    ``graphs``: name -> ONNX bytes; ``meta``: whatever else is worth keeping (JSON), under ``made``: how it was trained.
    """
    document = {
        "hippo_policy": FORMAT,
        "features": feature_names(),
        "graphs": {name: {"sha256": hashlib.sha256(data).hexdigest()} for name, data in sorted(graphs.items())},
        "made": dict(meta or {}),
    }
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as folder:
        _member(folder, META, json.dumps(document, indent=1, sort_keys=True).encode())
        for name, data in sorted(graphs.items()):
            _member(folder, f"{name}.onnx", data)
    write_whole(path, held.getvalue())


def _member(folder: zipfile.ZipFile, name: str, data: bytes) -> None:
    info = zipfile.ZipInfo(name, date_time=EPOCH)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = 0o644 << 16
    folder.writestr(info, data, compresslevel=9)


class _Served(nn.Module):
    """The upper agent as it is served: masked log probabilities, value, attention."""

    def __init__(self, agent: GlobalAgent) -> None:
        super().__init__()
        self.agent = agent

    def forward(  # one argument per field: the exporter cannot name those of a star
        self,
        nodes: Tensor,
        edges: Tensor,
        node_mask: Tensor,
        context: Tensor,
        options: Tensor,
        option_nodes: Tensor,
        option_edges: Tensor,
        option_mask: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Log probabilities (W, M), value (W,), attention (W, K, K)."""
        seen = (nodes, edges, node_mask, context, options, option_nodes, option_edges, option_mask)
        heads = self.agent.dense(seen)
        log_probs = torch.log_softmax(torch.where(option_mask, heads.logits, NEVER), dim=-1)
        return torch.where(option_mask, log_probs, NEVER), heads.value, heads.attention


def upper(agent: GlobalAgent) -> bytes:
    """The graph ``global`` of a policy file: any number of worlds, domains and options."""
    letters = ("WK", "WKK", "WK", "W", "WM", "WMK", "WMKK", "WM")
    axes = {name: dict(enumerate(each)) for name, each in zip(GLOBAL_INPUTS, letters, strict=True)}
    return graph(_Served(agent), example(), inputs=GLOBAL_INPUTS, outputs=GLOBAL_OUTPUTS, axes=axes)


def example(worlds: int = 2, domains: int = 5, options: int = 7) -> tuple[Tensor, ...]:
    """Fields of an observation in which everything exists."""
    w, k, m = worlds, domains, options
    return (
        torch.zeros(w, k, NODES),
        torch.ones(w, k, k, EDGES),
        torch.ones(w, k, dtype=torch.bool),
        torch.zeros(w, CONTEXT),
        torch.zeros(w, m, OPTIONS),
        torch.full((w, m, k), 1.0 / k),
        torch.full((w, m, k, k), 1.0 / k**2),
        torch.ones(w, m, dtype=torch.bool),
    )


def save(path: str | Path, agent: GlobalAgent, *, others: Mapping[str, bytes] | None = None, **made: Any) -> None:
    """A policy file of an upper agent, and of whatever other graphs belong to it (``construct``, ``arrange``)."""
    write(path, {GLOBAL: upper(agent), **(others or {})}, made)
