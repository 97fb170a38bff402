"""The learning configuration of the queue, ``configs/algo/jobs.yaml``.

No torch here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hippo.learn.settings import Checked, Ppo, one_of, parse_as, within

ALGORITHMS = ("ppo", "a2c", "a3c", "reinforce")


@dataclass(frozen=True)
class Windows(Checked):
    """Where the jobs come from, and which of them are learned from."""

    trace: str = ""  # file of jobs; empty: jobs drawn from a distribution that stands in for a trace
    format: str = ""  # of the trace; empty: told from its head
    last: float = within(0.55, 0.05, 1.0)  # of the trace's time: the rest is never learned from
    validate: float = within(0.7, 0.05, 1.0)  # up to here it is looked at, to keep the best
    jobs: int = within(1500, 10, 1_000_000)  # of one window
    drawn: int = within(6, 0, 1000)  # windows of jobs of no trace, beside it, for the estimate
    loads: tuple[float, ...] = within((0.8, 1.0, 1.2), 0.01, 100.0)  # windows are stretched to one of them
    domains: int = within(4, 1, 1000)
    nodes: int = within(10, 1, 100_000)  # of a domain
    per_node: int = within(8, 1, 1000)
    restart_s: float = within(30.0, 0.0, 1e6)


@dataclass(frozen=True)
class Hazards(Checked):
    """The supervised part: how likely jobs end, by likelihood."""

    keys: int = within(12_000, 100, 10_000_000)  # at which bins are looked at, of each replay
    passes: int = within(3, 0, 1000)
    rounds: int = within(2, 1, 100)  # replays are made anew by what was learned in the round before
    learning_rate: float = within(2e-3, 1e-7, 1.0)
    weight_decay: float = within(0.02, 0.0, 10.0)
    minibatch: int = within(4096, 1, 10_000_000)


@dataclass(frozen=True)
class Gradient(Checked):
    """The policy gradient on top."""

    algorithm: str = one_of("ppo", *ALGORITHMS)
    learning_rate: float = within(1e-3, 1e-7, 1.0)  # of a2c, a3c and reinforce; ppo has its own
    noise: float = within(0.4, 1e-3, 5.0)  # deviation of the key's logarithm
    share: float = within(0.05, 1e-4, 1.0)  # of the moments at which there is noise
    horizon_s: float = within(86400.0, 1.0, 1e9)  # what comes later counts e times less
    rolls: int = within(8, 1, 100_000)  # windows per update
    value: float = within(0.5, 0.0, 100.0)
    entropy: float = within(0.0, 0.0, 1.0)
    max_grad_norm: float = within(0.5, 1e-6, 1e6)
    workers: int = within(2, 1, 64)  # threads of a3c


@dataclass(frozen=True)
class QueueRun(Checked):
    """How long, and how often it is validated."""

    seed: int = within(0, 0, 2**31)
    minutes: float = within(20.0, 0.0, 1e6)  # of wall clock; 0: no limit
    updates: int = within(200, 0, 10_000_000)
    validate_every: int = within(10, 1, 1_000_000)
    checkpoint_every: int = within(5, 1, 1_000_000)


def _key_ppo() -> Ppo:
    """PPO's own numbers, as they suit one decision with one number."""
    return Ppo(
        learning_rate=3e-3,
        clip=0.2,
        value=0.5,
        entropy=0.0,
        target_kl=0.02,
        passes=4,
        minibatch=2048,
        max_grad_norm=0.5,
    )


@dataclass(frozen=True)
class KeyTraining:
    """The whole configuration."""

    windows: Windows = field(default_factory=Windows)
    hazards: Hazards = field(default_factory=Hazards)
    gradient: Gradient = field(default_factory=Gradient)
    ppo: Ppo = field(default_factory=_key_ppo)
    run: QueueRun = field(default_factory=QueueRun)


def parse_settings(document: Any, *, source: str | None = None) -> KeyTraining:
    """A configuration from nested mappings; ``InputError`` as of ``hippo.learn.settings.parse_as``."""
    found: KeyTraining = parse_as(KeyTraining, document, source)
    return found
