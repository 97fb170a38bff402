"""The ends of a tensor-parallel region (Shoeybi et al. 2019, section 3): columns first, then rows, one sum each way.

``enter`` passes on what every rank holds and sums its gradient; ``leave`` sums what the ranks computed and passes its
gradient on.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch

Tensor = torch.Tensor


class Team(Protocol):
    """Ranks that share matrices."""

    @property
    def size(self) -> int:
        """How many they are."""
        ...

    def sum(self, tensor: Tensor) -> None:
        """Replaces the tensor by the sum over the ranks."""
        ...


class Alone:
    """A team of one."""

    size = 1

    def sum(self, tensor: Tensor) -> None:
        """Nothing to add."""


class _Enter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, given: Tensor, team: Team) -> Tensor:
        """As it is."""
        ctx.team = team
        return given.view_as(given)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        """The sum."""
        total = gradients[0].contiguous().clone()
        ctx.team.sum(total)
        return total, None


class _Leave(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, given: Tensor, team: Team) -> Tensor:
        """The sum."""
        total = given.contiguous().clone()
        team.sum(total)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        """As it is."""
        return gradients[0], None


def enter(given: Tensor, team: Team) -> Tensor:
    """The same values; their gradient is summed over the team."""
    if team.size == 1:
        return given
    return _Enter.apply(given, team)  # type: ignore[no-any-return, no-untyped-call]


def leave(given: Tensor, team: Team) -> Tensor:
    """The sum over the team; its gradient is passed on as it is."""
    if team.size == 1:
        return given
    return _Leave.apply(given, team)  # type: ignore[no-any-return, no-untyped-call]
