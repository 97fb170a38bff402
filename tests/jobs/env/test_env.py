"""One agent: it plays what the engine plays, is paid what jobs waited, and masks mean what they say."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from hippo.errors import InputError
from hippo.jobs.engine.play import play
from hippo.jobs.engine.running import time_to_failure
from hippo.jobs.env.env import CANDIDATE_FEATURES, Cuts, Queue, QueueEnv, QueueObservation, QueueTimeStep
from hippo.jobs.job import Job
from hippo.jobs.placement.slowdown import Kind, Slowdown
from hippo.jobs.policies.heuristics import TWO_QUEUE
from hippo.jobs.settings import Failures, ReplayRules
from hippo.jobs.site import DevicePool, site
from hippo.jobs.workload import JobWorkload

from .worlds import drawn, small_site

Answer = Callable[[QueueObservation], int]


def env_of(workload: JobWorkload, **choices: object) -> QueueEnv:
    found: QueueEnv = QueueEnv(Queue(lambda rng: workload, small_site(), **choices), candidates=6)  # type: ignore[arg-type]
    return found


def episode(env: QueueEnv, answer: Answer) -> tuple[list[QueueObservation], list[QueueTimeStep]]:
    seen, came = [env.reset(0)], []
    while not came or not came[-1].done:
        came.append(env.step(answer(seen[-1])))
        seen.append(came[-1].observation)
    return seen, came


def first(seen: QueueObservation) -> int:
    return int(np.argmax(seen.mask))


def any_of(seed: int) -> Answer:
    rng = np.random.default_rng(seed)
    return lambda seen: int(rng.choice(np.flatnonzero(seen.mask)))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("settings", [ReplayRules(), ReplayRules(failures=Failures(6e6, 900.0), restart_s=5.0, seed=3)])
def test_whoever_takes_the_first_candidate_plays_two_queues(seed: int, settings: ReplayRules) -> None:
    env = env_of(drawn(seed), settings=settings)
    episode(env, first)
    engine = play(env.queue.workload, small_site(), TWO_QUEUE, settings)
    np.testing.assert_allclose(env.ledger().finish_s, engine.finish_s)
    assert engine.preemptions.sum() > 0, "the case must ask for stops"
    np.testing.assert_array_equal(env.ledger().preemptions, engine.preemptions)


@pytest.mark.parametrize("seed", range(6))
def test_rewards_add_up_to_the_completion_times(seed: int) -> None:
    env = env_of(drawn(seed))
    _, came = episode(env, any_of(seed))
    completion_s = env.ledger().finish_s - env.queue.workload.arrival_s
    assert sum(each.reward for each in came) * env.queue.scale_s == pytest.approx(-completion_s.sum())
    assert env.ledger().ran.all()


def test_who_waits_before_the_first_answer_is_paid_for_too() -> None:
    """The only node is down when the job comes, and away for 100 s from its first failure on."""
    rules = ReplayRules(failures=Failures(1e4, 100.0), seed=0)
    down_s = time_to_failure(0, 0, 0, 1e4)
    jobs = JobWorkload.of([Job("refused", 0.0, 1.0, devices=9), Job("waits", down_s + 40.0, 50.0)])
    env = QueueEnv(Queue(lambda rng: jobs, site([DevicePool("a", "gpu", 1, 1)]), settings=rules), candidates=2)
    _, came = episode(env, first)
    assert env.ledger().finish_s[1] == pytest.approx(down_s + 100.0 + 50.0)
    assert sum(each.reward for each in came) == pytest.approx(-(60.0 + 50.0) / 50.0)  # who is refused does not count


@pytest.mark.parametrize("seed", range(3))
def test_rows_are_the_candidates_and_numbers_are_finite(seed: int) -> None:
    seen, _ = episode(env_of(drawn(seed)), any_of(seed))
    for each in seen[:-1]:
        assert each.mask.any()
        filled = each.candidates[:, CANDIDATE_FEATURES.index("one")] == 1.0
        np.testing.assert_array_equal(filled, each.mask[:-1])
        assert np.isfinite(each.flat()).all()
        assert np.abs(each.flat()).max() < 10
    assert not seen[-1].mask.any()


def test_a_long_job_gives_way_by_force_and_only_then() -> None:
    """One device. The first job is past the border when the second comes: it stops, and goes on 30 s late."""
    jobs = JobWorkload.of([Job("long", 0.0, 300_000.0), Job("short", 250_000.0, 100.0)])
    one = site([DevicePool("a", "gpu", 1, 1)])
    for force, ends in ((True, [300_130.0, 250_100.0]), (False, [300_000.0, 300_100.0])):
        env = QueueEnv(Queue(lambda rng: jobs, one, force=force), candidates=2)
        seen, _ = episode(env, first)
        np.testing.assert_allclose(env.ledger().finish_s, ends)
        assert any(each.candidates[0, CANDIDATE_FEATURES.index("by_force")] for each in seen) is force


def test_a_job_over_two_domains_comes_in_by_force_too() -> None:
    """Both domains are held by jobs past the border when one comes that needs them both, as ``two_queue`` has it."""
    jobs = [Job(f"long {name}", 0.0, 300_000.0, devices=4, runs_on=(name,)) for name in "ab"]
    workload = JobWorkload.of([*jobs, Job("wide", 100_000.0, 1000.0, devices=8)])
    where = site([DevicePool("east", "a", 1, 4), DevicePool("west", "b", 1, 4)])
    table = Slowdown((Kind(8),), np.array([[np.inf, 1, 1, np.inf], [np.inf, 1, 1, 1.0]]), np.zeros((2, 4)))
    env = QueueEnv(Queue(lambda rng: workload, where, slowdown=table), candidates=2)
    episode(env, first)
    assert env.ledger().finish_s.tolist() == [301_030.0, 301_030.0, 101_000.0]
    assert play(workload, where, TWO_QUEUE, slowdown=table).finish_s.tolist() == [301_030.0, 301_030.0, 101_000.0]


def test_waiting_is_masked_where_nothing_would_happen() -> None:
    jobs = JobWorkload.of([Job("one", 0.0, 10.0), Job("two", 100.0, 10.0)])
    env = QueueEnv(Queue(lambda rng: jobs, small_site()), candidates=3)
    assert env.reset().mask.tolist() == [True, False, False, True]
    seen = env.step(3).observation  # at 100 s, both wait, and nobody else will come
    assert seen.mask.tolist() == [True, True, False, False]
    with pytest.raises(AssertionError, match="masked"):
        env.step(3)


def test_more_jobs_than_rows_show_the_first_and_the_last() -> None:
    jobs = JobWorkload.of([Job(str(number), float(number), 1e5) for number in range(10)] + [Job("end", 50.0, 1.0)])
    env = QueueEnv(Queue(lambda rng: jobs, site([DevicePool("a", "gpu", 1, 1)]), force=False), candidates=4)
    seen = env.reset()
    while env.queue.now_s < 50.0:
        seen = env.step(4).observation
    assert seen.mask[:4].all()
    assert env.found.tolist() == [0, 1, 9, 10]


def test_cuts_have_their_jobs_and_a_load_in_the_range() -> None:
    rng, where = np.random.default_rng(0), small_site()
    cuts = Cuts((drawn(1, 200), drawn(2, 150)), where, jobs=50, load=(0.5, 0.7))
    found = [cuts.draw(rng) for _ in range(20)]
    assert {len(each) for each in found} == {50}
    assert all(0.5 <= each.load(where) <= 0.7 and each.arrival_s[0] == 0.0 for each in found)
    with pytest.raises(InputError, match="at most 150 jobs"):
        Cuts((drawn(2, 150),), where, jobs=151)


def test_a_workload_of_which_nothing_can_run_is_the_users_mistake() -> None:
    with pytest.raises(InputError, match="no job of the workload can run: needs 9 devices"):
        env_of(JobWorkload.of([Job("wide", 0.0, 1.0, devices=9)])).reset()


def test_an_episode_repeats_itself() -> None:
    def ends() -> np.ndarray:
        env = QueueEnv(Queue(Cuts((drawn(1, 300),), small_site(), jobs=60).draw, small_site()), candidates=5)
        episode(env, any_of(7))
        return env.ledger().finish_s

    np.testing.assert_array_equal(ends(), ends())


def test_whether_a_job_will_still_come_cannot_be_seen() -> None:
    """The last moment before a job, and the same moment of a queue in which that job never comes."""
    jobs = [Job("a", 0.0, 5.0, devices=4), Job("b", 0.0, 5.0), Job("late", 1000.0, 5.0)]
    moments = [episode(env_of(JobWorkload.of(jobs[:last])), first)[0] for last in (2, 3)]
    for short, long in zip(moments[0][:2], moments[1][:2], strict=True):
        np.testing.assert_array_equal(short.flat(), long.flat())
