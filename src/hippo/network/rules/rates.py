"""What configurations do under the state of the network now, and the lever of what runs that does most now.

Live levers cost nothing and can be taken back the next epoch, so the best one now is the right one now, whatever comes.
C configurations.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hippo.network.plans.plan_cache import PlanCache, net_tokens_per_step
from hippo.network.rules.view import View

Floats = NDArray[np.float64]


def net_now(view: View) -> Floats:
    """Tokens/s less egress in tokens of every configuration of the cache, (C,); 0: it cannot run now."""
    cache, now = view.cache, view.forecast
    state = now.bandwidth_bytes_per_s[:1], now.latency_s[:1], now.compute[:1]
    steps = np.array([1.0 / cache.step_time_s(index, *state)[0] for index in range(len(cache))])
    return steps * net_tokens_per_step(cache, view.usd_per_token)


def best_of_place(cache: PlanCache, rates: Floats, place: int) -> int:
    """The configuration of the highest rate, (C,), of a place; ties: the first."""
    mine = cache.of_place(place)
    return mine[int(np.argmax(rates[mine]))]


def best_lever(view: View, promising: Sequence[int], running: int) -> tuple[int, float]:
    """Of these configurations and what runs, the one of most net work now, each played; and the share by which it does
    more than what runs (0: that is the best itself; inf: what runs stands still)."""
    among = np.array(list(dict.fromkeys((running, *promising))), dtype=np.int64)
    now = view.forecast
    state = now.bandwidth_bytes_per_s[:1], now.latency_s[:1], now.compute[:1]
    seconds = np.array([float(view.cache.step_time_s(int(each), *state)[0]) for each in among])
    net = net_tokens_per_step(view.cache, view.usd_per_token)[among] / seconds
    best = int(np.argmax(net))
    if best == 0 or net[best] <= 0.0:
        return running, 0.0
    return int(among[best]), float(net[best] / net[0] - 1.0) if net[0] > 0.0 else float(np.inf)
