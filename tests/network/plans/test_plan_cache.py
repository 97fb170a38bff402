"""Books of configurations: what is known of a plan, and what lies between two."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hippo.network.plans.plan_cache import PlanCache
from hippo.plan.plan import Compression, Plan
from hippo.planners.base import Stop
from hippo.planners.baselines.single_domain import SingleDomain
from hippo.planners.by_hand import site
from hippo.planners.exact.search import Exact
from hippo.problem.links import base_bandwidth, base_latency
from hippo.problem.load import load_problem
from hippo.problem.problem import Problem


@pytest.fixture(scope="module")
def hubs() -> tuple[Problem, Plan, Plan]:
    """A problem, its best plan (over two hubs) and the best in one."""
    problem = load_problem(model="gpt3-175b", cluster="four-hubs", global_batch=64)
    best, alone = (each.propose(problem, Stop(5.0)).plan for each in (Exact(), SingleDomain()))
    assert best is not None
    assert alone is not None
    assert (len(best.domains), len(alone.domains)) == (2, 1)
    return problem, best, alone


def states(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    return base_bandwidth(problem.cluster)[None], base_latency(problem.cluster)[None]


def test_a_plan_is_known_by_one_index(hubs: tuple[Problem, Plan, Plan]) -> None:
    problem, best, alone = hubs
    cache = PlanCache(problem)
    assert [cache.add(plan, origin="test") for plan in (best, alone, best)] == [0, 1, 0]
    assert (len(cache), cache.places) == (2, 2)


@pytest.mark.parametrize("runtime", ["hippo", "ideal"])
def test_a_lever_keeps_the_place_where_the_runtime_pulls_it_live(
    hubs: tuple[Problem, Plan, Plan], runtime: str
) -> None:
    problem, best, _ = hubs
    problem = replace(problem, runtime=runtime, allow_compression=True, compression_worth=0.98)
    cache, (one, other) = PlanCache(problem), best.domains
    pulled = replace(best, compression=(Compression(one, other, "fp8"), Compression(other, one, "fp8")))
    plain, lever = cache.add(best, origin="test"), cache.add(pulled, origin="test", lever="fp8")
    assert plain is not None
    assert lever is not None
    assert cache.configurations[lever].worth == 0.98
    assert cache.location(plain) == cache.location(lever)
    assert cache.of_place(0) == ([plain, lever] if runtime == "ideal" else [plain])
    assert cache.places == (1 if runtime == "ideal" else 2)
    assert cache.moves().shape[:2] == (cache.places, cache.places)
    assert (cache.moves() == 0.0).all()  # nothing is carried; a stop is what it costs
    share = cache.bytes_per_step(lever).sum() / cache.bytes_per_step(plain).sum()
    assert 0.5 < share < 0.65  # half of the activations; the agreement on the tied embedding stays as it is


def test_a_plan_without_memory_is_refused(hubs: tuple[Problem, Plan, Plan]) -> None:
    problem, best, _ = hubs
    small = replace(problem.cluster.gpu, memory_bytes=problem.cluster.gpu.memory_bytes / 8)
    cache = PlanCache(replace(problem, cluster=replace(problem.cluster, gpu=small)))
    assert cache.add(best, origin="test") is None
    assert len(cache) == 0


def test_a_plan_stands_still_without_a_link_it_uses(hubs: tuple[Problem, Plan, Plan]) -> None:
    problem, best, alone = hubs
    cache = PlanCache(problem)
    index, inside = cache.add(best, origin="test"), cache.add(alone, origin="test")
    assert index is not None
    assert inside is not None
    bandwidth, latency = states(problem)
    down = np.repeat(bandwidth, 2, axis=0)
    down[1, problem.cluster.link_index[best.domains[0], best.domains[1]]] = 0.0
    seconds = cache.step_time_s(index, down, np.repeat(latency, 2, axis=0))
    assert seconds[0] == pytest.approx(cache.score(index).step_time_s)
    assert seconds[1] == np.inf
    assert cache.step_time_s(inside, np.zeros_like(bandwidth), latency)[0] == cache.score(inside).step_time_s


def test_load_slows_only_those_who_work_there(hubs: tuple[Problem, Plan, Plan]) -> None:
    problem, _, alone = hubs
    cache = PlanCache(problem)
    index = cache.add(alone, origin="test")
    assert index is not None
    bandwidth, latency = states(problem)
    load = np.ones((1, len(problem.cluster.domains)))
    usual = cache.step_time_s(index, bandwidth, latency, load)[0]
    here = ~cache.domains_used(index)
    elsewhere = np.where(here, 1.5, 1.0)[None, :]
    assert cache.step_time_s(index, bandwidth, latency, elsewhere)[0] == usual
    slow = cache.step_time_s(index, bandwidth, latency, np.where(here, 1.0, 1.2)[None, :])[0]
    assert 1.1 * usual < slow <= 1.2 * usual


def test_moves_carry_what_the_other_place_lacks(hubs: tuple[Problem, Plan, Plan]) -> None:
    problem, best, alone = hubs
    cache = PlanCache(problem)
    for plan in (best, alone):
        cache.add(plan, origin="test")
    state = problem.workload.state_bytes_per_parameter
    there = alone.domains[0]
    lacking = sum(
        problem.model.layers[layer].parameters
        for stage in best.pipelines[0].stages
        if stage.domain != there
        for layer in range(*stage.layers)
    )
    assert cache.move_bytes(0, 0).sum() == 0.0
    assert cache.move_bytes(0, 1).sum() >= 0.95 * lacking * state


def test_without_links_there_is_no_way() -> None:
    alone = site("A100-SXM-80GB", 16)
    problem = load_problem(model="gpt3-2.7b", cluster=alone, global_batch=16, seq=512)
    found = SingleDomain().propose(problem, Stop(5.0)).plan
    assert found is not None
    cache = PlanCache(problem)
    assert cache.add(found, origin="test") == 0
    assert cache.step_time_s(0, np.zeros((1, 0)), np.zeros((1, 0)))[0] == pytest.approx(cache.score(0).step_time_s)
