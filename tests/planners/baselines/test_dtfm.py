from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from hippo.planners.baselines.dtfm import Dtfm, Grid, Layouts, devices_of, lanes_of, pair_seconds
from hippo.planners.recipe import Recipe
from hippo.simulate.layouts import cost_model

from ..worlds import STOP, assert_sound, cluster, domain, gpt, problem

WHERE = cluster(domain("a", 1, 4), domain("b", 1, 4))


def test_seconds_between_two_devices_are_there_and_back() -> None:
    # Two lanes share 8 Gbit/s, 20 ms one way; each sends its half of a stage's gradients, and 8 micro-batches.
    where = cluster(domain("a", 1, 4), domain("b", 1, 4), gbps=8.0)
    asked = problem(where)
    within_s, along_s = pair_seconds(asked, Grid(2, (0, 5, 10), 2, Recipe(1), 8, 0.0), cost_model(asked))
    gradients = 2.0 * asked.model.parameters / 2 / 2
    assert within_s[0, 1] == pytest.approx(0.04 + 2 * gradients * 2 / 1e9)
    activations = 8 * 512 * 1024 * 2
    assert along_s[0, 1] == pytest.approx(0.04 + 2 * activations * 2 / 1e9)
    assert along_s[0, 0] < along_s[0, 1]


def test_lanes_follow_the_matchings() -> None:
    flows = np.array([[[1, 1], [0, 2]], [[1, 0], [0, 3]]])
    lanes = lanes_of(problem(WHERE), np.array([2, 2]), flows)
    assert Counter(lanes) == {("a", "a", "a"): 1, ("a", "b", "b"): 1, ("b", "b", "b"): 2}


def test_stages_are_equal_and_take_every_device() -> None:
    asked = problem(WHERE)
    for grid in Layouts(cost_model(asked), lambda missing: None).grids():
        assert grid.pp * grid.dp == sum(devices_of(asked, grid.tp))
        blocks = [min(stop, 9) - max(start, 1) for start, stop in zip(grid.cuts, grid.cuts[1:], strict=False)]
        assert max(blocks) - min(blocks) <= 1


def test_a_slow_link_is_crossed_by_what_is_smaller() -> None:
    """Long sequences, few parameters: replicas side by side. Many parameters, little to pass on: a pipeline across."""
    light = problem(cluster(domain("a", 1, 4), domain("b", 1, 4), gbps=1.0), gpt(4, 512, vocab=1024), batch=256)
    answer = Dtfm().propose(light, STOP)
    assert_sound(light, answer)
    assert answer.plan is not None
    assert all(len(set(pipeline.domains)) == 1 for pipeline in answer.plan.pipelines)
    heavy = problem(cluster(domain("a", 1, 4), domain("b", 1, 4), gbps=1.0), gpt(8, 2048), batch=8, seq=128)
    answer = Dtfm().propose(heavy, STOP)
    assert_sound(heavy, answer)
    assert answer.plan is not None
    assert {pipeline.domains for pipeline in answer.plan.pipelines} in ({("a", "b")}, {("b", "a")})


def test_a_slow_pair_is_kept_apart_in_the_pipeline() -> None:
    where = cluster(
        domain("a", 1, 2), domain("b", 1, 2), domain("c", 1, 2), others={("a", "b"): 0.05}, gbps=20.0, memory_gb=3.0
    )
    asked = problem(where, gpt(9, 1536), batch=8, seq=128)
    answer = Dtfm().propose(asked, STOP)
    assert_sound(asked, answer)
    assert answer.plan is not None
    for pipeline in answer.plan.pipelines:
        assert not any(
            {one, two} == {"a", "b"} for one, two in zip(pipeline.domains, pipeline.domains[1:], strict=False)
        )


@pytest.mark.parametrize("runtime", ["megatron", "torch", "deepspeed"])
def test_pipelines_are_alike_where_the_runtime_asks_for_it(runtime: str) -> None:
    asked = problem(cluster(domain("a", 1, 4), domain("b", 2, 4)), batch=96, runtime=runtime)
    assert_sound(asked, Dtfm().propose(asked, STOP))


def test_a_batch_that_no_grid_of_all_devices_deals_leaves_some_idle() -> None:
    asked = problem(cluster(domain("a", 1, 4), domain("b", 1, 1)), gpt(2), batch=16)
    answer = Dtfm().propose(asked, STOP)
    assert_sound(asked, answer)
    assert answer.plan is not None
    assert answer.plan.gpus == 4


def test_the_seed_settles_the_answer() -> None:
    asked = problem(cluster(domain("a", 1, 4), domain("b", 1, 4), domain("c", 1, 4)), batch=48)
    first, again = Dtfm().propose(asked, STOP, seed=3), Dtfm().propose(asked, STOP, seed=3)
    assert (first.plan, first.score) == (again.plan, again.score)


def test_domains_without_links_have_no_pipeline_and_no_group() -> None:
    asked = problem(cluster(domain("a", 1, 4), domain("b", 1, 4), others={("a", "b"): 0.0}))
    answer = Dtfm().propose(asked, STOP)
    assert_sound(asked, answer)
    assert answer.plan is None
