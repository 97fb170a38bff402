from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from hippo.planners.waves import deal_sequences, deal_waves


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
