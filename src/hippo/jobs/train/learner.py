"""What a training session drives where the queue is learned: a network, and the weights that it is a part of."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from hippo.jobs.train.settings import KeyTraining
from hippo.learn.distributed import Place
from hippo.learn.session import Learned


class QueueLearner:
    """Every update draws from generators of its own number; one process.

    ``base``: the weights around the network, a named tuple of arrays; ``step``: an update by its number, its figures.
    """

    place = Place()

    def __init__(
        self,
        policy: nn.Module,
        optimizer: torch.optim.Optimizer,
        base: Any,
        settings: KeyTraining,
        step: Callable[[QueueLearner, int], dict[str, float]],
    ) -> None:
        self.policy, self.optimizer, self.base, self.settings, self.step = policy, optimizer, base, settings, step
        self.rolls = settings.gradient.rolls

    def learn(self, done: float) -> Learned:
        """One update; ``done``: share of the run that lies behind."""
        began, number = time.process_time(), round(done * self.settings.run.updates) + 1
        figures = self.step(self, number)
        return Learned(figures, self.rolls, time.process_time() - began)

    def state(self) -> tuple[Sequence[float], list[Any]]:
        """The weights around the network; nothing else goes on from one update to the next."""
        return (), [self.base._asdict()]

    def restore(self, multipliers: Sequence[float], shares: Sequence[Any]) -> None:
        """The way back."""
        self.base = type(self.base)(**shares[0])
