"""Answers of a trained policy by onnxruntime, on one thread, without torch.

A policy file is a zip: ``meta.json`` (what it is, the features it was trained on, the hash of every graph) and one
``NAME.onnx`` per graph. ``export`` writes it. A file whose features are others than this program's is refused: it would
answer, and wrongly.

Letters: W worlds of a batch, K domains (padded), M options (padded).
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.errors import InputError, UnknownNameError
from hippo.network.dynamics.forecast import HORIZONS
from hippo.network.observation.features import (
    CONTEXT_FEATURES,
    EDGE_FEATURES,
    NODE_FEATURES,
    OPTION_FEATURES,
    Observation,
)

Floats = NDArray[np.float32]

FORMAT = 1
META = "meta.json"
GLOBAL = "global"
GLOBAL_INPUTS = Observation._fields
GLOBAL_OUTPUTS = ("log_probs", "value", "attention")
MOST_BYTES = 32_000_000
"""Of a policy file, and of each of its members unpacked; ours have some hundred kilobytes."""
SHIPPED = Path(__file__).with_name("hi_ppo.policy")
REMEDY = "give a file that `hippo train` has written, or leave it out for the one that ships"


class Answer(NamedTuple):
    """What the upper agent thinks of a batch."""

    log_probs: Floats  # (W, M) of the options; -1e8 where masked
    value: Floats  # (W,) reward to come
    attention: Floats  # (W, K, K) how much row hears column


@dataclass(frozen=True, eq=False)
class Policy:
    """A policy in memory. ``meta``: the file's ``meta.json``."""

    meta: Mapping[str, Any] = field(repr=False)
    source: str
    _sessions: Mapping[str, Any] = field(repr=False)

    @classmethod
    def load(cls, path: str | Path) -> Policy:
        """The policy in a file.

        Raises
        ------
        InputError
            No such file; not a policy file; damaged; of another version or with other features than this program's.
        """
        source = str(path)
        meta, graphs = _read(_bytes(Path(path), source), source)
        return cls(meta, source, {name: _session(data, name, source) for name, data in graphs.items()})

    @property
    def graphs(self) -> tuple[str, ...]:
        """Names of the graphs it holds."""
        return tuple(self._sessions)

    def act(self, observation: Observation) -> Answer:
        """What to do in each world of a batch."""
        return Answer(*self.run(GLOBAL, dict(zip(GLOBAL_INPUTS, observation, strict=True))))

    def run(self, name: str, inputs: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """Outputs of one graph, in order.

        Raises
        ------
        InputError
            The file holds no such graph.
        """
        if name not in self._sessions:
            raise UnknownNameError("graph", name, self._sessions, source=self.source)
        found: list[NDArray[Any]] = self._sessions[name].run(None, dict(inputs))
        return found


def shipped() -> Policy:
    """The policy that comes with the package."""
    return Policy.load(SHIPPED)


def feature_names() -> dict[str, list[Any]]:
    """The features of this program, in order, by kind."""
    return {
        "nodes": list(NODE_FEATURES),
        "edges": list(EDGE_FEATURES),
        "context": list(CONTEXT_FEATURES),
        "options": list(OPTION_FEATURES),
        "horizons": list(HORIZONS),
    }


def _bytes(path: Path, source: str) -> bytes:
    try:
        with path.open("rb") as stream:
            data = stream.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise InputError("policy file does not exist", source=source, remedy=REMEDY) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"cannot read the policy file: {reason}", source=source, remedy=REMEDY) from None
    if len(data) > MOST_BYTES:
        raise InputError(f"policy file is larger than {MOST_BYTES / 1e6:g} MB", source=source, remedy=REMEDY)
    return data


def _read(data: bytes, source: str) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The meta and the graphs, each checked."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as folder:
            meta = _checked(_member(folder, META), source)
            graphs = {name: _member(folder, f"{name}.onnx") for name in meta["graphs"]}
    except (zipfile.BadZipFile, KeyError, EOFError, OSError, ValueError, RuntimeError, NotImplementedError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError("not a policy file, or damaged", source=source, remedy=REMEDY) from None
    except Exception as error:  # zlib.error derives from Exception alone
        if type(error).__name__ != "error":
            raise
        raise InputError("damaged policy file", source=source, remedy=REMEDY) from None
    for name, graph in graphs.items():
        if hashlib.sha256(graph).hexdigest() != meta["graphs"][name].get("sha256"):
            raise InputError("damaged policy file: wrong hash", source=source, key=f"graphs.{name}", remedy=REMEDY)
    return meta, graphs


def _member(folder: zipfile.ZipFile, name: str) -> bytes:
    """A member of the zip, unpacked up to a limit."""
    with folder.open(name) as stream:
        data = stream.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ValueError(name)
    return data


def _checked(text: bytes, source: str) -> dict[str, Any]:
    """``meta.json`` of a file that this program can serve."""
    meta = json.loads(text)
    if not isinstance(meta, dict) or "hippo_policy" not in meta:
        raise InputError("not a policy file", source=source, remedy=REMEDY)
    if meta["hippo_policy"] != FORMAT:
        value = meta["hippo_policy"]
        raise InputError("policy of another version", source=source, key="hippo_policy", value=value, remedy=REMEDY)
    told, ours = meta.get("features"), feature_names()
    for kind, names in ours.items():
        if not isinstance(told, dict) or told.get(kind) != names:
            problem = "policy trained on other features than this program has"
            raise InputError(problem, source=source, key=f"features.{kind}", remedy="train it anew, or " + REMEDY)
    graphs = meta.get("graphs")
    if not isinstance(graphs, dict) or GLOBAL not in graphs or not all(isinstance(g, dict) for g in graphs.values()):
        raise InputError("policy without an upper agent", source=source, key="graphs", remedy=REMEDY)
    return meta


def _session(data: bytes, name: str, source: str) -> Any:
    """An onnxruntime session of one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    try:
        return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception:  # onnxruntime's errors share no base of their own
        raise InputError("graph cannot be read", source=source, key=f"graphs.{name}", remedy=REMEDY) from None
