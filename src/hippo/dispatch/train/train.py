"""``hippo train`` for learned dispatch: updates, looks, checkpoints, and the policy file at the end."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hippo.dispatch.env.generator import World, drawn_world
from hippo.dispatch.kernel_policy import read
from hippo.dispatch.network import Weights, follower, packed
from hippo.dispatch.train.learner import Told, learn, need
from hippo.dispatch.train.look import Look, look_of
from hippo.dispatch.train.policy import DispatchPolicy
from hippo.dispatch.train.settings import Network, Settings
from hippo.errors import InputError
from hippo.files import write_whole
from hippo.learn.checkpoint import Checkpoint, earlier_run, must_match, save
from hippo.learn.memory import refuse_too_large
from hippo.learn.tracking import Tracker

Progress = Callable[[str, float], None]
POLICY = "dispatch.npz"
_FREE = ("run.minutes", "run.checkpoint_every")  # what a resumed run may change
_BANK, _UPDATE = 1, 2  # streams of random numbers


def train(
    settings: Settings,
    *,
    out: Path,
    resume: bool = False,
    progress: Progress = lambda phase, share: None,
    say: Callable[[str], None] = lambda words: None,
) -> dict[str, Any]:
    """Trains a policy and writes it, its curve and its checkpoints into ``out``; one process, one thread.

    Every update draws from a generator of its own number, so a resumed run is the same run.

    Returns
    -------
    dict
        ``policy``, ``curve`` (paths), ``updates``, ``decisions``, ``seconds``, ``gain`` (percent by which the best
        policy is shorter than the base hint on validation worlds), ``best_update``, ``words`` (the same in a sentence).

    Raises
    ------
    InputError
        ``out`` holds a run already; ``resume`` without a checkpoint or with other settings; more plays of an update
        than this machine can hold.
    """
    refuse_too_large(settings, [need(settings)])
    torch.set_num_threads(1)
    before = earlier_run(out, resume=resume)
    if before is not None:
        must_match(before, settings, free=_FREE)
    torch.manual_seed(settings.run.seed)
    policy = DispatchPolicy(_begun(settings))
    session = _Session(policy, settings, out, look_of(settings), bank(settings), progress)
    say(f"{settings.worlds.train} drawn worlds to learn on, {len(session.look.worlds)} to look at")
    session.run(before)
    return session.written()


def _begun(settings: Settings) -> Weights:
    """The weights to begin with; ``InputError`` where those of a file are not as the settings say."""
    given = settings.network
    if not given.start:
        return follower(given.trust, given.hidden)
    found = read(given.start)
    hidden = len(found.first_bias)
    if hidden != given.hidden:
        remedy = f"give hidden: {hidden}, or leave out start"
        raise InputError(f"is {hidden} in {given.start}", key="network.hidden", value=given.hidden, remedy=remedy)
    if given.trust != Network().trust:
        remedy = "leave out one of them"
        raise InputError("does not go with network.start", key="network.trust", value=given.trust, remedy=remedy)
    return found


def bank(settings: Settings) -> list[World]:
    """The drawn worlds of a run; those asked and those on the grid are drawn update by update."""
    rng = np.random.default_rng([settings.run.seed, _BANK])
    return [
        drawn_world(rng, asked=0.0, grid=0.0, most_ranks=settings.worlds.most_ranks)
        for _ in range(settings.worlds.train)
    ]


@dataclass(eq=False)
class _Session:
    """A run under way."""

    policy: DispatchPolicy
    settings: Settings
    folder: Path
    look: Look
    bank: list[World]
    progress: Progress
    update: int = 0
    seconds: float = 0.0
    notes: dict[str, Any] = field(
        default_factory=lambda: {"decisions": 0, "best": None, "best_update": 0, "kept": None}
    )

    def run(self, before: Checkpoint | None) -> None:
        """All updates that are left, or as many as the minutes allow."""
        run = self.settings.run
        optimizer = torch.optim.Adam(self.policy.parameters(), lr=self.settings.ppo.learning_rate, eps=1e-5)
        if before is not None:
            self._restore(before, optimizer)
        tracker = Tracker(self.folder, resumed_at=self.update)
        began = time.monotonic() - self.seconds
        while self.update < run.updates:
            told = self._learn(optimizer)
            self.update, self.seconds = self.update + 1, time.monotonic() - began
            last = self.update == run.updates or 0 < 60 * run.minutes <= self.seconds
            figures = self._figures(told)
            if self.update % run.validate_every == 0 or last:
                figures |= self._looked()
            tracker.write(self.update, figures)
            if self.update % run.checkpoint_every == 0 or last:
                self._save(optimizer)
            self.progress(self._words(figures), self.update / run.updates)
            if last:
                break
        tracker.close()

    def _learn(self, optimizer: torch.optim.Optimizer) -> Told:
        given, done = self.settings.worlds, self.update / self.settings.run.updates
        rng = np.random.default_rng([self.settings.run.seed, _UPDATE, self.update])
        worlds = []
        for _ in range(given.each_update):
            kind = rng.random()
            if kind < given.asked + given.grid:
                worlds.append(drawn_world(rng, asked=float(kind < given.asked), grid=1.0))
            else:
                worlds.append(self.bank[rng.integers(len(self.bank))])
        return learn(self.policy, optimizer, worlds, self.settings, rng, done=done)

    def _figures(self, told: Told) -> dict[str, float]:
        self.notes["decisions"] += told.decisions
        losses = {f"ppo/{name}": float(value) for name, value in told.losses._asdict().items()}
        own = {
            "seconds": self.seconds,
            "decisions": self.notes["decisions"],
            "gain": told.gain,
            "strayed": told.strayed,
        }
        return own | losses

    def _looked(self) -> dict[str, float]:
        """Figures on other worlds; the best policy so far is remembered."""
        figures = self.look.figures(self.policy.weights())
        if self.notes["best"] is None or figures["validation/gain"] > self.notes["best"]:
            kept = {name: value.clone() for name, value in self.policy.state_dict().items()}
            self.notes |= {"best": figures["validation/gain"], "best_update": self.update, "kept": kept}
        return figures

    def _save(self, optimizer: torch.optim.Optimizer) -> None:
        state = self.policy.state_dict(), optimizer.state_dict()
        save(self.folder, Checkpoint(self.update, self.seconds, asdict(self.settings), *state, [], [], self.notes))

    def _restore(self, run: Checkpoint, optimizer: torch.optim.Optimizer) -> None:
        self.policy.load_state_dict(run.policy)
        optimizer.load_state_dict(run.optimizer)
        self.update, self.seconds, self.notes = run.update, run.seconds, dict(run.notes)

    def _words(self, figures: dict[str, float]) -> str:
        best = self.notes["best"]
        seen = "" if best is None else f", best {_against(best)} than the hint at update {self.notes['best_update']}"
        return (
            f"update {self.update}/{self.settings.run.updates}, KL {figures['ppo/kl']:.3f}, "
            f"entropy {figures['ppo/entropy']:.2f}, {figures['strayed']:.1%} not the hint's{seen}"
        )

    def written(self) -> dict[str, Any]:
        """Writes the best policy that was seen; the answer of ``train``."""
        self.policy.load_state_dict(self.notes["kept"])
        write_whole(self.folder / POLICY, packed(self.policy.weights()))
        notes = self.notes
        words = (
            f"{self.update} updates, {notes['decisions']:,} decisions, {self.seconds / 60:.1f} minutes\n"
            f"best at update {notes['best_update']}: {_against(notes['best'])} than the base hint on other worlds\n"
            f"policy {self.folder / POLICY}, curve {self.folder / 'curve.jsonl'}"
        )
        return {
            "policy": str(self.folder / POLICY),
            "curve": str(self.folder / "curve.jsonl"),
            "updates": self.update,
            "decisions": notes["decisions"],
            "seconds": round(self.seconds, 1),
            "gain": notes["best"],
            "best_update": notes["best_update"],
            "words": words,
        }


def _against(gain: float) -> str:
    """A gain in percent, in words."""
    return f"{abs(gain):.2f} % {'shorter' if gain >= 0 else 'longer'}"
