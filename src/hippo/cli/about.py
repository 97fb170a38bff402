"""What a file is about, in its own words: read, not run."""

from __future__ import annotations

import ast
from pathlib import Path


def about(path: Path) -> str:
    """First paragraph of the docstring of a Python file, on one line."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].split())
