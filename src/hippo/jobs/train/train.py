"""``hippo train`` for the queue: the estimate by likelihood first, then the policy gradient on top.

Every update depends on the seed and its number alone, so a resumed run is the same run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hippo.files import write_whole
from hippo.jobs.learned.weights import SHIPPED, KeyWeights, packed, prior, untrained
from hippo.jobs.train import algorithms, hazards, rollout
from hippo.jobs.train.learner import QueueLearner
from hippo.jobs.train.policy import KeyPolicy
from hippo.jobs.train.rollout import Moments, joined, noise, roll
from hippo.jobs.train.settings import KeyTraining
from hippo.jobs.train.windows import JOB_BYTES, REPLAY_BYTES, TraceWindows, Window, trace_windows
from hippo.learn.checkpoint import earlier_run, must_match
from hippo.learn.fits import Need, refuse_too_large
from hippo.learn.session import Outcome, Session
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
    before, began = earlier_run(out, resume=resume), time.monotonic()
    if before is not None:
        must_match(before, settings, free=FREE)  # before anything is replayed
    windows = trace_windows(settings.windows)
    held = windows.validation_windows()
    looks = [(window, window.limit_s()) for window in held]
    say(f"{len(windows.training):,} jobs to learn from, {len(windows.validation):,} to validate on")
    base = untrained() if before is not None else _estimate(settings, windows, held, out, progress)
    torch.manual_seed(settings.run.seed)
    policy = KeyPolicy(settings.gradient.noise)

    def update(learner: QueueLearner, number: int) -> dict[str, float]:
        return step(policy, learner.optimizer, windows.draw, learner.base, settings, number)

    learner = QueueLearner(policy, optimizer(policy, settings), base, settings, update)
    session = Session(
        learner,
        settings,
        out,
        lambda figures, notes: f"{settings.gradient.algorithm}, best {notes['best']:.4f} of the clairvoyant's",
        counted="windows",
        look=lambda seen: {"of_limit": _of_limit(looks, policy.into(learner.base))},
        best_by="of_limit",
        least=True,
        write=lambda best: write_whole(out / SHIPPED, packed(best.into(learner.base))),  # type: ignore[operator]
        free=FREE,
        progress=progress,
    )
    return _answer(session.run(before, prepared_s=time.monotonic() - began), out)


def needs(settings: KeyTraining) -> list[Need]:
    """What the windows hold (the drawn ones twice: to learn and to validate on), the estimate, and one update."""
    windows, gradient = settings.windows, settings.gradient
    synthetic, apart = 2 * windows.drawn, 4 + windows.drawn + 2  # of the trace, drawn, a quarter of those looked at
    return [
        Need(windows.jobs * (2 * synthetic * JOB_BYTES + 2 * REPLAY_BYTES), ("windows.jobs", "windows.drawn")),
        Need(hazards.need(settings.hazards, apart), ("hazards.keys", "windows.drawn")),
        Need(rollout.need(windows.jobs, gradient.share, gradient.rolls), ("gradient.rolls", "gradient.share")),
    ]


def _estimate(
    settings: KeyTraining, windows: TraceWindows, held: Sequence[Window], out: Path, progress: Progress
) -> KeyWeights:
    """Prior and hazard network, learned before the first update; the curve says how."""
    progress("how long jobs run", 0.0)
    weights = untrained()._replace(prior=prior(windows.training.duration_s))
    seed, least, began = settings.run.seed, settings.windows.loads[0], time.monotonic()
    replays = (*windows.halves(None), *windows.halves(least), *windows.synthetic(seed))
    validation, tracker = (*held, *windows.synthetic(seed + 1)[:2]), Tracker(out)

    def track(number: int, figures: dict[str, float]) -> None:
        tracker.write(0, {**figures, "pass": number, "seconds": time.monotonic() - began})

    found = hazards.fit(weights, replays, validation, settings.hazards, seed, track)
    tracker.close()
    return found


def _of_limit(looks: Sequence[tuple[Window, float]], weights: KeyWeights) -> float:
    """Mean completion over the clairvoyant's, the geometric mean over windows; nan where there are none."""
    ratios = [window.mean_completion_s(weights) / limit_s for window, limit_s in looks]
    return float(np.exp(np.mean(np.log(ratios)))) if ratios else float("nan")


def _answer(found: Outcome, out: Path) -> dict[str, Any]:
    assert found.best is not None
    assert found.first is not None
    told = ""
    if not np.isnan(found.best):
        told = f"\nmean completion on jobs that were not learned from, over the clairvoyant's: {found.best:.4f}"
        told += f" ({found.first:.4f} before the policy gradient)"
    path, curve = out / SHIPPED, out / "curve.jsonl"
    words = f"{found.updates} updates, {found.seconds / 60:.1f} minutes{told}\npolicy {path}, curve {curve}"
    return {
        "policy": str(path),
        "curve": str(curve),
        "updates": found.updates,
        "seconds": round(found.seconds, 1),
        "of_limit": None if np.isnan(found.best) else found.best,
        "start": None if np.isnan(found.first) else found.first,
        "words": words,
    }


def optimizer(policy: KeyPolicy, settings: KeyTraining) -> torch.optim.Optimizer:
    """Adam at the rate of the algorithm."""
    gradient = settings.gradient
    rate = settings.ppo.learning_rate if gradient.algorithm == "ppo" else gradient.learning_rate
    return torch.optim.Adam(policy.parameters(), lr=rate)


def step(
    policy: KeyPolicy,
    optimizer: torch.optim.Optimizer,
    draw: Callable[[np.random.Generator], Window],
    base: KeyWeights,
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
    policy: KeyPolicy, window: Window, base: KeyWeights, settings: KeyTraining, generator: np.random.Generator
) -> Moments:
    """One window played without noise, with noise, and with its mirror image."""
    gradient, weights = settings.gradient, policy.into(base)
    quiet = window.play(weights)
    drawn = noise(len(window.workload), policy.noise, gradient.share, generator)
    return joined([roll(window, weights, quiet, each, gradient.horizon_s)[0] for each in (drawn, -drawn)])
