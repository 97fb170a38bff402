from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest

from hippo.planners.baselines.alpa import GAP, Alpa, AlpaSetting, InterOp, Mesh, SubmeshTables, _meshes, _sums
from hippo.planners.baselines.alpa_kernel import slice_stages
from hippo.planners.recipe import Recipe
from hippo.simulate.costs import cost_model

from ..worlds import STOP, assert_sound, cluster, domain, gpt, problem


@pytest.mark.parametrize("memory_gb", [80.0, 2.0])
@pytest.mark.parametrize("waves", [2, 8])
def test_the_slicing_is_the_best_of_all_by_eq_2(memory_gb: float, waves: int) -> None:
    asked = problem(cluster(domain("a", 1, 4), memory_gb=memory_gb), gpt(4, 1024, vocab=8192), batch=8)
    mesh, setting = Mesh(1, 4, (1, 2, 4)), AlpaSetting(waves, "none", "none")
    found = InterOp(SubmeshTables(cost_model(asked)), mesh, setting, lambda missing: None).solve()
    assert found is not None
    assert found.seconds == pytest.approx(least_by_enumeration(asked, waves), rel=GAP)


def least_by_enumeration(asked, waves: int) -> float:
    """Over all cuts at the clustered layers, tp x dp of each stage on 1, 2 or 4 GPUs, together all four."""
    costs, least = cost_model(asked), float("inf")
    bounds = [0, 2, 3, 4, 6]  # four blocks, embedding and head with their neighbours
    shapes = [(tp, dp) for tp in (1, 2, 4) for dp in (1, 2, 4) if tp * dp <= 4 and 8 // waves % dp == 0]
    for stages in range(1, 5):
        for inner in combinations(range(1, 4), stages - 1):
            ends = (0, *inner, 4)
            spans = [(bounds[a], bounds[b]) for a, b in zip(ends, ends[1:], strict=False)]
            for widths in product(shapes, repeat=stages):
                if sum(tp * dp for tp, dp in widths) == 4:
                    seconds = stage_seconds(asked, costs, spans, widths, waves)
                    least = min(least, sum(seconds) + (waves - 1) * max(seconds))
    return least


def stage_seconds(asked, costs, spans, widths, waves: int) -> list[float]:
    """t_intra of each stage: a micro-batch, and the stage's share of what is done once; infinite out of memory."""
    found, parameters = [], sum(layer.parameters for layer in asked.model.layers)
    for place, (span, (tp, dp)) in enumerate(zip(spans, widths, strict=True)):
        layout = Recipe(8 // waves // dp).layout(asked, tp=tp, dp=dp)
        live = min(len(spans) - place, waves)
        if costs.memory("a", *span, layout, live=live).peak_bytes > costs.usable_memory_bytes():
            return [float("inf")]
        whole, own = costs.stage("a", 0, asked.model.num_layers, layout), costs.stage("a", *span, layout)
        share = sum(layer.parameters for layer in asked.model.layers[slice(*span)]) / parameters
        once = (whole.sync_s + whole.optimizer_s) * share / waves
        found.append(own.forward_s + own.backward_s + own.weight_gradient_s + once)
    return found


def test_sums_over_clustered_layers() -> None:
    sums = _sums((0, 2, 3, 6), np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0]))
    assert np.triu(sums).tolist() == [[3.0, 7.0, 63.0], [0.0, 4.0, 60.0], [0.0, 0.0, 56.0]]


def test_submeshes_are_of_the_papers_shapes() -> None:
    # Section 5.2: (1, 2^k) inside a node, (n, M) of whole nodes; once over all, once inside the domains.
    (over, inside) = _meshes(problem(cluster(domain("a", 2, 4), domain("b", 2, 4))))
    assert over.sizes == (1, 2, 4, 8, 12, 16)
    assert inside.sizes == (1, 2, 4, 8)
    assert (over.nodes, over.per_node, over.unit) == (4, 4, 1)


def test_it_is_blind_to_the_wan() -> None:
    plans = []
    for gbps in (0.5, 50.0):
        asked = problem(cluster(domain("a", 1, 4), domain("b", 1, 4), gbps=gbps), batch=16)
        found = [
            InterOp(
                SubmeshTables(cost_model(asked)), mesh, AlpaSetting(16, "none", "none"), lambda missing: None
            ).solve()
            for mesh in _meshes(asked)
        ]
        plans.append([None if one is None else replace(one, seconds=0.0) for one in found])
    assert plans[0] == plans[1]


@pytest.mark.parametrize("runtime", ["any", "megatron", "torch", "deepspeed"])
def test_plans_are_sound(runtime: str) -> None:
    asked = problem(
        cluster(domain("a", 1, 4), domain("b", 2, 4), memory_gb=4.0), gpt(8, 2048), batch=32, runtime=runtime
    )
    answer = Alpa().propose(asked, STOP)
    assert_sound(asked, answer)
    assert answer.plan is not None
    assert answer.plan.gpus == 12


def test_too_little_memory_is_told() -> None:
    asked = problem(cluster(domain("a", 1, 2), memory_gb=0.5))
    answer = Alpa().propose(asked, STOP)
    assert_sound(asked, answer)
    assert answer.plan is None


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
            last, shape = divmod(int(choice[left, layer, devices]), 2)
            walked += latency_s[layer, last, shape, left]
            layer, devices = last + 1, devices - [1, 2][shape]
        assert (layer, devices) == (3, 0)
        assert walked == pytest.approx(total[stages, 0, 4])
