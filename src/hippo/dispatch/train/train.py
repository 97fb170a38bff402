"""``hippo train`` for learned dispatch: updates, looks, checkpoints, and the policy file at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hippo.dispatch.env.generator import DispatchWorld, drawn_world
from hippo.dispatch.network import DispatchWeights, follower, read
from hippo.dispatch.noise.pipelines import Pipelines
from hippo.dispatch.train.learner import learn, need
from hippo.dispatch.train.look import look_of
from hippo.dispatch.train.on_plan import train_on_plan, written
from hippo.dispatch.train.policy import DispatchPolicy
from hippo.dispatch.train.settings import NetworkSettings, Settings
from hippo.errors import InputError
from hippo.learn.checkpoint import earlier_run, must_match
from hippo.learn.distributed import Place
from hippo.learn.fits import refuse_too_large
from hippo.learn.session import Learned, Session

Progress = Callable[[str, float], None]
_BANK, _UPDATE = 1, 2  # streams of random numbers


def train(
    settings: Settings,
    *,
    out: Path,
    resume: bool = False,
    progress: Progress = lambda phase, share: None,
    say: Callable[[str], None] = lambda words: None,
    pipelines: Pipelines | None = None,
) -> dict[str, Any]:
    """Trains a policy and writes it, its curve and its checkpoints into ``out``; one process, one thread. Where
    ``pipelines`` are given it learns on those alone (``on_plan.train_on_plan``).

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
    if pipelines is not None:
        return train_on_plan(settings, pipelines, out=out, resume=resume, progress=progress, say=say)
    refuse_too_large(settings, [need(settings)])
    torch.set_num_threads(1)
    before = earlier_run(out, resume=resume)
    if before is not None:
        must_match(before, settings, free=Session.free)  # before worlds are drawn
    torch.manual_seed(settings.run.seed)
    policy = DispatchPolicy(_begun(settings))
    look = look_of(settings)
    session = Session(
        DispatchLearner(policy, settings),
        settings,
        out,
        _words,
        counted="decisions",
        look=lambda seen: look.figures(seen.weights()),  # type: ignore[operator]
        best_by="validation/gain",
        look_first=False,
        progress=progress,
    )
    say(f"{settings.worlds.train} drawn worlds to learn on, {len(look.worlds)} to look at")
    found = session.run(before)
    assert isinstance(found.policy, DispatchPolicy)
    assert found.best is not None
    told = f"{_against(found.best)} than the base hint on other worlds"
    return written(found, found.policy.weights(), out, gain=found.best, told=told)


def _begun(settings: Settings) -> DispatchWeights:
    """The weights to begin with; ``InputError`` where those of a file are not as the settings say."""
    given = settings.network
    if not given.start:
        return follower(given.trust, given.hidden)
    found = read(given.start)
    hidden = len(found.first_bias)
    if hidden != given.hidden:
        remedy = f"give hidden: {hidden}, or leave out start"
        raise InputError(f"is {hidden} in {given.start}", key="network.hidden", value=given.hidden, remedy=remedy)
    if given.trust != NetworkSettings().trust:
        remedy = "leave out one of them"
        raise InputError("does not go with network.start", key="network.trust", value=given.trust, remedy=remedy)
    return found


def bank(settings: Settings) -> list[DispatchWorld]:
    """The worlds that a run learns on."""
    rng = np.random.default_rng([settings.run.seed, _BANK])
    return [drawn_world(rng, most_ranks=settings.worlds.most_ranks) for _ in range(settings.worlds.train)]


class DispatchLearner:
    """Every update draws from a generator of its own number."""

    place = Place()

    def __init__(self, policy: DispatchPolicy, settings: Settings) -> None:
        self.policy, self.settings, self.bank = policy, settings, bank(settings)
        self.optimizer = torch.optim.Adam(policy.parameters(), lr=settings.ppo.learning_rate, eps=1e-5)

    def learn(self, done: float) -> Learned:
        """One update; ``done``: share of the run that lies behind."""
        began, given, number = time.process_time(), self.settings.worlds, round(done * self.settings.run.updates)
        rng = np.random.default_rng([self.settings.run.seed, _UPDATE, number])
        worlds = [self.bank[at] for at in rng.integers(len(self.bank), size=given.each_update)]
        told = learn(self.policy, self.optimizer, worlds, self.settings, rng, done=done)
        losses = {f"ppo/{name}": float(value) for name, value in told.losses._asdict().items()}
        figures = {"gain": told.gain, "strayed": told.strayed, **losses}
        return Learned(figures, told.decisions, time.process_time() - began)

    def state(self) -> tuple[Sequence[float], list[Any]]:
        """Nothing but weights goes on from one update to the next."""
        return (), []

    def restore(self, multipliers: Sequence[float], shares: Sequence[Any]) -> None:
        """Nothing to do."""


def _words(figures: Mapping[str, float], notes: Mapping[str, Any]) -> str:
    best = notes["best"]
    seen = "" if best is None else f", best {_against(best)} than the hint at update {notes['best_update']}"
    return (
        f"KL {figures['ppo/kl']:.3f}, entropy {figures['ppo/entropy']:.2f}, "
        f"{figures['strayed']:.1%} not the hint's{seen}"
    )


def _against(gain: float) -> str:
    """A gain in percent, in words."""
    return f"{abs(gain):.2f} % {'shorter' if gain >= 0 else 'longer'}"
