"""What an answer would give if the network went as forecast: the run played on with the same rules as the real one.

The rates of a few configurations at the horizons of the forecast are joined by straight lines, beyond the last they
stay; then ``network.rules.move.advance`` plays every answer to the end of the run (at most ``LONGEST`` epochs). So the
judgement of an answer and what becomes of it differ in the forecast alone.

Letters: T epochs ahead, H horizons, E links, C configurations in question, P placements among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.network.rules.move import (
    BUSY_S,
    CONFIGURATION,
    DOWNTIME_S,
    EGRESS_USD,
    GRADIENT_BYTES,
    MOVED_BYTES,
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
from hippo.network.rules.view import Action, How, View

Floats = NDArray[np.float64]
LONGEST = 1024
"""Epochs ahead that are played: sixteen times the last horizon, beyond which nothing is known that differs."""


@dataclass(frozen=True)
class Expected:
    """What an answer gives over the epochs ahead, if the network goes as forecast."""

    tokens: float
    egress_usd: float
    moved_bytes: float
    downtime_s: float
    busy_s: float  # utilisation of the domains in use, integrated
    move_s: float  # until the last move is done; 0: there is none; inf: not within the epochs ahead
    seconds: float  # played
    usd_per_token: float

    @property
    def net_tokens(self) -> float:
        """Work: tokens less egress in tokens."""
        return self.tokens - (self.egress_usd / self.usd_per_token if self.usd_per_token > 0 else 0.0)


@dataclass(frozen=True, eq=False)
class Outlook:
    """Some configurations under the forecast; ``indices`` are theirs in the cache."""

    view: View
    indices: tuple[int, ...]
    rollout: Rollout

    def play(self, action: Action) -> Expected:
        """What the run gives from now on if this answer is given and nothing is changed after it."""
        state, remaining = self._begin(action)
        rollout, total, moving = self.rollout, np.zeros(5), state[PHASE] != STILL
        arrives = _go_on(rollout, state, remaining, total)
        move_s = arrives * rollout.epoch_s if moving else 0.0
        return Expected(
            tokens=float(total[TOKENS]),
            egress_usd=float(total[EGRESS_USD]),
            moved_bytes=float(total[MOVED_BYTES]),
            downtime_s=float(total[DOWNTIME_S]),
            busy_s=float(total[BUSY_S]),
            move_s=move_s,
            seconds=len(rollout.tokens_per_s) * rollout.epoch_s,
            usd_per_token=self.view.usd_per_token,
        )

    def rates(self, index: int) -> Floats:
        """Tokens/s of a configuration of the cache at every epoch ahead, (T,)."""
        found: Floats = self.rollout.tokens_per_s[:, self.indices.index(index)]
        return found

    def net_now(self, index: int) -> float:
        """Net tokens/s of a configuration of the cache now."""
        rollout, column = self.rollout, self.indices.index(index)
        egress = rollout.egress_usd_per_s[0, column]
        price = self.view.usd_per_token
        return float(rollout.tokens_per_s[0, column] - (egress / price if price > 0 else 0.0))

    def _begin(self, action: Action) -> tuple[NDArray[np.int64], Floats]:
        """The state of the run once the answer is given, and what its move still has to carry."""
        view, rollout = self.view, self.rollout
        local = {index: place for place, index in enumerate(self.indices)}
        state = np.array([local.get(view.running, -1), local.get(view.target, -1), view.phase], dtype=np.int64)
        remaining = np.zeros(len(rollout.usd_per_byte) + 1)
        if view.running < 0:
            state[:] = local[action.target], -1, STILL
        elif view.phase != STILL and action.how is How.CANCEL:
            state[TARGET], state[PHASE] = -1, STILL
        elif view.phase != STILL:
            begin_move(rollout, state, remaining, state[TARGET], view.phase)
            remaining[:-1] *= 1.0 - view.arrived
        elif action.how is How.SWITCH:
            state[CONFIGURATION] = local[action.target]
        elif action.how in (How.STOP, How.BACKGROUND):
            phase = STOPPED if action.how is How.STOP else STREAMING
            begin_move(rollout, state, remaining, local[action.target], phase)
        return state, remaining


def outlook(view: View, indices: Sequence[int], *, tilt: Floats | None = None) -> Outlook:
    """The outlook of these configurations of the cache (what runs, and what it moves to, always among them).

    ``tilt`` (E,): standard deviations by which each link does better (or worse) than forecast.
    """
    wanted = dict.fromkeys(index for index in (view.running, view.target, *indices) if index >= 0)
    chosen, ahead, cache = tuple(wanted), min(view.epochs_left, LONGEST), view.cache
    forecast = view.forecast
    bandwidth = forecast.bandwidth_bytes_per_s
    if tilt is not None:
        bandwidth = bandwidth * np.exp(np.clip(forecast.sd * tilt, -3.0, 3.0))
    seconds = [cache.step_time_s(index, bandwidth, forecast.latency_s, forecast.compute) for index in chosen]
    steps = _joined(forecast.horizons, 1.0 / np.stack(seconds, axis=1), ahead)  # (T, C) per second
    worth = np.array([cache.configurations[index].worth for index in chosen])
    slower = np.stack([forecast.compute[:, cache.domains_used(index)].mean(axis=1) for index in chosen], axis=1)
    busy = np.array([cache.busy_share_s(index) for index in chosen]) * _joined(forecast.horizons, slower, ahead)
    sent = np.stack([cache.bytes_per_step(index) for index in chosen])
    places = list(dict.fromkeys(cache.configurations[index].place for index in chosen))
    moves = np.array([[cache.move_bytes(one, other) for other in places] for one in places])
    rollout = Rollout(
        epoch_s=float(view.epoch_s),
        restart_s=float(view.restart_s),
        shadow_share=GRADIENT_BYTES / float(cache.problem.workload.state_bytes_per_parameter),
        tokens_per_step=cache.tokens_per_step,
        tokens_per_s=np.ascontiguousarray(steps * cache.tokens_per_step * worth),
        egress_usd_per_s=np.ascontiguousarray(steps * (sent @ cache.usd_per_byte)),
        utilization=np.ascontiguousarray(np.minimum(1.0, steps * busy)),
        bandwidth_bytes_per_s=np.ascontiguousarray(_joined(forecast.horizons, bandwidth, ahead)),
        bytes_per_step=sent,
        usd_per_byte=cache.usd_per_byte,
        place=np.array([places.index(cache.configurations[index].place) for index in chosen], dtype=np.int64),
        move_bytes=moves,
    )
    return Outlook(view, chosen, rollout)


@kernel
def _go_on(rollout, state, remaining, total):  # type: ignore[no-untyped-def]
    """Plays all epochs ahead and sums what they give; epochs until the move under way is done, inf: it is not."""
    gave, arrives = np.zeros(5), np.inf
    for epoch in range(len(rollout.tokens_per_s)):
        advance(rollout, epoch, state, remaining, gave)
        total += gave
        if arrives == np.inf and state[PHASE] == STILL:
            arrives = epoch + 1.0
    return arrives


def _joined(horizons: NDArray[np.int64], values: Floats, epochs: int) -> Floats:
    """Values at the horizons, (H, n), joined by straight lines over the epochs ahead, (T, n)."""
    ahead = np.arange(epochs)
    if len(horizons) < 2 or not np.isfinite(values).all():
        return np.stack([np.interp(ahead, horizons, column) for column in values.T], axis=1)
    low = np.searchsorted(horizons[1:-1], ahead, side="right")  # of the two horizons on either side
    slope = np.diff(values, axis=0) / np.diff(horizons)[:, None]
    past = np.clip(ahead, horizons[0], horizons[-1]) - horizons[low]
    found: Floats = slope[low] * past[:, None] + values[low]
    found[ahead >= horizons[-1]] = values[-1]
    return found
