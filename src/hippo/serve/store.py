"""The store: one writer that commits what comes together at once, readers beside it, on SQLite or PostgreSQL.

``write`` hands a function to the writer's thread. What is in the queue when the writer is free becomes one transaction,
each function in a savepoint of its own, and is answered when it is on the disk. One service owns a store at a time.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from contextvars import ContextVar
from hashlib import sha256
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

import sqlalchemy as sql
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError

from hippo.errors import HippoError, InputError
from hippo.serve import tables as t
from hippo.serve.records import StoredDecision, StoredJob

T = TypeVar("T")
MOST_AT_ONCE = 500
"""Functions in one transaction."""
OWNER_LOCK = 0x6869707030
"""PostgreSQL's number of the lock that a service holds."""
DRIVERS = ("sqlite", "postgresql")
NOTED = sql.insert(t.EVENTS)
NUMBER = "(0|[1-9][0-9]{0,15})"
"""Of an id, as a regular expression."""
MOST_NAMES = 500
"""In one statement."""
TRACE: ContextVar[str] = ContextVar("trace", default="")
"""Of the request for which is read or written: 32 hexadecimal digits of a W3C trace."""
OWNER, BEYOND = "owner", "beyond"
"""Names of what the store keeps: who owns it, and a number beyond which decisions are numbered."""
OWNED = sql.select(t.KEPT.c.content).where(t.KEPT.c.name == OWNER).with_for_update()


class StoreError(HippoError):
    """The store could not write: the disk is full, the database gone. Nothing of what was asked has been written."""


class OwnedError(InputError):
    """Another service owns the store."""


class Store:
    """See the top of the file.

    Raises
    ------
    InputError
        The address is of no kind of store, nobody answers there, another service owns it, or it is of a later version.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.engine = engine_of(url)
        self._lock: Any = None
        self._mark = os.urandom(16)  # of this owner, in the store: who has been succeeded writes no more
        try:
            self._own()
            self._migrate()
            with self.engine.begin() as at:
                keep(at, OWNER, self._mark, time.time())
        except (SQLAlchemyError, OSError) as error:
            self.close()
            raise InputError(
                f"cannot be opened: {_first_line(error)}",
                source="--store",
                value=_shown(url),
                remedy="name a file you may write, or a PostgreSQL database that answers",
            ) from None
        except InputError:
            self.close()
            raise
        self._queue: SimpleQueue[tuple[Callable[[Connection], Any], Future[Any]] | None] = SimpleQueue()
        self._thread = Thread(target=self._write_on, name="store", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------------------------------------------------- to write
    def write(self, function: Callable[[Connection], T]) -> Future[T]:
        """Let a function write; the answer is there once it is on the disk. ``StoreError`` where it could not be."""
        found: Future[T] = Future()
        self._queue.put((function, found))
        return found

    def close(self) -> None:
        """Write what is waiting, and give the store back."""
        if hasattr(self, "_thread") and self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()
        if self._lock is not None:
            with suppress(Exception):
                self._lock.close()
        self.engine.dispose()

    def _write_on(self) -> None:
        while True:
            batch = [self._queue.get()]
            while not self._queue.empty() and len(batch) < MOST_AT_ONCE:
                batch.append(self._queue.get())
            # Who has let go before it was begun is not written; from here on nobody can.
            asked = [each for each in batch if each is not None and each[1].set_running_or_notify_cancel()]
            closed = None in batch
            try:
                self._write_together(asked)
            except Exception as error:  # the writer must live: who waits for it would wait for ever
                for _, future in asked:
                    if not future.done():
                        future.set_exception(StoreError(f"the store cannot write: {_first_line(error)}"))
            if closed:
                return

    def _write_together(self, asked: list[tuple[Callable[[Connection], Any], Future[Any]]]) -> None:
        answers: list[tuple[Future[Any], Any, BaseException | None]] = []
        try:
            with self.engine.begin() as connection:
                if connection.execute(OWNED).scalar() != self._mark:
                    raise StoreError("another service owns the store now; this one writes no more")
                for function, future in asked:
                    try:
                        with connection.begin_nested():
                            answers.append((future, function(connection), None))
                    except DBAPIError as wrong:
                        if wrong.connection_invalidated or "full" in str(wrong.orig).lower():
                            raise
                        answers.append((future, None, wrong))
                    except Exception as wrong:  # of the function that asked, not of the store
                        answers.append((future, None, wrong))
        except StoreError as error:
            answers = [(future, None, error) for _, future in asked]
        except (SQLAlchemyError, OSError) as error:
            told = StoreError(f"the store cannot write: {_first_line(error)}")
            answers = [(future, None, told) for _, future in asked]
        for future, answer, fault in answers:
            if fault is None:
                future.set_result(answer)
            else:
                future.set_exception(fault)

    # -------------------------------------------------------------------------------------------------------- to read
    def read(self, function: Callable[[Connection], T]) -> T:
        """What a function reads; ``StoreError`` where the store does not answer."""
        try:
            with self.engine.connect() as connection:
                return function(connection)
        except (SQLAlchemyError, OSError) as error:
            raise StoreError(f"the store cannot be read: {_first_line(error)}") from None

    # ---------------------------------------------------------------------------------------------------- to be opened
    def _own(self) -> None:
        told = "another service owns it"
        remedy = "stop the other one, or name another store"
        if self.engine.dialect.name == "sqlite":
            path = self.engine.url.database
            assert path, "a store in a file"
            self._lock = open(f"{path}.owner", "a")  # noqa: SIM115 - held as long as the store
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise OwnedError(told, source="--store", value=_shown(self.url), remedy=remedy) from None
            os.set_inheritable(self._lock.fileno(), False)
            return
        self._lock = self.engine.connect()
        held = self._lock.execute(sql.select(sql.func.pg_try_advisory_lock(OWNER_LOCK))).scalar()
        self._lock.commit()
        if not held:
            raise OwnedError(told, source="--store", value=_shown(self.url), remedy=remedy)

    def _migrate(self) -> None:
        config = _migrations()
        with self.engine.begin() as connection:
            if check_form(connection, self.url) is None and sql.inspect(connection).has_table("jobs"):
                remedy = "name an empty database, or a store of hippo"
                raise InputError(
                    "holds tables of something else", source="--store", value=_shown(self.url), remedy=remedy
                )
            config.attributes["connection"] = connection
            command.upgrade(config, "head")


def _migrations() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.set_main_option("path_separator", "os")
    return config


def check_form(connection: Connection, url: str) -> str | None:
    """The form of a store; None: it has none yet. ``InputError``: it is of a later version."""
    known = {each.revision for each in ScriptDirectory.from_config(_migrations()).walk_revisions()}
    now = MigrationContext.configure(connection).get_current_revision()
    if now is not None and now not in known:
        told, remedy = f"is of a later version ({now})", "use the version of hippo that wrote it, or a later one"
        raise InputError(told, source="--store", value=_shown(url), remedy=remedy)
    return now


def written_beside(url: str, function: Callable[[Connection], T]) -> T:
    """Let a function write into a store that a service may own; ``StoreError``, and ``InputError`` as of ``Store``, or
    since no service has ever made it."""
    engine = engine_of(url)
    try:
        check_made(engine)
    except SQLAlchemyError:
        pass  # the store says so itself
    finally:
        engine.dispose()
    try:
        store = Store(url)
    except OwnedError:
        engine = engine_of(url)
        try:
            with engine.begin() as at:
                return function(at)
        except SQLAlchemyError as error:
            raise StoreError(f"the store cannot write: {_first_line(error)}") from None
        finally:
            engine.dispose()
    try:
        return store.write(function).result()
    finally:
        store.close()


def check_made(engine: Engine) -> None:
    """``InputError``: no service has made a store there. Makes none, as opening it does."""
    file = engine.url.database if engine.dialect.name == "sqlite" else None
    if (file is not None and not Path(file).exists()) or not sql.inspect(engine).has_table("jobs"):
        told, remedy = "holds no store of hippo", "name the store of 'hippo serve', which makes it as it first starts"
        url = engine.url.render_as_string(hide_password=True)
        raise InputError(told, source="--store", value=_shown(url), remedy=remedy)


def engine_of(url: str) -> Engine:
    """How an address is reached; ``InputError``: it is none."""
    remedy = "write sqlite:///PATH or postgresql://USER@HOST/DATABASE"
    try:
        address = sql.make_url(url)
        named = any((address.username, address.password, address.host, address.port))
        if b"\0" in os.fsencode(url) or (named and address.get_backend_name() == "sqlite"):
            raise ValueError(url)
    except (ArgumentError, ValueError):  # a port that is no number is the latter
        raise InputError("is no address of a store", source="--store", value=_shown(url), remedy=remedy) from None
    kind = address.get_backend_name()
    if kind not in DRIVERS or (kind == "sqlite" and not address.database):
        raise InputError("is no kind of store", source="--store", value=_shown(url), remedy=remedy)
    if kind == "sqlite" and address.database == ":memory:":
        raise InputError("is gone with its process", source="--store", value=url, remedy="write sqlite:///PATH")
    if kind == "sqlite" and address.query:
        told, remedy = "takes nothing behind a question mark", "write sqlite:///PATH"
        raise InputError(told, source="--store", value=url[:100], remedy=remedy)
    if kind == "sqlite" and Path(str(address.database)).is_dir():
        raise InputError("is a folder", source="--store", value=url[:100], remedy="name a file in it")
    if kind == "postgresql":
        address = address.set(drivername="postgresql+psycopg")
    try:
        engine = sql.create_engine(address, pool_pre_ping=kind == "postgresql", hide_parameters=True)
    except (NoSuchModuleError, ImportError):
        told = "its driver is not installed"
        raise InputError(
            told, source="--store", value=_shown(url), remedy="pip install 'hippo-planner[serve]'"
        ) from None
    if kind == "sqlite":

        @sql.event.listens_for(engine, "connect")
        def _settle(connection: Any, record: Any) -> None:
            connection.isolation_level = None  # transactions begin where we say, savepoints included
            for line in ("journal_mode=WAL", "synchronous=FULL", "busy_timeout=10000", "foreign_keys=ON"):
                connection.execute(f"PRAGMA {line}")

        @sql.event.listens_for(engine, "begin")
        def _begin(connection: Any) -> None:
            connection.exec_driver_sql("BEGIN")

    return engine


def _shown(url: str) -> str:
    """An address without its password, and without what stands behind its question mark, which may hold one."""
    with suppress(ArgumentError, ValueError):
        url = sql.make_url(url).render_as_string(hide_password=True)
    return re.sub("=[^&]*", "=***", re.sub("(://[^:/@]*):.*@", r"\1:***@", url))[:100]


def _first_line(error: BaseException) -> str:
    return str(getattr(error, "orig", None) or error).splitlines()[0][:200] if str(error) else type(error).__name__


# ---------------------------------------------------------------------------------------------------------- rows
def job_of_row(row: Any) -> StoredJob:
    """A row of ``tables.JOBS``."""
    values = dict(row._mapping)
    values.pop("body_sha256")
    return StoredJob(**{**values, "spec": json.loads(values["spec"]), "place": _loaded(values["place"])})


def decision_of_row(row: Any) -> StoredDecision:
    """A row of ``tables.DECISIONS``."""
    values = dict(row._mapping)
    parts = {name: _loaded(values[name]) for name in ("before", "after", "why")}
    return StoredDecision(**{**values, **parts})


def _loaded(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def note(
    connection: Connection, time_s: float, kind: str, subject: str, *, who: str = "", trace: str = "", **told: Any
) -> None:
    """Write an event down: who did what, or what came about; ``trace``: what it goes back to, else this request."""
    note_all(connection, time_s, kind, {subject: trace}, who=who, **told)


def note_all(
    connection: Connection, time_s: float, kind: str, subjects: Mapping[str, str], *, who: str = "", **told: Any
) -> None:
    """The same of several subjects, each with its trace."""
    here, rows = TRACE.get(), []
    for subject, trace in subjects.items():
        words = told | ({"trace": found} if (found := trace or here) else {})
        rows.append({"time_s": time_s, "kind": kind, "subject": subject, "who": who, "told": json.dumps(words)})
    connection.execute(NOTED, rows)


def last_event(connection: Connection) -> int:
    """Number of the event that was written last; 0: none was."""
    return connection.execute(sql.select(sql.func.max(t.EVENTS.c.number))).scalar() or 0


def set_jobs(connection: Connection, names: Iterable[str], **values: Any) -> None:
    """Write columns of jobs."""
    if "place" in values and isinstance(values["place"], Mapping):
        values["place"] = json.dumps(values["place"])
    numbers = [number_of(name) for name in names]
    for begin in range(0, len(numbers), MOST_NAMES):
        here = t.JOBS.c.number.in_(numbers[begin : begin + MOST_NAMES])
        connection.execute(sql.update(t.JOBS).where(here).values(**values))


def plan_kept(document: Mapping[str, Any], now_s: float) -> tuple[str, Callable[[Connection], None]]:
    """A plan's id, and what writes it down, or that somebody goes by it again."""
    name, text = plan_id(document), json.dumps(dict(document), sort_keys=True)

    def write(at: Connection) -> None:
        if not at.execute(sql.update(t.PLANS).where(t.PLANS.c.id == name).values(made_s=now_s)).rowcount:
            at.execute(sql.insert(t.PLANS), {"id": name, "document": text, "made_s": now_s})

    return name, write


def plan_id(document: Mapping[str, Any]) -> str:
    """A plan's id, which is of what it says."""
    return f"p{sha256(json.dumps(dict(document), sort_keys=True).encode()).hexdigest()[:16]}"


def plan_of(name: str) -> Callable[[Connection], dict[str, Any]]:
    """Reads the document of a plan; ``KeyError``: there is none of that id."""

    def read(at: Connection) -> dict[str, Any]:
        found = at.execute(sql.select(t.PLANS.c.document).where(t.PLANS.c.id == name)).scalar()
        if found is None:
            raise KeyError(name)
        return dict(json.loads(found))

    return read


def number_of(name: str) -> int:
    """Of an id as ``j12`` or ``d7``; -1: it is none (as ``j012``: a thing has one name)."""
    return int(name[1:]) if re.fullmatch(f"[jd]{NUMBER}", name) else -1


def keep(connection: Connection, name: str, content: bytes, time_s: float) -> None:
    """Hold a single thing under a name, in place of what was there."""
    connection.execute(sql.delete(t.KEPT).where(t.KEPT.c.name == name))
    connection.execute(sql.insert(t.KEPT).values(name=name, content=content, time_s=time_s))


def kept(connection: Connection, name: str) -> bytes | None:
    """What is held under a name."""
    return connection.execute(sql.select(t.KEPT.c.content).where(t.KEPT.c.name == name)).scalar()
