"""Noise belongs to seed, pipeline, step and operation; predictions play the dispatcher that runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hippo.dispatch.noise.fluctuation import Fluctuation, drawn
from hippo.dispatch.noise.presets import PRESETS, fluctuation_of
from hippo.engine.program import BACKWARD, FORWARD, WEIGHT
from hippo.errors import InputError
from hippo.run.dispatching import StepNoise, noise_for, problem_of
from hippo.run.fits import check_job
from hippo.run.job import RunJob, RunOptions
from hippo.run.predict import dispatched_each
from hippo.schedule.by_hint import dispatch
from hippo.schedule.problem import ScheduleProblem
from hippo.schedule.replay import makespan

from .worlds import PLANS, problem


def job(name: str = "split backwards", **options: Any) -> RunJob:
    model, plan = PLANS[name]
    return RunJob(problem(model, latency_s=0.02), plan, RunOptions(stand_in=True, **options))


def test_the_draws_of_a_step_are_those_of_the_simulator_in_any_order() -> None:
    asked, noise = ScheduleProblem.uniform(3, 4), Fluctuation(0.2, rank_level=0.1, rank_memory=0.5, stall_share=0.1)
    given = StepNoise(asked, noise, seed=4, pipeline=1)
    blocks = list(drawn(asked, noise, samples=70, rng=np.random.default_rng((4, 1))))
    every = [np.concatenate(each) for each in zip(*blocks, strict=True)]
    for step in (1, 2, 64, 65, 70, 3):
        for mine, all_ in zip(given.of(step), every, strict=True):
            np.testing.assert_array_equal(mine, all_[step - 1])
    other = StepNoise(asked, noise, seed=4, pipeline=2).of(1)
    assert not np.array_equal(other.operations, given.of(1).operations)


def test_a_worker_feels_its_own_operations_and_what_it_waits_for() -> None:
    asked = job(noise="0.3,rank_level=0.2", seed=5)
    work, (p, m) = asked.work, (3, 8)
    factors = StepNoise(problem_of(asked, 0), Fluctuation(0.3, rank_level=0.2), seed=5, pipeline=0).of(2)
    operations, messages = factors.operations.reshape(3, p, m), factors.messages.reshape(2, p, m)
    mine = noise_for(asked, work.workers[1])
    assert mine.operation(FORWARD, 0) == 1.0  # before the first step
    mine.begin(2)
    for kind in (FORWARD, BACKWARD, WEIGHT):
        assert mine.operation(kind, 3) == pytest.approx(float(operations[kind, 1, 3]) * float(factors.ranks[1]))
    assert mine.message(FORWARD, 3) == float(messages[FORWARD, 0, 3])
    assert mine.message(BACKWARD, 3) == float(messages[BACKWARD, 2, 3])
    still = noise_for(job(), work.workers[1])
    still.begin(1)
    assert (still.operation(WEIGHT, 0), still.message(FORWARD, 0)) == (1.0, 1.0)


def test_predictions_without_noise_are_the_simulators() -> None:
    fixed, hint = (job(dispatch=each, patience=p, play_links=True) for each, p in (("fixed", 0.5), ("hint", 0.25)))
    asked, order = problem_of(fixed, 0), fixed.work.schedules[0]
    played = dispatched_each(fixed, [1, 2]) - dispatched_each(fixed, [3])
    assert list(played) == [0.0, 0.0]
    finish = float(dispatched_each(fixed, [1])[0]) - makespan(asked, order)
    assert finish >= 0.0
    by_hint = makespan(asked, dispatch(asked, order, patience=0.25))
    assert float(dispatched_each(hint, [1])[0]) == pytest.approx(by_hint + finish)


def test_predictions_on_the_loopback_have_no_links() -> None:
    assert dispatched_each(job(noise="0"), [1])[0] < dispatched_each(job(noise="0", play_links=True), [1])[0] - 0.04


@pytest.mark.parametrize("dispatch", ["fixed", "hint", "learned"])
def test_predictions_move_with_the_draws_and_nothing_else(dispatch: str) -> None:
    one, same, other = (
        dispatched_each(job(dispatch=dispatch, noise="30 %", play_links=True, seed=seed), [1, 2, 3])
        for seed in (1, 1, 2)
    )
    assert list(one) == list(same)
    assert len({*one, *other}) == 6


def test_noise_is_named_by_preset_or_figures() -> None:
    assert fluctuation_of("restless") == PRESETS["restless"]
    assert fluctuation_of("0.2") == Fluctuation(0.2)
    assert fluctuation_of("0.2,abnormal_share=0.01,kind=uniform") == Fluctuation(0.2, "uniform", abnormal_share=0.01)
    for text, told in (
        ("wild", "is no noise .got 'wild'"),
        ("0.2,x=1", "'x'"),
        ("0.2,level=1", "each once"),
        ("2", "level"),
    ):
        with pytest.raises(InputError, match=told):
            fluctuation_of(text)


def test_what_does_not_go_together_is_refused() -> None:
    for options, told in (
        ({"dispatch": "random"}, "unknown dispatcher"),
        ({"dispatch": "hint", "order": "ready"}, "--order"),
        ({"patience": 1.0}, "--patience"),
        ({"noise": "wild"}, "--noise"),
        ({"dispatch": "hint", "backward": "whole"}, "--backward"),
        ({"dispatch": "hint", "runtime": "torch", "stand_in": False}, "--dispatch"),
    ):
        asked = replace(job(), options=replace(job().options, **options))
        with pytest.raises(InputError, match=told):
            check_job(asked, source="plan")
    model, plan = PLANS["chunks"]
    with pytest.raises(InputError, match="interleave"):
        check_job(RunJob(problem(model), plan, RunOptions(stand_in=True, noise="0.2")), source="plan")
