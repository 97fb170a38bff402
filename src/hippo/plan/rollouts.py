"""Reinforcement learning over regions as a plan: one domain trains, pools of replicas generate, weights are pushed."""

from __future__ import annotations

from dataclasses import dataclass

from hippo.plan.plan import Plan


@dataclass(frozen=True)
class RolloutPool:
    """Replicas of one domain."""

    domain: str
    replicas: int


@dataclass(frozen=True)
class RolloutPlan:
    """Who trains how, who generates, and what is pushed to them how often."""

    trainer: Plan  # of one domain
    pools: tuple[RolloutPool, ...]
    push: str  # whole, delta
    every: int  # steps between two pushes

    @property
    def home(self) -> str:
        """The trainer's domain."""
        return self.trainer.domains[0]

    @property
    def replicas(self) -> int:
        """Of all pools."""
        return sum(pool.replicas for pool in self.pools)
