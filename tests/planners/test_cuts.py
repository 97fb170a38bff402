"""Cuts against all cuts."""

from __future__ import annotations

from itertools import combinations, pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hippo.planners.cuts import (
    bottleneck_cuts,
    deal_sequences,
    deal_waves,
    even_cuts,
    fitting_cuts,
    mixed_bottleneck_cuts,
)


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


def test_equal_waves_where_the_batch_divides() -> None:
    assert deal_waves(48, 2, [4, 4], differ=False) == (3, 3)


def test_the_rest_goes_to_pipelines_whose_widths_make_it_up() -> None:
    # 19 waves of one lane over widths 4, 3, 2: two each make 18 (of 9 lanes); nothing of 4, 3, 2 makes up the last one.
    assert deal_waves(19, 1, [4, 3, 2], differ=True) is None
    # 23: two each and 5 left, which 3 + 2 make up.
    assert deal_waves(23, 1, [4, 3, 2], differ=True) == (2, 3, 3)
    assert deal_waves(23, 1, [4, 3, 2], differ=False) is None


def test_fewer_sequences_than_lanes_cannot_be_dealt() -> None:
    assert deal_waves(4, 1, [4, 4], differ=True) is None
    assert deal_waves(9, 2, [1], differ=True) is None


@given(st.integers(1, 60), st.integers(1, 3), st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_waves_add_up_and_are_found_whenever_there_are_any(sequences: int, micro_batch: int, widths: list[int]) -> None:
    waves = deal_waves(sequences, micro_batch, widths, differ=True)
    each = sequences // micro_batch // sum(widths)
    if waves is not None:
        assert sum(count * width for count, width in zip(waves, widths, strict=True)) * micro_batch == sequences
        assert set(waves) <= {each, each + 1}
    else:
        extras = product((0, 1), repeat=len(widths))
        sums = {sum((each + e) * width for e, width in zip(extra, widths, strict=True)) for extra in extras}
        assert each == 0 or sequences % micro_batch or sequences // micro_batch not in sums


@given(st.integers(1, 20), st.integers(1, 8), st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_shares_add_up_and_stay_within_a_grain_of_proportion(grains: int, grain: int, weights: list[int]) -> None:
    shares = deal_sequences(grains * grain, weights, grain=grain)
    assert sum(shares) == grains * grain
    for share, weight in zip(shares, weights, strict=True):
        assert share % grain == 0
        assert abs(share - grains * grain * weight / sum(weights)) < grain
