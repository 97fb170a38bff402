from __future__ import annotations

from dataclasses import replace

import pytest

from hippo.problem.objective import Objective
from hippo.score.score import Score, reward

BASE = Score(10.0, 0.5, 0.5, 4.0, 2.0, 8.0, 1e5, 0.3, 60.0, 0.0)
WEIGHTS = Objective("weighted", 0.5, 0.25, 0.25)


def test_by_hand() -> None:
    better = replace(BASE, step_time_s=6.0, utilization=0.8, egress_usd_per_step=1.0)
    assert reward(better, BASE, WEIGHTS) == {
        "reward": pytest.approx(0.5 * 0.4 + 0.25 * 0.8 - 0.25 * 0.5),
        "r_eff": pytest.approx(0.4),
        "r_util": 0.8,
        "r_cost": 0.5,
    }


def test_a_slower_plan_is_punished() -> None:
    assert reward(replace(BASE, step_time_s=15.0), BASE, Objective())["reward"] == pytest.approx(-0.5)


def test_without_egress_of_the_baseline_its_whole_price_is_the_measure() -> None:
    free = replace(BASE, egress_usd_per_step=0.0)
    assert reward(BASE, free, WEIGHTS)["r_cost"] == pytest.approx(2.0 / 8.0)
    assert reward(free, free, WEIGHTS)["r_cost"] == 0.0


def test_where_the_baseline_costs_nothing_egress_is_all_that_a_plan_costs() -> None:
    """GPUs without rent, as ``hippo profile`` writes them, and a baseline within one domain."""
    free = replace(BASE, egress_usd_per_step=0.0, usd_per_step=0.0)
    assert reward(replace(BASE, usd_per_step=2.0), free, WEIGHTS)["r_cost"] == 1.0
    assert reward(free, free, WEIGHTS)["r_cost"] == 0.0
