"""Reads a trace in any of the formats; which one its content tells, where nobody says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hippo.errors import InputError, UnknownNameError
from hippo.jobs.traces import gavel, helios, own, pai, philly_csv, philly_json, swf
from hippo.jobs.traces.head import Head
from hippo.jobs.traces.passed import Passed
from hippo.jobs.traces.rows import Rows
from hippo.jobs.traces.trace import Trace, settled


@dataclass(frozen=True)
class Format:
    """How one kind of file is known and read."""

    name: str
    family: str  # what --format calls it
    looks: Callable[[Head], bool]
    read: Callable[[Path, Passed], Rows]


ALL = (
    Format("philly (CSV)", "philly", philly_csv.looks, philly_csv.read),
    Format("philly (JSON)", "philly", philly_json.looks, philly_json.read),
    Format("helios", "helios", helios.looks, helios.read),
    Format("own", "own", own.looks, own.read),
    Format("pai", "pai", pai.looks, pai.read),
    Format("gavel", "gavel", gavel.looks, gavel.read),
    Format("swf", "swf", swf.looks, swf.read),
)
"""In the order in which they are tried."""

FORMATS: Mapping[str, tuple[Format, ...]] = {
    family: tuple(each for each in ALL if each.family == family)
    for family in dict.fromkeys(each.family for each in ALL)
}


def load_trace(path: str | Path, *, form: str | None = None, skip_bad: bool = False) -> Trace:
    """The jobs of a trace.

    Parameters
    ----------
    path
        A file (packed by gzip or not), or PAI's folder.
    form
        ``philly``, ``helios``, ``pai``, ``gavel``, ``swf`` or ``own``; None: told by the content.
    skip_bad
        Passes over wrong rows, and counts them, instead of refusing the file.

    Raises
    ------
    InputError
        A file that is missing, empty, no text or in no known format; a wrong row (the message names its line).
    """
    file = Path(path)
    if form is not None and form not in FORMATS:
        raise UnknownNameError("format", form, FORMATS, source="--format")
    if file.is_dir():
        if form not in (None, "pai"):
            raise InputError("is a folder; only pai has one", source=str(file), remedy="give a file")
        chosen = FORMATS["pai"][0]
    else:
        chosen = _chosen(Head.of(file), form)
    passed = Passed(str(file), skip_bad=skip_bad)
    return settled(chosen.read(file, passed), passed, chosen.name)


def _chosen(head: Head, form: str | None) -> Format:
    """The first format that the file looks like, of those that may be meant."""
    candidates = ALL if form is None else FORMATS[form]
    for each in candidates:
        if each.looks(head):
            return each
    likely = next((each.name for each in ALL if each.looks(head)), None)
    if form is not None and likely is not None:
        problem = f"looks like format {likely}"
        raise InputError(problem, source=head.source, key="--format", value=form, remedy="leave out --format")
    for delimiter, name in ((";", "semicolons"), ("\t", "tabs")):
        if any(each.looks(Head(head.source, head.text.replace(delimiter, ","))) for each in candidates):
            problem, remedy = f"its fields are parted by {name}", "part them by commas"
            raise InputError(problem, source=head.source, key="line 1", value=head.first, remedy=remedy)
    if form is not None:
        return candidates[0]  # its reader says what is wrong
    raise InputError(
        "is in no format that is known",
        source=head.source,
        key="line 1",
        value=head.first,
        remedy=f"name it with --format {'|'.join(FORMATS)}",
    )
