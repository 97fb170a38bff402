"""A run over a moving network, epoch by epoch: what it trains, what it sends, and what a move of layers costs.

One rule for everyone: the environment steps with it, perfect hindsight searches over it, and every method is
judged by it, so that no two of them can disagree about what would have happened.

* Without a move an epoch trains ``tokens_per_s`` of its configuration (0: a link that it needs is down).
* *Stop and copy*: training stands still until every link has carried its bytes at its bandwidth of the moment and the
  processes have started anew (``restart_s``, at the same time); the rest of that epoch runs the new configuration.
* *In the background*: training goes on as it was; the bytes take what training leaves of each link. What has arrived
  is kept in step by gradients (``shadow_share`` of its bytes per optimizer step), which take their part of the idle
  capacity and are paid for; where that is too little, what is out of step has to be sent once more. Once everything is
  there, training stands still for the last gradients and the restart.
* While a move is under way nothing else can be changed; it may be cancelled, and what it sent is lost.

Letters: T epochs, C configurations, P places of weights, E links as in ``cluster.links``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

GRADIENT_BYTES = 2.0  # of a parameter, sent to its shadow at every step (bf16)
STILL, STOPPED, STREAMING = 0, 1, 2
"""Phases of a run: no move, training stands still for one, one goes on in the background."""

CONFIGURATION, TARGET, PHASE = range(3)
"""Places in the state of a run, (3,) integers: what runs, what it moves to (-1: nothing), the phase."""

TOKENS, EGRESS_USD, MOVED_BYTES, DOWNTIME_S, BUSY_S = range(5)
"""Places in what an epoch gave, (5,): ``EGRESS_USD`` of training and moves together; ``BUSY_S`` is the utilisation of
the domains in use integrated over the epoch."""


class Rollout(NamedTuple):
    """What each configuration would do at each epoch, and what lies between them."""

    epoch_s: float
    restart_s: float
    shadow_share: float  # gradient bytes of a step over the bytes a move carries
    tokens_per_step: float
    tokens_per_s: Floats  # (T, C)
    egress_usd_per_s: Floats  # (T, C)
    utilization: Floats  # (T, C)
    bandwidth_bytes_per_s: Floats  # (T, E)
    bytes_per_step: Floats  # (C, E) that training sends
    usd_per_byte: Floats  # (E,)
    place: Ints  # (C,) where the weights of a configuration lie
    move_bytes: Floats  # (P, P, E); inf on every link: there is no way


@kernel(lean=True)
def begin_move(rollout, state, remaining, target, phase):  # type: ignore[no-untyped-def]
    """The run sets out for ``target`` in ``phase`` (STOPPED or STREAMING).

    ``remaining`` (E + 1,): bytes each link still has to carry, then the seconds of the restart.
    """
    source, destination = rollout.place[state[CONFIGURATION]], rollout.place[target]
    state[TARGET], state[PHASE] = target, phase
    for link in range(rollout.move_bytes.shape[2]):
        remaining[link] = rollout.move_bytes[source, destination, link]
    remaining[-1] = rollout.restart_s


@kernel(lean=True)
def advance(rollout, epoch, state, remaining, gave):  # type: ignore[no-untyped-def]
    """One epoch of a run; ``state`` and ``remaining`` become those of its end, ``gave`` (5,) says what it gave."""
    gave[:] = 0.0
    left = rollout.epoch_s
    while left > 0.0:
        if state[PHASE] == STILL:
            _train(rollout, epoch, state[CONFIGURATION], left, gave)
            left = 0.0
        elif state[PHASE] == STOPPED:
            left -= _copy(rollout, epoch, state, remaining, left, gave)
        else:
            left -= _stream(rollout, epoch, state, remaining, left, gave)


@kernel(lean=True)
def _train(rollout, epoch, configuration, seconds, gave):  # type: ignore[no-untyped-def]
    """Training alone for so many seconds."""
    gave[TOKENS] += rollout.tokens_per_s[epoch, configuration] * seconds
    gave[EGRESS_USD] += rollout.egress_usd_per_s[epoch, configuration] * seconds
    gave[BUSY_S] += rollout.utilization[epoch, configuration] * seconds


@kernel(lean=True)
def _copy(rollout, epoch, state, remaining, most, gave):  # type: ignore[no-untyped-def]
    """Seconds (at most ``most``) during which training stands still for a move."""
    need = remaining[-1]
    for link in range(len(remaining) - 1):
        if remaining[link] > 0.0:
            need = max(need, remaining[link] / rollout.bandwidth_bytes_per_s[epoch, link])
    seconds = min(most, need)
    for link in range(len(remaining) - 1):
        if remaining[link] > 0.0:
            sent = min(remaining[link], rollout.bandwidth_bytes_per_s[epoch, link] * seconds)
            remaining[link] -= sent
            gave[MOVED_BYTES] += sent
            gave[EGRESS_USD] += sent * rollout.usd_per_byte[link]
    remaining[-1] = max(0.0, remaining[-1] - seconds)
    gave[DOWNTIME_S] += seconds
    if need <= most:
        state[CONFIGURATION], state[TARGET], state[PHASE] = state[TARGET], -1, STILL
    return seconds


@kernel(lean=True)
def _stream(rollout, epoch, state, remaining, most, gave):  # type: ignore[no-untyped-def]
    """Seconds (at most ``most``) of training during which a move streams over what is left of the links."""
    now = state[CONFIGURATION]
    source, destination = rollout.place[now], rollout.place[state[TARGET]]
    steps_per_s = rollout.tokens_per_s[epoch, now] / rollout.tokens_per_step
    need = 0.0
    for link in range(len(remaining) - 1):
        if remaining[link] > 0.0:
            idle = _idle(rollout, epoch, link, now, source, destination, remaining[link], steps_per_s)
            need = max(need, remaining[link] / idle if idle > 0.0 else np.inf)
    seconds = min(most, need)
    _train(rollout, epoch, now, seconds, gave)
    for link in range(len(remaining) - 1):
        total = rollout.move_bytes[source, destination, link]
        if total > 0.0:
            idle = _idle(rollout, epoch, link, now, source, destination, remaining[link], steps_per_s)
            wanted = total * rollout.shadow_share * (1.0 - remaining[link] / total) * steps_per_s
            shadow = min(wanted, max(0.0, idle + wanted)) * seconds
            sent = min(remaining[link], max(0.0, idle) * seconds)
            remaining[link] = min(total, remaining[link] - sent + wanted * seconds - shadow)
            gave[MOVED_BYTES] += sent + shadow
            gave[EGRESS_USD] += (sent + shadow) * rollout.usd_per_byte[link]
    if need <= most:
        state[PHASE] = STOPPED
        for link in range(len(remaining) - 1):
            remaining[link] = rollout.move_bytes[source, destination, link] * rollout.shadow_share
    return seconds


@kernel(lean=True)
def _idle(rollout, epoch, link, now, source, destination, remaining, steps_per_s):  # type: ignore[no-untyped-def]
    """Bytes/s that training and the shadows of what has arrived leave of a link."""
    total = rollout.move_bytes[source, destination, link]
    shadow = total * rollout.shadow_share * (1.0 - remaining / total)
    return rollout.bandwidth_bytes_per_s[epoch, link] - (rollout.bytes_per_step[now, link] + shadow) * steps_per_s
