"""Replicas that cannot meet any more."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from tests.conftest import ROOT

from hippo.emulate.emulate import emulate, setting_of

from .test_run import _none_left  # noqa: F401
from .worlds import problem


@pytest.mark.slow
def test_where_the_link_between_replicas_is_dead_one_side_goes_on_with_the_whole_batch(
    namespaces: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.json"
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "src")]))
    command = [sys.executable, str(Path(__file__).with_name("partition.py")), str(out)]
    assert emulate(setting_of(problem().cluster, command, source="partition")).exit_code == 0
    told = json.loads(out.read_text())
    assert told["losses"] == pytest.approx(told["one"], rel=1e-9, abs=0.0)
    assert told["domains"] == [["a", "b"], ["a"]]
    assert len(told["lost"]) == 1
    assert "nothing moved for 4 s" in told["lost"][0]
