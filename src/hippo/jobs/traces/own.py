"""hippo's own form: every field of a job, as JSON or CSV.

JSON: ``{"hippo_jobs": 1, "jobs": [{"name", "arrival_s", "duration_s", "devices", ..}]}``. CSV: a header with any of the
fields of ``hippo.jobs.job.Job``; arrival_s and duration_s or tokens must be there; ``runs_on`` parts its words with
``|``; an empty field stands for the default, but for ``devices``: such a job is passed over. An unknown field is
refused, and a value that ``Job`` would refuse. ``model`` is a name of the catalogue, or the path of a ``config.json``.

A row with tokens is an elastic job: it names its model, and the tokens it trains on. Of devices, least and most one is
enough: what is missing is the same number. Without batch and seq it trains as models of its size usually do
(``placement.models``).
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from hippo.errors import InputError, UnknownNameError
from hippo.files import write_whole
from hippo.jobs.job import ELASTIC, KINDS, MOST_DEVICES, Job
from hippo.jobs.placement.models import training
from hippo.jobs.traces.passed import Passed
from hippo.jobs.traces.rows import Floats, Tally, TraceRows
from hippo.jobs.traces.source import Head, require, whole_text
from hippo.jobs.traces.table import Chunk, TableShape, TextColumn, amounts, chunks, counts, entries, numbers
from hippo.jobs.workload import JobWorkload
from hippo.problem.load import MAX_BATCH, MAX_SEQ, load_model
from hippo.problem.model import Model

FIELDS = tuple(field.name for field in fields(Job))
NUMBERS = ("arrival_s", "duration_s", "memory_gb", "deadline_s", "estimate_s", "data_gb", "latency_bound_s")
WORDS = ("user", "runs_on", "data_at", "model", "clients_at")
MARK = "hippo_jobs"
MOST_PRIORITY = 1e6
MOST = {"batch": MAX_BATCH, "seq": MAX_SEQ, "least": MOST_DEVICES, "most": MOST_DEVICES}
AT_ONCE = 10_000


def looks(head: Head) -> bool:
    """Whether the file begins like this form."""
    if head.json:
        return f'"{MARK}"' in head.text or '"arrival_s"' in head.text
    return head.names("arrival_s", "duration_s") or head.names("arrival_s", "tokens")


def read(path: Path, passed: Passed) -> TraceRows:
    """The rows of a file."""
    head, tally = Head.of(path), Tally()
    if head.json:
        text = whole_text(path)
        _read_json(text, _start(text, passed), passed, tally)
    else:
        require(head.columns, "arrival_s", *([] if "tokens" in head.columns else ["duration_s"]), source=passed.source)
        for name in head.columns:
            if name not in FIELDS:
                raise UnknownNameError("field of a job", name, FIELDS, source=passed.source, key="line 1")
        for chunk in chunks(path, TableShape(), passed):
            _add(chunk, passed, tally)
    return tally.rows()


def _start(text: str, passed: Passed) -> int:
    """Where the list of jobs begins: at once, or behind the key ``jobs``."""
    if text.lstrip()[:1] == "[":
        return 0
    place = text.find('"jobs"')
    if place < 0:
        remedy = f'write {{"{MARK}": 1, "jobs": [..]}}'
        raise InputError("the document has no list of jobs", source=passed.source, key="jobs", remedy=remedy)
    return text.index(":", place) + 1 if ":" in text[place:] else len(text)


def _read_json(text: str, start: int, passed: Passed, tally: Tally) -> None:
    """Entries as chunks of texts, so that one way of reading serves both forms."""
    lines: list[int] = []
    held: list[dict[str, Any]] = []
    for line, entry in entries(text, passed, start=start):
        for name in entry:
            if name not in FIELDS:
                raise UnknownNameError("field of a job", name, FIELDS, source=passed.source, key=passed.where(line))
        lines.append(line)
        held.append(entry)
        if len(held) == AT_ONCE:
            _add(_columns(lines, held), passed, tally)
            lines, held = [], []
    if held:
        _add(_columns(lines, held), passed, tally)


def _columns(lines: list[int], held: list[dict[str, Any]]) -> Chunk:
    texts: dict[str, Sequence[str]] = {name: [_text(entry.get(name)) for entry in held] for name in FIELDS}
    texts["devices"] = [_text(entry.get("devices", "" if entry.get("tokens") else 1)) for entry in held]
    return Chunk(np.array(lines, np.int64), texts)


def _text(value: object) -> str:
    if value is None:
        return ""
    return "|".join(map(str, value)) if isinstance(value, list) else str(value)


def _add(chunk: Chunk, passed: Passed, tally: Tally) -> None:
    """One chunk into the tally."""
    empty = ("",) * len(chunk.line)
    tally.lines(chunk.line)
    for name in NUMBERS:
        read_in = amounts if name == "arrival_s" else numbers
        tally.add(name, read_in(TextColumn(name, chunk.texts.get(name, empty), chunk.line), passed))
    priorities = TextColumn("priority", chunk.texts.get("priority", empty), chunk.line)
    tally.add("priority", counts(priorities, passed, least=-MOST_PRIORITY, most=MOST_PRIORITY))
    models, kinds = _models(chunk, passed), _kinds(chunk, passed)
    devices = chunk.texts.get("devices")
    if devices is None:
        devices = ["" if text.strip() else "1" for text in chunk.texts.get("tokens", empty)]
    found = {"devices": counts(TextColumn("devices", devices, chunk.line), passed)}
    if chunk.texts.keys() & set(ELASTIC):
        for name in ELASTIC:
            column = TextColumn(name, chunk.texts.get(name, empty), chunk.line)
            given = amounts(column, passed) if name == "tokens" else counts(column, passed, most=MOST[name])
            found[name] = np.nan_to_num(given)
        _complete(found, chunk, kinds, models, passed)
        ends = amounts(TextColumn("ends_after", chunk.texts.get("ends_after", empty), chunk.line), passed)
        found["ends_after"] = np.minimum(np.nan_to_num(ends), found["tokens"])
    for name, values in found.items():
        tally.add(name, values)
    for name in WORDS:
        tally.say(name, [text.strip() for text in chunk.texts.get(name, empty)])
    _check_clients(chunk, kinds, passed)
    tally.say("kind", kinds)
    names = zip(chunk.texts.get("name", empty), chunk.line.tolist(), strict=True)
    tally.name([text or passed.where(line) for text, line in names])


def _kinds(chunk: Chunk, passed: Passed) -> list[str]:
    """What each job does; training where nothing is said."""
    found = []
    for text, line in zip(chunk.texts.get("kind", ("",) * len(chunk.line)), chunk.line, strict=True):
        kind = text.strip() or KINDS[0]
        if kind not in KINDS:
            passed.refuse(int(line), "unknown kind of job", key="kind", value=kind, remedy=f"use {', '.join(KINDS)}")
            kind = KINDS[0]
        found.append(kind)
    return found


def _check_clients(chunk: Chunk, kinds: Sequence[str], passed: Passed) -> None:
    """Refuses rows with clients or a bound on their latency, but not both, and those of jobs that serve nobody."""
    empty = ("",) * len(chunk.line)
    clients, bounds = chunk.texts.get("clients_at", empty), chunk.texts.get("latency_bound_s", empty)
    for line, at, bound, kind in zip(chunk.line.tolist(), clients, bounds, kinds, strict=True):
        if bool(at.strip()) != bool(bound.strip()):
            key, missing = ("clients_at", "latency_bound_s") if at.strip() else ("latency_bound_s", "clients_at")
            passed.refuse(line, f"without {missing}", key=key, value=at or bound, remedy="write both, or neither")
        elif at.strip() and kind != "deploy":
            passed.refuse(line, f"of a job of kind {kind}", key="clients_at", value=at, remedy="write kind deploy")


def _models(chunk: Chunk, passed: Passed) -> dict[str, Model]:
    """The models that are named; rows with one that does not exist are refused."""
    texts = [text.strip() for text in chunk.texts.get("model", ())]
    found = {}
    for name in sorted(set(texts) - {""}):
        try:
            found[name] = load_model(name)
        except InputError as error:
            remedy = error.remedy or "write a name of 'hippo catalogue models'"
            value = None if name in error.problem else name
            for line in (int(line) for text, line in zip(texts, chunk.line, strict=True) if text == name):
                passed.refuse(line, error.problem, key="model", value=value, remedy=remedy)
    return found


def _complete(
    found: dict[str, Floats], chunk: Chunk, kinds: Sequence[str], models: Mapping[str, Model], passed: Passed
) -> None:
    """Fills in what rows of elastic jobs leave out; refuses those that are neither such a job nor a gang."""
    names = [text.strip() for text in chunk.texts.get("model", ("",) * len(chunk.line))]
    usual = {name: training(1, name) for name in models}
    for row in np.flatnonzero(np.any([found[name] > 0 for name in ELASTIC], axis=0)).tolist():
        has = {name: float(column[row]) for name, column in found.items()}
        key, problem, remedy = "", "", "correct it"
        if not has["tokens"]:
            key = next(name for name in ELASTIC if has[name])
            problem, remedy = "of a job without tokens", "write its tokens and model too, or leave it out"
        elif not names[row]:
            key, problem, remedy = "tokens", "of a job without a model", "name one of 'hippo catalogue models' as model"
        elif kinds[row] != KINDS[0]:
            key, problem, remedy = "tokens", f"of a job of kind {kinds[row]}", "leave them out, or its kind"
        elif names[row] in models:
            terms, longest = usual[names[row]], models[names[row]].layers[0].positions
            has["batch"], has["seq"] = has["batch"] or terms.global_batch, has["seq"] or terms.seq
            sizes = [has["most"], np.nan_to_num(has["devices"]), has["least"]]
            has["most"] = next(filter(None, sizes), 1.0)
            has["least"] = has["least"] or has["most"]
            has["devices"] = has["most"] if np.isnan(has["devices"]) else has["devices"]
            if has["least"] > has["most"]:
                key, problem = "least", f"more than its most, {has['most']:.0f}"
            elif has["devices"] and has["devices"] != has["most"]:
                key, problem = "devices", f"not its most, {has['most']:.0f}"
            elif longest and has["seq"] > longest:
                key, problem = "seq", f"exceeds the {longest} learned positions of {names[row]}"
        if problem:
            passed.refuse(int(chunk.line[row]), problem, key=key, value=has[key], remedy=remedy)
        for name, value in has.items():
            found[name][row] = value


ENDINGS = (".csv", ".json", ".csv.gz", ".json.gz")
WRITTEN = ("name", "arrival_s", "duration_s", "devices")
_PLAIN = Job(name="", arrival_s=0.0, duration_s=1.0)


def check_ending(path: str | Path) -> str:
    """The ending of a file's name that says how it is written; ``InputError`` for any other."""
    name = str(path)
    ending = next((each for each in ENDINGS if name.endswith(each)), None)
    if ending is None:
        remedy = f"end the name with {', '.join(ENDINGS)}"
        raise InputError("neither JSON nor CSV", source="--out", value=name, remedy=remedy)
    return ending


def write_jobs(path: str | Path, workload: JobWorkload) -> None:
    """Writes a workload whole or not at all; ``InputError`` for an ending that stands for neither form."""
    ending = check_ending(path)
    text = jobs_csv(workload) if ".csv" in ending else jobs_json(workload)
    write_whole(path, gzip.compress(text.encode(), mtime=0) if ending.endswith(".gz") else text)


def jobs_json(workload: JobWorkload) -> str:
    """A line per job; fields that hold their default are left out."""
    lines = (json.dumps(each, ensure_ascii=False) for each in _entries(workload))
    return f'{{"{MARK}": 1, "jobs": [\n' + ",\n".join(lines) + "\n]}\n"


def jobs_csv(workload: JobWorkload) -> str:
    """Columns that no job needs are left out."""
    entries = list(_entries(workload))
    used = {name for entry in entries for name in entry}
    names = [name for name in FIELDS if name in used]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([_field(entry.get(name)) for name in names] for entry in entries)
    return text.getvalue()


def _entries(workload: JobWorkload) -> Iterator[dict[str, Any]]:
    """Every job as the fields that differ from their defaults."""
    for index in range(len(workload)):
        job = workload.job(index)
        values = {name: getattr(job, name) for name in FIELDS}
        yield {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in values.items()
            if name in WRITTEN or value != getattr(_PLAIN, name)
            if value == value  # an elastic job that is not timed has no duration
        }


def _field(value: object) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return "|".join(map(str, value)) if isinstance(value, list) else str(value)
