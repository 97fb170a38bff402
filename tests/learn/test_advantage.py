"""Advantages against Stable-Baselines3's buffer where decisions are an epoch apart, and by hand where they are not."""

from __future__ import annotations

import numpy as np
import pytest

from hippo.learn.advantage import advantages


def test_a_decision_an_epoch_is_the_advantage_of_stable_baselines3():
    import torch
    from gymnasium.spaces import Box, Discrete
    from stable_baselines3.common.buffers import RolloutBuffer

    rng = np.random.default_rng(0)
    steps, worlds = 12, 3
    rewards, values = rng.normal(size=(steps, worlds)), rng.normal(size=(steps + 1, worlds))
    done = rng.random((steps, worlds)) < 0.2
    spaces = Box(-1, 1, (1,)), Discrete(2)
    buffer = RolloutBuffer(steps, *spaces, gae_lambda=0.9, gamma=0.97, n_envs=worlds)
    starts = np.ones(worlds)
    for step in range(steps):
        zeros = np.zeros((worlds, 1))
        buffer.add(zeros, zeros, rewards[step], starts, torch.tensor(values[step]), torch.zeros(worlds))
        starts = done[step]
    buffer.compute_returns_and_advantage(torch.tensor(values[-1], dtype=torch.float32), done[-1])
    ours, returns = advantages(
        rewards[..., None].astype(np.float32),
        values[..., None].astype(np.float32),
        done=done,
        epochs=np.ones((steps, worlds), np.int64),
        gamma=0.97,
        lam=0.9,
    )
    np.testing.assert_allclose(ours[..., 0], buffer.advantages, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(returns[..., 0], buffer.returns, rtol=1e-4, atol=1e-5)


def test_what_comes_after_three_epochs_is_discounted_three_times():
    rewards = np.array([[[1.0]], [[2.0]]], np.float32)
    values = np.array([[[0.5]], [[0.25]], [[4.0]]], np.float32)
    epochs = np.array([[3], [2]])
    found, returns = advantages(rewards, values, done=np.zeros((2, 1), bool), epochs=epochs, gamma=0.5, lam=0.8)
    second = 2.0 + 0.25 * 4.0 - 0.25
    first = 1.0 + 0.125 * 0.25 - 0.5 + 0.125 * 0.8 * second
    assert found[:, 0, 0].tolist() == pytest.approx([first, second])
    assert returns[:, 0, 0].tolist() == pytest.approx([first + 0.5, second + 0.25])


def test_nothing_comes_after_the_end():
    values = np.full((2, 1, 1), 100.0, np.float32)
    found, _ = advantages(
        np.ones((1, 1, 1), np.float32),
        values,
        done=np.ones((1, 1), bool),
        epochs=np.ones((1, 1), np.int64),
        gamma=1.0,
        lam=1.0,
    )
    assert found.item() == -99.0
