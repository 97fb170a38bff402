"""What every test run says at its end."""

from __future__ import annotations

import pytest

from .conftest import skipped


def of(reason: str) -> pytest.TestReport:
    place = ("a.py", 1, f"Skipped: {reason}")
    return pytest.TestReport("a.py::test", ("a.py", 1, "test"), {}, "skipped", place, "call")


def test_the_last_line_counts_what_was_skipped_by_reason() -> None:
    reports = [of("no Chromium"), of("Ray is not installed"), of("no Chromium")]
    assert skipped(reports) == "3 skipped: 2 x no Chromium; 1 x Ray is not installed"
    assert skipped([]) == "nothing skipped"
