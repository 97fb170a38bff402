"""Published optima of layers and recomputed layers of each stage, found by looking at every split."""

import numpy as np
import pytest
from tests.judges.stage_program import TOLD, asked, cases, makespans, optimum


@pytest.mark.parametrize("name", ["test_micro64_dp16_tp4_pp16_vp1_ep8", "test512_8k"])
def test_the_published_optimum_is_the_least_of_all_splits(name: str):
    case = asked(name)
    published, tolerance = case.numbers["objective"], case.numbers["tolerance"]
    found = optimum(case, published + tolerance)
    assert found is not None
    assert found.attained
    assert found.objective == pytest.approx(published, abs=tolerance)
    assert found.engine == pytest.approx(found.objective, rel=1e-12)
    assert optimum(case, published - tolerance) is None


def test_the_third_optimum_is_not_one_of_what_its_name_tells():
    """Half of what is published is enough for 60 micro-batches on four stages."""
    case = asked("test512_4k")
    found = optimum(case, case.numbers["objective"])
    assert found is not None
    assert found.attained
    assert found.engine == pytest.approx(found.objective, rel=1e-12)
    assert found.objective == pytest.approx(2889.6865, abs=1e-3)


def test_three_of_six_cases_tell_their_stages_and_micro_batches():
    assert len(cases()) == 6
    assert set(TOLD) < set(cases())
    for name in TOLD:
        pp, micro = TOLD[name]
        told = name + cases()[name]["yaml"]
        assert f"micro{micro}" in told
        assert f"pp{pp}" in told


def test_a_makespan_by_hand():
    """Two stages of 1 and 2 forward, 2 and 3 backward, two micro-batches.

    Stage 1: F 1-3, B 3-6, F 6-8, B 8-11; stage 0: F 0-1, F 1-2, B 6-8, B 11-13.
    """
    assert makespans(np.array([[1.0], [2.0]]), np.array([[2.0], [3.0]]), 2).tolist() == [13.0]
