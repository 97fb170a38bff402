"""The plan that is best in expectation over the network to come, kept to the end, no lever pulled.

The network to come: what the forecast of the first epoch expects at each horizon, and how far it may be off. A plan
counts with its mean net work over states drawn from that, and a state in which it cannot run counts as no work.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hippo.network.methods.static import start
from hippo.network.plans.candidates import net_rates
from hippo.network.plans.replan import Net
from hippo.network.rules.view import Action, View

Floats = NDArray[np.float64]
DRAWS = 12  # of every horizon
MOST_OFF = 3.0  # of the log bandwidth: beyond, a draw says nothing


class RobustStatic:
    """Begins with the plan that is best over the expected network, and never changes anything."""

    name = "robust_static"

    def begin(self, view: View) -> int:
        """The best plan of the cache, and of those made for the first state, in the mean; -1: there is none."""
        best = start(view)
        plain = [index for index, each in enumerate(view.cache.configurations) if not each.lever]
        if not plain:
            return best
        states, weights = expected(view)
        rates = net_rates(view.cache, states, view.usd_per_token, among=plain)
        runs = rates[0] > 0.0  # it must be able to begin
        mean = np.where(runs, weights @ np.maximum(rates, 0.0), -1.0)
        return plain[int(np.argmax(mean))] if runs.any() else best

    def decide(self, view: View) -> Action:
        """Keep."""
        return Action()


def expected(view: View) -> tuple[list[Net], Floats]:
    """States that the forecast expects, the first one the present, and the share of the run that each stands for."""
    forecast, rng = view.forecast, np.random.default_rng(0)
    horizons = np.minimum(forecast.horizons, view.epochs_left).astype(float)
    ends = np.append(0.5 * (horizons[1:] + horizons[:-1]), float(view.epochs_left))
    spans = np.diff(ends, prepend=0.0).clip(min=0.0)
    states = [Net(forecast.bandwidth_bytes_per_s[0], forecast.latency_s[0])]
    weights = [0.0]
    for horizon, span in enumerate(spans):
        for _ in range(DRAWS):
            off = np.clip(rng.normal(size=forecast.sd.shape[1]) * forecast.sd[horizon], -MOST_OFF, MOST_OFF)
            states.append(Net(forecast.bandwidth_bytes_per_s[horizon] * np.exp(off), forecast.latency_s[horizon]))
            weights.append(float(span) / DRAWS)
    return states, np.array(weights) / max(sum(weights), 1e-300)
