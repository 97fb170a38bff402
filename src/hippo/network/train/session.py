"""A training run from its first update to its last: updates, looks at other worlds, checkpoints, the curve.

Knows neither worlds nor networks: it drives a ``Learner``. A run that was cut off goes on from its checkpoint and ends
with the same weights as one that was not.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from hippo.learn.checkpoint import Checkpoint, must_match, save
from hippo.learn.distributed import agreed, gathered
from hippo.learn.tracking import Tracker
from hippo.network.train.learner import Learner, UpdateFigures
from hippo.network.train.settings import HiPpoSettings

Progress = Callable[[str, float], None]
Validation = Callable[[nn.Module], dict[str, float]]

LOOKED_AT = "validation/of_hindsight"
"""Figure of a look by which policies are compared: the best one seen is the one that is kept."""


@dataclass(frozen=True)
class Outcome:
    """What a run came to. ``best`` None: nobody looked."""

    updates: int
    epochs: int  # of worlds
    seconds: float  # of wall clock, over all sittings
    best: float | None
    best_update: int
    policy: nn.Module  # the best one seen, or the last


@dataclass(eq=False, frozen=True)
class Session:
    """How a run is driven. ``look``: figures of the policy on other worlds."""

    learner: Learner
    settings: HiPpoSettings
    folder: Path
    look: Validation | None = None
    progress: Progress = field(default=lambda phase, share: None)

    def run(self, resumed: Checkpoint | None = None, *, prepared_s: float = 0.0) -> Outcome:
        """All updates that are left, or as many as the minutes allow; ``prepared_s`` of them are spent."""
        start, spent, notes = 0, 0.0, self._notes()
        if resumed is not None:
            start, spent, notes = resumed.update, resumed.seconds, dict(resumed.notes)
            self._restore(resumed)
        tracker = Tracker(self.folder, resumed_at=start) if self.learner.place.first else None
        began, updates, number = time.monotonic() - spent - prepared_s, self.settings.run.updates, start
        if tracker is not None and start == 0:
            tracker.write(0, {"epochs": 0, "seconds": 0.0} | self._looked(notes, 0))
        for number in range(start + 1, updates + 1):
            told = self.learner.learn((number - 1) / updates)
            notes["epochs"] += told.epochs
            seconds = time.monotonic() - began
            last = agreed(self.learner.place, number == updates or 0 < self.settings.run.minutes * 60 <= seconds)
            figures = told.figures | self._pace(told, notes, seconds)
            if number % self.settings.run.validate_every == 0 or last:
                figures |= self._looked(notes, number)
            if tracker is not None:
                tracker.write(number, figures)
            if number % self.settings.run.checkpoint_every == 0 or last:
                self._save(number, time.monotonic() - began, notes)
            self.progress(_words(number, updates, figures, notes), number / updates)
            if last:
                break
        if tracker is not None:
            tracker.close()
        return self._outcome(number, time.monotonic() - began, notes)

    def _notes(self) -> dict[str, Any]:
        return {"epochs": 0, "best": None, "best_update": 0, "best_policy": None}

    def _pace(self, told: UpdateFigures, notes: dict[str, Any], seconds: float) -> dict[str, float]:
        """Epochs of worlds so far, and how many a CPU second of this process passes."""
        own = told.epochs / self.learner.place.size
        return {"epochs": notes["epochs"], "seconds": seconds, "epochs_per_cpu_s": own / max(told.cpu_s, 1e-9)}

    def _looked(self, notes: dict[str, Any], number: int) -> dict[str, float]:
        """Figures on other worlds (the first process looks); the best policy so far is remembered."""
        if self.look is None or not self.learner.place.first:
            return {}
        figures = self.look(self.learner.policy)
        found = figures.get(LOOKED_AT)
        if found is not None and (notes["best"] is None or found > notes["best"]):
            notes |= {
                "best": found,
                "best_update": number,
                "best_policy": copy.deepcopy(self.learner.policy.state_dict()),
            }
        return figures

    def _save(self, number: int, seconds: float, notes: dict[str, Any]) -> None:
        """The first process writes what all of them hold."""
        learner = self.learner
        held = gathered(learner.place, [share.state() for share in learner.shares])
        if not learner.place.first:
            return
        shares = [state for mine in held for state in mine]  # type: ignore[attr-defined]
        run = Checkpoint(
            update=number,
            seconds=seconds,
            settings=asdict(self.settings),
            policy=learner.policy.state_dict(),
            optimizer=learner.optimizer.state_dict(),
            multipliers=[float(mu) for mu in learner.multipliers],
            shares=shares,
            notes=notes,
        )
        save(self.folder, run)

    def _restore(self, run: Checkpoint) -> None:
        """Everything as it was; ``InputError`` where the run was made by other settings."""
        must_match(run, self.settings, free=FREE)
        learner = self.learner
        learner.policy.load_state_dict(run.policy)
        learner.optimizer.load_state_dict(run.optimizer)
        learner.multipliers[:] = run.multipliers
        for share, state in zip(
            learner.shares, [run.shares[i] for i in learner.place.own(self.settings.run.shares)], strict=True
        ):
            share.restore(state)

    def _outcome(self, number: int, seconds: float, notes: dict[str, Any]) -> Outcome:
        policy = self.learner.policy
        if notes["best_policy"] is not None:
            policy = copy.deepcopy(policy)
            policy.load_state_dict(notes["best_policy"])
        return Outcome(number, notes["epochs"], seconds, notes["best"], notes["best_update"], policy)


FREE = ("run.minutes", "run.construction_minutes", "run.checkpoint_every")
"""HiPpoSettings that a resumed run may change: how long it sits, and how often it is written down."""


def _words(number: int, updates: int, figures: dict[str, float], notes: dict[str, Any]) -> str:
    """One line for people."""
    best = "" if notes["best"] is None else f", best {notes['best']:.4f} of hindsight at update {notes['best_update']}"
    return (
        f"update {number}/{updates}, regret {-figures['reward']:.4f} epochs an epoch, "
        f"KL {figures['ppo/kl']:.3f}, entropy {figures['ppo/entropy']:.2f}, "
        f"{figures['epochs_per_cpu_s']:,.0f} epochs per CPU second{best}"
    )
