"""The suite of the loop and of the addresses once more, on a real PostgreSQL that an ordinary user starts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .servers import has_postgresql, postgresql
from .worlds import SERVER


@pytest.fixture
def server() -> Iterator[str]:
    if not has_postgresql():
        pytest.skip("no PostgreSQL on this machine")
    with postgresql() as folder:
        yield folder


@pytest.mark.parametrize(
    ("names", "which"),
    [
        (("loop",), "comes_runs_and_ends or approved or cancelled"),
        pytest.param(("loop", "api", "telemetry", "domains", "faults"), "", marks=pytest.mark.slow),
    ],
)
def test_the_same_suite_on_postgresql(server: str, names: tuple[str, ...], which: str):
    here = Path(__file__).parent
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow", "-k", which]
    command += [str(here / f"test_{name}.py") for name in names]
    environment = {**os.environ, SERVER: server}
    found = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1800, check=False)
    assert found.returncode == 0, found.stdout[-3000:]
    assert " passed" in found.stdout
