"""Columns and jobs are two forms of one workload."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hippo.errors import InputError
from hippo.jobs.job import Job
from hippo.jobs.site import DevicePool, site
from hippo.jobs.workload import JobWorkload

from .drawn import jobs

TERMS = {"model": "m", "batch": 8, "seq": 128, "tokens": 1e6}
E = Job("e", 4, devices=16, least=2, most=16, **TERMS)
A = Job("a", 2, 3, data_at="x", data_gb=1)
B = Job("b", 5, 10, devices=2, user="u", runs_on=("cpu",), deadline_s=40, estimate_s=7, priority=2, model="m")


ELASTIC = {"batch": [0, 8], "seq": [0, 128], "tokens": [0, 5.0], "least": [0, 1], "most": [0, 4], "devices": [1, 4]}


@given(
    st.lists(st.integers(0, 50), max_size=6).flatmap(
        lambda at: st.tuples(*(jobs(str(i), float(t)) for i, t in enumerate(at)))
    )
)
def test_jobs_come_back_as_they_were(given_jobs: tuple[Job, ...]):
    workload = JobWorkload.of(given_jobs)
    assert [workload.job(index) for index in range(len(workload))] == sorted(given_jobs, key=lambda job: job.arrival_s)


def test_jobs_are_sorted_and_equal_arrivals_keep_their_order():
    workload = JobWorkload.of([B, A, Job("c", 2, 1)])
    assert workload.names == ("a", "c", "b")


def test_two_jobs_of_one_name_are_refused():
    with pytest.raises(InputError, match="two jobs have one name"):
        JobWorkload.of([A, A])


@pytest.mark.parametrize(
    ("columns", "where"),
    [
        ({"duration_s": [1.0, -1.0]}, "row 1, duration_s"),
        ({"duration_s": [math.nan, 1.0]}, "row 0, duration_s"),
        ({"duration_s": [1.0, 1.0], "arrival_s": [0.0, -1.0]}, "row 1, arrival_s"),
        ({"duration_s": [1.0, 1.0], "devices": [1, 0]}, "row 1, devices"),
        ({"duration_s": [1.0, 1.0], "deadline_s": [np.inf, 0.5]}, "row 1, deadline_s"),
        ({"duration_s": [1.0, 1.0], "deadline_s": [np.nan, 5.0]}, "row 0, deadline_s"),
        ({"duration_s": [1.0, 1.0], "estimate_s": [np.nan, 0.0]}, "row 1, estimate_s"),
        ({"duration_s": [1.0, 1.0], "kind": [0, 4]}, "row 1, kind"),
        ({"duration_s": [1.0, 1.0], "tokens": [0.0, 5.0]}, "row 1, tokens"),
        ({"duration_s": [1.0, 1.0], "most": [0, 5]}, "row 1, most"),
        ({"duration_s": [1.0, np.nan], **ELASTIC, "least": [0, 9]}, "row 1, least: more devices at least"),
        ({"duration_s": [1.0, np.nan], **ELASTIC, "devices": [1, 2]}, "row 1, devices"),
        ({"duration_s": [1.0, np.nan], **ELASTIC, "kind": [0, 1]}, "row 1, kind"),
    ],
)
def test_columns_that_no_job_has_are_refused_with_the_row(columns: dict[str, list[float]], where: str):
    with pytest.raises(InputError, match=where):
        JobWorkload.of_columns({"arrival_s": [0.0, 1.0], **columns})


def test_missing_columns_are_filled():
    workload = JobWorkload.of_columns({"arrival_s": [3.0, 1.0], "duration_s": [1.0, 2.0]})
    assert workload.job(0) == Job("0", 1.0, 2.0)


def test_a_part_starts_its_own_clock():
    part = JobWorkload.of([A, B]).between(3, 6)
    assert (part.arrival_s.tolist(), part.deadline_s.tolist(), part.names) == ([0.0], [35.0], ("b",))


def test_parts_are_shares_of_the_time_between_the_first_arrival_and_the_last():
    workload = JobWorkload.of_columns({"arrival_s": [10.0, 11.0, 15.0, 20.0], "duration_s": [1.0] * 4})
    assert [len(workload.part(*cut)) for cut in ((0, 0.5), (0.5, 1), (0, 1), (0.9, 1))] == [2, 2, 4, 1]
    assert workload.part(0.5, 1).arrival_s.tolist() == [0.0, 5.0]


def test_elastic_jobs_are_timed_by_what_they_train():
    twice = Job("twice", 6, devices=4, least=4, most=4, **{**TERMS, "tokens": 2e6})
    workload = JobWorkload.of([A, E, twice])
    assert workload.trainings == (("m", 8, 128),)
    assert workload.elastic.tolist() == [False, True, True]
    timed = workload.timed({("m", 8, 128): 1e4})
    assert timed.duration_s.tolist() == [3.0, 100.0, 200.0]
    assert timed.job(2) == Job("twice", 6.0, 200.0, devices=4, least=4, most=4, **{**TERMS, "tokens": 2e6})
    for unable in ({}, {("m", 8, 128): 0.0}):
        with pytest.raises(InputError, match="job 'e': model: no plan trains it 8 sequences of 128 tokens a step"):
            workload.timed(unable)


def test_stretching_moves_arrivals_and_keeps_slack():
    workload = JobWorkload.of([A, B]).stretched(2)
    assert (workload.arrival_s.tolist(), workload.deadline_s.tolist()) == ([4.0, 10.0], [np.inf, 45.0])


def test_load_is_work_over_what_the_site_can_do():
    place = site([DevicePool("a", "gpu", 1, 2), DevicePool("a", "cpu", 1, 2, speed=0.5)])
    workload = JobWorkload.of([Job("a", 0, 30), Job("b", 10, 15, devices=2)])
    assert workload.load(place) == pytest.approx(60 / 3 / 10)
    assert JobWorkload.of([A]).load(place) == math.inf
    assert JobWorkload.of([]).load(place) == 0
