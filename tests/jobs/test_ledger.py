"""The account of a replay adds up, whatever was played."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hippo.jobs.engine.play import play
from hippo.jobs.figures import figures
from hippo.jobs.ledger import Ledger
from hippo.registry import job_policy

from .drawn import NAMES, OWN, Drawn, drawn


def most_held(ledger: Ledger, pool: int) -> int:
    """The most devices of a pool that are held at once, from who held what when; an end goes before a start."""
    assert ledger.segments is not None
    (_, where, devices), (start_s, end_s) = ledger.segments[0].T, ledger.segments[1].T
    here = (where == pool) & (end_s > start_s)
    steps = [(time_s, -held) for time_s, held in zip(end_s[here], devices[here], strict=True)]
    steps += [(time_s, held) for time_s, held in zip(start_s[here], devices[here], strict=True)]
    return int(max(np.cumsum([change for _, change in sorted(steps)]), default=0))


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(world=drawn(), name=st.sampled_from(NAMES))
def test_devices_time_and_data_add_up(world: Drawn, name: str):
    jobs, place, policy = world.workload, world.site, replace(job_policy(name), **OWN.get(name, {}))
    ledger = play(jobs, place, policy, world.settings, slowdown=world.slowdown, segments=True)
    assert all(most_held(ledger, pool) <= place.pools[pool].devices for pool in range(len(place.pools)))
    assert ledger.segments is not None
    held_s = ledger.segments[0][:, 2] * np.diff(ledger.segments[1], axis=1)[:, 0]
    of_pool = np.bincount(ledger.segments[0][:, 1], held_s, len(place.pools))
    np.testing.assert_allclose(of_pool, ledger.busy_device_s, atol=1e-6)
    lasts_s = np.diff(ledger.time_s, prepend=jobs.arrival_s[0])
    np.testing.assert_allclose(lasts_s @ ledger.busy_devices, ledger.busy_device_s, atol=1e-6)
    of_job = np.bincount(ledger.segments[0][:, 0], held_s, len(jobs))[ledger.ran]
    np.testing.assert_allclose(of_job, (ledger.run_s * jobs.devices)[ledger.ran])
    np.testing.assert_allclose(ledger.link_gb.sum(), ledger.moved_gb.sum())
    assert (ledger.first_start_s >= jobs.arrival_s)[ledger.ran].all()
    assert policy.preempts or not ledger.preemptions.any()
    assert not figures(ledger, jobs, place).utilization > 1 + 1e-9
