"""The learned policy's state behind a table of addresses."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from hippo.compiling import kernel
from hippo.jobs.learned.handle import LEAVES, WIDTH, held, opened, state_of
from hippo.jobs.learned.memory import LearnedSetup
from hippo.jobs.workload import Workload


def _workload() -> Workload:
    return Workload.of_columns({"arrival_s": np.arange(5.0), "duration_s": np.full(5, 9.0), "devices": [1, 2, 4, 8, 1]})


@kernel(lean=True)
def _look(table, found):  # type: ignore[no-untyped-def]
    state = opened(table)
    state.push[3] = 7.5
    state.history.level[2] += 4
    found[0], found[1], found[2] = state.capacity[0], state.log_devices[2], state.due.gap.shape[0]
    found[3] = state.due.gap[4] + state.weights[0].shape[0]


def test_kernels_see_and_change_the_state_itself() -> None:
    state = LearnedSetup().begin(_workload(), 320)
    state.due.gap[4] = 0.25
    found = np.zeros(4)
    _look(held(state), found)
    assert found.tolist() == [320.0, 2.0, len(state.due.gap), 0.25 + len(state.weights[0])]
    assert state.push[3] == 7.5
    assert state.history.level[2] == 4


def test_a_state_lives_as_long_as_its_table() -> None:
    table = held(LearnedSetup().begin(_workload(), 320))
    gc.collect()
    assert table.shape == (len(LEAVES), WIDTH)
    assert state_of(table).capacity[0] == 320
    other = held(state_of(table))
    del table
    gc.collect()
    assert state_of(other).capacity[0] == 320


def test_heuristics_have_none() -> None:
    table = held(None)
    assert table.shape == (0, WIDTH)
    with pytest.raises(KeyError):
        state_of(table)
