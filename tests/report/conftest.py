"""Stories that several tests of reports read."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.report.worlds import make_story, make_wide_story

from hippo.report.story import PlanStory


@pytest.fixture(scope="session")
def small_story() -> PlanStory:
    return make_story()


@pytest.fixture(scope="session")
def wide_story() -> PlanStory:
    return make_wide_story()


@pytest.fixture(scope="session")
def story_of_domains() -> Callable[..., PlanStory]:
    """The hand-played story with other names of domains and model."""
    return make_story
