"""Many jobs as columns, sorted by arrival: what a trace holds and a replay plays.

n jobs. Words stand once in a tuple, and a column holds their index.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hippo.errors import InputError
from hippo.jobs.job import ELASTIC, KINDS, MOST_DEVICES, Job, TrainingKind
from hippo.jobs.site import JobSite

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_PER_JOB = (
    *("arrival_s", "duration_s", "devices", "kind", "user", "runs_on", "memory_gb", "priority", "deadline_s"),
    *("estimate_s", "data_gb", "data_at", "model", "ends_after", *ELASTIC),
    *("clients_at", "latency_bound_s"),
)


@dataclass(frozen=True, eq=False)
class JobWorkload:
    """Jobs in order of arrival. Made by ``of`` (jobs) or ``of_columns`` (arrays), which check and sort."""

    names: tuple[str, ...]  # n, or empty: a job is called by its number
    arrival_s: Floats  # (n,) ascending
    duration_s: Floats  # (n,) nan: an elastic job that nobody has timed yet
    devices: Ints  # (n,)
    kind: Ints  # (n,) index into ``KINDS``
    user: Ints  # (n,) index into ``users``
    runs_on: Ints  # (n,) index into ``device_kinds``
    memory_gb: Floats  # (n,) per device
    priority: Ints  # (n,)
    deadline_s: Floats  # (n,) inf: none
    estimate_s: Floats  # (n,) nan: none
    data_gb: Floats  # (n,)
    data_at: Ints  # (n,) index into ``domains``, -1: everywhere
    model: Ints  # (n,) index into ``models``
    batch: Ints  # (n,) sequences a step; these five are 0 for gangs
    seq: Ints  # (n,) tokens a sequence
    tokens: Floats  # (n,) told when it comes
    ends_after: Floats  # (n,) tokens; 0: all of them
    least: Ints  # (n,) devices
    most: Ints  # (n,)
    clients_at: Ints  # (n,) index into ``client_domains``, -1: anywhere
    latency_bound_s: Floats  # (n,) inf: none
    users: tuple[str, ...] = ("",)
    device_kinds: tuple[tuple[str, ...], ...] = ((),)
    domains: tuple[str, ...] = ()
    models: tuple[str, ...] = ("",)
    client_domains: tuple[str, ...] = ()

    @classmethod
    def of(cls, jobs: Iterable[Job]) -> JobWorkload:
        """The workload of these jobs; ``InputError`` where two have one name."""
        given = sorted(jobs, key=lambda job: job.arrival_s)
        twice = [name for name, count in Counter(job.name for job in given).items() if count > 1]
        if twice:
            raise InputError("two jobs have one name", source="jobs", key="name", value=twice[0], remedy="rename one")
        column: dict[str, Any] = {key: [getattr(job, key) for job in given] for key in _PER_JOB}
        for key in ("deadline_s", "latency_bound_s"):
            column[key] = [np.inf if value is None else value for value in column[key]]
        column["estimate_s"] = [np.nan if value is None else value for value in column["estimate_s"]]
        words: dict[str, Any] = {}
        for key, table in (("user", "users"), ("runs_on", "device_kinds"), ("model", "models")):
            words[table] = tuple(dict.fromkeys(column[key])) or (("",) if key != "runs_on" else ((),))
            place = {word: index for index, word in enumerate(words[table])}
            column[key] = [place[word] for word in column[key]]
        for key, table in (("data_at", "domains"), ("clients_at", "client_domains")):
            words[table] = tuple(dict.fromkeys(word for word in column[key] if word))
            column[key] = [words[table].index(word) if word else -1 for word in column[key]]
        column["kind"] = [KINDS.index(kind) for kind in column["kind"]]
        return cls(tuple(job.name for job in given), **_arrays(column), **words)

    @classmethod
    def of_columns(cls, columns: Mapping[str, Any], *, names: Sequence[str] = (), **words: Any) -> JobWorkload:
        """The workload of columns (n,): ``arrival_s``, ``duration_s`` and any of the others, missing ones by default.

        ``words`` are ``users``, ``device_kinds``, ``domains``, ``models`` and ``client_domains``. Rows need not be
        sorted. ``InputError`` names the first row that cannot be (counted from 0).
        """
        unknown = set(columns) - set(_PER_JOB)
        assert not unknown, f"no such columns: {unknown}"
        n = len(columns["arrival_s"])
        default = {"devices": 1, "deadline_s": np.inf, "estimate_s": np.nan, "data_at": -1}
        default |= {"clients_at": -1, "latency_bound_s": np.inf}
        filled = _arrays({key: columns.get(key, np.full(n, default.get(key, 0))) for key in _PER_JOB})
        assert all(len(column) == n for column in filled.values()), "columns of one length"
        _check(filled)
        order = np.argsort(filled["arrival_s"], kind="stable")
        return cls(tuple(names[row] for row in order) if names else (), **_rows(filled, order), **words)

    @property
    def elastic(self) -> NDArray[np.bool_]:
        """(n,) which jobs are elastic."""
        return self.least > 0

    @property
    def trainings(self) -> tuple[TrainingKind, ...]:
        """What the elastic jobs train, each once."""
        rows = np.flatnonzero(self.elastic).tolist()
        return tuple(dict.fromkeys(self.terms(row) for row in rows))

    @property
    def told_s(self) -> Floats:
        """(n,) how long each takes by what was told when it came: its estimate, where there is one."""
        return np.where(np.isnan(self.estimate_s), self.duration_s, self.estimate_s)

    def timed(self, tokens_per_s: Mapping[TrainingKind, float]) -> JobWorkload:
        """The same jobs; elastic ones take their tokens / the reference's tokens a second of what they train. One that
        ends before its last token has all of them as its estimate.

        ``InputError`` for a training that no plan can do: one without a rate, or with 0.
        """
        duration_s, told_s = self.duration_s.copy(), self.estimate_s.copy()
        for row in np.flatnonzero(self.elastic).tolist():
            model, batch, seq = kind = self.terms(row)
            rate = tokens_per_s.get(kind, 0.0)
            if not rate > 0:
                problem = f"no plan trains it {batch} sequences of {seq} tokens a step on this site"
                remedy = "give it a smaller batch or model, or a site with more memory"
                raise InputError(problem, source=f"job {self.name(row)!r:.60}", key="model", value=model, remedy=remedy)
            duration_s[row] = (self.ends_after[row] or self.tokens[row]) / rate
            if self.ends_after[row]:
                told_s[row] = self.tokens[row] / rate
        return replace(self, duration_s=duration_s, estimate_s=told_s)

    def terms(self, row: int) -> TrainingKind:
        """What an elastic job trains."""
        return TrainingKind(self.models[self.model[row]], int(self.batch[row]), int(self.seq[row]))

    def __len__(self) -> int:
        return len(self.arrival_s)

    def name(self, job: int) -> str:
        """What a job is called."""
        return self.names[job] if self.names else str(job)

    def job(self, job: int) -> Job:
        """One of them as a ``Job``."""
        plain = {key: getattr(self, key)[job].item() for key in _PER_JOB}
        plain["kind"] = KINDS[plain["kind"]]
        plain["user"], plain["model"] = self.users[plain["user"]], self.models[plain["model"]]
        plain["runs_on"] = self.device_kinds[plain["runs_on"]]
        plain["data_at"] = self.domains[plain["data_at"]] if plain["data_at"] >= 0 else ""
        plain["clients_at"] = self.client_domains[plain["clients_at"]] if plain["clients_at"] >= 0 else ""
        for key in ("deadline_s", "estimate_s", "latency_bound_s"):
            plain[key] = plain[key] if np.isfinite(plain[key]) else None
        return Job(self.name(job), **plain)

    def take(self, rows: NDArray[Any]) -> JobWorkload:
        """The jobs of these rows (ascending numbers or (n,) bool), on the same clock."""
        kept = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        names = tuple(self.names[row] for row in kept) if self.names else ()
        return replace(self, names=names, **_rows({key: getattr(self, key) for key in _PER_JOB}, kept))

    def between(self, start_s: float, end_s: float) -> JobWorkload:
        """The jobs that arrive from ``start_s`` on and before ``end_s``; the clock starts at the first of them."""
        return self._rebased(self.take((self.arrival_s >= start_s) & (self.arrival_s < end_s)))

    def part(self, first: float, last: float) -> JobWorkload:
        """The jobs of a part of the time between the first arrival and the last, as shares from 0 to 1 of it."""
        if not len(self):
            return self
        start_s, span_s = float(self.arrival_s[0]), float(self.arrival_s[-1] - self.arrival_s[0])
        end_s = np.inf if last >= 1 else start_s + last * span_s
        return self.between(start_s + first * span_s, end_s)

    def _rebased(self, chosen: JobWorkload) -> JobWorkload:
        if not len(chosen):
            return chosen
        start_s = chosen.arrival_s[0]
        return replace(chosen, arrival_s=chosen.arrival_s - start_s, deadline_s=chosen.deadline_s - start_s)

    def stretched(self, factor: float) -> JobWorkload:
        """The same jobs, arriving ``factor`` times as far apart; deadlines keep their distance from the arrival."""
        arrival_s = self.arrival_s * factor
        return replace(self, arrival_s=arrival_s, deadline_s=arrival_s + (self.deadline_s - self.arrival_s))

    def load(self, site: JobSite) -> float:
        """Work that arrives per second over what the site can do; inf where all arrive at once, 0 without jobs."""
        if not len(self):
            return 0.0
        span_s = float(self.arrival_s[-1] - self.arrival_s[0])
        work = float(self.duration_s @ self.devices) / site.capacity
        return work / span_s if span_s > 0 else float("inf")


_WHOLE = frozenset(("devices", "kind", "user", "runs_on", "priority", "data_at", "clients_at", "model", *ELASTIC))
_WHOLE -= {"tokens"}


def _arrays(columns: Mapping[str, Any]) -> dict[str, Any]:
    return {key: np.asarray(value, dtype=np.int64 if key in _WHOLE else np.float64) for key, value in columns.items()}


def _rows(columns: Mapping[str, Any], rows: Ints) -> dict[str, Any]:
    return {key: np.ascontiguousarray(column[rows]) for key, column in columns.items()}


def _check(columns: Mapping[str, Any]) -> None:
    """``InputError`` at the first row that no job can be."""
    elastic = columns["least"] > 0
    duration_s = columns["duration_s"]
    wrong = ~(np.isfinite(duration_s) & (duration_s > 0)) & ~(elastic & np.isnan(duration_s))
    _refuse(wrong, columns, "duration_s", "not a finite number above 0")
    for key in ("arrival_s", "memory_gb", "data_gb", "tokens"):
        column = columns[key]
        _refuse(~np.isfinite(column) | (column < 0), columns, key, "not a finite number of 0 or more")
    for key in ELASTIC:
        _refuse((columns[key] > 0) != elastic, columns, key, f"elastic jobs have {', '.join(ELASTIC)}, others none")
    late = (columns["ends_after"] < 0) | (columns["ends_after"] > columns["tokens"])
    _refuse(late | np.isnan(columns["ends_after"]), columns, "ends_after", "not within the job's tokens")
    _refuse(elastic & (columns["least"] > columns["most"]), columns, "least", "more devices at least than at most")
    _refuse(elastic & (columns["devices"] != columns["most"]), columns, "devices", "not the most devices of the job")
    _refuse(elastic & (columns["kind"] != KINDS.index("train")), columns, "kind", "only training is elastic")
    _refuse((columns["devices"] < 1) | (columns["devices"] > MOST_DEVICES), columns, "devices", "no such gang")
    late = columns["deadline_s"] < columns["arrival_s"]
    _refuse(late | np.isnan(columns["deadline_s"]), columns, "deadline_s", "the deadline lies before the arrival")
    _refuse(columns["estimate_s"] <= 0, columns, "estimate_s", "an estimate is a time above 0")
    _refuse(~(columns["latency_bound_s"] > 0), columns, "latency_bound_s", "a bound is a time above 0")
    bounded = np.isfinite(columns["latency_bound_s"])
    _refuse((columns["clients_at"] >= 0) != bounded, columns, "clients_at", "clients and a bound, or neither")
    _refuse(bounded & (columns["kind"] != KINDS.index("deploy")), columns, "kind", "only serving has clients")
    _refuse((columns["kind"] < 0) | (columns["kind"] >= len(KINDS)), columns, "kind", "no such kind of job")


def _refuse(bad: NDArray[np.bool_], columns: Mapping[str, Any], key: str, problem: str) -> None:
    if bad.any():
        row = int(np.argmax(bad))
        value = columns[key][row].item()
        raise InputError(problem, source="jobs", key=f"row {row}, {key}", value=value, remedy="correct or drop the row")
