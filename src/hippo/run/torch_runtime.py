"""Chunks of a stage as modules of ``torch.distributed.pipelining``: the same layers, or waits as long as they take.

The gradients of the weights are made by hand, through the runtime's own hook for that (``dw_builder``): with a whole
backward right behind the gradient of the input, with a split one when W is due.
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
from hippo.problem.model import LayerKind
from hippo.run.executor.agree import Agreeing, PartGradients, StandInGradients, buckets
from hippo.run.executor.channels import PATIENCE, GroupTeam, Meeting
from hippo.run.executor.step import Done
from hippo.run.fits import built_in
from hippo.run.job import RunJob
from hippo.run.model.layers import WeightGradients
from hippo.run.model.stage import ALONE, Part, sequences, settings_of
from hippo.run.model.store import load
from hippo.run.model.weights import TensorSplit, Weight
from hippo.run.stand_in import StageTimes, times
from hippo.run.version import Version
from hippo.run.work import Worker
from hippo.schedule.schedule import order_of
from hippo.schedule.torch_csv import torch_schedule
from hippo.simulate.ordering import ordering

Tensor = torch.Tensor


class PipelineChunk(torch.nn.Module):
    """A module that makes the gradients of its weights by hand."""

    def weights(self) -> Callable[[], None]:
        """What is left to do after the backward that has just run."""
        raise NotImplementedError


class _Noted(WeightGradients):
    """A ledger that says whose backward runs."""

    def __init__(self, chunk: ChunkOfLayers) -> None:
        super().__init__()
        self._chunk = chunk

    def note(self, layer: int, weight: Weight, given: Tensor, gradient: Tensor) -> None:
        """Keeps what the gradient of a weight needs."""
        self._chunk.at_work = self
        super().note(layer, weight, given, gradient)


class _Again(torch.autograd.Function):
    """Nothing is kept but the input; the way back runs forward once more. (torch's own loads for seconds.)"""

    @staticmethod
    def forward(ctx: Any, given: Tensor, start: Tensor, run: Callable[[Tensor], Tensor]) -> Tensor:
        """Without a graph."""
        ctx.run = run
        ctx.save_for_backward(given)
        return run(given)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        """Gradient of the input."""
        (given,) = ctx.saved_tensors
        entering = given.detach()
        entering.requires_grad_(entering.is_floating_point())
        with torch.enable_grad():
            output = ctx.run(entering)
        torch.autograd.backward(output, gradients[0])
        return entering.grad, None, None


class ChunkOfLayers(PipelineChunk):
    """Real layers: one chunk of a part. What comes and goes lies where messages lie, on a shared GPU not with them."""

    def __init__(self, part: Part, chunk: int) -> None:
        super().__init__()
        self.part, self.chunk = part, chunk
        self.at_work: WeightGradients | None = None
        self.start = torch.zeros(1, requires_grad=True)  # so that there is something to go back to

    def forward(self, given: Tensor, tokens: Tensor | None = None) -> Tensor:
        """Activations (b, s, h) of activations, or of tokens (b, s + 1) where the model begins; its end gives (1,)."""
        talks_on, computes_on = given.device, self.part.settings.device
        given, tokens = given.to(computes_on), None if tokens is None else tokens.to(computes_on)
        start, stop = self.part.chunks[self.chunk]
        layers = self.part.model.layers
        begins = layers[start].kind is LayerKind.EMBEDDING
        at, ledger = (self.chunk, 0), _Noted(self)

        def run(given: Tensor) -> Tensor:
            return self.part.through(at, None if begins else given, given if begins else tokens, ledger)

        again = self.part.settings.recompute
        output: Tensor = _Again.apply(given, self.start, run) if again else run(given)  # type: ignore[no-untyped-call]
        return (output.reshape(1) if layers[stop - 1].kind is LayerKind.HEAD else output).to(talks_on)

    def weights(self) -> Callable[[], None]:
        """Adds what the backward that has just run owes to the weights."""
        ledger, self.at_work = self.at_work, None
        self.part.take_vectors(self.chunk)
        return ledger.settle if ledger is not None else lambda: None


class _Wait(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, given: Tensor, start: Tensor, wait: ChunkOfWaits) -> Tensor:
        """Zeros after a while; ``start``: so that there is something to go back to."""
        ctx.wait, ctx.shape, ctx.real = wait, given.shape, given.is_floating_point()
        time.sleep(wait.forward_s)
        return torch.zeros(wait.numbers)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        """Zeros after a while."""
        time.sleep(ctx.wait.backward_s)
        return torch.zeros(ctx.shape) if ctx.real else None, None, None


class ChunkOfWaits(PipelineChunk):
    """ChunkOfWaits in place of layers; what it gives has so many numbers of four bytes."""

    def __init__(self, seconds: tuple[float, float, float], numbers: int) -> None:
        super().__init__()
        self.forward_s, self.backward_s, self.weight_s = seconds
        self.numbers = numbers
        self.start = torch.nn.Parameter(torch.zeros(1))

    def forward(self, given: Tensor, tokens: Tensor | None = None) -> Tensor:
        """Zeros (numbers,)."""
        return _Wait.apply(given, self.start, self)  # type: ignore[no-any-return, no-untyped-call]

    def weights(self) -> Callable[[], None]:
        """ChunkOfWaits as long as the weight gradients take."""
        return lambda: time.sleep(self.weight_s)


# -------------------------------------------------------------------------------------------------------------- runner
# One worker under ``torch.distributed.pipelining``: what the executor is held against. Same layers, same messages.
#
# Every column of ranks (same pipeline, lane and place in the tensor-parallel team) is a process group of its own,
# gloo's default with connections made when they are first used. The runtime posts each receive when it needs it and
# each send where its schedule has it; gradients are agreed after the last backward.


dist: Any = torch.distributed  # its types leave out what is used here
runtimes: Any = torch.distributed.pipelining.schedules
Entry = tuple[int, int, int, float, float]  # kind, chunk, wave, start and end on the monotonic clock


@dataclass(frozen=True)
class Notes:
    """What a worker did, and who hears that it lives."""

    beat: Callable[[str], None]
    log: list[Entry] = field(default_factory=list)


class TimedStage(PipelineStage):
    """A stage of the runtime that notes when it ran what, and says that it lives."""

    def __init__(self, module: PipelineChunk, index: int, chunk: int, notes: Notes, **rest: Any) -> None:
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


class PipelineLosses:
    """What the launcher asks of a worker's computation."""

    def __init__(self) -> None:
        self.total = 0.0

    def loss(self) -> float:
        """Sum over the worker's sequences, as a share of the mean over the global batch."""
        return self.total


class TorchRunner:
    """A worker at work under torch's runtime; same face as the executor's."""

    def __init__(
        self, version: Version, worker: Worker, meeting: Meeting, folder: Path, beat: Callable[[str], None]
    ) -> None:
        job, work = version.job, version.job.work
        self.job, self.work, self.worker = job, work, worker
        self.compute, self.done = PipelineLosses(), list[Done]()
        self._notes = Notes(beat)
        self._times = times(job.problem, work) if job.options.stand_in else ()
        self.part, self._agreement = _part(version, worker, meeting)
        self._schedule = self._runtime(folder)

    # making
    def _runtime(self, folder: Path) -> Any:
        pipeline = self.work.plan.pipelines[self.worker.pipeline]
        name, waves = built_in(self.work.plan, pipeline), pipeline.num_micro_batches
        stages = [self._stage(chunk) for chunk in range(self.work.plan.interleave)]
        options = {"loss_fn": lambda output, _: output.sum(), "scale_grads": False}
        if name is not None:
            return getattr(runtimes, name)(stages[0], waves, **options)
        runtime = runtimes._PipelineScheduleRuntime(stages, waves, **options)
        path = folder / f"schedule-{self.worker.rank}.csv"
        path.write_text(schedule_text(self.job, self.worker.pipeline))
        runtime._load_csv(str(path))
        return runtime

    def _stage(self, chunk: int) -> TimedStage:
        p = len(self.work.plan.pipelines[self.worker.pipeline].stages)
        index, count = chunk * p + self.worker.stage, p * self.work.plan.interleave
        module: Any = ChunkOfLayers(self.part, chunk) if self.part is not None else self._waits(chunk)
        given, made = self._example(index - 1), self._example(index)
        options = {"input_args": given, "output_args": made, "num_stages": count}
        return TimedStage(module, index, chunk, self._notes, device=torch.device(self.job.options.talks_on), **options)

    def _waits(self, chunk: int) -> ChunkOfWaits:
        mine = self._times[self.worker.rank]
        seconds = mine.forward_s[chunk], mine.backward_s[chunk], mine.weight_s[chunk]
        return ChunkOfWaits(seconds, numbers(mine, chunk))

    def _example(self, index: int) -> Tensor:
        """What goes from virtual stage ``index`` to the next in one wave; -1: what the first is given."""
        p, work = len(self.work.plan.pipelines[self.worker.pipeline].stages), self.work
        last = index == p * work.plan.interleave - 1
        if self.part is None:
            if index < 0:
                return torch.zeros(1)
            chunk, stage = divmod(index, p)
            mine = self._times[work.rank(self.worker.pipeline, stage)]
            return torch.zeros(numbers(mine, chunk), requires_grad=True)
        start, stop = work.share(self.worker)
        settings, seq, device = self.part.settings, self.job.problem.workload.seq, self.job.options.talks_on
        if index < 0:
            return torch.zeros(stop - start, seq + 1, dtype=torch.int64, device=device)
        shape = (1,) if last else (stop - start, seq, work.model.hidden)
        head = torch.float64 if settings.dtype is torch.float64 else torch.float32
        return torch.zeros(shape, dtype=head if last else settings.dtype, device=device, requires_grad=True)

    # running
    def post(self) -> None:
        """The runtime posts receives itself, each when it needs it."""

    def run(self, step: int, start_s: float) -> None:
        """One step up to the agreed gradients; ``start_s`` on the monotonic clock."""
        self._notes.log.clear()
        self._agreement.begin()
        losses: list[Tensor] = []
        stage, waves = self.worker.stage, self.work.plan.pipelines[self.worker.pipeline].num_micro_batches
        last = stage == len(self.work.plan.pipelines[self.worker.pipeline].stages) - 1
        tokens = self._tokens(step) if stage == 0 or last else None
        told: dict[str, Any] = {"target": torch.zeros(waves, 1), "losses": losses} if last else {}
        if last and tokens is not None:
            told["tokens"] = tokens
        given = (tokens if tokens is not None else torch.zeros(waves, 1),) if stage == 0 else ()
        self._schedule.step(*given, **told)
        self.compute.total = float(sum(loss.item() for loss in losses)) if self.worker.leads else 0.0
        self._agree(start_s)

    def give_up(self) -> None:
        """Nobody can: the runtime's messages cannot be taken back."""
        raise RuntimeError("a step under torch's runtime cannot be given up")

    def _agree(self, start_s: float) -> None:
        began = time.monotonic()
        for start, stop in reversed(self.work.chunks(self.worker)):
            for layer in reversed(range(start, stop)):
                self._agreement.ready(layer)
        self._agreement.finish()
        log = [*self._notes.log, (3, 0, -1, began, time.monotonic())]
        self.done = [Done(kind, chunk, wave, a - start_s, b - start_s) for kind, chunk, wave, a, b in log]

    def update(self, step: int, start_s: float) -> None:
        """The optimizer: the step is over."""
        began = time.monotonic() - start_s
        if self.part is not None:
            self.part.finish(step)
        else:
            time.sleep(self._times[self.worker.rank].finish_s)
        self.done.append(Done(4, 0, -1, began, time.monotonic() - start_s))

    def _tokens(self, step: int) -> Tensor | None:
        """(waves b, s + 1): all of the step's tokens that the worker works on; None: a stand-in."""
        if self.part is None:
            return None
        work, workload = self.work, self.job.problem.workload
        waves = range(work.plan.pipelines[self.worker.pipeline].num_micro_batches)
        spans: Iterable[tuple[int, int]] = (work.sequences(self.worker, wave) for wave in waves)
        seed, vocab = self.part.settings.seed, work.model.vocab
        drawn = [sequences(step - 1, *span, seq=workload.seq, vocab=vocab, seed=seed) for span in spans]
        return torch.cat(drawn).to(self.job.options.talks_on)


def numbers(mine: StageTimes, chunk: int) -> int:
    """Numbers of four bytes in what a chunk hands on; at least one."""
    return max(1, -(-mine.down_bytes[chunk] // 4))


def prepare(
    version: Version, worker: Worker, meeting: Meeting, folder: Path, beat: Callable[[str], None]
) -> TorchRunner:
    """The worker, its neighbours met; ``folder``: of the version. ``beat`` hears signs of life."""
    job = version.job
    options, work = job.options, job.work
    os.environ.setdefault("TORCH_GLOO_LAZY_INIT", "1")  # domains that never talk need no way between them
    count = len(work.plan.pipelines[worker.pipeline].stages)
    name = f"column-{worker.pipeline}-{worker.lane}-{worker.tp_index}"
    store = dist.PrefixStore(name, dist.FileStore(str(folder / "store"), -1))
    dist.init_process_group(
        "gloo" if options.talks_on == "cpu" else "nccl",
        store=store,
        rank=worker.stage,
        world_size=count,
        timeout=PATIENCE,
    )
    return TorchRunner(version, worker, meeting, folder, beat)


def _part(version: Version, worker: Worker, meeting: Meeting) -> tuple[Part | None, Agreeing]:
    """The worker's layers (None where it only waits) and how their gradients are agreed."""
    job, work = version.job, version.job.work
    members = work.tensor_group(worker)
    wanted = {bucket.name: bucket.ranks for bucket in buckets(work, worker)}
    team_name = "team-" + "-".join(map(str, members))
    if len(members) > 1:
        wanted[team_name] = members
    groups = {
        name: meeting.group(f"version-{version.number}-{name}", [version.members[rank] for rank in wanted[name]])
        for name in sorted(wanted)
    }
    if job.options.stand_in:
        each, sync_s = job.problem.workload.gradient_bytes_per_parameter, times(job.problem, work)[worker.rank].sync_s
        return None, Agreeing(work, worker, StandInGradients(work, bytes_per_parameter=each, sync_s=sync_s), groups)
    lanes = len(members), worker.tp_index
    team = GroupTeam(groups[team_name], *lanes, meeting.log) if len(members) > 1 else None
    split = TensorSplit(len(members), worker.tp_index, work.parts)
    part = Part.new(job.problem.model, work.chunks(worker), settings_of(job), split, team or ALONE)
    if job.options.resume_from is not None:
        load(part, Path(job.options.resume_from))
    return part, Agreeing(work, worker, PartGradients(work, worker, part, team), groups)


def schedule_text(job: RunJob, index: int) -> str:
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
