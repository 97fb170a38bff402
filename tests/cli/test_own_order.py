"""Plan files that say the order of their operations: played by every engine, explained, and refused where wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hippo.plan.codec import load_plan, save_plan
from hippo.plan.plan import Pipeline, Plan, ScheduleChoice, Stage
from hippo.problem.load import load_problem

ORDER = ("FFFBWBFBWBWW", "FBFBWFBWFBWW")


@pytest.fixture(scope="module")
def ordered(tmp_path_factory) -> Path:
    """A plan of two stages and four waves, weight gradients later than their input gradients."""
    problem = load_problem(model="gpt2", cluster="toy", global_batch=4)
    stages = (Stage("east", (0, 7), 1, 1, ("east/0/0",)), Stage("west", (7, 14), 1, 1, ("west/0/0",)))
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    line = Pipeline(stages, 4, order=ORDER)
    save_plan(problem, Plan((line,), micro_batch=1, schedule=ScheduleChoice("best")), path)
    return path


def test_written_and_read(ordered):
    assert load_plan(ordered)[1].pipelines[0].order == ORDER


def test_engines_play_it(hippo, ordered):
    fast, reference = (
        hippo("simulate", ordered, "--engine", engine, "--json").document["step_time_s"]
        for engine in ("fast", "reference")
    )
    assert reference == pytest.approx(fast, rel=1e-9)


def test_it_is_played_under_noise_and_explained(hippo, ordered):
    assert hippo("simulate", ordered, "--fluctuation", 0.1, "--samples", 5, "--json").document["samples"] == 5
    assert hippo("explain", ordered, "--json").document


@pytest.mark.parametrize(
    "order",
    [("FFFFBBBB", "FBFBFBFBWWWW"), ("FFFBWBFBWBWX", ORDER[1]), (ORDER[0],), ("FBWFBWFBWFBW", "FFBWBWFFBWBW"), ()],
    ids=["one is fused", "another letter", "a stage too few", "a circle", "none"],
)
@pytest.mark.parametrize("command", ["simulate", "explain"])
def test_an_order_that_is_none(refused, tmp_path, ordered, command, order):
    document = json.loads(ordered.read_text())
    document["pipelines"][0]["order"] = list(order)
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(document))
    message = refused(command, path)
    assert "order" in message
    assert "To fix" in message
