"""One update of the dispatch policy: plays of many worlds, advantages, PPO.

The reward of a play comes at its end: how much shorter it was than the policy's own best choices on the same draws (a
self-critical baseline, Rennie et al. 2017, which takes the luck of the draws away). What the play had lost by the time
of a decision is taken off by least squares on its lags (``dispatch.env.reward``). A critic, a network on the same lags
of all ranks, was tried in its place and explained less than that line.

Letters: N decisions, n draws, R plays of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from hippo.dispatch.base import base_of
from hippo.dispatch.env.generator import DispatchWorld, most_micro_batches
from hippo.dispatch.env.reward import reward
from hippo.dispatch.env.rollout import DECISIONS, DispatchRollout, roll_out, rows_of
from hippo.dispatch.features import CHOICES
from hippo.dispatch.network import DispatchWeights
from hippo.dispatch.noise.fluctuation import Factors, drawn
from hippo.dispatch.train.policy import DispatchPolicy, SeenChoices
from hippo.dispatch.train.settings import Settings
from hippo.learn.fits import Need
from hippo.learn.ppo import Batch, Losses, minibatches, normalised, update

Floats = NDArray[np.float64]


DECISION_BYTES = 1000.0
"""Of a decision that was drawn, as it is written down and as PPO takes it; measured: 950."""


@dataclass(frozen=True)
class Told:
    """What one update was like."""

    decisions: int
    plays: int
    gain: float  # mean of what drawn choices gained on best choices, percent
    strayed: float  # share of decisions that were not the base's
    losses: Losses


def need(settings: Settings) -> Need:
    """What one update holds where all its worlds are the largest that may come: room for the plays of one world, the
    decisions that are drawn in all of them. Measured, twice to three times what updates take."""
    given = settings.worlds
    cells = given.most_ranks * most_micro_batches(given.most_ranks)
    decisions = given.draws * given.plays * DECISIONS * cells
    row_bytes = sum(each.nbytes for each in rows_of(1))
    draw_bytes = given.draws * 6 * cells * 2 * 4  # factors of three operations, two messages and a rank, joined
    held_bytes = decisions * row_bytes + given.each_update * decisions * given.share * DECISION_BYTES + draw_bytes
    return Need(held_bytes, tuple(f"worlds.{key}" for key in ("draws", "plays", "each_update", "most_ranks", "share")))


def learn(
    policy: DispatchPolicy,
    optimizer: torch.optim.Optimizer,
    worlds: Sequence[DispatchWorld],
    settings: Settings,
    rng: np.random.Generator,
    *,
    done: float = 0.0,
) -> Told:
    """Plays the worlds, and takes the steps of one update; ``done``: share of the run that lies behind, which sets
    learning rate and entropy."""
    ppo = settings.ppo.whole
    rate, entropy = settings.ppo.between(done)
    for group in optimizer.param_groups:
        group["lr"] = rate
    weights = policy.weights()
    played = [_played(world, weights, settings, rng) for world in worlds]
    batch = batch_of(played)
    order = minibatches([len(batch.action)], ppo, [rng])
    losses = update(policy.evaluate, optimizer, batch, settings=ppo, order=order, entropy=entropy)
    strayed = (batch.action != batch.observation.says.argmax(1)).float().mean()
    gain = float(np.mean([_rewards(each).mean() for each in played]))
    plays = sum(each.makespans.size for each in played)
    return Told(len(batch.action), plays, gain, float(strayed), losses)


def _played(
    world: DispatchWorld, weights: DispatchWeights, settings: Settings, rng: np.random.Generator
) -> DispatchRollout:
    given = settings.worlds
    parts = drawn(world.problem, world.fluctuation, samples=given.draws, rng=rng)
    factors = Factors(*(np.concatenate(each) for each in zip(*parts, strict=True)))
    base = base_of(world.problem, world.fluctuation.deviation) if world.base is None else world.base
    return roll_out(world.problem, base, weights, factors, plays=given.plays, share=given.share, rng=rng)


def batch_of(played: Sequence[DispatchRollout]) -> Batch:
    """Decisions of all plays as PPO takes them; advantages are measured by the spread of each world's rewards, so that
    a world whose times hardly move counts as much as one that is all noise."""
    observation = SeenChoices(*(torch.cat(columns) for columns in zip(*map(_seen, played), strict=True)))
    rewards = []
    for each in played:
        found = _rewards(each).ravel()
        rewards.append(np.repeat(found / max(float(found.std()), 0.05), np.diff(each.ends, prepend=0)))
    paid = np.concatenate(rewards)
    advantage = paid - lost(np.concatenate([each.decisions.lags for each in played]).astype(np.float64), paid)
    return Batch(
        observation,
        torch.from_numpy(np.concatenate([each.decisions.choice for each in played])),
        torch.from_numpy(np.concatenate([each.decisions.log_prob for each in played])),
        normalised(torch.from_numpy(advantage.astype(np.float32))),
        torch.zeros(len(paid), 0),
    )


def lost(lags: Floats, paid: Floats) -> Floats:
    """What the rewards (N,) are expected to be, given the lags (N, LAGS) at each decision: a line for each, whose slope
    bends with the share of the play that is left."""
    left = lags[:, -1:]
    bent = np.concatenate([left**power for power in range(3)], axis=1)
    columns = (lags[:, :-1, None] * bent[:, None, :]).reshape(len(lags), -1)
    columns = np.concatenate([columns, bent], axis=1)
    square = columns.T @ columns + 1e-3 * len(lags) * np.eye(columns.shape[1])
    found: Floats = columns @ np.linalg.solve(square, columns.T @ paid)
    return found


def _rewards(played: DispatchRollout) -> Floats:
    """(n, R)."""
    return reward(played.makespans, played.reference[:, None])


def _seen(played: DispatchRollout) -> SeenChoices:
    rows = played.decisions
    says = torch.nn.functional.one_hot(torch.from_numpy(rows.says), CHOICES).float()
    return SeenChoices(torch.from_numpy(rows.seen), torch.from_numpy(rows.mask), says)
