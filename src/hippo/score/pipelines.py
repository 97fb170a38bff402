"""Measured pipelines with slow links: rows in the form of ``pipemorph_measured_pipelines.csv``.

The seconds of F, B and W are inputs: their ratios are the medians of what the rows of the same model log, their sum is
the one with which the step before links were slowed (``healthy_ms_iters5to7``, median of the rows that then ran alike)
is met. Of the slowed step nothing is used. Some rows log 10 ms for every F, B and W, the start value of the authors'
planner: they count as not logged, and the orders of rows that do not plan anew are made for such equal seconds.

What the methods do was read in the authors' sources (wutianyuan1/PipeMorph): ``failslow_injection.cu`` lets the GPU
sleep in the stream before every NCCL send over a slow link, either way, so that a message occupies its link that long.
It knows the receiver by its rank in the communicator, and takes ranks 0 and 1 for the neighbours before and behind, as
they are where every pair of stages has a communicator of its own. Megatron-LM's batched calls use that of all stages:
there a send from stage 2 to stage 1 sleeps where the link from 2 to 3 is slow, and not where its own is.
``cpu_delegate.py`` sleeps in one of several processes that send in turn, so that messages are late but do not queue;
once links are slow, *all* messages go that way (``cpu_schedules.py``: ``_should_delegate``), through the memory of both
hosts. What that costs a message is measured apart: by the step, without any slow link, of the row that always sends so.
1F1B is Megatron-LM's, whose senders and receivers meet. Of zero bubble two things are known, each of which alone makes
a step too short, so the longer counts: its transfers run on one NCCL stream of each rank; and all kernels go through
one hardware queue (``CUDA_DEVICE_MAX_CONNECTIONS=1``), in which work waits behind a send that waits for its sleep.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.errors import InputError, UnknownNameError
from hippo.files import read_text
from hippo.problem.gpus import gpu
from hippo.problem.runtimes import Messages, runtime_of
from hippo.schedule.methods import generate
from hippo.schedule.problem import RankLink, ScheduleProblem
from hippo.schedule.schedule import Schedule
from hippo.simulate import fast
from hippo.simulate.abstract import PlannedLine, abstract_program, on_links
from hippo.units import s_from_ms

Times = tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]]
"""F, B and W of each stage."""


class PipelineMethod(NamedTuple):
    """How a method of the authors runs a pipeline."""

    order: str  # schedule method that makes its order
    planned: bool = False  # the order is made for the slow links
    by_cpu: bool = False  # all messages go through the hosts' memory, where a delay does not occupy its link
    batched: bool = False  # calls on the communicator of all stages
    one_queue: bool = False  # of the GPU: work waits behind a send that sleeps
    messages: Messages = Messages()  # how they wait for each other


METHODS: Mapping[str, PipelineMethod] = {
    "1F1B": PipelineMethod("1f1b", batched=True, messages=runtime_of("megatron").messages),
    "ZB": PipelineMethod("zb-auto", one_queue=True, messages=Messages("stream")),
    "ZB-CPU": PipelineMethod("zb-auto", by_cpu=True),
    "ZB-CPU-ReSchedule": PipelineMethod("zb-auto", planned=True, by_cpu=True),
    "ALL-CPU": PipelineMethod("zb-auto", by_cpu=True),
}
ALWAYS_BY_CPU, BY_GPU = "ALL-CPU", "ZB"
"""Methods that differ in what carries their messages alone."""
UNLISTED_GPU = "A10"
"""Of the rows, and in no catalogue: what it computes is measured in the rows themselves."""
MOST_DELAY_S = 1.0
"""Added to a message: no link between two places is later than that."""
MOST_PASSES = 100_000
"""Micro-batches times stages of a row that is played."""
_COLUMNS = (
    *("branch", "experiment", "model", "gpu", "method", "slow_links", "delay_s", "pp", "tp", "dp", "micro_batch"),
    *("global_batch", "layers", "hidden", "heads", "zb_mem_limit", "iterations", "healthy_ms_iters5to7"),
    *("last5_mean_ms", "last5_sd_ms", "per_stage_FBW_ms", "planned_makespan_ms", "source"),
)
_NEEDED = ("method", "pp", "dp", "micro_batch", "global_batch", "healthy_ms_iters5to7", "last5_mean_ms")


@dataclass(frozen=True)
class MeasuredPipeline:
    """One measured pipeline. p stages, m micro-batches; seconds."""

    id: str
    family: str
    key: tuple[str, ...]  # rows with equal keys differ in their method alone
    method: str
    micro_batches: int
    shape: Times | None  # ratios of F, B, W, any unit
    delays: tuple[float, ...]  # (p - 1,) added to each message between stage s and s + 1
    live_limit: float
    healthy_s: float
    measured_s: float | None
    deviation_s: float | None  # standard deviation of the last steps
    by_cpu_ratio: float = 1.0  # of a step without slow links whose messages all go by CPU, over one by GPU; 1: unknown
    refusal: str | None = None
    unknown: tuple[str, ...] = ()  # columns that nothing reads


def table_rows(path: Path, *, what: str, needed: Collection[str], told: Collection[str]) -> list[dict[str, str]]:
    """The rows of a file with the ``needed`` columns; ``InputError`` where it has none, or others than are ``told``."""
    rows = list(csv.DictReader(io.StringIO(read_text(path, what=what))))
    if not rows:
        raise InputError("the table holds no rows", source=str(path), remedy="give one row at least")
    missing = [name for name in needed if name not in rows[0]]
    if missing:
        raise InputError(
            "the table has other columns", source=str(path), key=", ".join(missing), remedy=f"give {', '.join(told)}"
        )
    return rows


def cases(path: Path) -> tuple[MeasuredPipeline, ...]:
    """The rows of a file; what a row lacks is its refusal. ``InputError`` for a file that is no such table."""
    rows = table_rows(path, what="table of measured pipelines", needed=_NEEDED, told=_COLUMNS)
    shapes, healthy, found = _shapes(rows), _healthy(rows), []
    for index, row in enumerate(rows):
        case, trained = _case(row, shapes, f"{path.name}[{index}]"), _trained(row)
        if case.refusal is None:
            by_gpu, by_cpu = (healthy.get((trained, method)) for method in (BY_GPU, ALWAYS_BY_CPU))
            ratio = max(1.0, by_cpu / by_gpu) if by_gpu and by_cpu else 1.0
            case = replace(case, healthy_s=healthy[trained, _before(case.method)], by_cpu_ratio=ratio)
        found.append(case)
    return tuple(found)


def _trained(row: Mapping[str, str]) -> tuple[str, ...]:
    """What rows share that differ in method and slow links alone."""
    return tuple(row.get(key) or "" for key in ("model", "gpu", "pp", "tp", "dp", "micro_batch", "global_batch"))


def _healthy(rows: Iterable[Mapping[str, str]]) -> dict[tuple[tuple[str, ...], str], float]:
    """Median seconds of a step before links are slow, by what is trained and how the messages go then."""
    found: dict[tuple[tuple[str, ...], str], list[float]] = {}
    for row in rows:
        try:
            seconds = s_from_ms(_number(row, "healthy_ms_iters5to7"))
        except ValueError:
            continue
        found.setdefault((_trained(row), _before(row.get("method") or "")), []).append(seconds)
    return {key: float(np.median(each)) for key, each in found.items()}


def _before(method: str) -> str:
    """The method that runs alike as long as no link is slow."""
    return method if method in (ALWAYS_BY_CPU, "1F1B") else BY_GPU


def _case(row: Mapping[str, str], shapes: Mapping[tuple[str, str], Times], name: str) -> MeasuredPipeline:
    holes = [key for key in _NEEDED if not row.get(key)]
    refusal = f"the row does not give {', '.join(holes)}" if holes else None
    if refusal is None:
        try:
            return _whole(row, shapes, name)
        except ValueError as error:
            refusal = str(error)
    unknown = tuple(key for key in row if key not in _COLUMNS)
    nothing = MeasuredPipeline(name, _family(row), (), "", 1, None, (), math.inf, 0.0, None, None)
    return replace(nothing, refusal=refusal, unknown=unknown)


def _family(row: Mapping[str, str]) -> str:
    return f"pipemorph-{row.get('model') or row.get('gpu') or 'unnamed'}"


def _whole(row: Mapping[str, str], shapes: Mapping[tuple[str, str], Times], name: str) -> MeasuredPipeline:
    """A row that has what is needed; ``ValueError`` says what of it cannot be read."""
    stages, micro_batches = (
        _count(row, "pp"),
        _count(row, "global_batch") // (_count(row, "dp") * _count(row, "micro_batch")),
    )
    if stages * micro_batches > MOST_PASSES or micro_batches < 1:
        raise ValueError(f"{micro_batches} micro-batches over {stages} stages are not from 1 to {MOST_PASSES} passes")
    if row["method"] not in METHODS:
        raise ValueError(f"method {row['method']} is not one of {', '.join(METHODS)}")
    if row.get("gpu") not in (None, "", UNLISTED_GPU):
        try:
            gpu(row["gpu"])
        except UnknownNameError:
            raise ValueError(f"gpu {row['gpu']} is not known") from None
    shape = shapes.get((row.get("model", ""), row.get("gpu", "")))
    if shape is None or len(shape[0]) != stages:
        raise ValueError("no row of this model logs F, B and W of each stage")
    delays = [0.0] * (stages - 1)
    for link in filter(None, (row.get("slow_links") or "").split(",")):
        first, _, last = link.partition("_")
        if not (first.isdigit() and last.isdigit() and int(last) == int(first) + 1 < stages):
            raise ValueError(f"slow_links {link} joins no two neighbours")
        delays[int(first)] = _number(row, "delay_s", least=0.0, most=MOST_DELAY_S)
    limit = _number(row, "zb_mem_limit") if row.get("zb_mem_limit") else math.inf
    told = ("branch", "experiment", "model", "gpu", "slow_links", "delay_s")
    deviation = s_from_ms(_number(row, "last5_sd_ms", least=0.0)) if row.get("last5_sd_ms") else None
    return MeasuredPipeline(
        id=" ".join(filter(None, [*(row.get(key) or "" for key in told), row["method"]])),
        family=_family(row),
        key=tuple(row.get(key) or "" for key in told),
        method=row["method"],
        micro_batches=micro_batches,
        shape=shape,
        delays=tuple(delays),
        live_limit=limit,
        healthy_s=s_from_ms(_number(row, "healthy_ms_iters5to7")),
        measured_s=s_from_ms(_number(row, "last5_mean_ms")),
        deviation_s=deviation,
        unknown=tuple(key for key in row if key not in _COLUMNS),
    )


def _number(row: Mapping[str, str], key: str, *, least: float = 1e-9, most: float = math.inf) -> float:
    try:
        value = float(row[key])
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"{key} is not a number") from None
    if not least <= value < math.inf:
        raise ValueError(f"{key} is {value:g}")
    if value > most:
        raise ValueError(f"{key} is {value:g}, more than {most:g}: are these milliseconds?")
    return value


def _count(row: Mapping[str, str], key: str) -> int:
    value = _number(row, key, least=1.0)
    if value != int(value):
        raise ValueError(f"{key} is no whole number")
    return int(value)


def _shapes(rows: Iterable[Mapping[str, str]]) -> dict[tuple[str, str], Times]:
    """Median F, B and W of each stage by (model, GPU), of the rows that log them."""
    found: dict[tuple[str, str], list[list[list[float]]]] = {}
    for row in rows:
        try:
            logged = json.loads(row.get("per_stage_FBW_ms") or "{}")
            stages = [[float(logged[str(s)][kind]) for s in range(len(logged))] for kind in "FBW"]
        except (KeyError, TypeError, ValueError):
            continue
        values = {each for kind in stages for each in kind}
        if len(values) > 1 and min(values) > 0:  # the same number everywhere is the planner's start value
            found.setdefault((row.get("model") or "", row.get("gpu") or ""), []).append(stages)
    return {key: _times(np.median(np.array(each), axis=0).tolist()) for key, each in found.items()}


def _times(kinds: Sequence[Sequence[float]]) -> Times:
    forward, backward, weight = (tuple(kind) for kind in kinds)
    return forward, backward, weight


def step_seconds(case: MeasuredPipeline) -> float:
    """Seconds of a step with the slow links."""
    assert case.shape is not None
    method = METHODS[case.method]
    if not any(case.delays):
        return case.healthy_s
    limit = (math.inf if method.order == "1f1b" else case.live_limit,) * len(case.shape[0])
    unslowed = (RankLink(),) * len(case.delays)
    healthy = ScheduleProblem(case.micro_batches, *case.shape, unslowed, unslowed, limit)
    order = _first_order(method.order, healthy)
    unit_s = case.healthy_s / _played(method, healthy, order, np.zeros(len(unslowed)))
    delays = np.array(case.delays) / unit_s  # in the unit of the shape
    if method.by_cpu:
        delays += _message_by_cpu(healthy, case.by_cpu_ratio)
    if method.planned:
        late = tuple(RankLink(latency=each) for each in (np.array(case.delays) / unit_s).tolist())
        order = _order(method.order, replace(healthy, down=late, up=late))
    played = _played(method, healthy, order, delays)
    if method.one_queue:
        forward, backward = np.array(healthy.forward), np.array(healthy.backward)
        forward[:-1] += delays
        backward[1:] += delays
        asleep = replace(healthy, forward=tuple(forward.tolist()), backward=tuple(backward.tolist()))
        played = max(played, _played(method, asleep, order, np.zeros(len(unslowed))))
    return unit_s * played


def _first_order(method: str, problem: ScheduleProblem) -> Schedule:
    """The order of a method before anything was measured: the authors' planner begins with equal seconds."""
    alike = (1.0,) * problem.ranks
    return _order(method, replace(problem, forward=alike, backward=alike, weight=alike))


@lru_cache(maxsize=256)
def _order(method: str, problem: ScheduleProblem) -> Schedule:
    return generate(method, problem)


@lru_cache(maxsize=16)
def _message_by_cpu(healthy: ScheduleProblem, ratio: float) -> float:
    """What a message takes by CPU, in the unit of the problem, so that the step becomes ``ratio`` times as long."""
    method = METHODS[ALWAYS_BY_CPU]
    order, borders = _first_order(method.order, healthy), healthy.ranks - 1
    aim = ratio * _played(method, healthy, order, np.zeros(borders))
    low, high = 0.0, aim
    for _ in range(40):
        middle = (low + high) / 2
        if _played(method, healthy, order, np.full(borders, middle)) < aim:
            low = middle
        else:
            high = middle
    return low


def _played(method: PipelineMethod, problem: ScheduleProblem, schedule: Schedule, delays: NDArray[np.float64]) -> float:
    """The step with these delays of the borders between neighbours, (p - 1,), in the unit of the problem."""
    program = abstract_program(
        schedule,
        forward_s=problem.forward,
        backward_s=problem.backward,
        weight_s=problem.weight,
        delay_s=delays.tolist() if method.by_cpu else 0.0,
    )
    if not method.by_cpu and delays.any():
        down, up = np.append(delays, 0.0), np.append(0.0, delays)  # of what each rank sends on and back
        if method.batched and len(up) > 2:
            up[2] = down[2]  # the communicator's rank 1 is taken for the stage behind
        slow = [(side, rank) for side in (down, up) for rank in np.flatnonzero(side).tolist()]
        routes = [
            [[at for at, (its, r) in enumerate(slow) if its is side and r == rank] for rank in range(len(side))]
            for side in (down, up)
        ]
        lines = [PlannedLine(1.0 / float(side[rank])) for side, rank in slow]  # a byte a message
        program = on_links(program, lines, down=routes[0], up=routes[1], num_bytes=1.0)
    return fast.step_time(replace(program, messages=method.messages))
