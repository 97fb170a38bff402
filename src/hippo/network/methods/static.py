"""The best plan at the start, kept to the end, no lever pulled: what keeping is worth."""

from __future__ import annotations

import numpy as np

from hippo.network.plans.candidates import fill, plan_under
from hippo.network.plans.plan_cache import net_tokens_per_step
from hippo.network.rules.view import Action, View


class Static:
    """Begins with the plan of most net work on the network as it is at the start, and never changes anything."""

    name = "static"

    def begin(self, view: View) -> int:
        """The best plan of the cache, and of those made for this very state."""
        return start(view)

    def decide(self, view: View) -> Action:
        """Keep."""
        return Action()


def start(view: View) -> int:
    """The configuration of most net tokens/s now (egress off) without a lever pulled; ties: the first. Plans for this
    state are added to the cache. -1: nothing can run now."""
    now, cache = view.forecast, view.cache
    if len(cache) == 0:
        fill(cache)
    plan_under(cache, now.bandwidth_bytes_per_s[0], now.latency_s[0])
    plain = [index for index, each in enumerate(cache.configurations) if not each.lever]
    state = now.bandwidth_bytes_per_s[:1], now.latency_s[:1], now.compute[:1]
    seconds = np.array([cache.step_time_s(index, *state)[0] for index in plain])
    if not np.isfinite(seconds).any():
        return -1
    net = net_tokens_per_step(cache, view.usd_per_token)[plain] / seconds
    return plain[int(np.argmax(np.where(np.isfinite(seconds), net, -np.inf)))]
