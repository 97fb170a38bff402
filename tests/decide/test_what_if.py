from __future__ import annotations

import pytest

from hippo.decide.what_if import changed_links, crossing, scaled_link, time_with, time_with_rank
from hippo.problem.cluster import Link


@pytest.mark.parametrize("limit", [1.3, 7.4, 900.0])
def test_crossing_finds_the_limit_from_below(limit):
    assert crossing(lambda x: x >= limit, start=1.0, end=1e3) == pytest.approx(limit, rel=0.01)


def test_crossing_finds_the_limit_from_above():
    assert crossing(lambda x: x <= 0.2, start=1.0, end=1e-3) == pytest.approx(0.2, rel=0.01)


def test_crossing_lies_on_the_true_side():
    found = crossing(lambda x: x >= 7.4, start=1.0, end=1e3)
    assert found is not None
    assert found >= 7.4


def test_crossing_of_what_never_holds():
    assert crossing(lambda x: False, start=1.0, end=1e3) is None


def test_a_stage_made_slower(worlds):
    game = worlds.across(send_s=0.0)
    assert game.step_time_s == pytest.approx(15.0)
    assert time_with_rank(game, 0, 2.0) > 24.0


def test_a_link_made_faster_and_slower(worlds):
    game = worlds.across(send_s=10.0)
    assert time_with(game, (0,)) == pytest.approx(game.step_time_s)
    assert time_with(game, (0,), bandwidth=2.0) < game.step_time_s < time_with(game, (0,), bandwidth=0.5)


def test_links_used_come_heaviest_first(worlds):
    assert worlds.across(send_s=1.0).links_used == (0, 1)
    assert worlds.alone().links_used == ()


def test_a_scaled_link():
    assert scaled_link(Link("a", "b", 10.0, 0.5, 0.02), bandwidth=2, latency=3, price=4) == Link(
        "a", "b", 20.0, 1.5, 0.08
    )
    capped = scaled_link(Link("a", "b", None, 0.5, 0.02, per_node_bytes_per_s=5.0), bandwidth=2)
    assert capped.per_node_bytes_per_s == 10.0
    both = scaled_link(Link("a", "b", 10.0, 0.5, 0.02, per_node_bytes_per_s=5.0), bandwidth=2)
    assert (both.bandwidth_bytes_per_s, both.per_node_bytes_per_s) == (20.0, 5.0)


def test_changing_links_leaves_the_problem_as_it_was(worlds):
    problem = worlds.across(send_s=1.0).problem
    changed = changed_links(problem, lambda link: scaled_link(link, bandwidth=3.0))
    assert changed.cluster.links[0].bandwidth_bytes_per_s == 3 * problem.cluster.links[0].bandwidth_bytes_per_s
    assert changed.cluster.domains == problem.cluster.domains
