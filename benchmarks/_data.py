"""Where the published figures and traces lie: ``data/`` of the checkout. What each is: ``data/README.md``."""

from __future__ import annotations

import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "data"


def data(name: str) -> Path:
    """A file of ``data/``; ends the program with what to do where it is missing."""
    path = FOLDER / name
    if not path.is_file():
        sys.exit(f"{path}: the file is missing. To fix: get it back with 'git checkout -- data'.")
    return path
