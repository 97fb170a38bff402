"""Settings that are fitted to published steps: a pipeline played under them swings as the runs did."""

from __future__ import annotations

import pytest
from tests.conftest import ROOT
from tests.scripts import script

from hippo.dispatch.noise.fluctuation import Fluctuation
from hippo.dispatch.noise.presets import MEASURED, PRESETS, RESTLESS


@pytest.mark.parametrize(("percent", "preset"), [(50, MEASURED), (90, RESTLESS)])
def test_a_pipeline_swings_as_the_runs_did(percent: float, preset: Fluctuation) -> None:
    """Variation and 99th percentile of 6,000 steps within a tenth, autocorrelation within 0.1 of the runs'."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        bench = script("benchmarks/noise.py")
    asked = bench.at(list(bench.runs()), percent).swing
    for seed in (11, 12):
        played = bench.Swing.of(bench.Pipeline(bench.MOST_MICRO_BATCHES).steps(preset, seed=seed))
        assert played.variation == pytest.approx(asked.variation, rel=0.1)
        assert played.p99 - 1 == pytest.approx(asked.p99 - 1, rel=0.2)
        assert played.autocorrelation == pytest.approx(asked.autocorrelation, abs=0.1)


def test_stress_is_a_setting_of_the_same_model() -> None:
    assert [PRESETS[f"{level} %"] for level in (10, 20, 30)] == [Fluctuation(level / 100) for level in (10, 20, 30)]
