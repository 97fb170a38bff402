"""Several processes that learn one policy, in the manner of DD-PPO (Wijmans et al. 2020): each runs worlds of its own,
gradients are averaged at every step of the optimizer, and nobody waits for a server. By ``torchrun``, over gloo.

    torchrun --standalone --nproc-per-node 2 --no-python hippo train --out out/train

or by workers of a Ray cluster (``on_ray``).

What is random belongs to a *share* of the worlds, not to a process: two processes with a share each do what one process
does with both, up to the order of sums.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn

from hippo.errors import InputError
from hippo.learn.ppo import Alone, Together

LEAST_SHARE = 0.25
"""Of a roll-out that is cut off."""


@dataclass(frozen=True)
class Ring:
    """The processes that ``torchrun`` started; this one is number ``rank`` of ``size``."""

    rank: int
    size: int

    def average_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """The mean gradient of all processes replaces each one's own, in one message; who has none counts as 0, and
        what nobody has a gradient of stays without one."""
        own = [each.grad for each in parameters]
        flags = torch.tensor([float(each is not None) for each in own])
        filled = [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, own, strict=True)]
        flat = self.summed(torch.cat([flags, *(each.reshape(-1) for each in filled)]))
        some, means = flat[: len(own)], torch.split(flat[len(own) :] / self.size, [each.numel() for each in filled])
        for parameter, has, mean in zip(parameters, some.tolist(), means, strict=True):
            parameter.grad = mean.view_as(parameter) if has else None

    def mean(self, value: Tensor) -> Tensor:
        """Mean of a tensor over the processes."""
        return self.summed(value.detach().clone()) / self.size

    def summed(self, value: Tensor) -> Tensor:
        """Sum of a tensor, which is overwritten, over the processes."""
        dist.all_reduce(value)
        return value


class RollOuts(Protocol):
    """What the processes know of each other's roll-outs."""

    def done(self, update: int) -> None:
        """That for an update has come to its end here."""
        ...

    def enough(self, update: int, share: float) -> bool:
        """Whether this process, which has that share of its own for an update, is to give what it has."""
        ...


@dataclass(frozen=True)
class WholeRollOuts:
    """Everybody waits for everybody: what is learned hangs on nobody's speed."""

    def done(self, update: int) -> None:
        """Nothing to do."""

    def enough(self, update: int, share: float) -> bool:
        """Never."""
        return False


class SharedCounts(Protocol):
    """Numbers that all processes add to: ``torch.distributed``'s stores."""

    def add(self, key: str, value: int, /) -> int:
        """What a number is now."""
        ...


@dataclass(frozen=True)
class CutRollOuts:
    """Once a share ``done_share`` of the ``size`` processes has come to an end, the others end theirs early, but not
    before a quarter (Wijmans et al. 2020, section 3: stragglers are preempted at 60 %)."""

    store: SharedCounts
    size: int
    done_share: float

    def done(self, update: int) -> None:
        """One more."""
        self.store.add(f"done/{update}", 1)

    def enough(self, update: int, share: float) -> bool:
        """Whether so many are done."""
        return share >= LEAST_SHARE and self.store.add(f"done/{update}", 0) >= self.done_share * self.size


@dataclass(frozen=True)
class Place:
    """Which of the processes this one is, and how it speaks to the others."""

    rank: int = 0
    size: int = 1
    together: Together = Alone()
    roll_outs: RollOuts = WholeRollOuts()

    @property
    def first(self) -> bool:
        """Who writes files and speaks to people."""
        return self.rank == 0

    def own(self, shares: int) -> range:
        """Which shares of the worlds this process runs; ``InputError`` where they cannot be dealt out evenly."""
        if shares % self.size:
            problem, remedy = f"cannot be dealt out to {self.size} processes", f"give a multiple of {self.size}"
            raise InputError(problem, source="run.shares", value=shares, remedy=remedy)
        each = shares // self.size
        return range(self.rank * each, (self.rank + 1) * each)


@contextmanager
def connected() -> Iterator[Place]:
    """The place of this process among those that ``torchrun`` started; alone when it did not."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield Place()
        return
    dist.init_process_group("gloo")
    try:
        rank = dist.get_rank()
        yield Place(rank, size, Ring(rank, size))
    finally:
        dist.destroy_process_group()


def gathered(place: Place, mine: object) -> list[object]:
    """What each process holds, in their order, at the first; an empty list at the others."""
    if place.size == 1:
        return [mine]
    found: list[object] = [None] * place.size
    dist.gather_object(mine, found if place.first else None)
    return found if place.first else []


def agreed(place: Place, answer: bool) -> bool:
    """The first process's answer, for all: nobody may stop alone."""
    if place.size == 1:
        return answer
    told = torch.tensor([float(answer)])
    dist.broadcast(told, 0)
    return bool(told.item())
