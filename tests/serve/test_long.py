"""Half an hour of everything at once, and requests that nobody would send: what `hippo bench` measures, as tests."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks import soak

from .servers import free_ports

ROOT = Path(__file__).parents[2]


RECORDED = (672, 676, 677, 678, 678, 678, 678, 678, 679, 680, 680, 680, 680, 680, 680, 680)
"""Resident MB every two minutes of half an hour."""


def bench(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_memory_stays_where_it_is():
    (port,) = free_ports(1)
    ran = bench("benchmarks.soak", "--port", str(port))
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("schemathesis") is None, reason="schemathesis stands alone: pipx install schemathesis")
def test_no_request_is_answered_wrong():
    ran = bench("benchmarks.fuzz", "--examples", "60")
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_what_was_recorded_of_half_an_hour_is_judged():
    """As it was; with a leak of five megabytes in two minutes; with one answer that was wrong; without events."""
    answers = {"reads": {"wrong": 0}, "what-ifs": {"wrong": 0}}
    assert soak.kept(RECORDED, answers, 500)
    assert not soak.kept([mb + 5.0 * at for at, mb in enumerate(RECORDED)], answers, 500)
    assert not soak.kept(RECORDED, {**answers, "reads": {"wrong": 1}}, 500)
    assert not soak.kept(RECORDED, answers, 0)
