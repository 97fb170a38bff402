"""The loop on a replayed queue: every job is told once, policies replay what they decide, files are checked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hippo.errors import InputError
from hippo.jobs.engine.play import play
from hippo.jobs.env.env import F
from hippo.jobs.env.replayed import Replayed, ScoreLearner
from hippo.jobs.online.guard import Margins, TwoQueueGuard
from hippo.jobs.online.learner import JobHistory
from hippo.jobs.online.loop import Loop, LoopSettings, serve
from hippo.jobs.policies.heuristics import TWO_QUEUE
from hippo.jobs.settings import ReplayRules

from .worlds import drawn, small_site

RULES = ReplayRules()
SCORES = ScoreLearner(small_site(), RULES, candidates=6, draws=3, rounds=1, jobs=40)
MARGINS = Margins(0.05, 0.0, 30, 30, 60)


def settings(folder: Path, **choices: object) -> LoopSettings:
    usual = {"review_every_jobs": 25, "margins": MARGINS, "background": "none", "durable": "normal"}
    return LoopSettings(folder, **(usual | choices))  # type: ignore[arg-type]


def test_every_job_comes_and_ends_in_the_log_as_in_the_replay(tmp_path: Path) -> None:
    workload = drawn(3, 60)
    source = Replayed(workload, small_site(), RULES, candidates=6)
    with Loop(SCORES, SCORES.first(), TwoQueueGuard(small_site(), RULES), settings(tmp_path)) as loop:
        rewards = []
        while (moment := source.look()) is not None:
            rewards.append(moment.reward)
            source.carry_out(loop.decide(moment))
        last = source.rest()
        loop.told(last)
        known, decisions = loop.log.jobs(), loop.log.transitions()
    finish_s = source.env.ledger().finish_s
    assert [each.job.name for each in known] == [workload.name(job) for job in range(60)]
    assert len(last.ended) > 0, "the last ones end after the last decision"
    assert [each.finish_s for each in known] == finish_s.tolist()
    assert [each.outcome for each in decisions] == [*rewards[1:], last.reward]
    assert all(each.mask[each.action] for each in decisions)


def test_the_guard_alone_plays_two_queues(tmp_path: Path) -> None:
    """Its answers on moments, the engine, and what it claims."""
    workload, where = drawn(5, 60), small_site()
    source, guard = Replayed(workload, where, RULES, candidates=6), TwoQueueGuard(small_site(), RULES)
    while (moment := source.look()) is not None:
        source.carry_out(int(np.argmax(guard.probabilities(moment.observation, moment.mask))))
    np.testing.assert_allclose(source.env.ledger().finish_s, play(workload, where, TWO_QUEUE, RULES).finish_s)
    np.testing.assert_allclose(source.env.ledger().finish_s, guard.finishes(workload))


def test_scores_replay_what_they_decide() -> None:
    workload, policy = drawn(6, 60), SCORES.policy(np.random.default_rng(0).normal(size=F))
    source = Replayed(workload, small_site(), RULES, candidates=6)
    while (moment := source.look()) is not None:
        source.carry_out(int(np.argmax(policy.probabilities(moment.observation, moment.mask))))
    np.testing.assert_array_equal(source.env.ledger().finish_s, policy.finishes(workload))


def test_an_update_is_no_worse_on_what_it_was_searched_on() -> None:
    workload = drawn(7, 40)
    history = JobHistory(workload, np.ones(40, bool), workload.arrival_s, 1e9)

    def mean_s(weights: np.ndarray) -> float:
        return float((SCORES.policy(weights).finishes(workload) - workload.arrival_s).mean())

    start = -SCORES.first()
    best_of_one = ScoreLearner(small_site(), RULES, candidates=6, draws=6, elite=1, rounds=1, jobs=40)
    assert mean_s(best_of_one.update(start, history)) < mean_s(start)


def test_a_second_run_goes_on_behind_the_first(tmp_path: Path) -> None:
    for run in range(2):
        source = Replayed(drawn(run, 40), small_site(), RULES, candidates=6)
        with Loop(SCORES, SCORES.first(), TwoQueueGuard(small_site(), RULES), settings(tmp_path)) as loop:
            first = source.look()
            assert first is not None
            last_s = loop.open(first)
            assert (last_s > 0) is (run > 0)
            source.begins_s, source.run = last_s, f"{run}-"
            while (moment := source.look()) is not None:
                source.carry_out(loop.decide(moment))
            jobs, decisions = loop.log.jobs(), loop.log.transitions()
    assert [each.job.name for each in jobs] == [f"{run}-{job}" for run in range(2) for job in range(40)]
    times = [each.time_s for each in decisions]
    assert times == sorted(times)


def test_weights_come_back_and_others_are_refused(tmp_path: Path) -> None:
    weights = np.linspace(-1, 1, F)
    np.testing.assert_array_equal(SCORES.unpacked(SCORES.packed(weights), "file"), weights)
    with pytest.raises(InputError, match="broken one"):
        SCORES.unpacked(b"nothing", "file")
    with pytest.raises(InputError, match=r"shape \(3,\)"):
        SCORES.unpacked(SCORES.packed(np.zeros(3)), "file")


def test_serving_learns_and_loses_nothing(tmp_path: Path) -> None:
    source = Replayed(drawn(8, 120), small_site(), RULES, candidates=6)
    made = serve(source, SCORES, -SCORES.first(), TwoQueueGuard(small_site(), RULES), settings(tmp_path))
    assert made >= 120
    assert source.env.ledger().ran.all()
