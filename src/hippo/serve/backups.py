"""All of a store in one file, and back: JSON lines, packed, the same for SQLite and PostgreSQL.

The first line says the form of the store and how many rows follow of each table; a file that ends early is refused.
"""

from __future__ import annotations

import base64
import gzip
import json
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import sqlalchemy as sql
from alembic.runtime.migration import MigrationContext
from sqlalchemy.engine import Connection
from sqlalchemy.exc import SQLAlchemyError

from hippo.errors import InputError
from hippo.files import write_whole
from hippo.serve import tables as t
from hippo.serve.records import CANCELLED, StoredJob
from hippo.serve.store import BEYOND, OWNER, Store, check_form, check_made, engine_of, keep, note

MARK = "hippo_store"


def backup(url: str, path: Path) -> dict[str, int]:
    """Write a store into a file, as it is at one instant; rows of each table.

    Raises
    ------
    InputError
        No store is there, or the file cannot be written.
    """
    engine = engine_of(url)
    try:
        check_made(engine)
        with engine.connect() as at:
            if engine.dialect.name == "postgresql":
                at.execute(sql.text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
            lines, counts = list(_lines(at)), dict[str, int]()
            for name, _ in lines:
                counts[name] = counts.get(name, 0) + 1
            check_form(at, url)
            head = {MARK: 1, "form": MigrationContext.configure(at).get_current_revision(), "rows": counts}
    except SQLAlchemyError as error:
        told = f"cannot be read: {str(error).splitlines()[0][:200]}"
        raise InputError(told, source="--store", remedy="name a store that answers") from None
    finally:
        engine.dispose()
    text = "\n".join(json.dumps(each) for each in (head, *lines)) + "\n"
    try:
        write_whole(path, gzip.compress(text.encode(), mtime=0))
    except OSError as error:
        told = f"cannot be written: {error.strerror}"
        raise InputError(told, source=str(path), remedy="name a file in a folder you may write to") from None
    return counts


def _lines(at: Connection) -> Iterator[tuple[str, dict[str, Any]]]:
    for table in t.METADATA.sorted_tables:
        for row in at.execute(_content(table)):
            yield table.name, {name: _told(value) for name, value in row._mapping.items()}


def _content(table: sql.Table) -> Any:
    """All of a table but who owns the store."""
    asked = sql.select(table)
    return asked.where(t.KEPT.c.name != OWNER) if table is t.KEPT else asked


def _told(value: Any) -> Any:
    return {"base64": base64.b64encode(value).decode()} if isinstance(value, bytes | memoryview) else value


def restore(url: str, path: Path) -> dict[str, int]:
    """Fill an empty store from a file; rows of each table.

    Raises
    ------
    InputError
        The file is no backup, or not whole, or of another form; the store is not empty.
    """
    head, lines = _read(path)
    store = Store(url)
    try:
        with store.engine.connect() as at:
            form = MigrationContext.configure(at).get_current_revision()
            if head["form"] != form:
                told = f"is of the form {head['form']}, and this version writes {form}"
                raise InputError(
                    told, source=str(path), remedy="restore it with the version that wrote it, then upgrade"
                )
            full = [each.name for each in t.METADATA.sorted_tables if at.execute(_content(each).limit(1)).first()]
            if full:
                remedy = "name an empty store"
                raise InputError("holds something already", source="--store", value=full[0], remedy=remedy)

        def write(at: Connection) -> None:
            for table in t.METADATA.sorted_tables:
                rows = [row for name, row in lines if name == table.name]
                for begin in range(0, len(rows), 500):
                    at.execute(sql.insert(table), rows[begin : begin + 500])
                if "number" in table.columns:
                    _goes_on(at, table)
            _beyond(at)

        try:
            store.write(write).result()
        except SQLAlchemyError:
            remedy = "name another backup"
            raise InputError("holds rows that no store holds", source=str(path), remedy=remedy) from None
    finally:
        store.close()
    return dict(head["rows"])


def _beyond(at: Connection) -> None:
    """Numbers go on far beyond those of the backup: the store that was lost may have given the next ones away, and
    actuators know what was done under them, and pages which event they heard last. The farther the later, as one that
    was restored from the same backup before may be lost, too."""
    jobs, decisions, events = (
        int(at.execute(sql.select(sql.func.max(each.c.number))).scalar() or 0) for each in _NUMBERED
    )
    last_s = float(at.execute(sql.select(sql.func.max(t.EVENTS.c.time_s))).scalar() or 0.0)
    leap = LEAP + int(MOST_A_SECOND * max(0.0, time.time() - last_s))
    keep(at, BEYOND, str(decisions + leap).encode(), 0.0)
    why = "not a job: numbers up to here may have been given away by the store that was restored"
    at.execute(sql.insert(t.JOBS), _row(jobs + leap, str(jobs), {}, 0.0, why))
    _goes_on(at, t.JOBS)
    note(at, time.time(), "service", "service", told="restored from a backup: numbers go on from here")
    last = at.execute(sql.select(sql.func.max(t.EVENTS.c.number))).scalar()
    at.execute(sql.update(t.EVENTS).where(t.EVENTS.c.number == last).values(number=events + leap))
    _goes_on(at, t.EVENTS)


LEAP, MOST_A_SECOND = 1_000_000, 1000
"""Numbers that are left out, and how many more for each second since the backup's last event."""
_NUMBERED = (t.JOBS, t.DECISIONS, t.EVENTS)


def begun_after(number: int, actuator: str, now_s: float) -> tuple[StoredJob, Callable[[Connection], None]]:
    """A job that an actuator has and a restored store has never heard of, as one that is over, so that it can be
    stopped and asked after; and what writes that down."""
    row = _row(number, f"j{number}", {"actuator": actuator}, now_s, "restored: begun after the backup")
    job = StoredJob(number, row["key"], {"actuator": actuator}, row["owner"], CANCELLED, now_s, None, now_s, row["why"])

    def write(at: Connection) -> None:
        at.execute(sql.insert(t.JOBS), row)
        _goes_on(at, t.JOBS)
        note(at, now_s, "job", job.name, event="job cancelled", state=CANCELLED, why=job.why)

    return job, write


def _row(number: int, key: str, spec: Mapping[str, Any], over_s: float, why: str) -> dict[str, Any]:
    """Of a job that nobody submitted here: no header holds an end of line, so that no submission has its key."""
    row = {"number": number, "key": f"restored\n{key}", "body_sha256": "", "spec": json.dumps(dict(spec))}
    row |= {"owner": "hippo", "state": CANCELLED, "submitted_s": over_s, "why": why, "share_done": 0.0}
    return {**row, "cancels": False, "ended_s": over_s or None}


def _goes_on(at: Connection, table: sql.Table) -> None:
    """Numbers that are given away go on behind those of a table, which SQLite does by itself."""
    if at.dialect.name == "postgresql":
        told = f"SELECT setval(pg_get_serial_sequence('{table.name}', 'number'), max(number)) FROM {table.name}"
        at.execute(sql.text(told))


def _read(path: Path) -> tuple[dict[str, Any], list[tuple[str, dict[str, Any]]]]:
    remedy = "name a file that 'hippo store backup' wrote"
    try:
        lines = [json.loads(line) for line in gzip.decompress(path.read_bytes()).decode().splitlines()]
        head = lines[0]
        rows = [(str(name), _back(dict(row))) for name, row in lines[1:]]
        if (
            head[MARK] != 1
            or not {"form", "rows"} <= head.keys()
            or not {name for name, _ in rows} <= t.METADATA.tables.keys()
        ):
            raise KeyError(MARK)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", source=str(path), remedy=remedy) from None
    except (EOFError, ValueError, KeyError, IndexError, TypeError, zlib.error):
        raise InputError("is no backup of a store", source=str(path), remedy=remedy) from None
    counts = dict[str, int]()
    for name, _ in rows:
        counts[name] = counts.get(name, 0) + 1
    if counts != head["rows"]:
        raise InputError("is not whole", source=str(path), remedy="name another backup")
    return head, rows


def _back(row: dict[str, Any]) -> dict[str, Any]:
    return {
        name: base64.b64decode(value["base64"], validate=True)
        if isinstance(value, dict) and "base64" in value
        else value
        for name, value in row.items()
    }
