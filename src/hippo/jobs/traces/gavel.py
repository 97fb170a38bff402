"""Gavel's traces: parted by tabs, no header; seven columns (the published msr files), nine (what its code read for a
while) or ten (what it reads now: a working directory more).

github.com/stanford-futuredata/gavel, scheduler/traces and scheduler/utils.py (``parse_trace``). A row tells steps, not
seconds: ``gavel_speeds`` states how many steps a second. The longer forms also tell a priority weight and an SLO:
the deadline is the arrival plus SLO x duration. No ids, no users: the job type stands for the user.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from hippo.errors import InputError
from hippo.jobs.traces.gavel_speeds import MSR, V100, v100_steps_per_s
from hippo.jobs.traces.head import Head
from hippo.jobs.traces.passed import Passed
from hippo.jobs.traces.rows import Floats, Rows
from hippo.jobs.traces.table import Chunk, Shape, chunks
from hippo.jobs.traces.tally import Tally
from hippo.jobs.traces.values import is_number, numbers, whole

SEVEN = ("job_type", "command", "num_steps_arg", "needs_data_dir", "total_steps", "arrival_time", "scale_factor")
TEN = (
    *("job_type", "command", "working_directory", "num_steps_arg", "needs_data_dir", "total_steps", "scale_factor"),
    *("priority_weight", "SLO", "arrival_time"),
)
NINE = tuple(name for name in TEN if name != "working_directory")
FORMS = {len(names): names for names in (SEVEN, NINE, TEN)}


def looks(head: Head) -> bool:
    """Whether the file begins like this format."""
    fields = head.first.split("\t")
    return len(fields) in FORMS and all(map(is_number, fields[-2:]))


def read(path: Path, passed: Passed) -> Rows:
    """The rows of a file."""
    names = _names(Head.of(path))
    told, tally = "SLO" in names, Tally()
    for chunk in chunks(path, Shape("\t", names), passed):
        arrival_s, workers = numbers(chunk.column("arrival_time"), passed), whole(chunk.column("scale_factor"), passed)
        duration_s = _duration(chunk, workers, v100_steps_per_s if told else _msr, passed)
        tally.lines(chunk.line)
        tally.add("arrival_s", arrival_s)
        tally.add("duration_s", duration_s)
        tally.add("devices", workers)
        tally.say("user", chunk.texts["job_type"])
        if told:
            objective = numbers(chunk.column("SLO"), passed)
            tally.add("deadline_s", np.where(objective > 0, arrival_s + objective * duration_s, np.nan))
            tally.add("priority", np.rint(np.nan_to_num(numbers(chunk.column("priority_weight"), passed))))
    return tally.rows()


def _names(head: Head) -> tuple[str, ...]:
    fields = len(head.first.split("\t"))
    if fields not in FORMS:
        remedy = f"give {', '.join(map(str, FORMS))} fields parted by tabs, or name the format with --format"
        raise InputError(f"{fields} fields", source=head.source, key="line 1", value=head.first, remedy=remedy)
    return FORMS[fields]


def _msr(job_type: str, _: float) -> float:
    return MSR[job_type]


def _duration(chunk: Chunk, workers: Floats, speed: Callable[[str, float], float], passed: Passed) -> Floats:
    """Steps over steps per second; a job type without a figure is refused with its line."""
    steps = numbers(chunk.column("total_steps"), passed)
    rate = np.ones(len(steps))
    for row, job_type in enumerate(chunk.texts["job_type"]):
        if job_type not in V100:
            remedy = f"use one of {', '.join(V100)}"
            passed.refuse(int(chunk.line[row]), "unknown job type", key="job_type", value=job_type, remedy=remedy)
            continue
        rate[row] = speed(job_type, workers[row])
    return steps / rate
