"""Many plays at once: one program under many states of the links or many draws of noise, or many programs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit
from numpy.typing import NDArray

from hippo.simulate import fast
from hippo.simulate.kernels import Network, Record, play
from hippo.simulate.packed import pack
from hippo.simulate.program import Program

LEAST_FACTOR = 0.1  # noise never makes an operation shorter than this share of its length
Floats = NDArray[np.float64]


def step_times(
    program: Program,
    *,
    bandwidth_bytes_per_s: Floats | None = None,
    latency_s: Floats | None = None,
    noise: float = 0.0,
    samples: int | None = None,
    rng: np.random.Generator | None = None,
) -> Floats:
    """Seconds of one step for each of S states of the links, (S,).

    Parameters
    ----------
    bandwidth_bytes_per_s, latency_s
        (S, E) in the order of ``cluster.links``; default: the base state in all samples.
    noise
        Standard deviation of a factor of mean 1 on the length of every operation and every transfer, drawn anew for
        each (spec B3: 0.1 to 0.3, normally distributed); factors stay above ``LEAST_FACTOR``.
    samples
        S, where no state of the links gives it.
    rng
        Source of the noise; needed when ``noise`` > 0.
    """
    assert noise == 0.0 or rng is not None, "noise needs a source"
    count = next((len(state) for state in (bandwidth_bytes_per_s, latency_s) if state is not None), samples or 1)
    bandwidth = _states(program.link_bandwidth_bytes_per_s, bandwidth_bytes_per_s, count)
    latency = _states(program.link_latency_s, latency_s, count)
    scale = np.ones_like(bandwidth)
    if program.link_per_node is not None:
        scale = np.where(program.link_per_node, bandwidth / program.link_bandwidth_bytes_per_s, 1.0)
    found = np.empty(count)
    _play_many(pack(program), (bandwidth, latency, scale), float(noise), rng or np.random.default_rng(0), found)
    assert not np.isnan(found).any(), "the order of operations deadlocks"
    return found


def of_programs(programs: Sequence[Program]) -> Floats:
    """Seconds of one step of each program in its base state, (number of programs,)."""
    return np.array([fast.step_time(program) for program in programs])


def _states(base: Floats, given: Floats | None, count: int) -> Floats:
    states = np.broadcast_to(base if given is None else given, (count, len(base)))
    return np.ascontiguousarray(states, dtype=np.float64)


@njit(cache=True, error_model="numpy")
def _play_many(tables, states, noise, rng, found):  # type: ignore[no-untyped-def]
    """Play once per row of the states, with fresh noise each time."""
    bandwidth, latency, scale = states
    none = np.empty(0)
    record = Record(none, none, none, none)
    noisy = len(tables.order) if noise > 0.0 else 0
    op_factor, message_factor = np.empty(noisy), np.empty(noisy)
    for sample in range(len(found)):
        for op in range(noisy):
            op_factor[op] = max(LEAST_FACTOR, 1.0 + noise * rng.standard_normal())
            message_factor[op] = max(LEAST_FACTOR, 1.0 + noise * rng.standard_normal())
        network = Network(bandwidth[sample], latency[sample], scale[sample], op_factor, message_factor)
        found[sample] = play(tables, network, record)
