"""What is said of GPUs that the constants were never fitted to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hippo.cost.calibration import CALIBRATION, RANGES, uncalibrated
from hippo.problem.gpus import GPUS
from hippo.problem.profile import Profile

from .worlds import problem


@pytest.mark.parametrize("name", sorted(GPUS))
def test_answers_are_uncalibrated_for_gpus_of_families_without_a_measured_row(name: str) -> None:
    told = uncalibrated(problem(card=name))
    assert (told is None) == (GPUS[name].family in ("ampere", "hopper", "blackwell", "blackwell-ultra"))
    assert told is None or told.startswith(f"uncalibrated: nobody measured {name}; ")


def test_of_the_v100_the_shares_are_said_to_be_estimates() -> None:
    told = uncalibrated(problem(card="V100-SXM2-16GB"))
    assert told is not None
    assert told.endswith("it is taken to reach estimated shares of its peaks")


def test_layers_that_the_user_timed_leave_no_doubt() -> None:
    asked = problem(card="MI300X-192GB")
    assert uncalibrated(asked) is not None
    assert uncalibrated(replace(asked, profile=Profile("bf16", 16.0, ()))) is None


def test_a_generation_counts_as_measured_where_its_product_efficiency_was_fitted() -> None:
    fitted = {name.partition(".")[0] for name in RANGES if name.endswith(".gemm_efficiency")}
    assert {name for name, found in CALIBRATION.generations.items() if found.measured} == fitted
