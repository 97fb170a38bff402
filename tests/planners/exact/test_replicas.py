"""Replicas in domains that differ: shares of the batch, and a world where they are the best there is."""

from dataclasses import replace
from itertools import product
from operator import mul
from random import Random

import pytest
from tests.planners.tiny import both, domain
from tests.planners.tiny import problem as tiny

from hippo.plan.check import check
from hippo.plan.plan import Relay
from hippo.planners.base import Stop
from hippo.planners.brute.brute import Brute
from hippo.planners.brute.space import Space
from hippo.planners.exact.replicas import deal
from hippo.planners.exact.search import Exact
from hippo.problem.cluster import Domain, Link
from hippo.problem.load import load_problem
from hippo.problem.problem import Problem


def unlike(bandwidth_bytes_per_s: float) -> Problem:
    """The toy with two nodes in its second domain, and links of this speed."""
    problem = load_problem(model="gpt2", cluster="toy", global_batch=1536)
    cluster = problem.cluster
    first, second = cluster.domains
    links = tuple(replace(link, bandwidth_bytes_per_s=bandwidth_bytes_per_s, latency_s=1e-5) for link in cluster.links)
    wide = replace(second, nodes=2 * second.nodes)
    return replace(problem, cluster=replace(cluster, domains=(first, wide), links=links))


def test_shares_follow_the_speeds_and_add_up():
    assert deal(8, [1, 1], [1.0, 3.0]) == (2, 6)
    assert deal(12, [2, 4], [1.0, 2.0]) == (2, 2)
    waves = deal(1024, [8, 2, 1], [4.0, 2.0, 1.0])
    assert waves is not None
    assert sum(each * width for each, width in zip(waves, (8, 2, 1), strict=True)) == 1024
    assert [each * width for each, width in zip(waves, (8, 2, 1), strict=True)] == pytest.approx([585, 293, 146], abs=9)


@pytest.mark.parametrize("seed", range(20))
def test_no_shares_near_those_by_speed_are_quicker(seed):
    random = Random(seed)
    widths = [random.choice((1, 2, 4, 8)) for _ in range(random.randint(2, 4))]
    speeds = [random.uniform(0.5, 4.0) for _ in widths]
    lots = random.randint(1, 256)
    even = [max(1, round(lots * speed / sum(speeds) / width)) for width, speed in zip(widths, speeds, strict=True)]
    last = widths.index(min(widths))  # takes what the others leave
    near = [range(each - 3, each + 4) if at != last else range(1, lots + 1) for at, each in enumerate(even)]

    def slowest(waves: tuple[int, ...]) -> float:
        return max(each * width / speed for each, width, speed in zip(waves, widths, speeds, strict=True))

    dealt = (waves for waves in product(*near) if sum(map(mul, waves, widths)) == lots and min(waves) >= 1)
    best, found = min(dealt, key=slowest, default=None), deal(lots, widths, speeds)
    assert (found is None) == (best is None)
    if found is not None:
        assert sum(map(mul, found, widths)) == lots
        assert slowest(found) == slowest(best)


def test_what_cannot_be_dealt_is_told():
    assert deal(7, [2, 4], [1.0, 1.0]) is None
    assert deal(1, [1, 1], [1.0, 1.0]) is None


def test_unlike_domains_share_the_batch_where_links_are_quick():
    problem = unlike(1e12)
    found = Exact().propose(problem, Stop(200.0))
    assert found.plan is not None
    assert found.score is not None
    assert found.lower_bound_s is not None
    alone = min(each.step_time_s for each in (found.best, *found.runners_up) if len(each.plan.domains) == 1)
    both = min(each.step_time_s for each in (found.best, *found.runners_up) if len(each.plan.pipelines) == 2)
    assert found.score.step_time_s <= both < alone
    assert found.lower_bound_s <= found.score.step_time_s
    shares = {
        line.stages[0].domain: line.num_micro_batches * line.stages[0].dp
        for each in (found.best, *found.runners_up)
        if len(each.plan.pipelines) == 2
        for line in each.plan.pipelines
    }
    small, large = (shares[domain.name] for domain in problem.cluster.domains)
    assert large > 1.5 * small
    assert not check(problem, found.plan)


def test_runtimes_with_equal_shares_do_not_get_them():
    found = Exact().propose(replace(unlike(1e12), runtime="megatron"), Stop(200.0))
    for other in found.runners_up:
        assert len({line.num_micro_batches for line in other.plan.pipelines}) == 1


def test_local_sgd_joins_domains_of_unlike_fabric_where_all_replicas_lie_alike():
    """Under torch, whose stages have one width: as quick as the best of every plan."""
    domains = tuple(Domain(name, 1, 1, 3e11 * share, 2.5e10 * share, 1e-5) for name, share in (("a", 1.0), ("b", 0.7)))
    asked = tiny(domains, both("a", "b", 3e9, 1e-4), runtime="torch", allow_local_sgd=True)
    found, best = Exact().propose(asked, Stop(200.0)), Brute().propose(asked, Stop(200.0))
    assert found.plan is not None
    assert found.score is not None
    assert best.score is not None
    assert (found.plan.sync.method, len(found.plan.pipelines)) == ("local_sgd", 2)
    assert best.gap == 0.0
    assert found.score.step_time_s == pytest.approx(best.score.step_time_s, rel=1e-9)


def test_sums_of_replicas_go_through_a_third_domain_where_that_is_quicker():
    """A link back that is slow; the third domain has half the GPUs."""
    domains = domain("a"), domain("b", 1, 2), domain("c", 1, 2)
    links = (*both("a", "b", 1e10, 1e-4), *both("a", "c", 1e10, 1e-4), *both("b", "c", 1e10, 1e-4)[:1])
    asked = tiny(domains, (*links, Link("c", "b", 2e8, 1e-4, 0.02)), batch=2, runtime="hippo", allow_local_sgd=True)
    space = Space(recompute=("none",), sharding=("none",), run_ahead=False, most_chunks=1)
    found, best = Exact().propose(asked, Stop(200.0)), Brute(space=space).propose(asked, Stop(200.0))
    without = Brute(space=replace(space, relays=False)).propose(asked, Stop(200.0))
    assert found.plan is not None
    assert found.score is not None
    assert best.score is not None
    assert without.score is not None
    assert found.plan.relays == (Relay("c", "b", "a"),)
    assert best.gap == without.gap == 0.0
    assert found.score.step_time_s == pytest.approx(best.score.step_time_s, rel=1e-9)
    assert without.score.step_time_s > 1.01 * best.score.step_time_s
