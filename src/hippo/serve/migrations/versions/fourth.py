"""What a step of a decision could take at the least, and when it became an order."""

from __future__ import annotations

import sqlalchemy as sql
from alembic import op

revision = "fourth"
down_revision = "third"


def upgrade() -> None:
    """Two columns more."""
    for name in ("bound_step_s", "ordered_s"):
        op.add_column("decisions", sql.Column(name, sql.Float(53)))
