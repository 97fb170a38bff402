"""What is next: as the schedule has it, or what is ready; never more in flight, never a deadlock."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hippo.engine.program import BACKWARD, FORWARD, WEIGHT
from hippo.run.executor.step import Order
from hippo.run.work import Operation
from hippo.schedule.schedule import Schedule, order

NAMES = ("gpipe", "1f1b", "zb-h1", "zb-h2")


def operations(schedule: Schedule, rank: int) -> list[Operation]:
    return [(kind, chunk, wave) for kind, chunk, wave in schedule.rank(rank).tolist()]


def new(schedule: Schedule, rank: int, *, free: bool) -> Order:
    limit = schedule.peak_live[rank]
    return Order(operations(schedule, rank), live_limit=limit, free=free, fused=schedule.fused)


@pytest.mark.parametrize("name", NAMES)
def test_fixed_means_the_schedules_order(name: str):
    schedule = order(name, stages=3, micro_batches=5)
    mine = new(schedule, 1, free=False)
    done = []
    while mine:
        operation = mine.next(lambda _: True)
        assert operation is not None
        assert mine.next(lambda each, now=operation: each != now) is None
        mine.did(operation)
        done.append(operation)
    assert done == operations(schedule, 1)


def test_what_is_ready_goes_before_what_is_awaited():
    schedule = order("zb-h1", stages=2, micro_batches=4)
    mine = new(schedule, 0, free=True)
    for expected in ((FORWARD, 0, 0), (FORWARD, 0, 1)):
        assert mine.next(lambda _: True) == expected
        mine.did(expected)
    assert mine.awaited() == (BACKWARD, 0, 0)
    assert mine.next(lambda each: each[0] == FORWARD) is None  # memory holds two
    assert mine.next(lambda each: each[0] != BACKWARD) is None
    mine.did((BACKWARD, 0, 0))
    assert mine.next(lambda each: each[0] == WEIGHT) == (WEIGHT, 0, 0)


def test_the_last_of_a_chunk_is_known():
    schedule = order("interleaved", stages=2, micro_batches=2, chunks=2)
    mine = Order(operations(schedule, 0), live_limit=9, free=False, fused=True)
    last = []
    while mine:
        operation = mine.next(lambda _: True)
        assert operation is not None
        if mine.is_last(operation) and operation[0] == BACKWARD:
            last.append(operation[1])
        mine.did(operation)
    assert sorted(last) == [0, 1]


@given(st.sampled_from(NAMES), st.integers(1, 5), st.integers(1, 8), st.integers(0, 2**32 - 1))
def test_free_workers_end_whatever_the_speed_of_messages(name: str, stages: int, waves: int, seed: int):
    """Workers and messages take turns at random: all work is done once, none holds more than its schedule does."""
    schedule, rng = order(name, stages=stages, micro_batches=waves), np.random.default_rng(seed)
    workers = [new(schedule, rank, free=True) for rank in range(stages)]
    here: list[set[Operation]] = [set() for _ in range(stages)]
    flying: list[tuple[int, Operation]] = []
    live = [0] * stages
    while any(workers):
        choices = [("worker", rank) for rank in range(stages) if workers[rank]] + [
            ("message", i) for i in range(len(flying))
        ]
        rng.shuffle(choices)
        for what, index in choices:
            index = int(index)
            if what == "message":
                rank, key = flying.pop(index)
                here[rank].add(key)
                break
            operation = workers[index].next(lambda each, rank=index: _ready(each, here[rank], rank, stages))
            if operation is not None:
                workers[index].did(operation)
                live[index] += _change(operation, schedule.fused)
                assert live[index] <= schedule.peak_live[index]
                kind, _, wave = operation
                target = index + 1 if kind == FORWARD else index - 1
                if kind != WEIGHT and 0 <= target < stages:
                    flying.append((target, (kind, 0, wave)))
                break
        else:
            raise AssertionError("nobody can go on")


def _ready(operation: Operation, here: set[Operation], rank: int, stages: int) -> bool:
    kind = operation[0]
    local = kind == WEIGHT or (kind == FORWARD and rank == 0) or (kind == BACKWARD and rank == stages - 1)
    return local or operation in here


def _change(operation: Operation, fused: bool) -> int:
    if operation[0] == FORWARD:
        return 1
    return -1 if operation[0] == (BACKWARD if fused else WEIGHT) else 0
