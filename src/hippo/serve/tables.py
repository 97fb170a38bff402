"""Tables of the store, for SQLite and PostgreSQL alike; ``migrations`` brings an older store to this form."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
)

METADATA = MetaData()
NUMBER = BigInteger().with_variant(Integer, "sqlite")
"""SQLite counts rows up only under its own name of a whole number."""

JOBS = Table(
    "jobs",
    METADATA,
    Column("number", NUMBER, primary_key=True, autoincrement=True),
    Column("key", String(200), nullable=False, unique=True),
    Column("body_sha256", String(64), nullable=False),
    Column("spec", Text, nullable=False),  # JSON
    Column("owner", String(200), nullable=False),
    Column("state", String(16), nullable=False),
    Column("submitted_s", Float(53), nullable=False),
    Column("began_s", Float(53)),
    Column("ended_s", Float(53)),
    Column("why", Text, nullable=False, default=""),
    Column("place", Text),  # JSON
    Column("share_done", Float(53), nullable=False, default=0.0),
    Column("step_s", Float(53)),
    Column("predicted_step_s", Float(53)),
    Column("cancels", Boolean, nullable=False, default=False),
    Index("jobs_by_state", "state", "number"),
)
DECISIONS = Table(
    "decisions",
    METADATA,
    Column("number", NUMBER, primary_key=True, autoincrement=True),
    Column("time_s", Float(53), nullable=False),
    Column("job", String(32), nullable=False),
    Column("act", String(16), nullable=False),
    Column("before", Text),  # JSON
    Column("after", Text),  # JSON
    Column("why", Text, nullable=False),  # JSON
    Column("policy", String(100), nullable=False),
    Column("mode", String(16), nullable=False),
    Column("state", String(16), nullable=False),
    Column("by", String(200), nullable=False, default=""),
    Column("predicted_step_s", Float(53)),
    Column("bound_step_s", Float(53)),
    Column("ordered_s", Float(53)),
    Column("measured_before_s", Float(53)),
    Column("measured_after_s", Float(53)),
    Column("told", Text, nullable=False, default=""),
    Index("decisions_by_job", "job", "number"),
    Index("decisions_by_state", "state", "number"),
)
ORDERS = Table(
    "orders",
    METADATA,
    Column("key", String(64), primary_key=True),
    Column("decision", NUMBER, nullable=False, index=True),
    Column("job", String(32), nullable=False, index=True),
    Column("actuator", String(32), nullable=False),
    Column("body", Text, nullable=False),  # JSON
    Column("state", String(16), nullable=False, index=True),  # open, done, refused
    Column("made_s", Float(53), nullable=False),
    Column("answered_s", Float(53)),
    Column("told", Text, nullable=False, default=""),
)
PLANS = Table(
    "plans",
    METADATA,
    Column("id", String(32), primary_key=True),
    Column("document", Text, nullable=False),  # JSON
    Column("made_s", Float(53), nullable=False),
)
PROGRESS = Table(
    "progress",
    METADATA,
    Column("job", String(32), primary_key=True),
    Column("time_s", Float(53), primary_key=True),
    Column("share_done", Float(53)),
    Column("step_s", Float(53)),
    Column("loss", Float(53)),
    Index("progress_by_time", "time_s"),
)
POINTS = Table(
    "points",
    METADATA,
    Column("number", NUMBER, primary_key=True, autoincrement=True),
    Column("time_s", Float(53), nullable=False, index=True),
    Column("source", String(200), nullable=False),
    Column("destination", String(200), nullable=False),
    Column("bytes_per_s", Float(53), nullable=False),
    Column("latency_s", Float(53)),
    Column("by", String(200), nullable=False),
)
MINUTES = Table(
    "minutes",
    METADATA,
    Column("minute", NUMBER, primary_key=True, autoincrement=False),  # since 1970
    Column("source", String(200), primary_key=True),
    Column("destination", String(200), primary_key=True),
    Column("points", Integer, nullable=False),
    Column("mean_bytes_per_s", Float(53), nullable=False),
    Column("least_bytes_per_s", Float(53), nullable=False),
    Column("most_bytes_per_s", Float(53), nullable=False),
    Column("mean_latency_s", Float(53)),
)
EVENTS = Table(
    "events",
    METADATA,
    Column("number", NUMBER, primary_key=True, autoincrement=True),
    Column("time_s", Float(53), nullable=False),
    Column("kind", String(32), nullable=False),
    Column("subject", String(200), nullable=False),
    Column("who", String(200), nullable=False),
    Column("told", Text, nullable=False),  # JSON
)
TOKENS = Table(
    "tokens",
    METADATA,
    Column("sha256", String(64), primary_key=True),
    Column("name", String(200), nullable=False, unique=True),
    Column("role", String(16), nullable=False),
    Column("made_s", Float(53), nullable=False),
)
KEPT = Table(
    "kept",
    METADATA,
    Column("name", String(64), primary_key=True),
    Column("content", LargeBinary, nullable=False),
    Column("time_s", Float(53), nullable=False),
)
"""Single things by name: the packed queue, where the service's clock began."""
