"""``hippo train``: worlds, network, learner, session, and the policy file at the end."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from hippo.errors import InputError
from hippo.learn.checkpoint import NAME as CHECKPOINT
from hippo.learn.checkpoint import earlier_run
from hippo.learn.distributed import Place, agreed, connected
from hippo.learn.session import Outcome, Session
from hippo.network.observation.features import OPTION_FEATURES
from hippo.network.train.construction import train_construct
from hippo.network.train.export import Arrays, save
from hippo.network.train.learner import UpperLearner
from hippo.network.train.settings import HiPpoSettings
from hippo.network.train.upper_network import GlobalAgent, NetworkConfig
from hippo.network.train.worlds import TRAIN_FILE, Validation, datasets, preparing, shares
from hippo.planners.base import Progress

POLICY = "hi_ppo.policy"
MARGIN = 0.1
"""Epochs of usual work by which a move must beat keeping, at first."""


def train(
    settings: HiPpoSettings,
    *,
    out: Path,
    resume: bool = False,
    progress: Progress = lambda phase, share: None,
    say: Callable[[str], None] = lambda words: None,
) -> dict[str, Any]:
    """Trains a policy and writes it, its curve and its checkpoints into ``out``.

    One thread in each process: networks of this size lose by more. Under ``torchrun`` the first process writes and
    speaks; the others answer with an empty mapping.

    Returns
    -------
    dict
        ``policy``, ``curve`` (paths), ``updates``, ``epochs``, ``seconds``, ``of_hindsight`` (mean share of perfect
        hindsight on validation worlds; None: there are none), ``keeping`` (of who never changes anything),
        ``best_update``.

    Raises
    ------
    InputError
        Settings that do not fit the worlds or the processes; ``resume`` without a checkpoint or with other
        settings.
    """
    torch.set_num_threads(1)
    prepared_only = preparing(out).exists() or (out / TRAIN_FILE).exists()  # cut off before there was a run
    resume = resume and ((out / CHECKPOINT).exists() or not prepared_only)
    before = earlier_run(out, resume=resume)
    began = time.monotonic()
    with connected() as place:
        settings = effective(settings)
        own = place.own(settings.run.shares)
        watch = progress if place.first else _silent
        train_worlds, validation = _prepared(settings, out, place, _within(settings.run.minutes, began, out, watch))
        torch.manual_seed(settings.run.seed)
        policy = begun(GlobalAgent(network(settings)))
        learner = UpperLearner(policy, shares(train_worlds, settings, own), settings, place)
        looks = Validation(validation) if validation is not None and place.first else None
        if place.first:
            say(
                f"{train_worlds.worlds} worlds to learn in, {0 if validation is None else validation.worlds} to look at"
            )
        session = Session(learner, settings, out, words, look=looks, free=FREE, progress=watch)
        found = session.run(before, prepared_s=time.monotonic() - began)
        if not place.first:
            return {}
        return _written(found, settings, out, looks=looks, others=_construction(settings, progress))


FREE = ("run.minutes", "run.construction_minutes", "run.checkpoint_every")
"""Settings that a resumed run may change: how long it sits, and how often it is written down."""


def words(figures: Mapping[str, float], notes: Mapping[str, Any]) -> str:
    """An update, for people."""
    best = "" if notes["best"] is None else f", best {notes['best']:.4f} of hindsight at update {notes['best_update']}"
    return (
        f"regret {-figures['reward']:.4f} epochs an epoch, "
        f"KL {figures['ppo/kl']:.3f}, entropy {figures['ppo/entropy']:.2f}, "
        f"{figures['epochs_per_cpu_s']:,.0f} epochs per CPU second{best}"
    )


def effective(settings: HiPpoSettings) -> HiPpoSettings:
    """The settings with what is left out left out."""
    off = settings.ablation
    if off.no_gnn:
        settings = replace(settings, network=replace(settings.network, encoder="none"))
    if off.no_multipliers:
        settings = replace(settings, multipliers=replace(settings.multipliers, enabled=False))
    return settings


def network(settings: HiPpoSettings) -> NetworkConfig:
    """What the upper agent is made of."""
    return NetworkConfig(**asdict(settings.network))


def begun(policy: GlobalAgent) -> GlobalAgent:
    """The agent with the habits of a planner with a receding horizon: options in the order of what the best sequence of
    moves under the forecast makes of them, and a margin on moves, which cannot be taken back."""
    scale = policy.config.worth_scale
    with torch.no_grad():
        policy.prior.weight.zero_()
        policy.prior.weight[0, OPTION_FEATURES.index("ahead")] = scale
        for kind in ("stop", "background"):
            policy.prior.weight[0, OPTION_FEATURES.index(kind)] = -scale * math.log1p(MARGIN)
    return policy


def _prepared(settings: HiPpoSettings, out: Path, place: Place, watch: Progress) -> Any:
    """The datasets; the first process makes them, the others wait for it."""
    found = datasets(settings, out, progress=watch) if place.first else None
    agreed(place, True)
    return datasets(settings, out) if found is None else found


def _within(minutes: float, began: float, out: Path, watch: Progress) -> Progress:
    """The same watcher, which stops a preparation that takes all the minutes of a run."""

    def told(phase: str, share: float) -> None:
        watch(phase, share)
        if 0 < 60 * minutes <= time.monotonic() - began and share < 1:
            remedy = (
                f"go on with --resume and more minutes (what is prepared is kept in {out}), or ask for fewer worlds"
            )
            raise InputError(f"are over: {phase}", source="--minutes", value=minutes, remedy=remedy)

    return told


def _construction(settings: HiPpoSettings, progress: Progress) -> Arrays:
    """Graphs of the agents that construct plans; none where they are left out."""
    minutes = 0.0 if settings.ablation.flat else settings.run.construction_minutes

    def track(number: int, figures: Mapping[str, float]) -> None:
        progress(f"construction, update {number}", figures["minutes"] / minutes)

    return train_construct(settings, settings.run.seed, minutes, track) if minutes > 0 else {}


def _written(
    found: Outcome, settings: HiPpoSettings, out: Path, *, looks: Validation | None, others: Arrays
) -> dict[str, Any]:
    """Writes the policy; the answer of ``train``."""
    keeping = None if looks is None else looks.usual["validation/keeping"]
    figures = {
        "updates": found.updates,
        "epochs": found.count,
        "seconds": round(found.seconds, 1),
        "of_hindsight": found.best,
        "keeping": keeping,
        "best_update": found.best_update,
    }
    assert isinstance(found.policy, GlobalAgent)
    save(out / POLICY, found.policy, others=others, figures=figures, settings=asdict(settings))
    return {"policy": str(out / POLICY), "curve": str(out / "curve.jsonl"), **figures}


def _silent(phase: str, share: float) -> None:
    """Other processes say nothing."""
