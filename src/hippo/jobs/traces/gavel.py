"""Gavel's traces: parted by tabs, no header; seven columns (the published msr files), nine (what its code read for a
while) or ten (what it reads now: a working directory more).

github.com/stanford-futuredata/gavel, scheduler/traces and scheduler/utils.py (``parse_trace``). A row tells steps, not
seconds: ``gavel_speeds`` states how many steps a second. The longer forms also tell a priority weight and an SLO:
the deadline is the arrival plus SLO x duration. No ids, no users: the job type stands for the user.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from hippo.errors import InputError
from hippo.jobs.traces.passed import Passed
from hippo.jobs.traces.rows import Floats, Tally, TraceRows
from hippo.jobs.traces.source import Head
from hippo.jobs.traces.table import Chunk, TableShape, chunks, counts, is_number, numbers

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


def read(path: Path, passed: Passed) -> TraceRows:
    """The rows of a file."""
    names = _names(Head.of(path))
    told, tally = "SLO" in names, Tally()
    for chunk in chunks(path, TableShape("\t", names), passed):
        arrival_s, workers = numbers(chunk.column("arrival_time"), passed), counts(chunk.column("scale_factor"), passed)
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


MSR: Mapping[str, float] = {
    "A3C": 8.233,
    "CycleGAN": 4.9185,
    "LM (batch size 5)": 167.12,
    "LM (batch size 10)": 143.36,
    "LM (batch size 20)": 107.95,
    "LM (batch size 40)": 71.723,
    "LM (batch size 80)": 43.904,
    "Recommendation (batch size 512)": 0.33147,
    "Recommendation (batch size 1024)": 0.47997,
    "Recommendation (batch size 2048)": 0.56752,
    "Recommendation (batch size 4096)": 0.62439,
    "Recommendation (batch size 8192)": 0.60235,
    "ResNet-18 (batch size 16)": 77.317,
    "ResNet-18 (batch size 32)": 65.805,
    "ResNet-18 (batch size 64)": 48.884,
    "ResNet-18 (batch size 128)": 30.287,
    "ResNet-18 (batch size 256)": 16.987,
    "ResNet-50 (batch size 16)": 17.374,
    "ResNet-50 (batch size 32)": 9.9206,
    "ResNet-50 (batch size 64)": 5.4576,
    "ResNet-50 (batch size 128)": 2.846,
    "Transformer (batch size 16)": 12.846,
    "Transformer (batch size 32)": 12.475,
    "Transformer (batch size 64)": 9.568,
    "Transformer (batch size 128)": 5.7712,
    "Transformer (batch size 256)": 1.707,
}
"""Job type to steps per second, for any number of workers."""

WORKERS = (1, 2, 4, 8)

V100: Mapping[str, tuple[float, ...]] = {
    "A3C": (7.18,),
    "CycleGAN": (4.43,),
    "LM (batch size 5)": (109, 186, 127, 699),
    "LM (batch size 10)": (81.7, 163, 121, 615),
    "LM (batch size 20)": (64.7, 132, 111, 497),
    "LM (batch size 40)": (45.2, 91.6, 96.0, 359),
    "LM (batch size 80)": (28.2, 58.1, 74.8, 231),
    "Recommendation (batch size 512)": (23.3,),
    "Recommendation (batch size 1024)": (13.3,),
    "Recommendation (batch size 2048)": (7.47,),
    "Recommendation (batch size 4096)": (3.91,),
    "Recommendation (batch size 8192)": (2.84,),
    "ResNet-18 (batch size 16)": (32.4, 100, 124, 383),
    "ResNet-18 (batch size 32)": (29.9, 94.2, 115, 340),
    "ResNet-18 (batch size 64)": (24.1, 74.1, 95.6, 256),
    "ResNet-18 (batch size 128)": (18.0, 24.0, 70.0, 162),
    "ResNet-18 (batch size 256)": (10.3, 15.9, 27.8, 81.5),
    "ResNet-50 (batch size 16)": (11.4, 13.9, 23.2, 27.8),
    "ResNet-50 (batch size 32)": (7.79, 10.8, 13.8, 24.1),
    "ResNet-50 (batch size 64)": (4.40, 7.92, 9.45, 17.3),
    "ResNet-50 (batch size 128)": (2.50, 4.22, 7.03, 10.3),
    "Transformer (batch size 16)": (11.1, 14.2, 20.1, 71.7),
    "Transformer (batch size 32)": (10.6, 13.3, 22.8, 64.0),
    "Transformer (batch size 64)": (8.62, 15.9, 19.7, 49.7),
    "Transformer (batch size 128)": (5.45, 10.1, 14.2, 30.9),
    "Transformer (batch size 256)": (1.60, 2.89, 4.76, 9.72),
}
"""Job type to steps per second at ``WORKERS`` workers."""


def v100_steps_per_s(job_type: str, workers: float) -> float:
    """Steps per second of the ten-column form; ``KeyError`` for a type that was not measured."""
    measured = V100[job_type]
    place = sum(1 for number in WORKERS if number <= workers) - 1
    return measured[min(max(place, 0), len(measured) - 1)]
