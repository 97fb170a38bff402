"""``hippo train`` for the queue where jobs have deadlines: PPO on the key's noise, from a hand-made start.

A window of the trace gets deadlines and is played twice: without noise, and with noise on the keys of some jobs. Each
of these jobs is credited with the misses that the noise has spared, its own and those of jobs with later deadlines,
the later the less. A miss costs the mean of its share of all jobs and its share of their weight. The
start is linear (``START``), with windows counted under the settings' own draws.

Letters: n jobs, N moments, F features.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hippo.files import write_whole
from hippo.jobs.engine.play import play
from hippo.jobs.learned.deadline import (
    FEATURES,
    MOST_PUSH,
    SHIPPED,
    UNITS,
    DueTrial,
    DueWeights,
    due_trial,
    packed,
    ranks,
    untrained,
)
from hippo.jobs.learned.past import BINS, EDGES_S
from hippo.jobs.learned.state import LearnedSetup
from hippo.jobs.ledger import Ledger
from hippo.jobs.policies.learned import LEARNED_DEADLINES
from hippo.jobs.traces.mix import drawn, missed
from hippo.jobs.train.algorithms import ppo
from hippo.jobs.train.learner import QueueLearner
from hippo.jobs.train.policy import NoisyKey
from hippo.jobs.train.rollout import Moments, joined
from hippo.jobs.train.settings import DeadlineTraining
from hippo.jobs.train.windows import REPLAY_BYTES, TraceWindows, Window, trace_windows
from hippo.jobs.workload import JobWorkload
from hippo.learn.checkpoint import earlier_run, must_match
from hippo.learn.fits import Need, refuse_too_large
from hippo.learn.session import Session
from hippo.planners.base import Progress

Floats = NDArray[np.float64]

START = {
    **{"index": 5.8, "devices": 2.6, "priority": -1.05, "room": 0.75, "slack": 5.4, "window": -0.7},
    **{"load_room": 1.55, "load_slack": -2.65},
}
"""Of the features: half what a random search found on windows of the first 55 % of the Philly trace (close to the
earliest deadline), half the index times devices over weight; of five such mixtures the best from 55 to 70 %."""
DRAWN = 60_000  # durations from which windows are counted
PAIRS = 8_000_000  # of a job with noise and a job that it changed, at once
FREE = ("run.minutes", "run.updates")  # what a resumed run may change
_SEEDS = 1_000_000


class DuePolicy(NoisyKey):
    """Logarithms of keys (N,): normal, with a mean that the features say (as the kernels do) and one deviation."""

    def __init__(self, noise: float, units: int = UNITS) -> None:
        super().__init__()
        size = len(FEATURES)
        self.straight = nn.Parameter(torch.zeros(size))
        self.first, self.last = nn.Linear(size, units), nn.Linear(units, 1)
        self.log_noise = nn.Parameter(torch.tensor(float(np.log(noise))))
        self.critic = nn.Sequential(nn.Linear(size, units), nn.Tanh(), nn.Linear(units, 1))
        with torch.no_grad():  # the network says nothing at first
            self.last.weight.zero_()
            self.last.bias.zero_()

    def forward(self, features: Tensor) -> Tensor:
        """Means (N,)."""
        push = self.last(torch.relu(self.first(features)))[:, 0]
        return features @ self.straight + MOST_PUSH * torch.tanh(push / MOST_PUSH)

    def into(self, weights: DueWeights) -> DueWeights:
        """The weights with this network's numbers in them."""
        numbers = (self.straight, self.first.weight.T, self.first.bias, self.last.weight[0], self.last.bias)
        arrays = [np.array(each.detach().numpy(), np.float32, order="C") for each in numbers]
        return weights._replace(**dict(zip(DueWeights._fields[1:], arrays, strict=True)))

    def take(self, weights: DueWeights) -> None:
        """The numbers of these weights."""
        with torch.no_grad():
            self.straight.copy_(torch.from_numpy(weights.straight))
            self.first.weight.copy_(torch.from_numpy(weights.first.T.copy()))
            self.first.bias.copy_(torch.from_numpy(weights.first_bias))
            self.last.weight.copy_(torch.from_numpy(weights.last[None]))
            self.last.bias.copy_(torch.from_numpy(weights.last_bias))


def begun(settings: DeadlineTraining) -> DueWeights:
    """The weights to begin with: the rule ``START``, and windows as the settings draw them."""
    rng = np.random.default_rng(settings.run.seed)
    edges = np.concatenate([[EDGES_S[0] / 2], EDGES_S, [EDGES_S[-1] * 1.4]])
    duration_s = np.exp(rng.uniform(np.log(edges[0]), np.log(edges[-1]), DRAWN))
    jobs = JobWorkload.of_columns({"arrival_s": np.zeros(DRAWN), "duration_s": duration_s})
    counted = np.full((BINS, BINS), 1e-3)
    for place, setting in enumerate(settings.draws.settings):
        each = drawn(jobs, setting, place)
        ends = np.isfinite(each.deadline_s)
        window = np.searchsorted(EDGES_S, (each.deadline_s - each.arrival_s)[ends], side="right")
        np.add.at(counted, (window, np.searchsorted(EDGES_S, each.duration_s[ends], side="right")), 1.0)
    return untrained(**START)._replace(windows=(counted / counted.sum(axis=0)).astype(np.float32))


@dataclass(frozen=True, eq=False)
class Stretch:
    """A window with its deadlines."""

    window: Window
    workload: JobWorkload

    def play(self, weights: DueWeights, trial: DueTrial | None = None) -> Ledger:
        """One replay."""
        learner = LearnedSetup(past=self.window.past, deadlines=weights, deadline_trial=trial)
        return play(self.workload, self.window.site, LEARNED_DEADLINES, self.window.rules, learner=learner)

    def costs(self, found: Ledger) -> Floats:
        """(n,) What each miss costs, 0 for jobs in time: its share of the jobs and of their weight, in percent."""
        ends = np.isfinite(self.workload.deadline_s)
        weight = np.where(ends, np.exp2(ranks(self.workload.priority)), 0.0)
        late = ends & ~(found.finish_s <= self.workload.deadline_s)
        return np.where(late, 50.0 / max(ends.sum(), 1) + 50.0 * weight / max(weight.sum(), 1e-9), 0.0)


def stretch(window: Window, settings: DeadlineTraining, generator: np.random.Generator) -> Stretch:
    """A window with deadlines of one of the settings, and estimates half of the time."""
    setting = str(generator.choice(list(settings.draws.settings)))
    estimates = settings.draws.estimates if generator.random() < 0.5 else None
    return Stretch(window, drawn(window.workload, setting, int(generator.integers(_SEEDS)), estimates=estimates))


def roll(
    at: Stretch, weights: DueWeights, settings: DeadlineTraining, generator: np.random.Generator
) -> tuple[Moments, float]:
    """A stretch with noise against itself without, and the cost without."""
    n, search = len(at.workload), settings.search
    base = at.costs(at.play(weights))
    chosen = generator.random(n) < search.share
    trial = due_trial(np.where(chosen, generator.normal(scale=search.noise, size=n), 0.0), int(chosen.sum()))
    spared = base - at.costs(at.play(weights, trial))
    used = int(trial.used[0])
    job = trial.job[:used]
    credit = credits(at.workload, spared, job, search.horizon_s)
    seen = torch.from_numpy(trial.seen[:used].copy()), torch.from_numpy(trial.push[:used].astype(np.float32))
    return Moments(*seen, torch.from_numpy(credit.astype(np.float32))), float(base.sum())


def credits(workload: JobWorkload, spared: Floats, job: NDArray[np.int64], horizon_s: float) -> Floats:
    """(N,) what noise on each ``job`` (N,) is credited with: its own cost spared, and that of later deadlines."""
    changed, found = np.flatnonzero(spared), np.zeros(len(job))
    ends_s, step = workload.deadline_s[changed], max(1, PAIRS // max(len(changed), 1))
    for first in range(0, len(job), step):  # all pairs of a long trace would fill the machine
        rows = job[first : first + step]
        ahead_s = ends_s[None, :] - workload.arrival_s[rows][:, None]
        share = np.where(ahead_s > 0, np.exp(-np.maximum(ahead_s, 0.0) / horizon_s), 0.0)
        share[changed[None, :] == rows[:, None]] = 1.0
        found[first : first + step] = share @ spared[changed]
    return found


def train(
    settings: DeadlineTraining,
    *,
    out: Path,
    resume: bool = False,
    progress: Progress = lambda phase, share: None,
    say: Callable[[str], None] = lambda words: None,
) -> dict[str, Any]:
    """Trains the key for deadlines and writes it, its curve and its checkpoints into ``out``.

    Returns
    -------
    dict
        ``policy``, ``curve`` (paths), ``updates``, ``seconds``, ``cost`` (mean of the two shares missed on windows not
        learned from, percent), ``start`` (the same before learning), ``words`` (a sentence).

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
    held = validation_windows(windows, settings)
    say(f"{len(windows.training):,} jobs to learn from, {len(windows.validation):,} to validate on")
    torch.manual_seed(settings.run.seed)
    policy, base = DuePolicy(settings.search.noise), begun(settings)
    policy.take(base._replace(first=policy.into(base).first))
    policy.log_noise.requires_grad_(False)
    free = [each for each in policy.parameters() if each.requires_grad]
    optimizer = torch.optim.Adam(free, lr=settings.ppo.learning_rate)

    def step(learner: QueueLearner, number: int) -> dict[str, float]:
        generator = np.random.default_rng([settings.run.seed, number])
        weights, parts, cost = policy.into(base), [], []
        for _ in range(settings.search.rolls):
            moments, each = roll(stretch(windows.draw(generator), settings, generator), weights, settings, generator)
            parts.append(moments)
            cost.append(each)
        moments = joined(parts)
        learned = moments.credit.any()  # else noise made no difference
        figures = ppo(policy, optimizer, moments, settings, number) if learned else {}
        return {**figures, "moments": float(len(moments.credit)), "cost": float(np.mean(cost))}

    session = Session(
        QueueLearner(policy, optimizer, base, settings, step),
        settings,
        out,
        lambda figures, notes: f"deadlines, best {notes['best']:.3f} % missed",
        counted="windows",
        look=lambda seen: {"looked_at": validated(held, policy.into(base))},
        best_by="looked_at",
        least=True,
        write=lambda best: write_whole(out / SHIPPED, packed(best.into(base))),  # type: ignore[operator]
        free=FREE,
        progress=progress,
    )
    found = session.run(before, prepared_s=time.monotonic() - began)
    assert found.best is not None
    assert found.first is not None
    return {
        "policy": str(out / SHIPPED),
        "curve": str(out / "curve.jsonl"),
        "updates": found.updates,
        "seconds": found.seconds,
        "cost": found.best,
        "start": found.first,
        "words": f"{found.updates} updates in {found.seconds / 60:.1f} minutes: {found.best:.3f} % missed on windows "
        f"that were not learned from, {found.first:.3f} % at the start\npolicy {out / SHIPPED}",
    }


def needs(settings: DeadlineTraining) -> list[Need]:
    """What a window holds, and the moments of an update: apart, joined, and as they are learned from."""
    jobs, search = settings.windows.jobs, settings.search
    moments = search.rolls * jobs * search.share
    return [
        Need(jobs * REPLAY_BYTES, ("windows.jobs",)),
        Need(moments * 4 * (len(FEATURES) + 2) * 4, ("search.rolls", "windows.jobs", "search.share")),
    ]


def validation_windows(windows: TraceWindows, settings: DeadlineTraining) -> tuple[Stretch, ...]:
    """What is looked at: the first jobs of every window with every setting, without estimates."""
    first = np.arange(settings.windows.jobs)
    return tuple(
        Stretch(window, drawn(window.workload.take(first[: len(window.workload)]), setting, place))
        for place, window in enumerate(windows.validation_windows())
        for setting in settings.draws.settings
    )


def validated(windows: tuple[Stretch, ...], weights: DueWeights) -> float:
    """Mean of the shares missed and of the weight missed, in percent, over what is looked at."""
    found = [missed(each.play(weights), each.workload) for each in windows]
    return float(np.mean([50.0 * (each.share + each.weighted) for each in found])) if found else float("nan")
