"""One seat under ``torch.distributed.pipelining``: what the executor is held against. Same layers, same messages.

Every column of ranks (same pipeline, lane and place in the tensor-parallel team) is a process group of its own, gloo's
default with connections made when they are first used. The runtime posts each receive when it needs it and each send
where its schedule has it; gradients are agreed after the last backward.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed
import torch.distributed.pipelining.schedules
from torch.distributed.pipelining import PipelineStage

from hippo.engine.program import BACKWARD, FORWARD, WEIGHT
from hippo.run.executor.agree import Agreeing, PartGradients, StandInGradients, buckets
from hippo.run.executor.settings import settings_of
from hippo.run.executor.step import Done
from hippo.run.executor.wires import PATIENCE, GroupTeam, Meeting
from hippo.run.job import Job
from hippo.run.model.stage import ALONE, Part
from hippo.run.model.store import load
from hippo.run.model.tokens import sequences
from hippo.run.model.weights import Split
from hippo.run.stand_in import Times, times
from hippo.run.torch_runtime.fits import built_in
from hippo.run.torch_runtime.modules import Chunk, Layers, Waits
from hippo.run.work import Seat, Work
from hippo.schedule.schedule import order_of
from hippo.schedule.torch_csv import torch_schedule
from hippo.simulate.ordering import ordering

Tensor = torch.Tensor
dist: Any = torch.distributed  # its types leave out what is used here
runtimes: Any = torch.distributed.pipelining.schedules
Entry = tuple[int, int, int, float, float]  # kind, chunk, wave, start and end on the monotonic clock


@dataclass(frozen=True)
class Notes:
    """What a seat did, and who hears that it lives."""

    beat: Callable[[str], None]
    log: list[Entry] = field(default_factory=list)


class TimedStage(PipelineStage):
    """A stage of the runtime that notes when it ran what, and says that it lives."""

    def __init__(self, module: Chunk, index: int, chunk: int, notes: Notes, **rest: Any) -> None:
        super().__init__(module, index, dw_builder=self._weights, **rest)
        self._module, self._chunk, self._log, self._beat, self._wave = module, chunk, notes.log, notes.beat, 0

    def forward_one_chunk(self, fwd_chunk_id: int, *rest: Any, **options: Any) -> Any:
        """F."""
        self._beat("")
        began = time.monotonic()
        output = super().forward_one_chunk(fwd_chunk_id, *rest, **options)
        self._log.append((FORWARD, self._chunk, fwd_chunk_id, began, time.monotonic()))
        return output

    def backward_one_chunk(self, bwd_chunk_id: int, *rest: Any, **options: Any) -> Any:
        """I, or B: its weight gradients are noted as a W."""
        self._beat("")
        began, self._wave, before = time.monotonic(), bwd_chunk_id, len(self._log)
        result = super().backward_one_chunk(bwd_chunk_id, *rest, **options)
        ended = self._log[before][3] if len(self._log) > before else time.monotonic()
        self._log.insert(before, (BACKWARD, self._chunk, bwd_chunk_id, began, ended))
        return result

    def _weights(self) -> Callable[[], None]:
        due, wave = self._module.weights(), self._wave

        def run() -> None:
            began = time.monotonic()
            due()
            self._log.append((WEIGHT, self._chunk, wave, began, time.monotonic()))

        return run


class Losses:
    """What the launcher asks of a seat's computation."""

    def __init__(self) -> None:
        self.total = 0.0

    def loss(self) -> float:
        """Sum over the seat's sequences, as a share of the mean over the global batch."""
        return self.total


class TorchRunner:
    """A seat at work under torch's runtime; same face as the executor's."""

    def __init__(
        self, job: Job, work: Work, seat: Seat, meeting: Meeting, folder: Path, beat: Callable[[str], None]
    ) -> None:
        self.job, self.work, self.seat = job, work, seat
        self.compute, self.done = Losses(), list[Done]()
        self._notes = Notes(beat)
        self._times = times(job.problem, work) if job.options.stand_in else ()
        self.part, self._agreement = _part(job, work, seat, meeting)
        self._schedule = self._runtime(folder)

    # making
    def _runtime(self, folder: Path) -> Any:
        pipeline = self.work.plan.pipelines[self.seat.pipeline]
        name, waves = built_in(self.work.plan, pipeline), pipeline.num_micro_batches
        stages = [self._stage(chunk) for chunk in range(self.work.plan.interleave)]
        options = {"loss_fn": lambda output, _: output.sum(), "scale_grads": False}
        if name is not None:
            return getattr(runtimes, name)(stages[0], waves, **options)
        runtime = runtimes._PipelineScheduleRuntime(stages, waves, **options)
        path = folder / f"schedule-{self.seat.rank}.csv"
        path.write_text(schedule_text(self.job, self.seat.pipeline))
        runtime._load_csv(str(path))
        return runtime

    def _stage(self, chunk: int) -> TimedStage:
        p = len(self.work.plan.pipelines[self.seat.pipeline].stages)
        index, count = chunk * p + self.seat.stage, p * self.work.plan.interleave
        module: Any = Layers(self.part, chunk) if self.part is not None else self._waits(chunk)
        given, made = self._example(index - 1), self._example(index)
        options = {"input_args": given, "output_args": made, "num_stages": count}
        return TimedStage(module, index, chunk, self._notes, device=torch.device(self.job.options.device), **options)

    def _waits(self, chunk: int) -> Waits:
        mine = self._times[self.seat.rank]
        seconds = mine.forward_s[chunk], mine.backward_s[chunk], mine.weight_s[chunk]
        return Waits(seconds, numbers(mine, chunk))

    def _example(self, index: int) -> Tensor:
        """What goes from virtual stage ``index`` to the next in one wave; -1: what the first is given."""
        p, work = len(self.work.plan.pipelines[self.seat.pipeline].stages), self.work
        last = index == p * work.plan.interleave - 1
        if self.part is None:
            if index < 0:
                return torch.zeros(1)
            chunk, stage = divmod(index, p)
            mine = self._times[work.rank(self.seat.pipeline, stage)]
            return torch.zeros(numbers(mine, chunk), requires_grad=True)
        start, stop = work.share(self.seat)
        settings, seq = self.part.settings, self.job.problem.workload.seq
        if index < 0:
            return torch.zeros(stop - start, seq + 1, dtype=torch.int64, device=settings.device)
        shape = (1,) if last else (stop - start, seq, work.model.hidden)
        head = torch.float64 if settings.dtype is torch.float64 else torch.float32
        return torch.zeros(shape, dtype=head if last else settings.dtype, device=settings.device, requires_grad=True)

    # running
    def post(self) -> None:
        """The runtime posts receives itself, each when it needs it."""

    def run(self, step: int, start_s: float) -> None:
        """One step; ``start_s`` on the monotonic clock."""
        self._notes.log.clear()
        self._agreement.begin()
        losses: list[Tensor] = []
        stage, waves = self.seat.stage, self.work.plan.pipelines[self.seat.pipeline].num_micro_batches
        last = stage == len(self.work.plan.pipelines[self.seat.pipeline].stages) - 1
        tokens = self._tokens(step) if stage == 0 or last else None
        told: dict[str, Any] = {"target": torch.zeros(waves, 1), "losses": losses} if last else {}
        if last and tokens is not None:
            told["tokens"] = tokens
        given = (tokens if tokens is not None else torch.zeros(waves, 1),) if stage == 0 else ()
        self._schedule.step(*given, **told)
        self.compute.total = float(sum(loss.item() for loss in losses)) if self.seat.leads else 0.0
        self._finish(step, start_s)

    def _finish(self, step: int, start_s: float) -> None:
        """Gradients are agreed, then the optimizer."""
        began = time.monotonic()
        for start, stop in reversed(self.work.chunks(self.seat)):
            for layer in reversed(range(start, stop)):
                self._agreement.ready(layer)
        self._agreement.finish()
        agreed = time.monotonic()
        if self.part is not None:
            self.part.finish(step)
        else:
            time.sleep(self._times[self.seat.rank].finish_s)
        log = self._notes.log
        log += [(3, 0, -1, began, agreed), (4, 0, -1, agreed, time.monotonic())]
        self.done = [Done(kind, chunk, wave, a - start_s, b - start_s) for kind, chunk, wave, a, b in log]

    def _tokens(self, step: int) -> Tensor | None:
        """(waves b, s + 1): all of the step's tokens that the seat works on; None: a stand-in."""
        if self.part is None:
            return None
        work, workload = self.work, self.job.problem.workload
        waves = range(work.plan.pipelines[self.seat.pipeline].num_micro_batches)
        spans: Iterable[tuple[int, int]] = (work.sequences(self.seat, wave) for wave in waves)
        seed, vocab = self.part.settings.seed, work.model.vocab
        drawn = [sequences(step - 1, *span, seq=workload.seq, vocab=vocab, seed=seed) for span in spans]
        return torch.cat(drawn).to(self.part.settings.device)


def numbers(mine: Times, chunk: int) -> int:
    """Numbers of four bytes in what a chunk hands on; at least one."""
    return max(1, -(-mine.down_bytes[chunk] // 4))


def prepare(job: Job, folder: Path, rank: int, beat: Callable[[str], None]) -> TorchRunner:
    """The seat, its neighbours met; ``beat`` hears signs of life."""
    options = job.options
    work = Work(job.problem.model, job.plan, whole_stages=options.stand_in)
    seat = work.seats[rank]
    meeting = Meeting(str(folder), rank, world=len(work.seats), device=options.device)
    os.environ.setdefault("TORCH_GLOO_LAZY_INIT", "1")  # domains that never talk need no way between them
    count = len(work.plan.pipelines[seat.pipeline].stages)
    name = f"column-{seat.pipeline}-{seat.lane}-{seat.tp_index}"
    store = dist.PrefixStore(name, dist.FileStore(str(folder / "store"), len(work.seats)))
    dist.init_process_group(
        "gloo" if options.device == "cpu" else "nccl",
        store=store,
        rank=seat.stage,
        world_size=count,
        timeout=PATIENCE,
    )
    return TorchRunner(job, work, seat, meeting, folder, beat)


def _part(job: Job, work: Work, seat: Seat, meeting: Meeting) -> tuple[Part | None, Agreeing]:
    """The seat's layers (None where it only waits) and how their gradients are agreed."""
    members = work.tensor_group(seat)
    wanted = {bucket.name: bucket.ranks for bucket in buckets(work, seat)}
    team_name = "team-" + "-".join(map(str, members))
    if len(members) > 1:
        wanted[team_name] = members
    groups = {name: meeting.group(name, wanted[name]) for name in sorted(wanted)}
    if job.options.stand_in:
        each, sync_s = job.problem.workload.gradient_bytes_per_parameter, times(job.problem, work)[seat.rank].sync_s
        return None, Agreeing(work, seat, StandInGradients(work, bytes_per_parameter=each, sync_s=sync_s), groups)
    team = GroupTeam(groups[team_name], len(members), seat.tp_index) if len(members) > 1 else None
    split = Split(len(members), seat.tp_index, work.parts)
    part = Part.new(job.problem.model, work.chunks(seat), settings_of(job), split, team or ALONE)
    if job.options.resume_from is not None:
        load(part, Path(job.options.resume_from))
    return part, Agreeing(work, seat, PartGradients(work, seat, part, team), groups)


def schedule_text(job: Job, index: int) -> str:
    """The order of one pipeline as torch's CSV (``compute_only``)."""
    plan, pipeline = job.plan, job.plan.pipelines[index]
    schedule = order_of(plan, pipeline)
    if plan.interleave == 1 and not schedule.fused:
        return torch_schedule(ordering(job.problem, plan, index), schedule).text
    letters, p = "FBW" if schedule.fused else "FIW", len(pipeline.stages)
    rows = [
        [f"{chunk * p + rank}{letters[kind]}{wave}" for kind, chunk, wave in schedule.rank(rank).tolist()]
        for rank in range(p)
    ]
    return "".join(",".join(row) + "\n" for row in rows)
