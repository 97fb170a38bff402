"""The fit finds constants again that made the rows, keeps to the ranges, and can leave a family out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.scripts import script

from hippo.cost.calibration import CALIBRATION, RANGES, constant
from hippo.score.cases import PublishedRun, load_cases
from hippo.score.published import predict

_FIT = script("benchmarks/_fit.py")
Linear, changed, fit, loss, rows, without = (
    _FIT.Linear,
    _FIT.changed,
    _FIT.fit,
    _FIT.loss,
    _FIT.rows,
    _FIT.without,
)


@pytest.fixture(scope="module")
def cases(data: Path) -> list[PublishedRun]:
    """Eleven quick rows of A100s, the step times replaced by what the constants in use say."""
    families = ("korthikanti", "torchtitan")
    return [
        replace(case, measured_s=predict(case).predicted_s)
        for case in load_cases(data / "training_open.json")
        if case.family in families and case.recompute is not None and case.micro_batch is not None
    ]


def test_constants_by_name():
    moved = changed(CALIBRATION, {"k_half": 50.0, "hopper.gemm_efficiency": 0.9})
    assert (constant(moved, "k_half"), constant(moved, "hopper.gemm_efficiency")) == (50.0, 0.9)
    assert constant(moved, "ampere.gemm_efficiency") == constant(CALIBRATION, "ampere.gemm_efficiency")
    assert CALIBRATION.k_half != 50.0


def test_a_perfect_calibration_has_no_error_left(cases: list[PublishedRun]):
    known = rows(cases, CALIBRATION)
    assert len(known) == len(cases)
    assert [row.error(CALIBRATION) for row in known] == pytest.approx([0.0] * len(known), abs=1e-12)
    assert sum(row.weight**2 for row in known if row.case.family == "korthikanti") == pytest.approx(1.0)


def test_a_wrong_constant_is_found_again(cases: list[PublishedRun]):
    true = CALIBRATION.generations["ampere"].gemm_efficiency
    start = changed(CALIBRATION, {"ampere.gemm_efficiency": 0.8 * true})
    found, losses = fit(cases, start, steps=2)
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.2 * losses[0]
    assert constant(found, "ampere.gemm_efficiency") == pytest.approx(true, rel=0.05)
    for name, (low, high) in RANGES.items():
        assert low * (1 - 1e-9) <= constant(found, name) <= high * (1 + 1e-9)


def test_a_family_left_out_does_not_pull(cases: list[PublishedRun]):
    """Korthikanti's rows made twice as slow: the fit with them says so, the fit without them cannot tell."""
    spoiled = [
        replace(case, measured_s=(case.measured_s or 0.0) * 2) if case.family == "korthikanti" else case
        for case in cases
    ]
    fair, slow = (Linear.around(rows(each, CALIBRATION), CALIBRATION) for each in (cases, spoiled))
    name = "ampere.gemm_efficiency"
    assert constant(slow.solved(), name) < 0.95 * constant(fair.solved(), name)
    one, other = (without(each, "korthikanti") for each in (fair, slow))
    assert [constant(one, each) for each in RANGES] == pytest.approx([constant(other, each) for each in RANGES])
    kept = [row for row in slow.rows if row.case.family != "korthikanti"]
    assert loss(kept, one) <= loss(kept, CALIBRATION)
