"""Exports written to a folder, and targets' own parsers asked in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from hippo.export.base import Export, Wishes
from hippo.export.folder import write_export
from hippo.plan.plan import Plan
from hippo.problem.problem import Problem
from hippo.registry import exporter

from .examples import example

Written = Callable[..., Path]
Asked = Callable[..., subprocess.CompletedProcess[str]]


def exported(target: str, problem: Problem, plan: Plan, wishes: Wishes | None = None) -> Export:
    return exporter(target)(problem, plan, wishes or Wishes())


@pytest.fixture
def written(tmp_path: Path) -> Written:
    """``written("slurm")`` exports the example (or a problem and a plan) and returns the folder."""

    def write(target: str, problem: Problem | None = None, plan: Plan | None = None, **wishes: object) -> Path:
        folder = tmp_path / "export"
        if problem is None or plan is None:
            problem, plan = example()
        write_export(folder, exported(target, problem, plan, Wishes(**wishes)).files)
        return folder

    return write


@pytest.fixture(scope="session")
def needs() -> Callable[[str], None]:
    """``needs("deepspeed")`` skips where a target's own package is missing."""

    def check(module: str) -> None:
        if find_spec(module) is None:
            pytest.skip(f"{module} is not installed (extra 'targets')")

    return check


@pytest.fixture(scope="session")
def extensions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where torch keeps what it compiles: no lock of a run that was killed can be in the way."""
    return tmp_path_factory.mktemp("extensions")


@pytest.fixture
def ask(needs: Callable[[str], None], extensions: Path) -> Asked:
    """``ask("deepspeed", folder, code)`` runs Python code in the folder where the package is there; else skips.

    A process of its own: these packages warn, patch and set up whatever they like.
    """

    def run(module: str, folder: Path, code: str, **environment: object) -> subprocess.CompletedProcess[str]:
        needs(module)
        own = {name: str(value) for name, value in environment.items()}
        return subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code],
            cwd=folder,
            env={
                **os.environ,
                "PYTHONPATH": str(folder),
                "CUDA_VISIBLE_DEVICES": "",
                "TORCH_EXTENSIONS_DIR": str(extensions),
                **own,
            },
            capture_output=True,
            text=True,
            timeout=300,
        )

    return run
