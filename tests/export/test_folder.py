"""The folder of an export: whole or not at all, and nothing of others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hippo.errors import InputError
from hippo.export.folder import MANIFEST, write_export


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_files_and_a_list_of_them(tmp_path: Path):
    write_export(tmp_path / "new" / "out", {"a": "1", "deep/b": b"\0"})
    assert names(tmp_path / "new" / "out") == {"a", "deep/b", MANIFEST}


def test_an_export_follows_another_and_takes_away_what_is_left_of_it(tmp_path: Path):
    write_export(tmp_path, {"a": "1", "b": "2", "mine": "3"})
    (tmp_path / "mine").write_text("changed by hand")
    write_export(tmp_path, {"a": "new"})
    assert names(tmp_path) == {"a", "mine", MANIFEST}
    assert (tmp_path / "a").read_text() == "new"


@pytest.mark.parametrize("before", ["a file of yours", "1 and a change"])
def test_what_is_not_ours_stays(tmp_path: Path, before: str):
    if before.startswith("1"):
        write_export(tmp_path, {"a": "1"})
    (tmp_path / "a").write_text(before)
    with pytest.raises(InputError, match="--force") as refusal:
        write_export(tmp_path, {"0": "0", "a": "2"})
    assert str(tmp_path / "a") in str(refusal.value)
    assert (tmp_path / "a").read_text() == before
    assert not (tmp_path / "0").exists()
    write_export(tmp_path, {"0": "0", "a": "2"}, force=True)
    assert (tmp_path / "a").read_text() == "2"


def test_a_folder_in_the_way_of_a_file_leaves_everything_as_it_was(tmp_path: Path):
    write_export(tmp_path, {"a": "1", "b": "2"})
    (tmp_path / "c" / "d").mkdir(parents=True)
    with pytest.raises(InputError):
        write_export(tmp_path, {"a": "3", "c": "4"})
    write_export(tmp_path, {"a": "1", "b": "2"})
    (tmp_path / "a").unlink()
    (tmp_path / "a").mkdir()
    with pytest.raises(InputError):
        write_export(tmp_path, {"b": "3", "a/../a": "4"})
    assert (tmp_path / "b").read_text() == "2"


def test_a_link_to_elsewhere_is_not_followed(tmp_path: Path):
    (tmp_path / "elsewhere").write_text("yours")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError):
        write_export(tmp_path / "out", {"a": "1"})
    write_export(tmp_path / "out", {"a": "1"}, force=True)
    assert (tmp_path / "elsewhere").read_text() == "yours"


def test_a_rename_that_fails_puts_everything_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write_export(tmp_path, {"a": "1", "b": "2"})
    real = os.replace

    def replace(source, target):
        if str(target).endswith("/b") and ".before" not in str(source):
            raise OSError(28, "No space left on device")
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(InputError, match="No space left"):
        write_export(tmp_path, {"a": "3", "b": "4"})
    assert (tmp_path / "a").read_text() == "1"
    assert names(tmp_path) == {"a", "b", MANIFEST}
    assert (tmp_path / "b").read_text() == "2"


def test_a_list_that_someone_wrote_does_not_lead_outside(tmp_path: Path):
    (tmp_path / "victim").write_text("yours")
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / MANIFEST).write_text('{"../victim": "x"}')
    write_export(folder, {"a": "1"}, force=True)
    assert (tmp_path / "victim").read_text() == "yours"
