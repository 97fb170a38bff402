"""Settings that were searched are those of the rules that the registry gives."""

from __future__ import annotations

import math

from hippo.jobs.joint import settings
from hippo.registry import JOB_SCHEDULERS, load


def test_every_rule_was_searched_with_as_many_plays():
    searched = settings.searched()
    assert set(searched["rules"]) == set(JOB_SCHEDULERS)
    assert len({row["worlds"] for row in searched["rules"].values()}) == 1
    assert searched["budget"]["settings"] >= 4


def test_the_registry_gives_rules_with_their_settings():
    for name, row in settings.searched()["rules"].items():
        rule = load(JOB_SCHEDULERS, "policy", name)
        assert row["setting"]
        assert {key: getattr(rule, key) for key in row["setting"]} == row["setting"]
        assert row["over_separate"] <= row["worst"]
        assert math.isfinite(row["worst"])
    assert settings.RECEDING_HORIZON.base == settings.SRPT
