from __future__ import annotations

from itertools import combinations, permutations

import numpy as np
import pytest

from hippo.planners.paths import NORM, best_chains


def worth(seconds: np.ndarray, chain: tuple[int, ...]) -> float:
    return float(sum(seconds[a, b] ** NORM for a, b in zip(chain, chain[1:], strict=False)))


@pytest.mark.parametrize("seed", range(10))
def test_the_best_chain_of_each_length_is_first(seed: int) -> None:
    rng = np.random.default_rng(seed)
    seconds = rng.uniform(1, 5, (5, 5))
    seconds = (seconds + seconds.T) / 2
    chains = best_chains(seconds, keep=2)
    for size in range(2, 6):
        ours = [chain for chain in chains if len(chain) == size]
        sets = {
            frozenset(some): min(worth(seconds, one) for one in permutations(some))
            for some in combinations(range(5), size)
        }
        assert [worth(seconds, one) for one in ours] == pytest.approx(sorted(sets.values())[:2])


def test_domains_without_a_link_are_not_neighbours() -> None:
    seconds = np.array([[0.0, 1.0, np.inf], [1.0, 0.0, 1.0], [np.inf, 1.0, 0.0]])
    assert set(best_chains(seconds, keep=3)) >= {(0, 1, 2)} or set(best_chains(seconds, keep=3)) >= {(2, 1, 0)}
    assert not any(
        {0, 2} == set(pair) for chain in best_chains(seconds, keep=3) for pair in zip(chain, chain[1:], strict=False)
    )


def test_many_domains_are_thinned_out() -> None:
    seconds = np.full((15, 15), 1.0)
    seconds[:, 14] = seconds[14, :] = 100.0
    assert not any(14 in chain for chain in best_chains(seconds, keep=1))
