from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hippo.jobs.engine.play import play
from hippo.jobs.job import Job
from hippo.jobs.placement import step_time as asked_of
from hippo.jobs.placement.models import problem, training
from hippo.jobs.placement.slowdown import INSIDE, Kind
from hippo.jobs.placement.step_time import STOP, parts, placed_exchange, slowdown, step_time
from hippo.jobs.policies.heuristics import FIFO
from hippo.jobs.settings import ReplayRules
from hippo.jobs.site import JobSite
from hippo.jobs.workload import JobWorkload
from hippo.planners.exact.search import Exact
from hippo.problem.cluster import Cluster
from hippo.score.judge import Judged, judge

from .worlds import Counting, cluster

PAIR, TRIPLE, ALL = 0b0011, 0b0111, 0b1111
ANY = float("inf")


def test_slow_links_cost_more_than_quick_ones():
    kinds = [Kind(16)]
    slow, quick = (slowdown(cluster("ab", gbps=gbps), kinds, most=ANY).factor[1, PAIR] for gbps in (1.0, 100.0))
    assert 1.9 < slow < 2.1  # one domain does the work of both: planning leaves the other idle
    assert 1.0 < quick < 1.05


@pytest.mark.slow  # that slow links cost more is quickly seen of a job of 16
def test_a_large_job_waits_for_its_activations():
    """768 sequences x 4096 tokens x 8192 channels x 2 bytes cross each way: 51.5 GB over 0.625 GB/s, of which TCP's
    payload is 95.4 %, are 86.4 s."""
    table, inside = slowdown(cluster("ab", gbps=5.0), [Kind(128)]), step_time(cluster("a", nodes=16), {"a": 128})
    bound = 86.43 / inside
    assert bound > 1.4  # the link and not the GPUs: a pipeline over both domains sends as little as any plan
    assert bound <= table.factor[1, PAIR] <= 1.03 * bound


def test_the_factor_is_that_of_two_step_times():
    world = cluster("abc", gbps=5.0)
    inside, over = step_time(world, {"b": 8}), step_time(world, {"a": 4, "c": 4})
    assert slowdown(world, [Kind(8)]).factor[1, 0b101] == over / inside


def test_a_table_by_hand():
    """The planner says 10, 15, 20 and 25 s over one to four domains, and 1 USD a step for each crossing."""
    planner = Counting()
    table = slowdown(cluster("abcd"), [Kind(24)], planner=planner, most=ANY)
    assert table.factor[1, [1, PAIR, TRIPLE, ALL]].tolist() == [1.0, 1.5, 2.0, 2.5]
    assert table.usd_per_s[1, [1, PAIR, TRIPLE]].tolist() == [0.0, 1 / 15, 2 / 20]
    assert len(planner.asked) == 4  # all pairs are alike, so are all triples


def test_a_part_must_be_equal_and_have_room():
    factor = slowdown(cluster("abcd", nodes=1), [Kind(10), Kind(32), Kind(40)], planner=Counting(), most=ANY).factor
    sets = [[mask for mask in range(16) if mask.bit_count() > 1 and np.isfinite(row[mask])] for row in factor]
    pairs = [mask for mask in range(16) if mask.bit_count() == 2]
    assert sets == [[], pairs, [ALL], []]  # 10 = 5 + 5, 32 = 4 x 8, 40 has no room


def test_a_job_larger_than_every_domain_is_measured_against_a_larger_one():
    planner = Counting()
    slowdown(cluster("ab", nodes=1), [Kind(16)], planner=planner, most=ANY)
    alone = [problem.cluster for problem in planner.asked if len(problem.cluster.domains) == 1]
    assert [(each.domains[0].nodes, each.domains[0].gpus_per_node) for each in alone] == [(2, 8)]


def test_the_better_domain_is_what_a_set_is_measured_against():
    world = cluster("ab")
    worse = replace(world.domains[1], inter_node_bytes_per_s=1e9)
    kinds, both = [Kind(16)], (world.domains[0], worse)
    better = step_time(world, {"a": 16})
    table = slowdown(replace(world, domains=both), kinds)
    over = step_time(replace(world, domains=both), {"a": 8, "b": 8})
    assert table.factor[1, PAIR] == over / better


def test_domains_without_a_link_are_not_spanned():
    factor = slowdown(cluster("abc", joined="abc"), [Kind(12)], planner=Counting(), most=ANY).factor[1]
    assert np.isinf(factor[0b101])
    assert factor[[0b011, 0b110, 0b111]].tolist() == [1.5, 1.5, 2.0]


def test_jobs_that_do_not_train_are_not_slowed_and_nobody_is_asked():
    planner = Counting()
    table = slowdown(cluster("ab", gbps=0.1), [Kind(16, trains=False)], planner=planner, most=ANY)
    assert table.factor[1, PAIR] == 1.0
    assert planner.asked == []


def test_training_on_what_the_planner_does_not_know_does_not_span():
    planner = Counting()
    kinds = [Kind(16, runs_on=runs_on) for runs_on in (("cpu",), ("cpu", "A100-SXM-80GB"))]
    kinds.append(Kind(1600, trains=False, runs_on=("cpu",)))  # how many there are the site knows, not the cluster
    table = slowdown(cluster("ab"), kinds, planner=planner, most=ANY)
    assert table.factor[1:, PAIR].tolist() == [np.inf, 1.5, 1.0]


def test_the_next_smaller_model_is_planned_where_one_does_not_fit():
    planner = Counting(most_parameters=4e9)
    table = slowdown(cluster("ab"), [Kind(16), Kind(8, "llama-3-8b")], planner=planner, most=ANY)
    assert [problem.model.name for problem in planner.asked[:3]] == ["qwen2.5-14b", "llama-3-8b", "llama-3.2-3b"]
    assert table.factor[1, PAIR] == 1.5
    assert np.isinf(table.factor[2, PAIR])  # one that a job names is not replaced


def test_few_domains_and_quick_links_first_where_not_all_can_be_asked(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(asked_of, "MOST_SETS", 1)
    world = cluster("abc")
    ends = [{link.source, link.destination} for link in world.links]
    rates = [9e9 if pair == {"b", "c"} else 1e9 for pair in ends]
    links = (replace(each, bandwidth_bytes_per_s=rate) for each, rate in zip(world.links, rates, strict=True))
    factor = slowdown(replace(world, links=tuple(links)), [Kind(12)], planner=Counting(), most=ANY).factor[1]
    assert np.flatnonzero(np.isfinite(factor)).tolist() == [0b001, 0b010, 0b100, 0b110]


def test_the_same_table_twice_and_progress_told():
    told: list[float] = []
    world, kinds = cluster("ab", gbps=5.0), [Kind(2), Kind(4)]
    first = slowdown(world, kinds, progress=lambda _, share: told.append(share))
    second = slowdown(world, kinds)
    assert np.array_equal(first.factor, second.factor)
    assert told == [0.0, 0.5]


def test_a_job_that_a_domain_holds_spans_only_where_it_costs_little():
    """15 s over two domains against 10 s: half as much again. 24 devices are more than a domain of 16 has."""
    kinds, world = [Kind(8), Kind(24)], cluster("abc", nodes=2)
    assert slowdown(world, kinds, planner=Counting(), most=1.5).factor[1:, PAIR].tolist() == [1.5, 1.5]
    assert slowdown(world, kinds, planner=Counting(), most=1.49).factor[1:, PAIR].tolist() == [np.inf, 1.5]


def test_one_device_never_spans():
    table = slowdown(cluster("ab"), [Kind(1)])
    assert table.kinds == ()
    assert table.factor.shape == (INSIDE + 1, 4)


def planned(world: Cluster, devices: int) -> Judged:
    """What the planner finds for a gang of so many devices in each domain."""
    found = Exact().propose(problem(training(devices * len(world.domains)), world), STOP).best
    assert isinstance(found, Judged)
    return found


def there(names: str, devices: int, **terms: object) -> Cluster:
    return parts(cluster(names, **terms), tuple(names), devices)  # type: ignore[arg-type]


def test_domains_exchange_along_the_links_that_there_are():
    """Only b and a, and a and c are joined, so a stands between the others."""
    found = placed_exchange(planned(there("abc", 4, gbps=20.0, joined="bac"), 4))
    assert found is not None
    first = [domain.name for domain in asked_of._in_order(there("abc", 4, gbps=20.0, joined="bac"))]
    assert [first[place] for place in found.order][1] == "a"
    assert (len(found.order), found.ring, found.one_way) == (3, False, False)


@pytest.mark.parametrize("gbps", [12.0, 6.0, 3.0])  # of the grid, so nothing is interpolated
def test_on_other_links_a_gang_is_as_quick_as_its_plan_is_judged_to_be(gbps: float):
    best, slow = planned(there("ab", 16, gbps=20.0), 16), there("ab", 16, gbps=gbps)
    found = placed_exchange(best)
    assert found is not None
    again = judge(problem(training(32), slow), best.plan).step_time_s
    assert found.seconds[1, asked_of.BANDWIDTH_GBPS.index(gbps)] == pytest.approx(again, rel=1e-6)


def test_with_its_links_for_itself_a_gang_takes_its_factor_and_pays_for_what_it_sends():
    world = cluster("ab", gbps=5.0, nodes=1)
    here, large = JobSite.of(world), JobWorkload.of([Job("large", 0.0, 1000.0, devices=16)])
    held, flows = (slowdown(world, [Kind(16)], exchanges=each) for each in (False, True))
    assert held.exchange is None
    assert flows.exchange is not None
    assert flows.exchange.row[1, PAIR] == 0
    assert np.array_equal(held.factor, flows.factor)
    one, other = (play(large, here, FIFO, ReplayRules(), slowdown=each) for each in (held, flows))
    assert other.finish_s == pytest.approx(one.finish_s, rel=1e-12)
    goodput = planned(parts(world, ("a", "b"), 8), 8).problem.cluster.links[0].goodput  # headers are sent, too
    assert 0.02 * other.link_gb.sum() * goodput == pytest.approx(one.exchange_usd[0], rel=1e-3)
    assert other.exchange_usd[0] == 0.0


def test_alike_sets_send_alike_over_links_of_their_own():
    table = slowdown(cluster("abcd", gbps=20.0), [Kind(32)], exchanges=True)
    exchange = table.exchange
    assert exchange is not None
    rows = [exchange.row[1, mask] for mask in range(16) if mask.bit_count() == 2]
    routes = [sorted(exchange.route[row, :2].tolist()) for row in rows]
    assert routes == [[0, 1], [0, 2], [1, 2], [0, 3], [1, 3], [2, 3]]
    assert np.ptp(exchange.offers.rate[rows], axis=0).max() < 1e-12
    assert np.ptp(exchange.offers.hop_bytes[rows]) == 0.0


def test_a_plan_that_leaves_a_domain_idle_sends_nothing():
    table = slowdown(cluster("ab", gbps=0.1), [Kind(16)], most=ANY, exchanges=True)
    assert table.exchange is not None
    assert table.exchange.row[1, PAIR] == -1
    assert table.factor[1, PAIR] > 1.9
