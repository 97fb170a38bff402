"""How construction is learned: credits are what they say, and learning wins where the closed form is wrong."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import pytest
import torch

from hippo.network.construction.draft import Draft
from hippo.network.hi_ppo.constructor import ClosedForm, draft_all
from hippo.network.train.construction import LEAST_SPREAD, Construction, Spot, credited, learn, sites, step_times
from hippo.network.train.construction_networks import Builders

ONE = Construction(families=("ou3",), problems=1, states=1, first_seed=3, sites=1, drafts=16)


def by_counting(rewards: np.ndarray, tries: int) -> np.ndarray:
    """Mean over all choices of other drafts of what a draft adds to the best; and its reward less the others' mean."""
    found = np.zeros_like(rewards)
    for own in range(len(rewards)):
        others = np.delete(rewards, own)
        chosen = [max(each, default=np.inf) for each in combinations(others, tries - 1)]
        adds = np.mean([max(0.0, rewards[own] - best) for best in chosen]) if tries > 1 else 0.0
        found[own] = rewards[own] - others.mean() + tries * adds
    return np.asarray(found / max(float(rewards.std()), LEAST_SPREAD))


@pytest.mark.parametrize("tries", [1, 2, 3, 6])
def test_credits_are_those_of_counting_every_choice_of_drafts(tries: int) -> None:
    rng = np.random.default_rng(tries)
    rewards = np.vstack([rng.normal(size=6) * 0.1, rng.integers(-2, 1, size=6) * 0.3, np.full(6, -0.2)])
    expected = np.stack([by_counting(row, tries) for row in rewards])
    np.testing.assert_allclose(credited(rewards, tries), np.clip(expected, -4.0, 4.0), atol=1e-12)


def test_a_site_where_a_draft_failed_does_not_outweigh_the_others() -> None:
    rewards = np.array([[0.0, -0.05, -0.05, -0.05], [0.0, -1.5, -1.5, -1.5]])
    found = credited(rewards, 1)
    assert np.abs(found[0]).max() == pytest.approx(np.abs(found[1]).max())


@dataclass(frozen=True, eq=False)
class Cursed(Spot):
    """A site on which whatever the closed form would choose takes longer than it knows."""

    shunned: Draft | None = None

    def step_time_s(self, draft: Draft) -> float:
        """As played, times 1.5 for the closed form's recipe, and for its tensor width in any domain."""
        played = super().step_time_s(draft)
        if self.shunned is None or draft.recipe < 0:
            return played
        tp = self.site.table.arrays.tp
        played *= 1.5 if draft.recipe == self.shunned.recipe else 1.0
        return played * (1.5 if (tp[draft.rows] == tp[self.shunned.rows[0]]).any() else 1.0)


def test_learning_wins_where_the_closed_form_is_wrong() -> None:
    (spot,) = sites(ONE, 0)
    (shunned,) = draft_all(ClosedForm(), [spot.site], np.random.default_rng(0), greedy=np.ones(1, bool)).drafts
    cursed = Cursed(spot.site, shunned=shunned)
    torch.manual_seed(0)
    builders = Builders()
    before = step_times(builders, [cursed])[0]
    learn(builders, [cursed], replace(ONE, updates=12), seed=0, minutes=0.0)
    assert before == cursed.step_time_s(shunned)
    assert step_times(builders, [cursed])[0] <= before / 1.8
