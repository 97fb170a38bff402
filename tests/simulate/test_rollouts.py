"""A trainer and its pools, played: by hand, by SimPy, and never below the bound."""

from __future__ import annotations

from random import Random

import pytest
from tests.judges.rollouts import mean_step_s, step_times

from hippo.simulate.rollouts import PoolTimes, RolloutWorld, least_step_s, play


def test_in_step_by_hand():
    """No weights but the newest: a batch of 3 s, 0.5 + 0.1 s back, a step of 2 s, 1 + 0.2 s out, 0.7 s of loading, one
    after the other."""
    world = RolloutWorld(8, 2.0, 0, 1, 8, 3.0, 0.7, (PoolTimes(1, 1.0, 0.2, 0.5, 0.1),))
    played = play(world)
    assert played.step_time_s == pytest.approx(7.5)
    assert least_step_s(world) == pytest.approx(7.5)
    assert (played.staleness_mean, played.staleness_most) == (0.0, 0)


def test_a_step_behind_hides_what_is_shorter_than_the_rest():
    """Weights one step older: two steps lie in one way round of 7.5 s, and nothing else takes as long."""
    world = RolloutWorld(8, 2.0, 1, 1, 8, 3.0, 0.7, (PoolTimes(1, 1.0, 0.2, 0.5, 0.1),))
    assert play(world).step_time_s == pytest.approx(3.75)


def test_the_trainer_binds_where_replicas_are_many():
    world = RolloutWorld(8, 5.0, 3, 2, 2, 1.0, 0.1, (PoolTimes(8, 0.1, 0.0, 0.01, 0.0),))
    assert play(world).step_time_s == pytest.approx(5.0)


def test_a_slow_pool_makes_fewer_samples():
    quick, slow = PoolTimes(2, 0.1, 0.0, 0.0, 0.0), PoolTimes(2, 50.0, 0.0, 0.0, 0.0)
    made = play(RolloutWorld(8, 1.0, 1, 1, 2, 2.0, 0.0, (quick, slow))).samples
    assert made[0] > 7.9
    assert sum(made) == pytest.approx(8.0)


def drawn(random: Random) -> RolloutWorld:
    pools = tuple(
        PoolTimes(
            random.randint(1, 4),
            random.choice([0.2, 1, 4, 12]) * random.random(),
            random.random() * 0.1,
            random.random() * 0.5,
            random.random() * 0.1,
        )
        for _ in range(random.randint(1, 3))
    )
    every = random.choice([1, 1, 2, 3, 4])
    return RolloutWorld(
        samples=random.choice([7, 16, 32, 50]),
        train_s=random.random() * 5,
        staleness=random.randint(every - 1, every + 3),
        every=every,
        sequences=random.choice([2, 4, 8]),
        batch_s=random.random() * 6 + 0.2,
        load_s=random.choice([0.0, random.random() * 2]),
        pools=pools,
    )


@pytest.mark.parametrize("seed", range(40))
def test_the_step_is_that_of_simpy_within_one_per_cent(seed: int):
    world = drawn(Random(seed))
    played = play(world)
    assert played.step_time_s == pytest.approx(mean_step_s(world), rel=0.01)
    assert played.step_time_s >= least_step_s(world)
    assert played.staleness_most <= world.staleness
    assert sum(played.samples) == pytest.approx(world.samples)


def test_the_judge_keeps_the_rules_too():
    """Of its own: a step never ends before the one before, and takes at least as long as the trainer."""
    world = drawn(Random(7))
    ended = step_times(world, 50)
    assert all(late - soon >= world.train_s - 1e-9 for soon, late in zip(ended, ended[1:], strict=False))
