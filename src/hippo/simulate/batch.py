"""Many plays at once: one program under many states of the links or many draws of noise, or many programs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hippo.engine.fixed_order import close_many, play_many
from hippo.engine.lanes import replay_many
from hippo.engine.program import Packed
from hippo.simulate.packed import pack
from hippo.simulate.program import Program

Floats = NDArray[np.float64]
FEW = 4  # states that are worth playing side by side
_SILENT = np.random.default_rng(0)  # for plays without noise: never drawn from


def step_times(
    program: Program,
    *,
    bandwidth_bytes_per_s: Floats | None = None,
    latency_s: Floats | None = None,
    compute: Floats | None = None,
    noise: float = 0.0,
    samples: int | None = None,
    rng: np.random.Generator | None = None,
) -> Floats:
    """Seconds of one step for each of S states of the links, (S,).

    Parameters
    ----------
    bandwidth_bytes_per_s, latency_s
        (S, E) in the order of ``cluster.links``; default: the base state in all samples.
    compute
        (S, K) factor on the length of every operation in each domain (1.2: a fifth slower); default: 1.
    noise
        Standard deviation of a factor of mean 1 on the length of every operation and every transfer, drawn anew for
        each (0.1 to 0.3, normally distributed); factors stay above ``fixed_order.LEAST_FACTOR``.
    samples
        S, where no state of the links gives it.
    rng
        Source of the noise; needed when ``noise`` > 0.
    """
    assert noise == 0.0 or rng is not None, "noise needs a source"
    count = next(
        (len(state) for state in (bandwidth_bytes_per_s, latency_s, compute) if state is not None), samples or 1
    )
    bandwidth = _states(program.link_bandwidth_bytes_per_s, bandwidth_bytes_per_s, count)
    latency = _states(program.link_latency_s, latency_s, count)
    scale = np.ones_like(bandwidth)
    if program.link_per_node is not None:
        scale = np.where(program.link_per_node, bandwidth / program.link_bandwidth_bytes_per_s, 1.0)
    found, ranks = np.empty(count), program.rank_domain
    slower = np.empty((0, len(ranks))) if compute is None else np.ascontiguousarray(compute[:, ranks], dtype=np.float64)
    states = bandwidth, latency, scale, slower
    if noise > 0.0 or count < FEW or not _side_by_side(program):
        play_many(pack(program), states, float(noise), rng or _SILENT, found)
    else:
        _play_side_by_side(pack(program), states, found)
    assert not np.isnan(found).any(), "the order of operations deadlocks"
    return found


def _side_by_side(program: Program) -> bool:
    """Whether the sequence of operations is the same under all states."""
    return not pack(program).queued and program.gather is None


def _play_side_by_side(tables: Packed, states: tuple[Floats, ...], found: Floats) -> None:
    """The same as ``play_many`` without noise, in less time."""
    noted = tables.known[0] == len(tables.order)
    if not noted:
        tables.known[0] = 0  # so that the first play notes the sequence
        play_many(tables, tuple(each[:1] for each in states), 0.0, _SILENT, found[:1])
    rest = states if noted else tuple(each[1:] for each in states)
    free, link_free = np.empty((len(rest[0]), len(tables.sync_s))), np.empty_like(rest[0])
    replay_many(tables, rest, free, link_free)
    close_many(tables, rest, free, link_free, found if noted else found[1:])


def _states(base: Floats, given: Floats | None, count: int) -> Floats:
    states = np.broadcast_to(base if given is None else given, (count, len(base)))
    return np.array(states, dtype=np.float64, order="C")
