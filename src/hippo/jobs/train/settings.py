"""The learning configuration of the queue, ``configs/algo/jobs.yaml``.

No torch here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hippo.learn.settings import Checked, parse_as, within


@dataclass(frozen=True)
class Windows(Checked):
    """Where the jobs come from, and which of them are learned from."""

    trace: str = ""  # file of jobs; empty: jobs drawn from a distribution that stands in for a trace
    format: str = ""  # of the trace; empty: told from its head
    last: float = within(0.55, 0.05, 1.0)  # of the trace's time: the rest is never learned from
    validate: float = within(0.7, 0.05, 1.0)  # up to here it is looked at, to keep the best
    jobs: int = within(1500, 10, 1_000_000)  # of one window
    drawn: int = within(6, 0, 1000)  # windows of jobs of no trace, beside it
    loads: tuple[float, ...] = within((0.8, 1.0, 1.2), 0.01, 100.0)  # replays of the first, looked at on first and last
    domains: int = within(4, 1, 1000)
    nodes: int = within(10, 1, 100_000)  # of a domain
    per_node: int = within(8, 1, 1000)
    restart_s: float = within(30.0, 0.0, 1e6)


@dataclass(frozen=True)
class Hazards(Checked):
    """How likely jobs end, by likelihood."""

    keys: int = within(12_000, 100, 10_000_000)  # at which bins are looked at, of each replay
    passes: int = within(3, 1, 1000)  # over what replays saw, before they are made anew by what was learned
    learning_rate: float = within(2e-3, 1e-7, 1.0)
    weight_decay: float = within(0.02, 0.0, 10.0)
    minibatch: int = within(4096, 1, 10_000_000)


@dataclass(frozen=True)
class QueueRun(Checked):
    """How long, and how often it is validated."""

    seed: int = within(0, 0, 2**31)
    minutes: float = within(20.0, 0.0, 1e6)  # of wall clock; 0: no limit
    updates: int = within(6, 0, 10_000_000)  # passes, all together
    validate_every: int = within(1, 1, 1_000_000)
    checkpoint_every: int = within(1, 1, 1_000_000)


@dataclass(frozen=True)
class KeyTraining:
    """The whole configuration."""

    windows: Windows = field(default_factory=Windows)
    hazards: Hazards = field(default_factory=Hazards)
    run: QueueRun = field(default_factory=QueueRun)


def parse_settings(document: Any, *, source: str | None = None) -> KeyTraining:
    """A configuration from nested mappings; ``InputError`` as of ``hippo.learn.settings.parse_as``."""
    found: KeyTraining = parse_as(KeyTraining, document, source)
    return found
