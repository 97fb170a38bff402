"""What the README shows is true: commands exist, the cluster file is one, Python runs, the table's planners compete."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys

import pytest
from tests.scripts import script

import hippo
from hippo.cli.main import COMMANDS
from hippo.problem.load import load_cluster, load_problem
from hippo.registry import PLANNERS
from hippo.schedule.methods import generate
from hippo.schedule.problem import ScheduleProblem
from hippo.schedule.replay import makespan

from .conftest import ROOT

FIGURES = script("benchmarks/_readme.py")
PAGE = (ROOT / "README.md").read_text()


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)
    return found


def test_every_command_is_named_here_and_stands_in_the_table_of_contracts():
    table, commands = (ROOT / "docs" / "contracts.md").read_text(), list(COMMANDS)
    assert [name for name in commands if f"| `hippo {name}" not in table] == []
    assert [name for name in commands if f"hippo {name}" not in PAGE] == []


def test_no_command_of_the_front_page_writes_where_another_does():
    folders = re.findall(r"--out (\S+)", PAGE)
    assert len(folders) == len(set(folders)) >= 7
    assert "out" not in folders


def test_the_cluster_file(tmp_path):
    path = tmp_path / "cluster.yaml"
    path.write_text(block("yaml"))
    found = load_cluster(str(path))
    assert [domain.name for domain in found.domains] == ["north", "south"]
    assert len(found.links) == 2


def test_the_lines_of_python(capsys: pytest.CaptureFixture[str]):
    exec(block("python"), {})
    assert capsys.readouterr().out.startswith("llama-3-70b on four-hubs: ")


def test_the_schedule_of_the_front_page(tmp_path):
    (line,) = re.findall(r"^    \.venv/bin/hippo (schedule .*)$", PAGE, flags=re.MULTILINE)
    command = [sys.executable, "-c", "from hippo.cli.main import main; main()", *shlex.split(line)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    found = re.search(r"^makespan +([0-9.]+) .*proved optimal$", done.stdout, flags=re.MULTILINE)
    assert found
    assert f"The makespan is {float(found[1]):.1f}," in PAGE
    assert sorted(path.name for path in (tmp_path / "out" / "schedule").iterdir()) == ["schedule.html", "trace.json"]


def test_the_other_schedules_of_the_front_page():
    problem = ScheduleProblem.uniform(8, 32, (1.0, 1.05, 0.75), comm=[0.05] * 3 + [5.0] + [0.05] * 3, live_limit=16)
    for name, method in (("ZB-H2", "zb-h2"), ("1F1B", "1f1b")):
        assert re.search(rf"{name}\s(?:takes\s)?{makespan(problem, generate(method, problem)):.1f}", PAGE), name


def test_the_table_names_planners():
    named = re.findall(r"^\| `(\w+)`", PAGE, flags=re.MULTILINE)
    assert len(named) >= 8
    assert set(named) <= set(PLANNERS)


def test_the_figures_are_those_of_the_results():
    """`python benchmarks/_readme.py --plan --write` makes both."""
    blocks = FIGURES.written(json.loads(FIGURES.RESULTS.read_text()))
    assert FIGURES.filled(PAGE, blocks) == PAGE


def test_the_results_are_those_of_the_planner():
    first = json.loads(FIGURES.RESULTS.read_text())["plans"][0]
    found = hippo.plan(load_problem(**FIGURES.ASKED, runtime="hippo"), planner="exact", why=False)
    assert FIGURES.row(first["planner"], found.judged) == first


def test_make_knows_what_the_pages_type():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    typed = re.findall(r"^    make ([a-z-]+)", PAGE + (ROOT / "CONTRIBUTING.md").read_text(), flags=re.MULTILINE)
    assert {"run", "test"} <= set(typed) <= targets
