from __future__ import annotations

import numpy as np

from hippo.jobs.job import Job
from hippo.jobs.placement.slowdown import INSIDE, Kind, Slowdown, kinds_that_span
from hippo.jobs.site import DevicePool, site
from hippo.jobs.workload import JobWorkload

HERE = site([DevicePool("a", "gpu", 2, 8), DevicePool("b", "gpu", 4, 8)])


def jobs() -> JobWorkload:
    return JobWorkload.of(
        [
            Job("one", 0.0, 5.0),
            Job("two", 1.0, 5.0, devices=2, model="llama-3-8b"),
            Job("large", 2.0, 5.0, devices=48),
            Job("crowd", 3.0, 5.0, devices=48, kind="predict", model="llama-3-8b"),
            Job("large too", 4.0, 5.0, devices=48),
        ]
    )


def test_nobody_spans_unless_asked():
    table = Slowdown.none(3)
    alone = [mask for mask in range(8) if np.isfinite(table.factor[INSIDE, mask])]
    assert alone == [1, 2, 4]
    assert table.rows(jobs()).tolist() == [INSIDE] * 5


def test_a_site_of_many_domains_has_a_table_too():
    assert Slowdown.none(40).factor.shape == (1, 4096)


def test_who_may_span():
    large, crowd = Kind(48), Kind(48, "", trains=False)
    assert kinds_that_span(jobs(), HERE, "never") == ()
    assert set(kinds_that_span(jobs(), HERE, "must")) == {large, crowd}
    assert set(kinds_that_span(jobs(), HERE, "free")) == {Kind(2, "llama-3-8b"), large, crowd}


def test_only_pools_that_a_job_can_use_count():
    mixed = site([DevicePool("a", "gpu", 2, 8), DevicePool("a", "cpu", 2, 64)])
    jobs = JobWorkload.of(
        [
            Job("any", 0.0, 5.0, devices=48),
            Job("gpu", 0.0, 5.0, devices=48, runs_on=("gpu",)),
            Job("cpu", 0.0, 5.0, devices=48, runs_on=("cpu",)),
            Job("tpu", 0.0, 5.0, devices=48, runs_on=("tpu",)),
        ]
    )
    spanning = kinds_that_span(jobs, mixed, "must")
    assert {kind.runs_on for kind in spanning} == {("gpu",), ("tpu",)}
    assert Slowdown.none(1).rows(jobs).tolist() == [INSIDE] * 4


def test_rows_go_by_size_model_and_purpose():
    table = Slowdown((Kind(48), Kind(2, "llama-3-8b")), np.ones((3, 4)), np.zeros((3, 4)))
    assert table.rows(jobs()).tolist() == [INSIDE, 2, 1, INSIDE, 1]
