"""Wrong arguments of the front door: one message that names the argument, its value and what it must be."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hippo

TWO: dict[str, Any] = {
    "gpu": "A100-SXM-80GB",
    "domains": [{"name": name, "nodes": 1, "gpus_per_node": 8} for name in "ab"],
    "links": [{"from": "a", "to": "b", "bandwidth_gbps": 10, "latency_ms": 20, "both": True}],
}


def asked(**changed: Any) -> hippo.Problem:
    return hippo.problem(**{"model": "gpt2", "cluster": TWO, **changed})


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"objective": (1, 2, 3)}, r"objective: must be a string \(got \(1, 2, 3\)\)"),
        ({"objective": {"time": 1}}, "objective: must be a string"),
        ({"balance_delta": "x"}, r"balance_delta: must be a number \(got 'x'\)"),
        ({"balance_delta": -1}, r"balance_delta: must be a finite number of at least 0 \(got -1\)"),
        ({"bandwidth_floor_gbps": float("nan")}, r"bandwidth_floor_gbps: must be a number \(got nan\)"),
        ({"bandwidth_floor_gbps": float("inf")}, "bandwidth_floor_gbps: must be a finite number"),
        ({"cluster": {1: 2}}, r"cluster: .*a mapping with strings as keys or a Cluster \(got {1: 2}\)"),
        ({"cluster": TWO | {"domains": [{1: 2}]}}, r"cluster: domains\[0\]: a key must be a string \(got 1\)"),
        ({"model": None}, "model: must be a string, a path, a mapping"),
        ({"profile": 3}, r"profile: must be a string or a path \(got 3\)"),
        ({"uniform_cuts": "yes"}, r"uniform_cuts: must be True or False \(got 'yes'\)"),
        ({"global_batch": True}, r"global_batch: must be a whole number \(got True\)"),
    ],
)
def test_a_problem_names_the_argument_that_is_wrong(given: dict[str, Any], told: str) -> None:
    with pytest.raises(hippo.InputError, match=f"^{told}"):
        asked(**given)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"planner": None}, "planner: must be a string"),
        ({"planner": ["exact"]}, "planner: must be a string"),
        ({"progress": 3}, r"progress: must be a function \(got 3\)"),
        ({"seed": -1}, r"seed: must be a whole number of at least 0 \(got -1\)"),
        ({"seed": "x"}, r"seed: must be a whole number \(got 'x'\)"),
        ({"seed": 1.5}, "seed: must be a whole number"),
        ({"stop": None}, "stop: must be a Stop"),
    ],
)
def test_planning_names_the_argument_that_is_wrong(given: dict[str, Any], told: str) -> None:
    with pytest.raises(hippo.InputError, match=f"^{told}"):
        hippo.plan(asked(), **given)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: hippo.load_plan(3), "path: must be a string or a path"),  # type: ignore[arg-type]
        (lambda: hippo.schedule(3), "problem file: must be a path"),  # type: ignore[arg-type]
        (lambda: hippo.validate(3), "cases: must be a string or a path"),  # type: ignore[arg-type]
        (lambda: hippo.watch(asked(), 3), "trace: must be a string or a path"),  # type: ignore[arg-type]
        (lambda: hippo.watch(asked(), "t.csv", method=3), "method: must be a string or a Method"),  # type: ignore[arg-type]
        (lambda: hippo.watch(None, None), "problem: must be a Problem"),  # type: ignore[arg-type]
        (lambda: hippo.evaluate(asked(), "t.csv", "greedy"), r"methods: must be a list of strings \(got 'greedy'\)"),
        (lambda: hippo.explain(asked(), (1, 2)), "plan: must be a Plan .* To fix: take decision.plan"),  # type: ignore[arg-type]
        (lambda: hippo.evaluate_suite(3), "choice: must be a SuiteChoice"),  # type: ignore[arg-type]
        (lambda: hippo.replay_jobs(3), "question: must be a JobsQuestion"),  # type: ignore[arg-type]
        (lambda: hippo.generate_jobs(3), "drawing: must be a JobsDrawing"),  # type: ignore[arg-type]
        (lambda: hippo.estimate(model="gpt2", gpu="H100", tp="x"), r"tp: must be a whole number \(got 'x'\)"),  # type: ignore[arg-type]
        (lambda: hippo.RunOptions(steps=-1), r"steps: must be from 1 to 1e\+06 \(got -1\)"),
        (lambda: hippo.RunOptions(steps="x"), "steps: must be a whole number"),  # type: ignore[arg-type]
        (lambda: hippo.SuiteChoice(seeds=-1), "seeds: must be a whole number of at least 1"),
        (lambda: hippo.SuiteChoice(methods="greedy"), "methods: must be a tuple of strings"),  # type: ignore[arg-type]
        (lambda: hippo.Checkpoints("ck"), "folder: must be a path"),  # type: ignore[arg-type]
        (lambda: hippo.JobsQuestion(3, "toy"), "trace: must be a string or a path"),  # type: ignore[arg-type]
        (lambda: hippo.JobsDrawing("a.csv", "b.csv", seed=-1), "seed: must be a whole number of at least 0"),
    ],
)
def test_every_function_and_class_names_the_argument_that_is_wrong(call: Callable[[], object], told: str) -> None:
    with pytest.raises(hippo.InputError, match=f"^{told}"):
        call()


def test_numbers_of_numpy_and_paths_are_taken(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(json.dumps(TWO))
    found = asked(cluster=tmp_path / "cluster.yaml", balance_delta=np.float64(0.5))
    assert found.objective.balance_delta == 0.5
    assert hippo.SuiteChoice(seeds=np.int64(3)).seeds == 3  # type: ignore[arg-type]
    assert hippo.JobsQuestion(tmp_path, tmp_path / "cluster.yaml").trace == tmp_path


def test_too_few_arguments_are_told_by_python() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        hippo.plan()  # type: ignore[call-arg]
