"""How a batch is dealt to replicas of the model."""

from __future__ import annotations

from collections.abc import Sequence

from hippo.plan.runtimes import runtime_rules
from hippo.problem.problem import Problem


def may_differ(problem: Problem) -> bool:
    """Whether replicas may work through different numbers of waves."""
    return not runtime_rules(problem.runtime).equal_shares


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
