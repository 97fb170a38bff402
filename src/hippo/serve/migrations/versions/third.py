"""What jobs say holds the trace of their submission, which versions before do not know: they are to say so."""

from __future__ import annotations

revision = "third"
down_revision = "second"


def upgrade() -> None:
    """No table changes."""
