"""The bench of Streaming DiLoCo: data parallel by hand, and the figures that results/figures.md tells."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

from .scripts import script


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    return script("benchmarks/streaming.py")


def test_data_parallel_by_hand(bench: ModuleType):
    """10 layers, 1 s a step: forward a third, backward 1/15 s a layer. 16 Gbit at 16 Gbit/s take 0.1 s a layer, from
    the end of the first backward on: 1/3 + 1/15 + 1 s in place of 1."""
    row = bench.Row("1B", 10, 1.0, "data-parallel", (1.0,))
    assert row.utilization(16.0, 1.0) == pytest.approx(1 / (1 / 3 + 1 / 15 + 1))


def test_streaming_waits_for_no_more_than_diloco(bench: ModuleType):
    words = ("diloco", "streaming", "streaming+overlap", "streaming+overlap+fp4")
    found = [bench.Row("1B", 24, 0.1, method, ()).utilization(2.0, 1.0) for method in words]
    assert found == sorted(found)


def test_the_figures_that_are_told(bench: ModuleType):
    rows, shares = bench.read()
    sent = bench.fitted(rows, shares)
    assert sent == pytest.approx(0.84)
    told = [row for row in rows if row.method != "data-parallel"]
    errors = np.abs(np.concatenate([row.errors(shares, sent, bench.PRINTED_GBPS) for row in told]))
    assert (len(rows), len(errors)) == (15, 60)
    assert np.median(errors) < 0.01
    assert errors.mean() < 0.05
