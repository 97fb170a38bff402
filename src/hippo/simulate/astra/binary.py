"""The user's ASTRA-sim binary: where it is, and one bounded run of it.

What it needs and does (measured): an open file per rank; write permission on the traces, which it opens for append; it
ends with exit code 0 although ranks hang, so a run counts only when every rank has said that it finished.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from time import monotonic

from hippo.errors import InputError
from hippo.simulate.astra.configuration import arguments

# --------------------------------------------------------------------------------------------------------------- trace
# What ASTRA-sim logs with ``trace-enabled``: when each node of each rank was issued and when it was done.

LOG = "log.log"
_LINE = re.compile(r"(issue|callback),sys->id=(\d+), tick=(\d+), node->id=(\d+),")


@dataclass(frozen=True)
class Ticks:
    """Nanoseconds by rank and node number."""

    issued: tuple[dict[int, int], ...]
    done: tuple[dict[int, int], ...]


def read_ticks(folder: Path, ranks: int) -> Ticks:
    """The ticks of all nodes from a folder of logs. A log that grew is in several files, of which the oldest may be
    gone; then nodes are missing here."""
    issued: list[dict[int, int]] = [{} for _ in range(ranks)]
    done: list[dict[int, int]] = [{} for _ in range(ranks)]
    for line in _lines(folder):
        found = _LINE.search(line)
        if found is not None:
            what, rank, tick, node = found.groups()
            (issued if what == "issue" else done)[int(rank)][int(node)] = int(tick)
    return Ticks(tuple(issued), tuple(done))


def _lines(folder: Path) -> Iterator[str]:
    for path in sorted(folder.glob("log*.log")):
        with path.open(encoding="utf-8", errors="replace") as stream:
            yield from stream


NAMES = ("AstraSim_Analytical_Congestion_Aware", "AstraSim_Analytical_Congestion_Unaware")
"""What ASTRA-sim's own build calls its analytical binaries; both play our traces alike."""

VARIABLE, OPTION = "HIPPO_ASTRA", "--astra-binary"
TIMEOUT_S = 300.0
"""Seconds that a run may take; 256 ranks with 50,000 nodes take about six."""

_FINISHED = re.compile(r"sys\[(\d+)\] finished, (\d+) cycles")
_FILES_BESIDE_RANKS = 64


@dataclass(frozen=True)
class BinaryRun:
    """What one run said."""

    finished_ns: tuple[int, ...]  # per rank
    ticks: Ticks
    seconds: float  # of wall clock


def find_binary(named: str | Path | None = None, *, asked_by: str = "--engine") -> Path:
    """The binary: as named, by the environment variable, or on the PATH; ``InputError`` when it is not to be had.

    ``asked_by``: the option or key that asks for the engine, for the message.
    """
    for given, source in ((named, OPTION), (os.environ.get(VARIABLE) or None, VARIABLE)):
        if given is not None:
            path = Path(shutil.which(given) or given)
            if not path.is_file() or not os.access(path, os.X_OK):
                remedy = f"give the path of {NAMES[0]}, which ASTRA-sim's own build makes"
                raise InputError("is no program that can be run", source=source, value=str(given), remedy=remedy)
            return path.resolve()
    for name in NAMES:
        if (found := shutil.which(name)) is not None:
            return Path(found).resolve()
    raise InputError(
        "the engine astra needs ASTRA-sim, which hippo does not bring: no AstraSim_Analytical_* on the PATH",
        source=asked_by,
        value="astra",
        remedy=f"build ASTRA-sim's analytical backend (docs/export.md) and name its binary with {VARIABLE} or {OPTION}",
    )


def digest(binary: Path) -> str:
    """SHA-256 of a binary, which cannot tell its version; the first 16 digits."""
    return sha256(binary.read_bytes()).hexdigest()[:16]


def run(binary: Path, names: Mapping[str, bytes], ranks: int, *, timeout_s: float = TIMEOUT_S) -> BinaryRun:
    """One run over these files in a folder of its own, which is gone afterwards.

    Raises ``InputError`` when the binary fails, takes longer than ``timeout_s``, or leaves a rank unfinished.
    """
    begun = monotonic()
    with tempfile.TemporaryDirectory(prefix="hippo-astra-") as folder, open_files(ranks + _FILES_BESIDE_RANKS):
        for name, content in names.items():
            path = Path(folder) / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
        printed = _output([str(binary), *arguments(folder, names, f"{folder}/log")], folder, timeout_s)
        finished = {int(rank): int(tick) for rank, tick in _FINISHED.findall(printed)}
        missing = [rank for rank in range(ranks) if rank not in finished]
        if missing:
            raise _failed(
                binary,
                f"{len(missing)} of {ranks} ranks did not finish (first: {missing[0]})",
                "the run hangs where a message is sent but not received; try another build of ASTRA-sim, and please "
                "report the plan",
            )
        ticks = read_ticks(Path(folder) / "log", ranks)
    return BinaryRun(tuple(finished[rank] for rank in range(ranks)), ticks, monotonic() - begun)


def _output(command: list[str], folder: str, timeout_s: float) -> str:
    """What a command prints; it and all that it started are ended when time is up."""
    binary = Path(command[0])
    try:
        process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, errors="replace", start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise _failed(binary, f"cannot be started: {error.strerror}", "give a binary built for this machine") from None
    with process:
        try:
            printed, said = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise _failed(binary, f"did not end within {timeout_s:g} s", "try a plan with fewer waves") from None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode:
        told = (said.strip() or printed.strip()).splitlines()[-1:] or ["it said nothing"]
        raise _failed(
            binary, f"ended with exit code {process.returncode}: {told[0][:200]}", "see docs/export.md for what it asks"
        )
    return printed


def _failed(binary: Path, problem: str, remedy: str) -> InputError:
    return InputError(f"ASTRA-sim {problem}", source=str(binary), remedy=remedy)


@contextmanager
def open_files(needed: int) -> Iterator[None]:
    """Room for so many open files in what is started meanwhile; ``InputError`` when the system forbids it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (needed, max(hard, needed)))
        except (ValueError, OSError):
            raise InputError(
                f"ASTRA-sim opens a file per rank, {needed} in all, and this shell allows {soft}",
                source="ulimit -n",
                value=hard,
                remedy=f"raise the hard limit of open files to {needed}, or use a plan with fewer waves or links",
            ) from None
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
