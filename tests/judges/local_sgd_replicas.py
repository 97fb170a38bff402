"""Local SGD in one process, replica by replica: what a run of it is judged by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from hippo.run.executor.local_sgd import At, Outer
from hippo.run.job import RunJob
from hippo.run.model.stage import Part, StageSettings, sequences
from hippo.run.work import Work

Tensor = torch.Tensor


def local_losses(
    job: RunJob, settings: StageSettings, every: Sequence[int] = (), *, together: int = 0
) -> Iterator[float]:
    """The loss of each step: the mean over the global batch, of replicas that differ between outer steps; ``every``: of
    each step, where that changes; ``together``: first steps in which all train on the whole batch, before they part."""
    model, plan, workload = job.problem.model, job.plan, job.problem.workload
    work = Work(model, plan)
    spans = [_span(work, index) for index in range(len(plan.pipelines))]
    shares = [(stop - start) / workload.global_batch for start, stop in spans]
    parts = [
        Part.new(model, [(0, model.num_layers)], replace(settings, tokens_per_step=(stop - start) * workload.seq))
        for start, stop in spans
    ]
    outers = [Outer.new(part) for part in parts]
    late, mean = int(job.options.outer_late), dict[At, Tensor]()
    for step in range(1, job.options.steps + 1):
        if step <= together:
            yield _as_one(parts, step, job, settings)
            outers = [Outer.new(part) for part in parts]
            continue
        losses = [_train(part, span, step, job) for part, span in zip(parts, spans, strict=True)]
        now = every[step - 1] if every else plan.sync.every
        if step % now == 0:
            mean = _mean(outers, shares)
        if step % now == late % now and mean:
            for outer in outers:
                outer.step(mean)
            mean = {}
        yield sum(loss * share for loss, share in zip(losses, shares, strict=True))


def _as_one(parts: Sequence[Part], step: int, job: RunJob, settings: StageSettings) -> float:
    """Every replica makes the step of the whole batch."""
    whole = replace(settings, tokens_per_step=job.problem.workload.global_batch * job.problem.workload.seq)
    span = (0, job.problem.workload.global_batch)
    return [_train(replace(part, settings=whole), span, step, job) for part in parts][-1]


def _span(work: Work, index: int) -> tuple[int, int]:
    """Sequences [start, stop) of the global batch that a pipeline works on."""
    before = sum(work.wave(p) * p.num_micro_batches for p in work.plan.pipelines[:index])
    pipeline = work.plan.pipelines[index]
    return before, before + work.wave(pipeline) * pipeline.num_micro_batches


def _train(part: Part, span: tuple[int, int], step: int, job: RunJob) -> float:
    total, problem = 0.0, job.problem
    for at in range(*span):
        tokens = sequences(
            step - 1, at, at + 1, seq=problem.workload.seq, vocab=problem.model.vocab, seed=part.settings.seed
        )
        total += float(part.forward((0, at), None, tokens))
        part.backward((0, at), None)
        part.weight((0, at))
    part.finish(step)
    return total


def _mean(outers: list[Outer], shares: list[float]) -> dict[At, Tensor]:
    """Of the differences, by share of the batch."""
    found: dict[At, Tensor] = {}
    for outer, share in zip(outers, shares, strict=True):
        for at, difference in outer.differences():
            found[at] = found[at] + difference * share if at in found else difference * share
    return found
