"""A world: one problem on one moving network. What is true, and what is told of it.

Letters: T epochs, E links as in ``cluster.links``, K domains, C configurations of a cache.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hippo.errors import UnknownNameError
from hippo.network.plans.plan_cache import PlanCache
from hippo.network.rules.move import GRADIENT_BYTES, Rollout
from hippo.problem.problem import Problem
from hippo.simulate import reference
from hippo.simulate.astra import play as astra
from hippo.simulate.astra.binary import find_binary
from hippo.simulate.timeline import Timeline

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class World:
    """The truth. A state holds for the whole of its epoch; ``told`` False: that value never arrives (stale)."""

    name: str
    family: str  # the regime it belongs to
    problem: Problem
    epoch_s: float
    bandwidth_bytes_per_s: Floats  # (T, E), 0 = outage
    latency_s: Floats  # (T, E)
    compute: Floats  # (T, K) factor on the length of operations: load of others, stragglers
    told: NDArray[np.bool_]  # (T, E)
    seed: int = 0

    @property
    def epochs(self) -> int:
        """T."""
        return len(self.bandwidth_bytes_per_s)


def by_fast(cache: PlanCache, index: int, world: World) -> Floats:
    """Step times of a configuration at every epoch, (T,), played by the compiled engine."""
    return cache.step_time_s(index, world.bandwidth_bytes_per_s, world.latency_s, world.compute)


def by_reference(cache: PlanCache, index: int, world: World) -> Floats:
    """The same by the engine that is written to be read: some hundred times slower, to judge the other one."""
    return _one_by_one(cache, index, world, reference.play)


def by_astra(cache: PlanCache, index: int, world: World) -> Floats:
    """The same by the user's ASTRA-sim, a run of its binary for each state: thousands of times slower."""
    return _one_by_one(cache, index, world, astra.play)


def _one_by_one(cache: PlanCache, index: int, world: World, play: Callable[..., Timeline]) -> Floats:
    """Plays each state of the world once, however often it comes; inf where a link that is used is out."""
    program, used, seconds = cache.program(index), cache.bytes_per_step(index) > 0, np.full(world.epochs, np.inf)
    known: dict[bytes, float] = {}
    states = zip(world.bandwidth_bytes_per_s, world.latency_s, world.compute, strict=True)
    for epoch, (bandwidth, latency, compute) in enumerate(states):
        if not (bandwidth[used] > 0).all():
            continue
        state = b"".join(each.tobytes() for each in (bandwidth, latency, compute))
        if state not in known:
            slower = compute[program.rank_domain][:, None]
            names = ("forward_s", "backward_s", "weight_s")
            loaded = replace(program, **{name: getattr(program, name) * slower for name in names})
            idle = np.where(bandwidth > 0, bandwidth, 1.0)
            known[state] = play(loaded, bandwidth_bytes_per_s=idle, latency_s=latency).step_time_s
        seconds[epoch] = known[state]
    return seconds


ENGINES: Mapping[str, Callable[[PlanCache, int, World], Floats]] = MappingProxyType(
    {"fast": by_fast, "reference": by_reference, "astra": by_astra}
)
"""What may play the steps of a world."""


def check_engine(name: str) -> None:
    """``UnknownNameError`` for an engine that is not among ``ENGINES``; ``InputError`` where its binary is missing."""
    if name not in ENGINES:
        raise UnknownNameError("engine of worlds", name, ENGINES)
    if name == "astra":
        find_binary(asked_by="worlds.engine")


def rollout(world: World, cache: PlanCache, *, known: Rollout | None = None, engine: str = "fast") -> Rollout:
    """What every configuration of the cache does at every epoch of the world, as an engine plays it.

    ``known``: a rollout of the same world and a shorter cache; what it says is taken over, only the rest is played.
    Raises as ``check_engine`` does.
    """
    check_engine(engine)
    first = 0 if known is None else known.tokens_per_s.shape[1]
    if known is not None and first == len(cache):
        return known
    new = range(first, len(cache))
    seconds = np.stack([ENGINES[engine](cache, index, world) for index in new], axis=1)
    worth = np.array([each.worth for each in cache.configurations[first:]])
    busy = np.array([cache.busy_share_s(index) for index in new])
    slower = np.stack([world.compute[:, cache.domains_used(index)].mean(axis=1) for index in new], axis=1)
    sent = np.stack([cache.bytes_per_step(index) for index in new])
    played = Rollout(
        epoch_s=float(world.epoch_s),
        restart_s=world.problem.rules.prices.stop_s,
        shadow_share=GRADIENT_BYTES / float(world.problem.workload.state_bytes_per_parameter),
        tokens_per_step=cache.tokens_per_step,
        tokens_per_s=np.ascontiguousarray(cache.tokens_per_step * worth / seconds),
        egress_usd_per_s=np.ascontiguousarray(sent @ cache.usd_per_byte / seconds),
        utilization=np.ascontiguousarray(np.minimum(1.0, busy * slower / seconds)),
        bandwidth_bytes_per_s=np.ascontiguousarray(world.bandwidth_bytes_per_s),
        bytes_per_step=sent,
        usd_per_byte=cache.usd_per_byte,
        place=np.array([each.place for each in cache.configurations], dtype=np.int64),
        move_bytes=cache.moves(),
    )
    return played if known is None else _joined(known, played)


def _joined(known: Rollout, played: Rollout) -> Rollout:
    """The configurations of both, those of ``known`` first."""
    wide = ("tokens_per_s", "egress_usd_per_s", "utilization")
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(known, name), getattr(played, name)], axis=1) for name in wide
    }
    sent = np.concatenate([known.bytes_per_step, played.bytes_per_step])
    return played._replace(**columns, bytes_per_step=sent)
