"""Where to cut a model into stages, evenly or so that the slowest stage is as fast as can be, and how to deal a batch.

Letters: N layers, p stages. Cuts are p + 1 indices ``(0, .., N)``; stage i holds layers [cuts[i], cuts[i + 1]).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from hippo.problem.problem import Problem

Cuts = tuple[int, ...]
Reach = Callable[[int, int], int]
"""(stage, start) to the largest stop such that layers [start, stop) fit on that stage; ``start`` itself: none fits."""


def even_cuts(num_layers: int, stages: int) -> Cuts:
    """Blocks dealt evenly, the embedding with the first and the head with the last stage (Megatron-LM's default).

    Where the blocks do not divide, the last stages hold one more (Sailor's rule; Megatron-LM refuses such a split).
    """
    blocks = num_layers - 2
    assert 1 <= stages <= max(blocks, 1), (num_layers, stages)
    share, extra = divmod(blocks, stages)
    sizes = [share + (stage >= stages - extra) for stage in range(stages)]
    inner = np.cumsum(sizes[:-1], dtype=np.int64) + 1
    return (0, *(int(cut) for cut in inner), num_layers)


def bottleneck_cuts(seconds: NDArray[np.float64], most: int) -> tuple[Cuts, ...]:
    """For every p = 1..``most`` the cuts whose slowest stage is fastest; ``seconds`` is (N,). Index p - 1 holds p.

    Dynamic programme over "first j layers in k stages": f[k][j] = min_i max(f[k-1][i], sum of seconds[i:j]).
    """
    return mixed_bottleneck_cuts([seconds] * min(most, len(seconds)), every=True)


def mixed_bottleneck_cuts(seconds: Sequence[NDArray[np.float64]], *, every: bool = False) -> tuple[Cuts, ...]:
    """The same where stage k takes ``seconds[k]`` (N,) per layer; only the full number of stages unless ``every``."""
    n = len(seconds[0])
    best = np.full(n + 1, np.inf)
    best[0] = 0.0
    choices: list[NDArray[np.int64]] = []
    found: list[Cuts] = []
    triangle = np.triu(np.ones((n + 1, n + 1), dtype=bool), 1)  # [start, stop): start < stop
    previous: NDArray[np.float64] | None = None
    for stage, row in enumerate(seconds, start=1):
        if previous is not row:
            sums = np.concatenate([[0.0], np.cumsum(row)])
            spans = np.where(triangle, sums[None, :] - sums[:, None], np.inf)
            previous = row
        slowest = np.maximum(best[:, None], spans)
        choices.append(np.argmin(slowest, axis=0))
        best = np.min(slowest, axis=0)
        if every or stage == len(seconds):
            found.append(_walk_back(choices, n))
    return tuple(found)


def _walk_back(choices: Sequence[NDArray[np.int64]], n: int) -> Cuts:
    cuts = [n]
    for choice in reversed(choices):
        cuts.append(int(choice[cuts[-1]]))
    return tuple(reversed(cuts))


def fitting_cuts(seconds: NDArray[np.float64], stages: int, reach: Reach) -> Cuts | None:
    """The fastest cuts under memory: smallest bound on the slowest stage for which greedy filling reaches the end.

    Filling each stage as far as time and memory allow is optimal, because both only grow with the layers held.
    The bound is found among the sums of consecutive layers by bisection. None: no cuts fit.
    """
    sums = np.concatenate([[0.0], np.cumsum(seconds)])
    stops = {}

    def far(stage: int, start: int) -> int:
        if (stage, start) not in stops:
            stops[stage, start] = reach(stage, start)
        return stops[stage, start]

    bounds = np.unique(np.round((sums[None, :] - sums[:, None])[np.triu_indices(len(sums), 1)], 15))
    low, high = 0, len(bounds)
    best: Cuts | None = None
    while low < high:
        middle = (low + high) // 2
        cuts = _fill(sums, float(bounds[middle]) * (1 + 1e-12) + 1e-15, stages, far)
        if cuts is None:
            low = middle + 1
        else:
            best, high = cuts, middle
    return best


def _fill(sums: NDArray[np.float64], bound: float, stages: int, far: Reach) -> Cuts | None:
    n = len(sums) - 1
    cuts = [0]
    for stage in range(stages):
        start = cuts[-1]
        by_time = int(np.searchsorted(sums, sums[start] + bound, side="right")) - 1
        stop = min(by_time, far(stage, start), n - (stages - 1 - stage))
        if stop <= start:
            return None
        cuts.append(stop)
    return tuple(cuts) if cuts[-1] == n else None


def may_differ(problem: Problem) -> bool:
    """Whether replicas may work through different numbers of waves."""
    return not problem.rules.equal_shares


def deal_waves(sequences: int, micro_batch: int, widths: Sequence[int], *, differ: bool) -> tuple[int, ...] | None:
    """Waves per pipeline such that ``sum waves * micro_batch * width`` equals ``sequences``; None: it cannot be dealt.

    All the same where that works. Otherwise, where they may ``differ``, by one wave: the first pipelines whose widths
    together make up the rest get one more (a subset sum, settled exactly).
    """
    if sequences % micro_batch:
        return None
    lots = sequences // micro_batch
    each, rest = divmod(lots, sum(widths))
    if each == 0:
        return None
    if rest == 0:
        return (each,) * len(widths)
    extra = _subset(widths, rest) if differ else None
    return None if extra is None else tuple(each + (index in extra) for index in range(len(widths)))


def deal_sequences(sequences: int, weights: Sequence[int], *, grain: int) -> tuple[int, ...]:
    """Shares of a batch in proportion to ``weights``, multiples of ``grain`` that add up (largest remainder).

    ``grain`` must divide ``sequences``.
    """
    grains = sequences // grain
    exact = [grains * weight / sum(weights) for weight in weights]
    shares = [int(share) for share in exact]
    by_rest = sorted(range(len(weights)), key=lambda index: (shares[index] - exact[index], index))
    for index in by_rest[: grains - sum(shares)]:
        shares[index] += 1
    return tuple(share * grain for share in shares)


def _subset(widths: Sequence[int], total: int) -> frozenset[int] | None:
    """Indices whose widths add up to ``total``; the one found first, index by index."""
    ways: dict[int, tuple[int, ...]] = {0: ()}
    for index, width in enumerate(widths):
        for reached, chosen in list(ways.items()):
            if reached + width <= total:
                ways.setdefault(reached + width, (*chosen, index))
    return frozenset(ways[total]) if total in ways else None
