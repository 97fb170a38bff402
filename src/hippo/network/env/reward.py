"""What an epoch is worth to the learner, what it costs in constraints, and what hindsight says of every option.

Reward of an epoch, in epochs of usual work (docs/networks.md):

    r = w_eff (tokens - usd / u) / usual + w_util busy - w_cost (usd / u) / usual

plus the shaping by perfect hindsight under the same preferences, so that what remains is minus the regret of the
answer. Costs of an epoch: share of the traffic below the bandwidth floor; imbalance of the domains beyond ``SLACK``;
share of the epoch at a standstill for a move.

The *regret* of an option is what the best of the options would give less what this one gives, both followed by perfect
hindsight, in epochs of usual work under the preferences of the run: learning from all answers at once, not only from
the one that was taken. Only training sees it.

Letters: W runs, M options, G costs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.network.env.tables import rollout_in, scene_in, truth_in
from hippo.network.observation.options import CANCEL, KEEP, STOP, SWITCH
from hippo.network.observation.scene import EPOCH_S, USD_PER_TOKEN, USUAL
from hippo.network.rules.move import (
    BUSY_S,
    CONFIGURATION,
    EGRESS_USD,
    PHASE,
    STILL,
    STOPPED,
    STREAMING,
    TARGET,
    TOKENS,
    advance,
    begin_move,
)
from hippo.network.worlds.hindsight import Taste

COSTS = ("bandwidth", "balance", "latency")
SLACK = 0.25
"""Imbalance, (max - min) / mean, that is not yet a cost."""
LEAST_TIME = 0.3
"""Preference for work done that every drawn preference has: with less, to train nothing would be best."""


def taste_of(weights: NDArray[np.float64], *, epoch_s: float, usual: float, usd_per_token: float) -> Taste:
    """The preferences as what hindsight counts; ``usual`` in net tokens/s."""
    per_usd = 1.0 / usd_per_token if usd_per_token > 0 else 0.0
    whole = usual * epoch_s
    return Taste(
        token=float(weights[0]) / whole,
        usd=-float(weights[0] + weights[2]) * per_usd / whole,
        busy_s=float(weights[1]) / epoch_s,
    )


def draw_weights(count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Preferences, (count, 3), each summing to 1; the first is work alone."""
    drawn = rng.dirichlet(np.ones(3), size=count) * (1.0 - LEAST_TIME)
    drawn[:, 0] += LEAST_TIME
    drawn[0] = 1.0, 0.0, 0.0
    found: NDArray[np.float64] = drawn
    return found


@kernel
def reward_of(scalars, weights, gave):  # type: ignore[no-untyped-def]
    """r of one epoch; ``scalars`` of the scene, ``gave`` (5,) of ``network.rules.move``."""
    usual, price = scalars[USUAL] * scalars[EPOCH_S], scalars[USD_PER_TOKEN]
    paid = gave[EGRESS_USD] / price if price > 0.0 else 0.0
    work = weights[0] * (gave[TOKENS] - paid) - weights[2] * paid
    return work / usual + weights[1] * gave[BUSY_S] / scalars[EPOCH_S]


@kernel
def fill_regrets(dataset, runs, found):  # type: ignore[no-untyped-def]
    """Regret of each option of the decision that is due in each run, (W, M); 0 where an option is masked."""
    for run in range(len(found)):
        scene, truth = scene_in(dataset, runs.world[run]), truth_in(dataset, runs.world[run])
        best = -np.inf
        for option in range(found.shape[1]):
            if runs.mask[run, option]:
                found[run, option] = _gives(runs, run, scene, truth, option)
                best = max(best, found[run, option])
        for option in range(found.shape[1]):
            found[run, option] = best - found[run, option] if runs.mask[run, option] else 0.0


@kernel
def _gives(runs, run, scene, truth, option):  # type: ignore[no-untyped-def]
    """What an option gives until it is carried out (at least this epoch), and the most after it."""
    rollout, weights = rollout_in(scene, truth), truth.weights[runs.preference[run]]
    state, remaining = runs.state[run].copy(), runs.remaining[run, : len(scene.base) + 1].copy()
    how, target = runs.how[run, option], runs.target[run, option]
    if how == CANCEL:
        state[TARGET], state[PHASE] = -1, STILL
    elif how == SWITCH:
        state[CONFIGURATION] = target
    elif how != KEEP:
        begin_move(rollout, state, remaining, target, STOPPED if how == STOP else STREAMING)
    return until_done(runs, run, scene, truth, rollout, weights, state, remaining)


@kernel
def until_done(runs, run, scene, truth, rollout, weights, state, remaining):  # type: ignore[no-untyped-def]
    """What a run gives from now on until no move is under way (at least in this epoch), and the most after it;
    ``state`` and ``remaining`` are used up."""
    gave, gained = np.zeros(5), 0.0
    for epoch in range(runs.epoch[run], len(truth.tokens)):
        advance(rollout, epoch, state, remaining, gave)
        gained += reward_of(scene.scalars, weights, gave)
        if state[PHASE] == STILL:
            return gained + truth.value[runs.preference[run], epoch + 1, state[CONFIGURATION]]
    return gained
