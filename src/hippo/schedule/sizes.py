"""The same samples cut into micro-batches of another size.

Larger micro-batches fill the accelerator better and are fewer, so that a fixed cost per pass is paid less often; they
also keep more memory each and fill the pipeline later. A pass of n samples takes ``fixed + n per_sample``; memory and
messages grow in proportion to n, latencies and limits stay.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hippo.errors import InputError
from hippo.schedule.problem import MicroBatchMemory, RankLink, ScheduleProblem


@dataclass(frozen=True)
class Sized:
    """A problem, the samples in each of its micro-batches, and what of its times does not depend on them."""

    problem: ScheduleProblem
    size: int = 1  # samples per micro-batch, >= 1
    fixed: tuple[tuple[float, ...], ...] = ()  # (3, p) fixed part of F, B and W on each rank; empty: none
    ident: str | int | None = None  # as the user wrote it

    @property
    def samples(self) -> int:
        """Samples of one step."""
        return self.problem.micro_batches * self.size

    def at(self, size: int) -> ScheduleProblem:
        """The problem with ``size`` samples in each micro-batch.

        Raises ``InputError`` when the samples do not divide into such micro-batches.
        """
        if size == self.size:
            return self.problem
        if size < 1 or self.samples % size:
            wrong = f"does not divide the {self.samples} samples of a step"
            remedy = f"use {', '.join(map(str, _divisors(self.samples)))}"
            raise InputError(wrong, source="--micro-batch-sizes", value=size, remedy=remedy)
        growth, problem = size / self.size, self.problem
        fixed = self.fixed or ((0.0,) * problem.ranks,) * 3
        forward, backward, weight = (
            tuple(part + (time - part) * growth for part, time in zip(parts, times, strict=True))
            for parts, times in zip(fixed, (problem.forward, problem.backward, problem.weight), strict=True)
        )
        return replace(
            problem,
            micro_batches=self.samples // size,
            forward=forward,
            backward=backward,
            weight=weight,
            down=tuple(RankLink(link.latency, link.transfer * growth) for link in problem.down),
            up=tuple(RankLink(link.latency, link.transfer * growth) for link in problem.up),
            memory=tuple(
                MicroBatchMemory(each.at_forward * growth, each.at_backward * growth)
                for each in problem.memory or (MicroBatchMemory(),) * problem.ranks
            ),
        )


def _divisors(samples: int, most: int = 12) -> list[int]:
    """The smallest divisors."""
    found: list[int] = []
    for size in range(1, min(samples, 100_000) + 1):
        if samples % size == 0:
            found.append(size)
        if len(found) == most:
            break
    return found
