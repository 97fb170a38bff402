"""Courses of a few epochs and configurations, small enough to try every sequence of answers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hippo.network.rules.move import (
    CONFIGURATION,
    EGRESS_USD,
    PHASE,
    STILL,
    STOPPED,
    STREAMING,
    TARGET,
    TOKENS,
    Rollout,
    advance,
    begin_move,
)
from hippo.network.rules.view import Action, How


def tiny_rollout(seed: int, *, epochs: int = 4, places: tuple[int, ...] = (0, 1, 0), dear: bool = False) -> Rollout:
    """A rollout drawn at random: moves of one to three epochs, outages, links that training fills."""
    rng = np.random.default_rng(seed)
    configurations, links, count = len(places), 2, max(places) + 1
    tokens = rng.choice([0.0, 1.0, 4.0, 9.0], size=(epochs, configurations)) * rng.uniform(0.5, 1.5)
    moves = rng.choice([0.0, 40.0, 100.0], size=(count, count, links))
    moves[np.arange(count), np.arange(count)] = 0.0
    if rng.random() < 0.2:
        moves[0, count - 1] = np.inf
    return Rollout(
        epoch_s=10.0,
        restart_s=float(rng.choice([0.0, 3.0, 12.0])),
        shadow_share=0.125,
        tokens_per_step=10.0,
        tokens_per_s=tokens,
        egress_usd_per_s=tokens * rng.uniform(0.0, 4.0 if dear else 0.2, size=configurations),
        utilization=rng.uniform(size=(epochs, configurations)),
        bandwidth_bytes_per_s=rng.choice([0.0, 5.0, 20.0, 90.0], size=(epochs, links)),
        bytes_per_step=rng.choice([0.0, 10.0, 30.0], size=(configurations, links)),
        usd_per_byte=rng.choice([0.0, 0.02], size=links),
        place=np.array(places),
        move_bytes=moves,
    )


def allowed(rollout: Rollout, state: np.ndarray) -> Iterator[Action]:
    """Every answer that the rules allow in this state of a run."""
    yield Action()
    if state[PHASE] != STILL:
        yield Action(How.CANCEL)
        return
    now = state[CONFIGURATION]
    for target in range(len(rollout.place)):
        if rollout.place[target] == rollout.place[now]:
            if target != now:
                yield Action(How.SWITCH, target)
        elif np.isfinite(rollout.move_bytes[rollout.place[now], rollout.place[target]]).all():
            yield Action(How.STOP, target)
            yield Action(How.BACKGROUND, target)


def carry_out(rollout: Rollout, state: np.ndarray, remaining: np.ndarray, action: Action) -> None:
    """What an answer does to the state of a run."""
    if action.how is How.CANCEL:
        state[TARGET], state[PHASE] = -1, STILL
    elif action.how is How.SWITCH:
        state[CONFIGURATION] = action.target
    elif action.how is not How.KEEP:
        begin_move(rollout, state, remaining, action.target, STOPPED if action.how is How.STOP else STREAMING)


def most(rollout: Rollout, usd_per_token: float, epoch: int, state: np.ndarray, remaining: np.ndarray) -> float:
    """The most net work of any sequence of allowed answers, by trying them all."""
    if epoch == len(rollout.tokens_per_s):
        return 0.0
    return max(
        after(rollout, usd_per_token, epoch, state, remaining, action) for action in list(allowed(rollout, state))
    )


def after(
    rollout: Rollout, usd_per_token: float, epoch: int, state: np.ndarray, remaining: np.ndarray, action: Action
) -> float:
    """The most after this answer."""
    state, remaining, gave = state.copy(), remaining.copy(), np.zeros(5)
    carry_out(rollout, state, remaining, action)
    advance(rollout, epoch, state, remaining, gave)
    work = gave[TOKENS] - gave[EGRESS_USD] / usd_per_token
    return float(work + most(rollout, usd_per_token, epoch + 1, state, remaining))
