"""Settings that were searched are those of the rules that the registry gives."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from hippo.jobs.joint import settings
from hippo.jobs.joint.play import play_jointly
from hippo.registry import JOB_SCHEDULERS, load

from .test_against_twin import drawn

KINDS = ("stopped", "kept")
DEAR = ("goodput", "receding_horizon")
"""A play of these takes seconds."""
OTHERS = (*DEAR, "crux")
"""The last one adds two levers to srpt."""
PLACED = ("first_fit", "best_fit", "fgd")
LEARNED = ("hi_ppo", "hi_ppo_verified")
UNSEARCHED = ("diloco",)
"""Competes where local SGD is allowed alone."""


def test_every_rule_was_searched_with_as_many_plays():
    rows = settings.searched()["rules"]
    assert {*rows, *PLACED, *LEARNED, *UNSEARCHED} == set(JOB_SCHEDULERS)
    for kind in KINDS:
        assert (
            len({(row[kind]["settings"], row[kind]["worlds"]) for name, row in rows.items() if name not in OTHERS}) == 1
        )
    assert {rows[name][kind]["worlds"] for name in rows if name not in DEAR for kind in KINDS} == {15}


@pytest.mark.parametrize("kind", KINDS)
def test_the_registry_gives_rules_with_their_settings(kind: str):
    for name, row in settings.searched()["rules"].items():
        rule = load(JOB_SCHEDULERS, "policy", name).at(kind == "stopped")
        assert {key: getattr(rule, key) for key in row[kind]["setting"]} == row[kind]["setting"]
        if row[kind]["settings"]:
            assert row[kind]["setting"]
            assert row[kind]["over_separate"] <= row[kind]["worst"]
            assert math.isfinite(row[kind]["worst"])
    assert settings.RECEDING_HORIZON.at(kind == "stopped").base == settings.SRPT.at(kind == "stopped")


@examples(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), stops=st.booleans())
def test_a_rule_takes_the_setting_that_fits_the_site(seed: int, stops: bool):
    made = drawn(seed, 3, 8)
    rest = {"offers": made.offers, "tenants": made.tenants}
    both, one = (
        play_jointly(made.workload, made.site, rule, replace(made.rules, stops=stops), **rest)
        for rule in (settings.SRPT, settings.SRPT.at(stops))
    )
    np.testing.assert_array_equal(both.finish_s, one.finish_s)


@pytest.mark.parametrize("stops", [True, False])
def test_placement_rivals_differ_from_srpt_in_places_alone(stops: bool):
    for name in PLACED:
        rule = load(JOB_SCHEDULERS, "policy", name).at(stops)
        differs = {key for key in vars(rule) if getattr(rule, key) != getattr(settings.SRPT.at(stops), key)}
        assert differs == {"name", "summary", "source", "place"}
