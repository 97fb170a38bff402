"""What the README shows is true: commands exist, the cluster file is one, Python runs, the table's planners compete."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

import pytest
from tests.scripts import script

import hippo
from hippo.cli.main import COMMANDS
from hippo.front_door.planning import compare_runtimes
from hippo.problem.load import load_cluster
from hippo.registry import PLANNERS
from hippo.schedule.methods import generate
from hippo.schedule.problem import ScheduleProblem
from hippo.schedule.replay import makespan
from hippo.score.judge import Judged

from .conftest import ROOT

ACCURACY = script("benchmarks/_readme.py")
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


ROW = r"\| (`\w+`|all, [^|:]*)[^|]*\|[^|]*" + 2 * r"\| ([\d.]+) s \| (\d+) in (\d) \| \$([\d.]+)[^|]*" + r"\|$"
CLUSTERS = ("three-aws-regions", "four-hubs")  # in the order of the table's columns


def first_table() -> dict[tuple[str, str], tuple[str, ...]]:
    """Who planned, and for which cluster, to seconds, GPUs, domains and price as they are shown."""
    found = {}
    for name, *cells in re.findall(rf"^{ROW}", PAGE, flags=re.MULTILINE):
        for cluster, at in zip(CLUSTERS, (0, 4), strict=True):
            found[name.strip(), cluster] = tuple(cells[at : at + 4])
    return found


def differing(cluster: str, found: dict[str, Judged]) -> list[str]:
    """Rows of the first table that say something else; figures to the decimals that are shown."""
    rows = first_table()
    told = {
        name: (
            f"{best.step_time_s:.1f}",
            str(best.plan.gpus),
            str(len(best.plan.domains)),
            f"{best.score.usd_per_step:.2f}",
        )
        for name, best in found.items()
    }
    return [name for name, cells in told.items() if rows[name, cluster] != cells]


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_rows_of_the_first_table_are_what_planning_says(cluster: str):
    """Of the planner that the product is about, and of two that it is held against."""
    asked = hippo.problem(model="llama-3-70b", cluster=cluster)
    rows = hippo.compare(asked, planner="exact,single_domain,even", why=False).rows
    assert len(rows) == 3
    assert differing(cluster, {f"`{row.planner}`": row.best for row in rows}) == []


@pytest.mark.slow
@pytest.mark.parametrize("cluster", CLUSTERS)
def test_the_first_table_is_what_planning_says(cluster: str):
    """Planned for each runtime, and by each planner for hippo's executor, which ZeRO has no plan for."""
    problem = hippo.problem(model="llama-3-70b", cluster=cluster)
    compared, runtimes = hippo.compare(problem, why=False), compare_runtimes(problem)
    found = {f"`{row.planner}`": row.best for row in compared.rows}
    found |= {f"all, `--runtime {each.problem.runtime}`": each.judged for each in runtimes}
    sharded = hippo.problem(model="llama-3-70b", cluster=cluster, runtime="deepspeed")
    (found["`zero`"],) = [row.best for row in hippo.compare(sharded, planner="zero", why=False).rows]
    shown = [name for name, of in first_table() if of == cluster]
    assert len(shown) >= 13
    assert differing(cluster, {name: found[name] for name in shown}) == []


def test_the_sentences_below_the_first_table_follow_from_it():
    table = {key: [float(cell) for cell in cells] for key, cells in first_table().items()}
    aws, hubs = CLUSTERS
    alone = table["`single_domain`", aws]
    crossing = table["`exact`", aws]
    assert f"crossing takes {1 - crossing[0] / alone[0]:.0%}".replace("%", " %") in PAGE
    gpus, money = crossing[1] / alone[1], crossing[3] / alone[3]
    assert f"({crossing[0]:g} against {alone[0]:g} s), with {gpus:g} times the GPUs and {money:.1f} times" in PAGE
    crossing, alone = table["`exact`", hubs], table["`single_domain`", hubs]
    less, gpus, money = 1 - crossing[0] / alone[0], crossing[1] / alone[1], crossing[3] / alone[3]
    assert f"Crossing takes {less:.0%}".replace("%", " %") in PAGE
    assert (
        f"({crossing[0]:g} against {alone[0]:g} s), with {gpus:.1f} times the GPUs and {money:.1f} times the money"
        in PAGE
    )


def test_what_is_said_of_accuracy_is_what_the_results_say():
    """`python benchmarks/_readme.py` writes it."""
    assert ACCURACY.filled(PAGE) == PAGE


def test_the_table_names_planners():
    named = re.findall(r"^\| `(\w+)`", PAGE, flags=re.MULTILINE)
    assert len(named) >= 8
    assert set(named) <= set(PLANNERS)


def test_make_knows_what_the_pages_type():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    typed = re.findall(r"^    make ([a-z-]+)", PAGE + (ROOT / "CONTRIBUTING.md").read_text(), flags=re.MULTILINE)
    assert {"run", "test"} <= set(typed) <= targets
