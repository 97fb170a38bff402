"""What is remembered: the same numbers as if played, states of epochs to come played together, one program a plan."""

from __future__ import annotations

from typing import Any

import numpy as np

from hippo.network.plans.plan_cache import TOGETHER, PlayedSteps

EPOCHS, HORIZONS, LINKS = 40, 3, 2


def states() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    return rng.random((EPOCHS, HORIZONS, LINKS)), rng.random((EPOCHS, HORIZONS, LINKS)), np.ones((EPOCHS, HORIZONS, 1))


class Player:
    """Adds states up, and counts how often it is asked."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    def __call__(self, bandwidth: Any, latency: Any, compute: Any) -> Any:
        self.calls.append(len(bandwidth))
        return bandwidth.sum(axis=1) + latency.sum(axis=1)


def test_epochs_to_come_are_played_together() -> None:
    played, player, program = PlayedSteps(), Player(), object()
    told = states()
    played.expect(*told)
    for epoch in range(EPOCHS):
        for rows in (HORIZONS, 1):
            bandwidth, latency, compute = (each[epoch, :rows] for each in told)
            found = played.seconds(program, (bandwidth, latency, compute), player)  # type: ignore[arg-type]
            assert (found == bandwidth.sum(axis=1) + latency.sum(axis=1)).all()
    assert max(player.calls) == TOGETHER * HORIZONS
    assert sum(player.calls) == EPOCHS * (HORIZONS + 1)  # nothing twice
    assert len(player.calls) < 12


def test_other_states_are_played_as_they_come() -> None:
    played, player, program = PlayedSteps(), Player(), object()
    played.expect(*states())
    one = np.ones((2, LINKS))
    for _ in range(2):
        assert (played.seconds(program, (one, one.copy(), None), player) == 2 * LINKS).all()  # type: ignore[arg-type]
    assert player.calls == [2]
    played.seconds(object(), (one, one.copy(), None), player)  # type: ignore[arg-type]
    assert player.calls == [2, 2]


def test_what_was_told_is_nobodys_to_change() -> None:
    played, player, program = PlayedSteps(), Player(), object()
    one = np.ones((1, LINKS))
    played.seconds(program, (one, one, None), player)[:] = 0.0  # type: ignore[arg-type]
    assert played.seconds(program, (one, one, None), player)[0] == 2 * LINKS  # type: ignore[arg-type]


def test_a_plan_is_lowered_once() -> None:
    played, plan = PlayedSteps(), object()
    first = played.program(plan, lambda _: object())  # type: ignore[arg-type,return-value]
    assert played.program(plan, lambda _: None) is first  # type: ignore[arg-type]
