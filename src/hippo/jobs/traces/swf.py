"""The Standard Workload Format of the Parallel Workloads Archive: 18 columns parted by blanks, ``;`` before remarks.

Feitelson, "The Standard Workload Format", cs.huji.ac.il/labs/parallel/workload/swf.html. -1 says "unknown". Read: job
number (1), submit time (2), run time (4), processors (5, else 8), memory in KB per processor (10, else 7), requested
time (9, the submitter's estimate), status (11), user (12, else group 13). A processor of the log is a device of the
site. Rows of status 2 to 4 tell parts of a job that another row tells whole.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from hippo.jobs.traces.passed import Passed
from hippo.jobs.traces.rows import Floats, Tally, TraceRows
from hippo.jobs.traces.source import Head
from hippo.jobs.traces.table import SPACES, Chunk, TableShape, chunks, counts, is_number, numbers

NAMES = (
    *("job number", "submit time", "wait time", "run time", "allocated processors", "average CPU time", "used memory"),
    *("requested processors", "requested time", "requested memory", "status", "user", "group", "executable", "queue"),
    *("partition", "preceding job", "think time"),
)
PART = "a part of a job that another row tells whole (status 2 to 4)"
BEGIN = "UnixStartTime"
GB_PER_KB = 1e-6


def looks(head: Head) -> bool:
    """Whether the file begins like this format."""
    first = next((line for line in head.lines if not line.lstrip().startswith(";")), "")
    fields = first.split()
    return head.first.lstrip().startswith(";") or len(fields) == len(NAMES) and all(map(is_number, fields))


def read(path: Path, passed: Passed) -> TraceRows:
    """The rows of a file."""
    head, tally = Head.of(path), Tally()
    for chunk in chunks(path, TableShape(SPACES, NAMES, comment=";"), passed):
        devices = counts(chunk.column("allocated processors"), passed, least=-1)
        asked = counts(chunk.column("requested processors"), passed, least=-1)
        memory = _known(chunk, "requested memory", passed)
        used = _known(chunk, "used memory", passed)
        status = numbers(chunk.column("status"), passed)
        passed.leave(chunk.line[(status >= 2) & (status <= 4)], PART)
        tally.lines(chunk.line)
        submit_s = numbers(chunk.column("submit time"), passed)
        tally.add("arrival_s", np.where(submit_s < 0, np.nan, submit_s))
        tally.add("duration_s", _run(chunk, passed))
        tally.add("devices", np.where(devices > 0, devices, np.where(asked > 0, asked, np.nan)))
        tally.add("memory_gb", GB_PER_KB * np.nan_to_num(np.where(memory > 0, memory, used)))
        tally.add("estimate_s", _known(chunk, "requested time", passed))
        tally.say("user", [_owner(*each) for each in zip(chunk.texts["user"], chunk.texts["group"], strict=True)])
        tally.name(chunk.texts["job number"])
    return tally.rows(origin_s=_begin(head))


def _run(chunk: Chunk, passed: Passed) -> Floats:
    """Run time; -1 is unknown, any other negative one stays as it is and is refused later."""
    found = numbers(chunk.column("run time"), passed)
    return np.where(found == -1, np.nan, found)


def _known(chunk: Chunk, name: str, passed: Passed) -> Floats:
    """A column whose negative values and zeros say nothing."""
    found = numbers(chunk.column(name), passed)
    return np.where(found > 0, found, np.nan)


def _owner(user: str, group: str) -> str:
    return f"u{user}" if not user.startswith("-") else f"g{group}" if not group.startswith("-") else ""


def _begin(head: Head) -> float | None:
    """Unix seconds that the log's times count from, where its remarks tell."""
    for line in head.lines:
        found = re.match(rf";\s*{BEGIN}:\s*(\d+(\.\d*)?)", line)
        if found:
            return float(found[1])
    return None
