"""Helios, SenseTime's clusters: ``cluster_log.csv``.

github.com/S-Lab-System-Group/HeliosData, README: job_id, user, vc, gpu_num, cpu_num, node_num, state, submit_time,
start_time, end_time, duration, queue. Read by name, in any order: job_id, gpu_num and submit_time must be there, and
duration or both of start_time and end_time. A job without GPUs takes its CPU cores, on devices of kind ``cpu``.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hippo.jobs.job import KINDS
from hippo.jobs.traces.passed import Passed
from hippo.jobs.traces.rows import CPU, Coded, Floats, Tally, TraceRows
from hippo.jobs.traces.source import Head, require
from hippo.jobs.traces.table import Chunk, TableShape, chunks, counts, numbers, times

NEEDED = ("job_id", "gpu_num", "submit_time")


def looks(head: Head) -> bool:
    """Whether the file begins like this format."""
    return head.names(*NEEDED)


def read(path: Path, passed: Passed) -> TraceRows:
    """The rows of a file."""
    columns = Head.of(path).columns
    require(columns, *NEEDED, *(() if "duration" in columns else ("start_time", "end_time")), source=passed.source)
    owner = next((name for name in ("user", "vc") if name in columns), None)
    tally = Tally()
    for chunk in chunks(path, TableShape(), passed):
        tally.lines(chunk.line)
        tally.add("arrival_s", times(chunk.column("submit_time"), passed))
        tally.add("duration_s", _duration(chunk, passed))
        gpus = counts(chunk.column("gpu_num"), passed)
        cores = counts(chunk.column("cpu_num"), passed) if chunk.has("cpu_num") else np.zeros(len(gpus))
        alone = (gpus == 0) & (cores > 0)
        tally.add("devices", np.where(alone, cores, gpus))
        tally.add("alone", alone)
        tally.say("user", chunk.texts[owner] if owner else ("",) * len(chunk.line))
        tally.name(chunk.texts["job_id"])
    return with_cpu_jobs(tally, origin_s=0.0)


def with_cpu_jobs(tally: Tally, *, origin_s: float | None) -> TraceRows:
    """Rows whose column ``alone`` says which jobs take CPU cores and no GPU: they preprocess, on kind ``cpu``."""
    alone = tally.take("alone").astype(np.int64)
    return tally.rows(runs_on=Coded(alone, ("", CPU)), kind=Coded(alone, (KINDS[0], KINDS[1])), origin_s=origin_s)


def _duration(chunk: Chunk, passed: Passed) -> Floats:
    """What the file says; else end - start. Jobs that never started have neither."""
    said = numbers(chunk.column("duration"), passed) if chunk.has("duration") else np.full(len(chunk.line), np.nan)
    if not (chunk.has("start_time") and chunk.has("end_time")):
        return said
    span_s = times(chunk.column("end_time"), passed) - times(chunk.column("start_time"), passed)
    for row in np.flatnonzero(span_s < 0).tolist():
        text = chunk.texts["end_time"][row]
        passed.refuse(int(chunk.line[row]), "ends before it starts", key="end_time", value=text, remedy="correct it")
    return np.where(np.isnan(said), span_s, said)
