"""Trial plays: a policy that is slow on a problem is not followed there."""

from __future__ import annotations

import numpy as np
import pytest

from hippo.dispatch.base import PATIENCES, base_from, pairs_of
from hippo.dispatch.dispatch import made_by_policy, nothing_moves, one_play
from hippo.dispatch.guard import POLICY, SHIPPED, followed, settled, why_base
from hippo.dispatch.network import DispatchWeights, follower, shipped
from hippo.dispatch.noise.fluctuation import Fluctuation
from hippo.dispatch.noise.learned_play import spread_learned
from hippo.schedule.problem import ScheduleProblem

from .drawn_draws import lazy_weights

PROBLEM = ScheduleProblem.uniform(4, 12, (1.0, 1.05, 0.75), comm=[0.05, 3.0, 0.05], live_limit=6)
SMALL = ScheduleProblem.uniform(2, 4, (1.0, 1.0, 1.0), comm=[0.1], live_limit=2)
"""Where the policy that ships is no better than a hint."""
NOISE = Fluctuation(0.2)


def test_a_slow_policy_is_not_followed() -> None:
    found = settled(SMALL, lazy_weights())
    assert all(np.array_equal(one, other) for one, other in zip(found.weights, follower(), strict=True))
    assert found.followed == found.name == followed(SMALL, lazy_weights())
    assert found.followed not in (POLICY, SHIPPED)
    guarded = spread_learned(SMALL, NOISE, weights=lazy_weights(), samples=40, seed=1).mean
    alone = spread_learned(SMALL, NOISE, weights=follower(), samples=40, seed=1, base=found.base).mean
    assert guarded == alone
    trusting = spread_learned(SMALL, NOISE, weights=lazy_weights(), samples=40, seed=1, guarded=False).mean
    assert guarded < 0.99 * trusting


@pytest.mark.parametrize("other", [lazy_weights(), follower(1.0)])
def test_where_the_policy_that_ships_is_quicker_it_is_followed(other: DispatchWeights) -> None:
    """One that is slower than a hint, and one that is as quick as the best."""
    found, ours = settled(PROBLEM, other), settled(PROBLEM, shipped())
    assert (found.followed, ours.followed) == (SHIPPED, POLICY)
    assert found == ours._replace(followed=SHIPPED)
    assert why_base(found.followed).endswith("slower in trial plays than the policy that ships, which is followed")
    played = [spread_learned(PROBLEM, NOISE, weights=each, samples=40, seed=1).mean for each in (other, shipped())]
    assert played[0] == played[1]
    assert made_by_policy(PROBLEM, other).followed == SHIPPED


def test_a_policy_that_is_as_quick_is_followed_as_it_is() -> None:
    found = settled(SMALL, follower(1.0))
    assert found.followed == followed(SMALL, follower(1.0)) == POLICY
    assert all(np.array_equal(one, other) for one, other in zip(found.weights, follower(1.0), strict=True))


@pytest.mark.parametrize("level", [pytest.param(0.1, marks=pytest.mark.slow), 0.3])
def test_a_policy_runs_on_the_base_that_suits_it(level: float) -> None:
    """On other draws, of all orders with all patiences hardly one is better for it than the one it was given."""
    given = settled(PROBLEM, shipped(), level)
    assert given.followed == POLICY
    noise = Fluctuation(level)
    played = [
        spread_learned(PROBLEM, noise, weights=shipped(), samples=150, seed=9, base=base_from(PROBLEM, hint, patience))
        for hint, _ in pairs_of(PROBLEM, level)
        for patience in PATIENCES
    ]
    own = spread_learned(PROBLEM, noise, weights=shipped(), samples=150, seed=9).mean
    assert own <= 1.005 * min(each.mean for each in played)
    assert max(each.mean for each in played) > 1.02 * own  # it is no matter of course


def test_who_made_an_order_is_told() -> None:
    """Where times do not move the base may be shorter although the policy is trusted: it is named all the same."""
    still, nowhere = nothing_moves(PROBLEM), np.empty((0, 0, 0))
    for weights in (lazy_weights(), follower(1.0), shipped()):
        made, given = made_by_policy(PROBLEM, weights), settled(PROBLEM, weights)
        usual, own = (one_play(PROBLEM, given.base, each, still, nowhere) for each in (follower(), given.weights))
        by_policy = given.followed == POLICY and own <= usual
        assert made.followed == (POLICY if by_policy else given.name if given.followed == POLICY else given.followed)
        assert (made.followed in made.why) == (made.followed != POLICY) == bool(made.why)
