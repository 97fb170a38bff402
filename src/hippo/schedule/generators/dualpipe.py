"""DualPipe (DeepSeek-V3 technical report, arXiv 2412.19437, 3.2.1; order: the eight steps of deepseek-ai/DualPipe).

Two copies of the model: the first half of the micro-batches goes down the ranks, the others go up, so that no rank
waits for the whole pipeline to fill. On each rank, *near* are those that come from the nearer end and *far* the others.
Where DualPipe overlaps a forward with a backward, a rank here runs F, then B and W: it runs one operation at a time.

With p even and m >= 2 p every rank keeps p + 1 micro-batches (and two copies of its parameters). The README puts the
bubble at (p / 2 - 1)(F&B + B' - 3 W), B' = B + W being a whole backward and F&B a forward and a backward at once; here,
where the forward of such a pair leaves before its backward is done, it is less: (p / 2 - 1) F with F = B = W.

Every p and m has an order: with p odd that of p + 1 ranks without one of the two in the middle, and with fewer
micro-batches that of 2 p without those that are lacking. What is left out makes nobody wait for more than before, so
no deadlock can arise.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hippo.engine.program import BACKWARD, FORWARD, WEIGHT
from hippo.schedule.problem import ScheduleProblem

Ints = NDArray[np.int64]


def generate(problem: ScheduleProblem) -> tuple[Ints, Ints]:
    """Rows (3 p m, 3) and where each rank starts, (p + 1,); the memory limit is left to the checker."""
    p, m = problem.ranks, problem.micro_batches
    even, each_way = p + p % 2, max((m + 1) // 2, p + p % 2)
    rows = []
    for rank in (*range(even // 2), *range(even // 2 + p % 2, even)):
        near = int(rank >= even // 2)  # chunk 0 goes down, so it is the near one of the upper half
        found = _numbered(_steps(even // 2, min(rank, even - 1 - rank), each_way), near)
        there = np.where(found[:, 1] == 0, (m + 1) // 2, m // 2)  # micro-batches of that direction
        found = found[found[:, 2] < there]
        found[:, 2] += np.where(found[:, 1] == 1, (m + 1) // 2, 0)
        rows.append(found)
    return np.concatenate(rows), 3 * m * np.arange(p + 1)


_LETTERS = "FfBbW"  # forward near and far, backward near and far, W of the oldest B that still lacks it


def _steps(half: int, place: int, each_way: int) -> str:
    """Operations of a rank as letters; ``place`` counts from the nearer end, 0 to half - 1."""
    inner, outer = half - 1 - place, place + 1
    drain = "bB" * outer
    deferred = outer  # of the last Bs of the drain, the Ws come at the very end
    whole = "".join(letter + "W" for letter in drain[: 2 * outer - deferred])
    return (
        "FF" * inner  # 1: the near ones on their way to the middle
        + "Ff" * outer  # 2: both ways
        + "bWf" * inner  # 3: the first far ones are back
        + "FbWfBW" * (each_way - 2 * half + outer)  # 4: steady
        + "bWfBW" * inner  # 5: no more near forwards
        + whole  # 6: no more forwards
        + drain[2 * outer - deferred :]
        + "WB" * inner  # 7: W fills the time until the last ones are back
        + "W" * deferred  # 8
    )


def _numbered(steps: str, near: int) -> Ints:
    """Rows (kind, chunk, turn) of the letters, each direction counted from 0."""
    letter = np.array([_LETTERS.index(each) for each in steps])
    kind, far = np.array([FORWARD, FORWARD, BACKWARD, BACKWARD, WEIGHT])[letter], letter % 2
    rows = np.stack([kind, np.where(far == 1, 1 - near, near), np.zeros_like(kind)], axis=1)
    for code in range(4):
        of_one = letter == code
        rows[of_one, 2] = np.arange(of_one.sum())
    rows[kind == WEIGHT, 1:] = rows[kind == BACKWARD, 1:]
    return rows
