"""What the tests of online decisions share."""

from __future__ import annotations

import pytest
from tests.network.online_world import hubs

from hippo.network.plans.plan_cache import PlanCache


@pytest.fixture(scope="session")
def filled() -> PlanCache:
    """A cache filled once; tests that add to it take a copy."""
    return hubs()
