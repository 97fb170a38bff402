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
@pytest.mark.parametrize(
    ("case", "names", "domains", "relays"),
    [("replicas", "ab", [["a", "b"], ["a"]], [0, 0]), ("porter", "abc", [["a", "b"], ["a", "b"]], [2, 0])],
)
def test_where_a_link_is_dead_one_side_goes_on_with_the_whole_batch_or_all_without_the_porter(
    case: str,
    names: str,
    domains: list[list[str]],
    relays: list[int],
    namespaces: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = tmp_path / "out.json"
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "src")]))
    command = [sys.executable, str(Path(__file__).with_name("partition.py")), case, str(out)]
    assert emulate(setting_of(problem(names=names).cluster, command, source="partition")).exit_code == 0
    told = json.loads(out.read_text())
    assert told["losses"] == pytest.approx(told["one"], rel=1e-9, abs=0.0)
    assert (told["domains"], told["relays"]) == (domains, relays)
    assert len(told["lost"]) == 1
    assert "nothing moved for 4 s" in told["lost"][0]
