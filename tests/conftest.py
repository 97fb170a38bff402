"""What every test may use."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of the published figures that lies beside the checkout; missing is a failure, never a skip."""
    folder = ROOT / ".." / "shared" / "data"
    assert folder.is_dir(), f"the published figures are missing: {folder} (they lie beside the checkout)"
    return folder.resolve()
