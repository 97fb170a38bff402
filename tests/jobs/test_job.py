"""Jobs say what is wrong with them when they are made."""

from __future__ import annotations

import math

import pytest

from hippo.errors import InputError
from hippo.jobs.job import Job

ELASTIC = {"devices": 64, "model": "llama-3-8b", "batch": 384, "seq": 4096, "tokens": 1e9, "least": 8, "most": 64}


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


def test_an_elastic_job_needs_no_duration_and_a_gang_does():
    assert math.isnan(Job("j", 0.0, **ELASTIC).duration_s)
    assert Job("j", 0.0, 60.0, **ELASTIC).duration_s == 60.0
    with pytest.raises(InputError, match="lasts some time"):
        Job("j", 0.0)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"least": 65}, "least: more than its most, 64"),
        ({"devices": 8}, "devices: not its most, 64"),
        ({"kind": "deploy"}, "kind: only training has tokens"),
        ({"model": ""}, "an elastic job has no model"),
        ({"tokens": 0.0}, "batch: an elastic job has no tokens"),
        ({"least": 0, "most": 0}, "batch: an elastic job has no least"),
        ({"tokens": math.inf}, "tokens: not a number of 0 or more"),
        ({"batch": 1.5}, "batch: not a number of 0 or more"),
        ({"duration_s": -1.0}, "lasts some time"),
    ],
)
def test_a_job_that_is_half_a_gang_is_refused(change: dict[str, object], told: str):
    with pytest.raises(InputError, match=told):
        Job("j", 0.0, **(ELASTIC | change))


def test_a_deadline_may_be_the_arrival():
    assert Job("j", 10.0, 1.0, deadline_s=10.0).deadline_s == 10.0
