"""What an epoch is worth to the learner, and what it costs in constraints.

Reward of an epoch, in epochs of usual work (design, section 3; docs/networks.md):

    r = w_eff (tokens - usd / u) / usual + w_util busy - w_cost (usd / u) / usual

plus the shaping by perfect hindsight under the same preferences, so that what remains is minus the regret of the
answer. Costs of an epoch: share of the traffic below the bandwidth floor; imbalance of the domains beyond ``SLACK``;
share of the epoch at a standstill for a move.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.network.env.hindsight import Taste
from hippo.network.env.scene import EPOCH_S, USD_PER_TOKEN, USUAL
from hippo.network.moving import BUSY_S, EGRESS_USD, TOKENS

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
    """r of one epoch; ``scalars`` of the scene, ``gave`` (5,) of ``simulate.moving``."""
    usual, price = scalars[USUAL] * scalars[EPOCH_S], scalars[USD_PER_TOKEN]
    paid = gave[EGRESS_USD] / price if price > 0.0 else 0.0
    work = weights[0] * (gave[TOKENS] - paid) - weights[2] * paid
    return work / usual + weights[1] * gave[BUSY_S] / scalars[EPOCH_S]
