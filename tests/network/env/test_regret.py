"""Regrets of options: minus the shaped reward of taking them, for those that are carried out within the decision."""

from __future__ import annotations

import copy

import numpy as np

from hippo.network.env.env import DecisionRules, Env

from ..drawn import drawn_dataset


def test_a_regret_is_what_the_shaped_reward_takes_away() -> None:
    """One epoch a decision, no discount: levers, keeping and starts give minus their regret, up to the options' own."""
    rules = DecisionRules(link_share=0.0, pace_share=0.0, every=1, gamma=1.0)
    env, rng, seen_gaps = Env(drawn_dataset(6, seed=1), 16, seed=0, rules=rules), np.random.default_rng(0), 0
    seen = env.reset()
    for _ in range(25):
        regret, state = env.regrets(), env.state()
        assert (regret >= 0.0).all()
        assert (regret[~seen.option_mask] == 0.0).all()
        assert (np.where(seen.option_mask, regret, np.inf).min(axis=1) == 0.0).all()
        worst = np.where(seen.option_mask, regret, 0.0)
        immediate = worst.argmax(axis=1)
        best = np.where(seen.option_mask, regret, np.inf).argmin(axis=1)
        env.restore(copy.deepcopy(state))
        gave_best = env.step(best).reward
        env.restore(copy.deepcopy(state))
        gave_worst = env.step(immediate).reward
        gap = regret[np.arange(16), immediate]
        np.testing.assert_allclose(gave_best - gave_worst, gap, atol=2e-3)
        seen_gaps += int((gap > 0.01).sum())
        env.restore(copy.deepcopy(state))
        allowed = [np.flatnonzero(row) for row in seen.option_mask]
        seen = env.step(np.array([rng.choice(row) for row in allowed])).observation
    assert seen_gaps > 50
