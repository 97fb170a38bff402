"""The tables of the past, by hand, and what a class may know."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hippo.jobs.learned.past import BINS, EDGES_S, SOURCES, empty_history, recall, size_class

FOREVER = np.ones(len(SOURCES))
ALL, USER, BATCH = SOURCES.index("all"), SOURCES.index("user"), SOURCES.index("batch")


def of(arrival_s: list[float], user: list[int], devices: list[int]):
    return empty_history(np.array(arrival_s, float), np.array(user), np.array(devices), 2)


def test_sizes_fall_into_powers_of_two():
    assert size_class(np.array([1, 2, 3, 4, 5, 8, 9, 16, 17, 500])).tolist() == [0, 1, 2, 2, 3, 3, 4, 4, 5, 5]


def test_a_batch_is_of_one_user_and_size_and_close_together():
    history = of([0, 60, 61, 62, 400], [0, 0, 1, 0, 0], [1, 1, 1, 2, 1])
    batch = history.row[:, BATCH]
    assert batch[0] == batch[1]
    assert len(set(batch.tolist())) == 4


def test_one_that_ended_and_one_that_still_runs():
    """At 100 s: the first ended after 12 s (second bin), the other has run 90 s, past seven edges."""
    history = of([0, 10], [0, 1], [1, 1])
    recall(history, np.array([0, 1]), np.array([0.0, 10.0]), np.array([12.0, 500.0]), 100.0, FOREVER)
    deaths, exposed = history.deaths[history.row[0, ALL]], history.exposed[history.row[0, ALL]]
    assert deaths.tolist() == [0.0, 1.0, *[0.0] * (BINS - 2)]
    assert exposed.tolist() == [2.0, 2.0, *[1.0] * 5, *[0.0] * (BINS - 7)]
    assert EDGES_S[6] < 90.0 < EDGES_S[7]
    assert history.deaths[history.row[1, USER]].sum() == 0.0


def test_the_past_fades_when_jobs_end():
    history = of([0, 500], [0, 0], [1, 1])
    recall(history, np.array([0, 1]), np.array([0.0, 500.0]), np.array([5.0, 5.0]), 1e6, np.full(len(SOURCES), 0.5))
    assert history.deaths[history.row[0, ALL], 0] == 1.5
    assert history.exposed[history.row[0, ALL], 0] == 1.5


@given(
    st.lists(st.tuples(st.floats(0, 1000), st.integers(0, 1), st.sampled_from([1, 2, 8])), min_size=2, max_size=30),
    st.data(),
)
def test_classes_of_a_job_depend_on_earlier_jobs_alone(jobs: list[tuple[float, int, int]], data: st.DataObject):
    jobs = sorted(jobs, key=lambda job: job[0])
    cut = data.draw(st.integers(1, len(jobs)))
    whole, part = (of(*map(list, zip(*chosen, strict=True))) for chosen in (jobs, jobs[:cut]))
    assert whole.row[:cut].tolist() == part.row.tolist()
    assert whole.place[:cut].tolist() == part.place.tolist()
