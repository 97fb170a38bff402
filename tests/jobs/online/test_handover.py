"""Another policy in the middle of a replay, and the index policy that the loop serves."""

from __future__ import annotations

import numpy as np
import pytest

from hippo.errors import InputError
from hippo.jobs.engine import world as c
from hippo.jobs.engine.play import play, run
from hippo.jobs.online.handover import handed_over
from hippo.jobs.online.learner import IndexLearner, IndexPolicy, JobHistory
from hippo.jobs.policies.heuristics import TWO_QUEUE
from hippo.jobs.policies.learned import LEARNED
from hippo.jobs.settings import ReplayRules
from hippo.jobs.site import DevicePool, site
from hippo.jobs.workload import JobWorkload

SITE, RULES = site([DevicePool("a", "gpu", 1, 4), DevicePool("b", "gpu", 1, 4)]), ReplayRules()
LEARNER = IndexLearner(SITE, RULES, frozen=True)
MEDIANS_S = np.array([100.0, 1000.0, 20_000.0])


def drawn(seed: int, jobs: int = 150, medians_s: np.ndarray = MEDIANS_S) -> JobWorkload:
    rng = np.random.default_rng(seed)
    user = rng.integers(0, 3, jobs)
    columns = {
        "arrival_s": np.cumsum(rng.exponential(1300.0, jobs)),
        "duration_s": medians_s[user] * rng.lognormal(0.0, 0.5, jobs),
        "devices": 2 ** rng.integers(0, 3, jobs),
        "user": user,
    }
    return JobWorkload.of_columns(columns, users=("u", "v", "w"))


def finishes(world) -> np.ndarray:  # type: ignore[no-untyped-def]
    while run(world, 1000):
        pass
    return np.array(world.job[:, c.FINISH])


def part_way(policy: IndexPolicy, workload: JobWorkload, instants: int):  # type: ignore[no-untyped-def]
    world = policy.opened(workload).world
    run(world, instants)
    return world


@pytest.fixture(scope="module")
def policy() -> IndexPolicy:
    return LEARNER.policy(LEARNER.first(drawn(100, 400)))


@pytest.mark.parametrize("seed", range(3))
def test_a_policy_that_takes_over_at_the_start_plays_its_own_replay(policy: IndexPolicy, seed: int) -> None:
    world = handed_over(policy.opened(drawn(seed)).world, TWO_QUEUE)
    np.testing.assert_allclose(finishes(world), play(drawn(seed), SITE, TWO_QUEUE, RULES).finish_s)


@pytest.mark.parametrize("instants", [10, 77, 200])
def test_two_queues_that_take_over_from_themselves_change_nothing(policy: IndexPolicy, instants: int) -> None:
    world = handed_over(policy.opened(drawn(4)).world, TWO_QUEUE)
    run(world, instants)
    again = finishes(handed_over(world, TWO_QUEUE))
    engine = play(drawn(4), SITE, TWO_QUEUE, RULES)
    assert engine.preemptions.sum() > 0
    np.testing.assert_allclose(again, engine.finish_s)


@pytest.mark.parametrize("instants", [10, 77, 200])
def test_whatever_takes_over_every_job_ends_and_no_work_is_lost(policy: IndexPolicy, instants: int) -> None:
    workload = drawn(5)
    for ways in ((TWO_QUEUE,), (LEARNED,), (TWO_QUEUE, LEARNED), (LEARNED, TWO_QUEUE)):
        world = part_way(policy, workload, instants)
        for way in ways:
            world = handed_over(world, way, policy.memory(workload) if way is LEARNED else None)
            run(world, 20)
        ended_s = finishes(world)
        assert (world.mark[:, c.STATUS] == c.DONE).all()
        stops = world.mark[:, c.STOPS]
        worked_s = world.job[:, c.RUN] - RULES.restart_s * stops
        assert (worked_s >= workload.duration_s - 1e-6 - RULES.restart_s * stops).all()
        assert (ended_s >= workload.arrival_s + workload.duration_s - 1e-6).all()


def test_the_past_tells_whose_jobs_are_short(policy: IndexPolicy) -> None:
    """Against the same tables with the users turned round, and against nobody's knowledge."""
    workload = drawn(6, 300)
    wrong = LEARNER.policy(LEARNER.first(drawn(101, 400, MEDIANS_S[::-1])))
    took = [float((each.finishes(workload) - workload.arrival_s).mean()) for each in (policy, wrong)]
    blind = play(workload, SITE, TWO_QUEUE, RULES).finish_s - workload.arrival_s
    assert took[0] < blind.mean()
    assert took[0] < 0.9 * took[1]


def test_an_update_learns_what_the_new_jobs_last(policy: IndexPolicy) -> None:
    turned, workload = drawn(7, 400, MEDIANS_S[::-1]), drawn(8, 300, MEDIANS_S[::-1])
    history = JobHistory(turned, np.ones(400, bool), turned.arrival_s, 1e9)
    updated = LEARNER.policy(LEARNER.update(policy.index, history))
    took = [float((each.finishes(workload) - workload.arrival_s).mean()) for each in (updated, policy)]
    assert took[0] < 0.9 * took[1]


def test_a_frozen_policy_does_not_learn_from_what_it_plays() -> None:
    """A trace of turned users: the one whose tables go on does better on it."""
    index = LEARNER.first(drawn(100, 400))
    workload = drawn(9, 600, MEDIANS_S[::-1])
    still, live = (IndexPolicy(index, SITE, RULES, frozen=frozen) for frozen in (True, False))
    took = [float((each.finishes(workload) - workload.arrival_s).mean()) for each in (live, still)]
    assert took[0] < took[1]


def test_weights_come_back_and_others_are_refused(policy: IndexPolicy) -> None:
    again = LEARNER.unpacked(LEARNER.packed(policy.index), "file")
    np.testing.assert_array_equal(LEARNER.policy(again).finishes(drawn(1)), policy.finishes(drawn(1)))
    with pytest.raises(InputError, match="file: is no policy of an online loop"):
        LEARNER.unpacked(LEARNER.packed(policy.index)[:-100], "file")


def heads(world) -> np.ndarray:  # type: ignore[no-untyped-def]
    """Keys under which the first of each class waits."""
    return np.array(world.head_key[world.active[: world.tally[c.ACTIVE]]])


@pytest.mark.parametrize("seed", range(3))
def test_the_guard_that_takes_over_ranks_by_its_own_keys_alone(policy: IndexPolicy, seed: int) -> None:
    """Also where the learned policy's clock, which asks for new keys, was still to come."""
    workload = drawn(seed)
    world = policy.opened(workload.stretched(0.3)).world
    while not world.tally[c.N_WAITING] > 3:
        assert run(world, 1)
    guarded = handed_over(world, TWO_QUEUE)
    waited = 0
    while run(guarded, 1):
        assert all(any(level - 0.5 < key <= level + 0.1 for level in (0, 1)) for key in heads(guarded))
        waited += int(guarded.tally[c.N_WAITING] > 0)
    assert waited > 100


@pytest.mark.parametrize("anew", [False, True])
def test_the_policy_that_comes_back_after_the_guard_knows_who_goes_first(policy: IndexPolicy, anew: bool) -> None:
    workload = drawn(7).stretched(0.3)
    guarded = handed_over(part_way(policy, workload, 60), TWO_QUEUE)
    run(guarded, 60)
    world = handed_over(guarded, LEARNED, policy.memory(workload) if anew else None)
    known, looked = world.learned, 0
    while run(world, 1):
        jobs = known.active[: known.wanting[0]]
        first = known.front.shape[1] - 1 - known.front[0, : known.front_size[0]]
        behind = np.setdiff1d(jobs, first)
        assert set(first) <= set(jobs)
        if len(first) and len(behind):
            assert known.order[first].max() <= known.order[behind].min()
            looked += 1
    assert looked > 20
