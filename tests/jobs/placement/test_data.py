from __future__ import annotations

import math

import numpy as np
import pytest

from hippo.errors import InputError
from hippo.jobs.job import Job
from hippo.jobs.placement.data import egress_usd, home_of, prices_usd_per_gb, with_data
from hippo.jobs.site import DevicePool, JobSite, site
from hippo.jobs.workload import JobWorkload

from .worlds import cluster

HERE = site([DevicePool("a", "gpu", 3, 8), DevicePool("b", "gpu", 1, 8)], bandwidth_bytes_per_s=1.25e9, latency_s=0.02)


def test_what_a_trace_leaves_open_is_filled_in():
    given = [
        Job("trains", 0.0, 5.0, devices=4, user="u"),
        Job("prepares", 1.0, 5.0, kind="preprocess", user="v"),
        Job("knows", 2.0, 5.0, devices=2, data_gb=7.0, data_at="b", user="u"),
    ]
    filled = with_data(JobWorkload.of(given), HERE)
    assert filled.data_gb.tolist() == [80.0, 100.0, 7.0]
    assert filled.job(0).data_at == home_of("u", HERE)
    assert filled.job(2).data_at == "b"


def test_one_volume_for_all():
    workload = JobWorkload.of([Job("trains", 0.0, 5.0, devices=4), Job("serves", 1.0, 5.0, kind="deploy")])
    assert with_data(workload, HERE, 3.0).data_gb.tolist() == [12.0, 3.0]
    assert with_data(workload, HERE, 0.0).data_gb.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("volume", [-1.0, math.nan, math.inf, 1e300])
def test_no_such_volume(volume: float):
    with pytest.raises(InputError, match="--data-gb: not a volume"):
        with_data(JobWorkload.of([Job("trains", 0.0, 5.0)]), HERE, volume)


def test_homes_are_drawn_in_proportion_to_devices():
    homes = [home_of(f"user {index}", HERE) for index in range(2000)]
    assert homes.count("a") / 2000 == pytest.approx(0.75, abs=0.04)
    assert [home_of(name, HERE) for name in ("ee9e8c", "7f04ca", "")] == ["a", "a", "b"]  # as on every machine


def test_prices_are_those_of_the_links():
    world = cluster("abc", joined="abc")
    table = prices_usd_per_gb(world, JobSite.of(world).domains)
    assert table[0, 1] == 0.02
    assert table[1, 1] == 0.0
    assert math.isnan(table[0, 2])
    moved = np.array([[0.0, 50.0, 0.0], [25.0, 10.0, 0.0], [0.0, 0.0, 0.0]])
    assert egress_usd(moved, table) == pytest.approx(1.5)  # 75 GB over links at 0.02 USD; 10 GB stayed inside
