"""Half an hour of everything at once, and requests that nobody would send: what `hippo bench` measures, as tests."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .servers import free_ports

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]


def bench(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_memory_stays_where_it_is():
    (port,) = free_ports(1)
    ran = bench("benchmarks.soak", "--port", str(port))
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.skipif(shutil.which("schemathesis") is None, reason="schemathesis stands alone: pipx install schemathesis")
def test_no_request_is_answered_wrong():
    ran = bench("benchmarks.fuzz", "--examples", "60")
    assert ran.returncode == 0, ran.stdout + ran.stderr
