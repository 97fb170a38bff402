"""A training run from its first update to its last: updates, looks at other worlds, checkpoints, the curve.

Knows neither worlds nor networks: it drives a ``Learner``. A run that was cut off goes on from its checkpoint and ends
with the same weights as one that was not.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from hippo.errors import InputError
from hippo.learn.checkpoint import Checkpoint, must_match, save
from hippo.learn.distributed import Place, agreed, gathered
from hippo.learn.tracking import Tracker

Progress = Callable[[str, float], None]
Validation = Callable[[nn.Module], dict[str, float]]


class WorkersLostError(InputError):
    """Those who learn are lost, but not what they had learned by the end of the update before."""


@dataclass(frozen=True)
class Learned:
    """What one update was like, over all processes."""

    figures: dict[str, float]
    count: int  # of what is counted: epochs of worlds, or decisions
    cpu_s: float  # of this process


class Learner(Protocol):
    """What is learned, update after update."""

    @property
    def policy(self) -> nn.Module:
        """The network."""
        ...

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """Of its weights."""
        ...

    @property
    def place(self) -> Place:
        """Of this process among those that learn together."""
        ...

    def learn(self, done: float) -> Learned:
        """One update; ``done``: share of the run that lies behind."""
        ...

    def state(self) -> tuple[Sequence[float], list[Any]]:
        """Multipliers, and whatever each of this process's shares of the worlds goes on with."""
        ...

    def restore(self, multipliers: Sequence[float], shares: Sequence[Any]) -> None:
        """The way back from ``state``."""
        ...


@dataclass(frozen=True)
class Outcome:
    """What a run came to. ``best`` None: nobody looked."""

    updates: int
    count: int  # of all that was counted
    seconds: float  # of wall clock, over all sittings
    best: float | None
    best_update: int
    first: float | None  # of the first look
    policy: nn.Module  # the best one seen, or the last


@dataclass(eq=False, frozen=True)
class Session:
    """How a run is driven."""

    learner: Learner
    settings: Any  # with ``run``: updates, minutes, checkpoint_every, validate_every
    folder: Path
    words: Callable[[dict[str, float], dict[str, Any]], str]  # of an update, for people: its figures, and the notes
    counted: str = "epochs"  # what an update counts
    look: Validation | None = None  # figures of the policy on other worlds
    best_by: str = "validation/of_hindsight"  # figure of a look: of the policies seen, the one of most is kept
    least: bool = False  # the one of least is
    look_first: bool = True  # also before the first update
    write: Callable[[nn.Module], None] = lambda policy: None  # the best policy, as it is served: at every checkpoint
    free: Collection[str] = ("run.minutes", "run.checkpoint_every")  # settings that a resumed run may change
    progress: Progress = field(default=lambda phase, share: None)

    def run(self, resumed: Checkpoint | None = None, *, prepared_s: float = 0.0) -> Outcome:
        """All updates that are left, or as many as the minutes allow; ``prepared_s`` of them are spent."""
        start, spent, notes = 0, 0.0, self._notes()
        if resumed is not None:
            start, spent, notes = resumed.update, resumed.seconds, notes | resumed.notes
            self._restore(resumed)
        tracker = Tracker(self.folder, resumed_at=start) if self.learner.place.first else None
        began, updates, number = time.monotonic() - spent - prepared_s, self.settings.run.updates, start
        if tracker is not None and resumed is None and self.look_first:
            tracker.write(0, {self.counted: 0, "seconds": 0.0} | self._looked(notes, 0))
        for number in range(start + 1, updates + 1):
            try:
                told = self.learner.learn((number - 1) / updates)
            except WorkersLostError:
                if number > start + 1:
                    self._save(number - 1, time.monotonic() - began, notes)
                raise
            notes[self.counted] += told.count
            seconds = time.monotonic() - began
            last = agreed(self.learner.place, number == updates or 0 < self.settings.run.minutes * 60 <= seconds)
            figures = told.figures | self._pace(told, notes, seconds)
            if number % self.settings.run.validate_every == 0 or last:
                figures |= self._looked(notes, number)
            if tracker is not None:
                tracker.write(number, figures)
            if number % self.settings.run.checkpoint_every == 0 or last:
                self._save(number, time.monotonic() - began, notes)
            self.progress(f"update {number}/{updates}, {self.words(figures, notes)}", number / updates)
            if last:
                break
        else:  # none was left
            self._save(number, time.monotonic() - began, notes)
        if tracker is not None:
            tracker.close()
        return self._outcome(number, time.monotonic() - began, notes)

    def _notes(self) -> dict[str, Any]:
        return {self.counted: 0, "first": None, "best": None, "best_update": 0, "best_policy": None}

    def _pace(self, told: Learned, notes: dict[str, Any], seconds: float) -> dict[str, float]:
        """What was counted so far, and how much of it a CPU second of this process passes."""
        per_cpu_s = told.count / self.learner.place.size / max(told.cpu_s, 1e-9)
        return {self.counted: notes[self.counted], "seconds": seconds, f"{self.counted}_per_cpu_s": per_cpu_s}

    def _looked(self, notes: dict[str, Any], number: int) -> dict[str, float]:
        """Figures on other worlds (the first process looks); the best policy so far is remembered."""
        if self.look is None or not self.learner.place.first:
            return {}
        figures = self.look(self.learner.policy)
        found = figures.get(self.best_by)
        best = notes["best"]
        if found is not None and best is None:
            notes["first"] = found
        if found is not None and (best is None or (found < best if self.least else found > best)):
            notes |= {
                "best": found,
                "best_update": number,
                "best_policy": copy.deepcopy(self.learner.policy.state_dict()),
            }
        return figures

    def _save(self, number: int, seconds: float, notes: dict[str, Any]) -> None:
        """The first process writes what all of them hold."""
        learner = self.learner
        multipliers, own = learner.state()
        held = gathered(learner.place, own)
        if not learner.place.first:
            return
        shares = [state for mine in held for state in mine]  # type: ignore[attr-defined]
        run = Checkpoint(
            update=number,
            seconds=seconds,
            settings=asdict(self.settings),
            policy=learner.policy.state_dict(),
            optimizer=learner.optimizer.state_dict(),
            multipliers=[float(each) for each in multipliers],
            shares=shares,
            notes=notes,
        )
        save(self.folder, run)
        self.write(self._best(notes))

    def _restore(self, run: Checkpoint) -> None:
        """Everything as it was; ``InputError`` where the run was made by other settings."""
        must_match(run, self.settings, free=self.free)
        learner = self.learner
        learner.policy.load_state_dict(run.policy)
        learner.optimizer.load_state_dict(run.optimizer)
        learner.restore(run.multipliers, [run.shares[each] for each in learner.place.own(len(run.shares))])

    def _best(self, notes: dict[str, Any]) -> nn.Module:
        """The best policy seen; the present one where nobody looked."""
        policy = self.learner.policy
        if notes["best_policy"] is not None:
            policy = copy.deepcopy(policy)
            policy.load_state_dict(notes["best_policy"])
        return policy

    def _outcome(self, number: int, seconds: float, notes: dict[str, Any]) -> Outcome:
        best, at, first = notes["best"], notes["best_update"], notes["first"]
        return Outcome(number, notes[self.counted], seconds, best, at, first, self._best(notes))
