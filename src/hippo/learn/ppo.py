"""PPO: the clipped surrogate over minibatches, until the policy has moved as far as it may.

Schulman et al. 2017, equations 7 and 9; the estimate of the KL divergence and the rule that stops at one and a half
times its target as in Stable-Baselines3 (whose MaskablePPO judges this file in the tests). The loss knows nothing of
networks, environments or masks: it asks ``evaluate`` how likely an action is now. So the same lines train the upper
agent (one masked choice) and those that answer in many parts.

Letters: N decisions of a batch, G costs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from hippo.learn.settings import Ppo

NEVER = -1e8  # logit of what cannot be chosen: finite, so that 0 x log 0 is 0


class Batch(NamedTuple):
    """Decisions as they were taken. ``observation``: a tensor or a named tuple of tensors, first axis N."""

    observation: Any
    action: Tensor  # (N,) or whatever ``evaluate`` takes
    log_prob: Tensor  # (N,) when it was taken
    advantage: Tensor  # (N,) reward and costs mixed, normalised
    returns: Tensor  # (N, 1 + G) what the values should have said: of the reward, then of each cost


class Evaluated(NamedTuple):
    """What the policy thinks of a batch of decisions now."""

    log_prob: Tensor  # (N,)
    entropy: Tensor  # (N,)
    values: Tensor  # (N, 1 + G)


Evaluate = Callable[[Any, Tensor], Evaluated]


class Losses(NamedTuple):
    """Means over the minibatches of an update that were used."""

    policy: float
    value: float
    entropy: float
    kl: float  # of the last minibatch looked at
    clipped: float  # share of decisions whose ratio was clipped
    grad_norm: float
    minibatches: int


class Together(Protocol):
    """Processes that learn the same policy from decisions of their own."""

    def average_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """The mean gradient of all processes replaces each one's own."""
        ...

    def mean(self, value: Tensor) -> Tensor:
        """Mean of a tensor over the processes."""
        ...


@dataclass(frozen=True)
class Alone:
    """One process."""

    def average_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Nothing to do."""

    def mean(self, value: Tensor) -> Tensor:
        """The value itself."""
        return value


def update(
    evaluate: Evaluate,
    optimizer: torch.optim.Optimizer,
    batch: Batch,
    *,
    settings: Ppo,
    order: Iterable[Tensor],
    entropy: float | None = None,
    together: Together | None = None,
) -> Losses:
    """One update of the policy: a step of the optimizer per minibatch in ``order`` (indices into the batch), ended
    early once the policy has moved ``target_kl`` from the one that took the decisions."""
    together = Alone() if together is None else together
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    spread = value_spread(batch.returns, together)
    seen: list[Tensor] = []
    kl = torch.zeros(())
    for rows in order:
        count = torch.tensor(float(len(rows)))
        loss, figures = torch.zeros(()), (torch.zeros(()),) * 5
        if len(rows):
            part = Batch(take(batch.observation, rows), *(each[rows] for each in batch[1:]))
            loss, figures = losses(evaluate, part, settings, spread=spread, entropy=entropy)
        moved, rows_each = together.mean(torch.stack([figures[3] * count, count]))
        if rows_each == 0:
            continue
        kl = moved / rows_each
        if settings.target_kl > 0 and kl > 1.5 * settings.target_kl:
            break
        optimizer.zero_grad()
        if len(rows):  # each decision counts alike, however many of them each process has
            (loss * (count / rows_each)).backward()
        together.average_gradients(parameters)
        norm = nn.utils.clip_grad_norm_(parameters, settings.max_grad_norm)
        optimizer.step()
        seen.append(torch.stack([*figures, norm]))
    mean = torch.stack(seen).mean(0).tolist() if seen else [0.0] * 6
    return Losses(mean[0], mean[1], mean[2], float(kl), mean[4], mean[5], len(seen))


def losses(
    evaluate: Evaluate, batch: Batch, settings: Ppo, *, spread: Tensor, entropy: float | None = None
) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor, Tensor, Tensor]]:
    """The loss to descend, and its parts: surrogate, value, entropy, KL divergence, share clipped.

    ``spread`` (1 + G,): variances by which squared errors of the values are divided; ones for none.
    """
    now = evaluate(batch.observation, batch.action)
    log_ratio = now.log_prob - batch.log_prob
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - settings.clip, 1 + settings.clip)
    policy = -torch.min(ratio * batch.advantage, clipped * batch.advantage).mean()
    value = ((now.values - batch.returns).square() / spread).mean(0).sum()
    chaos = now.entropy.mean()
    weight = settings.entropy if entropy is None else entropy
    loss = policy + settings.value * value - weight * chaos
    with torch.no_grad():
        kl = ((ratio - 1) - log_ratio).mean()
        cut = ((ratio - 1).abs() > settings.clip).float().mean()
    return loss, (policy.detach(), value.detach(), chaos.detach(), kl, cut)


def value_spread(returns: Tensor, together: Together | None = None) -> Tensor:
    """Variance of each column of the returns (N, 1 + G), over all processes: regrets are tiny on one network and large
    on the next, and the value's loss must not drown the policy's."""
    together = Alone() if together is None else together
    return _mean((returns - _mean(returns, together)).square(), together).clamp_min(1e-4)


def normalised(advantage: Tensor, together: Together | None = None) -> Tensor:
    """Mean 0 and deviation 1 over the batch of all processes."""
    together = Alone() if together is None else together
    centred = advantage - _mean(advantage, together)
    return centred / (_mean(centred.square(), together).sqrt() + 1e-8)


def _mean(values: Tensor, together: Together) -> Tensor:
    """Mean over the rows of all processes, of which one may have more than another, or none."""
    told = together.mean(torch.cat([values.sum(0).reshape(-1), torch.tensor([float(len(values))])]))
    return (told[:-1] / told[-1].clamp_min(1e-12)).reshape(values.shape[1:])


def likely(logits: Tensor, mask: Tensor) -> Tensor:
    """Log probabilities (N, M) of a masked choice."""
    return torch.log_softmax(torch.where(mask, logits, NEVER), dim=-1)


def choice(logits: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Log probabilities (N, M) of a masked choice and its entropy (N,)."""
    log_probs = likely(logits, mask)
    return log_probs, -(log_probs.exp() * torch.where(mask, log_probs, 0.0)).sum(-1)


def take(observation: Any, rows: Tensor) -> Any:
    """Rows of an observation: of a tensor, or of each tensor of a named tuple."""
    return observation[rows] if isinstance(observation, Tensor) else type(observation)(*(o[rows] for o in observation))


def minibatches(
    shares: Sequence[int], settings: Ppo, generators: Sequence[np.random.Generator], *, count: int | None = None
) -> Iterator[Tensor]:
    """Indices of the minibatches of all passes over a batch that lies share after share (``shares``: their lengths).

    Every minibatch takes its part of every share, each shuffled by a generator of its own: whoever holds which shares,
    the minibatches of all together are the same. ``count``: of a pass, where processes that hold unequally much must
    agree on it; None: as many as ``settings`` make of these shares.
    """
    count = max(1, round(sum(shares) / settings.minibatch)) if count is None else count
    starts = np.concatenate([[0], np.cumsum(shares)[:-1]])
    for _ in range(settings.passes):
        parts = [
            np.array_split(start + generator.permutation(share), count)
            for start, share, generator in zip(starts, shares, generators, strict=True)
        ]
        for part in zip(*parts, strict=True):
            yield torch.from_numpy(np.concatenate(part))
