"""When a decision became an order."""

from __future__ import annotations

import sqlalchemy as sql
from alembic import op

revision = "fifth"
down_revision = "fourth"


def upgrade() -> None:
    """A column more."""
    op.add_column("decisions", sql.Column("ordered_s", sql.Float(53)))
