"""A run goes on with the settings that it began with."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

import pytest

from hippo.errors import InputError
from hippo.learn.checkpoint import Checkpoint, must_match


@dataclass(frozen=True)
class Run:
    seed: int = 0
    minutes: float = 5.0
    loads: tuple[float, ...] = (1.0, 2.0)


@dataclass(frozen=True)
class Settings:
    run: Run = field(default_factory=Run)


def begun(**settings: object) -> Checkpoint:
    """A run of the default settings but for some."""
    return Checkpoint(1, 1.0, {"run": {**asdict(Run()), **settings}}, {}, {}, [], [], {})


def test_settings_that_differ_are_named() -> None:
    with pytest.raises(InputError, match=r"--resume: was made with other settings: run\.seed, run\.loads\. To fix"):
        must_match(begun(seed=1, minutes=9.0, loads=[1.0]), Settings(), free=["run.minutes"])


def test_what_may_change_may_differ_and_lists_are_tuples() -> None:
    run = begun(minutes=9.0, loads=[1.0, 2.0])
    with pytest.raises(InputError, match=r"other settings: run\.minutes\. To fix"):
        must_match(run, Settings(), free=[])
    must_match(run, Settings(), free=["run.minutes"])


def test_a_setting_that_the_run_did_not_know_differs() -> None:
    old = Checkpoint(1, 1.0, {}, {}, {}, [], [], {})
    with pytest.raises(InputError, match=r"run\.seed, run\.minutes, run\.loads"):
        must_match(old, Settings(), free=[])
