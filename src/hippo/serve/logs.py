"""What is logged: a line of JSON for each request that changes something or fails, and for each event, with its trace.

A trace is one of W3C's Trace Context: who asks may send a ``traceparent``, else one is drawn; the answer names it. What
a request leads to goes by it: a job's events, the decisions about it, the processes that train it (``TRACEPARENT``).
The store is the record, a log its copy from the moment on that the service is ready.
"""

from __future__ import annotations

import json
import logging
import re
import secrets
import sys
from contextlib import suppress
from datetime import UTC, datetime
from logging.handlers import WatchedFileHandler
from threading import Event, Thread
from typing import Any

import sqlalchemy as sql

from hippo.errors import InputError
from hippo.serve import tables as t
from hippo.serve.store import TRACE, Store, StoreError, last_event

LOG = logging.getLogger("hippo.serve")
OTHERS = ("uvicorn.error",)
"""Loggers of libraries that go the same way."""
PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")
EVERY_S = 0.5
AT_ONCE = 500


def trace_of(parent: str) -> str:
    """The trace that a ``traceparent`` names; of one that is none, a new one."""
    found = PARENT.fullmatch(parent)
    return found[1] if found else secrets.token_hex(16)


class JsonLines(logging.Formatter):
    """A record as one line: ``time``, ``level``, ``event`` and what is told of it."""

    def format(self, record: logging.LogRecord) -> str:
        """As JSON."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        told: dict[str, Any] = {"time": time, "level": record.levelname.lower(), "event": record.getMessage()}
        if record.exc_info:
            told["error"] = self.formatException(record.exc_info)
        return json.dumps(told | getattr(record, "told", {}), default=str)


class LogFile(WatchedFileHandler):
    """A file that may be moved away; while none can be made in its place lines are lost, as the store has them."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        with suppress(OSError):
            super().emit(record)


def log_to(where: str) -> None:
    """Log into a file (``-``: stderr), which may be moved away meanwhile. ``InputError``: it cannot be written."""
    try:
        handler = logging.StreamHandler(sys.stderr) if where == "-" else LogFile(where, encoding="utf-8")
    except OSError as error:
        told, remedy = f"cannot be written: {error.strerror or error}", "name a file, or - for stderr"
        raise InputError(told, source="--log", value=where, remedy=remedy) from None
    handler.setFormatter(JsonLines())
    for name in (LOG.name, *OTHERS):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.INFO)


def log_request(method: str, path: str, status: int, seconds: float, who: str) -> None:
    """A request that has been answered, in its own context."""
    if LOG.isEnabledFor(logging.INFO) and (method not in ("GET", "HEAD") or status >= 400):
        told = {"trace_id": TRACE.get(), "method": method, "path": path[:200], "status": status, "who": who}
        level = logging.ERROR if status >= 500 else logging.INFO
        LOG.log(level, "request", extra={"told": told | {"seconds": round(seconds, 6)}})


class EventLog:
    """Logs the store's events as they come, in their order."""

    def __init__(self, store: Store) -> None:
        self._store, self._ends = store, Event()
        self._last = store.read(last_event)
        self._thread = Thread(target=self._follow, name="log", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Log what has come, and no more."""
        self._ends.set()
        self._thread.join()

    def _follow(self) -> None:
        while not self._ends.wait(EVERY_S):
            self._look()
        self._look()

    def _look(self) -> None:
        rows: list[Any] = [None] * AT_ONCE
        with suppress(StoreError):  # it is told when the store answers again
            while len(rows) == AT_ONCE:
                asked = sql.select(t.EVENTS).where(t.EVENTS.c.number > self._last)
                asked = asked.order_by(t.EVENTS.c.number).limit(AT_ONCE)
                rows = list(self._store.read(lambda at, asked=asked: at.execute(asked).all()))  # type: ignore[misc]
                for row in rows:
                    self._last = int(row.number)
                    told = {"number": self._last, "time_s": row.time_s, "subject": row.subject, "who": row.who}
                    more = json.loads(row.told)
                    told |= {"trace_id": more.pop("trace", ""), "told": more}
                    LOG.info(row.kind, extra={"told": told})
