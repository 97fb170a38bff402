"""Jobs say what is wrong with them when they are made."""

from __future__ import annotations

import math

import pytest

from hippo.errors import InputError
from hippo.jobs.job import Job


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("duration_s", 0.0, "lasts some time"),
        ("duration_s", -5.0, "got -5.0"),
        ("duration_s", math.nan, "got nan"),
        ("duration_s", math.inf, "got inf"),
        ("arrival_s", -1.0, "0 or more"),
        ("arrival_s", math.nan, "0 or more"),
        ("devices", 0, "whole number of devices"),
        ("devices", 1.5, "whole number of devices"),
        ("devices", True, "whole number of devices"),
        ("kind", "traim", "did you mean 'train'"),
        ("memory_gb", -1.0, "0 or more"),
        ("data_gb", math.nan, "0 or more"),
        ("deadline_s", 9.0, "before the arrival"),
        ("deadline_s", math.nan, "before the arrival"),
        ("estimate_s", 0.0, "an estimate is a time"),
        ("priority", 0.5, "whole number"),
    ],
)
def test_a_job_that_cannot_be_is_refused(key: str, value: object, words: str):
    given = {"arrival_s": 10.0, "duration_s": 1.0, key: value}
    with pytest.raises(InputError, match="job 'j'") as caught:
        Job("j", **given)
    assert words in str(caught.value)
    assert key in str(caught.value) or key == "kind"


def test_a_deadline_may_be_the_arrival():
    assert Job("j", 10.0, 1.0, deadline_s=10.0).deadline_s == 10.0
