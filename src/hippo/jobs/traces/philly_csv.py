"""Philly as CSV, the extract that AdaptDL made: ``timestamp,duration,num_gpus,gpu_time,cluster``.

github.com/petuum/adaptdl, simulator/traces/philly.csv (branch osdi21-artifact). No ids and no users: the virtual
cluster stands for the user, and rows that repeat one another stay. ``gpu_time`` is not needed. Columns may stand in any
order; ``jobid`` and ``user`` are read where there are such columns.
"""

from __future__ import annotations

from pathlib import Path

from hippo.jobs.traces.head import Head, require
from hippo.jobs.traces.passed import Passed
from hippo.jobs.traces.rows import Rows
from hippo.jobs.traces.table import Shape, chunks
from hippo.jobs.traces.tally import Tally
from hippo.jobs.traces.values import numbers, times, whole

NEEDED = ("timestamp", "duration", "num_gpus")


def looks(head: Head) -> bool:
    """Whether the file begins like this format."""
    return head.names(*NEEDED)


def read(path: Path, passed: Passed) -> Rows:
    """The rows of a file."""
    columns = Head.of(path).columns
    require(columns, *NEEDED, source=passed.source)
    name = next((name for name in ("jobid", "job_id") if name in columns), None)
    owner = next((name for name in ("user", "cluster", "vc") if name in columns), None)
    tally = Tally()
    for chunk in chunks(path, Shape(), passed):
        tally.lines(chunk.line)
        tally.add("arrival_s", times(chunk.column("timestamp"), passed))
        tally.add("duration_s", numbers(chunk.column("duration"), passed))
        tally.add("devices", whole(chunk.column("num_gpus"), passed))
        tally.say("user", chunk.texts[owner] if owner else ("",) * len(chunk.line))
        if name:
            tally.name(chunk.texts[name])
    return tally.rows(origin_s=0.0)
