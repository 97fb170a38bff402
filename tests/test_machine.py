"""Work shared out to processes: in full, and ended at once where nobody wants it any more."""

from __future__ import annotations

import time
from multiprocessing import active_children
from multiprocessing.connection import wait

import pytest

from hippo.machine import available_bytes, shared_out


def doubled(task: int) -> int:
    return 2 * task


def endless_but_for_the_first(task: int) -> int:
    while task:
        time.sleep(600.0)
    return task


@pytest.mark.parametrize("processes", [1, 2])
def test_every_task_is_done_once(processes: int):
    assert sorted(shared_out(doubled, [3, 1, 2], processes)) == [(0, 6), (1, 2), (2, 4)]


def test_who_stops_taking_results_ends_the_processes_at_once():
    before = set(active_children())
    results = shared_out(endless_but_for_the_first, [0, 1, 2, 3], 2)
    assert next(results) == (0, 0)
    workers = set(active_children()) - before
    assert len(workers) == 2
    with pytest.raises(KeyboardInterrupt):
        results.throw(KeyboardInterrupt())
    for each in workers:  # they have no end of their own; who asks for their exit codes would race with the pool
        assert wait([each.sentinel], timeout=600.0)


def test_memory_is_told_or_unknown():
    told = available_bytes()
    assert told is None or told > 0
