"""What the tests of online decisions share."""

from __future__ import annotations

import pytest
from tests.decide.conftest import worlds
from tests.network.online_world import hubs
from tests.score.conftest import across, small

from hippo.network.plans.plan_cache import PlanCache

__all__ = ["across", "filled", "small", "worlds"]


@pytest.fixture(scope="session")
def filled() -> PlanCache:
    """A cache filled once; tests that add to it take a copy."""
    return hubs()
