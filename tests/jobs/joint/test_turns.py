"""The agents of a site in turns: who is asked, what they see and earn; as Gymnasium's and PettingZoo's environment."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import SyncVectorEnv

from hippo.errors import InputError
from hippo.jobs.engine import world as c
from hippo.jobs.joint.env import JOBS, WorldEnv, prices
from hippo.jobs.joint.gym_env import SiteGym
from hippo.jobs.joint.turns import JOB, SHAPE, UPPER, SiteTurns
from hippo.learn.turns import ALLOWED, OBSERVED, pettingzoo_env, rllib_env

from .hi_ppo.test_agents import scenes


def test_an_episode_at_random_tells_each_agent_in_its_turn_what_it_may_do():
    turns, rng = SiteTurns(scenes(8), first=3), np.random.default_rng(0)
    seen, over, earned, lower = turns.reset(), False, 0.0, 0
    while not over:
        ((name, one),) = seen.items()
        assert name == turns.who
        assert turns.observation_spaces[name].contains(one)
        assert one[ALLOWED].any()
        asked = turns.asked
        assert (name == UPPER) == (asked != SHAPE)
        if asked == SHAPE:
            lower += 1
            parts = turns.batch.sights.where[0, turns.place[0]]
            assert name == f"lower_{turns.domains[parts[0]]}"
        seen, rewards, over = turns.step({name: int(rng.choice(np.flatnonzero(one[ALLOWED])))})
        assert set(rewards) == ({name, UPPER} if asked == SHAPE else {UPPER})
        earned += rewards[UPPER]
    jobs = len(turns.batch.envs[0].price)
    assert lower > 0
    assert earned == pytest.approx(jobs * (1.0 - turns.figures["of_rule"]), abs=1e-3)


def test_answers_in_turns_are_the_answers_of_the_world_below():
    """The rule plays a world in turns and in the environment itself: it pays the same."""
    turns, found = SiteTurns(scenes(8), regret=False), np.zeros(2, np.int64)
    seen, over = turns.reset(5), False
    while not over:
        env, answer = turns.batch.envs[0], 0
        if turns.asked == JOB:
            found[:] = env.advised()
            answer = JOBS if found[0] < 0 else int(found[0])
        elif turns.asked != SHAPE:
            answer = int(found[1])
        seen, _, over = turns.step({turns.who: answer})
    scene = scenes(8).scene(5)
    alone = WorldEnv(scene, prices(scene))
    paid_s = alone.paid_s
    while not alone.done:
        found[:] = alone.advised()
        paid_s -= alone.answer(int(found[0]), int(found[1]), 0 if alone_asks(alone, found) else -1)
    assert turns.figures["priced_s"] == pytest.approx(paid_s)
    assert seen == {}


def alone_asks(env: WorldEnv, found: np.ndarray) -> bool:
    """Whether the place of an answer comes in shapes."""
    return bool(found[0] >= 0 and env.places(int(found[0])) and env.shapes(int(found[0]), int(found[1])))


def test_a_masked_answer_counts_as_the_first_that_is_allowed():
    turns = SiteTurns(scenes(8))
    one = turns.reset(1)[UPPER]
    forbidden = int(np.flatnonzero(one[ALLOWED] == 0)[0])
    turns.step({UPPER: forbidden})
    other = SiteTurns(scenes(8))
    other.reset(1)
    other.step({UPPER: int(np.argmax(one[ALLOWED]))})
    for mine, its in zip(turns.sight().values(), other.sight().values(), strict=True):
        np.testing.assert_array_equal(mine, its)


def test_gymnasium_finds_nothing_to_object_to():
    check_env(SiteGym(SiteTurns(scenes(6))), skip_render_check=True)


def test_many_side_by_side_play_worlds_of_their_own():
    envs = SyncVectorEnv([lambda each=each: SiteGym(SiteTurns(scenes(6), first=each, step=3)) for each in range(3)])
    rng, ended = np.random.default_rng(0), 0
    seen, info = envs.reset()
    for _ in range(900):
        assert envs.observation_space.contains(seen)
        answers = [rng.choice(np.flatnonzero(mask)) for mask in seen["action_mask"]]
        seen, reward, over, cut, info = envs.step(np.array(answers))
        assert np.isfinite(reward).all()
        assert not cut.any()
        ended += int(over.sum())
    numbers = [env.turns.batch.number[0] for env in envs.envs]
    assert ended >= 3
    assert [number % 3 for number in numbers] == [0, 1, 2]
    envs.close()


def test_the_world_that_a_seed_names_is_played():
    env = SiteGym(SiteTurns(scenes(6)))
    first, _ = env.reset(seed=4)
    again, info = env.reset(seed=4)
    other, _ = env.reset()
    np.testing.assert_array_equal(first["jobs"], again["jobs"])
    assert not np.array_equal(first["jobs"], other["jobs"])
    assert env.turns.batch.number == [5]
    np.testing.assert_array_equal(info["action_mask"], env.action_masks() | info["action_mask"])


def test_pettingzoo_finds_nothing_to_object_to():
    check = pytest.importorskip("pettingzoo.test", reason="PettingZoo is not installed")
    with warnings.catch_warnings():  # dictionaries, and names without a number, are unusual there
        warnings.simplefilter("ignore")
        check.api_test(pettingzoo_env(SiteTurns(scenes(6))), num_cycles=400)
        check.seed_test(lambda: pettingzoo_env(SiteTurns(scenes(6))), num_cycles=60)


def test_pettingzoo_pays_what_the_turns_pay():
    pytest.importorskip("pettingzoo", reason="PettingZoo is not installed")
    env, rng, earned = pettingzoo_env(SiteTurns(scenes(6))), np.random.default_rng(1), 0.0
    env.reset(seed=2)
    for name in env.agent_iter():
        seen, reward, over, _, info = env.last()
        earned += reward if name == UPPER else 0.0
        env.step(None if over else int(rng.choice(np.flatnonzero(seen[ALLOWED]))))
    assert earned == pytest.approx(6 * (1.0 - info["of_rule"]), abs=1e-3)


@pytest.mark.parametrize(("made", "library"), [(rllib_env, "RLlib"), (pettingzoo_env, "PettingZoo")])
def test_a_library_that_is_missing_is_named(made, library: str, monkeypatch: pytest.MonkeyPatch):
    for name in ("ray", "ray.rllib.env.multi_agent_env", "pettingzoo"):
        monkeypatch.setitem(__import__("sys").modules, name, None)
    with pytest.raises(InputError, match=f"needs {library}, which is not installed"):
        made(SiteTurns(scenes(6)))


def test_what_is_seen_is_what_the_world_shows():
    turns = SiteTurns(scenes(8))
    one = turns.reset(7)[UPPER][OBSERVED]
    env = turns.batch.envs[0]
    np.testing.assert_array_equal(one["jobs"], env.sight.jobs)
    np.testing.assert_array_equal(one["domains"], env.sight.domains)
    assert one["places"].sum() == 0.0
    waiting = env.world.mark[env.sight.job[env.sight.job >= 0], c.STATUS] == c.WAITING
    assert waiting.any()
