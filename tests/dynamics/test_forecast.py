"""What methods are told: now as measured, gaps by the forecast, outages that last."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hippo.dynamics.forecast import FORECASTS, HORIZONS, Telemetry, forecast, forecast_all
from hippo.errors import UnknownNameError
from hippo.problem.catalogue.clusters import cluster
from hippo.problem.links import base_bandwidth, base_latency

TOY = cluster("toy")
BASE = base_bandwidth(TOY)


def told(share: np.ndarray) -> Telemetry:
    """Telemetry of the two links of the toy cluster; a value of -1 did not arrive."""
    fresh = share >= 0
    kept = share.copy()
    for epoch in range(1, len(share)):
        kept[epoch] = np.where(fresh[epoch], share[epoch], kept[epoch - 1])
    return Telemetry(kept * BASE, np.tile(base_latency(TOY), (len(share), 1)), np.ones(share.shape), fresh)


@pytest.mark.parametrize("method", FORECASTS)
def test_one_forecast_is_the_last_of_all(method: str) -> None:
    share = np.abs(np.random.default_rng(0).normal(1.0, 0.3, (40, 2)))
    share[10:15, 0], share[20:22, 1], share[38:, 0] = 0.0, -1.0, 0.0
    telemetry = told(share)
    whole = forecast_all(telemetry, TOY, 60.0, method=method)
    for end in (1, 12, 21, 39):
        until = Telemetry(*(getattr(telemetry, name)[: end + 1] for name in Telemetry.__dataclass_fields__))
        one, other = forecast(until, TOY, 60.0, method=method), whole.at(end)
        for field in ("bandwidth_bytes_per_s", "latency_s", "compute", "sd"):
            assert getattr(one, field) == pytest.approx(getattr(other, field), rel=1e-9, abs=1e-9)


def test_now_is_what_was_measured() -> None:
    found = forecast(told(np.array([[1.0, 1.0], [0.8, 0.3]])), TOY, 60.0)
    assert found.bandwidth_bytes_per_s[0] == pytest.approx(np.array([0.8, 0.3]) * BASE)
    assert (found.sd[0] == 0.0).all()
    assert found.source == "kalman"


def test_a_stale_value_is_the_forecast_itself() -> None:
    share = np.ones((60, 2))
    share[30:50, 0] = 0.2
    share[50:, 0] = -1.0  # silent since the collapse: it may have ended
    found = forecast(told(share), TOY, 600.0)
    now = found.bandwidth_bytes_per_s[0] / BASE
    assert 0.2 < now[0] < 1.0
    assert found.sd[0, 0] > 0.0
    assert now[1] == 1.0


def test_an_outage_lasts_the_longer_the_older_it_is() -> None:
    share = np.ones((80, 2))
    share[40:, 0] = 0.0
    found = forecast_all(told(share), TOY, 60.0)
    carried = found.bandwidth_bytes_per_s[:, :, 0] / BASE[0]
    assert carried[45, 0] == 0.0
    assert (np.diff(carried[45]) > 0).all()
    assert (carried[70, 1:] < carried[42, 1:]).all()
    assert found.bandwidth_bytes_per_s[70, :, 1] == pytest.approx(np.full(len(HORIZONS), BASE[1]), rel=0.02)


def test_a_straggler_is_expected_to_recover() -> None:
    telemetry = told(np.ones((50, 2)))
    slow = telemetry.compute.copy()
    slow[40:, 1] = 2.0
    found = forecast(replace(telemetry, compute=slow), TOY, 600.0)
    assert found.compute[0].tolist() == [1.0, 2.0]
    assert 1.0 < found.compute[-1, 1] < 2.0


def test_an_unknown_forecast_lists_the_known() -> None:
    with pytest.raises(UnknownNameError, match="kalman"):
        forecast(told(np.ones((2, 2))), TOY, 60.0, method="oracle")


def test_what_never_arrived_is_no_number_and_does_no_harm() -> None:
    telemetry = told(np.ones((5, 2)))
    nothing = np.full((5, 2), np.nan)
    silent = Telemetry(nothing, nothing, telemetry.compute, np.zeros((5, 2), dtype=bool))
    found = forecast(silent, TOY, 60.0)
    assert found.bandwidth_bytes_per_s == pytest.approx(np.tile(BASE, (len(HORIZONS), 1)), rel=0.05)
    assert found.latency_s == pytest.approx(np.tile(base_latency(TOY), (len(HORIZONS), 1)))
