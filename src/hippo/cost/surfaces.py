"""How much longer measured kernels take than the roofline, by shape: tables between whose nodes is interpolated.

``surfaces.json`` beside this file holds, for each family of GPUs and kind of numbers, the natural logarithm of time
over roofline (data-sheet peak, data-sheet HBM bandwidth) in hundredths, at powers of two of rows m, columns n and inner
dimension k. Made by ``benchmarks/kernel_surfaces.py`` of ai-dynamo/aiconfigurator's measured kernels (Apache-2.0):
forward products by themselves at full clock. ``hippo validate`` holds measured kernels against them; the cost model's
products do not use them, as steps that were left out came out no nearer (results/cost_model.md).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib import resources
from itertools import product
from typing import Any

FIRST, NODES = 9, 9
"""The first node of each axis is 2 ** 9 = 512, and there are nine, each twice the one before."""

BEYOND = 3.0
"""Octaves below the first node that the last slope is carried on for; further out the value stays."""

KINDS: Mapping[str, str] = {"fp8": "fp8", "fp8-cs": "fp8", "mxfp8": "mxfp8", "nvfp4": "nvfp4"}
"""Kinds of numbers that were measured, by precision; all others are products of 16 bit."""


def product_slowdown(family: str, precision: str, m: float, n: float, k: float) -> float:
    """Time over roofline of a product (m, k) x (k, n); of a family that was not measured, Ampere's."""
    measured = document()["products"]
    by_kind = measured.get(family, measured["ampere"])
    kind = KINDS.get(precision, "bf16")
    return _slowdown(family if family in measured else "ampere", kind if kind in by_kind else "bf16", m, n, k)


@lru_cache(maxsize=1 << 16)
def _slowdown(family: str, kind: str, m: float, n: float, k: float) -> float:
    table, places = document()["products"][family][kind], []
    for size in (m, n, k):
        at = min(max(math.log2(size) - FIRST, -BEYOND), NODES - 1.0)
        low = min(max(math.floor(at), 0), NODES - 2)
        places.append((low, at - low))
    total = 0.0
    for corner in product((0, 1), repeat=3):
        weight, index = 1.0, 0
        for high, (low, share) in zip(corner, places, strict=True):
            weight *= share if high else 1.0 - share
            index = index * NODES + low + high
        total += weight * table[index]
    return math.exp(max(0.0, total / 100))


@cache
def document() -> Mapping[str, Any]:
    """The tables with their source and licence."""
    text = resources.files("hippo.cost").joinpath("surfaces.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found
