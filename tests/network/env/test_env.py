"""Runs side by side: rewards are regrets, runs do not disturb each other, and what is seen is what is true."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from gymnasium.spaces import Discrete
from gymnasium.utils.env_checker import check_env
from tests.network.drawn import drawn_dataset

from hippo.errors import InputError
from hippo.network.env.dataset import Dataset, joined, load, save, tables
from hippo.network.env.env import DecisionRules, Env
from hippo.network.env.gym_vector import CrossDomainEnv, CrossDomainVectorEnv
from hippo.network.env.reward import taste_of
from hippo.network.env.tables import scene_in, truth_in
from hippo.network.observation.features import MOST_OPTIONS, OPTION_FEATURES, Observation

STOP, BACKGROUND, CANCEL = (OPTION_FEATURES.index(name) for name in ("stop", "background", "cancel"))


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return drawn_dataset(3)


def any_option(seen: Observation, rng: np.random.Generator) -> np.ndarray:
    """A random option of those that may be chosen."""
    return np.asarray(np.where(seen.option_mask, rng.random(seen.option_mask.shape), -1.0).argmax(axis=1))


def runs(
    dataset: Dataset, decisions: int = 60, *, size: int = 12, rules: DecisionRules | None = None
) -> list[tuple[float, float]]:
    """(reward, work) of whole runs of random answers, work alone preferred."""
    env, rng = Env(dataset, size, seed=3, rules=rules), np.random.default_rng(0)
    seen = env.reset_in(np.arange(size) % dataset.worlds, np.zeros(size, np.int64))
    reward, work, ended = np.zeros(size), np.zeros(size), np.zeros(size, bool)
    for _ in range(decisions):
        came = env.step(any_option(seen, rng))
        reward += np.where(ended, 0.0, came.reward)
        work += np.where(ended, 0.0, came.work)
        ended |= came.done
        seen = came.observation
    assert ended.all()
    return list(zip(reward, work, strict=True))


def test_what_is_seen_is_finite_and_every_run_has_an_answer(dataset: Dataset) -> None:
    env, rng = Env(dataset, 16, seed=1), np.random.default_rng(1)
    seen, kinds = env.reset(), np.zeros(5)
    for _ in range(60):
        assert all(np.isfinite(array).all() for array in seen if array.dtype != bool)
        assert seen.option_mask.any(axis=1).all()
        assert not seen.options[~seen.option_mask].any()
        kinds += seen.options[..., :5].sum(axis=(0, 1))
        came = env.step(any_option(seen, rng))
        assert (came.epochs >= 1).all()
        assert (came.costs >= 0.0).all()
        seen = came.observation
    assert (kinds > 0).all()  # keep, lever, stop, background and cancel were all on offer


def test_one_batch_holds_networks_of_several_sizes(dataset: Dataset) -> None:
    env = Env(dataset, 3)
    seen = env.reset_in(np.arange(3), np.zeros(3, np.int64))
    assert seen.node_mask.sum(axis=1).tolist() == [2, 4, 7]
    assert seen.nodes.shape[1] == 7
    assert not seen.edges[0, 2:].any()


def test_rewards_are_minus_the_regret_against_hindsight(dataset: Dataset) -> None:
    held = tables(dataset)
    for run, (reward, work) in enumerate(runs(dataset, rules=DecisionRules(gamma=1.0))):
        most = truth_in(held, run % dataset.worlds).value[0, 0].max()
        assert reward == pytest.approx(work - most, abs=1e-3)
        assert work <= most + 1e-3


def test_without_shaping_the_reward_is_the_work(dataset: Dataset) -> None:
    for reward, work in runs(dataset, rules=DecisionRules(gamma=1.0, shaped=False)):
        assert reward == pytest.approx(work, abs=1e-3)


def test_two_with_the_same_seed_see_the_same_and_a_state_goes_on_where_it_was(dataset: Dataset) -> None:
    one, other, rng = Env(dataset, 6, seed=9), Env(dataset, 6, seed=9), np.random.default_rng(4)
    seen = one.reset()
    other.reset()
    for _ in range(20):
        actions = any_option(seen, rng)
        seen, again = one.step(actions).observation, other.step(actions).observation
        assert all(np.array_equal(a, b) for a, b in zip(seen, again, strict=True))
    third = Env(dataset, 6, seed=0)
    restored = third.restore(one.state())
    assert all(np.array_equal(a, b) for a, b in zip(seen, restored, strict=True))
    actions = any_option(seen, rng)
    expected, found = one.step(actions), third.step(actions)
    assert np.array_equal(expected.reward, found.reward)
    assert np.array_equal(expected.observation.options, found.observation.options)


def test_a_run_does_not_depend_on_those_beside_it(dataset: Dataset) -> None:
    world, none = np.zeros(1, np.int64), np.zeros(1, np.int64)
    alone, beside = Env(dataset, 1), Env(dataset, 3)
    alone.reset_in(world, none)
    beside.reset_in(np.array([1, 0, 2]), np.zeros(3, np.int64))
    for _ in range(4):
        one, three = alone.step(np.array([1])), beside.step(np.array([2, 1, 0]))
        assert one.reward[0] == three.reward[1]
        assert np.array_equal(one.observation.options[0], three.observation.options[1])


def test_masked_answers_count_as_keeping(dataset: Dataset) -> None:
    one, other = Env(dataset, 3, seed=2), Env(dataset, 3, seed=2)
    seen = one.reset()
    other.reset()
    first = seen.option_mask.argmax(axis=1)
    one.step(first)
    seen = other.step(first).observation
    masked = np.where(seen.option_mask.all(axis=1), 0, (~seen.option_mask).argmax(axis=1))
    assert (masked > 0).any()
    assert np.array_equal(one.step(np.zeros(3, np.int64)).reward, other.step(masked).reward)


def test_a_long_wait_or_a_moved_link_makes_a_decision_due(dataset: Dataset) -> None:
    for every in (1, 4):
        env = Env(dataset, 8, rules=DecisionRules(every=every, link_share=10.0, pace_share=1.0))
        env.reset()
        passed = env.step(np.ones(8, np.int64)).epochs
        assert (passed <= every).all()
        assert (passed == every).any()
    watched = Env(dataset, 8, rules=DecisionRules(every=30, link_share=0.0))
    watched.reset()
    assert watched.step(np.ones(8, np.int64)).epochs.mean() < 3


def test_a_bank_is_kept_in_a_file(dataset: Dataset, tmp_path: Path) -> None:
    save(dataset, tmp_path / "bank.npz")
    again = load(tmp_path / "bank.npz")
    assert all(np.array_equal(getattr(dataset, name), getattr(again, name)) for name in Dataset._fields)
    (tmp_path / "broken.npz").write_bytes(b"no dataset")
    with pytest.raises(InputError, match="not a dataset"):
        load(tmp_path / "broken.npz")


def test_values_of_a_bank_count_epochs_of_usual_work(dataset: Dataset) -> None:
    scene, truth = scene_in(tables(dataset), 1), truth_in(tables(dataset), 1)
    assert truth.value.shape == (2, 31, len(scene.usd))
    assert (truth.value[:, -1] == 0.0).all()
    assert taste_of(np.array([1.0, 0.0, 0.0]), epoch_s=60.0, usual=2.0, usd_per_token=0.5) == (1 / 120, -1 / 60, 0.0)


def test_gymnasium_finds_nothing_wrong(dataset: Dataset) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # unbounded boxes, which it warns about
        check_env(CrossDomainEnv(dataset), skip_render_check=True)


def test_the_vector_keeps_to_its_spaces(dataset: Dataset) -> None:
    env = CrossDomainVectorEnv(dataset, 5, seed=1)
    seen, _ = env.reset(seed=7)
    assert env.observation_space.contains(seen)
    again, _ = CrossDomainVectorEnv(dataset, 5).reset(seed=7)
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
    one, other = drawn_dataset(3, seed=0), drawn_dataset(2, seed=9)
    both = joined([one, other])
    assert both.worlds == 5
    worlds, none = np.arange(5), np.zeros(5, np.int64)
    seen = Env(both, 5).reset_in(worlds, none)
    apart = [
        Env(dataset, dataset.worlds).reset_in(worlds[: dataset.worlds], none[: dataset.worlds])
        for dataset in (one, other)
    ]
    for name, array in seen._asdict().items():
        for rows, alone in ((array[:3], getattr(apart[0], name)), (array[3:], getattr(apart[1], name))):
            np.testing.assert_array_equal(rows[tuple(slice(size) for size in alone.shape)], alone)
