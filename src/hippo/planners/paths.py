"""Chains of domains: for every set of domains the order whose links are fastest.

Letters: K domains. A chain's worth is the 8-norm of its links' seconds: nearly that of its slowest link (a bottleneck
travelling salesman without return), and the other links break ties.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

NORM = 8.0
MOST_DOMAINS = 12  # of more domains only so many are looked at, those with the fastest links on average


def best_chains(seconds: NDArray[np.float64], *, keep: int) -> tuple[tuple[int, ...], ...]:
    """For every length 2..K the ``keep`` sets of domains with the fastest chains, each in its best order.

    ``seconds`` (K, K) is the time of one message and its answer between two domains, infinite without links.
    Held and Karp's programme over (visited, last).
    """
    chosen = _best_linked(seconds)
    count = len(chosen)
    cost = np.where(np.isfinite(seconds), (seconds / _scale(seconds)) ** NORM, np.inf)[np.ix_(chosen, chosen)]
    np.fill_diagonal(cost, np.inf)
    total = np.full((1 << count, count), np.inf)
    before = np.full((1 << count, count), -1, dtype=np.int64)
    for first in range(count):
        total[1 << first, first] = 0.0
    for visited in range(1, 1 << count):
        onward = total[visited][:, None] + cost
        last = onward.argmin(axis=0)
        for following in range(count):
            if not visited >> following & 1:
                joined = visited | 1 << following
                total[joined, following] = onward[last[following], following]
                before[joined, following] = last[following]
    return tuple(tuple(chosen[index] for index in chain) for chain in _shortest(total, before, keep))


def _shortest(total: NDArray[np.float64], before: NDArray[np.int64], keep: int) -> list[tuple[int, ...]]:
    """Per number of visited domains the ``keep`` cheapest finite entries, walked back."""
    cheapest = total.min(axis=1)
    sizes = np.array([int(visited).bit_count() for visited in range(len(total))])
    chains: list[tuple[int, ...]] = []
    for size in range(2, total.shape[1] + 1):
        sets = np.flatnonzero((sizes == size) & np.isfinite(cheapest))
        for visited in sets[np.argsort(cheapest[sets], kind="stable")[:keep]]:
            chains.append(_walk_back(int(visited), int(total[visited].argmin()), before))
    return chains


def _walk_back(visited: int, last: int, before: NDArray[np.int64]) -> tuple[int, ...]:
    chain = [last]
    while visited.bit_count() > 1:
        earlier = int(before[visited, last])
        visited, last = visited ^ (1 << last), earlier
        chain.append(last)
    return tuple(reversed(chain))


def _best_linked(seconds: NDArray[np.float64]) -> list[int]:
    """Domains with the fastest links on average, in their own order."""
    count = len(seconds)
    if count <= MOST_DOMAINS:
        return list(range(count))
    worth = np.where(np.isfinite(seconds), 1.0 / np.maximum(seconds, 1e-12), 0.0)
    np.fill_diagonal(worth, 0.0)
    return sorted(int(index) for index in np.argsort(-worth.sum(axis=1), kind="stable")[:MOST_DOMAINS])


def _scale(seconds: NDArray[np.float64]) -> float:
    finite = seconds[np.isfinite(seconds) & (seconds > 0)]
    return float(finite.max()) if len(finite) else 1.0
