"""The clear replay and the compiled one agree on every policy and every rule."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from hippo.jobs.engine.play import play
from hippo.registry import job_policy

from ...judges import queue as judge
from ..drawn import NAMES, OWN, Drawn, drawn

EXACT = {"rtol": 1e-12, "atol": 1e-9, "equal_nan": True}


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(world=drawn())
def test_both_replays_agree(name: str, world: Drawn):
    _agree(name, world)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(world=drawn())
def test_both_replays_agree_on_many_worlds(name: str, world: Drawn):
    _agree(name, world)


def _agree(name: str, world: Drawn) -> None:
    policy = replace(job_policy(name), **OWN.get(name, {}))
    ledger = play(world.workload, world.site, policy, world.settings, slowdown=world.slowdown)
    first_s, finish_s = judge.play(world.workload, world.site, policy, world.settings, slowdown=world.slowdown)
    np.testing.assert_allclose(ledger.first_start_s, first_s, **EXACT)
    np.testing.assert_allclose(ledger.finish_s, finish_s, **EXACT)
