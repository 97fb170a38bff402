"""`flat_ring` against worlds solved by hand, and the grid against itself without its bounds."""

from collections import Counter

import pytest
from tests.judges.flat_ring import (
    NETWORK_S,
    NVLINK_S,
    Cluster,
    Layout,
    Link,
    Model,
    Region,
    Step,
    Times,
    agree,
    memory,
    simulate,
)
from tests.judges.flat_ring_files import cluster_document, model_document, read_plan
from tests.judges.grid import SEED, Case, best, cases, layouts, pack

# 10 layers of 12 x 100 + 13 x 10 = 1,330 parameters, (300 + 70) x 10 of the embedding and 300 x 10 of the head: 20,000
# in all, 1e9 bytes.
MODEL = Model(10, 10, 2, 300, 70, 0, gradient_bytes=50_000)
TIMES = Times(0.01, 0.02)  # ten layers: 0.1 s forward, 0.2 s backward


def world(
    names: str, *, nodes: int = 1, gpus: int = 2, gbps: float = 8, ms: float = 10, total: float = float("inf")
) -> Cluster:
    """Regions that are all linked alike; 8 Gbit/s are 1e9 bytes/s."""
    regions = tuple(Region(name, nodes, gpus, 1000, 10_000, 1) for name in names)
    return Cluster(
        regions, {(a, b): Link(gbps, ms, total) for a in range(len(names)) for b in range(len(names)) if a != b}
    )


def replicas(*units: tuple[int, int], tp: int = 1, waves: int = 2) -> Layout:
    return Layout(tp, 1, (10,), (waves,) * len(units), (units,))


def after(step: Step) -> float:
    return step.step_s - max(step.ready_s)


def test_two_ranks_on_one_link() -> None:
    # Two micro-batches: 2 x (0.1 + 0.2) = 0.6 s. Each hop carries 2 x 1/2 x 1e9 bytes: 1 s, and two steps of 10 ms.
    step = simulate(world("ab"), MODEL, TIMES, replicas((0, 0), (1, 0)))
    assert step.ready_s == pytest.approx((0.6,))
    assert step.step_s == pytest.approx(0.6 + 1 + 2 * 0.01)
    assert step.ring_bytes == pytest.approx({(0, 1): 1e9, (1, 0): 1e9})
    assert not step.activation_bytes


@pytest.mark.parametrize("order", [((0, 0), (0, 0), (1, 0), (1, 0)), ((0, 0), (1, 0), (0, 0), (1, 0))])
def test_four_ranks_on_two_nodes_cross_twice_in_any_order(order: tuple[tuple[int, int], ...]) -> None:
    # NCCL goes node after node: one hop there, one back, each with 2 x 3/4 x 1e9 bytes: 1.5 s, and six steps of 10 ms.
    step = simulate(world("ab"), MODEL, TIMES, replicas(*order))
    assert after(step) == pytest.approx(1.5 + 6 * 0.01)
    assert step.ring_bytes == pytest.approx({(0, 1): 1.5e9, (1, 0): 1.5e9})


def test_ranks_that_alternate_between_regions_cross_four_times() -> None:
    # Four nodes, taken in the order of ranks a b a b: two hops each way. Every node has a rate of its own, so the time
    # stays 1.5 s; one cable of 8 Gbit/s for all of a region has 3e9 bytes to carry: 3 s.
    layout = replicas((0, 0), (1, 0), (0, 1), (1, 1))
    step = simulate(world("ab", nodes=2), MODEL, TIMES, layout)
    assert step.ring_bytes == pytest.approx({(0, 1): 3e9, (1, 0): 3e9})
    assert after(step) == pytest.approx(1.5 + 6 * 0.01)
    assert after(simulate(world("ab", nodes=2, total=8), MODEL, TIMES, layout)) == pytest.approx(3 + 6 * 0.01)


def test_rings_of_tensor_parallel_ranks_share_the_rate_of_their_node() -> None:
    # Two rings with half the bytes each over the same node: together the bytes and the time of one.
    step = simulate(world("ab"), MODEL, TIMES, replicas((0, 0), (1, 0), tp=2))
    assert after(step) == pytest.approx(1 + 2 * 0.01)
    assert step.ring_bytes == pytest.approx({(0, 1): 1e9, (1, 0): 1e9})


def test_three_regions_send_one_way_around() -> None:
    # 2 x 2/3 x 1e9 bytes over a -> b, b -> c, c -> a, nothing the other way.
    step = simulate(world("abc"), MODEL, TIMES, replicas((0, 0), (1, 0), (2, 0)))
    assert step.ring_bytes == pytest.approx({(0, 1): 4e9 / 3, (1, 2): 4e9 / 3, (2, 0): 4e9 / 3})


def test_slowest_hop_sets_the_pace_of_a_latency_bound_ring() -> None:
    # Rates without bound; one hop of 300 ms among three of 100 ms: six steps of 300 ms.
    regions, links = world("abcd", gbps=1e9, ms=100)
    links = {**links, (2, 3): Link(1e9, 300)}
    fast = Cluster(tuple(r._replace(nic_gbps=1e9) for r in regions), links)
    step = simulate(fast, MODEL, TIMES, replicas((0, 0), (1, 0), (2, 0), (3, 0)))
    assert after(step) == pytest.approx(6 * 0.3, rel=1e-6)


def test_rings_inside_a_region() -> None:
    # One node: 1e9 bytes at 1,000 GB/s and two steps over NVLink; two nodes: at 10,000 Gbit/s and two over the network.
    inside = simulate(world("a"), MODEL, TIMES, replicas((0, 0), (0, 0)))
    across = simulate(world("a", nodes=2), MODEL, TIMES, replicas((0, 0), (0, 1)))
    assert after(inside) == pytest.approx(1e-3 + 2 * NVLINK_S)
    assert after(across) == pytest.approx(0.8e-3 + 2 * NETWORK_S)
    assert not inside.ring_bytes
    assert not across.ring_bytes


def pipeline(replicas: int, waves: int) -> tuple[Cluster, Model, Times, Layout]:
    """Stages of five layers: forward 1 s, backward 2 s; messages of 2 x 70 x 10 bytes: 0.5 s at 2,800 a second."""
    cluster = world("ab", gbps=2800 * 8 / 1e9, ms=250)
    units = (((0, 0),) * replicas, ((1, 0),) * replicas)
    return cluster, MODEL, Times(0.2, 0.4), Layout(1, 1, (5, 5), (waves,) * replicas, units)


def test_two_stages_fill_and_drain() -> None:
    # first   F0 0-1, sends to 1.5; F1 1.5-2.5, sends to 3; waits; B0 5.5-7.5; waits; B1 9-11
    # second  F0 1.75-2.75; B0 2.75-4.75, sends to 5.25; F1 (there since 3.25) 5.25-6.25; B1 6.25-8.25, sends to 8.75
    step = simulate(*pipeline(1, 2))
    assert step.ready_s == pytest.approx((11, 8.75))
    assert step.step_s == pytest.approx(11)
    assert step.activation_bytes == {(0, 1): 2800, (1, 0): 2800}
    assert not step.ring_bytes


def test_replicas_on_one_node_share_its_rate() -> None:
    # Two messages at once: 1 s each. F0 0-1, sends to 2; F0 2.25-3.25, B0 to 5.25, sends to 6.25; B0 6.5-8.5.
    step = simulate(*pipeline(2, 1))
    assert step.ready_s == pytest.approx((8.5, 6.25))
    assert step.activation_bytes == {(0, 1): 2800, (1, 0): 2800}


def test_the_head_is_computed_on_the_last_stage() -> None:
    cluster, model, times, layout = pipeline(1, 1)
    step = simulate(cluster, model, times._replace(head_forward_s=3, head_backward_s=4), layout)
    assert step.step_s - simulate(cluster, model, times, layout).step_s == pytest.approx(7)


def test_a_ring_that_starts_late_takes_its_half() -> None:
    # 1 byte/s. Alone until 4, the first has 6 of 10 left; halves: the second's 2 bytes last until 8, when 4 are left.
    x = ("out", 0, 0)
    assert agree([(10, Counter({x: 1}), 0), (2, Counter({x: 1}), 0)], {x: 1}, [0, 4]) == pytest.approx([12, 8])


def test_what_one_ring_cannot_use_others_may() -> None:
    # The first two halve x to 1 byte/s each; the third has y's 10 less the first's 1, until all end at 9.
    x, y = ("out", 0, 0), ("out", 1, 0)
    running = [(9.0, Counter((x, y)), 0.0), (9.0, Counter((x,)), 0.0), (81.0, Counter((y,)), 0.5)]
    assert agree(running, {x: 2, y: 10}, [0, 0, 0]) == pytest.approx([9, 9, 9.5])


def test_memory_of_a_stage() -> None:
    # 20,000 x 18 bytes; two waves, but one in flight on the only stage: 10 layers x 34 x 70 x 10; logits
    # 10 x 70 x 300.
    layout = replicas((0, 0), (1, 0))
    assert memory(MODEL, layout, 0) == 360_000 + 238_000 + 210_000
    # Two replicas divide the 12 bytes of the optimizer: 18 - 6.
    assert memory(MODEL, layout._replace(sharded=True), 0) == 240_000 + 238_000 + 210_000
    assert memory(MODEL, layout._replace(tp=2), 0) == (360_000 + 238_000 + 210_000) / 2


def test_what_does_not_fit() -> None:
    layout = replicas((0, 0), (1, 0))
    assert simulate(world("ab"), MODEL, TIMES, layout).fits
    small = Cluster(tuple(r._replace(gpu_memory_gb=0.000_5) for r in world("ab").regions), world("ab").links)
    assert not simulate(small, MODEL, TIMES, layout).fits
    assert not simulate(world("ab", gpus=1), MODEL, TIMES, replicas((0, 0), (0, 0))).fits
    with pytest.raises(ValueError, match="no link from a to b"):
        simulate(Cluster(world("ab").regions, {}), MODEL, TIMES, layout)


def test_units_fill_nodes_in_order() -> None:
    assert pack(world("ab", nodes=2, gpus=4), 2, [[0, 0, 1], [0, 1, 1]]) == (
        ((0, 0), (0, 0), (1, 0)),
        ((0, 1), (1, 0), (1, 1)),
    )


def test_the_grid_finds_what_plain_enumeration_finds() -> None:
    model = Model(6, 256, 4, 1000, 128, 24 * 128 * 256**2)
    case = Case("small", "A100-SXM-40GB", world("ab", nodes=2, gpus=4, gbps=4, ms=5), model, 16)
    played = [
        simulate(
            case.cluster,
            model,
            case.times(plain.tp, plain.micro_batch),
            plain._replace(units=pack(case.cluster, plain.tp, r)),
        )
        for plain, r in layouts(case)
    ]
    assert len(played) > 100
    assert best(case)[0].step_s == min(step.step_s for step in played if step.fits)


def test_the_drawn_cases() -> None:
    drawn = cases()
    assert drawn == cases(SEED)
    assert len(drawn) == 20
    assert {len(case.cluster.regions) for case in drawn} == {1, 2, 3, 4, 5}
    assert {case.model.layers for case in drawn} == {24, 32, 40, 48, 80}
    assert all(2 <= r.nodes <= 8 for case in drawn for r in case.cluster.regions)
    europe = drawn[1].cluster  # the second case, as the table of measured regions has it
    assert [r.name for r in europe.regions] == ["azure:westeurope", "aws:eu-central-1"]
    assert europe.links == {(0, 1): Link(9.469, 7.37 / 2), (1, 0): Link(4.754, 7.29 / 2)}


def test_files() -> None:
    cluster = world("ab", nodes=2, gpus=2)
    document = cluster_document(Case("x", "H100-SXM-80GB", cluster, MODEL, 8))
    assert document["links"][0] == {"from": "a", "to": "b", "per_node_gbps": 8, "latency_ms": 10}
    assert model_document(MODEL)["n_embd"] == 10
    stages = [
        {"domain": "a", "layers": [0, 5], "tp": 1, "dp": 2, "devices": ["a/0/0", "a/0/1"]},
        {"domain": "b", "layers": [5, 12], "tp": 1, "dp": 2, "devices": ["b/0/0", "b/1/0"]},
    ]
    plan = {"pipelines": [{"stages": stages, "num_micro_batches": 4}], "micro_batch": 2, "schedule": {"name": "1f1b"}}
    assert read_plan(plan, cluster, MODEL) == Layout(1, 2, (4, 6), (4, 4), (((0, 0), (0, 0)), ((1, 0), (1, 1))))
    with pytest.raises(ValueError, match="interleave is 2"):
        read_plan({**plan, "interleave": 2}, cluster, MODEL)
