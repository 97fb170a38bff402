"""Many plays at once: one program under many states of the links or many draws of noise, or many programs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hippo.simulate import fast
from hippo.simulate.kernels import play_many
from hippo.simulate.packed import pack
from hippo.simulate.program import Program

Floats = NDArray[np.float64]
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
        each (spec B3: 0.1 to 0.3, normally distributed); factors stay above ``kernels.LEAST_FACTOR``.
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
    play_many(pack(program), (bandwidth, latency, scale, slower), float(noise), rng or _SILENT, found)
    assert not np.isnan(found).any(), "the order of operations deadlocks"
    return found


def of_programs(programs: Sequence[Program]) -> Floats:
    """Seconds of one step of each program in its base state, (number of programs,)."""
    return np.array([fast.step_time(program) for program in programs])


def _states(base: Floats, given: Floats | None, count: int) -> Floats:
    states = np.broadcast_to(base if given is None else given, (count, len(base)))
    return np.array(states, dtype=np.float64, order="C")
