"""Worlds to be judged on are the same from the same numbers, and rows hold all that figures are derived from."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hippo.jobs.joint.env import prices
from hippo.jobs.joint.evaluate.suite import WorldMethod, WorldSuite, play_worlds, priced_s
from hippo.jobs.joint.evaluate.worlds import WorldDraw, WorldGrid, WorldGround, repeated
from hippo.jobs.joint.settings import SEPARATE, SRPT
from hippo.problem.catalogue.clusters import cluster

from ..hi_ppo.test_agents import table

GROUND = WorldGround("four-hubs", table())
DRAW = WorldDraw("mixed", 1.2, "failing", 3, 12, 5)
METHODS = (WorldMethod("separate", SEPARATE), WorldMethod("srpt", SRPT))


def test_every_world_of_a_grid_has_a_seed_of_its_own_and_networks_go_in_turn():
    grid = WorldGrid(seeds=2, domains=(4, 8))
    draws = grid.draws()
    assert 2 * len({each.seed for each in draws}) == len(draws) == 2 * 2 * 2 * 3 * 5
    assert [each for each in draws if not each.stops_allowed] == [
        replace(each, stops_allowed=False) for each in draws if each.stops_allowed
    ]
    assert {each.jobs for each in draws if each.domains == 8} == {120}
    for family in grid.families:
        assert {each.network for each in draws if each.family == family} == set(grid.networks)


def test_more_domains_are_copies_linked_as_those_they_are_copies_of():
    few = cluster("three-aws-regions")
    many = repeated(few, 7)
    names = [each.name for each in few.domains]
    assert [each.name for each in many.domains] == [*names, *(f"{each}-2" for each in names), f"{names[0]}-3"]
    links = {(each.source, each.destination): each for each in many.links}
    assert len(links) == 7 * 6
    for here, there in ((0, 1), (2, 0)):
        own, copied = links[names[here], names[there]], links[f"{names[here]}-2", names[there]]
        assert replace(copied, source=own.source) == own
    quickest = max((each for each in few.links if each.source == names[1]), key=lambda each: each.rate_bytes_per_s(8))
    assert links[names[1], f"{names[1]}-2"].rate_bytes_per_s(8) == quickest.rate_bytes_per_s(8)


def test_equal_draws_are_equal_worlds_and_other_seeds_others():
    first, again, other = (GROUND.scene(each) for each in (DRAW, DRAW, replace(DRAW, seed=6)))
    assert np.array_equal(first.workload.arrival_s, again.workload.arrival_s)
    assert first.site.history is not None
    assert again.site.history is not None
    assert np.array_equal(first.site.history.bandwidth_bytes_per_s, again.site.history.bandwidth_bytes_per_s)
    assert not np.array_equal(first.workload.arrival_s, other.workload.arrival_s)
    assert GROUND.scene(replace(DRAW, network="still")).site.history is None


def test_figures_of_a_row_follow_from_its_ends_and_the_rows_of_its_jobs():
    rows, jobs = play_worlds(WorldSuite(GROUND, METHODS), [DRAW])
    assert [row["method"] for row in rows] == ["separate", "srpt"]
    assert {job["world"] for job in jobs} == {DRAW.name}
    price, came = (np.array([job[key] for job in jobs]) for key in ("price", "arrival_s"))
    assert price == pytest.approx(prices(GROUND.scene(DRAW)))
    for row in rows:
        stays = np.array(row["finish_s"]) - came
        assert row["priced_s"] == pytest.approx(float(np.mean(price * stays)))
        assert row["mean_completion_s"] == pytest.approx(float(stays.mean()))
        assert row["p95_completion_s"] == pytest.approx(float(np.quantile(stays, 0.95)))
        late = [end > job["deadline_s"] for end, job in zip(row["finish_s"], jobs, strict=True) if job["deadline_s"]]
        assert row["deadlines_missed"] == pytest.approx(np.mean(late)) if late else row["deadlines_missed"] is None
    assert rows[0]["priced_s"] == pytest.approx(priced_s(GROUND.scene(DRAW), SEPARATE))


def test_processes_change_nothing():
    suite, draws = WorldSuite(GROUND, METHODS[1:]), [DRAW, replace(DRAW, seed=6, network="still")]
    told = []
    alone, shared = (play_worlds(suite, draws, processes=n, watch=lambda words, _: told.append(words)) for n in (1, 2))
    for one, two in zip(alone[0], shared[0], strict=True):
        assert {**one, "cpu_s": 0} == {**two, "cpu_s": 0}
    assert alone[1] == shared[1]
    assert set(told) == {each.name for each in draws}
