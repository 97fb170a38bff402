"""What a command inside reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hippo.emulate.emulation import VARIABLE, emulation
from hippo.errors import InputError, UnknownNameError

DOCUMENT = {
    "cluster": "two.yaml",
    "control": "/run/hippo/control",
    "domains": {"east": {"namespace": "n0", "address": "10.77.0.1", "interface": "wan0"}},
    "started_s": 1.0,
}


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def written(text: str) -> None:
        (tmp_path / "emulation.json").write_text(text)
        monkeypatch.setenv(VARIABLE, str(tmp_path / "emulation.json"))

    return written


def test_outside_there_is_none(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    assert emulation() is None


def test_a_command_in_a_domain(inside):
    inside(json.dumps(DOCUMENT))
    found = emulation()
    assert found is not None
    assert found.command("east", ["python", "x.py"]) == ["ip", "netns", "exec", "n0", "python", "x.py"]
    with pytest.raises(UnknownNameError, match="unknown domain 'wst'"):
        found.command("wst", ["true"])


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"domains": 3}', json.dumps(DOCUMENT | {"more": 1})])
def test_another_file_is_refused(inside, text: str):
    inside(text)
    with pytest.raises(InputError, match="no description of an emulation"):
        emulation()
