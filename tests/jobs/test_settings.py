"""Rules that cannot be are refused; what failures cost is Daly's formula."""

from __future__ import annotations

import math

import pytest

from hippo.errors import InputError
from hippo.jobs.settings import Failures, ReplayRules


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("restart_s", -1.0),
        ("restart_s", math.nan),
        ("seed", -1),
        ("seed", 2**63),
        ("span", "maybe"),
        ("data", "after"),
        ("round_s", 0.0),
    ],
)
def test_settings_that_cannot_be_are_refused(key: str, value: object):
    with pytest.raises(InputError, match=key):
        ReplayRules(**{key: value})


@pytest.mark.parametrize("key", ["mtbf_s", "repair_s", "checkpoint_every_s"])
def test_failures_that_cannot_be_are_refused(key: str):
    with pytest.raises(InputError, match=key):
        Failures(**{"mtbf_s": 1.0, key: math.inf})


def test_work_between_checkpoints_is_done_again_after_failures():
    """A node that fails every 100 s on average, and 100 s between checkpoints: e - 1 times as long."""
    assert Failures(100.0, checkpoint_every_s=100.0).times_longer(1e6, 1, 0.0) == pytest.approx(math.e - 1)
    assert Failures(1e9).times_longer(10.0, 1, 0.0) == pytest.approx(1.0, abs=1e-6)
    assert Failures(100.0, checkpoint_every_s=1e9).times_longer(1e6, 8, 30.0) > 1e100


def test_enough_nodes_are_up_by_the_binomial_law():
    """A node is up a quarter of the time; of three, two or three are up 3/16 x 3/4 + 1/64 = 10/64 of it."""
    failures = Failures(10.0, repair_s=30.0)
    assert failures.share_up(2, 3) == pytest.approx(10 / 64)
    assert failures.share_up(0, 3) == pytest.approx(1.0)
    assert failures.share_up(4, 3) == 0.0
    assert Failures(1e9).share_up(1000, 1000) == pytest.approx(math.exp(-3.6e-3), rel=1e-5)
