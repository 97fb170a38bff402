"""Converts policy files of the first form (ONNX graphs) into the one form of learned weights.

    python tools/convert_policies.py OLD NEW

OLD: a zip of ONNX graphs (``hi_ppo.policy``), one graph of flat PPO (``flat_ppo.onnx``), or an .npz without a header.
NEW is written, read back and compared: graphs, answered by onnxruntime, on drawn observations; tables bit for bit.
Needs onnx and onnxruntime.
"""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import numpy_helper

from hippo.dispatch import network
from hippo.dynamics import gru
from hippo.files import write_whole
from hippo.jobs.learned import deadline as due
from hippo.jobs.learned import weights
from hippo.learn.serving import perceptron
from hippo.network.hi_ppo import flat_ppo, serving

SAGE = [f"encoder.layers.{index}.{part}" for index in (0, 1) for part in ("pair", "sender", "heard", "own")]
LINKS = ["link.own", "link.source", "link.destination"]
OPTIONS = ["option", "by_domain", "by_link", "mixed", "residual", "prior"]
TRANSPOSED = {  # layers whose weights the exporter kept transposed and without their name, in the order of the graph
    "global": SAGE + LINKS + OPTIONS,
    "flat": OPTIONS,  # a global agent without an encoder
    "construct": [*SAGE, "inner", "score"],
    "recipe": ["rows", "inner", "score"],
    "arrange": ["rows", "inner", "score"],
}


def converted(name: str, graph: bytes) -> dict[str, NDArray[Any]]:
    """The arrays of a network, by the names that torch gives them."""
    found = {each.name: numpy_helper.to_array(each) for each in onnx.load_from_string(graph).graph.initializer}
    named = {key.removeprefix("agent.").removeprefix("network."): each for key, each in found.items()}
    arrays = {key: named[key] for key in named if key.endswith((".weight", ".bias")) or key in ("greed", "usual")}
    unnamed = [each for key, each in found.items() if key.startswith("val_") and each.ndim == 2]
    layers = TRANSPOSED["flat" if name == "global" and "link.own.bias" not in arrays else name]
    layers = [each for each in layers if f"{each}.weight" not in arrays]
    return arrays | {f"{layer}.weight": each.T.copy() for layer, each in zip(layers, unnamed, strict=True)}


def agree(name: str, graph: bytes, answer: Any, asked: dict[str, NDArray[Any]]) -> None:
    """Ends the program where the old graph, answered by onnxruntime, and the new arrays differ."""
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    for old, new in zip(session.run(None, asked), answer(asked), strict=True):
        rounding = 1e-5 * np.abs(old[old > -1e7]).max()  # logarithms of probabilities are differences of large logits
        np.testing.assert_allclose(new, old, rtol=1e-6, atol=rounding, err_msg=name)
        np.testing.assert_array_equal(new.argmax(axis=-1), old.argmax(axis=-1), err_msg=name)


def drawn(zeros: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Drawn numbers in the place of zeros; some domains and options are masked."""
    rng = np.random.default_rng(0)
    found: dict[str, NDArray[Any]] = {}
    for key, each in zeros.items():
        found[key] = rng.normal(size=each.shape).astype(np.float32)
    for key in found.keys() & {"node_mask", "option_mask"}:
        found[key] = (found[key] > -1) | (np.arange(found[key].shape[1]) == 0)
    return found


def flat(old: Path, new: Path) -> None:
    """One graph of flat PPO."""
    named = {each.name: numpy_helper.to_array(each) for each in onnx.load(old).graph.initializer}
    order = ("body.0", "body.2", "head")
    arrays = {f"{n}.{end}": named[f"{name}.{end}"] for n, name in enumerate(order) for end in ("weight", "bias")}
    write_whole(new, flat_ppo.FORM.packed(arrays))
    kept, _ = flat_ppo.FORM.read(new)
    asked = drawn({"flat": np.zeros((9, flat_ppo.WIDTH), np.float32)})
    agree("flat", old.read_bytes(), lambda asked: [perceptron(kept, asked["flat"])], asked)


def tables(old: Path, new: Path) -> None:
    """An .npz of the first form; its arrays stay as they are, bit for bit."""
    with np.load(old, allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files if name != "features"}
        named = str(stored["features"][0]) if "features" in stored.files else "gru"
    form = {
        "hippo dispatch policy 1": network.FORM,
        "hippo jobs policy 1": weights.FORM,
        "hippo deadlines policy 1": due.FORM,
        "gru": gru.FORM,
    }[named]
    write_whole(new, form.packed(arrays))
    again, _ = form.read(new)
    for name, each in arrays.items():
        assert each.dtype == again[name].dtype, name
        np.testing.assert_array_equal(again[name], each, err_msg=name)


def main(old: Path, new: Path) -> None:
    """Converts, and compares."""
    if old.suffix in (".onnx", ".npz"):
        return (flat if old.suffix == ".onnx" else tables)(old, new)
    with zipfile.ZipFile(old) as folder:
        made = json.loads(folder.read("meta.json"))["made"]
        graphs = {name.removesuffix(".onnx"): folder.read(name) for name in folder.namelist() if name.endswith(".onnx")}
    arrays = {f"{name}/{key}": each for name, graph in graphs.items() for key, each in converted(name, graph).items()}
    write_whole(new, serving.FORM.packed(arrays, **made))
    policy = serving.Policy.load(new)
    for name, graph in graphs.items():
        for domains in (1, 8, 64):
            asked = drawn(serving.example(name, 3, domains, 24))
            agree(name, graph, lambda asked, name=name: policy.run(name, asked), asked)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
