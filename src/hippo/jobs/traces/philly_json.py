"""Philly as published: ``cluster_job_log``, a JSON list of jobs with their attempts.

github.com/msr-fiddle/philly-traces, README. What a scheduler sees of a job: submission, user, and the time its attempts
ran (attempts that failed and were tried again count: their devices were held). Its devices are the GPUs of its
largest attempt. Attempts without both times are passed over. A machine's GPUs are a list of their names; anything else
is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hippo.jobs.traces.head import Head
from hippo.jobs.traces.json_rows import entries
from hippo.jobs.traces.passed import STILL, Passed
from hippo.jobs.traces.rows import Rows, Words
from hippo.jobs.traces.source import whole
from hippo.jobs.traces.values import Column, times


def looks(head: Head) -> bool:
    """Whether the file begins like this format."""
    return head.json and '"attempts"' in head.text and '"submitted_time"' in head.text


def read(path: Path, passed: Passed) -> Rows:
    """The rows of a file."""
    lines: list[int] = []
    names: list[str] = []
    submitted: list[str] = []
    ran: list[tuple[float, int]] = []
    users = Words()
    user: list[int] = []
    for line, entry in entries(whole(path), passed):
        found = _attempts(entry, line, passed)
        if found is None:
            continue
        lines.append(line)
        names.append(str(entry.get("jobid") or passed.where(line)))
        submitted.append(_text(entry.get("submitted_time")))
        user.append(users.one(_text(entry.get("user")) or _text(entry.get("vc"))))
        ran.append(found)
    line_of = np.array(lines, np.int64)
    return Rows(
        line=line_of,
        arrival_s=times(Column("submitted_time", submitted, line_of), passed),
        duration_s=np.array([seconds for seconds, _ in ran]),
        devices=np.array([float(gpus) for _, gpus in ran]),
        user=users.coded(user),
        names=names,
        origin_s=0.0,
    )


def _attempts(entry: Mapping[str, Any], line: int, passed: Passed) -> tuple[float, int] | None:
    """Seconds that the attempts ran together (NaN: none did) and GPUs of the largest; None: not to be taken."""
    attempts = entry.get("attempts") or []
    if not isinstance(attempts, list) or not all(isinstance(attempt, dict) for attempt in attempts):
        passed.refuse(line, "must be a list of objects", key="attempts", remedy="write a list, it may be empty")
        return None
    if attempts and _text(attempts[-1].get("start_time")) and not _text(attempts[-1].get("end_time")):
        passed.leave([line], STILL)
        return None
    seconds, gpus = np.nan, 0
    for attempt in attempts:
        held = _gpus(attempt)
        if held is None:
            remedy = 'write [{"ip": .., "gpus": ["gpu0", ..]}, ..]'
            passed.refuse(line, "tells no list of GPUs", key="detail", value=attempt.get("detail"), remedy=remedy)
            return None
        gpus = max(gpus, held)
        texts = [_text(attempt.get(key)) for key in ("start_time", "end_time")]
        start_s, end_s = times(Column("attempts", texts, np.full(2, line)), passed)
        if end_s < start_s:
            passed.refuse(line, "an attempt ends before it starts", value=texts[1], remedy="correct the times")
            return None
        if not np.isnan(end_s - start_s):
            seconds = np.nansum([seconds, end_s - start_s])
    return float(seconds), gpus


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
