"""``tools/environment.sh``: what it says where Python cannot be used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import ROOT


def refused(python: str, folder: Path) -> str:
    command = ["bash", "tools/environment.sh", str(folder / "env")]
    environment = {"PYTHON": python, "PATH": "/usr/bin:/bin"}
    told = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (told.returncode, told.stdout) == (1, "")
    assert not (folder / "env").exists()
    (line,) = told.stderr.splitlines()
    assert line.startswith("hippo: ")
    return line


def python_where(folder: Path, broken: str, words: str) -> str:
    """A Python that fails where its code holds a word."""
    script = folder / "python3"
    script.write_text(f'#!/bin/sh\ncase "$2" in *{broken}*) {words};; *) exec {sys.executable} "$@";; esac\n')
    script.chmod(0o755)
    return str(script)


def test_without_python_it_says_which_to_install(tmp_path: Path) -> None:
    assert "no 'python-that-is-not' here. To fix: install Python 3.11" in refused("python-that-is-not", tmp_path)


@pytest.mark.parametrize(
    ("broken", "words", "said"),
    [
        ("version_info", "exit 1", "Python 3.11 or newer is needed"),
        ("ensurepip", "exit 1", "cannot make environments. To fix: install its venv module"),
    ],
)
def test_a_python_that_cannot_do_is_named_with_the_remedy(tmp_path: Path, broken: str, words: str, said: str) -> None:
    assert said in refused(python_where(tmp_path, broken, words), tmp_path)
