"""Links that move: swing, traces with all movements, shares of time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hippo.dynamics.network import CONGESTED_LATENCY, moving_network, shares_of_time
from hippo.dynamics.processes import DAY_S
from hippo.problem.catalogue.clusters import cluster
from hippo.problem.cluster import Cluster, Dynamics
from hippo.problem.links import Trace, base_bandwidth, base_latency, per_node_only

STILL = Dynamics(swing=0.0, sigma=0.0, diurnal_peak_to_trough=1.0)


@pytest.fixture
def hubs() -> Cluster:
    return cluster("four-hubs")


def test_base_states_are_those_of_the_links(hubs: Cluster) -> None:
    assert base_bandwidth(hubs).tolist() == [link.bandwidth_bytes_per_s for link in hubs.links]
    assert base_latency(hubs).tolist() == [link.latency_s for link in hubs.links]
    assert not per_node_only(hubs).any()
    capped = replace(hubs.links[0], bandwidth_bytes_per_s=None, per_node_bytes_per_s=1e8)
    other = replace(hubs, links=(capped, *hubs.links[1:]))
    assert base_bandwidth(other)[0] == 1e8 * hubs.domain(capped.source).nodes
    assert per_node_only(other).tolist() == [True] + [False] * (len(hubs.links) - 1)


def swung(cluster: Cluster, instants: int, seed: int) -> Trace:
    """Swing alone, at instants that know nothing of each other."""
    alone = replace(cluster.dynamics, diurnal_peak_to_trough=1.0)
    rng, every_s = np.random.default_rng(seed), 10 * DAY_S
    return moving_network(replace(cluster, dynamics=alone), duration_s=instants * every_s, every_s=every_s, rng=rng)


def test_states_swing_around_the_base(hubs: Cluster) -> None:
    states = swung(hubs, 4000, 0)
    share = states.bandwidth_bytes_per_s / base_bandwidth(hubs)
    assert share.shape == (4000, len(hubs.links))
    assert share.mean() == pytest.approx(1.0, abs=0.01)
    assert share.min() >= 1 - hubs.dynamics.swing
    assert share.max() <= 1 + hubs.dynamics.swing
    assert share.std() == pytest.approx(hubs.dynamics.sigma, rel=0.03)


def test_latency_rises_as_bandwidth_falls(hubs: Cluster) -> None:
    states = swung(hubs, 500, 1)
    below = states.bandwidth_bytes_per_s < base_bandwidth(hubs)
    longer = states.latency_s / base_latency(hubs)
    assert (longer[below] > 1).all()
    assert longer[~below] == pytest.approx(1.0)
    assert longer.max() <= CONGESTED_LATENCY + 1e-12
    lowest = replace(hubs, dynamics=Dynamics(swing=0.01, sigma=5.0))
    assert swung(lowest, 50, 1).latency_s.max() == pytest.approx(CONGESTED_LATENCY * base_latency(hubs).max())


def test_a_network_that_does_not_move_stays_at_its_base(hubs: Cluster) -> None:
    trace = moving_network(
        replace(hubs, dynamics=STILL), duration_s=3600.0, every_s=600.0, rng=np.random.default_rng(2)
    )
    assert trace.time_s.tolist() == [0, 600, 1200, 1800, 2400, 3000]
    assert trace.bandwidth_bytes_per_s == pytest.approx(np.tile(base_bandwidth(hubs), (6, 1)))
    assert trace.latency_s == pytest.approx(np.tile(base_latency(hubs), (6, 1)))


def test_both_directions_of_a_pair_have_their_peak_together(hubs: Cluster) -> None:
    daily = replace(hubs, dynamics=replace(STILL, diurnal_peak_to_trough=2.0))
    trace = moving_network(daily, duration_s=DAY_S, every_s=1800.0, rng=np.random.default_rng(3))
    worst = trace.bandwidth_bytes_per_s.argmin(axis=0)
    pairs = {frozenset((link.source, link.destination)) for link in hubs.links}
    for pair in pairs:
        assert len({worst[i] for i, link in enumerate(hubs.links) if {link.source, link.destination} == pair}) == 1
    assert len(set(worst.tolist())) > 1
    swing = trace.bandwidth_bytes_per_s.max(axis=0) / trace.bandwidth_bytes_per_s.min(axis=0)
    assert swing == pytest.approx(2.0, rel=0.02)


def test_an_outage_is_bandwidth_0(hubs: Cluster) -> None:
    broken = replace(hubs, dynamics=replace(STILL, outages_per_day=24.0, outage_s=1800.0))
    trace = moving_network(broken, duration_s=DAY_S, every_s=300.0, rng=np.random.default_rng(4))
    assert (trace.bandwidth_bytes_per_s == 0).any()
    assert ((trace.bandwidth_bytes_per_s == 0) | (trace.bandwidth_bytes_per_s == base_bandwidth(hubs))).all()


def test_each_state_of_a_trace_holds_until_the_next() -> None:
    trace = Trace(np.array([0.0, 10.0, 40.0]), np.ones((3, 1)), np.zeros((3, 1)))
    assert shares_of_time(trace) == pytest.approx([10 / 70, 30 / 70, 30 / 70])  # the last as long as the one before
    assert shares_of_time(Trace(np.array([5.0]), np.ones((1, 1)), np.zeros((1, 1)))).tolist() == [1.0]
