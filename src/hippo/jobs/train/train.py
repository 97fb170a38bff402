"""``hippo train`` for the queue: how long jobs run, by likelihood."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from hippo.files import write_whole
from hippo.jobs.learned.weights import SHIPPED, KeyWeights, packed, prior, untrained
from hippo.jobs.train import hazards
from hippo.jobs.train.hazards import HazardLearner, HazardNetwork, collected, joined, surprise
from hippo.jobs.train.settings import KeyTraining
from hippo.jobs.train.windows import JOB_BYTES, REPLAY_BYTES, Window, trace_windows
from hippo.learn.checkpoint import earlier_run, must_match
from hippo.learn.fits import Need, refuse_too_large
from hippo.learn.session import Outcome, Session
from hippo.planners.base import Progress

FREE = ("run.minutes", "run.updates")
"""Settings that a resumed run may change: how long it goes on."""


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
        clairvoyant, on windows that were not learned from; None: there are none), ``start`` (the same by the counts of
        the past alone, before anything is learned), ``words`` (a sentence).

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
    windows, seed, least = trace_windows(settings.windows), settings.run.seed, settings.windows.loads[0]
    held = windows.validation_windows()
    say(f"{len(windows.training):,} jobs to learn from, {len(windows.validation):,} to validate on")
    progress("how long jobs run", 0.0)
    start = untrained()._replace(prior=prior(windows.training.duration_s))
    replays = (*windows.halves(None), *windows.halves(least), *windows.synthetic(seed))
    looks = (*held, *windows.synthetic(seed + 1)[:2]) or replays
    seen = joined([collected(each, start, settings.hazards.keys // 4) for each in looks])
    learner = HazardLearner(start, replays, settings)

    def look(network: nn.Module) -> dict[str, float]:
        assert isinstance(network, HazardNetwork)
        return {"surprise": surprise(network, seen)}

    def write(best: nn.Module) -> None:
        assert isinstance(best, HazardNetwork)
        write_whole(out / SHIPPED, packed(best.into(start)))

    session = Session(
        learner,
        settings,
        out,
        lambda figures, notes: f"{notes['best']:.4f} nats a duration",
        counted="keys",
        look=look,
        best_by="surprise",
        least=True,
        write=write,
        free=FREE,
        progress=progress,
    )
    return _answer(session.run(before, prepared_s=time.monotonic() - began), start, held, out)


def needs(settings: KeyTraining) -> list[Need]:
    """What the windows hold (the drawn ones twice: to learn and to validate on), and what is seen in them."""
    windows = settings.windows
    synthetic, apart = 2 * windows.drawn, 4 + windows.drawn + 2  # of the trace, drawn, a quarter of those looked at
    return [
        Need(windows.jobs * (2 * synthetic * JOB_BYTES + 2 * REPLAY_BYTES), ("windows.jobs", "windows.drawn")),
        Need(hazards.need(settings.hazards, apart), ("hazards.keys", "windows.drawn")),
    ]


def _of_limit(held: Sequence[Window], weights: KeyWeights) -> float | None:
    """Mean completion over the clairvoyant's, the geometric mean over windows; None where there are none."""
    ratios = [window.mean_completion_s(weights) / window.limit_s() for window in held]
    return float(np.exp(np.mean(np.log(ratios)))) if ratios else None


def _answer(found: Outcome, start: KeyWeights, held: Sequence[Window], out: Path) -> dict[str, Any]:
    assert isinstance(found.policy, HazardNetwork)
    counted, learned = _of_limit(held, start), _of_limit(held, found.policy.into(start))
    told = ""
    if learned is not None:
        told = f"\nmean completion on jobs that were not learned from, over the clairvoyant's: {learned:.4f}"
        told += f" ({counted:.4f} by counts of the past alone)"
    path, curve = out / SHIPPED, out / "curve.jsonl"
    words = f"{found.updates} updates, {found.seconds / 60:.1f} minutes{told}\npolicy {path}, curve {curve}"
    return {
        "policy": str(path),
        "curve": str(curve),
        "updates": found.updates,
        "seconds": round(found.seconds, 1),
        "of_limit": learned,
        "start": counted,
        "words": words,
    }
