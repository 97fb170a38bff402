"""A binary for these tests: the small player, under the name that ASTRA-sim's own has."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hippo.simulate.astra.binary import NAMES

PLAYER = Path(__file__).parent / "player.py"


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], Path]:
    """Makes a program of the binary's name out of lines of shell."""

    def made(text: str) -> Path:
        path = tmp_path / NAMES[0]
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return path

    return made


@pytest.fixture
def player(script: Callable[[str], Path]) -> Path:
    """The stand-in for ASTRA-sim."""
    return script(f'exec "{sys.executable}" -S "{PLAYER}" "$@"')
