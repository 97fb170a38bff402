"""``hippo train --plan``: learned dispatch goes on learning on the pipelines of one plan, before they run.

It plays them under the noise that it is told, and no other: what a step will draw nobody knows before. Of each draw one
play by best choices is made, and at some of its decisions every other choice is played to the end (``env.branches``):
what a choice is worth comes without the luck of the draws and without that of other choices. All choices of a decision
then weigh in the update by how likely they were, clipped as PPO clips them.

A policy that has settled tries nothing, so its scores are divided by a temperature at first: best choices stay what
they were. Weights are averaged over the last updates. The best average of all looks is tried once more on fresh plays,
as ranks would follow it (``guard``), against the policy that was begun with, which stays where the difference does not
lie on one side with its whole interval.

Letters: N decisions, M choices of them all, n plays.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from hippo.dispatch.env.branches import Branches, branch_out, room_for
from hippo.dispatch.env.generator import DispatchWorld
from hippo.dispatch.features import CHOICES
from hippo.dispatch.guard import POLICY as TRUSTED
from hippo.dispatch.guard import settled
from hippo.dispatch.network import DispatchWeights, packed, read, shipped
from hippo.dispatch.noise.fluctuation import Factors, MakespanSpread, drawn
from hippo.dispatch.noise.learned_play import play_learned
from hippo.dispatch.noise.pipelines import Pipelines
from hippo.dispatch.train.learner import DECISION_BYTES
from hippo.dispatch.train.policy import DispatchPolicy, SeenChoices
from hippo.dispatch.train.settings import DispatchPpo, NetworkSettings, PlanSettings, RunSettings, Settings
from hippo.files import write_whole
from hippo.learn.checkpoint import earlier_run, must_match
from hippo.learn.distributed import Place
from hippo.learn.fits import Need, refuse_too_large
from hippo.learn.ppo import Batch, likely, minibatches, update
from hippo.learn.session import Learned, Outcome, Session

POLICY = "dispatch.npz"
_LEARN, _LOOK, _TRY = 11, 12, 13  # streams of random numbers: what is learned, chosen and tried on is never the same

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class _Given:
    """What a run was made for."""

    plan: str  # digest of its pipelines
    noise: str


@dataclass(frozen=True)
class _PlanRun:
    """All that a resumed run must have in common with what it goes on from."""

    ppo: DispatchPpo
    network: NetworkSettings
    plan: PlanSettings
    run: RunSettings
    given: _Given


def train_on_plan(
    settings: Settings,
    pipelines: Pipelines,
    *,
    out: Path,
    resume: bool = False,
    progress: Callable[[str, float], None] = lambda phase, share: None,
    say: Callable[[str], None] = lambda words: None,
) -> dict[str, Any]:
    """Learns, tries, and writes the policy that is to run the plan, with curve and checkpoints, into ``out``; one
    process, one thread. Every update draws from a generator of its own number, so a resumed run is the same run.

    Returns
    -------
    dict
        ``policy``, ``curve`` (paths), ``updates``, ``decisions``, ``seconds``; ``gain`` and ``gain_error``: percent by
        which fresh plays are shorter than those of the policy that was begun with, and half its 95 % interval;
        ``learned``: whether the file holds the new policy, and not that one; ``best_update``, ``words``.

    Raises
    ------
    InputError
        ``out`` holds a run already; ``resume`` without a checkpoint, with other settings, another plan or other noise;
        more than this machine can hold.
    InfeasibleError
        One micro-batch does not fit into the memory of a rank.
    """
    refuse_too_large(settings, [need(settings, pipelines)])
    torch.set_num_threads(1)
    digest = sha256(repr(pipelines.problems).encode()).hexdigest()[:16]
    mine = _PlanRun(
        settings.ppo, settings.network, settings.plan, settings.run, _Given(digest, repr(pipelines.fluctuation))
    )
    before = earlier_run(out, resume=resume)
    if before is not None:
        must_match(before, mine, free=Session.free)
    start = read(settings.network.start) if settings.network.start else shipped()
    learner = PlanLearner(start, pipelines, settings)
    session = Session(
        learner,
        mine,
        out,
        _words,
        counted="decisions",
        look=lambda seen: {"validation/gain": learner.look(seen.weights())},  # type: ignore[operator]
        best_by="validation/gain",
        look_first=False,
        progress=progress,
    )
    say(f"{len(pipelines.problems)} kind{'s' * (len(pipelines.problems) > 1)} of pipeline to learn on")
    found = session.run(before)
    assert isinstance(found.policy, DispatchPolicy)
    tried = learner.tried(found.policy.weights())
    gain, error = tried.gain.mean, tried.gain.error
    shorter = f"{gain:+.2f} ±{error:.2f} % shorter than the policy that it began with, on {settings.plan.trial_draws}"
    kept = "it is the one written" if tried.learned else "not shown to be shorter: the policy it began with stays"
    answer = written(found, tried.weights, out, gain=gain, told=f"{shorter} fresh plays; {kept}")
    return {**answer, "gain_error": error, "learned": tried.learned}


def written(found: Outcome, weights: DispatchWeights, folder: Path, *, gain: float, told: str) -> dict[str, Any]:
    """Writes a policy; the answer of ``train``. ``told``: what its best update is worth."""
    write_whole(folder / POLICY, packed(weights))
    words = (
        f"{found.updates} updates, {found.count:,} decisions, {found.seconds / 60:.1f} minutes\n"
        f"best at update {found.best_update}: {told}\n"
        f"policy {folder / POLICY}, curve {folder / 'curve.jsonl'}"
    )
    return {
        "policy": str(folder / POLICY),
        "curve": str(folder / "curve.jsonl"),
        "updates": found.updates,
        "decisions": found.count,
        "seconds": round(found.seconds, 1),
        "gain": gain,
        "best_update": found.best_update,
        "words": words,
    }


def need(settings: Settings, pipelines: Pipelines) -> Need:
    """What one update holds: its decisions, and as many draws of the largest pipeline as are drawn or looked at."""
    given = settings.plan
    rows = 2 * given.draws * given.decisions
    row_bytes = sum(each.nbytes for each in room_for(1)) + CHOICES * DECISION_BYTES
    operations = max(each.ranks * each.micro_batches for each in pipelines.problems)
    draws = max(given.draws, given.look_draws, given.trial_draws)
    keys = ("draws", "decisions", "look_draws", "trial_draws")
    return Need(rows * row_bytes + draws * 6 * operations * 2 * 4.0, tuple(f"plan.{key}" for key in keys))


class PolicyTrial(NamedTuple):
    """What fresh plays said."""

    weights: DispatchWeights  # of the policy that is to run
    learned: bool  # whether that is the new one
    gain: MakespanSpread  # of each play, percent by which the new one is shorter, the mean over pipelines


class PlanLearner:
    """Learns on some pipelines; every update draws from a generator of its own number."""

    place = Place()

    def __init__(self, start: DispatchWeights, pipelines: Pipelines, settings: Settings) -> None:
        self.start, self.settings, noise = start, settings, pipelines.fluctuation
        chosen = [settled(each, start, noise.deviation) for each in pipelines.problems]
        self.worlds = [
            DispatchWorld(each, noise, one.base) for each, one in zip(pipelines.problems, chosen, strict=True)
        ]
        self._followed = [one.weights for one in chosen]
        # Where trial plays trust the policy nowhere, it begins as what follows the base.
        began = start if any(one.followed == TRUSTED for one in chosen) else self._followed[0]
        hot = np.float32(settings.plan.temperature)
        torch.manual_seed(settings.run.seed)
        cooled = began._replace(last=began.last / hot, last_bias=began.last_bias / hot, trust=began.trust / hot)
        self._learning, self.policy = DispatchPolicy(cooled), DispatchPolicy(cooled)
        self.policy.load_state_dict(self._learning.state_dict())
        self.optimizer = torch.optim.Adam(self._learning.parameters(), lr=settings.plan.learning_rate, eps=1e-5)
        self._usual: Floats | None = None

    def learn(self, done: float) -> Learned:
        """One update, on one kind of pipeline; ``done``: share of the run that lies behind."""
        began, given, number = time.process_time(), self.settings.plan, round(done * self.settings.run.updates)
        rng = np.random.default_rng([self.settings.run.seed, _LEARN, number])
        world = self.worlds[number % len(self.worlds)]
        assert world.base is not None
        factors = _draws(world, given.draws, rng)
        rows = branch_out(
            world.problem, world.base, self._learning.weights(), factors, decisions=given.decisions, rng=rng
        )
        batch, figures = batch_of(rows), {"strayed": 0.0}
        if len(batch.action):
            ppo = self.settings.ppo.of_plan(given)
            order = minibatches([len(batch.action)], ppo, [rng])
            losses = update(self._learning.evaluate, self.optimizer, batch, settings=ppo, order=order)
            best = np.where(rows.mask, rows.scores, -np.inf).argmax(axis=1)
            figures = {f"ppo/{name}": float(value) for name, value in losses._asdict().items()}
            figures["strayed"] = float((best != rows.says).mean())
        with torch.no_grad():
            for mean, newest in zip(self.policy.parameters(), self._learning.parameters(), strict=True):
                mean.lerp_(newest, 1 - given.remember)
        return Learned(figures, len(rows.says), time.process_time() - began)

    def look(self, weights: DispatchWeights) -> float:
        """Percent by which it is shorter than what ran before, on plays that are the same each time."""

        def played(policies: Sequence[DispatchWeights]) -> Floats:
            found = []
            for number, (world, policy) in enumerate(zip(self.worlds, policies, strict=True)):
                factors = _draws(world, self.settings.plan.look_draws, self._stream(_LOOK, number))
                found.append(play_learned(world.problem, policy, factors, base=world.base, guarded=False).mean())
            return np.array(found)

        if self._usual is None:
            self._usual = played(self._followed)
        return float(100 * (1 - played([weights] * len(self.worlds)) / self._usual).mean())

    def tried(self, weights: DispatchWeights) -> PolicyTrial:
        """The policy that is to run: the new one where it is shorter on fresh plays, with the whole 95 % interval."""
        gains = []
        for number, world in enumerate(self.worlds):
            factors, level = (
                _draws(world, self.settings.plan.trial_draws, self._stream(_TRY, number)),
                world.fluctuation,
            )
            usual, found = (
                play_learned(world.problem, each, factors, level=level.deviation) for each in (self.start, weights)
            )
            gains.append(100 * (usual - found) / usual.mean())
        gain = MakespanSpread(np.mean(gains, axis=0))
        learned = gain.interval[0] > 0
        return PolicyTrial(weights if learned else self.start, learned, gain)

    def state(self) -> tuple[Sequence[float], list[Any]]:
        """Beside the mean of weights, that is looked at, those that learn go on."""
        return (), [{name: each.numpy() for name, each in self._learning.state_dict().items()}]

    def restore(self, multipliers: Sequence[float], shares: Sequence[Any]) -> None:
        """The way back."""
        (newest,) = shares
        self._learning.load_state_dict({name: torch.from_numpy(each) for name, each in newest.items()})

    def _stream(self, stream: int, number: int) -> np.random.Generator:
        return np.random.default_rng([self.settings.run.seed, stream, number])


def batch_of(rows: Branches) -> Batch:
    """Every allowed choice of every decision (M,) as PPO takes it: its advantage is what it gains, in percent of the
    play, above the policy's mean there, times how likely it was; measured by the spread of all."""
    log_probs = likely(torch.from_numpy(rows.scores), torch.from_numpy(rows.mask)).double().numpy()
    chances, gains = np.exp(log_probs), np.zeros_like(log_probs)
    reference = np.broadcast_to(rows.reference[:, None], gains.shape)
    gains[rows.mask] = 100 * (reference - rows.makespans)[rows.mask] / reference[rows.mask]
    gains -= (chances * gains).sum(axis=1, keepdims=True)
    spread = np.sqrt((chances * gains**2).sum() / max(len(gains), 1))
    decision, choice = np.nonzero(rows.mask)
    says = torch.nn.functional.one_hot(torch.from_numpy(rows.says), CHOICES).float()
    seen = SeenChoices(torch.from_numpy(rows.seen), torch.from_numpy(rows.mask), says)
    advantage = (chances * gains)[decision, choice] / max(spread, 1e-6)
    return Batch(
        SeenChoices(*(each[decision] for each in seen)),
        torch.from_numpy(choice),
        torch.from_numpy(log_probs[decision, choice].astype(np.float32)),
        torch.from_numpy(advantage.astype(np.float32)),
        torch.zeros(len(choice), 0),
    )


def _draws(world: DispatchWorld, samples: int, rng: np.random.Generator) -> Factors:
    parts = drawn(world.problem, world.fluctuation, samples=samples, rng=rng)
    return Factors(*(np.concatenate(each) for each in zip(*parts, strict=True)))


def _words(figures: Mapping[str, float], notes: Mapping[str, Any]) -> str:
    best = notes["best"]
    seen = "" if best is None else f", best {best:+.2f} % at update {notes['best_update']}"
    return f"{figures['strayed']:.1%} not the hint's{seen}"
