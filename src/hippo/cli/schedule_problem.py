"""The problems that ``hippo schedule`` is asked: from a file, or from options on the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from hippo.errors import InputError

if TYPE_CHECKING:
    from hippo.schedule.problem_json import ProblemFile

Found = TypeVar("Found")

OPTION_OF_KEY: Mapping[str, str] = {
    "p": "--stages",
    "m": "--micro-batches",
    **dict.fromkeys("fbw", "--times"),
    **dict.fromkeys(("comm", "comm_up"), "--links"),
    **dict.fromkeys(("transfer", "transfer_up"), "--transfers"),
    "K": "--memory",
    "reduction": "--reduction",
    "placement": "--placement",
    "chunks": "--chunks",
    "layers": "--layers",
}
"""Which option gives which key of a problem file."""


@dataclass(frozen=True)
class Described:
    """A problem file, or the problem itself in options."""

    problem: Annotated[
        Path | None, typer.Option(metavar="FILE.json", help="One problem, or a list of them (docs/contracts.md).")
    ] = None
    stages: Annotated[int | None, typer.Option(metavar="P", help="Pipeline stages, one per rank.")] = None
    micro_batches: Annotated[int | None, typer.Option(metavar="M", help="Micro-batches of one step.")] = None
    times: Annotated[
        str | None,
        typer.Option(
            metavar="F,B,W", help="Times of one micro-batch on a stage; per stage: F1,..,FP/B1,..,BP/W1,..,WP."
        ),
    ] = None
    links: Annotated[
        str | None,
        typer.Option(metavar="C1,..", help="One-way delay of each link, or one for all; DOWN/UP where they differ."),
    ] = None
    transfers: Annotated[
        str | None, typer.Option(metavar="T1,..", help="Time that a message occupies its link, in the same form.")
    ] = None
    memory: Annotated[
        str | None, typer.Option(metavar="K", help="Most live micro-batches on a rank, or one number per rank.")
    ] = None
    reduction: Annotated[
        str | None,
        typer.Option(
            metavar="R", help="Time after a rank's last operation to agree its gradients, or one number per rank."
        ),
    ] = None
    placement: Annotated[
        str | None, typer.Option(metavar="plain|looped|v|bidirectional", help="Which stages lie on which rank.")
    ] = None
    chunks: Annotated[int | None, typer.Option(metavar="V", help="Stages per rank, where there are several.")] = None
    layers: Annotated[
        int | None, typer.Option(metavar="N", help="Layers of the model, to be no fewer than stages.")
    ] = None

    def asked(self, placement: str) -> ProblemFile:
        """The problems, those of options laid out as ``placement`` unless they say otherwise.

        ``InputError`` names the file's key or the option.
        """
        return self._from_file() if self.problem is not None else self._from_options(placement)

    def _from_file(self) -> ProblemFile:
        from hippo.files import read_text
        from hippo.schedule.problem_json import problems_of_text

        assert self.problem is not None
        for name in ("stages", "micro_batches", "times", "links", "transfers"):
            if getattr(self, name) is not None:
                option = f"--{name.replace('_', '-')}"
                raise InputError(
                    "does not go with --problem",
                    source=option,
                    value=getattr(self, name),
                    remedy="write it in the file",
                )
        source, text = str(self.problem), read_text(self.problem, what="problem file")
        changes = self._extras()
        return _naming_options(lambda: problems_of_text(text, source=source, changes=changes), changes)

    def _from_options(self, placement: str) -> ProblemFile:
        from hippo.problem.table import Table
        from hippo.schedule.problem_json import ProblemFile, problem_of

        for name in ("stages", "micro_batches", "times"):
            if getattr(self, name) is None:
                option = f"--{name.replace('_', '-')}"
                remedy = "give --problem FILE, or --stages, --micro-batches and --times"
                raise InputError("is missing", source=option, remedy=remedy)
        times = _groups("--times", str(self.times))
        if len(times) == 1:
            times = [[each] for each in times[0]]
        if len(times) != 3:
            remedy = "give F,B,W, or F1,..,FP/B1,..,BP/W1,..,WP"
            raise InputError("does not give three times", source="--times", value=self.times, remedy=remedy)
        values = {"p": self.stages, "m": self.micro_batches, "placement": placement} | self._extras()
        values |= {key: _one_or_all(each) for key, each in zip("fbw", times, strict=True)}
        for key, option, text in (("comm", "--links", self.links), ("transfer", "--transfers", self.transfers)):
            if text is not None:
                values |= _both_ways(key, option, text)
        sized = _naming_options(lambda: problem_of(Table(values, "")), values)
        return ProblemFile((sized,), listed=False)

    def _extras(self) -> dict[str, object]:
        """Keys that options give, with or without a file."""
        extras: dict[str, object] = {"placement": self.placement, "chunks": self.chunks, "layers": self.layers}
        for key, option, text in (("K", "--memory", self.memory), ("reduction", "--reduction", self.reduction)):
            if text is not None:
                extras[key] = _one_or_all([number for group in _groups(option, text) for number in group])
        return {key: value for key, value in extras.items() if value is not None}


def _groups(option: str, text: str) -> list[list[float]]:
    """``1,2/3,4`` as lists of numbers."""
    return [[_number(option, word) for word in group.split(",")] for group in text.split("/")]


def _number(option: str, word: str) -> float:
    try:
        return float(word)
    except ValueError:
        remedy = "write numbers with commas between them, for instance 1,1.05,0.75"
        raise InputError("is no number", source=option, value=word, remedy=remedy) from None


def _one_or_all(numbers: list[float]) -> object:
    return numbers[0] if len(numbers) == 1 else numbers


def _both_ways(key: str, option: str, text: str) -> dict[str, object]:
    """Delays down and up the ranks."""
    groups = _groups(option, text)
    if len(groups) > 2:
        raise InputError("has more than two directions", source=option, value=text, remedy="give DOWN, or DOWN/UP")
    return {name: _one_or_all(group) for name, group in zip((key, f"{key}_up"), groups, strict=False)}


def _naming_options(read: Callable[[], Found], given: Mapping[str, Any]) -> Found:
    """What ``read`` returns; a complaint about a key that an option gave names the option."""
    try:
        return read()
    except InputError as error:
        key = (error.key or "").rpartition(".")[2].partition("[")[0]
        if key not in given or key not in OPTION_OF_KEY:
            raise
        raise InputError(error.problem, source=OPTION_OF_KEY[key], value=error.value, remedy=error.remedy) from None


def whole_numbers(option: str, text: str) -> tuple[int, ...]:
    """``1,2,4`` as whole numbers from 1 on, each once."""
    found = [number for group in _groups(option, text) for number in group]
    for number in found:
        if not (number.is_integer() and 1 <= number < 2**31):
            raise InputError("is no whole number from 1 on", source=option, value=number, remedy="give sizes, as 1,2,4")
    return tuple(dict.fromkeys(int(number) for number in found))
