"""docs/schedules.md, run: the example prints what stands there, its table of makespans is measured, its files are read.

``python tests/test_schedules_page.py`` writes outputs and table anew. Which method wins, and how it orders operations,
may change with a better method: rows of the picture count by their ends only, winners not by name.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from hippo.errors import InfeasibleError
from hippo.schedule.bound.lower_bound import bounds
from hippo.schedule.check import violations
from hippo.schedule.methods import METHODS, generate
from hippo.schedule.problem import PLACEMENTS, ScheduleProblem
from hippo.schedule.problem_json import KEYS, problems_of_text
from hippo.schedule.replay import live, makespan
from hippo.schedule.text import parse_schedule

PAGE = Path(__file__).resolve().parents[1] / "docs" / "schedules.md"
EXAMPLE = re.compile(r"```sh\nhippo (?P<command>.*?)\n```\n\n```text\n(?P<output>.*?)```", re.DOTALL)
MIDDLE = [0.05] * 3 + [5.0] + [0.05] * 3
COLUMNS = ((0.0, None), (0.1, None), (1.0, None), (MIDDLE, None), (MIDDLE, 8), (MIDDLE, 16))
TABLE = re.compile(r"(?:^\| `[a-z0-9-]+` \([0-9.]+\) (?:\| (?:[0-9.]+|too much) )+\|\n)+", re.MULTILINE)


def block(page: str, language: str) -> str:
    """The one block of that language."""
    (found,) = re.findall(rf"```{language}\n(.*?)```", page, flags=re.DOTALL)
    return str(found)


def written_anew(page: str) -> str:
    """The page with every output as its command prints it, up to the reasons."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "two-sites.json").write_text(block(page, "json"))

        def run(example: re.Match[str]) -> str:
            command = [
                sys.executable,
                "-c",
                "from hippo.cli.main import main; main()",
                *shlex.split(example["command"]),
            ]
            environment = {**os.environ, "COLUMNS": "100"}
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
            shown = done.stdout.split("\nWhy\n")[0].rstrip() + "\n"
            return f"```sh\nhippo {example['command']}\n```\n\n```text\n{shown}```"

        return EXAMPLE.sub(run, page)


def sure(line: str) -> str:
    """What of a line must stay: of a rank its name and its ends, of a winner not the name."""
    line = re.sub(r"^(rank \d+) +\S+", r"\1 ", line)
    return " ".join(re.sub(r"[a-z0-9 -]+(: proved optimal)", r"SOMEONE\1", line).split())


def rows() -> str:
    """The table of makespans, measured."""
    found = []
    for name, method in METHODS.items():
        cells, most = [], 0.0
        for index, (comm, limit) in enumerate(COLUMNS):
            problem = ScheduleProblem.uniform(8, 32, (1.0, 1.05, 0.75), comm=comm, live_limit=limit)
            problem = problem.placed(method.placement)
            try:
                schedule = generate(name, problem)
            except InfeasibleError:
                cells.append("too much")
                continue
            cells.append(f"{makespan(problem, schedule):.1f}")
            most = max(most, float(live(problem, schedule).max())) if index == 0 else most
        found.append(f"| `{name}` ({most:g}) | {' | '.join(cells)} |\n")
    return "".join(found)


def test_the_example_prints_what_stands_there() -> None:
    page = PAGE.read_text()
    wanted = [example["output"].splitlines() for example in EXAMPLE.finditer(page)]
    said = [example["output"].splitlines() for example in EXAMPLE.finditer(written_anew(page))]
    assert len(wanted) == 2
    assert [[sure(line) for line in lines] for lines in said] == [[sure(line) for line in lines] for lines in wanted]
    assert said[0] == wanted[0]  # a named method, to the letter


def test_the_table_is_what_the_methods_do() -> None:
    """To 5 %: a method may get better, and the page still say the same."""
    wanted, said = (cells_of(text) for text in (PAGE.read_text(), rows()))
    assert wanted.keys() == said.keys()
    for name, cells in said.items():
        assert [cell == "too much" for cell in cells] == [cell == "too much" for cell in wanted[name]], name
        numbers = [float(cell) for cell in cells if cell != "too much"]
        assert numbers == pytest.approx([float(cell) for cell in wanted[name] if cell != "too much"], rel=0.05), name


def cells_of(text: str) -> dict[str, list[str]]:
    """Name of a method and its cells."""
    found = re.findall(r"^\| `([a-z0-9-]+)` \([0-9.]+\) \| (.*) \|$", text, flags=re.MULTILINE)
    return {name: cells.split(" | ") for name, cells in found}


def test_every_key_placement_method_and_bound_stands_on_the_page() -> None:
    page = PAGE.read_text()
    assert [key for key in KEYS if f"`{key}`" not in page] == []
    assert [name for name in (*PLACEMENTS, *METHODS, "optimal", "best") if f"`{name}`" not in page] == []
    assert [name for name in bounds(ScheduleProblem.uniform(2, 3)) if f"| `{name}` |" not in page] == []


def test_the_problem_file_and_the_text_form_are_read() -> None:
    page = PAGE.read_text()
    (sized,) = problems_of_text(block(page, "json"), source="two-sites.json").problems
    assert (sized.ident, sized.problem.limit) == ("two sites", (5.0,) * 4)
    (text,) = re.findall(r"((?:^    .*\n)+)", page.split("## Text form")[1], flags=re.MULTILINE)[:1]
    schedule = parse_schedule("\n".join(line[4:] for line in text.splitlines()), source="the page")
    assert violations(ScheduleProblem.uniform(2, 3), schedule) == ()


if __name__ == "__main__":
    PAGE.write_text(TABLE.sub(lambda _: rows(), written_anew(PAGE.read_text())))
