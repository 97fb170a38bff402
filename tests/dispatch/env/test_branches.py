"""Branches against the play in plain Python: what one other choice leads to, all else by best choices."""

from __future__ import annotations

import numpy as np
import pytest

from hippo.dispatch.base import base_of
from hippo.dispatch.env.branches import branch_out
from hippo.dispatch.network import follower
from hippo.dispatch.noise.fluctuation import Factors
from hippo.dispatch.noise.learned_play import play_learned
from hippo.schedule.problem import ScheduleProblem

from ..drawn_draws import random_draws, random_weights
from ..plain_play import PlainPlay

PROBLEM = ScheduleProblem.uniform(3, 6, (1.0, 1.05, 0.75), comm=[0.1, 2.0], live_limit=3)
BASE = base_of(PROBLEM, 0.3)


def draws(count: int) -> Factors:
    return Factors(
        *(np.stack(each) for each in zip(*(random_draws(PROBLEM, seed) for seed in range(count)), strict=True))
    )


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_branch_is_the_play_with_one_other_choice(seed: int) -> None:
    """Who follows the hint needs no network in plain Python: every decision of the play is looked into."""
    one = random_draws(PROBLEM, seed)
    rows = branch_out(
        PROBLEM,
        BASE,
        follower(),
        Factors(*(each[None] for each in one)),
        decisions=1000,
        rng=np.random.default_rng(0),
    )
    asked: list[tuple[list[int], int]] = []

    def plain(number: int, other: int) -> float:
        count = -1

        def choose(rank: int, now: float, may: list[int], says: int) -> int:
            nonlocal count
            count += 1
            if number < 0:
                asked.append((may, says))
            return other if count == number else says

        return PlainPlay(PROBLEM, BASE, one, choose).run()

    usual = plain(-1, -1)
    assert rows.reference == pytest.approx(usual)
    assert len(rows.says) == len(asked) > 10
    for number, (may, says) in enumerate(asked):
        assert np.flatnonzero(rows.mask[number]).tolist() == sorted(may)
        assert rows.says[number] == says
        for choice in may:
            assert rows.makespans[number, choice] == pytest.approx(plain(number, choice)), (number, choice)
    assert np.isinf(rows.makespans[~rows.mask]).all()


def test_the_reference_is_the_play_by_best_choices_and_few_decisions_are_looked_into() -> None:
    weights, factors = random_weights(3, trust=1.0), draws(20)
    rows = branch_out(PROBLEM, BASE, weights, factors, decisions=4, rng=np.random.default_rng(1))
    played = play_learned(PROBLEM, weights, factors, base=BASE, guarded=False)
    assert set(rows.reference.tolist()) <= set(played.tolist())
    assert 40 < len(rows.says) < 120
    again = branch_out(PROBLEM, BASE, weights, factors, decisions=4, rng=np.random.default_rng(1))
    assert all(np.array_equal(one, other) for one, other in zip(rows, again, strict=True))
    best = np.where(rows.mask, rows.scores, -np.inf).argmax(axis=1)
    assert rows.makespans[np.arange(len(best)), best] == pytest.approx(rows.reference)
