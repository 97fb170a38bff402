"""Measured kernels reduced to the tables of ``hippo.cost.surfaces``, and how well they predict shapes left out.

``--data DIR`` holds ``kernels/gemm.csv.gz``. Each table is fitted by least squares on the logarithm of time over
roofline, with second differences between neighbouring nodes kept small where nothing was measured. Left out are whole
shapes (n, k) with all their rows, a fifth at a time. ``--write`` makes ``src/hippo/cost/surfaces.json`` anew.
"""

from __future__ import annotations

import argparse
import json
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, vstack
from scipy.sparse.linalg import lsqr

from hippo.cost import surfaces
from hippo.cost.kernels import roofline_s
from hippo.cost.surfaces import FIRST, NODES
from hippo.problem.gpus import gpu
from hippo.score.kernels import SYSTEMS, KernelTable, read_table

OUT = Path(surfaces.__file__).with_name("surfaces.json")
SOURCE = "ai-dynamo/aiconfigurator@095f58a, measured kernels (a sample: gemm.csv.gz)"
KINDS = {"bfloat16": "bf16", "fp8": "fp8", "fp8_block": "mxfp8", "nvfp4": "nvfp4"}
SMOOTH = 0.3  # weight of a second difference against a row's error
FOLDS = 5

Floats = NDArray[np.float64]


def main() -> None:
    """Prints errors of shapes left out; ``--write`` writes the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    table = read_table(given.data / "kernels" / "gemm.csv.gz")
    print(f"{'family':16s} {'numbers':8s} {'rows':>6s} {'left out: median':>17s} {'90 %':>7s}")
    found: dict[str, dict[str, list[int]]] = {}
    for family in dict.fromkeys(gpu(name).family for name in SYSTEMS.values()):
        for dtype, kind in KINDS.items():
            shapes, logs = slowdowns(table, family, dtype)
            if len(logs):
                errors = left_out(shapes, logs)
                figures = f"{np.median(errors):17.1%} {np.quantile(errors, 0.9):7.1%}"
                print(f"{family:16s} {kind:8s} {len(logs):6d} {figures}", flush=True)
                found.setdefault(family, {})[kind] = np.rint(100 * fitted(shapes, logs)).astype(int).tolist()
    if given.write:
        document = {"source": SOURCE, "licence": "Apache-2.0", "products": found}
        OUT.write_text(json.dumps(document, separators=(",", ":")).replace("},", "},\n") + "\n", encoding="utf-8")


def slowdowns(table: KernelTable, family: str, dtype: str) -> tuple[Floats, Floats]:
    """Logarithms of (m, n, k) to base 2, (R, 3), and of time over roofline, (R,)."""
    shapes, logs = [], []
    for row in table.rows:
        name = SYSTEMS.get(row["system"])
        if name is None or gpu(name).family != family or row["gemm_dtype"] != dtype:
            continue
        m, n, k = (float(row[key]) for key in ("m", "n", "k"))
        seconds = float(row["latency_ms_best"]) / 1e3
        shapes.append((m, n, k))
        logs.append(np.log(seconds / roofline_s(gpu(name), KINDS[dtype], (m, n, k))))
    return np.log2(np.array(shapes).reshape(-1, 3)), np.array(logs)


def left_out(shapes: Floats, logs: Floats) -> Floats:
    """Relative errors of rows whose (n, k) the fit has not seen."""
    pairs = [tuple(pair) for pair in shapes[:, 1:].tolist()]
    order = np.random.default_rng(0).permutation(len(set(pairs)))
    fold = {pair: at % FOLDS for pair, at in zip(sorted(set(pairs)), order.tolist(), strict=True)}
    folds, guess = np.array([fold[pair] for pair in pairs]), np.zeros(len(logs))
    for each in range(FOLDS):
        seen = folds != each
        guess[~seen] = weights(shapes[~seen]) @ fitted(shapes[seen], logs[seen])
    found: Floats = np.abs(np.exp(guess - logs) - 1)
    return found


def fitted(shapes: Floats, logs: Floats) -> Floats:
    """Values at the nodes, (NODES ** 3,)."""
    rough = second_differences()
    matrix = vstack([weights(shapes), SMOOTH * rough])
    return np.asarray(lsqr(matrix, np.concatenate([logs, np.zeros(rough.shape[0])]), iter_lim=300)[0])


def weights(shapes: Floats) -> csr_matrix:
    """(R, NODES ** 3): shares of the eight nodes around each row."""
    at = np.clip(shapes - FIRST, 0, NODES - 1 - 1e-9)
    low = np.floor(at).astype(int)
    share, rows = at - low, np.arange(len(shapes))
    values, columns = [], []
    for corner in product((0, 1), repeat=3):
        values.append(np.prod([share[:, d] if up else 1 - share[:, d] for d, up in enumerate(corner)], axis=0))
        columns.append(np.ravel_multi_index(tuple((low + corner).T), (NODES,) * 3))
    shape = (len(shapes), NODES**3)
    return csr_matrix((np.concatenate(values), (np.tile(rows, 8), np.concatenate(columns))), shape=shape)


def second_differences() -> csr_matrix:
    """Along each axis, of every three neighbours."""
    nodes = np.arange(NODES**3).reshape((NODES,) * 3)
    lines = [np.stack([nodes.take(range(i, NODES - 2 + i), axis=d).ravel() for i in range(3)]) for d in range(3)]
    columns = np.concatenate(lines, axis=1)  # (3, D)
    rows = np.tile(np.arange(columns.shape[1]), 3)
    values = np.repeat([1.0, -2.0, 1.0], columns.shape[1])
    return csr_matrix((values, (rows, columns.ravel())), shape=(columns.shape[1], NODES**3))


if __name__ == "__main__":
    main()
