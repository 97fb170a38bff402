"""When a decision is due: the coordinator's rule is the one by which the environment trains."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest

from hippo.network.env.dataset import dataset_of, prepare
from hippo.network.env.env import DecisionRules, Env
from hippo.network.observation.options import HOWS
from hippo.network.plans.candidates import fill
from hippo.network.plans.plan_cache import PlanCache
from hippo.network.rules.trigger import Due, Seen, Thresholds, due, seen, standing
from hippo.network.rules.view import Action, How, View
from hippo.network.worlds.asking import Terms
from hippo.network.worlds.generator import make_world
from hippo.network.worlds.play import steps, usd_per_token
from hippo.network.worlds.world import World


class Scripted:
    """Answers where a decision is due, in the order of the environment; keeps where none is."""

    name = "scripted"

    def __init__(self, answers: dict[int, Action]) -> None:
        self.answers, self.dues = answers, dict[int, Due]()
        self._last: Seen | None = None

    def begin(self, view: View) -> int:
        self._last = seen(view)
        return self.answers[0].target

    def decide(self, view: View) -> Action:
        happened = due(view, self._last, Thresholds())
        if not happened:
            return Action()
        self._last, self.dues[view.epoch] = seen(view), happened
        return self.answers.get(view.epoch, Action())


class Small(NamedTuple):
    world: World
    cache: PlanCache
    env: Env


@pytest.fixture(
    scope="module", params=["lasting", *(pytest.param(name, marks=pytest.mark.slow) for name in ("regimes", "outage"))]
)
def small(request: pytest.FixtureRequest) -> Small:
    seed = 3
    while True:
        world = make_world(request.param, seed)
        if len(world.problem.cluster.domains) <= 4:
            break
        seed += 1
    cache = PlanCache(world.problem)
    fill(cache)
    return Small(world, cache, Env(dataset_of([prepare(world, cache, preferences=1)]), 1))


def answered(env: Env, epochs: int, *, still: bool, seed: int) -> dict[int, Action]:
    """Answers of a run of the environment by the epoch in which they are given: to keep (``still``), or any."""
    rng, epoch, found = np.random.default_rng(seed), 0, dict[int, Action]()
    env.reset_in(np.zeros(1, np.int64), np.zeros(1, np.int64))
    while epoch < epochs:
        runs = env._runs
        able = np.flatnonzero(runs.mask[0])
        option = int(rng.choice(able)) if epoch == 0 or not (still or rng.random() < 0.7) else 0
        found[epoch] = Action(HOWS[runs.how[0, option]], int(runs.target[0, option]))
        epoch += int(env.step(np.array([option])).epochs[0])
    return found


@pytest.mark.parametrize("still", [True, False])
def test_the_coordinator_decides_when_the_environment_does(small: Small, still: bool) -> None:
    world, cache = small.world, small.cache
    for seed in range(3):
        answers = answered(small.env, world.epochs, still=still, seed=seed)
        method = Scripted(answers)
        for _ in steps(world, cache.copy(share=True), method, Terms(usd_per_token(world, cache))):
            pass
        assert list(method.dues) == list(answers)[1:]


def test_the_numbers_are_those_of_the_environment() -> None:
    ours, theirs = Thresholds(), DecisionRules()
    assert (ours.link_share, ours.pace_share, ours.every) == (theirs.link_share, theirs.pace_share, theirs.every)


def test_what_is_used_by_nobody_makes_nothing_due(small: Small) -> None:
    """Each link is halved in turn: only those of what runs or of the best count."""
    first = next(iter(_views(small)))
    view = replace(first, running=0, epoch=1)
    last = seen(view)
    marks = set()
    for link in range(len(view.forecast.latency_s[0])):
        bandwidth = view.forecast.bandwidth_bytes_per_s.copy()
        bandwidth[0, link] /= 2.0
        halved = replace(view, forecast=replace(view.forecast, bandwidth_bytes_per_s=bandwidth))
        used = any(small.cache.bytes_per_step(index)[link] > 0 for index in (0, standing(halved).best))
        assert due(halved, last, Thresholds()).links == ((link,) if used else ())
        marks.add(used)
    assert marks == {True, False}


def test_more_to_choose_from_makes_a_decision_due(small: Small) -> None:
    view = replace(next(iter(_views(small))), running=0)
    last = seen(view)
    assert not due(view, last, Thresholds())
    happened = due(view, replace(last, known=last.known - 1), Thresholds())
    assert happened.found
    assert happened


def _views(small: Small) -> list[View]:
    keep = Scripted({0: Action(How.SWITCH, 0)})
    terms = Terms(usd_per_token(small.world, small.cache))
    return [next(iter(steps(small.world, small.cache.copy(), keep, terms))).view]
