"""The standard suite: which tasks there are, that rows do not depend on who plays them, and what the front counts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hippo.network.evaluate.coverage import at_rest, covered, preferences, reach, without_levers
from hippo.network.evaluate.entrants import Entrant, StaticLevers, compete, held
from hippo.network.evaluate.evidence import evidence
from hippo.network.evaluate.suite import LARGE, MAIN, Suite, Task, loaded, rows_of, tasks
from hippo.network.methods.receding_horizon import RecedingHorizon
from hippo.network.methods.static import Static
from hippo.network.rules.view import Action, View
from hippo.network.worlds.generator import make_world
from hippo.network.worlds.judge import Scenario, scenario_of
from hippo.network.worlds.world import World
from hippo.planners.base import Stop
from hippo.planners.baselines.single_domain import SingleDomain
from hippo.score.score import Score

ENTRANTS = (Entrant("static", Static), Entrant("static_levers", StaticLevers))


def small() -> World:
    """The first hours of the first world of a family with two or three domains."""
    world = make_world("transient", 0, split="test")
    cut = {name: getattr(world, name)[:24] for name in ("bandwidth_bytes_per_s", "latency_s", "compute", "told")}
    return replace(world, **cut)


@pytest.fixture(scope="module")
def setting() -> Scenario:
    return scenario_of(small())


def test_every_family_is_played_by_every_seed() -> None:
    found = tasks(Suite(ENTRANTS, seeds=3, held=1, ablated=2, large=1, movement=2, fronts=1))
    main = [(task.family, task.seed) for task in found if task.part == "main"]
    assert sorted(main) == sorted((family, seed) for family in MAIN for seed in range(3))
    assert "large" not in MAIN
    assert sum("held" in task.extras for task in found) == len(MAIN)
    assert sorted(task.domains for task in found if task.part == "large") == sorted(LARGE)
    for task in found:
        if task.part == "large":
            assert len(make_world(task.family, task.seed, split="test").problem.cluster.domains) == task.domains
    assert len(found) == len(set(found))


def test_movement_at_every_swing_is_for_some_worlds() -> None:
    found = tasks(Suite(ENTRANTS, seeds=1, large=0, movement=3, swings=1, load=2, fronts=0))
    assert [task.extras for task in found if task.part == "movement"] == [("swings",), (), ()]
    assert sum(task.part == "load" for task in found) == 2


def test_what_is_remembered_changes_no_run(setting: Scenario) -> None:
    entrants = (*ENTRANTS, Entrant("receding_horizon", RecedingHorizon))
    alone, together = (compete(setting, entrants, timed=timed) for timed in (True, False))
    for name, run in alone.runs.items():
        assert (run.gave == together.runs[name].gave).all()
        assert run.actions == together.runs[name].actions


def test_hindsight_is_above_kept_plans_too(setting: Scenario) -> None:
    kept = held(setting.world.problem, [SingleDomain()], Stop(2.0))
    assert [each.name for each in kept] == ["single_domain"]
    judged = compete(setting, [*ENTRANTS, *kept], timed=False)
    assert all(judged.of_hindsight(name) <= 1.0 + 1e-9 for name in judged.runs)


def test_load_moves_and_links_rest() -> None:
    world = loaded(make_world("transient", 0, split="test"))
    assert (world.bandwidth_bytes_per_s == world.bandwidth_bytes_per_s[0]).all()
    assert 0.8 <= world.compute.min() < 0.95 < 1.05 < world.compute.max() <= 1.2


def test_rows_are_plain_values() -> None:
    import json

    task = Task("main", "compute_bound", 0, ("timed",))
    rows = rows_of(task, Suite(ENTRANTS, ours="static_levers"))
    assert json.loads(json.dumps(rows, allow_nan=False)) == rows
    assert set(rows[0]["methods"]) == {"static", "static_levers", "hindsight"}
    assert rows[0]["timed"]


def test_preferences_span_the_simplex() -> None:
    found = preferences(10)
    assert len(found) == 66
    assert np.allclose([sum(each) for each in found], 1.0)
    assert {(1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)} <= set(found)


@pytest.mark.parametrize(
    ("reached", "share"),
    [((1.005, 0.995, 10.05), 0.5), ((1.02, 1.0, 10.0), 0.0), ((0.5, 1.0, 0.0), 1.0)],
)
def test_a_point_is_covered_within_one_per_cent_of_each(reached: tuple[float, float, float], share: float) -> None:
    front = [score(1.0, 1.0, 10.0), score(2.0, 0.9, 0.0)]
    assert covered(front, [score(*reached)]) == share


def score(step_time_s: float, utilization: float, egress_usd: float) -> Score:
    blank = dict.fromkeys(Score.__dataclass_fields__, 0.0)
    figures = {"step_time_s": step_time_s, "utilization": utilization, "egress_usd_per_step": egress_usd}
    return Score(**(blank | figures))


def test_every_preference_is_asked_of_the_same_book(setting: Scenario) -> None:
    """A method that begins with the best plan does so under any preference, and leaves the cache it was given alone."""
    before = len(setting.cache)
    found = reach(replace(setting, world=at_rest(setting.world)), Entrant("static", Static), preferences(1))
    assert len(found.begun) == 3
    assert len(set(found.begun)) == 1
    assert found.proposed == found.begun
    assert len(found.scores(found.begun)) == 1
    assert len(setting.cache) == before


def test_a_book_without_levers(setting: Scenario) -> None:
    plain = without_levers(setting.cache)
    assert 0 < len(plain) < len(setting.cache)
    assert not any(each.lever for each in plain.configurations)


def test_a_network_at_rest_does_not_move() -> None:
    world = at_rest(small())
    assert world.epochs == 2
    assert (world.bandwidth_bytes_per_s[0] == world.bandwidth_bytes_per_s[1]).all()


def test_a_world_in_which_nothing_begins_is_told_as_such() -> None:
    class Lost:
        name = "static"

        def begin(self, view: View) -> int:
            return -1

        def decide(self, view: View) -> Action:
            return Action()

    rows = rows_of(Task("main", "compute_bound", 0), Suite((Entrant("static", Lost),), ours="static"))
    assert [(row["part"], row["of"]) for row in rows] == [("skipped", "main")]
    assert "Nothing can run" in evidence(rows)["skipped"][0]
