"""What an online loop saw and did, in SQLite: on disk before a decision is given out.

A transition (what was seen, what was allowed, what was chosen and how likely that was) is committed before ``decided``
returns; what came of it (``settled``) and jobs that came or ended are committed when told. Write-ahead log;
``durable="full"`` flushes it to the disk at every commit, so neither a killed process nor a power cut loses what has
been given out. ``"normal"`` flushes at checkpoints only: a killed process still loses nothing, a power cut may lose the
last commits (the file stays whole). What was being decided when the process died was not given out, and is not there.

One loop at a time: a lock file beside the log, which the system gives back when its holder dies. A damaged log is put
aside under another name, never written to and never deleted.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from hippo.errors import InputError
from hippo.jobs.job import Job

FORMAT = "hippo jobs log 1"
DURABLE = {"full": "FULL", "normal": "NORMAL"}
_TABLES = """
CREATE TABLE IF NOT EXISTS about (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS transitions (
    id INTEGER PRIMARY KEY, time_s REAL NOT NULL, policy INTEGER NOT NULL, observation BLOB NOT NULL,
    mask BLOB NOT NULL, action INTEGER NOT NULL, probability REAL NOT NULL, outcome REAL, outcome_s REAL) STRICT;
CREATE TABLE IF NOT EXISTS jobs (
    name TEXT PRIMARY KEY, arrival_s REAL NOT NULL, job TEXT NOT NULL, finish_s REAL, ran_s REAL) STRICT;
CREATE INDEX IF NOT EXISTS jobs_by_arrival ON jobs (arrival_s);
CREATE TABLE IF NOT EXISTS states (
    id INTEGER PRIMARY KEY, time_s REAL NOT NULL, links BLOB NOT NULL, taken BLOB NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS policies (
    version INTEGER PRIMARY KEY, file TEXT NOT NULL, sha256 TEXT NOT NULL, time_s REAL NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS served (
    id INTEGER PRIMARY KEY, time_s REAL NOT NULL, policy INTEGER NOT NULL, why TEXT NOT NULL) STRICT;
"""


@dataclass(frozen=True, eq=False)
class Transition:
    """One decision. ``policy``: version that made it, 0: the guard."""

    time_s: float
    policy: int
    observation: NDArray[np.float32]  # of the log's shape
    mask: NDArray[np.bool_]  # (A,) what was allowed
    action: int
    probability: float
    outcome: float | None = None  # reward since, once known
    outcome_s: float | None = None  # when


@dataclass(frozen=True)
class Ended:
    """A job that is done."""

    name: str
    finish_s: float
    ran_s: float  # work that it took, in seconds on devices of speed 1


@dataclass(frozen=True)
class Left:
    """A job that is gone without having ended: cancelled, or lost."""

    name: str
    time_s: float


@dataclass(frozen=True, eq=False)
class SiteState:
    """How a site stands whose links and devices are not its jobs' alone, from a moment on."""

    time_s: float
    bandwidth_bytes_per_s: NDArray[np.float64]  # (K, K) what the links carry
    taken: NDArray[np.int64]  # (B,) devices of each node that jobs cannot have: other tenants', or all of a broken one


@dataclass(frozen=True)
class KnownJob:
    """What the log says of a job."""

    job: Job  # ``duration_s`` as its submitter told it; nobody looks at it
    finish_s: float | None  # when it was gone
    ran_s: float | None  # None: it is still there, or left without having ended


class Log:
    """The log of one loop, for one thread at a time. Use it in a ``with``, or ``close`` it.

    Parameters
    ----------
    path
        The database; made when it is missing.
    shape
        Of every observation.
    actions
        Length of every mask.
    durable
        ``full`` or ``normal``.
    belongs
        What else it is of, by name: kept with a new log, and held against a known one.

    Raises
    ------
    InputError
        Another loop has it; it is damaged (it is put aside first); it belongs to observations of another shape, or to
        something else than ``belongs`` says; it is a folder or an SQLite file of something else; it cannot be written.
        Reading: a decision is damaged.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        shape: Sequence[int],
        actions: int,
        durable: str = "full",
        belongs: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.path, self.shape, self.actions = Path(path), tuple(shape), actions
        assert durable in DURABLE
        self._lock = _locked(self.path)
        try:
            self._base = _opened(self.path, DURABLE[durable])
            sizes = {"shape": json.dumps(list(self.shape)), "actions": str(actions)}
            self._check_about({"format": FORMAT, **belongs, **sizes})
        except BaseException:
            self._lock.close()
            raise

    def __enter__(self) -> Log:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the log back."""
        self._base.close()
        self._lock.close()

    # ---------------------------------------------------------------------------------------------------------- writing
    def decided(self, transitions: Sequence[Transition]) -> range:
        """Note decisions; their ids. They are on disk when this returns: give them out only then."""
        for each in transitions:
            assert each.observation.shape == self.shape
            assert each.mask.shape == (self.actions,)
        first = self.decisions + 1
        rows = [
            (first + place, each.time_s, each.policy, *_blobs(each), each.action, each.probability)
            for place, each in enumerate(transitions)
        ]
        with self._base:
            self._base.execute("BEGIN IMMEDIATE")
            self._base.executemany(
                "INSERT INTO transitions (id, time_s, policy, observation, mask, action, probability)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                rows,
            )
        return range(first, first + len(rows))

    def happened(
        self,
        *,
        came: Iterable[Job] = (),
        ended: Iterable[Ended] = (),
        left: Iterable[Left] = (),
        outcomes: Iterable[tuple[int, float, float]] = (),
        states: Iterable[SiteState] = (),
    ) -> None:
        """Note jobs that came, ended or left, what came of decisions (id, reward, time), and how the site stands."""
        jobs = [(each.name, each.arrival_s, json.dumps(asdict(each))) for each in came]
        with self._base:
            self._base.execute("BEGIN IMMEDIATE")
            self._base.executemany("INSERT OR IGNORE INTO jobs (name, arrival_s, job) VALUES (?, ?, ?)", jobs)
            self._base.executemany(
                "UPDATE jobs SET finish_s = ?, ran_s = ? WHERE name = ?",
                [(each.finish_s, each.ran_s, each.name) for each in ended],
            )
            self._base.executemany(
                "UPDATE jobs SET finish_s = ? WHERE name = ? AND finish_s IS NULL",
                [(each.time_s, each.name) for each in left],
            )
            self._base.executemany(
                "UPDATE transitions SET outcome = ?, outcome_s = ? WHERE id = ?",
                [(reward, time_s, which) for which, reward, time_s in outcomes],
            )
            self._base.executemany(
                "INSERT INTO states (time_s, links, taken) VALUES (?, ?, ?)",
                [
                    (each.time_s, each.bandwidth_bytes_per_s.astype(np.float64).tobytes(), each.taken.tobytes())
                    for each in states
                ],
            )

    def serve(self, policy: int, time_s: float, why: str, made: tuple[str, str] | None = None) -> None:
        """Note who decides from now on (0: the guard). ``made``: file and SHA-256 of a version that is new."""
        with self._base:
            self._base.execute("BEGIN IMMEDIATE")
            if made is not None:
                self._base.execute("INSERT INTO policies VALUES (?, ?, ?, ?)", (policy, *made, time_s))
            row = (time_s, policy, why)
            self._base.execute("INSERT INTO served (time_s, policy, why) VALUES (?, ?, ?)", row)

    # ---------------------------------------------------------------------------------------------------------- reading
    @property
    def decisions(self) -> int:
        """Decisions that were given out."""
        return int(self._base.execute("SELECT coalesce(max(id), 0) FROM transitions").fetchone()[0])

    @property
    def last_s(self) -> float:
        """When the last decision was made; 0: none was."""
        return float(self._base.execute("SELECT coalesce(max(time_s), 0.0) FROM transitions").fetchone()[0])

    def transitions(self, last: int | None = None) -> tuple[Transition, ...]:
        """The last decisions (None: all), oldest first."""
        rows = self._base.execute(
            "SELECT time_s, policy, observation, mask, action, probability, outcome, outcome_s FROM transitions"
            " ORDER BY id DESC LIMIT ?",
            (-1 if last is None else last,),
        ).fetchall()
        return tuple(self._transition(row) for row in reversed(rows))

    def jobs(self, last: int | None = None) -> tuple[KnownJob, ...]:
        """The jobs that came last (None: all), in order of arrival."""
        rows = self._base.execute(
            "SELECT job, finish_s, ran_s FROM jobs ORDER BY arrival_s DESC, rowid DESC LIMIT ?",
            (-1 if last is None else last,),
        ).fetchall()
        return tuple(KnownJob(_job(text), finish_s, ran_s) for text, finish_s, ran_s in reversed(rows))

    def states(self, from_s: float = -np.inf) -> tuple[SiteState, ...]:
        """How the site stood from a time on: first the state that held then."""
        rows = self._base.execute(
            "SELECT time_s, links, taken FROM states WHERE time_s >="
            " (SELECT coalesce(max(time_s), ?) FROM states WHERE time_s <= ?) ORDER BY id",
            (from_s, from_s),
        ).fetchall()
        return tuple(self._state(*row) for row in rows)

    def _state(self, time_s: float, links: bytes, taken: bytes) -> SiteState:
        carried = np.frombuffer(links, np.float64)
        domains = round(len(carried) ** 0.5)
        return SiteState(time_s, carried.reshape(domains, domains), np.frombuffer(taken, np.int64))

    @property
    def versions(self) -> tuple[tuple[int, str, str], ...]:
        """Policies that served: version, file, SHA-256; oldest first."""
        return tuple(self._base.execute("SELECT version, file, sha256 FROM policies ORDER BY version"))

    @property
    def served(self) -> tuple[tuple[float, int, str], ...]:
        """Who decided from when on, and why: (time, version, reason)."""
        return tuple(self._base.execute("SELECT time_s, policy, why FROM served ORDER BY id"))

    def _transition(self, row: tuple[Any, ...]) -> Transition:
        time_s, policy, observation, mask, action, probability, outcome, outcome_s = row
        if len(observation) != 4 * int(np.prod(self.shape)) or len(mask) != self.actions:
            problem = f"the decision of {time_s} s is damaged: {len(observation)} and {len(mask)} bytes"
            remedy = "put the log aside, and start again: a new one begins"
            raise InputError(problem, source=str(self.path), key="transitions", remedy=remedy)
        seen = np.frombuffer(observation, np.float32).reshape(self.shape)
        allowed = np.frombuffer(mask, np.bool_)
        return Transition(time_s, policy, seen, allowed, action, probability, outcome, outcome_s)

    def _check_about(self, about: Mapping[str, str]) -> None:
        """``InputError`` if the log belongs to something else."""
        with self._base:
            self._base.execute("BEGIN IMMEDIATE")
            known = dict(self._base.execute("SELECT key, value FROM about").fetchall())
            if not known:
                self._base.executemany("INSERT INTO about VALUES (?, ?)", about.items())
        for key, value in about.items():
            if known.get(key, value) != value:
                self._base.close()
                raise InputError(
                    f"the log was made for another {key}, {known[key]} instead of {value}",
                    source=str(self.path),
                    remedy="name another folder, or serve what the log belongs to",
                )


def _blobs(each: Transition) -> tuple[bytes, bytes]:
    seen = np.ascontiguousarray(each.observation, np.float32)
    return seen.tobytes(), np.ascontiguousarray(each.mask, np.bool_).tobytes()


def _job(text: str) -> Job:
    found = json.loads(text)
    return Job(**(found | {"runs_on": tuple(found["runs_on"])}))


def _locked(path: Path) -> IO[str]:
    """The lock beside a log, held; the system gives it back when the process ends, however it ends."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = open(path.with_name(path.name + ".lock"), "a+", encoding="utf-8")  # noqa: SIM115
    except OSError as error:
        remedy = "give a path that can be written"
        raise InputError(f"cannot write: {error.strerror}", source=str(path), remedy=remedy) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.seek(0)
        holder = lock.read().strip() or "unknown"
        lock.close()
        remedy = "end that loop, or give another file"
        raise InputError(f"another loop writes this log (process {holder})", source=str(path), remedy=remedy) from None
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()
    return lock


def _opened(path: Path, synchronous: str) -> sqlite3.Connection:
    """A connection to a sound log; one that is damaged is put aside."""
    if path.is_dir():
        raise InputError("the log is a folder", source=str(path), remedy="give the path of a file in it")
    fault = _cut(path)
    base = sqlite3.connect(path, isolation_level=None, check_same_thread=False)  # whoever holds the loop's lock
    try:
        if fault:
            raise sqlite3.DatabaseError(fault)
        _check_own(base, path)
        base.execute("PRAGMA journal_mode = WAL")
        base.execute(f"PRAGMA synchronous = {synchronous}")
        fault = base.execute("PRAGMA quick_check(1)").fetchone()[0].splitlines()[-1]
        if fault == "ok":
            base.executescript(_TABLES)
            return base
    except InputError:
        base.close()
        raise
    except sqlite3.DatabaseError as error:
        fault = str(error)
        if isinstance(error, sqlite3.OperationalError) and "malformed" not in fault:
            base.close()
            remedy = "give a path that can be written"
            raise InputError(f"cannot open the log: {fault}", source=str(path), remedy=remedy) from None
    base.close()
    aside = _put_aside(path)
    remedy = f"start again: a new log begins. What can be saved of the old one: sqlite3 {aside.name} .recover"
    problem = f"the log is damaged ({fault}); it now lies beside as {aside.name}"
    raise InputError(problem, source=str(path), remedy=remedy)


def _cut(path: Path) -> str:
    """What is wrong where next to nothing is left of a file (SQLite would begin a new one in it), or nothing.

    A loop that is killed before it has written anything leaves an empty file, but no policies beside it.
    """
    size = path.stat().st_size if path.exists() else 100
    if size >= 100 or (size == 0 and not any(path.parent.glob("policy-*.npz"))):
        return ""
    return f"only {size} bytes are left"


def _check_own(base: sqlite3.Connection, path: Path) -> None:
    """``InputError`` if it is an SQLite file of something else; nothing has been written to it then."""
    names = {name for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    kinds = {row[1] for row in base.execute("PRAGMA table_info(about)")}
    if names and not {"key", "value"} <= kinds:
        tables = ", ".join(sorted(names)[:5])
        problem = f"is no log of an online loop: an SQLite file with the tables {tables}"
        raise InputError(problem, source=str(path), remedy="give another file")


def _put_aside(path: Path) -> Path:
    """Renames a database with its write-ahead log to a name that is free."""
    number = 1
    while (aside := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    for ending in ("-wal", "-shm", ""):
        with suppress(FileNotFoundError):
            os.replace(f"{path}{ending}", f"{aside}{ending}")
    return aside
