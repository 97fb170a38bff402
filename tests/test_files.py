"""Files appear whole or not at all, and are read with a bound."""

from __future__ import annotations

import math
import os
import tempfile
from pathlib import Path

import pytest

from hippo.errors import InputError
from hippo.files import json_text, read_text, scratch, write_whole


def test_a_file_appears_whole_in_a_new_folder(tmp_path: Path) -> None:
    target = tmp_path / "a" / "b.txt"
    write_whole(target, "grüße\n")
    assert target.read_text(encoding="utf-8") == "grüße\n"
    write_whole(target, b"\x00\x01")
    assert target.read_bytes() == b"\x00\x01"
    assert os.listdir(target.parent) == ["b.txt"]


def test_the_mode_is_the_usual_one(tmp_path: Path) -> None:
    target = tmp_path / "plan.json"
    (tmp_path / "other").write_text("")
    write_whole(target, "1")
    assert target.stat().st_mode == (tmp_path / "other").stat().st_mode
    target.chmod(0o600)
    write_whole(target, "2")
    assert target.stat().st_mode & 0o777 == 0o600


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "plan.json"
    write_whole(target, "old")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match=r"plan\.json: cannot write: No space left on device\. To fix: "):
        write_whole(target, "new")
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["plan.json"]


def test_a_path_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write"):
        write_whole(tmp_path / "file" / "plan.json", "1")
    with pytest.raises(InputError, match="cannot write"):
        write_whole(tmp_path / "a\0b", "1")


def test_json_has_no_nan() -> None:
    assert json_text({"a": [1, 2.5, None, "ü"]}) == '{\n  "a": [\n    1,\n    2.5,\n    null,\n    "ü"\n  ]\n}\n'
    for number in (math.nan, math.inf):
        with pytest.raises(ValueError, match="not JSON compliant"):
            json_text({"a": number})


def test_reading_is_bounded_and_says_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes(b"\xef\xbb\xbfname: a\n")
    assert read_text(path, what="cluster file") == "name: a\n"
    for given, words in [
        (tmp_path / "none", "cluster file does not exist. To fix: give the path of an existing file."),
        (tmp_path, "cannot read the cluster file: Is a directory."),
        ("a\0b", "cannot read the cluster file: embedded null byte."),
        ("/dev/zero", "cluster file is larger than 32 MB."),
        (b"c.yaml", "cluster file: must be a path (got b'c.yaml')."),
    ]:
        with pytest.raises(InputError) as caught:
            read_text(given, what="cluster file")  # type: ignore[arg-type]
        assert words in str(caught.value)
    path.write_bytes(b"name: \xff")
    with pytest.raises(InputError, match=r"cluster file is not text: byte 6 is not UTF-8"):
        read_text(path, what="cluster file")


def test_a_number_is_no_path_and_the_file_that_is_open_under_it_stays_open(tmp_path: Path) -> None:
    (tmp_path / "open.txt").write_text("still here")
    with (tmp_path / "open.txt").open() as stream:
        with pytest.raises(InputError, match="^plan file: must be a path"):
            read_text(stream.fileno(), what="plan file")  # type: ignore[arg-type]
        assert stream.read() == "still here"


def test_what_a_process_that_was_killed_left_goes_with_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Not what somebody holds, nor what is so young that its owner may not hold it yet."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name in ("hippo-run-old", "hippo-run-young", "other-old"):
        (tmp_path / name / "inside").mkdir(parents=True)
    with scratch("hippo-run-") as mine:
        (mine / "file").touch()
        for each in (mine, tmp_path / "hippo-run-old", tmp_path / "other-old"):
            os.utime(each, (0.0, 0.0))
        with scratch("hippo-run-") as other:
            assert {each.name for each in tmp_path.iterdir()} == {
                "hippo-run-young",
                "other-old",
                mine.name,
                other.name,
            }
    assert {each.name for each in tmp_path.iterdir()} == {"hippo-run-young", "other-old"}
