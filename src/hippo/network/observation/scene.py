"""What a decision looks at, as tables: the same for one view in use and for every epoch of a world in training.

Letters: I instants (1 in use, T in training), H horizons, C configurations, P places, E links, K domains, F preferences
(1 in use).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from hippo.network.plans.plan_cache import PlanCache
from hippo.network.plans.step_times import approximate_step_times
from hippo.network.rules.move import GRADIENT_BYTES
from hippo.problem.links import base_bandwidth
from hippo.score.judge import domain_utilization, memory
from hippo.simulate.costs import cost_model
from hippo.simulate.lower import lower
from hippo.simulate.timeline import busy_s

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

CONSTRUCTED = "constructed"
"""``origin`` of a configuration that the agents built themselves."""
SAMPLED = 8
"""Instants of what was met on this network so far that ``met`` is a mean over, evenly spread."""
LEAST_RATE = 1e-3
"""Of the usual rate: what stands still counts as this in logarithms."""
WEAK, TAIL = 0.7, 3.0
"""Share of its base bandwidth below which a link is on an excursion; most that a log ratio says."""

EPOCH_S, RESTART_S, SHADOW_SHARE, TOKENS_PER_STEP, USD_PER_TOKEN, USUAL, EPOCHS = range(7)
"""Places in ``Scene.scalars``; ``USUAL``: net tokens/s of the best configuration in the base state."""


class Scene(NamedTuple):
    """Everything the observation of one world is made of. Floats are of single precision."""

    scalars: Floats  # (7,)
    place: Ints  # (C,)
    member: Ints  # (C,) configurations, place after place
    first: Ints  # (P + 1,) where a place begins in ``member``
    ends: Ints  # (E, 2) domains of each link
    usd: Floats  # (C,) egress of a token
    busy: Floats  # (C,) utilisation per token/s
    base_tokens: Floats  # (C,) per second, in the base state
    constructed: Floats  # (C,)
    sent: Floats  # (C, E) bytes per step
    usd_per_byte: Floats  # (E,)
    base: Floats  # (E,) bytes/s
    move_bytes: Floats  # (P, P, E)
    layers: Floats  # (C, K) share of the model held
    memory: Floats  # (C, K) use of the fullest GPU
    domain_busy: Floats  # (C, K) busy seconds of a domain's GPUs per token
    gpus: Floats  # (K,) share of the problem's
    tokens: Floats  # (I, H, C) per second, under the forecast
    low: Floats  # (I, C) at the last horizon, every link a standard deviation lower
    high: Floats  # (I, C) and higher
    bandwidth: Floats  # (I, H, E)
    doubt: Floats  # (I, E) standard deviation of the log bandwidth at the last horizon
    latency: Floats  # (I, E) seconds, now
    age: Floats  # (I, E) epochs of the present excursion
    load: Floats  # (I, 2, K) factor on the length of operations, now and at the last horizon
    met: Floats  # (I, C) mean log of net tokens/s over the usual, of states met so far
    ahead: Floats  # (F I, P, 2 P) what every first move gives (``foresight``), preference after preference
    since: Ints  # (C,) instant from which on the configuration is known


@dataclass(frozen=True, eq=False)
class CacheFigures:
    """What does not change while a cache does not grow; names as in ``Scene``."""

    count: int
    arrays: dict[str, NDArray[Any]]
    usual: float  # net tokens/s, best in the base state


_KNOWN: WeakKeyDictionary[PlanCache, dict[float, CacheFigures]] = WeakKeyDictionary()


def figures(cache: PlanCache, usd_per_token: float) -> CacheFigures:
    """The figures of a cache; kept until it grows."""
    known = _KNOWN.setdefault(cache, {})
    if usd_per_token not in known or known[usd_per_token].count != len(cache):
        known[usd_per_token] = _figures(cache, usd_per_token, known.get(usd_per_token))
    return known[usd_per_token]


def _figures(cache: PlanCache, usd_per_token: float, known: CacheFigures | None) -> CacheFigures:
    cluster, count = cache.problem.cluster, len(cache)
    index = cluster.domain_index
    step = np.array([cache.score(each).step_time_s for each in range(count)])
    worth = np.array([each.worth for each in cache.configurations])
    per_step = cache.tokens_per_step * worth
    sent = np.stack([cache.bytes_per_step(each) for each in range(count)])
    place = np.array([each.place for each in cache.configurations], dtype=np.int64)
    member = np.argsort(place, kind="stable")
    domains = [_domains(cache, each) if known is None or each >= known.count else None for each in range(count)]
    rows = [
        (known.arrays[name][each] if found is None else found[at])  # type: ignore[union-attr]
        for at, name in enumerate(("layers", "memory", "seconds"))
        for each, found in enumerate(domains)
    ]
    layers, filled, seconds = (np.stack(rows[at * count : (at + 1) * count]) for at in range(3))
    gpus = np.array([domain.gpus for domain in cluster.domains], dtype=np.float64)
    usd = sent @ cache.usd_per_byte / per_step
    tokens = per_step / step
    arrays: dict[str, NDArray[Any]] = {
        "place": place,
        "member": member,
        "first": np.searchsorted(place[member], np.arange(cache.places + 1)),
        "ends": np.array([(index[each.source], index[each.destination]) for each in cluster.links], dtype=np.int64),
        "usd": usd,
        "busy": np.array([cache.busy_share_s(each) for each in range(count)]) / per_step,
        "base_tokens": tokens,
        "constructed": np.array([each.origin == CONSTRUCTED for each in cache.configurations], dtype=np.float64),
        "sent": sent,
        "usd_per_byte": cache.usd_per_byte,
        "base": base_bandwidth(cluster),
        "move_bytes": cache.moves(),
        "layers": layers,
        "memory": filled,
        "seconds": seconds,
        "domain_busy": seconds / per_step[:, None],
        "gpus": gpus / gpus.sum(),
    }
    net = tokens * (1.0 - (usd / usd_per_token if usd_per_token > 0 else 0.0))
    return CacheFigures(count, arrays, float(net.max()))


def _domains(cache: PlanCache, index: int) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Share of the layers, memory use and busy seconds of a step, (K,) each, of a configuration."""
    problem, plan = cache.problem, cache.configurations[index].plan
    domains, usable = problem.cluster.domain_index, cost_model(problem).usable_memory_bytes()
    layers, filled = np.zeros(len(domains)), np.zeros(len(domains))
    stages = [stage for pipeline in plan.pipelines for stage in pipeline.stages]
    for stage, held in zip(stages, memory(problem, plan), strict=True):
        at = domains[stage.domain]
        layers[at] += stage.num_layers
        filled[at] = max(filled[at], held.peak_bytes / usable)
    seconds = domain_utilization(problem, plan, busy_s(lower(problem, plan)), 1.0)
    return layers / layers.sum(), filled, np.array([seconds[name] for name in domains])


class Conditions(NamedTuple):
    """What instants bring; doubles, shapes as in ``Scene`` (``latency``, ``compute`` at all horizons)."""

    bandwidth: NDArray[np.float64]  # (I, H, E)
    latency: NDArray[np.float64]  # (I, H, E)
    compute: NDArray[np.float64]  # (I, H, K)
    sd: NDArray[np.float64]  # (I, H, E)


class Rates(NamedTuple):
    """Tokens/s of every configuration; doubles."""

    tokens: NDArray[np.float64]  # (I, H, C) under the forecasts
    low: NDArray[np.float64]  # (I, C) at the last horizon with every link a standard deviation lower
    high: NDArray[np.float64]  # (I, C) and higher


def rates(cache: PlanCache, seen: Conditions) -> Rates:
    """What configurations do under the forecasts, by the planes of their step times
    (``hippo.network.plans.step_times``)."""
    instants, horizons, links = seen.bandwidth.shape
    tilted = [
        tokens_of(cache, bandwidth, seen.latency[:, -1], seen.compute[:, -1])
        for bandwidth in (
            seen.bandwidth[:, -1] * np.exp(np.clip(sign * seen.sd[:, -1], -TAIL, TAIL)) for sign in (-1, 1)
        )
    ]
    states = (each.reshape(instants * horizons, -1) for each in (seen.bandwidth, seen.latency, seen.compute))
    return Rates(tokens_of(cache, *states).reshape(instants, horizons, -1), *tilted)


def tokens_of(
    cache: PlanCache, bandwidth: NDArray[np.float64], latency: NDArray[np.float64], compute: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Tokens/s of every configuration, (S, C), under states (S, E), (S, E), (S, K)."""
    worth = np.array([each.worth for each in cache.configurations])
    found: NDArray[np.float64] = (
        cache.tokens_per_step * worth / approximate_step_times(cache, bandwidth, latency, compute)
    )
    return found


def ages(bandwidth: NDArray[np.float64], base: NDArray[np.float64]) -> NDArray[np.float64]:
    """Epochs (L, E) that each link has been below ``WEAK`` of its base, the present one included."""
    epochs = np.arange(len(bandwidth))[:, None]
    strong = np.maximum.accumulate(np.where(bandwidth < WEAK * base, -1, epochs), axis=0)  # the last one so far
    return (epochs - strong).astype(np.float64)


def instants_met(epoch: int) -> Ints:
    """Epochs before ``epoch`` (or itself, the first) that ``met`` is the mean over, (SAMPLED,)."""
    return (np.arange(SAMPLED) * epoch) // SAMPLED


def log_net(tokens: NDArray[np.float64], usd: NDArray[np.float64], usd_per_token: float, usual: float) -> Any:
    """Log of net tokens/s over the usual, with a floor; ``tokens`` (..., C), ``usd`` (C,) of a token."""
    net = tokens * (1.0 - (usd / usd_per_token if usd_per_token > 0 else 0.0))
    return np.log(np.maximum(net, LEAST_RATE * usual) / usual)


def scalars(
    cache: PlanCache, *, epoch_s: float, restart_s: float, usd_per_token: float, usual: float, epochs: int
) -> Floats:
    """``Scene.scalars``."""
    shadow = GRADIENT_BYTES / float(cache.problem.workload.state_bytes_per_parameter)
    return np.array([epoch_s, restart_s, shadow, cache.tokens_per_step, usd_per_token, usual, epochs], dtype=np.float32)
