"""The example for RLlib where Ray is missing: it says what it is, and what to install."""

from __future__ import annotations

import subprocess
import sys

import pytest

from hippo.errors import InputError

from ...conftest import ROOT
from ...scripts import script

SCRIPT = ROOT / "examples" / "jobs_rllib.py"
WITHOUT_RAY = f"""
import runpy, sys
sys.modules["ray"] = None
sys.argv = [{str(SCRIPT)!r}, *sys.argv[1:]]
runpy.run_path({str(SCRIPT)!r}, run_name="__main__")
"""


def test_help_needs_no_ray(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SystemExit) as ended:
        script("examples/jobs_rllib.py").main(["--help"])
    assert ended.value.code == 0
    assert "--algorithm" in capsys.readouterr().out


def test_numbers_that_cannot_be_are_refused_before_ray_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match="^--jobs: must be 1 or more"):
        script("examples/jobs_rllib.py").main(["--jobs", "0"])


def test_training_without_ray_is_one_clear_message() -> None:
    """The script, in an interpreter that has no Ray."""
    command = [sys.executable, "-c", WITHOUT_RAY, "--iterations", "1"]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert told.returncode == 2
    assert told.stderr.startswith("error: needs RLlib (ray; in an environment of its own), which is not installed")
    assert "Traceback" not in told.stderr
