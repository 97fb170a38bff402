"""The first form of the store."""

from __future__ import annotations

import sqlalchemy as sql
from alembic import op

revision = "first"
down_revision = None

NUMBER = sql.BigInteger().with_variant(sql.Integer, "sqlite")


def upgrade() -> None:
    """From nothing."""
    real, words = sql.Float(53), sql.String(200)
    op.create_table(
        "jobs",
        sql.Column("number", NUMBER, primary_key=True, autoincrement=True),
        sql.Column("key", words, nullable=False, unique=True),
        sql.Column("body_sha256", sql.String(64), nullable=False),
        sql.Column("spec", sql.Text, nullable=False),
        sql.Column("owner", words, nullable=False),
        sql.Column("state", sql.String(16), nullable=False),
        sql.Column("submitted_s", real, nullable=False),
        sql.Column("began_s", real),
        sql.Column("ended_s", real),
        sql.Column("why", sql.Text, nullable=False),
        sql.Column("place", sql.Text),
        sql.Column("share_done", real, nullable=False),
        sql.Column("step_s", real),
        sql.Column("predicted_step_s", real),
        sql.Column("cancels", sql.Boolean, nullable=False),
    )
    op.create_index("jobs_by_state", "jobs", ["state", "number"])
    op.create_table(
        "decisions",
        sql.Column("number", NUMBER, primary_key=True, autoincrement=True),
        sql.Column("time_s", real, nullable=False),
        sql.Column("job", sql.String(32), nullable=False),
        sql.Column("act", sql.String(16), nullable=False),
        sql.Column("before", sql.Text),
        sql.Column("after", sql.Text),
        sql.Column("why", sql.Text, nullable=False),
        sql.Column("policy", sql.String(100), nullable=False),
        sql.Column("mode", sql.String(16), nullable=False),
        sql.Column("state", sql.String(16), nullable=False),
        sql.Column("by", words, nullable=False),
        sql.Column("predicted_step_s", real),
        sql.Column("measured_before_s", real),
        sql.Column("measured_after_s", real),
        sql.Column("told", sql.Text, nullable=False),
    )
    op.create_index("decisions_by_job", "decisions", ["job", "number"])
    op.create_index("decisions_by_state", "decisions", ["state", "number"])
    op.create_table(
        "plans",
        sql.Column("id", sql.String(32), primary_key=True),
        sql.Column("document", sql.Text, nullable=False),
        sql.Column("made_s", real, nullable=False),
    )
    op.create_table(
        "points",
        sql.Column("number", NUMBER, primary_key=True, autoincrement=True),
        sql.Column("time_s", real, nullable=False, index=True),
        sql.Column("source", words, nullable=False),
        sql.Column("destination", words, nullable=False),
        sql.Column("bytes_per_s", real, nullable=False),
        sql.Column("latency_s", real),
        sql.Column("by", words, nullable=False),
    )
    op.create_table(
        "minutes",
        sql.Column("minute", NUMBER, primary_key=True, autoincrement=False),
        sql.Column("source", words, primary_key=True),
        sql.Column("destination", words, primary_key=True),
        sql.Column("points", sql.Integer, nullable=False),
        sql.Column("mean_bytes_per_s", real, nullable=False),
        sql.Column("least_bytes_per_s", real, nullable=False),
        sql.Column("most_bytes_per_s", real, nullable=False),
        sql.Column("mean_latency_s", real),
    )
    op.create_table(
        "events",
        sql.Column("number", NUMBER, primary_key=True, autoincrement=True),
        sql.Column("time_s", real, nullable=False),
        sql.Column("kind", sql.String(32), nullable=False),
        sql.Column("subject", words, nullable=False),
        sql.Column("who", words, nullable=False),
        sql.Column("told", sql.Text, nullable=False),
    )
    op.create_table(
        "tokens",
        sql.Column("sha256", sql.String(64), primary_key=True),
        sql.Column("name", words, nullable=False, unique=True),
        sql.Column("role", sql.String(16), nullable=False),
        sql.Column("made_s", real, nullable=False),
    )
    op.create_table(
        "kept",
        sql.Column("name", sql.String(64), primary_key=True),
        sql.Column("content", sql.LargeBinary, nullable=False),
        sql.Column("time_s", real, nullable=False),
    )
    op.create_table(
        "orders",
        sql.Column("key", sql.String(64), primary_key=True),
        sql.Column("decision", NUMBER, nullable=False, index=True),
        sql.Column("job", sql.String(32), nullable=False, index=True),
        sql.Column("actuator", sql.String(32), nullable=False),
        sql.Column("body", sql.Text, nullable=False),
        sql.Column("state", sql.String(16), nullable=False, index=True),
        sql.Column("made_s", real, nullable=False),
        sql.Column("answered_s", real),
        sql.Column("told", sql.Text, nullable=False),
    )
