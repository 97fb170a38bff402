"""Alibaba PAI v2020: ``pai_task_table`` and, in the same folder, ``pai_job_table``.

github.com/alibaba/clusterdata, cluster-trace-gpu-v2020. The published files have no header; with one it is read by
name. Give the folder, or the task table alone (then a job arrives when its first task starts, and has no user). A job
is all of its tasks at once, from the first start to the last end: the sum of instances x plan_gpu in GPUs, rounded up;
a job without any GPU takes the sum of plan_cpu in CPU cores, on devices of kind ``cpu``. A job of which a task still
runs when the trace ends is passed over. gpu_type and plan_mem (main memory) are not held against the site.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from hippo.errors import InputError
from hippo.jobs.job import KINDS
from hippo.jobs.traces.passed import STILL, TWICE, Passed
from hippo.jobs.traces.rows import CPU, Coded, Floats, Ints, Tally, TraceRows, Words
from hippo.jobs.traces.source import Head
from hippo.jobs.traces.table import TableShape, amounts, chunks, is_number, numbers

TASK = (
    *("job_name", "task_name", "inst_num", "status", "start_time", "end_time", "plan_cpu", "plan_mem", "plan_gpu"),
    "gpu_type",
)
JOB = ("job_name", "inst_id", "user", "status", "start_time", "end_time")
INSTANCE = (
    *("job_name", "task_name", "inst_name", "worker_name", "inst_id", "status", "start_time", "end_time", "machine"),
)
STATUSES = frozenset({"Terminated", "Failed", "Running", "Waiting", "Interrupted", "Ready", "Cancelled", ""})
ENDINGS = (".csv", ".csv.gz")
ZONE_S = 8 * 3600.0
"""The times of day are those of UTC+8; here they are kept as local times."""


def looks(head: Head) -> bool:
    """Whether the file begins like the task table, or like one that cannot be read without it."""
    return _is_tasks(head) or _is_jobs(head) or _is_instances(head)


def _is_tasks(head: Head) -> bool:
    fields = head.first.split(",")
    bare = len(fields) == len(TASK) and fields[3] in STATUSES and all(is_number(fields[at]) for at in (2, 4, 5, 6, 8))
    return head.names("job_name", "inst_num", "plan_gpu") or bare


def _is_jobs(head: Head) -> bool:
    fields = head.first.split(",")
    bare = len(fields) == len(JOB) and fields[3] in STATUSES and all(is_number(fields[at]) for at in (4, 5))
    return head.names(*JOB) or bare


def _is_instances(head: Head) -> bool:
    fields = head.first.split(",")
    return head.names(*INSTANCE) or (
        len(fields) == len(INSTANCE) and fields[5] in STATUSES and all(is_number(fields[at]) for at in (6, 7))
    )


@dataclass(frozen=True, eq=False)
class Submitted:
    """What the job table tells: m jobs by name."""

    place: dict[str, int]  # name -> row
    arrival_s: Floats  # (m,)
    user: Coded  # (m,)


def read(path: Path, passed: Passed) -> TraceRows:
    """The jobs of a folder or of a task table."""
    tasks, jobs = _files(path)
    head = Head.of(tasks)
    if not _is_tasks(head):
        remedy = "give the folder of both tables, or pai_task_table"
        raise InputError("no table of tasks: it holds no sizes", source=str(tasks), remedy=remedy)
    tally, words = Tally(), Words()
    shape = TableShape() if head.names("job_name", "inst_num") else TableShape(names=TASK)
    for chunk in chunks(tasks, shape, passed):
        copies = np.nan_to_num(amounts(chunk.column("inst_num"), passed), nan=1.0)
        tally.lines(chunk.line)
        tally.add("job", words.of(chunk.texts["job_name"]))
        tally.say("task", chunk.texts["task_name"] if chunk.has("task_name") else ("",) * len(chunk.line))
        start_s = numbers(chunk.column("start_time"), passed)
        tally.add("start_s", start_s)
        tally.add("end_s", numbers(chunk.column("end_time"), passed))
        status = chunk.texts["status"] if chunk.has("status") else ("",) * len(chunk.line)
        tally.add("runs", np.array([text.strip() == "Running" for text in status], np.bool_) & ~np.isnan(start_s))
        tally.add("gpus", copies * np.nan_to_num(amounts(chunk.column("plan_gpu"), passed)) / 100.0)
        tally.add("cores", copies * np.nan_to_num(amounts(chunk.column("plan_cpu"), passed)) / 100.0)
    return _jobs(tally, words.words, None if jobs is None else _submitted(jobs, passed), passed)


def _files(path: Path) -> tuple[Path, Path | None]:
    """The task table, and the job table where a folder holds one."""
    if not path.is_dir():
        return path, None
    found = {
        name: next((path / f"{name}{ending}" for ending in ENDINGS if (path / f"{name}{ending}").exists()), None)
        for name in ("pai_task_table", "pai_job_table")
    }
    tasks = found["pai_task_table"]
    if tasks is None:
        remedy = "put pai_task_table.csv there (and pai_job_table.csv), or give a file"
        raise InputError("the folder holds no pai_task_table.csv", source=str(path), remedy=remedy)
    return tasks, found["pai_job_table"]


def _submitted(path: Path, passed: Passed) -> Submitted:
    """The job table; a name that stands twice is refused with both lines."""
    head, tally = Head.of(path), Tally()
    told = Passed(str(path), skip_bad=passed.skip_bad)
    for chunk in chunks(path, TableShape() if head.names(*JOB) else TableShape(names=JOB), told):
        tally.lines(chunk.line)
        tally.add("arrival_s", numbers(chunk.column("start_time"), told))
        tally.say("user", chunk.texts["user"])
        tally.name(chunk.texts["job_name"])
    place: dict[str, int] = {}
    for row, name in enumerate(tally.names or ()):
        if place.setdefault(name, row) != row:
            line, problem = int(tally.line[row]), f"the job of line {tally.line[place[name]]} again"
            told.refuse(line, problem, key="job_name", value=name, remedy="keep one of them", counted=TWICE)
    passed.counts.update(told.counts)
    passed.first.update({reason: line for reason, line in told.first.items() if reason not in passed.first})
    return Submitted(place, tally.column("arrival_s"), tally.coded("user"))


def _jobs(tally: Tally, names: tuple[str, ...], submitted: Submitted | None, passed: Passed) -> TraceRows:
    """Tasks joined to jobs."""
    line = tally.line
    start_s, end_s = tally.column("start_s"), tally.column("end_s")
    for row in np.flatnonzero(end_s < start_s):
        passed.refuse(int(line[row]), "a task ends before it starts", value=float(end_s[row]), remedy="correct it")
    _refuse_again(tally, names, passed)
    taken = passed.kept(line)
    job, ran = tally.column("job").astype(np.int64), taken & ~np.isnan(end_s - start_s)
    first, last = np.full(len(names), np.inf), np.full(len(names), -np.inf)
    np.minimum.at(first, job[taken], np.where(np.isnan(start_s), np.inf, start_s)[taken])
    np.maximum.at(last, job[ran], end_s[ran])
    gpus = np.bincount(job[taken], tally.column("gpus")[taken], len(names))
    cores = np.bincount(job[taken], tally.column("cores")[taken], len(names))
    alone = (gpus == 0) & (cores > 0)
    lines = np.full(len(names), np.iinfo(np.int64).max)
    np.minimum.at(lines, job[taken], line[taken])
    kept = np.isin(np.arange(len(names)), job[taken])
    passed.leave(np.unique(lines[job[taken & tally.column("runs").astype(np.bool_)]]), STILL)
    rows = TraceRows(
        line=lines,
        arrival_s=np.where(np.isfinite(first), first, 0.0),
        duration_s=np.where(np.isfinite(last), last - np.where(np.isfinite(first), first, 0.0), np.nan),
        devices=np.ceil(np.where(alone, cores, gpus) - 1e-9),
        user=Coded.same("", len(names)),
        names=names,
        kind=Coded(alone.astype(np.int64), (KINDS[0], KINDS[1])),
        runs_on=Coded(alone.astype(np.int64), ("", CPU)),
        origin_s=ZONE_S,
        never_ran="no task of it has both a start and an end",
    )
    rows = rows.taken(np.flatnonzero(kept))
    return rows if submitted is None else _with(rows, submitted)


def _refuse_again(tally: Tally, names: tuple[str, ...], passed: Passed) -> None:
    """A task of one job, name, start and end that stands twice would double its job: both lines are named."""
    columns = [tally.column(name) for name in ("job", "task", "start_s", "end_s")]
    line = tally.line
    order = np.lexsort(columns[::-1])  # equal rows in the order of the file
    order = order[passed.kept(line)[order]]
    above, below = order[:-1], order[1:]
    same = np.ones(len(below), np.bool_)
    for column in columns:
        same &= (column[above] == column[below]) | (np.isnan(column[above]) & np.isnan(column[below]))
    for row in np.flatnonzero(same).tolist():
        job, task = names[int(columns[0][below[row]])], f"the task of line {line[above[row]]} again"
        remedy = "keep one of them"
        passed.refuse(int(line[below[row]]), task, key="job_name", value=job, remedy=remedy, counted="a task again")


def _with(rows: TraceRows, submitted: Submitted) -> TraceRows:
    """Arrival and user from the job table, where it knows the job; a job arrives no later than it starts."""
    place = np.array([submitted.place.get(name, -1) for name in rows.names or ()], np.int64)
    known = (place >= 0) & ~np.isnan(_at(submitted.arrival_s, place))
    arrival_s = np.where(known, np.minimum(_at(submitted.arrival_s, place), rows.arrival_s), rows.arrival_s)
    words = (*submitted.user.words, "")
    user = np.where(place >= 0, submitted.user.code[place], len(words) - 1) if len(submitted.user.code) else place * 0
    return replace(rows, arrival_s=arrival_s, user=Coded(user, words))


def _at(values: Floats, place: Ints) -> Floats:
    return values[place] if len(values) else np.full(len(place), np.nan)
