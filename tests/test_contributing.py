"""CONTRIBUTING.md keeps its word: each example, put into a copy of the package as one file and one line, works."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import ROOT

EXAMPLE = re.compile(
    r"\*\*An? (?P<kind>[\w ]+)\*\* is one file in `src/(?P<folder>[\w/]+)/`, for instance `(?P<file>\w+\.py)`:\n\n"
    r"```python\n(?P<code>.*?)```\n\nand one line in `(?P<table>\w+)` of `src/(?P<register>[\w/.]+)`[^\n]*\n\n"
    r"    (?P<line>[^\n]+)\n",
    re.DOTALL,
)
EXAMPLES = {found["kind"]: found for found in EXAMPLE.finditer((ROOT / "CONTRIBUTING.md").read_text())}


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with all examples in it."""
    copy = tmp_path_factory.mktemp("copy")
    shutil.copytree(ROOT / "src" / "hippo", copy / "hippo", ignore=shutil.ignore_patterns("__pycache__"))
    for found in EXAMPLES.values():
        (copy / found["folder"] / found["file"]).write_text(found["code"])
        register = copy / found["register"]
        text, times = re.subn(
            rf"^({found['table']}: [^{{]*\{{\n)",
            rf"\1        {found['line']}\n",
            register.read_text(),
            flags=re.MULTILINE,
        )
        assert times == 1, found["table"]
        register.write_text(text)
    return copy


def hippo(sources: Path, *words: object) -> str:
    """What a command of the copy prints; its kernels run as they are written: it has others than the checkout has."""
    command = [sys.executable, "-c", "from hippo.cli.main import main; main()", *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": str(sources), "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_examples_are_these() -> None:
    assert list(EXAMPLES) == ["planner", "schedule", "exporter", "queue policy"]


def test_a_planner_is_one_file_and_one_line(sources: Path, tmp_path: Path) -> None:
    words = ("plan", "--model", "llama-3-8b", "--cluster", "toy", "--planner", "first_domain", "--global-batch", 64)
    told = json.loads(hippo(sources, *words, "--json"))
    assert (told["planner"], told["status"]) == ("first_domain", "feasible")
    assert '"first_domain"' in hippo(sources, "catalogue", "planners", "--json")


@pytest.mark.slow
def test_the_planner_does_what_every_planner_must(sources: Path) -> None:
    asked = [sys.executable, "-m", "pytest", "-q", "tests/planners/baselines/test_baselines.py", "-k", "first_domain"]
    environment = {**os.environ, "PYTHONPATH": str(sources)}
    done = subprocess.run(asked, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


def test_a_schedule_is_one_file_and_one_line(sources: Path) -> None:
    """By hand: the last rank ends its forwards at 11, its last B at 26; three more B and a W follow on the first."""
    words = ("schedule", "--stages", 4, "--micro-batches", 8, "--times", "1,1,1", "--method", "late", "--json")
    assert json.loads(hippo(sources, *words))["makespan"] == 30


def test_an_exporter_is_one_file_and_one_line(sources: Path, tmp_path: Path) -> None:
    plan = ROOT / "examples" / "two-domains.json"
    assert hippo(sources, "export", plan, "--to", "words", "--out", tmp_path / "out").strip() == "cat plan.txt"
    assert (tmp_path / "out" / "plan.txt").read_text().startswith("east (0, ")


def test_a_queue_policy_is_one_file_and_one_line(sources: Path, tmp_path: Path) -> None:
    """One GPU, held for 100 s when an hour (at 1 s) and a minute (at 2 s) come. By hand: the minute stops who holds it,
    which goes on after 30 s of restart until 190 s, the hour until 3790; in order of arrival 100, 3700 and 3760."""
    trace, agents = tmp_path / "queue.csv", tmp_path / "agents.yaml"
    trace.write_text("name,arrival_s,duration_s,devices\nheld,0,100,1\nhour,1,3600,1\nminute,2,60,1\n")
    agents.write_text("agents:\n  - {domain: east, kind: gpu, nodes: 1, per_node: 1}\n")
    words = ("jobs", "replay", trace, "--cluster", agents, "--policy", "srsf,fifo", "--json")
    found = [row["mean_completion_s"] for row in json.loads(hippo(sources, *words))["rows"]]
    assert found == pytest.approx([(190 + 60 + 3789) / 3, (100 + 3699 + 3758) / 3])
    assert "srsf" in hippo(sources, "jobs", "policies", "--json")
