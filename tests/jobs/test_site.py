"""Sites from clusters, and pools that cannot be."""

from __future__ import annotations

import math

import pytest

from hippo.errors import InputError
from hippo.jobs.site import DevicePool, JobSite, site, site_of
from hippo.problem.load import load_cluster


def test_a_cluster_is_a_site_of_one_pool_per_domain():
    cluster = load_cluster("toy")
    place = site_of(cluster)
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
