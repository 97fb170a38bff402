"""Schedules as the CSV of ``torch.distributed.pipelining`` (2.13, ``compute_only``), both ways.

One row per rank, a cell per operation: ``<stage><F|I|W|B><micro-batch>``, I the gradient of the input, W that of the
weights, B both at once. What the runtime asks for beyond a legal order (docs/schedules.md, "torch"):

* The first stage has no gradient of an input: there I does nothing and W runs everything, so it gets B, where the
  I was or, when that is shorter and fits into memory, where the W was.
* I and W one after the other cost more than B: adjacent ones become B, whose gradient leaves at its end.
* Losses are stored in the order of the last stage's F but looked up by micro-batch: F must be in order there.
* A stage lives on one rank: the two copies of a bidirectional placement cannot be told.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from hippo.engine.fixed_order import play
from hippo.engine.program import BACKWARD, FORWARD, NOTHING, WEIGHT
from hippo.errors import InexpressibleError, InputError
from hippo.schedule.problem import Ints, ScheduleProblem, chains
from hippo.schedule.replay import packed, peak_memory, replay
from hippo.schedule.schedule import Schedule, Shape
from hippo.schedule.text import schedule_of_rows

Bools = NDArray[np.bool_]

_CELL = re.compile(r"([0-9]{1,6})([FIWB])([0-9]{1,9})")
_COMMUNICATION = re.compile(r"[0-9]*(UNSHARD|RESHARD|REDUCE_GRAD|SEND_F|RECV_F|SEND_B|RECV_B)[0-9]*")
_BEFORE = {"F": "", "I": "F", "B": "F", "W": "I"}  # what a stage has done of a micro-batch when the operation starts


@dataclass(frozen=True)
class TorchSchedule:
    """What is written, and what it is worth there."""

    cells: tuple[tuple[str, ...], ...]  # per rank
    makespan: float  # with backwards fused as the cells say
    fused: int  # backwards that are B
    split: int  # those that are I and W

    @property
    def text(self) -> str:
        """The CSV file."""
        return "".join(",".join(row) + "\n" for row in self.cells)


# ------------------------------------------------------------------------------------------------------------- writing
def torch_schedule(problem: ScheduleProblem, schedule: Schedule) -> TorchSchedule:
    """The cells of a schedule that has passed the checker.

    Raises
    ------
    InexpressibleError
        The placement is bidirectional, or F is out of order on the last stage.
    """
    _refuse_what_torch_cannot(problem, schedule)
    candidates = [schedule] if schedule.fused else _fused_at_first_stage(problem, schedule)
    merged = [_worth_merging(problem, each, _merged(each)) for each in candidates]
    makespans = [torch_makespan(problem, each, at) for each, at in zip(candidates, merged, strict=True)]
    best = int(np.argmin(makespans))
    cells = tuple(tuple(row) for row in _cells(problem, candidates[best], merged[best]))
    backwards = int((schedule.order[:, 0] == BACKWARD).sum())
    fused = backwards if schedule.fused else int(merged[best].sum())
    return TorchSchedule(cells, makespans[best], fused, backwards - fused)


def _refuse_what_torch_cannot(problem: ScheduleProblem, schedule: Schedule) -> None:
    if problem.placement == "bidirectional":
        raise InexpressibleError(
            [
                "torch.distributed.pipelining keeps a stage on one rank, a bidirectional placement has two copies of "
                "it. To fix: take --placement v with --method zb-v or best, or leave out --csv."
            ]
        )
    rank, chunk = divmod(chains(problem)[0][-1], problem.chunks)
    rows = schedule.rank(rank)
    forwards = rows[(rows[:, 0] == FORWARD) & (rows[:, 1] == chunk), 2]
    if (np.diff(forwards) < 0).any():
        raise InexpressibleError(
            [
                f"torch.distributed.pipelining looks up losses by the order of F on the last stage (rank {rank}); out "
                "of order its gradients are wrong. To fix: order F there by micro-batch, or leave out --csv."
            ]
        )


def _fused_at_first_stage(problem: ScheduleProblem, schedule: Schedule) -> list[Schedule]:
    """B and W of the first stage side by side: W early, and B late where memory allows. Nobody waits for either."""
    rank, chunk = divmod(chains(problem)[0][0], problem.chunks)
    rows = schedule.rank(rank)
    place: dict[int, Ints] = {}
    for kind in (BACKWARD, WEIGHT):
        at = np.flatnonzero((rows[:, 0] == kind) & (rows[:, 1] == chunk))
        place[kind] = at[np.argsort(rows[at, 2])]  # by micro-batch
    found = []
    for moved, anchor, shift in ((WEIGHT, BACKWARD, 0.5), (BACKWARD, WEIGHT, -0.5)):
        turn = np.arange(len(rows), dtype=np.float64)
        turn[place[moved]] = place[anchor] + shift
        order = schedule.order.copy()
        order[schedule.order_start[rank] : schedule.order_start[rank + 1]] = rows[np.argsort(turn)]
        order.setflags(write=False)
        found.append(replace(schedule, order=order))
    late = peak_memory(problem, found[1])
    return found if (late <= np.array(problem.limit) * (1 + 1e-9)).all() else found[:1]


def _merged(schedule: Schedule) -> Bools:
    """Which operations (N,) are a B with its own W right behind it."""
    order = schedule.order
    found = np.zeros(len(order), np.bool_)
    if not schedule.fused and len(order):
        pair = (order[:-1, 0] == BACKWARD) & (order[1:, 0] == WEIGHT) & (order[:-1, 1:] == order[1:, 1:]).all(axis=1)
        pair[schedule.order_start[1:-1] - 1] = False  # the last of a rank and the first of the next
        found[:-1] = pair
    return found


def _worth_merging(problem: ScheduleProblem, schedule: Schedule, pairs: Bools) -> Bools:
    """Of the pairs (N,) those of the first stage, and as many others as keep the schedule as short as it is.

    As one operation B and W are quicker, but the gradient leaves later: those whose receiver waits longest go first.
    """
    if not pairs.any():
        return pairs
    tables, order, size = problem.tables, schedule.order, problem.ranks * problem.chunks
    slot = np.repeat(np.arange(problem.ranks), np.diff(schedule.order_start)) * problem.chunks + order[:, 1]
    sink = tables.onward[BACKWARD, slot]  # where the gradient goes; none: the first stage
    first: Bools = pairs & (sink < 0)
    shortest = torch_makespan(problem, schedule, first) * (1 + 1e-9)
    times, at = replay(problem, schedule), np.zeros((size, problem.micro_batches), np.int64)
    backwards = order[:, 0] == BACKWARD
    at[slot[backwards], order[backwards, 2]] = np.flatnonzero(backwards)
    others = np.flatnonzero(pairs & (sink >= 0))
    received = times.start[at[sink[others], order[others, 2]]]
    spare = received - times.end[others] - tables.delay[BACKWARD, slot[others]]
    others = others[np.argsort(-spare, kind="stable")]
    low, high = 0, len(others)  # more pairs never make it shorter
    while low < high:
        middle = (low + high + 1) // 2
        trial = first.copy()
        trial[others[:middle]] = True
        low, high = (middle, high) if torch_makespan(problem, schedule, trial) <= shortest else (low, middle - 1)
    chosen = np.array(first)
    chosen[others[:low]] = True
    return chosen


def torch_makespan(problem: ScheduleProblem, schedule: Schedule, merged: Bools | None = None) -> float:
    """The makespan when each B with its W right behind it (``merged``) runs as one: its gradient leaves at the end."""
    merged = _merged(schedule) if merged is None else merged
    program = packed(problem, schedule)
    rank = np.repeat(np.arange(problem.ranks), np.diff(schedule.order_start))
    slot = rank * problem.chunks + schedule.order[:, 1]
    seconds = program.duration[schedule.order[:, 0] * program.slots + slot]
    seconds[merged] += problem.tables.duration[WEIGHT, slot[merged]]
    seconds[1:][merged[:-1]] = 0.0  # its W is in it
    return float(play(program, problem.network._replace(seconds=seconds), NOTHING))


def _cells(problem: ScheduleProblem, schedule: Schedule, merged: Bools) -> Iterator[list[str]]:
    """The cells of each rank."""
    stage = np.empty(problem.ranks * problem.chunks, np.int64)
    stage[list(chains(problem)[0])] = np.arange(len(stage))
    letters = "FBW" if schedule.fused else "FIW"
    for rank in range(problem.ranks):
        begin, end = schedule.order_start[rank], schedule.order_start[rank + 1]
        row, after_merged = [], False
        for (kind, chunk, micro_batch), whole in zip(
            schedule.order[begin:end].tolist(), merged[begin:end].tolist(), strict=True
        ):
            if not after_merged:
                letter = "B" if whole else letters[kind]
                row.append(f"{stage[rank * problem.chunks + chunk]}{letter}{micro_batch}")
            after_merged = whole
        yield row


# ------------------------------------------------------------------------------------------------------------- reading
def parse_torch_csv(text: str, problem: ScheduleProblem, *, source: str) -> Schedule:
    """The schedule of a CSV; whether its ranks wait for each other in a circle is for the checker to say.

    Where some backwards are B and others I and W, a B is read as I and then W. A compound cell ``(0F1;3B0)OVERLAP_F_B``
    is read as its parts one after the other. Cells that only move data (``compute_comms``: SEND_F, UNSHARD, ..) are
    passed over: what is sent follows from the order. ``InputError`` names file, row, cell and value.
    """
    if problem.placement == "bidirectional":
        remedy = "give a problem of another placement"
        raise InputError("cannot hold a bidirectional schedule", source=source, remedy=remedy)
    rows = list(csv.reader(io.StringIO(text)))
    while rows and not any(cell.strip() for cell in rows[-1]):
        rows.pop()
    if len(rows) != problem.ranks:
        remedy = f"give {problem.ranks} rows, one per rank, or the problem that it is for"
        raise InputError(f"holds {len(rows)} rows, not {problem.ranks}", source=source, remedy=remedy)
    reader = _Reader(problem, source)
    ranks = [list(reader.rank(rank, cells)) for rank, cells in enumerate(rows)]
    fused = all(letter not in "IW" for operations in ranks for letter, _, _ in operations)
    kinds = {"F": (FORWARD,), "B": (BACKWARD,) if fused else (BACKWARD, WEIGHT), "I": (BACKWARD,), "W": (WEIGHT,)}
    shape = Shape(problem.ranks, problem.micro_batches, problem.chunks)
    split = [[(kind, *where) for letter, *where in row for kind in kinds[letter]] for row in ranks]
    return schedule_of_rows("given", shape, split, fused=fused)


@dataclass(frozen=True)
class _Reader:
    """Cells of one file as operations, each checked against those before it on its rank."""

    problem: ScheduleProblem
    source: str

    @cached_property
    def chain(self) -> tuple[int, ...]:
        """Slots in the order of the stages."""
        return chains(self.problem)[0]

    def rank(self, rank: int, cells: list[str]) -> Iterator[tuple[str, int, int]]:
        """Letter, chunk and micro-batch of each operation of a row."""
        done: dict[tuple[int, int], str] = {}
        newest = -1  # micro-batch of the last stage's F
        for number, cell in enumerate(cells, 1):
            key = f"row {rank + 1} (rank {rank}), cell {number}"
            for part in _parts(cell.strip()):
                stage, letter, micro_batch = self._operation(part, rank, done, key)
                if letter == "F" and stage == len(self.chain) - 1:
                    if micro_batch < newest:
                        remedy = "order F by micro-batch there: torch looks up losses by it"
                        self._refuse(key, part, "comes after a later micro-batch on the last stage", remedy)
                    newest = micro_batch
                yield letter, self.chain[stage] % self.problem.chunks, micro_batch
        stages = [stage for stage, slot in enumerate(self.chain) if slot // self.problem.chunks == rank]
        for stage in stages:
            for micro_batch in range(self.problem.micro_batches):
                state = done.get((stage, micro_batch), "")
                if state not in ("B", "W"):
                    missing = {"": "F", "F": "B", "I": "W"}[state]
                    self._refuse(
                        f"row {rank + 1} (rank {rank})",
                        f"{stage}{missing}{micro_batch}",
                        "is missing",
                        "give every micro-batch of every stage its F, and B or I and W",
                    )

    def _operation(self, cell: str, rank: int, done: dict[tuple[int, int], str], key: str) -> tuple[int, str, int]:
        """Stage, letter and micro-batch of a cell that may come next."""
        match, m = _CELL.fullmatch(cell), self.problem.micro_batches
        if match is None:
            self._refuse(key, cell, "is no operation", "write stage, F, I, W or B, and micro-batch, for instance 0F3")
        stage, letter, micro_batch = int(match[1]), match[2], int(match[3])
        if stage >= len(self.chain):
            self._refuse(key, cell, f"has no such stage: there are {len(self.chain)}", "stages count from 0")
        if micro_batch >= m:
            self._refuse(key, cell, f"has no such micro-batch: there are {m}", "micro-batches count from 0")
        home = self.chain[stage] // self.problem.chunks
        if home != rank:
            remedy = f"placement '{self.problem.placement}' puts stage {stage} on rank {home}"
            self._refuse(key, cell, "is on the wrong rank", f"{remedy}; move it, or change --placement")
        before = done.get((stage, micro_batch), "")
        if before != _BEFORE[letter]:
            self._refuse(key, cell, *_too_early(stage, letter, micro_batch, before))
        done[stage, micro_batch] = letter
        return stage, letter, micro_batch

    def _refuse(self, key: str, cell: str, problem: str, remedy: str) -> NoReturn:
        raise InputError(problem, source=self.source, key=key, value=cell, remedy=remedy)


def _parts(cell: str) -> list[str]:
    """The operations of a cell: none when it is empty or moves data, several in a compound one."""
    if cell.startswith("(") and cell.endswith(")OVERLAP_F_B"):
        return [part.strip() for part in cell[1 : cell.index(")")].split(";") if part.strip()]
    return [cell] if cell and not _COMMUNICATION.fullmatch(cell) else []


def _too_early(stage: int, letter: str, micro_batch: int, before: str) -> tuple[str, str]:
    """What is wrong with an operation after what its stage has done of the micro-batch, and what to do about it."""
    if letter == "F" or before in ("B", "W") or (before == "I" and letter != "W"):
        return "runs again what has run", "give each operation once; B is I and W together"
    needs = f"{stage}{_BEFORE[letter]}{micro_batch}"
    return f"runs before {needs}", f"put {needs} before it on the same row"
