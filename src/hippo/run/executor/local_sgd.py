"""Replicas that train alone and agree on parameters every H steps; the sum may go round while they train on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from hippo.problem.workload import Workload
from hippo.run.dispatching import WorkerNoise
from hippo.run.executor.agree import Agreeing, PartGradients, StandInGradients
from hippo.run.executor.channels import GroupTeam
from hippo.run.executor.compute import Layers, StandIn
from hippo.run.job import RunJob, replicas_alone
from hippo.run.model.stage import At, Part
from hippo.run.model.store import held_beside
from hippo.run.model.weights import Weight, forms
from hippo.run.stand_in import StageTimes
from hippo.run.work import Work, Worker

MATRIX = "matrix"
Tensor = torch.Tensor


def is_local(work: Work) -> bool:
    """Whether replicas agree on parameters now and then."""
    return replicas_alone(work.plan) > 1


@dataclass(frozen=True)
class Within(Work):
    """A plan as processes of which only those of one pipeline agree on gradients."""

    pipeline: int = 0

    def holders(self, layer: int, part: int) -> tuple[int, ...]:
        """Ranks of the pipeline that hold a part of a layer."""
        return tuple(rank for rank in super().holders(layer, part) if self.workers[rank].pipeline == self.pipeline)


def inner_work(work: Work, worker: Worker) -> Work:
    """Who agrees with a worker on every step's gradients."""
    if not is_local(work):
        return work
    return Within(work.model, work.plan, work.whole_stages, work.lanes, worker.pipeline)


def share(work: Work, worker: Worker) -> float:
    """Of the global batch, that the worker's pipeline works on."""
    if not is_local(work):
        return 1.0
    pipeline = work.plan.pipelines[worker.pipeline]
    return work.wave(pipeline) * pipeline.num_micro_batches / work.plan.global_batch


# --------------------------------------------------------------------------------------------------------------- outer
# The outer optimizer of local SGD (DiLoCo, Douillard et al. 2023, arXiv 2311.08105, algorithm 1).
#
# Replicas train alone for H steps of AdamW. Then the mean over the replicas of what each has moved since the last
# outer step is a gradient, which SGD with Nesterov momentum takes from where all began. Where the mean comes in late
# (while replicas train on), what a replica has done since it told its difference is kept.


@dataclass(frozen=True)
class OuterRates:
    """Settings of the outer optimizer; the paper's."""

    learning: float = 0.7
    momentum: float = 0.9


@torch.no_grad()
def begin_outer(part: Part) -> None:
    """All replicas begin at the weights that there are now, with no momentum; what has begun before stays."""
    for key, made in (("start", torch.clone), ("velocity", torch.zeros_like)):
        held = part.outer.setdefault(key, {})
        for layer, states in part.states.items():
            held |= {(layer, name): made(one.master) for name, one in states.items() if (layer, name) not in held}


@dataclass(frozen=True, eq=False)
class Outer:
    """State of one worker, kept beside the state of its weights: where all replicas began, and the momentum; and what
    it had when it told its difference."""

    part: Part
    rates: OuterRates = OuterRates()
    told: dict[At, Tensor] = field(default_factory=dict)

    @classmethod
    def new(cls, part: Part, rates: OuterRates = OuterRates()) -> Outer:
        """Of a part, whose weights begin here where they have not begun before."""
        begin_outer(part)
        return cls(part, rates)

    @property
    def start(self) -> dict[At, Tensor]:
        """Where all replicas began."""
        return self.part.outer["start"]

    @property
    def velocity(self) -> dict[At, Tensor]:
        """The outer momentum."""
        return self.part.outer["velocity"]

    @torch.no_grad()
    def anew(self) -> None:
        """All replicas, which are alike, begin here."""
        for at, master in self.masters():
            self.start[at].copy_(master)
            self.velocity[at].zero_()

    def restore(self, folder: Path) -> None:
        """As a checkpoint has it."""
        for key, held in self.part.outer.items():
            held.update(held_beside(self.part, folder, key))

    def masters(self) -> Iterator[tuple[At, Tensor]]:
        """Every weight in full precision, once."""
        for layer, states in self.part.states.items():
            for name, state in states.items():
                yield (layer, name), state.master

    @torch.no_grad()
    def tell(self) -> None:
        """What it has now is what ``differences`` are of."""
        for at, master in self.masters():
            self.told[at] = master.clone()

    def differences(self) -> Iterator[tuple[At, Tensor]]:
        """What the replica had moved since the last outer step when it told, against the direction of learning."""
        for at, told in self.told.items():
            yield at, self.start[at] - told

    @torch.no_grad()
    def step(self, mean: Mapping[At, Tensor]) -> None:
        """The outer step with the mean of all differences."""
        for at, master in self.masters():
            velocity = self.velocity[at].mul_(self.rates.momentum).add_(mean[at])
            self.start[at].sub_(mean[at] + self.rates.momentum * velocity, alpha=self.rates.learning)
            master.sub_(self.told[at]).add_(self.start[at])
            value = self.part.weights[at[0]][at[1]].value
            if value.dtype != master.dtype:
                value.detach().copy_(master)


class _Differences(PartGradients):
    """What replicas have moved, in place of gradients: every rank of a team knows its own whole."""

    def complete(self, layer: int) -> None:
        """Nothing to do."""


class OuterSteps:
    """When the replicas of a worker agree, and on what. ``late``: how many steps after the sum began it is used.

    A sum is used once all who take part have it (``use``, by the launcher's word). Where one is lost before that, it
    was used by nobody, and those who are left make it anew among themselves, of what they had told.
    """

    def __init__(
        self, work: Work, worker: Worker, agreement: Agreeing, beat: Callable[[str], None], *, late: int
    ) -> None:
        self.work, self.worker, self.agreement, self.beat = work, worker, agreement, beat
        self.every, self.late = work.plan.sync.every, late
        self._under_way, self._is_here, self._posted = False, False, False

    def begin(self) -> None:
        """A step starts: receives of the next sum are posted."""
        if not self._posted:
            self.agreement.post()
            self._posted = True

    def after(self, step: int) -> None:
        """A step is over: a sum begins, one that is to be used now is waited for. ``BrokenError``: it is not made."""
        if step % self.every == 0:
            self.tell()
            self._sum()
        self.wait(step)

    def wait(self, step: int, *, now: bool = False) -> None:
        """A sum that is under way and to be used after this step, or ``now``, is waited for. ``BrokenError``: it is not
        made."""
        if self._under_way and not self._is_here and (now or step % self.every == self.late % self.every):
            self.beat("waits for replicas to agree on parameters")
            self.agreement.collect()  # nobody waits for a tensor-parallel partner, which may be waiting for who is lost
            self._is_here = True

    def use(self) -> None:
        """All have the sum that was waited for: it is used."""
        if self._is_here:
            self.agreement.gradients.spread()
            self.step()
            self.agreement.post()
            self._under_way = self._is_here = False

    def give_up(self) -> None:
        """Somebody is lost: what is summed, or was to be, is not used by anybody."""
        self.agreement.give_up()
        self._is_here = self._posted = False

    def all_begin(self) -> None:
        """All replicas, which are alike, begin here."""

    def go_on_from(self, before: OuterSteps) -> None:
        """Of another plan: what was told and not used is summed by those who are here; by nobody where weights are cut
        another way now, which all know."""
        if before._under_way and self.is_cut_as(before.work):
            self.begin()
            self._sum()

    def is_cut_as(self, before: Work) -> bool:
        """Whether what was told is of weights as they are cut now."""
        return True

    def _sum(self) -> None:
        self.ready()
        self.agreement.begin()
        for start, stop in reversed(self.work.chunks(self.worker)):
            for layer in reversed(range(start, stop)):
                self.agreement.ready(layer)
        self._under_way = True

    def tell(self) -> None:
        """What is to be summed is what there is now."""

    def ready(self) -> None:
        """What was told is made ready."""

    def step(self) -> None:
        """The outer step."""


@dataclass(frozen=True, eq=False)
class OuterTies:
    """With whom a worker agrees on parameters, and how many steps after it asked it must know."""

    groups: dict[str, Any]
    team: GroupTeam | None
    beat: Callable[[str], None]  # hears what is waited for
    late: int


class OuterLayers(OuterSteps):
    """Of real layers."""

    def __init__(self, work: Work, worker: Worker, part: Part, ties: OuterTies) -> None:
        self.outer, self._carrier = Outer.new(part), _carrier(part)
        gradients = _Differences(work, worker, self._carrier, ties.team)
        super().__init__(work, worker, Agreeing(work, worker, gradients, ties.groups), ties.beat, late=ties.late)

    def go_on_from(self, before: OuterSteps) -> None:
        """Replicas had told what they did."""
        assert isinstance(before, OuterLayers), "real layers go on from real layers"
        its = before.outer.told
        self.outer.told.update({at: its[at] for at in self.outer.start if at in its})
        super().go_on_from(before)

    def is_cut_as(self, before: Work) -> bool:
        """Whether the same weights are split and whole, as the finest split of a plan decides (few key-value heads)."""
        model, (were, are) = self.work.model, (before.parts, self.work.parts)
        return all(forms(model, layer, were) == forms(model, layer, are) for layer in range(model.num_layers))

    def all_begin(self) -> None:
        """All replicas, which are alike, begin here."""
        self.outer.anew()

    def tell(self) -> None:
        """What there is now."""
        self.outer.tell()

    def ready(self) -> None:
        """Differences, such that their sum over all who take part is the mean by share of the batch."""
        for (layer, name), difference in self.outer.differences():
            scale = share(self.work, self.worker) / self._told_by(layer, name)
            self._carrier.weights[layer][name].total.copy_(difference * scale)

    def _told_by(self, layer: int, name: str) -> int:
        """Ranks of the own pipeline that take part in the sum of a weight."""
        tied = self.work.tied
        ends = (0, self.work.model.num_layers - 1)
        ranks = tied if tied and name == MATRIX and layer in ends else self.work.holders(layer, 0)
        return sum(self.work.workers[rank].pipeline == self.worker.pipeline for rank in ranks)

    def step(self) -> None:
        """The outer step."""
        self.outer.step({at: self._carrier.weights[at[0]][at[1]].total for at in self.outer.start})


def _carrier(part: Part) -> Part:
    """Room for differences, shaped as the part; what is shared there is shared here."""
    made: dict[int, Weight] = {}

    def twin(weight: Weight) -> Weight:
        if id(weight) not in made:
            made[id(weight)] = Weight(weight.form, weight.value, weight.total.clone())
        return made[id(weight)]

    weights = {layer: {name: twin(one) for name, one in named.items()} for layer, named in part.weights.items()}
    return replace(part, weights=weights)


class LocalLayers(Layers):
    """Real layers of a replica that trains alone."""

    def __init__(
        self, work: Work, worker: Worker, part: Part, workload: Workload, noise: WorkerNoise, outer: OuterLayers
    ) -> None:
        super().__init__(work, worker, part, workload, noise)
        self.outer, self._of_batch = outer, share(work, worker)

    def begin(self, step: int) -> None:
        """A step starts."""
        super().begin(step)
        self.outer.begin()

    def finish(self, step: int) -> None:
        """AdamW; now and then the outer step."""
        super().finish(step)
        self.outer.after(step)

    def give_up(self) -> None:
        """Gradients go, and sums."""
        super().give_up()
        self.outer.give_up()

    def loss(self) -> float:
        """As a share of the mean over the global batch."""
        return super().loss() * self._of_batch


class LocalStandIn(StandIn):
    """A stand-in that sends as much, as often."""

    def __init__(
        self, times: StageTimes, layers: tuple[tuple[int, int], ...], noise: WorkerNoise, outer: OuterSteps
    ) -> None:
        super().__init__(times, layers, noise)
        self.outer = outer

    def begin(self, step: int) -> None:
        """A step starts."""
        super().begin(step)
        self.outer.begin()

    def finish(self, step: int) -> None:
        """Waits as long as the optimizer takes; now and then for the others."""
        super().finish(step)
        self.outer.after(step)

    def give_up(self) -> None:
        """Sums go."""
        self.outer.give_up()


def outer_stand_in(
    job: RunJob, work: Work, worker: Worker, groups: dict[str, Any], beat: Callable[[str], None]
) -> OuterSteps:
    """The outer steps of a worker that only waits."""
    each = job.problem.workload.gradient_bytes_per_parameter
    gradients = StandInGradients(work, bytes_per_parameter=each, sync_s=0.0)
    return OuterSteps(work, worker, Agreeing(work, worker, gradients, groups), beat, late=job.options.outer_late)
