"""Reads a trace in any of the formats, which its content tells where nobody says; checked, and sorted by arrival."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hippo.errors import InputError, UnknownNameError
from hippo.jobs.job import ELASTIC, KINDS, MOST_DEVICES, MOST_GB
from hippo.jobs.traces import gavel, helios, own, pai, philly, swf
from hippo.jobs.traces.passed import TWICE, Passed
from hippo.jobs.traces.rows import Coded, Floats, Ints, TraceRows
from hippo.jobs.traces.source import Head
from hippo.jobs.workload import JobWorkload

LEAST_S = 1e-6
"""Shorter durations are no measurements; sums of them vanish."""

MOST_S = 1e9
"""32 years: a job that runs longer, or arrives farther from the others, is told in other units."""

NO_TIME = "ran for 0 s"
NO_DEVICE = "asks for no device"
NO_ARRIVAL = "no time of submission"
NO_SIZE = "no number of devices"


@dataclass(frozen=True, eq=False)
class JobTrace:
    """The jobs of a file."""

    workload: JobWorkload
    format: str
    begin_s: float | None  # Unix seconds (local time) of the first arrival, where the format tells dates
    remarks: tuple[str, ...]  # what was sorted and passed over, a sentence each
    passed: Mapping[str, int]  # reason -> jobs that are not in the workload


def settled(rows: TraceRows, passed: Passed, form: str) -> JobTrace:
    """The trace of rows.

    Raises
    ------
    InputError
        A negative duration, one below ``LEAST_S`` or above ``MOST_S``, an arrival that far from the others, a gang or
        data beyond reason, an id that stands twice (each with its line, unless wrong rows are passed over), or no job
        that is left.
    """
    _judge(rows, passed)
    kept = np.flatnonzero(passed.kept(rows.line))
    if not len(kept):
        told = f" ({'; '.join(passed.remarks)})" if passed.remarks else ""
        raise InputError(f"no job is left{told}", source=passed.source, remedy="give a trace with jobs that ran")
    chosen = rows.taken(kept)
    late = int(np.count_nonzero(np.diff(chosen.arrival_s) < 0))
    first_s = float(chosen.arrival_s.min())
    sorting = f"sorted: {late:,} {'row arrives' if late == 1 else 'rows arrive'} before the row above"
    return JobTrace(
        workload=_workload(chosen, first_s),
        format=form,
        begin_s=None if rows.origin_s is None else rows.origin_s + first_s,
        remarks=(*([sorting] if late else []), *passed.remarks),
        passed=dict(passed.counts),
    )


def _judge(rows: TraceRows, passed: Passed) -> None:
    """Wrong rows first, then jobs that never ran."""
    _refuse(rows.duration_s < 0, "a negative duration", rows.duration_s, rows, passed)
    short = (rows.duration_s > 0) & (rows.duration_s < LEAST_S)
    _refuse(short, f"a duration below {LEAST_S:g} s", rows.duration_s, rows, passed)
    _refuse(rows.duration_s > MOST_S, f"a duration above {MOST_S:g} s", rows.duration_s, rows, passed)
    _refuse(_far(rows), f"arrives more than {MOST_S:g} s from the middle of the trace", rows.arrival_s, rows, passed)
    _refuse(rows.devices > MOST_DEVICES, f"more than {MOST_DEVICES:,} devices", rows.devices, rows, passed)
    for name, column in (("memory_gb", rows.memory_gb), ("data_gb", rows.data_gb), ("estimate_s", rows.estimate_s)):
        if column is not None:
            _refuse(column < 0, f"{name} is negative", column, rows, passed)
    if rows.data_gb is not None:
        _refuse(rows.data_gb > MOST_GB, f"more than {MOST_GB:g} GB of data", rows.data_gb, rows, passed)
    if rows.deadline_s is not None:
        early = rows.deadline_s < rows.arrival_s
        _refuse(early, "the deadline lies before the arrival", rows.deadline_s, rows, passed)
    _refuse_twice(rows, passed)
    passed.leave(rows.line[np.isnan(rows.arrival_s)], NO_ARRIVAL)
    passed.leave(rows.line[np.isnan(rows.duration_s) & ~rows.lasts], rows.never_ran)
    passed.leave(rows.line[rows.duration_s == 0], NO_TIME)
    passed.leave(rows.line[np.isnan(rows.devices)], NO_SIZE)
    passed.leave(rows.line[rows.devices == 0], NO_DEVICE)


def _far(rows: TraceRows) -> NDArray[np.bool_]:
    """(n,) jobs that ran and arrive so far from the median of these that some time must be told in other units."""
    ran = rows.lasts & ~np.isnan(rows.arrival_s)
    return ran & (np.abs(rows.arrival_s - np.median(rows.arrival_s[ran])) > MOST_S) if ran.any() else ran


def _refuse(wrong: NDArray[np.bool_], problem: str, values: Floats, rows: TraceRows, passed: Passed) -> None:
    for row in np.flatnonzero(wrong & passed.kept(rows.line)).tolist():
        passed.refuse(int(rows.line[row]), problem, value=float(values[row]), remedy="correct it")


def _refuse_twice(rows: TraceRows, passed: Passed) -> None:
    """An id that stands twice: both lines are named, the second row is the wrong one."""
    if rows.names is None:
        return
    keep = np.flatnonzero(passed.kept(rows.line)).tolist()
    names = rows.names if len(keep) == len(rows.line) else [rows.names[row] for row in keep]
    if len(set(names)) == len(names):
        return
    first: dict[str, int] = {}
    for row in keep:
        name, line = rows.names[row], int(rows.line[row])
        if first.setdefault(name, line) != line:
            problem = f"the id of {passed.where(first[name])} again"
            passed.refuse(line, problem, value=name, remedy="keep one of them", counted=TWICE)


def _workload(rows: TraceRows, first_s: float) -> JobWorkload:
    """Columns as a workload wants them: words by number, times from the first arrival, nothing missing."""
    columns: dict[str, Any] = {
        "arrival_s": rows.arrival_s - first_s,
        "duration_s": rows.duration_s,
        "devices": rows.devices,
        "user": rows.user.code,
    }
    for name in ("memory_gb", "data_gb", "priority", "ends_after", *ELASTIC):
        given = getattr(rows, name)
        if given is not None:
            columns[name] = np.nan_to_num(given)
    if rows.deadline_s is not None:
        columns["deadline_s"] = np.where(np.isnan(rows.deadline_s), np.inf, rows.deadline_s - first_s)
    if rows.estimate_s is not None:
        columns["estimate_s"] = np.where(rows.estimate_s > 0, rows.estimate_s, np.nan)
    words: dict[str, Any] = {"users": rows.user.words}
    if rows.kind is not None:
        columns["kind"] = np.array([KINDS.index(word) for word in rows.kind.words], np.int64)[rows.kind.code]
    if rows.runs_on is not None:
        columns["runs_on"] = rows.runs_on.code
        words["device_kinds"] = tuple(tuple(filter(None, word.split("|"))) for word in rows.runs_on.words)
    if rows.model is not None:
        columns["model"], words["models"] = rows.model.code, rows.model.words
    if rows.data_at is not None:
        columns["data_at"], words["domains"] = _domains(rows.data_at)
    if rows.clients_at is not None and rows.latency_bound_s is not None:
        columns["clients_at"], words["client_domains"] = _domains(rows.clients_at)
        columns["latency_bound_s"] = np.where(np.isnan(rows.latency_bound_s), np.inf, rows.latency_bound_s)
    names = rows.names if rows.names is not None else [f"line {line}" for line in rows.line]
    return JobWorkload.of_columns(columns, names=names, **words)


def _domains(column: Coded) -> tuple[Ints, tuple[str, ...]]:
    """Index into the domains that are named; -1 for none."""
    domains = tuple(word for word in column.words if word)
    index = np.array([domains.index(word) if word else -1 for word in column.words], np.int64)
    return index[column.code], domains


@dataclass(frozen=True)
class Format:
    """How one kind of file is known and read."""

    name: str
    family: str  # what --format calls it
    looks: Callable[[Head], bool]
    read: Callable[[Path, Passed], TraceRows]


ALL = (
    Format("philly (CSV)", "philly", philly.looks_csv, philly.read_csv),
    Format("philly (JSON)", "philly", philly.looks_json, philly.read_json),
    Format("helios", "helios", helios.looks, helios.read),
    Format("own", "own", own.looks, own.read),
    Format("pai", "pai", pai.looks, pai.read),
    Format("gavel", "gavel", gavel.looks, gavel.read),
    Format("swf", "swf", swf.looks, swf.read),
)
"""In the order in which they are tried."""

FORMATS: Mapping[str, tuple[Format, ...]] = {
    family: tuple(each for each in ALL if each.family == family)
    for family in dict.fromkeys(each.family for each in ALL)
}


def load_trace(path: str | Path, *, form: str | None = None, skip_bad: bool = False) -> JobTrace:
    """The jobs of a trace.

    Parameters
    ----------
    path
        A file (packed by gzip or not), or PAI's folder.
    form
        ``philly``, ``helios``, ``pai``, ``gavel``, ``swf`` or ``own``; None: told by the content.
    skip_bad
        Passes over wrong rows, and counts them, instead of refusing the file.

    Raises
    ------
    InputError
        A file that is missing, empty, no text or in no known format; a wrong row (the message names its line).
    """
    file = Path(path)
    if form is not None and form not in FORMATS:
        raise UnknownNameError("format", form, FORMATS, source="--format")
    if file.is_dir():
        if form not in (None, "pai"):
            raise InputError("is a folder; only pai has one", source=str(file), remedy="give a file")
        chosen = FORMATS["pai"][0]
    else:
        chosen = _chosen(Head.of(file), form)
    passed = Passed(str(file), skip_bad=skip_bad)
    return settled(chosen.read(file, passed), passed, chosen.name)


def _chosen(head: Head, form: str | None) -> Format:
    """The first format that the file looks like, of those that may be meant."""
    candidates = ALL if form is None else FORMATS[form]
    for each in candidates:
        if each.looks(head):
            return each
    likely = next((each.name for each in ALL if each.looks(head)), None)
    if form is not None and likely is not None:
        problem = f"looks like format {likely}"
        raise InputError(problem, source=head.source, key="--format", value=form, remedy="leave out --format")
    for delimiter, name in ((";", "semicolons"), ("\t", "tabs")):
        if any(each.looks(Head(head.source, head.text.replace(delimiter, ","))) for each in candidates):
            problem, remedy = f"its fields are parted by {name}", "part them by commas"
            raise InputError(problem, source=head.source, key="line 1", value=head.first, remedy=remedy)
    if form is not None:
        return candidates[0]  # its reader says what is wrong
    raise InputError(
        "is in no format that is known",
        source=head.source,
        key="line 1",
        value=head.first,
        remedy=f"name it with --format {'|'.join(FORMATS)}",
    )
