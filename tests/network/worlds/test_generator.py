"""Worlds: repeatable, of the sizes their family says, with events where plans lie."""

from __future__ import annotations

import numpy as np
import pytest

from hippo.dynamics.movements import widest_path
from hippo.dynamics.network import trace_to_csv
from hippo.errors import InputError, UnknownNameError
from hippo.network.worlds.generator import (
    BALANCED,
    FAMILIES,
    MODELS,
    SPLITS,
    make_world,
    scaled,
    tokens_per_s,
    trace_of,
    world_from_trace,
)
from hippo.network.worlds.world import World
from hippo.problem.catalogue.clusters import cluster
from hippo.problem.cluster import Cluster, Link
from hippo.problem.links import Trace, base_bandwidth, base_latency
from hippo.problem.problem import Problem
from hippo.problem.trace_csv import trace_from_csv

WORLDS = [(family, split) for family in FAMILIES for split in SPLITS]


def same(one: World, other: World) -> bool:
    """Whether two worlds are equal to the last bit."""
    arrays = ("bandwidth_bytes_per_s", "latency_s", "compute", "told")
    alike = all(np.array_equal(getattr(one, name), getattr(other, name)) for name in arrays)
    return alike and one.problem == other.problem and one.epoch_s == other.epoch_s


@pytest.mark.parametrize(("family", "split"), WORLDS)
def test_a_world_is_well_formed_and_always_the_same(family: str, split: str) -> None:
    for seed in range(5):
        world = make_world(family, seed, split=split)
        assert same(world, make_world(family, seed, split=split))
        links, domains = len(world.problem.cluster.links), len(world.problem.cluster.domains)
        least, most = FAMILIES[family].domains
        assert least <= domains <= most
        assert world.bandwidth_bytes_per_s.shape == world.latency_s.shape == world.told.shape == (world.epochs, links)
        assert world.compute.shape == (world.epochs, domains)
        assert np.isfinite(world.bandwidth_bytes_per_s).all()
        assert (world.bandwidth_bytes_per_s >= 0).all()
        assert (world.bandwidth_bytes_per_s[0] > 0).all()
        assert world.told[0].all()
        assert (world.latency_s >= base_latency(world.problem.cluster) - 1e-12).all()
        assert (world.compute >= 0.5).all()
        assert world.problem.model.name in MODELS[split]


def test_seeds_families_and_splits_differ() -> None:
    seen = [make_world(family, seed, split=split) for family, split in WORLDS[:6] for seed in range(3)]
    assert not any(same(one, other) for at, one in enumerate(seen) for other in seen[:at])


def test_no_model_is_in_both_splits() -> None:
    assert set(MODELS["train"]).isdisjoint(MODELS["test"])


def ratio(world: World) -> float:
    """Tokens/s of a quick link over those of three domains, or of all where links are said to be no matter."""
    model, whole = world.problem.model, world.problem.cluster
    carried = np.quantile(base_bandwidth(whole), 0.7) / (2.0 * model.layers[1].hidden)
    joined = len(whole.domains) if world.family == "compute_bound" else 3
    gpus = np.mean([domain.gpus for domain in whole.domains]) * min(joined, len(whole.domains))
    return float(carried / (gpus * tokens_per_s(model, whole.gpu)))


@pytest.mark.parametrize("split", [SPLITS[0], *(pytest.param(each, marks=pytest.mark.slow) for each in SPLITS[1:])])
def test_links_are_as_quick_beside_compute_as_the_family_says(split: str) -> None:
    median = {
        family: float(np.median([ratio(make_world(family, seed, split=split)) for seed in range(30)]))
        for family in FAMILIES
    }
    balanced = [value for family, value in median.items() if FAMILIES[family].ratio == BALANCED]
    assert all(0.6 < value < 2.2 for value in balanced)
    assert median["compute_bound"] > 6.0
    assert median["link_bound"] < 0.45


def test_a_domain_alone_cannot_hold_the_model_in_some_worlds_and_can_in_others() -> None:
    fits = []
    for seed in range(40):
        problem = make_world("link_bound", seed).problem
        room = max(domain.gpus for domain in problem.cluster.domains) * problem.cluster.gpu.memory_bytes
        fits.append(room > 16.0 * problem.model.parameters)
    assert 0.2 < np.mean(fits) < 0.9


def test_events_do_what_the_family_says() -> None:
    def share(family: str, seed: int) -> np.ndarray:
        world = make_world(family, seed)
        found: np.ndarray = world.bandwidth_bytes_per_s / base_bandwidth(world.problem.cluster)
        return found

    for seed in range(5):
        assert share("ou3", seed).min() >= 0.7 - 1e-9
        assert share("ou3", seed).max() <= 1.3 + 1e-9
        assert share("transient", seed).min() < 0.45
        halved = share("halving", seed)
        assert ((halved[-1] < 0.75) & (halved[0] > 0.75)).any()
        assert (share("outage", seed) == 0.0).any()
    assert max(make_world("stragglers", seed).compute.max() for seed in range(5)) > 1.4


def test_the_widest_path_by_hand() -> None:
    """a-b 5, b-c 4, c-d 9, a-c 1, the rest 0.5: of three domains the best two links are 9 and 4."""
    toy = cluster("toy")
    rates = {("a", "b"): 5.0, ("b", "c"): 4.0, ("c", "d"): 9.0, ("a", "c"): 1.0, ("a", "d"): 0.5, ("b", "d"): 0.5}
    domains = tuple(type(toy.domains[0])(name, 1, 8, 3e11, 5e10, 1e-5) for name in "abcd")
    links = tuple(Link(a, b, rate, 0.01, 0.0) for (s, d), rate in rates.items() for a, b in ((s, d), (d, s)))
    four = Cluster("four", toy.gpu, domains, links)
    path = widest_path(four, 3)
    assert path in ([1, 2, 3], [3, 2, 1])
    assert sorted(widest_path(four, 4)) == [0, 1, 2, 3]


def test_unknown_names_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="transient"):
        make_world("transcient", 0)
    with pytest.raises(UnknownNameError, match="train"):
        make_world("ou3", 0, split="validation")


def test_a_world_written_as_a_trace_comes_back() -> None:
    world = make_world("outage", 3)
    text = trace_to_csv(trace_of(world), world.problem.cluster)
    again = world_from_trace(world.problem, trace_from_csv(text, world.problem.cluster, source="test"))
    assert again.epochs == world.epochs
    assert again.epoch_s == world.epoch_s
    assert again.bandwidth_bytes_per_s == pytest.approx(world.bandwidth_bytes_per_s, rel=1e-8)
    assert again.told.all()
    assert (again.compute == 1.0).all()


def test_an_epoch_of_a_trace_has_the_state_of_its_begin() -> None:
    problem = Problem(make_world("ou3", 0).problem.model, cluster("toy"), make_world("ou3", 0).problem.workload)
    rates = np.array([[1e9, 1e9], [2e9, 1e9], [3e9, 1e9]])
    trace = Trace(np.array([0.0, 90.0, 250.0]), rates, np.full((3, 2), 0.02))
    world = world_from_trace(problem, trace, epoch_s=100.0)
    assert world.bandwidth_bytes_per_s[:, 0].tolist() == [1e9, 2e9, 2e9, 3e9, 3e9]  # the last holds 160 s
    assert world_from_trace(problem, Trace(np.zeros(1), rates[:1], trace.latency_s[:1])).epochs == 1
    long = Trace(np.array([0.0, 60.0, 120.0, 1e9]), rates[[0, 0, 0, 0]], np.full((4, 2), 0.02), "net.csv")
    with pytest.raises(InputError, match=r"net\.csv: .* epochs of 60 s"):
        world_from_trace(problem, long)


def test_movement_can_be_made_weaker_or_taken_away() -> None:
    world = make_world("regimes", 1)
    base = base_bandwidth(world.problem.cluster)
    assert scaled(world, 0.0).bandwidth_bytes_per_s == pytest.approx(np.tile(base, (world.epochs, 1)))
    half = scaled(world, 0.5).bandwidth_bytes_per_s / base - 1.0
    assert half == pytest.approx(0.5 * (world.bandwidth_bytes_per_s / base - 1.0))
