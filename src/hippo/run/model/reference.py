"""The same training in one process: what every plan's loss is held against.

``python -m hippo.run.model.reference FOLDER`` prints the loss of each step of the folder's job, one a line.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from hippo.problem.problem import Problem
from hippo.run.job import RunJob
from hippo.run.model.stage import Part, StageSettings, sequences, settings_of


def losses(problem: Problem, settings: StageSettings, *, steps: int, micro_batch: int = 1) -> Iterator[float]:
    """The loss of each step, made as it is asked for."""
    model, workload = problem.model, problem.workload
    part = Part.new(model, [(0, model.num_layers)], settings)
    for step in range(steps):
        total = 0.0
        for start in range(0, workload.global_batch, micro_batch):
            stop = min(start + micro_batch, workload.global_batch)
            tokens = sequences(step, start, stop, seq=workload.seq, vocab=model.vocab, seed=settings.seed)
            total += float(part.forward((0, start), None, tokens.to(settings.device)))
            part.backward((0, start), None)
            part.weight((0, start))
        part.finish(step + 1)
        yield total


def main() -> None:
    """Prints the losses of a job as they are found."""
    torch.set_num_threads(1)
    job = RunJob.read(Path(sys.argv[1]))
    found = losses(job.problem, settings_of(job), steps=job.options.steps, micro_batch=job.plan.micro_batch)
    for loss in found:
        sys.stdout.write(json.dumps(loss) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
