"""What the README shows is true: commands exist, the cluster file is one, Python runs, the table's planners compete."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from hippo.cli.main import COMMANDS
from hippo.problem.load import load_cluster
from hippo.registry import PLANNERS

from .conftest import ROOT

PAGE = (ROOT / "README.md").read_text()


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)
    return found


@pytest.mark.parametrize("page", ["README.md", "docs/contracts.md"])
def test_every_command_stands_in_the_table(page):
    text = (ROOT / page).read_text()
    assert [name for name in (command.__name__ for command in COMMANDS) if f"| `hippo {name}" not in text] == []


def test_the_cluster_file(tmp_path):
    path = tmp_path / "cluster.yaml"
    path.write_text(block("yaml"))
    found = load_cluster(str(path))
    assert [domain.name for domain in found.domains] == ["north", "south"]
    assert len(found.links) == 2


def test_the_lines_of_python():
    done = subprocess.run([sys.executable, "-c", block("python")], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("llama-3-70b on four-hubs: ")


def test_the_table_names_planners():
    named = re.findall(r"^\| `(\w+)`", PAGE, flags=re.MULTILINE)
    assert len(named) >= 8
    assert set(named) <= set(PLANNERS)


def test_make_knows_what_the_pages_type():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    typed = re.findall(r"^    make ([a-z-]+)", PAGE + (ROOT / "CONTRIBUTING.md").read_text(), flags=re.MULTILINE)
    assert {"run", "test"} <= set(typed) <= targets
