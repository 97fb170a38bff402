"""The learning configuration of the queue's key for deadlines, ``configs/algo/deadlines.yaml``. No torch here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hippo.jobs.train.settings import Run, Windows
from hippo.learn.settings import Checked, Ppo, parse_as, within


@dataclass(frozen=True)
class Draws(Checked):
    """What is drawn on top of the trace: each window gets one setting, and submitters' estimates half of the time."""

    settings: tuple[str, ...] = ("gavel", "chronus", "calendar")
    estimates: float = within(1.0, 0.0, 10.0)  # deviation of their logarithm


@dataclass(frozen=True)
class Search(Checked):
    """Noise on keys, and what it is credited with."""

    noise: float = within(0.7, 1e-3, 10.0)  # deviation of the key's logarithm
    share: float = within(0.1, 1e-4, 1.0)  # of the jobs
    horizon_s: float = within(86400.0, 1.0, 1e9)  # a deadline that much later counts e times less
    rolls: int = within(4, 1, 100_000)  # windows of an update, each played with and without noise


def _ppo() -> Ppo:
    return Ppo(
        learning_rate=3e-3, clip=0.2, value=0.5, entropy=0.0, target_kl=0.03, passes=4, minibatch=512, max_grad_norm=0.5
    )


@dataclass(frozen=True)
class Settings:
    """The whole configuration."""

    windows: Windows = field(default_factory=lambda: Windows(jobs=5000, loads=(1.7, 2.5, 3.5)))
    draws: Draws = field(default_factory=Draws)
    search: Search = field(default_factory=Search)
    ppo: Ppo = field(default_factory=_ppo)
    run: Run = field(default_factory=Run)


def parse_settings(document: Any, *, source: str | None = None) -> Settings:
    """A configuration from nested mappings; ``InputError`` as of ``hippo.learn.settings.load_settings``."""
    found: Settings = parse_as(Settings, document, source)
    return found
