"""Small traces written by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hippo.jobs.traces.load import JobTrace, load_trace

Reading = Callable[..., JobTrace]


@pytest.fixture
def reading(tmp_path: Path) -> Reading:
    """``reading(text, form=None, skip_bad=False)``: the trace of a file with this text."""

    def read(
        text: str | bytes, *, name: str = "trace.txt", form: str | None = None, skip_bad: bool = False
    ) -> JobTrace:
        file = tmp_path / name
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load_trace(file, form=form, skip_bad=skip_bad)

    return read
