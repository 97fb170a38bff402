"""Intervals around printed steps: quantiles by hand, families, what they cover, and the ends of what is assumed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.scripts import script

from hippo.cost.calibration import CALIBRATION, RANGES
from hippo.plan.plan import Plan
from hippo.problem.catalogue.models import model
from hippo.problem.gpus import gpu
from hippo.problem.problem import Problem
from hippo.problem.workload import Software
from hippo.score import interval
from hippo.score.cases import load_cases
from hippo.score.interval import (
    EMULATED,
    FUSED,
    NCCL,
    UNFUSED,
    assumed_span,
    conformal,
    coverage,
    half_width,
    interval_of,
    left_out,
)
from hippo.score.judge import judge
from hippo.score.published import predict

ROOT = Path(__file__).resolve().parents[2]
_FIT = script("benchmarks/_fit.py")


@pytest.fixture
def residuals(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """A file of the test's own."""
    known: dict[str, Any] = {}
    monkeypatch.setattr(interval, "held_out", lambda: {"residuals": known})
    half_width.cache_clear()
    yield known
    half_width.cache_clear()


def test_nine_rows_are_the_fewest_that_hold_nine_of_ten() -> None:
    nine = np.arange(1.0, 10.0)
    assert conformal(nine, 9) == 9.0
    assert conformal(nine[:8], 8) == math.inf
    assert conformal(np.arange(1.0, 20.0), 19) == 18.0
    assert conformal(np.arange(1.0, 11.0), 10) == 10.0


def test_errors_of_one_place_and_of_links_are_taken_to_add_up(residuals: dict[str, Any]) -> None:
    residuals[FUSED] = {name: [0.1, -0.1, 0.1, -0.1] for name in "abc"}
    residuals[EMULATED] = {"links": [0.02, -0.02] * 5}
    assert half_width((FUSED,)) == pytest.approx(0.1)
    assert half_width((FUSED, EMULATED)) == pytest.approx(0.12)


def test_a_source_left_out_is_held_against_the_others(residuals: dict[str, Any]) -> None:
    residuals[NCCL] = {"one": [0.1] * 9, "other": [0.3] * 9 + [0.05]}
    found = left_out(NCCL)
    assert [inside for source, inside, _ in found if source == "one"] == [True] * 9
    assert [inside for source, inside, _ in found if source == "other"] == [False] * 9 + [True]
    assert found[0][2] == pytest.approx(math.sinh(0.3))


def test_which_steps_have_an_interval(small: Problem, across: Plan) -> None:
    measured = replace(small, runtime="hippo")
    found = interval_of(measured, across, 100.0)
    assert found is not None
    assert found.low_s * found.high_s == pytest.approx(100.0**2)
    assert (found.of, found.assumed) == ("one place, fused attention and emulated links", False)
    old = replace(measured.workload, software=Software("unfused"))
    of_2021 = interval_of(replace(measured, workload=old), across, 100.0)
    assert of_2021 is not None
    assert of_2021.of == "one place, attention as of 2021 and emulated links"
    under_nccl = interval_of(replace(small, runtime="megatron"), across, 100.0)
    assert under_nccl is not None
    assert (under_nccl.of, under_nccl.assumed) == ("several places under NCCL", True)
    assert interval_of(replace(small, runtime="ideal"), across, 100.0) is None
    assert interval_of(replace(measured, model=model("mixtral-8x7b")), across, 100.0) is None
    volta = replace(measured.cluster, gpu=gpu("V100"))
    assert interval_of(replace(measured, cluster=volta), across, 100.0) is None


def test_the_intervals_cover_what_was_left_out_of_them() -> None:
    """Coverage as asked, half-widths as results/accuracy.md has them (12 % were asked); `hippo bench intervals`."""
    told = coverage()
    rows = [(each["rows"], each["covered"]) for each in told.values()]
    covered = sum(n * share for n, share in rows) / sum(n for n, _ in rows)  # type: ignore[operator, misc]
    assert 0.85 <= covered <= 0.95
    assert np.median([width for name in told for _, _, width in left_out(name)]) <= 0.18
    assert np.median([width for _, _, width in left_out(NCCL)]) <= 0.25


def test_the_page_of_accuracy_says_what_the_residuals_say() -> None:
    page = (ROOT / "results" / "accuracy.md").read_text()
    for each in coverage().values():
        shares = (each["covered"], each["half_width_left_out"], each["half_width"])
        told = " | ".join(f"{100 * float(str(share)):.1f} %" for share in shares)
        assert f"| {each['of']} | {each['rests_on']} | {each['sources']} | {each['rows']} | {told} |" in page


def test_the_committed_residuals_are_of_this_cost_model(data: Path) -> None:
    """Of three sources the first row, predicted with the constants that were fitted without the source."""
    document: Mapping[str, Any] = interval.held_out()
    cases = load_cases(data / "training_open.json")
    for name, source in ((UNFUSED, "korthikanti"), (FUSED, "dgxc-fp8"), (FUSED, "dgxc-gb200")):
        constants = dict(zip(RANGES, document["without"][source], strict=True))
        case = next(case for case in cases if case.family == source)
        row = predict(case, calibration=_FIT.changed(CALIBRATION, constants))
        assert row.error is not None
        assert -math.log1p(row.error) == pytest.approx(document["residuals"][name][source][0], abs=2e-3)


def test_both_ends_of_what_is_assumed_are_played(small: Problem, across: Plan) -> None:
    links = tuple(replace(link, bandwidth_bytes_per_s=1.25e10, latency_s=0.5) for link in small.cluster.links)
    long = replace(small, runtime="megatron", cluster=replace(small.cluster, links=links))
    found, step = assumed_span(long, across), judge(long, across).step_time_s
    assert found is not None
    assert found.fast_s <= step <= found.slow_s
    assert found.slow_s > 1.01 * found.fast_s
    assert assumed_span(replace(long, runtime="hippo"), across) is None
