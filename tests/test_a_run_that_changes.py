"""The example of a run that meets what runs meet: it ends well, and its page tells all of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import ROOT


@pytest.mark.slow  # each kind of event has a quick test of its own
def test_it_meets_a_collapse_a_lever_a_move_a_death_and_two_that_join(namespaces: None, tmp_path: Path) -> None:
    words = [sys.executable, "examples/a_run_that_changes.py", "--out", str(tmp_path)]
    ended = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "the loss is that of one process" in ended.stdout
    told = json.loads((tmp_path / "run.json").read_text())
    assert [(each["from"], each["bandwidth_gbps"]) for each in told["links_moved"]] == [("east", 0.01), ("east", 0.1)]
    assert [each["asked"] for each in told["changes"]] == [
        "micro-batch 2",
        "another plan, beside the training",
        "another plan",
        "",
        "another plan",
    ]
    assert [bool(each["lost"]) for each in told["changes"]] == [False, False, False, True, False]
    assert [each["processes"] for each in told["changes"]] == [2, 2, 4, 2, 4]
    assert len(told["predicted_each_s"]) == len(told["measured_step_s"]) == len(told["loss"])
    page = (tmp_path / "run.html").read_text()
    assert page.count('<th scope="row" class="n">') == 7
