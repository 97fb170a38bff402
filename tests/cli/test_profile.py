"""``--profile`` from end to end: plans and estimates use what was measured, and only that."""

from __future__ import annotations

import json

import pytest

from hippo.cost.cost_model import CostModel
from hippo.cost.stage import Layout
from hippo.problem.load import load_problem


def rows(factor: float) -> list[dict]:
    """The layers of GPT-2 at tp 2 as the formulas have them, on a machine that is slower by ``factor``."""
    problem = load_problem(model="gpt2", cluster="toy")
    costs, found = CostModel(problem), []
    for size in (2, 4):
        layout = Layout(2, 1, size)
        seconds = costs.layer_seconds("east", layout) * factor
        for layer, kind in ((0, "embedding"), (1, "block"), (13, "head")):
            memory = costs.memory("east", layer, layer + 1, layout, live=1.0)
            found.append(
                {"layer_kind": kind, "gpu": "A100-SXM-80GB", "tp": 2, "micro_batch": size}
                | dict(zip(("forward_s", "backward_s", "weight_gradient_s"), seconds[layer].tolist(), strict=True))
                | {"parameter_bytes": memory.weights_bytes, "activation_bytes": memory.activation_bytes}
                | {"output_bytes": costs.stage("east", layer, layer + 1, layout).output_bytes}
            )
    return found


@pytest.fixture
def profile(tmp_path):
    """Writes a profile; returns its path."""

    def write(factor: float) -> str:
        path = tmp_path / f"profile-{factor}.json"
        path.write_text(json.dumps({"precision": "bf16", "state_bytes_per_parameter": 16, "rows": rows(factor)}))
        return str(path)

    return write


@pytest.mark.parametrize("planner", ["single_domain", "even", "sailor", "alpa", "crosspipe"])
def test_plans_use_what_was_measured(hippo, profile, planner):
    steps = {}
    for factor in (1.0, 50.0):
        command = ["plan", "--model", "gpt2", "--cluster", "toy", "--global-batch", "64", "--planner", planner]
        answer = hippo(*command, "--profile", profile(factor), "--json")
        assert answer.code == 0
        plan = answer.document["plan"]
        assert {stage["tp"] for pipeline in plan["pipelines"] for stage in pipeline["stages"]} == {2}
        assert plan["micro_batch"] in (2, 4)
        assert plan["recompute"] == "none"
        assert len(plan["problem"]["profile"]["rows"]) == 6
        steps[factor] = answer.document["score"]["step_time_s"]
    assert steps[50.0] > 3 * steps[1.0]


def test_estimates_use_what_was_measured(hippo, profile):
    command = ["estimate", "--model", "gpt2", "--gpu", "A100-SXM-80GB", "--tp", "2", "--dp", "4"]
    command += ["--global-batch", "64", "--micro-batch", "2", "--json"]
    formula = hippo(*command).document["score"]["step_time_s"]
    same = hippo(*command, "--profile", profile(1.0)).document["score"]["step_time_s"]
    slow = hippo(*command, "--profile", profile(50.0)).document["score"]["step_time_s"]
    assert same == pytest.approx(formula, rel=0.02)
    assert slow > 10 * formula


def test_an_estimate_of_what_was_not_measured_is_refused(refused, profile):
    command = ["estimate", "--model", "gpt2", "--gpu", "A100-SXM-80GB", "--tp", "4", "--dp", "2"]
    assert "tp 4" in refused(*command, "--micro-batch", "2", "--global-batch", "64", "--profile", profile(1.0))
