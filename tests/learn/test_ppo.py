"""PPO against MaskablePPO on the same batch, against sums by hand, and on a trivial world."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hippo.learn.ppo import Batch, Evaluated, choice, losses, minibatches, normalised, update, value_spread
from hippo.learn.settings import Ppo

torch.set_num_threads(1)


class Seen(NamedTuple):
    features: Tensor
    mask: Tensor


class Tiny(nn.Module):
    """A masked choice of ``actions`` and one value."""

    def __init__(self, features: int, actions: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(features, 16), nn.Tanh())
        self.logits, self.value = nn.Linear(16, actions), nn.Linear(16, 1)

    def evaluate(self, seen: Seen, action: Tensor) -> Evaluated:
        hidden = self.body(seen.features)
        log_probs, entropy = choice(self.logits(hidden), seen.mask)
        return Evaluated(log_probs.gather(1, action[:, None])[:, 0], entropy, self.value(hidden))


def drawn(count: int = 64, seed: int = 0) -> tuple[Tiny, Batch]:
    torch.manual_seed(seed)
    policy = Tiny(3, 5)
    mask = torch.rand(count, 5) < 0.6
    mask[:, 0] = True
    seen = Seen(torch.randn(count, 3), mask)
    action = torch.multinomial(mask.float(), 1)[:, 0]
    with torch.no_grad():
        log_prob = policy.evaluate(seen, action).log_prob + 0.3 * torch.randn(count)
    return policy, Batch(seen, action, log_prob, torch.randn(count), torch.randn(count, 1))


def maskable_loss(policy: Tiny, batch: Batch, settings: Ppo) -> Tensor:
    """The loss as MaskablePPO.train of sb3-contrib computes it, with its own distribution."""
    from sb3_contrib.common.maskable.distributions import MaskableCategorical

    hidden = policy.body(batch.observation.features)
    distribution = MaskableCategorical(logits=policy.logits(hidden), masks=batch.observation.mask.numpy())
    ratio = torch.exp(distribution.log_prob(batch.action) - batch.log_prob)
    one = batch.advantage * ratio
    other = batch.advantage * torch.clamp(ratio, 1 - settings.clip, 1 + settings.clip)
    value = nn.functional.mse_loss(batch.returns[:, 0], policy.value(hidden).flatten())
    return -torch.min(one, other).mean() + settings.value * value - settings.entropy * distribution.entropy().mean()


def test_the_loss_and_its_gradient_are_those_of_maskable_ppo():
    policy, batch = drawn()
    settings = Ppo(entropy=0.03)
    ours, _ = losses(policy.evaluate, batch, settings, spread=torch.ones(1))
    gradients = torch.autograd.grad(ours, list(policy.parameters()))
    theirs = maskable_loss(policy, batch, settings)
    assert ours.item() == pytest.approx(theirs.item(), rel=1e-5)
    for one, other in zip(gradients, torch.autograd.grad(theirs, list(policy.parameters())), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_the_clip_stops_the_pull_of_decisions_that_have_moved_far_enough():
    policy, batch = drawn()
    with torch.no_grad():
        far = policy.evaluate(batch.observation, batch.action).log_prob - 1.0  # ratio e
    batch = batch._replace(log_prob=far, advantage=torch.ones(64))
    loss, figures = losses(policy.evaluate, batch, Ppo(entropy=0.0, value=0.0), spread=torch.ones(1))
    assert loss.item() == pytest.approx(-1.2)
    assert all(not each.any() for each in torch.autograd.grad(loss, list(policy.logits.parameters())))
    assert figures[4] == 1.0


def test_masked_actions_have_no_probability_and_no_part_in_the_entropy():
    log_probs, entropy = choice(torch.tensor([[1.0, 1.0, 5.0]]), torch.tensor([[True, True, False]]))
    assert log_probs.exp()[0].tolist() == pytest.approx([0.5, 0.5, 0.0])
    assert entropy.item() == pytest.approx(np.log(2.0))


def test_an_update_ends_once_the_policy_has_moved_far_enough():
    policy, batch = drawn()
    with torch.no_grad():
        batch = batch._replace(log_prob=policy.evaluate(batch.observation, batch.action).log_prob)
    settings = Ppo(target_kl=0.01, learning_rate=0.05, minibatch=16, passes=50)
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.05)
    order = minibatches([64], settings, [np.random.default_rng(0)])
    found = update(policy.evaluate, optimizer, batch, settings=settings, order=order)
    assert 0 < found.minibatches < 200
    assert found.kl > 0.015


def test_minibatches_hold_every_decision_once_a_pass_and_a_part_of_every_share():
    settings = Ppo(minibatch=10, passes=3)
    found = list(minibatches([20, 20], settings, [np.random.default_rng(seed) for seed in (1, 2)]))
    assert len(found) == 12
    assert all((rows < 20).sum() == 5 for rows in found)
    for number in range(3):
        assert sorted(torch.cat(found[4 * number : 4 * number + 4]).tolist()) == list(range(40))


def test_minibatches_of_two_processes_are_those_of_one():
    settings = Ppo(minibatch=10, passes=2)
    whole = list(minibatches([20, 20], settings, [np.random.default_rng(seed) for seed in (1, 2)]))
    halved = Ppo(minibatch=5, passes=2)
    first, second = (list(minibatches([20], halved, [np.random.default_rng(seed)])) for seed in (1, 2))
    for all_rows, one, other in zip(whole, first, second, strict=True):
        assert all_rows.tolist() == one.tolist() + [20 + row for row in other.tolist()]


def test_advantages_are_normalised_and_spread_is_a_variance():
    found = normalised(torch.tensor([1.0, 2.0, 3.0]))
    assert found.mean().item() == pytest.approx(0.0, abs=1e-6)
    assert found.square().mean().item() == pytest.approx(1.0, rel=1e-5)
    assert value_spread(torch.tensor([[1.0, 0.0], [3.0, 0.0]])).tolist() == pytest.approx([1.0, 1e-4])


def masked_bandit(count: int, generator: torch.Generator) -> tuple[Seen, Tensor]:
    """Each of five arms pays what its feature says; some cannot be pulled. Payments and what is seen."""
    pays = torch.rand(count, 5, generator=generator)
    mask = torch.rand(count, 5, generator=generator) < 0.6
    mask[:, 0] = True
    return Seen(pays, mask), pays


def pull(policy: Tiny, seen: Seen, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    with torch.no_grad():
        hidden = policy.body(seen.features)
        log_probs, _ = choice(policy.logits(hidden), seen.mask)
        action = torch.multinomial(log_probs.exp(), 1, generator=generator)
        return action[:, 0], log_probs.gather(1, action)[:, 0], policy.value(hidden)


def learned_bandit(seed: int) -> tuple[float, list[Any]]:
    """Share of the best that the policy's favourite arms pay after forty updates, and its weights."""
    torch.manual_seed(seed)
    generator, shuffler = torch.Generator().manual_seed(seed), np.random.default_rng(seed)
    policy, settings = Tiny(5, 5), Ppo(minibatch=64, passes=4, entropy=0.0)
    optimizer = torch.optim.Adam(policy.parameters(), lr=5e-3)
    for _ in range(40):
        seen, pays = masked_bandit(256, generator)
        action, log_prob, value = pull(policy, seen, generator)
        assert seen.mask.gather(1, action[:, None]).all()
        reward = pays.gather(1, action[:, None])
        batch = Batch(seen, action, log_prob, normalised((reward - value)[:, 0]), reward)
        update(policy.evaluate, optimizer, batch, settings=settings, order=minibatches([256], settings, [shuffler]))
    seen, pays = masked_bandit(2000, generator)
    log_probs, _ = choice(policy.logits(policy.body(seen.features)), seen.mask)
    best = torch.where(seen.mask, pays, -1.0).max(1).values
    favourite = pays.gather(1, log_probs.argmax(1)[:, None])[:, 0]
    return float(favourite.mean() / best.mean()), [each.detach().clone() for each in policy.parameters()]


def test_it_learns_the_trivial_and_repeats_itself_exactly():
    share, weights = learned_bandit(3)
    assert share > 0.95
    again, same = learned_bandit(3)
    assert again == share
    assert all(torch.equal(one, other) for one, other in zip(weights, same, strict=True))
