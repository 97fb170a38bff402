"""The dispatch environment: Gymnasium's checker, the compiled roll-out, rewards and worlds."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from hippo.dispatch.base import base_of
from hippo.dispatch.env.env import DispatchEnv
from hippo.dispatch.env.generator import JUDGE, LEARN, LOOK, DispatchWorld, drawn_world, side_of
from hippo.dispatch.env.gym_vector import DispatchGym, DispatchVectorEnv
from hippo.dispatch.env.reward import LAGS, lags, reward
from hippo.dispatch.env.rollout import roll_out
from hippo.dispatch.network import follower
from hippo.dispatch.noise.fluctuation import Fluctuation, drawn
from hippo.dispatch.noise.learned_play import spread_learned
from hippo.dispatch.state import begin, new_state
from hippo.errors import InputError
from hippo.schedule.problem import ScheduleProblem

SMALL = DispatchWorld(
    ScheduleProblem.uniform(3, 6, (1.0, 1.05, 0.75), comm=[0.1, 2.0], live_limit=3), Fluctuation(0.3, rank_level=0.1)
)


def small(rng: np.random.Generator) -> DispatchWorld:
    return SMALL


def test_gymnasium_finds_nothing_wrong() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # unbounded boxes, which it warns about
        check_env(DispatchGym(small), skip_render_check=True)


def test_the_vector_keeps_to_its_spaces() -> None:
    env = DispatchVectorEnv(3, small)
    seen, _ = env.reset(seed=7)
    again, _ = DispatchVectorEnv(3, small).reset(seed=7)
    assert all(np.array_equal(seen[name], again[name]) for name in seen)
    env.action_space.seed(1)
    ended = 0
    for _ in range(80):
        assert env.observation_space.contains(seen)
        seen, rewards, terminated, truncated, info = env.step(env.action_space.sample())
        assert rewards.shape == terminated.shape == truncated.shape == (3,)
        assert bool(terminated.any()) == ("final_obs" in info)
        ended += int(terminated.sum())
    assert ended > 0


def test_the_environment_plays_what_was_rolled_out() -> None:
    """The same choices under the same draws: the same sights, masks and makespans."""
    factors = next(drawn(SMALL.problem, SMALL.fluctuation, samples=2, rng=np.random.default_rng(3)))
    weights = follower(1.0)
    rolled = roll_out(
        SMALL.problem,
        base_of(SMALL.problem, SMALL.fluctuation.deviation),
        weights,
        factors,
        plays=2,
        share=1.0,
        rng=np.random.default_rng(5),
    )
    env, first = DispatchEnv(small), 0
    for play, end in enumerate(rolled.ends):
        number = play // 2
        seen = env.play(SMALL, (factors.operations[number], factors.messages[number], factors.ranks[number]))
        for at in range(first, end):
            assert seen is not None
            assert np.array_equal(seen.seen, rolled.decisions.seen[at])
            assert np.array_equal(seen.mask, rolled.decisions.mask[at])
            came = env.act(int(rolled.decisions.choice[at]))
            seen = came.observation
        assert came.done
        assert env.makespan == rolled.makespans[number, play % 2]
        assert came.reward == pytest.approx(reward(env.makespan, env.usual))
        first = end


def test_what_is_no_choice_is_refused() -> None:
    env = DispatchEnv(small)
    with pytest.raises(InputError, match="no play is under way"):
        env.act(0)
    env.begin(seed=1)
    for choice in (-1, 4):
        with pytest.raises(InputError, match=rf"choice: is no choice \(got {choice}\)"):
            env.act(choice)
    while not env.act(1).done:
        pass
    with pytest.raises(InputError, match="no play is under way"):
        env.act(0)


def test_choices_are_drawn_as_often_as_the_policy_says() -> None:
    factors = next(drawn(SMALL.problem, SMALL.fluctuation, samples=32, rng=np.random.default_rng(3)))
    base, rng = base_of(SMALL.problem, SMALL.fluctuation.deviation), np.random.default_rng(5)
    rows = roll_out(SMALL.problem, base, follower(1.0), factors, plays=8, share=1.0, rng=rng).decisions
    two = rows.mask.sum(axis=1) == 2
    followed = (rows.choice == rows.says)[two]
    usual = np.e / (1 + np.e)
    assert np.exp(rows.log_prob[two][followed]) == pytest.approx(usual, abs=1e-6)
    assert followed.mean() == pytest.approx(usual, abs=5 * np.sqrt(usual * (1 - usual) / two.sum()))
    assert rows.mask[np.arange(len(rows.choice)), rows.choice].all()


def test_the_reference_is_the_policy_at_its_best() -> None:
    factors = next(drawn(SMALL.problem, SMALL.fluctuation, samples=8, rng=np.random.default_rng(3)))
    base, rng = base_of(SMALL.problem, SMALL.fluctuation.deviation), np.random.default_rng(5)
    rolled = roll_out(SMALL.problem, base, follower(1.0), factors, plays=1, share=0.001, rng=rng)
    usual = spread_learned(SMALL.problem, SMALL.fluctuation, weights=follower(), samples=8, seed=3, base=base)
    assert np.array_equal(rolled.reference, usual.makespans)
    assert len(rolled.decisions.choice) < 0.05 * 8 * 54


def test_lags_by_hand() -> None:
    """Rank 0 began F0 a second late of 100, rank 1 should have begun F0 two seconds ago; B are not due."""
    start = np.zeros((3, 2, 1))
    state = new_state(ScheduleProblem.uniform(2, 1), start)
    begin(state)
    reference = np.array([[[0.0], [3.0]], [[50.0], [40.0]], [[60.0], [50.0]]])
    state.board.begun[0, 0], start[0, 0, 0], state.left[0] = 1, 1.0, 5
    found = np.zeros(LAGS)
    lags(state, reference, 100.0, 5.0, found)
    assert found.tolist() == pytest.approx([1.5, 2.0, 0.0, 0.0, 5 / 6])


def test_worlds_vary_and_fit() -> None:
    rng = np.random.default_rng(0)
    worlds = [drawn_world(rng) for _ in range(200)]
    assert {world.problem.ranks for world in worlds} == set(range(2, 17))
    assert {world.fluctuation.kind for world in worlds} == {"normal", "uniform"}
    assert all(min(world.problem.limit) >= 1 for world in worlds)
    assert any(link.transfer > 0 for world in worlds for link in world.problem.down)


@pytest.mark.parametrize("side", [LEARN, LOOK, JUDGE])
def test_no_shape_is_on_two_sides(side: str) -> None:
    """By hand: 3 ranks, 6 micro-batches and memory for 3, 4, 5 or 6 leave 0, 1, 2 and 3 over 4."""
    rng = np.random.default_rng(1)
    drawn_ones = [drawn_world(rng, side=side, most_ranks=6).problem for _ in range(100)]
    assert {side_of(each) for each in drawn_ones} == {side}
    sides = [side_of(ScheduleProblem.uniform(3, 6, live_limit=live)) for live in (3, 4, 5, 6)]
    assert sides == [JUDGE, LEARN, LOOK, LEARN]
