"""How runs went on: steps and losses through time."""

from __future__ import annotations

import sqlalchemy as sql
from alembic import op

revision = "second"
down_revision = "first"


def upgrade() -> None:
    """One table more."""
    real = sql.Float(53)
    op.create_table(
        "progress",
        sql.Column("job", sql.String(32), primary_key=True),
        sql.Column("time_s", real, primary_key=True),
        sql.Column("share_done", real),
        sql.Column("step_s", real),
        sql.Column("loss", real),
    )
    op.create_index("progress_by_time", "progress", ["time_s"])
