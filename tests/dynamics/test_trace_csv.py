"""A trace written is the trace read."""

from __future__ import annotations

import numpy as np
import pytest

from hippo.dynamics.network import moving_network, trace_to_csv
from hippo.problem.catalogue.clusters import cluster
from hippo.problem.links import Trace
from hippo.problem.trace_csv import trace_from_csv


def test_what_is_written_is_read_again() -> None:
    hubs = cluster("four-hubs")
    trace = moving_network(hubs, duration_s=3600.0, every_s=300.0, rng=np.random.default_rng(0))
    found = trace_from_csv(trace_to_csv(trace, hubs), hubs, source="test")
    assert found.time_s.tolist() == trace.time_s.tolist()
    assert found.bandwidth_bytes_per_s == pytest.approx(trace.bandwidth_bytes_per_s, rel=1e-8)
    assert found.latency_s == pytest.approx(trace.latency_s, rel=1e-8)


def test_only_changes_are_written_and_an_outage_is_a_zero() -> None:
    toy = cluster("toy")
    bandwidth = np.array([[1e9, 1e9], [1e9, 1e9], [0.0, 1e9]])
    trace = Trace(np.array([0.0, 60.0, 120.0]), bandwidth, np.full((3, 2), 0.02))
    assert trace_to_csv(trace, toy).splitlines()[1:] == ["0,east,west,8,20", "0,west,east,8,20", "120,east,west,0,20"]
