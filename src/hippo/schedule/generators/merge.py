"""Forwards and backwards in turn after a warm-up: the form of GPipe, 1F1B and their kin, quick for many ranks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.engine.program import BACKWARD, FORWARD

Ints = NDArray[np.int64]


def merge(forwards: Ints, backwards: Ints, warm_up: Sequence[int]) -> tuple[Ints, Ints]:
    """Operations (2 n p, 3) of p ranks, one after the other, and where each starts, (p + 1,).

    Rank i runs ``warm_up[i]`` forwards, then one backward and one forward in turn, then the backwards that are left.
    Both inputs are (n, 2) rows of (chunk, micro-batch) in the order they run, the same on every rank.
    """
    n = len(forwards)
    rows = np.empty((2 * n * len(warm_up), 3), dtype=np.int64)
    _fill(rows, forwards, backwards, np.array(warm_up, dtype=np.int64))
    return rows, 2 * n * np.arange(len(warm_up) + 1)


@lru_cache(maxsize=64)
def in_order(micro_batches: int) -> Ints:
    """Micro-batches one after the other through the one chunk of a rank, (m, 2)."""
    rows = np.stack([np.zeros(micro_batches, dtype=np.int64), np.arange(micro_batches)], axis=1)
    rows.setflags(write=False)
    return rows


@kernel
def _fill(rows, forwards, backwards, warm_up):  # type: ignore[no-untyped-def]
    n, at = len(forwards), 0
    for rank in range(len(warm_up)):
        ahead = min(n, warm_up[rank])
        for index in range(ahead):
            rows[at, 0], rows[at, 1], rows[at, 2] = FORWARD, forwards[index, 0], forwards[index, 1]
            at += 1
        for index in range(n):
            rows[at, 0], rows[at, 1], rows[at, 2] = BACKWARD, backwards[index, 0], backwards[index, 1]
            at += 1
            if ahead + index < n:
                rows[at, 0] = FORWARD
                rows[at, 1], rows[at, 2] = forwards[ahead + index, 0], forwards[ahead + index, 1]
                at += 1
