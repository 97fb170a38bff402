"""Runs side by side: rewards are regrets, runs do not disturb each other, and what is seen is what is true."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from gymnasium.spaces import Discrete
from gymnasium.utils.env_checker import check_env
from tests.network.env.drawn import drawn_bank

from hippo.errors import InputError
from hippo.network.env.dataset import Bank, joined, load, save, tables
from hippo.network.env.env import Env, Rules
from hippo.network.env.gym_vector import CrossDomainEnv, CrossDomainVectorEnv
from hippo.network.env.reward import taste_of
from hippo.network.env.tables import scene_in, truth_in
from hippo.network.observation.features import MOST_OPTIONS, OPTION_FEATURES, Observation

STOP, BACKGROUND, CANCEL = (OPTION_FEATURES.index(name) for name in ("stop", "background", "cancel"))


@pytest.fixture(scope="module")
def bank() -> Bank:
    return drawn_bank(3)


def any_option(seen: Observation, rng: np.random.Generator) -> np.ndarray:
    """A random option of those that may be chosen."""
    return np.asarray(np.where(seen.option_mask, rng.random(seen.option_mask.shape), -1.0).argmax(axis=1))


def runs(bank: Bank, decisions: int = 60, *, size: int = 12, rules: Rules | None = None) -> list[tuple[float, float]]:
    """(reward, work) of whole runs of random answers, work alone preferred."""
    env, rng = Env(bank, size, seed=3, rules=rules), np.random.default_rng(0)
    seen = env.begin_in(np.arange(size) % bank.worlds, np.zeros(size, np.int64))
    reward, work, ended = np.zeros(size), np.zeros(size), np.zeros(size, bool)
    for _ in range(decisions):
        came = env.act(any_option(seen, rng))
        reward += np.where(ended, 0.0, came.reward)
        work += np.where(ended, 0.0, came.work)
        ended |= came.done
        seen = came.observation
    assert ended.all()
    return list(zip(reward, work, strict=True))


def test_what_is_seen_is_finite_and_every_run_has_an_answer(bank: Bank) -> None:
    env, rng = Env(bank, 16, seed=1), np.random.default_rng(1)
    seen, kinds = env.begin(), np.zeros(5)
    for _ in range(60):
        assert all(np.isfinite(array).all() for array in seen if array.dtype != bool)
        assert seen.option_mask.any(axis=1).all()
        assert not seen.options[~seen.option_mask].any()
        kinds += seen.options[..., :5].sum(axis=(0, 1))
        came = env.act(any_option(seen, rng))
        assert (came.epochs >= 1).all()
        assert (came.costs >= 0.0).all()
        seen = came.observation
    assert (kinds > 0).all()  # keep, lever, stop, background and cancel were all on offer


def test_one_batch_holds_networks_of_several_sizes(bank: Bank) -> None:
    env = Env(bank, 3)
    seen = env.begin_in(np.arange(3), np.zeros(3, np.int64))
    assert seen.node_mask.sum(axis=1).tolist() == [2, 4, 7]
    assert seen.nodes.shape[1] == 7
    assert not seen.edges[0, 2:].any()


def test_rewards_are_minus_the_regret_against_hindsight(bank: Bank) -> None:
    held = tables(bank)
    for run, (reward, work) in enumerate(runs(bank, rules=Rules(gamma=1.0))):
        most = truth_in(held, run % bank.worlds).value[0, 0].max()
        assert reward == pytest.approx(work - most, abs=1e-3)
        assert work <= most + 1e-3


def test_without_shaping_the_reward_is_the_work(bank: Bank) -> None:
    for reward, work in runs(bank, rules=Rules(gamma=1.0, shaped=False)):
        assert reward == pytest.approx(work, abs=1e-3)


def test_two_with_the_same_seed_see_the_same_and_a_state_goes_on_where_it_was(bank: Bank) -> None:
    one, other, rng = Env(bank, 6, seed=9), Env(bank, 6, seed=9), np.random.default_rng(4)
    seen = one.begin()
    other.begin()
    for _ in range(20):
        actions = any_option(seen, rng)
        seen, again = one.act(actions).observation, other.act(actions).observation
        assert all(np.array_equal(a, b) for a, b in zip(seen, again, strict=True))
    third = Env(bank, 6, seed=0)
    restored = third.restore(one.state())
    assert all(np.array_equal(a, b) for a, b in zip(seen, restored, strict=True))
    actions = any_option(seen, rng)
    expected, found = one.act(actions), third.act(actions)
    assert np.array_equal(expected.reward, found.reward)
    assert np.array_equal(expected.observation.options, found.observation.options)


def test_a_run_does_not_depend_on_those_beside_it(bank: Bank) -> None:
    world, none = np.zeros(1, np.int64), np.zeros(1, np.int64)
    alone, beside = Env(bank, 1), Env(bank, 3)
    alone.begin_in(world, none)
    beside.begin_in(np.array([1, 0, 2]), np.zeros(3, np.int64))
    for _ in range(4):
        one, three = alone.act(np.array([1])), beside.act(np.array([2, 1, 0]))
        assert one.reward[0] == three.reward[1]
        assert np.array_equal(one.observation.options[0], three.observation.options[1])


def test_masked_answers_count_as_keeping(bank: Bank) -> None:
    one, other = Env(bank, 3, seed=2), Env(bank, 3, seed=2)
    seen = one.begin()
    other.begin()
    first = seen.option_mask.argmax(axis=1)
    one.act(first)
    seen = other.act(first).observation
    masked = np.where(seen.option_mask.all(axis=1), 0, (~seen.option_mask).argmax(axis=1))
    assert (masked > 0).any()
    assert np.array_equal(one.act(np.zeros(3, np.int64)).reward, other.act(masked).reward)


def test_a_long_wait_or_a_moved_link_makes_a_decision_due(bank: Bank) -> None:
    for every in (1, 4):
        env = Env(bank, 8, rules=Rules(every=every, link_share=10.0, pace_share=1.0))
        env.begin()
        passed = env.act(np.ones(8, np.int64)).epochs
        assert (passed <= every).all()
        assert (passed == every).any()
    watched = Env(bank, 8, rules=Rules(every=30, link_share=0.0))
    watched.begin()
    assert watched.act(np.ones(8, np.int64)).epochs.mean() < 3


def test_a_bank_is_kept_in_a_file(bank: Bank, tmp_path: Path) -> None:
    save(bank, tmp_path / "bank.npz")
    again = load(tmp_path / "bank.npz")
    assert all(np.array_equal(getattr(bank, name), getattr(again, name)) for name in Bank._fields)
    (tmp_path / "broken.npz").write_bytes(b"no bank")
    with pytest.raises(InputError, match="not a bank"):
        load(tmp_path / "broken.npz")


def test_values_of_a_bank_count_epochs_of_usual_work(bank: Bank) -> None:
    scene, truth = scene_in(tables(bank), 1), truth_in(tables(bank), 1)
    assert truth.value.shape == (2, 31, len(scene.usd))
    assert (truth.value[:, -1] == 0.0).all()
    assert taste_of(np.array([1.0, 0.0, 0.0]), epoch_s=60.0, usual=2.0, usd_per_token=0.5) == (1 / 120, -1 / 60, 0.0)


def test_gymnasium_finds_nothing_wrong(bank: Bank) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # unbounded boxes, which it warns about
        check_env(CrossDomainEnv(bank), skip_render_check=True)


def test_the_vector_keeps_to_its_spaces(bank: Bank) -> None:
    env = CrossDomainVectorEnv(bank, 5, seed=1)
    seen, _ = env.reset(seed=7)
    assert env.observation_space.contains(seen)
    again, _ = CrossDomainVectorEnv(bank, 5).reset(seed=7)
    assert all(np.array_equal(seen[name], again[name]) for name in seen)
    env.action_space.seed(1)
    ended = 0
    for _ in range(40):
        seen, reward, terminated, truncated, info = env.step(env.action_space.sample())
        assert env.observation_space.contains(seen)
        assert reward.shape == terminated.shape == truncated.shape == (5,)
        assert info["cost_latency"].shape == (5,)
        ended += int(terminated.sum())
        assert bool(terminated.any()) == ("final_obs" in info)
    assert ended > 0
    assert env.single_action_space == Discrete(MOST_OPTIONS)


def test_two_banks_side_by_side_are_the_worlds_of_both() -> None:
    one, other = drawn_bank(3, seed=0), drawn_bank(2, seed=9)
    both = joined(one, other)
    assert both.worlds == 5
    worlds, none = np.arange(5), np.zeros(5, np.int64)
    seen = Env(both, 5).begin_in(worlds, none)
    apart = [Env(bank, bank.worlds).begin_in(worlds[: bank.worlds], none[: bank.worlds]) for bank in (one, other)]
    for name, array in seen._asdict().items():
        for rows, alone in ((array[:3], getattr(apart[0], name)), (array[3:], getattr(apart[1], name))):
            np.testing.assert_array_equal(rows[tuple(slice(size) for size in alone.shape)], alone)
