"""Local SGD in one process, replica by replica: what a run of it is judged by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace

import torch

from hippo.plan.plan import Plan
from hippo.run.job import RunJob
from hippo.run.model.stage import At, Part, StageSettings, sequences
from hippo.run.work import Work

Tensor = torch.Tensor


@dataclass(frozen=True)
class Left:
    """Who goes on from a step on: pipelines by their numbers, and how many waves each has. ``updating``: the others
    were lost when that step's weights changed, else before all had agreed on it. ``copies``: where the plan is
    another one, ``plan``, of whom each of its pipelines is a copy."""

    step: int
    waves: Mapping[int, int]
    updating: bool = False
    copies: Mapping[int, int] = field(default_factory=dict)
    plan: Plan | None = None


@dataclass(eq=False)
class Mine:
    """A replica's outer optimizer (DiLoCo, algorithm 1), of its own here: where all began, the momentum, what was told.
    It begins with the weights as they are, where nothing else is given."""

    part: Part
    start: dict[At, Tensor] = field(default_factory=dict)
    velocity: dict[At, Tensor] = field(default_factory=dict)
    told: dict[At, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.start:
            self.start = {at: master.clone() for at, master in self.masters()}
            self.velocity = {at: torch.zeros_like(master) for at, master in self.masters()}

    def masters(self) -> Iterator[tuple[At, Tensor]]:
        """Every weight, once."""
        for layer, states in self.part.states.items():
            for name, state in states.items():
                yield (layer, name), state.master

    def tell(self) -> None:
        """What it has now."""
        self.told = {at: master.clone() for at, master in self.masters()}

    def differences(self) -> Iterator[tuple[At, Tensor]]:
        """By how much it has moved, against the direction of learning."""
        return ((at, self.start[at] - told) for at, told in self.told.items())

    @torch.no_grad()
    def step(self, mean: Mapping[At, Tensor], rate: float = 0.7, momentum: float = 0.9) -> None:
        """SGD with Nesterov momentum; what was done since it told is kept."""
        for at, master in self.masters():
            self.velocity[at] = momentum * self.velocity[at] + mean[at]
            since = master - self.told[at]
            self.start[at] = self.start[at] - rate * (mean[at] + momentum * self.velocity[at])
            master.copy_(self.start[at] + since)


def local_losses(
    job: RunJob,
    settings: StageSettings,
    every: Sequence[int] = (),
    *,
    together: int = 0,
    left: Sequence[Left] = (),
) -> Iterator[float]:
    """The loss of each step: the mean over the global batch, of replicas that differ between outer steps; ``every``: of
    each step, where that changes; ``together``: first steps in which all train on the whole batch, before they part;
    ``left``: replicas that are lost, of whom nothing is used that was not used by all."""
    model, plan, workload = job.problem.model, job.plan, job.problem.workload
    work = Work(model, plan)
    here = {index: each.num_micro_batches for index, each in enumerate(plan.pipelines)}
    parts = {index: Part.new(model, [(0, model.num_layers)], settings) for index in here}
    outers = {index: Mine(part) for index, part in parts.items()}
    late, told = int(job.options.outer_late), False
    for step in range(1, job.options.steps + 1):
        if step <= together:
            yield _as_one(list(parts.values()), step, job, settings)
            outers = {index: Mine(part) for index, part in parts.items()}
            continue
        for change in left:
            if change.step == step and not change.updating:
                if len(here) == 1 < len(change.waves):  # where there was one, all begin as it is
                    outers = {index: Mine(parts[index]) for index in here}
                was = {index: (parts[one], outers[one]) for index, one in change.copies.items()}
                for index, (part, outer) in was.items():
                    weights, states, start, velocity = deepcopy(
                        (part.weights, part.states, outer.start, outer.velocity)
                    )
                    parts[index] = replace(part, weights=weights, states=states)
                    outers[index] = Mine(parts[index], start, velocity)
                here, work = dict(change.waves), work if change.plan is None else Work(model, change.plan)
        spans = _spans(work, here)
        shares = {index: (stop - start) / workload.global_batch for index, (start, stop) in spans.items()}
        losses = {}
        for index, (start, stop) in spans.items():
            mine = replace(settings, tokens_per_step=(stop - start) * workload.seq)
            losses[index] = _train(replace(parts[index], settings=mine), (start, stop), step, job)
        loss = sum(losses[index] * shares[index] for index in spans)
        here = next((dict(each.waves) for each in left if each.step == step and each.updating), here)
        now = every[step - 1] if every else plan.sync.every
        if step % now == 0:
            told = len(here) > 1
            for index in here:
                outers[index].tell()
        if step % now == late % now and told:
            spans = _spans(work, here)
            batch = {index: (stop - start) / workload.global_batch for index, (start, stop) in spans.items()}
            mean = _mean([outers[index] for index in here], list(batch.values()))
            for index in here if len(here) > 1 else ():
                outers[index].step(mean)
            told = False
        yield loss


def _as_one(parts: Sequence[Part], step: int, job: RunJob, settings: StageSettings) -> float:
    """Every replica makes the step of the whole batch."""
    whole = replace(settings, tokens_per_step=job.problem.workload.global_batch * job.problem.workload.seq)
    span = (0, job.problem.workload.global_batch)
    return [_train(replace(part, settings=whole), span, step, job) for part in parts][-1]


def _spans(work: Work, waves: Mapping[int, int]) -> dict[int, tuple[int, int]]:
    """Sequences [start, stop) of the global batch that each pipeline works on, by its number."""
    found, before = {}, 0
    for index, count in waves.items():
        after = before + work.wave(work.plan.pipelines[index]) * count
        found[index], before = (before, after), after
    return found


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


def _mean(outers: list[Mine], shares: list[float]) -> dict[At, Tensor]:
    """Of the differences, by share of the batch."""
    found: dict[At, Tensor] = {}
    for outer, share in zip(outers, shares, strict=True):
        for at, difference in outer.differences():
            found[at] = found[at] + difference * share if at in found else difference * share
    return found
