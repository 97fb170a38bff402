"""What the agent sees in use is what it saw in training, and it is what the simulator says."""

from __future__ import annotations

import numpy as np
import pytest

from hippo.network.env.dataset import Dataset, dataset_of, prepare
from hippo.network.env.env import DecisionRules, Env
from hippo.network.observation.features import CONTEXT_FEATURES, OPTION_FEATURES, Observation
from hippo.network.observation.observe import observe
from hippo.network.plans.plan_cache import PlanCache
from hippo.network.rules.move import STILL, STREAMING
from hippo.network.rules.view import Action, How, View
from hippo.network.rules.worth import Now, ahead, relevered, worth
from hippo.network.worlds.asking import Terms
from hippo.network.worlds.generator import make_world
from hippo.network.worlds.play import foresee, steps, usd_per_token
from hippo.network.worlds.world import World
from hippo.planners.base import Stop
from hippo.planners.exact.search import Exact

EPOCHS = 12
AT = {name: place for place, name in enumerate(OPTION_FEATURES)}


class Answers:
    """Begins with a given option and then gives the answers of a list of options."""

    name = "answers"

    def __init__(self, options: list[int]) -> None:
        self.options, self.seen, self.views, self.taken = options, [], [], []  # type: ignore[var-annotated]

    def _answer(self, view: View) -> Action:
        seen, actions = observe(view, quiet=0.0)
        self.seen.append(seen)
        self.views.append(view)
        option = self.options[len(self.seen) - 1]
        if option < 0:  # the move in the background that takes longest
            features = seen.options[0]
            option = int(np.argmax(features[:, AT["background"]] * (1.0 + features[:, AT["duration"]])))
        self.taken.append(option)
        return actions[option]

    def begin(self, view: View) -> int:
        return self._answer(view).target

    def decide(self, view: View) -> Action:
        return self._answer(view)


@pytest.fixture(scope="module")
def world() -> World:
    whole = make_world("ou3", 1)
    cut = {name: getattr(whole, name)[:EPOCHS] for name in ("bandwidth_bytes_per_s", "latency_s", "compute")}
    told = np.ones(cut["bandwidth_bytes_per_s"].shape, dtype=bool)
    return World(whole.name, whole.family, whole.problem, whole.epoch_s, **cut, told=told)


@pytest.fixture(scope="module")
def cache(world: World) -> PlanCache:
    found = Exact().propose(world.problem, Stop(time_limit_s=60.0, gap=0.05))
    cache = PlanCache(world.problem)
    for plan in (found.plan, *(each.plan for each in found.runners_up)):
        if plan is not None:
            cache.add(plan, origin="exact")
    return cache


@pytest.fixture(scope="module")
def dataset(world: World, cache: PlanCache) -> Dataset:
    return dataset_of([prepare(world, cache, preferences=1)])


OPTIONS_TAKEN = [1, 0, -1, 0, 1, 0, 2, 0, -1, 0, 0, 0]  # a start, a change and what follows


def played(world: World, cache: PlanCache) -> tuple[Answers, list[Observation]]:
    method = Answers(OPTIONS_TAKEN)
    list(steps(world, cache.copy(), method, Terms(usd_per_token(world, cache)), forecasts=foresee(world)))
    return method, method.seen


def test_training_and_use_see_the_same(world: World, cache: PlanCache, dataset: Dataset) -> None:
    method, in_use = played(world, cache)
    assert {view.phase for view in method.views} >= {STILL, STREAMING}
    env = Env(dataset, 1, rules=DecisionRules(every=1))
    seen = env.reset_in(np.zeros(1, np.int64), np.zeros(1, np.int64))
    quiet = CONTEXT_FEATURES.index("quiet")
    for epoch, used in enumerate(in_use):
        for name, trained, known in zip(Observation._fields, seen, used, strict=True):
            if name == "context":
                trained, known = np.delete(trained, quiet, 1), np.delete(known, quiet, 1)
            assert np.allclose(trained, known, atol=2e-3, rtol=1e-5), f"{name} in epoch {epoch}"
        came = env.step(np.array([method.taken[epoch]]))
        seen = came.observation
    assert came.done.all()


def test_worths_are_those_of_the_receding_horizon(world: World, cache: PlanCache) -> None:
    method, in_use = played(world, cache)
    for view, seen in zip(method.views, in_use, strict=True):
        if view.running < 0 or view.phase != 0:
            continue
        look = relevered(ahead(view))
        found = worth(look, Now(view.running, view.target, view.phase, view.arrived))
        _, actions = observe(view)
        tokens_per_s = view.cache.tokens_per_step / view.cache.score(view.running).step_time_s
        usd = view.cache.egress_usd_per_step(view.running) / view.cache.tokens_per_step
        usual = tokens_per_s * (1.0 - usd / view.usd_per_token) * view.epoch_s
        for option, action in enumerate(actions):
            kind = {How.STOP: 1, How.BACKGROUND: 2}.get(action.how)
            if kind is None or usual < 0.1 * tokens_per_s * view.epoch_s:
                continue
            expected = found.net_tokens[action.target, kind, -1] / usual
            told = seen.options[0, option, AT["worth_rest"]]
            assert np.sign(told) * np.expm1(abs(told)) == pytest.approx(
                expected, rel=0.03, abs=0.05
            )  # planes for plays


def test_every_option_is_an_answer_that_the_rules_allow(world: World, cache: PlanCache) -> None:
    method, in_use = played(world, cache)
    for view, seen in zip(method.views, in_use, strict=True):
        _, actions = observe(view)
        places = [each.place for each in view.cache.configurations]
        assert seen.option_mask[0, 0] == (view.running >= 0)
        assert seen.option_mask.sum() >= 1
        for action, mask in zip(actions, seen.option_mask[0], strict=True):
            if not mask:
                assert action == Action()
            elif view.running >= 0 and action.how is How.SWITCH:
                assert places[action.target] == places[view.running]
                assert action.target != view.running
            elif action.how in (How.STOP, How.BACKGROUND):
                assert places[action.target] != places[view.running]
        shares = seen.option_nodes[0].sum(axis=1)
        assert shares[seen.option_mask[0]] == pytest.approx(1.0, abs=1e-5)
        traffic = seen.option_edges[0].sum(axis=(1, 2))
        assert all(each == pytest.approx(1.0, abs=1e-5) or each == 0.0 for each in traffic)
