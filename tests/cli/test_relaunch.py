"""``hippo relaunch``: files, or a refusal that leaves nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.export.test_relaunch import NEW, OLD, names, saved, state, world

from hippo.plan.codec import save_plan

from .conftest import Hippo

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def test_a_launch_is_written_whole_or_not_at_all(hippo: Hippo, refused: Callable[..., str], tmp_path: Path):
    old, new, out = tmp_path / "old.json", tmp_path / "new.json", tmp_path / "out"
    save_plan(world(), OLD, old)
    save_plan(world(), NEW, new)
    (tmp_path / "saved").mkdir()
    words = ["relaunch", old, new, "--to", "torchtitan", "--checkpoint", tmp_path / "saved", "--out", out]
    assert "holds no whole checkpoint" in refused(*words)
    assert not out.exists()
    saved(tmp_path / "saved", 7, state(names(range(4))))
    told = json.loads(hippo(*words, "--json").out)
    assert told["to"] == "torchtitan"
    assert all(Path(each).is_file() for each in told["files"])
    assert any("Goes on after step 7" in note for note in told["notes"])
    assert "unknown runtime 'nemo'" in refused(*words[:4], "nemo", *words[5:])
