from __future__ import annotations

import numpy as np
import pytest

from hippo.dynamics.processes import DAY_S, links_up
from hippo.problem.cluster import Dynamics

MONTH = np.arange(0.0, 30 * DAY_S, 60.0)


def test_no_outages_by_default() -> None:
    assert links_up(Dynamics(), MONTH, 2, np.random.default_rng(0)).all()


def test_the_share_of_time_down_is_that_of_an_on_off_process() -> None:
    """Four a day of half an hour: up 6 h and down 0.5 h on average, so down 1 / 13 of the time."""
    alive = links_up(Dynamics(outages_per_day=4.0, outage_s=1800.0), MONTH, 40, np.random.default_rng(1))
    assert 1 - alive.mean() == pytest.approx(1 / 13, rel=0.1)
    starts = (alive[:-1] & ~alive[1:]).sum() / 40
    assert starts == pytest.approx(30 * 24 / 6.5, rel=0.1)


def test_links_fail_on_their_own_and_start_up() -> None:
    alive = links_up(Dynamics(outages_per_day=24.0), MONTH, 2, np.random.default_rng(2))
    assert alive[0].all()
    assert (alive[:, 0] != alive[:, 1]).any()
