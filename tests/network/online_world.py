"""A filled cache and views of it, for the tests of this folder."""

from __future__ import annotations

import numpy as np

from hippo.dynamics.forecast import Forecast, Telemetry
from hippo.network.plans.candidates import fill, usd_per_token
from hippo.network.plans.plan_cache import PlanCache
from hippo.network.plans.replan import Net
from hippo.network.rules.move import STILL
from hippo.network.rules.view import View
from hippo.problem.links import base_bandwidth, base_latency
from hippo.problem.load import load_problem

HORIZONS = np.array([0, 1, 4, 16, 64])


def hubs() -> PlanCache:
    """The cache of four hubs of equal size."""
    cache = PlanCache(load_problem(model="gpt3-175b", cluster="four-hubs", global_batch=64))
    fill(cache)
    return cache


def base(cache: PlanCache) -> Net:
    """The base state of its links."""
    return Net(base_bandwidth(cache.problem.cluster), base_latency(cache.problem.cluster))


def view(
    cache: PlanCache,
    share: np.ndarray | None = None,
    *,
    running: int = 0,
    target: int = -1,
    phase: int = STILL,
    arrived: float = 0.0,
    left: int = 100,
    epoch_s: float = 300.0,
    sd: float = 0.0,
) -> View:
    """A view whose links are forecast to have ``share`` (5, E) of their base bandwidth."""
    cluster, state = cache.problem.cluster, base(cache)
    bandwidth = state.bandwidth_bytes_per_s * (np.ones((5, len(cluster.links))) if share is None else share)
    latency = np.tile(state.latency_s, (5, 1))
    compute = np.ones((5, len(cluster.domains)))
    forecast = Forecast(HORIZONS, bandwidth, latency, compute, np.full_like(bandwidth, sd))
    told = Telemetry(bandwidth[:1], latency[:1], compute[:1], np.ones((1, len(cluster.links)), dtype=bool))
    price = usd_per_token(cache, state)
    return View(cache, 0, epoch_s, left, told, forecast, running, target, phase, arrived, 30.0, price)


def weak(cache: PlanCache, index: int, share: float, until: int = 5) -> np.ndarray:
    """Shares of all links at the horizons: those that a configuration uses are weak at the first ``until`` of them."""
    found = np.ones((5, len(cache.problem.cluster.links)))
    found[:until, cache.bytes_per_step(index) > 0] = share
    return found
