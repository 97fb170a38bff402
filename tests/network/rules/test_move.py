"""A world of one link and two placements in which every epoch can be worked out by hand.

Epochs of 10 s, restart 4 s, one optimizer step trains 10 tokens. Configuration 0 trains 2 tokens/s at place 0, 1 trains
5 at place 1, 2 is a lever of place 0. To move from place 0 to 1 the link carries 100 bytes, at 20 bytes/s; gradients
are an eighth of that. A byte costs 0.01 USD.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hippo.network.rules.move import (
    BUSY_S,
    CONFIGURATION,
    DOWNTIME_S,
    EGRESS_USD,
    MOVED_BYTES,
    PHASE,
    STILL,
    STOPPED,
    STREAMING,
    TOKENS,
    Rollout,
    advance,
    begin_move,
)


def rollout(*, bandwidth: float = 20.0, sent: float = 0.0, epochs: int = 40) -> Rollout:
    return Rollout(
        epoch_s=10.0,
        restart_s=4.0,
        shadow_share=0.125,
        tokens_per_step=10.0,
        tokens_per_s=np.tile([2.0, 5.0, 3.0], (epochs, 1)),
        egress_usd_per_s=np.tile([0.1, 0.0, 0.2], (epochs, 1)),
        utilization=np.tile([0.5, 0.9, 0.6], (epochs, 1)),
        bandwidth_bytes_per_s=np.full((epochs, 1), bandwidth),
        bytes_per_step=np.array([[sent], [0.0], [sent]]),
        usd_per_byte=np.array([0.01]),
        place=np.array([0, 1, 0]),
        move_bytes=np.array([[[0.0], [100.0]], [[100.0], [0.0]]]),
    )


def run(world: Rollout, epochs: int, *, phase: int = STILL, target: int = -1) -> tuple[np.ndarray, np.ndarray]:
    state, remaining = np.array([0, -1, STILL]), np.zeros(2)
    if target >= 0:
        begin_move(world, state, remaining, target, phase)
    gave = np.zeros((epochs, 5))
    for epoch in range(epochs):
        advance(world, epoch, state, remaining, gave[epoch])
    return state, gave


def test_an_epoch_without_a_move_trains_what_runs() -> None:
    _, gave = run(rollout(), 1)
    assert gave[0].tolist() == [20.0, 1.0, 0.0, 0.0, 5.0]


def test_training_stands_still_until_the_bytes_are_there_and_the_new_plan_has_the_rest() -> None:
    state, gave = run(rollout(), 1, phase=STOPPED, target=1)  # 100 bytes at 20 bytes/s: 5 s, the restart beside it
    assert gave[0].tolist() == pytest.approx([25.0, 1.0, 100.0, 5.0, 4.5])
    assert state.tolist() == [1, -1, STILL]


def test_the_restart_counts_where_it_takes_longer_than_the_copy() -> None:
    _, gave = run(rollout(bandwidth=1000.0), 1, phase=STOPPED, target=1)
    assert gave[0, DOWNTIME_S] == pytest.approx(4.0)
    assert gave[0, TOKENS] == pytest.approx(30.0)


def test_a_copy_over_several_epochs_pays_for_each_byte_once() -> None:
    state, gave = run(rollout(bandwidth=4.0), 3, phase=STOPPED, target=1)  # 25 s
    assert gave[:, DOWNTIME_S].tolist() == pytest.approx([10.0, 10.0, 5.0])
    assert gave[:, TOKENS].tolist() == pytest.approx([0.0, 0.0, 25.0])
    assert gave[:, MOVED_BYTES].sum() == pytest.approx(100.0)
    assert gave[:, EGRESS_USD].sum() == pytest.approx(1.0)
    assert state[CONFIGURATION] == 1


def test_a_copy_waits_for_a_link_that_is_down() -> None:
    world = rollout()
    world.bandwidth_bytes_per_s[:2] = 0.0
    state, gave = run(world, 3, phase=STOPPED, target=1)
    assert gave[:, DOWNTIME_S].tolist() == pytest.approx([10.0, 10.0, 5.0])
    assert state[PHASE] == STILL


def test_in_the_background_training_goes_on_and_pays_for_its_shadow() -> None:
    # 5 s of streaming (nothing has arrived at the start of the epoch: no shadow yet), then 12.5 bytes of gradients and
    # the restart of 4 s at a standstill, then 1 s of the new plan
    state, gave = run(rollout(), 1, phase=STREAMING, target=1)
    assert gave[0, TOKENS] == pytest.approx(5 * 2.0 + 1 * 5.0)
    assert gave[0, DOWNTIME_S] == pytest.approx(4.0)
    assert gave[0, MOVED_BYTES] == pytest.approx(112.5)
    assert gave[0, EGRESS_USD] == pytest.approx(5 * 0.1 + 1.125)
    assert gave[0, BUSY_S] == pytest.approx(5 * 0.5 + 1 * 0.9)
    assert state.tolist() == [1, -1, STILL]


def test_the_background_gets_what_training_leaves() -> None:
    # 0.2 steps/s send 60 bytes each: 12 of 20 bytes/s are taken, 8 are left: 80 bytes in the first epoch; then shadows
    # of 80 % of the layers take 0.8 * 12.5 * 0.2 = 2 of the 8, 20 bytes are left: 20 / 6 s
    state, gave = run(rollout(sent=60.0), 2, phase=STREAMING, target=1)
    assert gave[0, MOVED_BYTES] == pytest.approx(80.0)
    assert gave[0, DOWNTIME_S] == 0.0
    assert gave[1, DOWNTIME_S] == pytest.approx(4.0)
    assert gave[1, TOKENS] == pytest.approx(2.0 * 20 / 6 + 5.0 * (10 - 20 / 6 - 4))
    assert gave[1, MOVED_BYTES] == pytest.approx(20 + 2 * 20 / 6 + 12.5)
    assert state[CONFIGURATION] == 1


def test_a_full_link_never_lets_the_background_through() -> None:
    state, gave = run(rollout(sent=100.0), 5, phase=STREAMING, target=1)
    assert gave[:, MOVED_BYTES].sum() == 0.0
    assert gave[:, TOKENS].tolist() == [20.0] * 5
    assert state.tolist() == [0, 1, STREAMING]


def test_what_cannot_be_kept_in_step_is_sent_once_more() -> None:
    # 80 bytes arrive in the first epoch; then the link has 13 bytes/s, training takes 12, and the shadow of what has
    # arrived wants 2: one is missing, so 10 bytes an epoch fall out of step
    world = rollout(sent=60.0)
    world.bandwidth_bytes_per_s[1:] = 13.0
    state, gave = run(world, 2, phase=STREAMING, target=1)
    assert gave[1, MOVED_BYTES] == pytest.approx(10.0)
    assert state[PHASE] == STREAMING
    later = run(world, 30, phase=STREAMING, target=1)[1]
    assert later[:, MOVED_BYTES].sum() <= 80.0 + 29 * 10.0 + 1e-6


@given(
    bandwidth=st.floats(0.5, 200.0),
    sent=st.floats(0.0, 120.0),
    phase=st.sampled_from([STOPPED, STREAMING]),
)
def test_time_is_spent_once_and_bytes_arrive_whole(bandwidth: float, sent: float, phase: int) -> None:
    state, gave = run(rollout(bandwidth=bandwidth, sent=sent), 40, phase=phase, target=1)
    old, new = gave[:, TOKENS].sum(), gave[:, DOWNTIME_S].sum()
    assert 0.0 <= new <= 400.0
    assert old <= 5.0 * (400.0 - new) + 1e-6
    if state[CONFIGURATION] == 1:
        assert gave[:, MOVED_BYTES].sum() >= 100.0 - 1e-6
        assert gave[:, EGRESS_USD].sum() >= 0.01 * 100.0 - 1e-9
    else:
        assert gave[:, MOVED_BYTES].sum() <= 100.0 * (1 + 0.125 * 0.2 * 400)
