"""Writes jobs in hippo's own form: JSON or CSV, by the ending of the file's name."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hippo.errors import InputError
from hippo.files import write_whole
from hippo.jobs.job import Job
from hippo.jobs.traces.own import FIELDS, MARK
from hippo.jobs.workload import Workload

ENDINGS = (".csv", ".json", ".csv.gz", ".json.gz")
_PLAIN = Job(name="", arrival_s=0.0, duration_s=1.0)


def check_ending(path: str | Path) -> str:
    """The ending of a file's name that says how it is written; ``InputError`` for any other."""
    name = str(path)
    ending = next((each for each in ENDINGS if name.endswith(each)), None)
    if ending is None:
        remedy = f"end the name with {', '.join(ENDINGS)}"
        raise InputError("neither JSON nor CSV", source="--out", value=name, remedy=remedy)
    return ending


def write_jobs(path: str | Path, workload: Workload) -> None:
    """Writes a workload whole or not at all; ``InputError`` for an ending that stands for neither form."""
    ending = check_ending(path)
    text = jobs_csv(workload) if ".csv" in ending else jobs_json(workload)
    write_whole(path, gzip.compress(text.encode(), mtime=0) if ending.endswith(".gz") else text)


def jobs_json(workload: Workload) -> str:
    """A line per job; fields that hold their default are left out."""
    lines = (json.dumps(each, ensure_ascii=False) for each in _entries(workload))
    return f'{{"{MARK}": 1, "jobs": [\n' + ",\n".join(lines) + "\n]}\n"


def jobs_csv(workload: Workload) -> str:
    """Columns that no job needs are left out."""
    entries = list(_entries(workload))
    used = {name for entry in entries for name in entry}
    names = [name for name in FIELDS if name in used]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([_field(entry.get(name)) for name in names] for entry in entries)
    return text.getvalue()


def _entries(workload: Workload) -> Iterator[dict[str, Any]]:
    """Every job as the fields that differ from their defaults."""
    for index in range(len(workload)):
        job = workload.job(index)
        values = {name: getattr(job, name) for name in FIELDS}
        yield {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in values.items()
            if name in ("name", "arrival_s", "duration_s", "devices") or value != getattr(_PLAIN, name)
        }


def _field(value: object) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return "|".join(map(str, value)) if isinstance(value, list) else str(value)
