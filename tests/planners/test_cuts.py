"""Cuts against all cuts."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest

from hippo.planners.cuts import bottleneck_cuts, even_cuts, fitting_cuts, mixed_bottleneck_cuts


def every(layers: int, stages: int) -> list[tuple[int, ...]]:
    return [(0, *inner, layers) for inner in combinations(range(1, layers), stages - 1)]


def slowest(rows: list[np.ndarray], cuts: tuple[int, ...]) -> float:
    return max(float(row[a:b].sum()) for row, (a, b) in zip(rows, pairwise(cuts), strict=True))


def test_even_cuts_by_hand() -> None:
    assert even_cuts(10, 4) == (0, 3, 5, 7, 10)  # 8 blocks; embedding and head ride along
    assert even_cuts(12, 4) == (0, 3, 5, 8, 12)  # 10 blocks: the last two stages hold one more
    assert even_cuts(5, 1) == (0, 5)


@pytest.mark.parametrize("seed", range(5))
def test_no_cuts_have_a_faster_slowest_stage(seed: int) -> None:
    seconds = np.random.default_rng(seed).uniform(0.1, 1.0, 8)
    for stages, cuts in enumerate(bottleneck_cuts(seconds, 8), start=1):
        rows = [seconds] * stages
        assert slowest(rows, cuts) == pytest.approx(min(slowest(rows, each) for each in every(8, stages)))


@pytest.mark.parametrize("seed", range(5))
def test_stages_of_different_speed(seed: int) -> None:
    rows = list(np.random.default_rng(seed).uniform(0.1, 1.0, (3, 7)))
    (cuts,) = mixed_bottleneck_cuts(rows)
    assert slowest(rows, cuts) == pytest.approx(min(slowest(rows, each) for each in every(7, 3)))


@pytest.mark.parametrize("seed", range(8))
def test_cuts_under_memory(seed: int) -> None:
    rng = np.random.default_rng(seed)
    seconds, most = rng.uniform(0.1, 1.0, 8), rng.integers(1, 5, 3)

    def fits(cuts: tuple[int, ...]) -> bool:
        return all(b - a <= most[stage] for stage, (a, b) in enumerate(pairwise(cuts)))

    allowed = [slowest([seconds] * 3, each) for each in every(8, 3) if fits(each)]
    found = fitting_cuts(seconds, 3, lambda stage, start: min(8, start + int(most[stage])))
    assert (found is None) == (not allowed)
    if found is not None:
        assert fits(found)
        assert slowest([seconds] * 3, found) == pytest.approx(min(allowed))
