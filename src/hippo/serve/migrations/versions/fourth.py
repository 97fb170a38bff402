"""What a step of a decision could take at the least."""

from __future__ import annotations

import sqlalchemy as sql
from alembic import op

revision = "fourth"
down_revision = "third"


def upgrade() -> None:
    """A column more."""
    op.add_column("decisions", sql.Column("bound_step_s", sql.Float(53)))
