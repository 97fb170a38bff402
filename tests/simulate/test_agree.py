"""How replicas agree: bytes on each link, latencies in a row, who belongs together."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from tests.simulate.conftest import PlanOf

from hippo.errors import InputError
from hippo.plan.plan import Relay, Sync
from hippo.problem.cluster import Cluster, Domain, Link
from hippo.problem.gpus import gpu
from hippo.problem.problem import Problem
from hippo.problem.runtimes import ACROSS
from hippo.score.judge import evaluate
from hippo.simulate.agree import ring_s
from hippo.simulate.costs import costs
from hippo.simulate.lower import lower
from hippo.simulate.ring import ring
from hippo.simulate.routes import Routes
from hippo.simulate.timeline import link_bytes

MATRIX = 2.0 * 1000 * 512  # bytes of the gradient that embedding and head share


def gradient(problem: Problem, start: int = 0, stop: int = 8) -> float:
    return 2.0 * sum(layer.parameters for layer in problem.model.layers[start:stop])


def test_replicas_in_three_domains_go_round_a_ring(problem: Problem, plan_of: PlanOf) -> None:
    """Every domain sends 2 (n - 1) / n of the gradient in 4 pieces; one of them goes once round and over the hop of
    40 ms once more, which is later than what the slowest link (1e9 bytes/s) is done."""
    program = lower(problem, plan_of(("a/0/0 0-8",), ("b/0/0 0-8",), ("c/0/0 0-8",)))
    (group,) = program.groups
    assert group.ranks == (0, 1, 2)
    assert group.link_bytes == pytest.approx([4 / 3 * gradient(problem)] * 3)
    piece = gradient(problem) / 3
    once_round = 0.01 + 0.02 + 0.04 + piece * (1 / 1e9 + 1 / 2e9 + 1 / 4e9)
    assert group.hops * 0.04 == pytest.approx(once_round + 0.04 + piece / 4e9 - 4 * piece / 1e9)
    assert group.local_s == 0.0
    sources = {problem.cluster.links[link].source for link in group.links}
    assert sources == {"a", "b", "c"}


@pytest.mark.parametrize(("ranks", "share"), [(4, 4 / 7), (8, 8 / 15)])
def test_a_flat_ring_sends_more_the_more_ranks_there_are(
    problem: Problem, plan_of: PlanOf, ranks: int, share: float
) -> None:
    """With 4 and 8 ranks in each of two domains a flat ring sends 14/8 and 30/16 of the bytes, two levels 1 of them."""
    big = replace(problem, cluster=replace(problem.cluster, domains=tuple(wide(d) for d in problem.cluster.domains)))
    gpus = ",".join(map(str, range(ranks)))
    plan = plan_of((f"a/0/{gpus} 0-8",), (f"b/0/{gpus} 0-8",), dp=ranks)
    two, flat = (lower(big, replace(plan, sync=Sync(all_reduce=way))).groups[0] for way in ("two-level", "ring"))
    assert two.link_bytes == pytest.approx([gradient(problem)] * 2)
    assert two.link_bytes == pytest.approx([share * size for size in flat.link_bytes])
    assert two.hops == pytest.approx(2)


@pytest.mark.parametrize(("each", "share"), [(2.0, 1.0), (4.0, 0.75)])
def test_shards_over_all_replicas_scatter_gradients_and_gather_weights(
    problem: Problem, plan_of: PlanOf, each: float, share: float
) -> None:
    """By hand: a step on two domains of one GPU each is compute, then (each + 2) bytes a parameter over the link of
    1e9 bytes/s, half of them each way of the ring, then the update of half of the parameters."""
    problem = replace(problem, workload=replace(problem.workload, gradient_bytes_per_parameter=each))
    plan = plan_of(("a/0/0 0-8",), ("b/0/0 0-8",), sync=Sync(all_reduce="ring"))
    across = replace(plan, sharding=ACROSS)
    whole, shared = (lower(problem, way).groups[0] for way in (plan, across))
    assert shared.link_bytes == pytest.approx([share * size for size in whole.link_bytes])
    parameters = sum(layer.parameters for layer in problem.model.layers)
    assert max(shared.link_bytes) == pytest.approx(parameters * (each + 2.0) / 2)
    plain, half = (costs(problem).stages(way, way.pipelines[0])[0] for way in (plan, across))
    assert half.optimizer_s == pytest.approx(plain.optimizer_s / 2)
    waves_s = 4 * (half.forward_s + half.backward_s + half.weight_gradient_s)
    by_hand = waves_s + parameters * (each + 2.0) / 2 / 1e9 + 2 * 0.01 + half.optimizer_s + half.fixed_s
    assert evaluate(problem, across).step_time_s == pytest.approx(by_hand, rel=1e-6)


def test_nccl_sends_a_sum_in_turns(problem: Problem, plan_of: PlanOf) -> None:
    """Each of two ranks hands on 4 MiB a turn: a gradient of n times 8 MiB makes its two hops n times."""
    plan = plan_of(("a/0/0 0-8",), ("b/0/0 0-8",), sync=Sync(all_reduce="ring"))
    (group,) = lower(replace(problem, runtime="megatron"), plan).groups
    turns = -(-gradient(problem) // (2 * 4 * 2**20))
    assert turns > 1
    assert group.hops == pytest.approx(2 * turns)
    assert lower(problem, plan).groups[0].hops == pytest.approx(2)


def wide(domain: Domain) -> Domain:
    return replace(domain, gpus_per_node=8)


@pytest.mark.parametrize("late", [0.1, 1.0, 3.0, 30.0, 1000.0])
@pytest.mark.parametrize(("ranks", "domains"), [(2, 2), (4, 2), (8, 2), (16, 2), (6, 3), (12, 3), (4, 4)])
def test_a_ring_takes_as_long_as_its_pieces(ranks: int, domains: int, late: float) -> None:
    """Against every piece followed from rank to rank: each goes on when it has come and the hop is free."""
    crossing = np.array([(rank + 1) % (ranks // domains) == 0 for rank in range(ranks)])
    told, followed = both(crossing * 1.0, crossing * late, 2 * (ranks - 1))
    assert told == pytest.approx(followed, rel=0.11)
    if ranks == domains or late <= 1.0:
        assert told == pytest.approx(followed)


def test_hops_that_differ_take_as_long_as_their_pieces() -> None:
    """Seldom a little less: a chain that pauses on its way round is not looked for."""
    draw, shares = np.random.default_rng(7), []
    for _ in range(200):
        n, turns = draw.integers(2, 9), draw.integers(1, 6)
        told, followed = both(
            draw.exponential(1.0, n), draw.exponential(draw.choice([0.1, 1.0, 10.0]), n), turns * 2 * (n - 1)
        )
        shares.append(told / followed)
    assert max(shares) <= 1 + 1e-9
    assert np.mean(shares) > 0.995
    assert min(shares) > 0.95


def both(carried: np.ndarray, delayed: np.ndarray, sends: int) -> tuple[float, float]:
    """``ring_s``, and when the last piece has come if every one is followed."""
    sent = np.zeros(len(carried))
    for _ in range(sends - 1):  # when each rank begins to send its next piece
        sent = np.maximum(sent + carried, np.roll(sent + carried + delayed, 1))
    return ring_s(carried, delayed, sends), float((sent + carried + delayed).max())


def test_local_sgd_agrees_every_so_many_steps(problem: Problem, plan_of: PlanOf) -> None:
    every, now = (
        lower(problem, plan_of(("a/0/0 0-8",), ("b/0/0 0-8",), sync=sync)).groups[0]
        for sync in (Sync("local_sgd", 50), Sync())
    )
    assert every.link_bytes == pytest.approx([size / 50 for size in now.link_bytes])
    assert every.hops == pytest.approx(now.hops / 50)
    assert now.hops == pytest.approx(2)


def test_members_of_one_domain_agree_first(problem: Problem, plan_of: PlanOf) -> None:
    program = lower(problem, plan_of(("a/0/0 0-8",), ("a/0/1 0-8",), ("b/0/0 0-8",)))
    (group,) = program.groups
    assert group.local_s > 0.0
    assert group.link_bytes == pytest.approx([gradient(problem)] * 2)  # 2 (2 - 1) / 2 of it
    apart = lower(problem, plan_of(("a/0/0 0-8",), ("a/1/0 0-8",), ("b/0/0 0-8",))).groups[0]
    assert apart.local_s > group.local_s  # over the network of the nodes instead of NVLink


def test_replicas_in_one_domain_use_no_link(problem: Problem, plan_of: PlanOf) -> None:
    (group,) = lower(problem, plan_of(("a/0/0 0-8",), ("a/0/1 0-8",))).groups
    assert group.links == ()
    assert group.local_s > 0.0


def test_pipelines_cut_differently_share_layers_in_groups(problem: Problem, plan_of: PlanOf) -> None:
    plan = plan_of(("a/0/0 0-3", "b/0/0 3-8"), ("b/0/1 0-5", "c/0/0 5-8"))
    groups = {group.ranks: group for group in lower(problem, plan).groups}
    assert set(groups) == {(0, 2), (1, 2), (1, 3)}
    assert groups[0, 2].link_bytes == pytest.approx([gradient(problem, 0, 3)] * 2)
    assert groups[1, 2].links == ()  # both in b
    assert groups[1, 3].link_bytes == pytest.approx([gradient(problem, 5, 8)] * 2)


def test_tied_ends_of_a_pipeline_sum_their_gradient(problem: Problem, plan_of: PlanOf) -> None:
    model = problem.model
    tied = replace(model, layers=(*model.layers[:-1], replace(model.layers[-1], tied=True)))
    (group,) = lower(replace(problem, model=tied), plan_of(("a/0/0 0-4", "b/0/0 4-8"))).groups
    assert group.ranks == (0, 1)
    assert group.link_bytes == pytest.approx([MATRIX] * 2)
    assert lower(replace(problem, model=tied), plan_of(("a/0/0 0-8",))).groups == ()


def test_all_that_hold_a_tied_matrix_sum_it_once_or_replicas_sum_each_copy(problem: Problem, plan_of: PlanOf) -> None:
    """Four holders in two domains: once 2 (2 - 1) / 2 of it; or both copies as part of their layers, and each pair."""
    model = problem.model
    tied = replace(model, layers=(*model.layers[:-1], replace(model.layers[-1], tied=True)))
    plan = plan_of(("a/0/0 0-4", "a/0/1 4-8"), ("b/0/0 0-4", "b/0/1 4-8"))
    once, first, last = lower(replace(problem, model=tied), plan).groups
    assert once.ranks == (0, 1, 2, 3)
    assert once.link_bytes == pytest.approx([MATRIX] * 2)
    untied = gradient(replace(problem, model=tied), 0, 4), gradient(replace(problem, model=tied), 4, 8)
    assert first.link_bytes == pytest.approx([untied[0] - MATRIX] * 2)
    assert last.link_bytes == pytest.approx([untied[1]] * 2)
    sharded = replace(plan, sharding="optimizer")
    one, other, first, last = lower(replace(problem, model=tied, runtime="megatron"), sharded).groups
    assert (one.ranks, one.links, other.ranks) == ((0, 1), (), (2, 3))
    assert first.link_bytes == pytest.approx([untied[0]] * 2)
    assert last.link_bytes == pytest.approx([untied[1] + MATRIX] * 2)


def test_a_flat_ring_leaves_a_domain_from_one_node(problem: Problem, plan_of: PlanOf) -> None:
    """Two lanes on two nodes of each domain, 1e9 bytes/s a node: on two levels both send, on a ring the last lane."""
    links = tuple(replace(link, bandwidth_bytes_per_s=None, per_node_bytes_per_s=1e9) for link in problem.cluster.links)
    domains = tuple(replace(domain, nodes=2) for domain in problem.cluster.domains)
    capped = replace(problem, cluster=replace(problem.cluster, links=links, domains=domains))
    plan = plan_of(("a/0/0,1 0-8",), ("b/0/0,1 0-8",), dp=2)
    apart = [tuple(f"{domain}/{node}/0" for node in range(2)) for domain in "ab"]
    lines = zip(plan.pipelines, apart, strict=True)
    plan = replace(
        plan, pipelines=tuple(replace(line, stages=(replace(line.stages[0], devices=on),)) for line, on in lines)
    )
    two, flat = (lower(capped, replace(plan, sync=Sync(all_reduce=way))).groups[0] for way in ("two-level", "ring"))
    assert two.nic_bytes_per_s == (2e9, 2e9)
    assert flat.nic_bytes_per_s == (1e9, 1e9)


def test_stages_that_share_a_node_share_its_way_out(problem: Problem, plan_of: PlanOf) -> None:
    links = tuple(replace(link, bandwidth_bytes_per_s=None, per_node_bytes_per_s=1e9) for link in problem.cluster.links)
    capped = replace(problem, cluster=replace(problem.cluster, links=links))
    plan = plan_of(("a/0/0 0-4", "a/0/1 4-8"), ("b/0/0 0-4", "b/0/1 4-8"))
    assert [group.nic_bytes_per_s for group in lower(capped, plan).groups] == [(5e8, 5e8)] * 2


def test_gloo_keeps_so_much_in_flight(problem: Problem, plan_of: PlanOf) -> None:
    """4 MiB a round trip of 2 x 10 ms, however wide the link."""
    plan = plan_of(("a/0/0 0-8",), ("b/0/0 0-8",), sync=Sync(all_reduce="ring"))
    torch = replace(problem, runtime="torch")
    late = torch.cluster.links[0].delay_s
    (group,) = lower(torch, plan).groups
    assert group.nic_bytes_per_s == pytest.approx([4 * 2**20 / (2 * late)] * 2)


def test_parameters_sharded_over_domains_are_gathered_in_every_pass(problem: Problem, plan_of: PlanOf) -> None:
    """Half of the weights per forward, twice as much per backward, on both links, for each of 4 waves."""
    program = lower(problem, plan_of(("a/0/0 0-8",), ("b/0/0 0-8",), sharding="full"))
    assert program.groups == ()
    assert program.gather is not None
    assert program.gather.forward_bytes == pytest.approx(np.full((2, 1), gradient(problem) / 2))
    assert program.gather.backward_bytes == pytest.approx(np.full((2, 1), gradient(problem)))
    assert link_bytes(program)[list(program.gather.links)] == pytest.approx([4 * 1.5 * gradient(problem)] * 2)


def test_a_ring_over_relays_loads_both_hops(problem: Problem, plan_of: PlanOf) -> None:
    plan = plan_of(("a/0/0 0-8",), ("b/0/0 0-8",), relays=(Relay("a", "b", "c"),))
    (group,) = lower(problem, plan).groups
    links = problem.cluster.link_index
    assert set(group.links) == {links["a", "c"], links["c", "b"], links["b", "a"]}
    assert group.routes == ((links["a", "c"], links["c", "b"]), (links["b", "a"],))


def test_caps_of_nodes_slow_the_ring(problem: Problem, plan_of: PlanOf) -> None:
    capped = tuple(replace(link, per_node_bytes_per_s=1e8) for link in problem.cluster.links)
    other = replace(problem, cluster=replace(problem.cluster, links=capped))
    (group,) = lower(other, plan_of(("a/0/0 0-8",), ("b/0/0 0-8",))).groups
    assert group.nic_bytes_per_s == (1e8, 1e8)
    relayed = plan_of(("a/0/0 0-8",), ("b/0/0 0-8",), relays=(Relay("a", "b", "c"),))
    caps = dict(
        zip(*(getattr(lower(other, relayed).groups[0], name) for name in ("links", "nic_bytes_per_s")), strict=True)
    )
    assert caps[other.cluster.link_index["c", "b"]] == 2e8  # both nodes of c pass on


# --------------------------------------------------------------------------------------------------------------- rings
def ring_of(size: int, seed: int, num_bytes: float = 1e9) -> tuple[Cluster, list[str], float]:
    """A mesh of random links and the seconds of the ring that is chosen on it."""
    rng, names = np.random.default_rng(seed), [f"d{i}" for i in range(size)]
    links = tuple(
        Link(a, b, float(rng.uniform(1e8, 1e9)), float(rng.uniform(0.01, 0.1)), 0.0)
        for a in names
        for b in names
        if a != b
    )
    cluster = Cluster(
        "mesh", gpu("A100-SXM-80GB"), tuple(Domain(name, 1, 8, 3e11, 5e10, 5e-6) for name in names), links
    )
    pairs = ring(Routes(cluster, {}, {}), names, num_bytes)
    order = [(cluster.links[pair[0]].source, cluster.links[pair[0]].destination) for pair in pairs]
    assert [b for _, b in order] == [a for a, _ in (*order[1:], order[0])]
    return cluster, names, seconds(cluster, order, num_bytes)


def seconds(cluster: Cluster, pairs: list[tuple[str, str]], num_bytes: float) -> float:
    links = [cluster.links[cluster.link_index[pair]] for pair in pairs]
    rounds, n = 2 * (len(pairs) - 1), len(pairs)
    transfer = max(rounds / n * num_bytes / (link.bandwidth_bytes_per_s or 1.0) for link in links)
    return transfer + rounds * max(link.latency_s for link in links)


@pytest.mark.parametrize("seed", range(5))
def test_no_other_ring_is_quicker(seed: int) -> None:
    cluster, names, chosen = ring_of(5, seed)
    rings = [(names[0], *rest) for rest in permutations(names[1:])]
    best = min(seconds(cluster, list(zip(r, (*r[1:], r[0]), strict=True)), 1e9) for r in rings)
    assert chosen == pytest.approx(best)


def test_a_large_ring_is_better_than_the_order_of_the_file() -> None:
    cluster, names, chosen = ring_of(12, 0)
    assert chosen < seconds(cluster, list(zip(names, [*names[1:], names[0]], strict=True)), 1e9)


def test_domains_that_no_ring_joins_cannot_agree(problem: Problem, plan_of: PlanOf) -> None:
    one_way = replace(problem, cluster=replace(problem.cluster, links=problem.cluster.links[:3]))
    with pytest.raises(InputError, match="no ring of links"):
        lower(one_way, plan_of(("a/0/0 0-8",), ("b/0/0 0-8",)))
