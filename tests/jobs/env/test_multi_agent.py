"""Agents that pull jobs: who is asked when, who gets a job that two want, and one reward for all."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import numpy as np
import pytest

from hippo.errors import InputError
from hippo.jobs.engine.play import play
from hippo.jobs.env.env import Queue
from hippo.jobs.env.multi_agent import Pullers, multi_agent_env
from hippo.jobs.job import Job
from hippo.jobs.policies.heuristics import TWO_QUEUE
from hippo.jobs.site import DevicePool, site
from hippo.jobs.workload import JobWorkload
from hippo.learn.turns import Seen

from .worlds import drawn, small_site

A, B = "0_a_gpu", "1_b_gpu"


def pullers(workload: JobWorkload, where: object = None, **choices: object) -> Pullers:
    queue = Queue(lambda rng: workload, where or small_site(), **choices)  # type: ignore[arg-type]
    return Pullers(queue, candidates=5)


def any_of(seed: int) -> Callable[[np.ndarray], int]:
    rng = np.random.default_rng(seed)
    return lambda mask: int(rng.choice(np.flatnonzero(mask)))


def played(agents: Pullers, answer: Callable[[np.ndarray], int]) -> tuple[list[Seen], dict[str, float]]:
    seen, over, paid = [agents.reset(0)], False, dict.fromkeys(agents.names, 0.0)
    while not over:
        now, rewards, over = agents.step({name: answer(each["action_mask"]) for name, each in seen[-1].items()})
        for name, reward in rewards.items():
            paid[name] += reward
        seen.append(now)
    return seen, paid


@pytest.mark.parametrize("seed", range(5))
def test_every_agent_is_paid_what_all_jobs_waited(seed: int) -> None:
    agents = pullers(drawn(seed))
    seen, paid = played(agents, any_of(seed))
    completion_s = agents.ledger().finish_s - agents.queue.workload.arrival_s
    assert agents.ledger().ran.all()
    assert paid == pytest.approx(dict.fromkeys(agents.names, -completion_s.sum() / agents.queue.scale_s))
    assert agents.mean_completion_s == pytest.approx(completion_s.mean())
    assert {frozenset(each) for each in seen} == {frozenset(), frozenset({A}), frozenset({B}), frozenset({A, B})}
    for each in seen:
        for name, one in each.items():
            assert agents.observation_spaces[name].contains(one)


def test_who_has_nothing_to_choose_is_absent() -> None:
    """The job of 8 devices fits into b alone."""
    agents = pullers(JobWorkload.of([Job("wide", 0.0, 100.0, devices=8), Job("late", 10.0, 5.0)]))
    assert set(agents.reset()) == {B}
    seen, _, _ = agents.step({B: 0})
    assert agents.queue.now_s == 10.0
    assert set(seen) == {A}, "b is full, and who runs there has come first"


def test_the_first_pool_gets_the_job_that_two_want() -> None:
    agents = pullers(JobWorkload.of([Job("one", 0.0, 100.0), Job("two", 0.0, 100.0)]))
    agents.reset()
    seen, _, _ = agents.step({A: 0, B: 0})
    assert agents.queue.now_s == 0.0
    assert [int(each["action_mask"][:-1].sum()) for each in seen.values()] == [1, 1]
    agents.step({A: 5, B: 0})
    assert agents.ledger().pool.tolist() == [0, 1]
    np.testing.assert_allclose(agents.ledger().finish_s, [100.0, 50.0])


def test_who_says_none_is_asked_again_at_the_next_instant() -> None:
    agents = pullers(JobWorkload.of([Job("one", 0.0, 100.0), Job("two", 30.0, 100.0)]))
    agents.reset()
    assert set(agents.step({A: 5, B: 5})[0]) == {A, B}
    assert agents.queue.now_s == 30.0
    seen, _, _ = agents.step({A: 0, B: 1})
    assert seen == {}, "both run, and so to the end"


def test_nobody_may_wait_for_ever() -> None:
    agents = pullers(JobWorkload.of([Job("one", 0.0, 100.0)]))
    seen = agents.reset()
    assert [each["action_mask"].tolist() for each in seen.values()] == [[1.0, 0.0, 0.0, 0.0, 0.0, 0.0]] * 2
    assert agents.step({A: 5, B: 5})[2], "a masked answer counts as the first that is allowed"


@pytest.mark.parametrize("seed", range(4))
def test_one_pool_of_single_devices_plays_two_queues(seed: int) -> None:
    workload = drawn(seed)
    workload = JobWorkload.of_columns({"arrival_s": workload.arrival_s, "duration_s": workload.duration_s})
    one = site([DevicePool("a", "gpu", 1, 3)])
    agents = pullers(workload, one)
    played(agents, lambda mask: int(np.argmax(mask)))
    engine = play(workload, one, TWO_QUEUE)
    assert engine.preemptions.sum() > 0
    np.testing.assert_allclose(agents.ledger().finish_s, engine.finish_s)


def test_without_rllib_it_says_what_to_install() -> None:
    if find_spec("ray") is not None:
        pytest.skip("RLlib is installed")
    with pytest.raises(InputError, match="RLlib"):
        multi_agent_env(Queue(lambda rng: drawn(0), small_site()))
