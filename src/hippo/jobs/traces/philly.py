"""Microsoft's Philly: as published (JSON) and as the extract that AdaptDL made (CSV).

JSON: github.com/msr-fiddle/philly-traces, ``cluster_job_log``, a list of jobs with their attempts. What a scheduler
sees of a job: submission, user, and the time its attempts ran (attempts that failed and were tried again count: their
devices were held). Its devices are the GPUs of its largest attempt. Attempts without both times are passed over. A
machine's GPUs are a list of their names; anything else is refused.

CSV: github.com/petuum/adaptdl, simulator/traces/philly.csv (branch osdi21-artifact), with columns
``timestamp,duration,num_gpus,gpu_time,cluster`` in any order. No ids and no users: the virtual cluster stands for the
user, and rows that repeat one another stay. ``gpu_time`` is not needed; ``jobid`` and ``user`` are read where there are
such columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hippo.jobs.traces.passed import STILL, Passed
from hippo.jobs.traces.rows import Floats, Ints, Tally, TraceRows, Words
from hippo.jobs.traces.source import Head, require, whole_text
from hippo.jobs.traces.table import TableShape, TextColumn, chunks, counts, entries, numbers, times


def looks_json(head: Head) -> bool:
    """Whether the file begins like this format."""
    return head.json and '"attempts"' in head.text and '"submitted_time"' in head.text


def read_json(path: Path, passed: Passed) -> TraceRows:
    """The rows of a file."""
    lines: list[int] = []
    names: list[str] = []
    submitted: list[str] = []
    gpus: list[int] = []
    runs: list[tuple[int, str, str]] = []
    users = Words()
    user: list[int] = []
    for line, entry in entries(whole_text(path), passed):
        attempts = _attempts(entry, line, passed)
        if attempts is None:
            continue
        runs.extend((len(lines), *_times(attempt)) for attempt, _ in attempts)
        lines.append(line)
        names.append(str(entry.get("jobid") or passed.where(line)))
        submitted.append(_text(entry.get("submitted_time")))
        user.append(users.one(_text(entry.get("user")) or _text(entry.get("vc"))))
        gpus.append(max((held for _, held in attempts), default=0))
    line_of = np.array(lines, np.int64)
    return TraceRows(
        line=line_of,
        arrival_s=times(TextColumn("submitted_time", submitted, line_of), passed),
        duration_s=_ran(runs, line_of, passed),
        devices=np.array(gpus, np.float64),
        user=users.coded(user),
        names=names,
        origin_s=0.0,
    )


def _attempts(entry: Mapping[str, Any], line: int, passed: Passed) -> Sequence[tuple[Mapping[str, Any], int]] | None:
    """The attempts of a job, each with its GPUs; None: the job is not to be taken."""
    attempts = entry.get("attempts") or []
    if not isinstance(attempts, list) or not all(isinstance(attempt, dict) for attempt in attempts):
        passed.refuse(line, "must be a list of objects", key="attempts", remedy="write a list, it may be empty")
        return None
    if attempts and _text(attempts[-1].get("start_time")) and not _text(attempts[-1].get("end_time")):
        passed.leave([line], STILL)
        return None
    found = []
    for attempt in attempts:
        held = _gpus(attempt)
        if held is None:
            remedy = 'write [{"ip": .., "gpus": ["gpu0", ..]}, ..]'
            passed.refuse(line, "tells no list of GPUs", key="detail", value=attempt.get("detail"), remedy=remedy)
            return None
        found.append((attempt, held))
    return found


def _times(attempt: Mapping[str, Any]) -> tuple[str, str]:
    return _text(attempt.get("start_time")), _text(attempt.get("end_time"))


def _ran(runs: Sequence[tuple[int, str, str]], line_of: Ints, passed: Passed) -> Floats:
    """(n,) seconds that the attempts of each job ran together; NaN: none did. ``runs``: job, start, end."""
    job = np.array([number for number, _, _ in runs], np.int64)
    starts, ends = [start for _, start, _ in runs], [end for _, _, end in runs]
    start_s, end_s = (times(TextColumn("attempts", texts, line_of[job]), passed) for texts in (starts, ends))
    for row in np.flatnonzero(end_s < start_s).tolist():
        line = int(line_of[job[row]])
        passed.refuse(line, "an attempt ends before it starts", value=ends[row], remedy="correct the times")
    told = ~np.isnan(end_s - start_s)
    total_s = np.bincount(job[told], (end_s - start_s)[told], len(line_of))
    return np.where(np.bincount(job[told], minlength=len(line_of)) > 0, total_s, np.nan)


def _gpus(attempt: Mapping[str, Any]) -> int | None:
    """GPUs of an attempt on all of its machines; None: it tells them in no form that is known."""
    machines = attempt.get("detail")
    if machines is None:
        return 0
    if not isinstance(machines, list) or not all(isinstance(machine, dict) for machine in machines):
        return None
    lists = [machine.get("gpus") for machine in machines]
    if not all(gpus is None or isinstance(gpus, list) for gpus in lists):
        return None
    return sum(len(gpus) for gpus in lists if gpus)


def _text(value: object) -> str:
    return "" if value is None or str(value).strip().lower() in ("none", "null", "nan") else str(value).strip()


NEEDED = ("timestamp", "duration", "num_gpus")


def looks_csv(head: Head) -> bool:
    """Whether the file begins like this format."""
    return head.names(*NEEDED)


def read_csv(path: Path, passed: Passed) -> TraceRows:
    """The rows of a file."""
    columns = Head.of(path).columns
    require(columns, *NEEDED, source=passed.source)
    name = next((name for name in ("jobid", "job_id") if name in columns), None)
    owner = next((name for name in ("user", "cluster", "vc") if name in columns), None)
    tally = Tally()
    for chunk in chunks(path, TableShape(), passed):
        tally.lines(chunk.line)
        tally.add("arrival_s", times(chunk.column("timestamp"), passed))
        tally.add("duration_s", numbers(chunk.column("duration"), passed))
        tally.add("devices", counts(chunk.column("num_gpus"), passed))
        tally.say("user", chunk.texts[owner] if owner else ("",) * len(chunk.line))
        if name:
            tally.name(chunk.texts[name])
    return tally.rows(origin_s=0.0)
