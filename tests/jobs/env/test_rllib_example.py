"""The example for RLlib where Ray is missing: it says what it is, and what to install."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[3] / "examples" / "jobs_rllib.py"
WITHOUT_RAY = f"""
import runpy, sys
sys.modules["ray"] = None
sys.argv = [{str(SCRIPT)!r}, *sys.argv[1:]]
runpy.run_path({str(SCRIPT)!r}, run_name="__main__")
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The script, in an interpreter that has no Ray."""
    return subprocess.run([sys.executable, "-c", WITHOUT_RAY, *arguments], capture_output=True, text=True, check=False)


def test_help_needs_no_ray() -> None:
    told = run("--help")
    assert told.returncode == 0
    assert "--algorithm" in told.stdout


def test_numbers_that_cannot_be_are_refused_before_ray_is_asked_for() -> None:
    told = run("--jobs", "0")
    assert told.returncode == 2
    assert told.stderr.startswith("error: --jobs: must be 1 or more")


def test_training_without_ray_is_one_clear_message() -> None:
    told = run("--iterations", "1")
    assert told.returncode == 2
    assert told.stderr.startswith("error: needs RLlib (ray; in an environment of its own), which is not installed")
    assert "Traceback" not in told.stderr
