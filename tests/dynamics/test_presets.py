"""Presets and the fits they come from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hippo.dynamics.presets import FITS, PRESETS, TrafficFit, preset
from hippo.errors import UnknownNameError


def test_every_fit_is_that_of_the_published_series(data: Path) -> None:
    rows = json.loads((data / "wan_ou_fits.json").read_text(encoding="utf-8"))
    assert len(rows) == len(FITS)
    for row, fit in zip(rows, FITS.values(), strict=True):
        assert fit.sd_resid == pytest.approx(row["sd_resid"], abs=6e-4)
        assert fit.tau_min == pytest.approx(row["OU_tau_min_from_acf"], abs=0.06)
        assert fit.peak_to_trough == pytest.approx(row["diurnal_peak_to_trough_ratio"], abs=6e-4)


def test_what_traffic_leaves_by_hand() -> None:
    """Load 1/3, twice as much at the peak: 4/9 taken then and 2/9 at the trough, so 7/9 over 5/9 is left."""
    moving = TrafficFit(sd_resid=0.4, tau_min=10.0, peak_to_trough=2.0, source="").dynamics(rho=1.0 / 3.0)
    assert moving.sigma == pytest.approx(0.2)
    assert moving.tau_s == 600.0
    assert moving.diurnal_peak_to_trough == pytest.approx(7.0 / 5.0)


def test_presets_by_name() -> None:
    assert preset("geant") == PRESETS["geant"]
    with pytest.raises(UnknownNameError, match="geant"):
        preset("giant")
