"""``hippo train`` for the queue: the estimate by likelihood first, then the policy gradient on top.

Every update depends on the seed and its number alone, so a resumed run is the same run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hippo.files import write_whole
from hippo.jobs.learned.weights import SHIPPED, Weights, packed, untrained
from hippo.jobs.train import algorithms, hazards, rollout
from hippo.jobs.train.policy import KeyPolicy
from hippo.jobs.train.rollout import Moments, joined, noise, roll
from hippo.jobs.train.settings import KeyTraining
from hippo.jobs.train.windows import JOB_BYTES, REPLAY_BYTES, TraceWindows, Window, trace_windows
from hippo.learn.checkpoint import Checkpoint, earlier_run, must_match, save
from hippo.learn.memory import Need, refuse_too_large
from hippo.learn.tracking import Tracker
from hippo.planners.base import Progress

FREE = ("run.minutes", "run.updates")
"""Settings that a resumed run may change: how long it goes on."""
UPDATES: Mapping[str, Callable[..., dict[str, float]]] = {
    "ppo": algorithms.ppo,
    "a2c": algorithms.a2c,
    "reinforce": algorithms.reinforce,
}


def train(
    settings: KeyTraining,
    *,
    out: Path,
    resume: bool = False,
    progress: Progress = lambda phase, share: None,
    say: Callable[[str], None] = lambda words: None,
) -> dict[str, Any]:
    """Trains a policy and writes it, its curve and its checkpoints into ``out``.

    Returns
    -------
    dict
        ``policy``, ``curve`` (paths), ``updates``, ``seconds``, ``of_limit`` (mean completion over that of the
        clairvoyant, on windows that were not learned from; None: there are none), ``start`` (the same before the
        policy gradient), ``words`` (a sentence).

    Raises
    ------
    InputError
        A trace that cannot be learned from; ``resume`` without a checkpoint or with other settings; more than this
        machine can hold.
    """
    refuse_too_large(settings, needs(settings))
    torch.set_num_threads(1)
    before = earlier_run(out, resume=resume)
    if before is not None:
        must_match(before, settings, free=FREE)
    began = time.monotonic() - (before.seconds if before else 0.0)
    windows = trace_windows(settings.windows)
    tracker = Tracker(out, resumed_at=before.update if before else 0)
    say(f"{len(windows.training):,} jobs to learn from, {len(windows.validation):,} to validate on")
    session = _KeySession(settings, windows, tracker, out, began, progress)
    found = session.run(before)
    tracker.close()
    return found


def needs(settings: KeyTraining) -> list[Need]:
    """What the windows hold (the drawn ones twice: to learn and to validate on), the estimate, and one update."""
    windows, gradient = settings.windows, settings.gradient
    synthetic, apart = 2 * windows.drawn, 4 + windows.drawn + 2  # of the trace, drawn, a quarter of those looked at
    return [
        Need(windows.jobs * (2 * synthetic * JOB_BYTES + 2 * REPLAY_BYTES), ("windows.jobs", "windows.drawn")),
        Need(hazards.need(settings.hazards, apart), ("hazards.keys", "windows.drawn")),
        Need(rollout.need(windows.jobs, gradient.share, gradient.rolls), ("gradient.rolls", "gradient.share")),
    ]


class _KeySession:
    """One run."""

    def __init__(
        self,
        settings: KeyTraining,
        windows: TraceWindows,
        tracker: Tracker,
        out: Path,
        began: float,
        progress: Progress,
    ) -> None:
        self.settings, self.windows, self.tracker, self.out = settings, windows, tracker, out
        self.began, self.progress = began, progress
        self.validation = windows.validation_windows()
        self.limits = [window.limit_s() for window in self.validation]
        torch.manual_seed(settings.run.seed)
        self.policy = KeyPolicy(settings.gradient.noise)
        self.optimizer = optimizer(self.policy, settings)

    def run(self, before: Checkpoint | None) -> dict[str, Any]:
        """From nothing or from a checkpoint to the end; what ``train`` answers."""
        if before is None:
            base = self._estimate()
            best, start, update = base, self._validate(base), 0
            best_score = start
        else:
            base, best = (Weights(**stored) for stored in before.shares)
            self.policy.load_state_dict(before.policy)
            self.optimizer.load_state_dict(before.optimizer)
            update, start, best_score = before.update, before.notes["start"], before.notes["best"]
        run = self.settings.run
        while update < run.updates and not self._late():
            update += 1
            figures = step(self.policy, self.optimizer, self.windows.draw, base, self.settings, update)
            if update % run.validate_every == 0 or update == run.updates:
                score = self._validate(self.policy.into(base))
                figures["of_limit"] = score
                if score < best_score:
                    best, best_score = self.policy.into(base), score
            self.tracker.write(update, {**figures, "minutes": self._seconds() / 60})
            if update % run.checkpoint_every == 0:
                self._save(update, base, best, {"start": start, "best": best_score})
            self.progress(f"{self.settings.gradient.algorithm}, update {update}", update / max(run.updates, 1))
        self._save(update, base, best, {"start": start, "best": best_score})
        return self._answer(update, best, start, best_score)

    def _estimate(self) -> Weights:
        """Prior and hazard network."""
        self.progress("how long jobs run", 0.0)
        known = self.windows.training
        weights = untrained()._replace(prior=hazards.prior(known.duration_s))
        seed, least = self.settings.run.seed, self.settings.windows.loads[0]
        replays = (*self.windows.halves(None), *self.windows.halves(least), *self.windows.synthetic(seed))
        validation = (*self.validation, *self.windows.synthetic(seed + 1)[:2])

        def track(number: int, figures: dict[str, float]) -> None:
            self.tracker.write(0, {**figures, "pass": number, "minutes": self._seconds() / 60})

        return hazards.fit(weights, replays, validation, self.settings.hazards, seed, track)

    def _validate(self, weights: Weights) -> float:
        """Mean completion over the clairvoyant's, the geometric mean over the windows that are looked at."""
        if not self.validation:
            return float("nan")
        ratios = [
            window.mean_completion_s(weights) / limit
            for window, limit in zip(self.validation, self.limits, strict=True)
        ]
        return float(np.exp(np.mean(np.log(ratios))))

    def _save(self, update: int, base: Weights, best: Weights, notes: dict[str, Any]) -> None:
        write_whole(self.out / SHIPPED, packed(best))
        save(
            self.out,
            Checkpoint(
                update=update,
                seconds=self._seconds(),
                settings=asdict(self.settings),
                policy=self.policy.state_dict(),
                optimizer=self.optimizer.state_dict(),
                multipliers=[],
                shares=[base._asdict(), best._asdict()],
                notes=notes,
            ),
        )

    def _answer(self, update: int, best: Weights, start: float, score: float) -> dict[str, Any]:
        told = ""
        if not np.isnan(score):
            told = f"\nmean completion on jobs that were not learned from, over the clairvoyant's: {score:.4f}"
            told += f" ({start:.4f} before the policy gradient)"
        path, curve = self.out / SHIPPED, self.out / "curve.jsonl"
        words = f"{update} updates, {self._seconds() / 60:.1f} minutes{told}\npolicy {path}, curve {curve}"
        return {
            "policy": str(path),
            "curve": str(curve),
            "updates": update,
            "seconds": round(self._seconds(), 1),
            "of_limit": None if np.isnan(score) else score,
            "start": None if np.isnan(start) else start,
            "words": words,
        }

    def _seconds(self) -> float:
        return time.monotonic() - self.began

    def _late(self) -> bool:
        minutes = self.settings.run.minutes
        return minutes > 0 and self._seconds() > 60 * minutes


def optimizer(policy: KeyPolicy, settings: KeyTraining) -> torch.optim.Optimizer:
    """Adam at the rate of the algorithm."""
    gradient = settings.gradient
    rate = settings.ppo.learning_rate if gradient.algorithm == "ppo" else gradient.learning_rate
    return torch.optim.Adam(policy.parameters(), lr=rate)


def step(
    policy: KeyPolicy,
    optimizer: torch.optim.Optimizer,
    draw: Callable[[np.random.Generator], Window],
    base: Weights,
    settings: KeyTraining,
    update: int,
) -> dict[str, float]:
    """One update of any of the four algorithms; the figures of it."""
    gradient, seed = settings.gradient, settings.run.seed

    def play(own: KeyPolicy, number: int) -> Moments:
        generator = np.random.default_rng([seed, update, number])
        return sampled(own, draw(generator), base, settings, generator)

    if gradient.algorithm == "a3c":
        return algorithms.a3c(policy, optimizer, play, settings, range(gradient.rolls))
    moments = joined([play(policy, number) for number in range(gradient.rolls)])
    figures = UPDATES[gradient.algorithm](policy, optimizer, moments, settings, update)
    return {**figures, "moments": float(len(moments.push)), "noise": policy.noise}


def sampled(
    policy: KeyPolicy, window: Window, base: Weights, settings: KeyTraining, generator: np.random.Generator
) -> Moments:
    """One window played without noise, with noise, and with its mirror image."""
    gradient, weights = settings.gradient, policy.into(base)
    quiet = window.play(weights)
    drawn = noise(len(window.workload), policy.noise, gradient.share, generator)
    return joined([roll(window, weights, quiet, each, gradient.horizon_s)[0] for each in (drawn, -drawn)])
