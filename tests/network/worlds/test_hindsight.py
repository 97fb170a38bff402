"""Hindsight against every sequence of allowed answers, on worlds small enough to try them all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.network.tiny import after, allowed, carry_out, most, tiny_rollout

from hippo.network.rules.move import BUSY_S, EGRESS_USD, STILL, TOKENS, Rollout, advance
from hippo.network.rules.view import Action, How
from hippo.network.worlds.hindsight import Taste, hindsight

USD_PER_TOKEN = 0.5


def begun(rollout: Rollout, configuration: int) -> tuple[np.ndarray, np.ndarray]:
    return np.array([configuration, -1, STILL]), np.zeros(rollout.move_bytes.shape[2] + 1)


def played(rollout: Rollout, path: tuple[Action, ...]) -> np.ndarray:
    """What a sequence of answers gives, (5,); each must be allowed."""
    state, remaining = begun(rollout, path[0].target)
    total, gave = np.zeros(5), np.zeros(5)
    for epoch, action in enumerate(path):
        if epoch > 0:
            assert action in list(allowed(rollout, state))
            carry_out(rollout, state, remaining, action)
        advance(rollout, epoch, state, remaining, gave)
        total += gave
    return total


@pytest.mark.parametrize("dear", [False, True])  # True: some configurations lose by training
@pytest.mark.parametrize("seed", range(25))
def test_every_value_is_the_best_of_all_sequences(seed: int, dear: bool) -> None:
    rollout = tiny_rollout(seed, dear=dear)
    found = hindsight(rollout, USD_PER_TOKEN)
    for configuration in range(len(rollout.place)):
        expected = most(rollout, USD_PER_TOKEN, 0, *begun(rollout, configuration))
        assert found.value[0, configuration] == pytest.approx(expected, abs=1e-9)
    free = [after(rollout, USD_PER_TOKEN, 0, *begun(rollout, each), Action()) for each in range(len(rollout.place))]
    assert found.work == pytest.approx(max(free), abs=1e-9)


@given(st.integers(0, 10**6), st.booleans(), st.data())
def test_no_sequence_of_allowed_answers_beats_it(seed: int, dear: bool, data: st.DataObject) -> None:
    rollout = tiny_rollout(seed, epochs=12, places=(0, 1, 2, 0, 1), dear=dear)
    begin = data.draw(st.integers(0, 4))
    state, remaining = begun(rollout, begin)
    gave, work = np.zeros(5), 0.0
    for epoch in range(12):
        if epoch > 0:
            carry_out(rollout, state, remaining, data.draw(st.sampled_from(list(allowed(rollout, state)))))
        advance(rollout, epoch, state, remaining, gave)
        work += gave[TOKENS] - gave[EGRESS_USD] / USD_PER_TOKEN
    assert work <= hindsight(rollout, USD_PER_TOKEN, begin=begin).work + 1e-9
    assert work <= hindsight(rollout, USD_PER_TOKEN).work + 1e-9


@given(st.integers(0, 10**6), st.booleans())
def test_its_path_is_allowed_and_gives_what_it_says(seed: int, dear: bool) -> None:
    rollout = tiny_rollout(seed, epochs=15, places=(0, 1, 2, 0, 1), dear=dear)
    found = hindsight(rollout, USD_PER_TOKEN)
    gave = played(rollout, found.path)
    assert gave[TOKENS] - gave[EGRESS_USD] / USD_PER_TOKEN == pytest.approx(found.work, abs=1e-9)


def test_other_tastes_are_searched_as_well() -> None:
    rollout = tiny_rollout(3, epochs=15, places=(0, 1, 2, 0, 1))
    busy = hindsight(rollout, USD_PER_TOKEN, taste=Taste(token=0.0, busy_s=1.0))
    assert played(rollout, busy.path)[BUSY_S] == pytest.approx(busy.work)
    assert busy.work > played(rollout, hindsight(rollout, USD_PER_TOKEN).path)[BUSY_S]


def test_a_lasting_change_is_met_with_a_move_and_a_short_one_is_sat_out() -> None:
    still = Rollout(
        epoch_s=10.0,
        restart_s=1.0,
        shadow_share=0.125,
        tokens_per_step=10.0,
        tokens_per_s=np.repeat([[4.0, 3.0], [1.0, 3.0]], [5, 15], axis=0),
        egress_usd_per_s=np.zeros((20, 2)),
        utilization=np.ones((20, 2)),
        bandwidth_bytes_per_s=np.full((20, 1), 10.0),
        bytes_per_step=np.array([[0.0], [0.0]]),
        usd_per_byte=np.zeros(1),
        place=np.array([0, 1]),
        move_bytes=np.array([[[0.0], [200.0]], [[200.0], [0.0]]]),  # 20 s
    )
    lasting = hindsight(still, 1.0, begin=0)
    assert [each.how for each in lasting.path if each.how is not How.KEEP] == [How.SWITCH, How.BACKGROUND]
    rates = np.repeat([[4.0, 3.0], [1.0, 3.0], [4.0, 3.0]], [5, 1, 14], axis=0)
    assert all(each.how is How.KEEP for each in hindsight(still._replace(tokens_per_s=rates), 1.0).path[1:])
