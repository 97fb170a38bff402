"""Forwards, input gradients and weight gradients by hand: W trails B by a fixed number, the form of ZB-H1 and ZB-H2."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.engine.program import BACKWARD, FORWARD, WEIGHT

Ints = NDArray[np.int64]


def split(micro_batches: int, warm_up: Sequence[int], lag: Sequence[int]) -> tuple[Ints, Ints]:
    """Operations (3 m p, 3) of p ranks, one after the other, and where each starts, (p + 1,).

    Rank i runs ``warm_up[i]`` forwards, then one forward and one backward in turn. After such a backward it runs a W
    when more than ``lag[i]`` of them are due; once the forwards are over, one W after each backward; and at the end
    those that are still due.
    """
    rows = np.empty((3 * micro_batches * len(warm_up), 3), dtype=np.int64)
    _fill(rows, micro_batches, np.array(warm_up, dtype=np.int64), np.array(lag, dtype=np.int64))
    return rows, 3 * micro_batches * np.arange(len(warm_up) + 1)


@kernel
def _fill(rows, m, warm_up, lag):  # type: ignore[no-untyped-def]
    at = 0
    for rank in range(len(warm_up)):
        forwards, weights = min(m, warm_up[rank]), 0
        for micro_batch in range(forwards):
            at = _add(rows, at, FORWARD, micro_batch)
        for backward in range(m):
            steady = forwards < m
            if steady:
                at = _add(rows, at, FORWARD, forwards)
                forwards += 1
            at = _add(rows, at, BACKWARD, backward)
            if not steady or backward + 1 - weights > lag[rank]:
                at = _add(rows, at, WEIGHT, weights)
                weights += 1
        for micro_batch in range(weights, m):
            at = _add(rows, at, WEIGHT, micro_batch)


@kernel
def _add(rows, at, kind, micro_batch):  # type: ignore[no-untyped-def]
    rows[at, 0], rows[at, 1], rows[at, 2] = kind, 0, micro_batch
    return at + 1
