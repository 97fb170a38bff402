"""The same training in one process: what every plan's loss is held against."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hippo.launch.model.stage import Part, Settings
from hippo.launch.model.tokens import sequences
from hippo.problem.problem import Problem


def losses(
    problem: Problem, settings: Settings, *, steps: int, micro_batch: int = 1, done: Callable[[int], None] | None = None
) -> Iterator[float]:
    """The loss of each step, made as it is asked for; ``done`` hears of every micro-batch."""
    model, workload = problem.model, problem.workload
    part = Part.new(model, [(0, model.num_layers)], settings)
    for step in range(steps):
        total = 0.0
        for start in range(0, workload.global_batch, micro_batch):
            stop = min(start + micro_batch, workload.global_batch)
            tokens = sequences(step, start, stop, seq=workload.seq, vocab=model.vocab, seed=settings.seed)
            total += float(part.forward((0, start), None, tokens))
            part.backward((0, start), None)
            part.weight((0, start))
            if done is not None:
                done(stop)
        part.finish(step + 1)
        yield total
