"""One world of a dataset as kernels see it: its scene, what really happens in it, and the rollout of its runs.

Letters: W worlds, T epochs, C configurations, E links, F preferences, N fields.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.network.observation.scene import Scene
from hippo.network.rules.move import Rollout


class Truth(NamedTuple):
    """What really happens in a world. Floats are of single precision."""

    tokens: NDArray[np.float32]  # (T, C) per second
    egress: NDArray[np.float32]  # (T, C) USD per second
    utilization: NDArray[np.float32]  # (T, C)
    bandwidth: NDArray[np.float32]  # (T, E)
    weak: NDArray[np.float32]  # (T, C) share of the traffic below the bandwidth floor
    uneven: NDArray[np.float32]  # (T, C) imbalance beyond what is allowed
    value: NDArray[np.float32]  # (F, T + 1, C) of hindsight, in epochs of usual work
    weights: NDArray[np.float32]  # (F, 3)
    best: NDArray[np.int64]  # (T,) configuration of most net work, as believed then


class DatasetArrays(NamedTuple):
    """The arrays of a dataset, as kernels take them."""

    floats: NDArray[np.float32]
    ints: NDArray[np.int64]
    offset: NDArray[np.int64]
    shape: NDArray[np.int64]


@kernel
def _f1(floats, begin, shape):  # type: ignore[no-untyped-def]
    return floats[begin : begin + shape[0]]


@kernel
def _f2(floats, begin, shape):  # type: ignore[no-untyped-def]
    return floats[begin : begin + shape[0] * shape[1]].reshape((shape[0], shape[1]))


@kernel
def _f3(floats, begin, shape):  # type: ignore[no-untyped-def]
    return floats[begin : begin + shape[0] * shape[1] * shape[2]].reshape((shape[0], shape[1], shape[2]))


@kernel
def _i1(ints, begin, shape):  # type: ignore[no-untyped-def]
    return ints[begin : begin + shape[0]]


@kernel
def _i2(ints, begin, shape):  # type: ignore[no-untyped-def]
    return ints[begin : begin + shape[0] * shape[1]].reshape((shape[0], shape[1]))


@kernel
def scene_in(dataset, world):  # type: ignore[no-untyped-def]
    """The scene of one world of a dataset."""
    floats, ints, at, of = dataset.floats, dataset.ints, dataset.offset[world], dataset.shape[world]
    return Scene(
        _f1(floats, at[0], of[0]),  # scalars
        _i1(ints, at[1], of[1]),  # place
        _i1(ints, at[2], of[2]),  # member
        _i1(ints, at[3], of[3]),  # first
        _i2(ints, at[4], of[4]),  # ends
        _f1(floats, at[5], of[5]),  # usd
        _f1(floats, at[6], of[6]),  # busy
        _f1(floats, at[7], of[7]),  # base_tokens
        _f1(floats, at[8], of[8]),  # constructed
        _f2(floats, at[9], of[9]),  # sent
        _f1(floats, at[10], of[10]),  # usd_per_byte
        _f1(floats, at[11], of[11]),  # base
        _f3(floats, at[12], of[12]),  # move_bytes
        _f2(floats, at[13], of[13]),  # layers
        _f2(floats, at[14], of[14]),  # memory
        _f2(floats, at[15], of[15]),  # domain_busy
        _f1(floats, at[16], of[16]),  # gpus
        _f3(floats, at[17], of[17]),  # tokens
        _f2(floats, at[18], of[18]),  # low
        _f2(floats, at[19], of[19]),  # high
        _f3(floats, at[20], of[20]),  # bandwidth
        _f2(floats, at[21], of[21]),  # doubt
        _f2(floats, at[22], of[22]),  # latency
        _f2(floats, at[23], of[23]),  # age
        _f3(floats, at[24], of[24]),  # load
        _f2(floats, at[25], of[25]),  # met
        _f3(floats, at[26], of[26]),  # ahead
        _i1(ints, at[27], of[27]),  # since
    )


@kernel
def truth_in(dataset, world):  # type: ignore[no-untyped-def]
    """What really happens in it."""
    floats, ints, at, of = dataset.floats, dataset.ints, dataset.offset[world], dataset.shape[world]
    return Truth(
        _f2(floats, at[28], of[28]),  # tokens
        _f2(floats, at[29], of[29]),  # egress
        _f2(floats, at[30], of[30]),  # utilization
        _f2(floats, at[31], of[31]),  # bandwidth
        _f2(floats, at[32], of[32]),  # weak
        _f2(floats, at[33], of[33]),  # uneven
        _f3(floats, at[34], of[34]),  # value
        _f2(floats, at[35], of[35]),  # weights
        _i1(ints, at[36], of[36]),  # best
    )


@kernel
def rollout_in(scene, truth):  # type: ignore[no-untyped-def]
    """The same as the rules of moving take it."""
    return Rollout(
        scene.scalars[0],
        scene.scalars[1],
        scene.scalars[2],
        scene.scalars[3],
        truth.tokens,
        truth.egress,
        truth.utilization,
        truth.bandwidth,
        scene.sent,
        scene.usd_per_byte,
        scene.place,
        scene.move_bytes,
    )
