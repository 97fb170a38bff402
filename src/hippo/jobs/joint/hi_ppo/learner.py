"""One loop trains both agents: decisions in many worlds at once, then PPO on them.

The upper agent learns by its advantages in semi-Markov time (``learn.advantage``). The lower one adds to what the upper
one's advantage says of the whole answer what a shape costs its domain, which is known at once: a shape's own reward
less the mean over the shapes that it could have chosen, as likely as they were (a counterfactual baseline, Foerster et
al. 2018, which here needs no critic).

Letters: T decisions in a row, W worlds, N = T x W, V shapes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hippo.jobs.engine import observe
from hippo.jobs.joint.advice import NO_CHARGES, Charges
from hippo.jobs.joint.env import COSTS, JOBS
from hippo.jobs.joint.hi_ppo.network import LowerNetwork, MomentsSeen, UpperNetwork
from hippo.jobs.joint.hi_ppo.settings import Ascending, WorldLearning
from hippo.jobs.joint.hi_ppo.worlds import BESIDE, Scenes, Sights, WorldBatch
from hippo.learn.advantage import advantages
from hippo.learn.distributed import Place
from hippo.learn.ppo import Batch, Evaluated, Losses, likely, minibatches, normalised, take, update
from hippo.learn.randomness import numbers, words
from hippo.learn.session import Learned
from hippo.learn.settings import Ppo

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


class SiteAgents(nn.Module):
    """Both agents, and the multipliers of the limits that they keep to."""

    multipliers: Tensor  # (COSTS,)

    def __init__(self, settings: WorldLearning) -> None:
        super().__init__()
        own = settings.network
        graph = own.encoder != "none" and not settings.ablation.no_gnn
        self.upper = UpperNetwork(
            own.hidden, own.layers, own.heads, out=own.out, graph=graph, beside=BESIDE, follows=own.follows
        )
        self.lower = LowerNetwork(own.hidden)
        sees = self.upper
        if settings.ablation.no_memory:
            sees.sees_links[list(observe.MEMORY)], sees.sees_domains[list(observe.PAST)] = 0.0, 0.0
            sees.sees_jobs[list(observe.OF_USER)] = 0.0
        if settings.ablation.no_forecast:
            sees.sees_links[list(observe.FORECAST)] = 0.0
        self.register_buffer("multipliers", torch.zeros(len(COSTS), dtype=torch.float64))  # of the limits
        if settings.ablation.no_advice:
            sees.sees_jobs[observe.ADVISED_JOB], sees.sees_site[observe.ADVISED_NOBODY] = 0.0, 0.0
            sees.sees_places[observe.ADVISED_PLACE] = 0.0

    def evaluate(self, seen: MomentsSeen, action: Tensor) -> Evaluated:
        """How likely whole answers (N, 3) are now, as one agent's."""
        upper, asked = self.upper.evaluate(seen, action), seen.may_shape.any(1)
        lower = self.lower.evaluate(seen, action[:, 2])
        log_prob, chaos = (torch.where(asked, each, 0.0) for each in (lower.log_prob, lower.entropy))
        return Evaluated(upper.log_prob + log_prob, upper.entropy + chaos, upper.values)


def charges_of(policy: SiteAgents, settings: WorldLearning) -> Charges:
    """What its multipliers say that limits cost."""
    return settings.limits.charges(policy.multipliers.tolist())


class Decided(NamedTuple):
    """One answer in each world."""

    action: Ints  # (W, 3) slot, place, shape
    upper: Floats  # (W,) log probability of slot and place
    lower: Floats  # (W,) of the shape
    values: Floats  # (W, 1)


class Roll(NamedTuple):
    """Decisions, (T, W) each."""

    seen: Sights
    action: Ints  # (T, W, 3)
    upper: Floats
    lower: Floats
    rewards: Floats  # (T, W, 1)
    values: Floats  # (T + 1, W, 1)
    done: NDArray[np.bool_]
    epochs: Floats

    @property
    def decisions(self) -> int:
        """T x W."""
        return int(self.upper.size)


def tensors(sights: Sights) -> MomentsSeen:
    """The same as tensors, sharing memory."""
    return MomentsSeen(*(torch.from_numpy(each) for each in sights))


@torch.inference_mode()
def decide(policy: SiteAgents, batch: WorldBatch, rng: np.random.Generator | None, *, lower: bool = True) -> Decided:
    """An answer in each world. Without random numbers: the likeliest; not ``lower``: the quickest shape."""
    seen = tensors(batch.sights)
    thought = policy.upper.think(seen)
    whom = likely(policy.upper.whom(thought), seen.may).numpy()
    slot = drawn(whom, rng)
    batch.ask(slot)
    whither = likely(policy.upper.whither(thought, torch.from_numpy(slot), seen), seen.may_place).numpy()
    place = drawn(whither, rng)
    batch.hand_down(slot, place)
    some = batch.sights.may_place.any(1)
    log_prob = _of(whom, slot) + np.where(some, _of(whither, place), 0.0)
    shape, below = np.zeros(batch.worlds, np.int64), np.zeros(batch.worlds, np.float32)
    asked = np.flatnonzero(batch.sights.may_shape.any(1))
    if lower and len(asked):
        rows = torch.from_numpy(asked)
        how = likely(policy.lower.scores(seen.shapes[rows]), seen.may_shape[rows]).numpy()
        shape[asked] = drawn(how, rng)
        below[asked] = _of(how, shape[asked])
    values = policy.upper.value(thought, seen).numpy()
    return Decided(np.stack([slot, place, shape], 1), log_prob.astype(np.float32), below, values)


TURNS = 60
"""Answers a job in a world that is looked at; who needs more goes round in circles."""


def played(
    policy: SiteAgents,
    scenes: Scenes,
    count: int,
    *,
    first: int = 0,
    step: int = 1,
    lower: bool = True,
    charges: Charges = NO_CHARGES,
) -> WorldBatch:
    """So many worlds (the ``first``, then every ``step``-th) under the policy's likeliest answers, as they then stand:
    not all may have come to an end."""
    batch = WorldBatch(scenes, count, len(scenes.domains), first, step, endless=False, charges=charges)
    for _ in range(TURNS * len(batch.envs[0].price)):
        if batch.over:
            break
        batch.answer(decide(policy, batch, None, lower=lower).action)
    return batch


def _of(log_probs: Floats, chosen: Ints) -> Floats:
    return np.take_along_axis(log_probs, chosen[:, None], 1)[:, 0]


def drawn(log_probs: Floats, rng: np.random.Generator | None) -> Ints:
    """One draw per row; without random numbers the likeliest."""
    if rng is None:
        return np.asarray(log_probs.argmax(1), np.int64)
    summed = np.exp(log_probs, dtype=np.float64).cumsum(1)
    point = rng.random(len(log_probs)) * summed[:, -1]
    return np.asarray((summed > point[:, None]).argmax(1), dtype=np.int64)


class WorldShare:
    """A part of the worlds, and random numbers of its own."""

    def __init__(self, batch: WorldBatch, rng: np.random.Generator) -> None:
        self.batch, self.rng = batch, rng

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"worlds": self.batch.state(), "rng": words(self.rng.bit_generator.state)}

    def restore(self, state: dict[str, Any]) -> None:
        """From a checkpoint."""
        self.rng.bit_generator.state = numbers(state["rng"])
        self.batch.restore(state["worlds"])


def collect(
    policy: SiteAgents,
    share: WorldShare,
    steps: int,
    settings: WorldLearning,
    enough: Callable[[float], bool] = lambda share: False,
) -> Roll:
    """``steps`` decisions in each world, or fewer where ``enough`` says so of the share that is there."""
    batch, lower = share.batch, not settings.ablation.no_lower
    seen = room(batch, steps)
    shape = (steps, batch.worlds)
    action = np.zeros((*shape, 3), np.int64)
    upper, below = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    rewards, epochs, done = np.zeros((*shape, 1), np.float32), np.zeros(shape, np.float32), np.zeros(shape, bool)
    values = np.zeros((steps + 1, batch.worlds, 1), np.float32)
    for step in range(steps):
        if enough(step / steps):
            steps, seen = step, Sights._make(each[:step] for each in seen)
            break
        action[step], upper[step], below[step], values[step] = decide(policy, batch, share.rng, lower=lower)
        keep(seen, batch, step)
        reward, passed, done[step] = batch.answer(action[step])
        rewards[step, :, 0], epochs[step] = reward, passed / settings.worlds.epoch_s
    with torch.no_grad():
        now_seen = tensors(batch.sights)
        values[steps] = policy.upper.value(policy.upper.think(now_seen), now_seen).numpy()
    return Roll(
        seen,
        action[:steps],
        upper[:steps],
        below[:steps],
        rewards[:steps],
        values[: steps + 1],
        done[:steps],
        epochs[:steps],
    )


def keep(seen: Sights, batch: WorldBatch, step: int) -> None:
    """Note what is seen now."""
    for kept, now in zip(seen, batch.sights, strict=True):
        np.asarray(kept)[step] = now  # the same memory


def room(batch: WorldBatch, steps: int) -> Sights:
    """For what is seen in so many decisions, (T, W, ...)."""
    return Sights(*(np.zeros((steps, *each.shape), each.dtype) for each in batch.sights))


def flat(sights: Sights) -> MomentsSeen:
    """(T, W, ...) as (N, ...)."""
    return MomentsSeen(*(torch.from_numpy(each.reshape(-1, *each.shape[2:])) for each in sights))


def valued(roll: Roll, settings: Ppo) -> tuple[Floats, Floats]:
    """Advantages and returns of the upper agent, (T, W, 1)."""
    return advantages(
        roll.rewards, roll.values, done=roll.done, epochs=roll.epochs, gamma=settings.gamma, lam=settings.gae_lambda
    )


class WorldLearner:
    """Owns what is learned. ``shares``: the worlds of this process."""

    def __init__(self, policy: SiteAgents, shares: Sequence[WorldShare], settings: WorldLearning, place: Place) -> None:
        self.policy, self.shares, self.settings, self.place = policy, shares, settings, place
        rate = settings.ppo.learning_rate
        self.optimizer = torch.optim.Adam(policy.parameters(), lr=rate, eps=1e-5)
        worlds = sum(share.batch.worlds for share in shares) * place.size
        self.steps = max(1, settings.ppo.steps_per_update // worlds)
        self.updates = 0
        self.ascent = Ascending.at(policy.multipliers.numpy())._replace(step=settings.limits.by_rule)
        self.since = 0.0  # worlds that ended since the last step of the ascent

    def learn(self, done: float) -> Learned:
        """One update; ``done``: share of the run that lies behind, which sets learning rate and entropy."""
        began, ppo = time.process_time(), self.settings.ppo
        for group in self.optimizer.param_groups:
            group["lr"] = _between(ppo.learning_rate, ppo.learning_rate_end, done)
        others = self.place.roll_outs
        enough = partial(others.enough, self.updates)
        old = [len(share.batch.ended) for share in self.shares]
        rolls = [collect(self.policy, share, self.steps, self.settings, enough) for share in self.shares]
        others.done(self.updates)
        rolled_s = time.process_time() - began
        found = [valued(roll, ppo) for roll in rolls]
        seen = [flat(roll.seen) for roll in rolls]
        every = MomentsSeen(*(torch.cat(parts) for parts in zip(*seen, strict=True)))
        advantage = torch.from_numpy(np.concatenate([each.reshape(-1) for each, _ in found]))
        returns = torch.from_numpy(np.concatenate([each.reshape(-1, 1) for _, each in found]))
        action = torch.from_numpy(np.concatenate([roll.action.reshape(-1, 3) for roll in rolls]))
        entropy = _between(ppo.entropy, ppo.entropy_end, done)
        figures: dict[str, float] = {}
        if self.updates % self.settings.run.upper_every == 0:
            upper = self._upper(every, action, rolls, advantage, returns, entropy)
            figures |= {f"ppo/{name}": float(value) for name, value in upper._asdict().items()}
        if not self.settings.ablation.no_lower and not self.settings.ablation.no_hierarchy:
            lower = self._lower(every, action, rolls, advantage, entropy)
            figures |= {f"lower/{name}": float(value) for name, value in lower._asdict().items()}
        ended = sum(len(share.batch.ended) - count for share, count in zip(self.shares, old, strict=True))
        figures |= self._ascend(ended)
        self.updates += 1
        decisions = self._summed(float(sum(roll.decisions for roll in rolls)))
        figures |= self._means(rolls, returns, decisions)
        figures["decisions_per_cpu_s_rolling"] = sum(roll.decisions for roll in rolls) / max(1e-9, rolled_s)
        return Learned(figures, int(decisions), time.process_time() - began)

    def state(self) -> tuple[Sequence[float], list[Any]]:
        """For a checkpoint."""
        value, mean, square, step = self.ascent
        numbers = [float(self.updates), float(step), self.since, *value, *mean, *square]
        return [float(each) for each in numbers], [share.state() for share in self.shares]

    def restore(self, multipliers: Sequence[float], shares: Sequence[Any]) -> None:
        """From a checkpoint."""
        self.updates, self.since = int(multipliers[0]), multipliers[2]
        value, mean, square = np.array(multipliers[3:]).reshape(3, -1)
        self.ascent = Ascending(value, mean, square, int(multipliers[1]))
        for share, state in zip(self.shares, shares, strict=True):
            share.restore(state)
            share.batch.charges = charges_of(self.policy, self.settings)

    def _upper(
        self,
        seen: MomentsSeen,
        action: Tensor,
        rolls: Sequence[Roll],
        advantage: Tensor,
        returns: Tensor,
        entropy: float,
    ) -> Losses:
        whole = self.settings.ablation.no_hierarchy
        taken = [roll.upper + roll.lower if whole else roll.upper for roll in rolls]
        log_prob = torch.from_numpy(np.concatenate([each.reshape(-1) for each in taken]))
        together = self.place.together
        batch = Batch(seen, action, log_prob, normalised(advantage, together), returns)
        order = self._order([roll.decisions for roll in rolls])
        network, warm = self.policy.upper, self.updates < self.settings.run.value_updates
        for name, each in network.named_parameters():  # the value first: what it says means nothing yet
            each.requires_grad_(not warm or name.startswith("value"))
        return update(
            self.policy.evaluate if whole else network.evaluate,
            self.optimizer,
            batch,
            settings=self.settings.ppo,
            order=order,
            entropy=entropy,
            together=together,
        )

    def _lower(
        self, seen: MomentsSeen, action: Tensor, rolls: Sequence[Roll], advantage: Tensor, entropy: float
    ) -> Losses:
        """PPO of the lower agent where it was asked."""
        together = self.place.together
        rows = torch.nonzero(seen.may_shape.any(1))[:, 0]
        seen, chosen = take(seen, rows), action[rows, 2]
        log_prob = torch.from_numpy(np.concatenate([roll.lower.reshape(-1) for roll in rolls]))[rows]
        terms = self.settings.lower
        with torch.no_grad():
            chances = likely(self.policy.lower.scores(seen.shapes), seen.may_shape).exp()
            reward = terms.reward(seen.shapes)
            own = reward.gather(1, chosen[:, None])[:, 0] - (chances * reward).sum(1)
        mixed = normalised(advantage[rows], together) * terms.shared + own
        batch = Batch(seen, chosen, log_prob, normalised(mixed, together), torch.zeros(len(rows), 1))
        share = np.repeat(np.arange(len(rolls)), [roll.decisions for roll in rolls])
        order = self._order(np.bincount(share[rows.numpy()], minlength=len(rolls)).tolist())
        return update(
            self.policy.lower.evaluate,
            self.optimizer,
            batch,
            settings=replace(self.settings.ppo, value=0.0),
            order=order,
            entropy=entropy,
            together=together,
        )

    def _ascend(self, ended: int) -> dict[str, float]:
        """A step of the dual (Ray et al. 2019, section 4.2) once enough worlds have ended. Returns use over limit, and
        multipliers.

        What counts are other worlds, as many, under the likeliest answers, which is what will serve: who tries things
        uses several times as much (2.7 times the limit of egress where the rule that is followed uses 0.9), and the
        worlds that end first are no sample of all.
        """
        limits, held, place = self.settings.limits, self.policy.multipliers, self.place
        if not limits.some:
            return {}
        self.since += self._summed(float(ended))
        if self.since < limits.worlds:
            return {}
        own, first = len(range(place.rank, limits.worlds, place.size)), self.ascent.step * limits.worlds + place.rank
        charges, lower = charges_of(self.policy, self.settings), not self.settings.ablation.no_lower
        play = partial(played, self.policy, self.shares[0].batch.scenes, lower=lower, charges=charges)
        served = play(own, first=first, step=place.size).ended if own else []
        rows = np.array([[*each.used, each.hours, each.jobs] for each in served]).reshape(-1, len(COSTS) + 2)
        *used, hours, jobs = [self._summed(float(each)) for each in rows.sum(axis=0)]
        over = limits.over(np.array(used), hours, jobs)
        self.ascent, self.since = limits.ascended(self.ascent, over), 0.0
        held.copy_(torch.from_numpy(self.ascent.value))
        for share in self.shares:
            share.batch.charges = charges_of(self.policy, self.settings)
        figures = {f"limits/{name}": float(each) for name, each in zip(COSTS, over, strict=True)}
        return figures | {f"multipliers/{name}": float(each) for name, each in zip(COSTS, held, strict=True)}

    def _order(self, lengths: list[int]) -> Any:
        """Rows of the minibatches, of each of this process's shares its part."""
        ppo = self.settings.ppo
        count = max(1, round(self._summed(float(sum(lengths))) / ppo.minibatch))
        return minibatches(lengths, ppo, [share.rng for share in self.shares], count=count)

    def _means(self, rolls: Sequence[Roll], returns: Tensor, decisions: float) -> dict[str, float]:
        """What is paid per epoch, how well values say what comes, how often nobody is chosen."""
        epochs = self._summed(float(sum(roll.epochs.sum() for roll in rolls)))
        paid = self._summed(float(sum(-roll.rewards.sum(dtype=np.float64) for roll in rolls)))
        values = np.concatenate([roll.values[:-1].reshape(-1) for roll in rolls])
        explained = 1.0 - float(np.var(returns[:, 0].numpy() - values)) / max(1e-12, float(returns.var()))
        nobody = self._summed(float(sum((roll.action[..., 0] == JOBS).sum() for roll in rolls)))
        ended = [each.of_rule for share in self.shares for each in share.batch.ended[-32:]]
        figures = {"paid": paid / max(epochs, 1e-9), "explained": explained, "nobody": nobody / decisions}
        return figures | ({"of_rule": float(np.mean(ended))} if ended else {})

    def _summed(self, value: float) -> float:
        return float(self.place.together.mean(torch.tensor(value, dtype=torch.float64))) * self.place.size


def _between(first: float, last: float, done: float) -> float:
    return first + (last - first) * min(max(done, 0.0), 1.0)
