"""What errors say of the way out."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hippo import errors
from hippo.errors import MissingExtraError

from .conftest import ROOT


@pytest.fixture
def own_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first pip at hand is this Python's."""
    monkeypatch.setattr("shutil.which", lambda name: str(Path(sys.executable).parent / name))


@pytest.mark.usefixtures("own_pip")
def test_a_missing_extra_is_named_with_the_command_that_installs_it_from_the_checkout(monkeypatch: pytest.MonkeyPatch):
    told = "hippo train: needs torch, which is not installed. To fix: install it: pip install -e "
    monkeypatch.chdir(ROOT)
    assert str(MissingExtraError("torch", "learn", source="hippo train")) == f"{told}'.[learn]'."
    monkeypatch.chdir(ROOT.parent)
    assert str(MissingExtraError("torch", "learn", source="hippo train")) == f"{told}'{ROOT}[learn]'."


@pytest.mark.usefixtures("own_pip")
def test_without_a_checkout_the_extra_comes_from_the_package_index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(errors, "__file__", str(tmp_path / "lib" / "hippo" / "errors.py"))
    assert str(MissingExtraError("OR-tools", "solve")).endswith("pip install 'hippo-planner[solve]'.")


def test_where_pip_is_another_pythons_this_one_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert f"install it: {sys.executable} -m pip install -e '" in str(MissingExtraError("torch", "run"))
