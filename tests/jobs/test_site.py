"""Sites from clusters, and pools that cannot be."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hippo.errors import InputError
from hippo.jobs.site import DevicePool, JobSite, LinkHistory, site
from hippo.problem.links import Trace
from hippo.problem.load import load_cluster


def test_a_cluster_is_a_site_of_one_pool_per_domain():
    cluster = load_cluster("toy")
    place = JobSite.of(cluster)
    assert [(pool.domain, pool.devices, pool.memory_gb) for pool in place.pools] == [("east", 8, 80), ("west", 8, 80)]
    assert place.bandwidth_bytes_per_s == ((math.inf, 1e9), (1e9, math.inf))
    assert place.latency_s == ((0, 0.02), (0.02, 0))
    assert (place.devices, place.capacity, place.name) == (16, 16, "toy")


def test_capacity_counts_speed():
    place = site([DevicePool("a", "gpu", 1, 2, speed=2.0), DevicePool("a", "cpu", 2, 4, speed=0.25)])
    assert (place.devices, place.capacity, place.domains, place.kinds) == (10, 6.0, ("a",), ("gpu", "cpu"))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("nodes", 0),
        ("per_node", -1),
        ("speed", 0.0),
        ("speed", math.inf),
        ("speed", math.nan),
        ("speed", 1e-300),
        ("memory_gb", -1.0),
    ],
)
def test_a_pool_that_cannot_be_is_refused(key: str, value: float):
    with pytest.raises(InputError, match=f"pool a/gpu: {key}"):
        DevicePool(**{"domain": "a", "kind": "gpu", "nodes": 1, "per_node": 1, key: value})


def test_a_site_needs_devices():
    with pytest.raises(InputError, match="without devices"):
        JobSite((), (), ())


def test_links_move_as_the_network_says_and_stay_as_they_were_before_and_after():
    cluster = load_cluster("toy")
    table = np.array([[1e9, 2e9], [0.0, 3e9]])  # instants x links, east to west and back
    place = JobSite.of(cluster, Trace(np.array([10.0, 20.0]), table, np.zeros((2, 2)), "net.csv"))
    assert place.bandwidth_bytes_per_s == JobSite.of(cluster).bandwidth_bytes_per_s
    assert place.history is not None
    for time_s, there, back in ((0, 1e9, 2e9), (19.9, 1e9, 2e9), (20, 0, 3e9), (1e9, 0, 3e9)):
        assert place.history.at(time_s).tolist() == [[math.inf, there], [back, math.inf]]


@pytest.mark.parametrize(
    ("times", "carried", "told"),
    [
        ([], [], "time_s: times do not ascend"),
        ([0.0, 5.0, 5.0], [1.0, 1.0, 1.0], r"time_s: times do not ascend \(got 5"),
        ([0.0, math.nan], [1.0, 1.0], "time_s: times do not ascend"),
        ([0.0, 1.0], [1.0, -1.0], r"bandwidth_bytes_per_s: not a number of 0 or more \(got -1"),
        ([0.0], [math.nan], "bandwidth_bytes_per_s: not a number"),
    ],
)
def test_a_history_that_cannot_be_is_refused(times: list[float], carried: list[float], told: str):
    table = np.array([[[math.inf, each], [each, math.inf]] for each in carried]).reshape(-1, 2, 2)
    with pytest.raises(InputError, match=f"net.csv: {told}"):
        LinkHistory(np.array(times), table, "net.csv")


def test_a_history_of_a_link_that_the_site_has_not_is_refused():
    pools = (DevicePool("a", "gpu", 1, 1), DevicePool("b", "gpu", 1, 1))
    history = LinkHistory(np.zeros(1), np.full((1, 2, 2), 1e9), "net.csv")
    with pytest.raises(InputError, match=r"net.csv: src,dst: the site has no such link \(got 'b,a'"):
        JobSite(pools, ((math.inf, 1e9), (0.0, math.inf)), ((0.0, 0.0), (0.0, 0.0)), history=history)
