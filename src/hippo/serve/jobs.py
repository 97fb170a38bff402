"""Jobs taken in, and asked to go: what the API writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any

import sqlalchemy as sql
from sqlalchemy.engine import Connection

from hippo.errors import InputError
from hippo.serve import tables as t
from hippo.serve.records import APPROVED, DENIED, OVER, PROPOSED, QUEUED, StoredJob
from hippo.serve.store import job_of_row, note, number_of

KNOWN = sql.select(t.JOBS).where(t.JOBS.c.key == sql.bindparam("of"))
ADDED = sql.insert(t.JOBS).returning(t.JOBS.c.number)


class AnotherBodyError(InputError):
    """A key that came before with another body."""


class AlreadyOverError(InputError):
    """What is asked for can be done no more."""


class NotThereError(InputError):
    """No such thing."""


def take_in(
    spec: Mapping[str, Any], key: str, owner: str, now_s: float, rest: Mapping[str, Any] | None = None
) -> Callable[[Connection], tuple[StoredJob, bool]]:
    """Writes a job down; as it stands, and whether it is new. ``AnotherBodyError`` for a key that means another job.

    ``rest``: what it leaves out, which stays with it whatever is served later.
    """
    digest, before = _digest(spec), taken_before(spec, key, owner)
    body = json.dumps({**(rest or {}), **spec}, sort_keys=True)

    def write(at: Connection) -> tuple[StoredJob, bool]:
        if (known := before(at)) is not None:
            return known, False
        values: dict[str, Any] = {"key": key, "body_sha256": digest, "spec": body, "owner": owner, "state": QUEUED}
        values |= {"submitted_s": now_s, "why": "", "share_done": 0.0, "cancels": False}
        number = int(at.execute(ADDED, values).scalar_one())
        note(at, now_s, "job", f"j{number}", who=owner, event="job taken in")
        return StoredJob(number, key, json.loads(body), owner, QUEUED, now_s), True

    return write


def taken_before(spec: Mapping[str, Any], key: str, owner: str) -> Callable[[Connection], StoredJob | None]:
    """Reads the job that came with a key before. ``AnotherBodyError`` for a key that means another job."""

    def read(at: Connection) -> StoredJob | None:
        known = at.execute(KNOWN, {"of": key}).first()
        if known is not None and (known.body_sha256 != _digest(spec) or known.owner != owner):
            remedy = "send the job as it was first, or another key"
            raise AnotherBodyError("came before with another job", source="Idempotency-Key", value=key, remedy=remedy)
        return None if known is None else job_of_row(known)

    return read


def _digest(spec: Mapping[str, Any]) -> str:
    return sha256(json.dumps(dict(spec), sort_keys=True).encode()).hexdigest()


def let_go(name: str, who: str, now_s: float) -> Callable[[Connection], None]:
    """Writes down that a job is not wanted any more. ``NotThereError``, ``AlreadyOverError``."""

    def write(at: Connection) -> None:
        row = at.execute(sql.select(t.JOBS.c.state, t.JOBS.c.cancels).where(t.JOBS.c.number == number_of(name))).first()
        if row is None or not name.startswith("j"):
            raise NotThereError("no such job", source="jobs", value=name[:40], remedy="see GET /v1/jobs")
        if row.state in OVER:
            raise AlreadyOverError(f"is over ({row.state})", source="job", value=name, remedy="nothing has to be done")
        if not row.cancels:
            at.execute(sql.update(t.JOBS).where(t.JOBS.c.number == number_of(name)).values(cancels=True))
            note(at, now_s, "job", name, who=who, event="cancel asked for")

    return write


def answer(name: str, who: str, now_s: float, *, yes: bool) -> Callable[[Connection], None]:
    """Writes down that a proposal is approved, or denied. ``NotThereError``, ``AlreadyOverError``."""
    state = APPROVED if yes else DENIED

    def write(at: Connection) -> None:
        here = t.DECISIONS.c.number == number_of(name)
        row = at.execute(sql.select(t.DECISIONS.c.state).where(here)).first()
        if row is None or not name.startswith("d"):
            raise NotThereError("no such decision", source="decisions", value=name[:40], remedy="see GET /v1/decisions")
        if row.state == state:
            return
        if row.state != PROPOSED:
            remedy = "only what is proposed can be approved or denied"
            raise AlreadyOverError(f"is {row.state}", source="decision", value=name, remedy=remedy)
        at.execute(sql.update(t.DECISIONS).where(here).values(state=state, by=who))
        note(at, now_s, "decision", name, who=who, event=state)

    return write
