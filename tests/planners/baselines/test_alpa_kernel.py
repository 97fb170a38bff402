"""Eq. 3 of Alpa against every slicing into stages on submeshes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from hippo.planners.baselines.alpa_kernel import slice_stages


def slicings(layers: int, sizes: list[int], devices: int) -> Iterator[list[tuple[int, int, int]]]:
    """Every way to give layers 0.. to stages [k, i] on shapes j that take all devices."""

    def onward(start: int, left: int) -> Iterator[list[tuple[int, int, int]]]:
        if start == layers:
            if left == 0:
                yield []
            return
        for last in range(start, layers):
            for shape, size in enumerate(sizes):
                if size <= left:
                    yield from ([(start, last, shape), *rest] for rest in onward(last + 1, left - size))

    yield from onward(0, devices)


@pytest.mark.parametrize("seed", range(8))
def test_no_slicing_has_less_latency(seed: int) -> None:
    rng = np.random.default_rng(seed)
    layers, sizes, devices, waves = 4, [1, 2, 4], int(rng.integers(1, 7)), int(rng.integers(1, 9))
    most = min(layers, devices)
    latency_s = rng.uniform(0.1, 2.0, (layers, layers, len(sizes), most + 1))
    latency_s[:, :, :, 0] = np.inf
    totals = []
    for stages in slicings(layers, sizes, devices):
        if len(stages) <= most:
            each = [latency_s[k, i, j, len(stages) - place] for place, (k, i, j) in enumerate(stages)]
            totals.append(sum(each) + (waves - 1) * max(each))
    found = []
    for slowest_s in np.unique(latency_s[np.isfinite(latency_s)]):
        total, _ = slice_stages(latency_s, np.array(sizes), devices, float(slowest_s))
        found.append(float(total[:, 0, -1].min()) + (waves - 1) * float(slowest_s))
    assert min(found) == pytest.approx(min(totals))


def test_the_choices_lead_to_the_total() -> None:
    latency_s = np.random.default_rng(1).uniform(0.1, 2.0, (3, 3, 2, 4))
    total, choice = slice_stages(latency_s, np.array([1, 2]), 4, 10.0)
    for stages in range(1, 4):
        layer, devices, walked = 0, 4, 0.0
        if not np.isfinite(total[stages, 0, 4]):
            continue
        for left in range(stages, 0, -1):
            last, shape = choice[left, layer, devices]
            walked += latency_s[layer, last, shape, left]
            layer, devices = last + 1, devices - [1, 2][shape]
        assert (layer, devices) == (3, 0)
        assert walked == pytest.approx(total[stages, 0, 4])
