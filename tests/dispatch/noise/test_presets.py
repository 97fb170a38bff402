"""Settings that are fitted to published steps: a pipeline played under them swings as the runs did."""

from __future__ import annotations

import pytest
from tests.conftest import ROOT
from tests.scripts import script

from hippo.dispatch.noise.fluctuation import Fluctuation
from hippo.dispatch.noise.presets import MEASURED, PRESETS, RESTLESS


@pytest.mark.parametrize(("chosen", "preset", "near"), [("usual", MEASURED, 0.01), ("restless", RESTLESS, 0.04)])
def test_a_pipeline_swings_as_the_runs_did(chosen: str, preset: Fluctuation, near: float) -> None:
    """24,000 steps; the 99th percentile lies where stalls begin, and moves by so much with the seed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        bench = script("benchmarks/noise.py")
    asked = getattr(bench, chosen)(list(bench.runs())).swing
    played = bench.Swing.of(bench.Pipeline(bench.MOST_MICRO_BATCHES).steps(preset, samples=24_000, seed=11))
    assert played.variation == pytest.approx(asked.variation, rel=0.1)
    assert played.p99 == pytest.approx(asked.p99, abs=near)
    assert played.autocorrelation == pytest.approx(asked.autocorrelation, abs=0.05)
    assert played.quartiles == pytest.approx(asked.quartiles, rel=0.1)


def test_stress_is_a_setting_of_the_same_model() -> None:
    assert [PRESETS[f"{level} %"] for level in (10, 20, 30)] == [Fluctuation(level / 100) for level in (10, 20, 30)]
