"""Two clocks: the upper agent where a trigger fires, the lower agents once a chain and a recipe stand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from hippo.errors import InputError
from hippo.network.construction.draft import LAMBDA_1, LAMBDA_2, LAMBDA_3
from hippo.network.env.multi_agent import (
    CONSTRUCT,
    DOMAIN,
    LAYOUT,
    OPTION,
    RECIPE,
    UPPER,
    Ready,
    TwoClocks,
    multi_agent_env,
    ready,
)
from hippo.network.observation.features import OPTION_FEATURES
from hippo.network.observation.observe import observe
from hippo.network.observation.scene import CONSTRUCTED
from hippo.network.rules.move import PHASE, STILL
from hippo.network.rules.trigger import Thresholds
from hippo.network.rules.view import Action, View
from hippo.network.worlds.generator import make_world
from hippo.network.worlds.play import play
from hippo.network.worlds.world import World

EPOCHS = 48
WORK_ALONE = (1.0, 0.0, 0.0)
Answer = Callable[[np.ndarray], int]
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))]


def short(family: str, seed: int) -> World:
    world = make_world(family, seed)
    series = ("bandwidth_bytes_per_s", "latency_s", "compute", "told")
    cut: dict[str, Any] = {name: getattr(world, name)[:EPOCHS] for name in series}
    return replace(world, **cut)


@pytest.fixture(scope="module")
def worlds() -> list[World]:
    return [short("ou3", 1), short("ou3", 2)]


@pytest.fixture(scope="module")
def clocks(worlds: list[World]) -> TwoClocks:
    return TwoClocks(worlds, weights=WORK_ALONE)


def alike(clocks: TwoClocks, **choices: Any) -> TwoClocks:
    """Other clocks over the same worlds, which are ready."""
    found = TwoClocks(clocks.worlds, **choices)
    found._ready = clocks._ready
    return found


@dataclass(frozen=True)
class Step:
    """One exchange: where the run stood, who was asked what, and what came of it."""

    epoch: int
    asked: int
    moving: bool
    seen: dict[str, Any]
    answers: dict[str, int]
    rewards: dict[str, float]
    over: bool


def episode(clocks: TwoClocks, seed: int, answer: Answer) -> Iterator[Step]:
    seen, over = clocks.reset(seed), False
    while not over:
        answers = {name: answer(each["action_mask"]) for name, each in seen.items()}
        before = clocks.run.epoch, clocks.asked, bool(clocks.run.state[PHASE] != STILL), seen, answers
        seen, rewards, over = clocks.step(answers)
        yield Step(*before, rewards, over)


def drawn(seed: int, *, construct: float = 0.3) -> Answer:
    """Any allowed answer; to construct, where that is allowed, in this share of the cases."""
    rng = np.random.default_rng(seed)

    def answer(mask: np.ndarray) -> int:
        some = np.flatnonzero(mask)
        if rng.random() < construct and CONSTRUCT in some and len(mask) > CONSTRUCT:
            return CONSTRUCT
        return int(rng.choice(some))

    return answer


def keeps(mask: np.ndarray) -> int:
    return int(np.argmax(mask))


@pytest.mark.parametrize("seed", SEEDS)
def test_agents_appear_on_their_clocks(clocks: TwoClocks, seed: int) -> None:
    steps = list(episode(clocks, seed, drawn(seed)))
    assert {step.asked for step in steps} == {OPTION, DOMAIN, RECIPE, LAYOUT}
    for step, after in zip(steps, steps[1:], strict=False):
        waits = step.asked == OPTION and step.answers[UPPER] != CONSTRUCT
        assert (after.epoch > step.epoch) == waits, "time passes where the upper agent has decided, and only there"
        if step.asked == RECIPE:
            assert set(after.seen) == {f"lower_{domain}" for domain in _chain(step)}
        else:
            assert set(after.seen) == {UPPER}
        if step.asked == LAYOUT:
            assert not after.seen[UPPER]["action_mask"][CONSTRUCT], "one construction a decision"
    assert steps[-1].over
    assert clocks.run.epoch == EPOCHS


def _chain(step: Step) -> list[int]:
    """Domains that the upper agent sees in its chain."""
    return [int(domain) for domain in np.flatnonzero(step.seen[UPPER]["observations"]["chain_nodes"][:, 2])]


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_seen_lies_in_the_spaces(clocks: TwoClocks, seed: int) -> None:
    for step in episode(clocks, seed, drawn(seed)):
        for name, each in step.seen.items():
            assert clocks.observation_spaces[name].contains(each), name
            assert clocks.action_spaces[name].contains(np.int64(step.answers[name]))
        asked = [int(np.argmax(each["observations"].get("asked", [LAYOUT]))) for each in step.seen.values()]
        assert step.asked == LAYOUT or asked == [step.asked]


@dataclass
class Script:
    """A method that answers as was answered before."""

    actions: dict[int, Action]
    name: str = "script"

    def begin(self, view: View) -> int:
        return self.actions[0].target

    def decide(self, view: View) -> Action:
        return self.actions.get(view.epoch, Action())


@pytest.mark.parametrize("seed", SEEDS)
def test_the_upper_agent_is_paid_what_the_same_answers_do_in_play(clocks: TwoClocks, seed: int) -> None:
    actions: dict[int, Action] = {}
    paid, any_answer = 0.0, drawn(seed)
    seen, over = clocks.reset(seed), False
    while not over:
        answers = {name: any_answer(each["action_mask"]) for name, each in seen.items()}
        if clocks.asked == OPTION and answers[UPPER] != CONSTRUCT:
            actions[clocks.run.epoch] = observe(clocks.run.view())[1][answers[UPPER]]
        seen, rewards, over = clocks.step(answers)
        paid += rewards.get(UPPER, 0.0)
    run = clocks.run
    again = play(run.world, run.cache, Script(actions), run.terms, forecasts=run.where.setting.forecasts)
    assert paid == pytest.approx(again.work / (run.where.usual * run.world.epoch_s), rel=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_lower_agents_are_paid_for_the_plan_that_joins_the_book(clocks: TwoClocks, seed: int) -> None:
    least_own, owns = -LAMBDA_1 - LAMBDA_2 - 2 * LAMBDA_3, 0.0
    known = len(clocks.reset(seed) and clocks.run.cache)
    for step in episode(clocks, seed, drawn(seed)):
        assert set(step.rewards) == set(step.seen)
        if step.asked == LAYOUT and len(clocks.run.cache) > known:
            where, known = clocks.draft.site, len(clocks.run.cache)
            state = where.bandwidth_bytes_per_s[None], where.latency_s[None], where.slower[None]
            shared = np.log(where.table.ideal_s / clocks.run.cache.step_time_s(known - 1, *state)[0])
            own = np.array(list(step.rewards.values())) - shared
            assert clocks.run.cache.configurations[known - 1].origin == CONSTRUCTED
            assert ((least_own <= own) & (own < 1e-9)).all()
            owns += own.sum()
    assert owns < 0.0


def test_a_plan_that_was_constructed_is_an_option_at_once(clocks: TwoClocks) -> None:
    seen = clocks.reset(1)
    seen, _, _ = clocks.step({UPPER: CONSTRUCT})
    while clocks.asked == DOMAIN:
        candidates, mask = seen[UPPER]["observations"]["chain_candidates"], seen[UPPER]["action_mask"]
        ends = np.append(np.repeat(candidates[:-1, 0], 5), candidates[-1, 0] + 0.01)
        seen, _, _ = clocks.step({UPPER: int(np.argmax(np.where(mask[: len(ends)] > 0, ends, -np.inf)))})
    while clocks.asked != OPTION:
        before = len(clocks.run.cache)
        seen, _, _ = clocks.step({name: (5 if each["action_mask"][5] else 0) for name, each in seen.items()})
    assert len(clocks.run.cache) == before + 1, "layouts that nobody else thought of make a plan of their own"
    features = seen[UPPER]["observations"]["options"][:, OPTION_FEATURES.index("constructed")]
    assert features.sum() == 1
    assert clocks.run.epoch == 0


def test_nothing_is_constructed_while_a_move_is_under_way_nor_more_often_than_allowed(clocks: TwoClocks) -> None:
    moving, clocks = False, alike(clocks, constructions=2)
    for seed in range(3):
        begun = 0
        for step in episode(clocks, seed, drawn(seed, construct=1.0 if seed == 0 else 0.1)):
            if step.asked == OPTION and (step.moving or begun == 2):
                assert not step.seen[UPPER]["action_mask"][CONSTRUCT]
            moving |= step.moving
            begun += step.asked == OPTION and step.answers[UPPER] == CONSTRUCT
        assert begun <= 2
    assert moving


def test_the_upper_clock_is_the_triggers(clocks: TwoClocks) -> None:
    epochs = [step.epoch for step in episode(alike(clocks, thresholds=Thresholds(every=1)), 0, keeps)]
    assert epochs == list(range(EPOCHS))
    epochs = [step.epoch for step in episode(clocks, 0, keeps)]
    assert len(epochs) < EPOCHS
    assert max(np.diff(epochs)) <= Thresholds().every


def test_answers_that_are_masked_count_as_the_first_that_is_allowed(clocks: TwoClocks) -> None:
    def rewards(answer: Answer) -> list[dict[str, float]]:
        return [step.rewards for step in episode(clocks, 3, answer)]

    barred = rewards(lambda mask: len(mask) - 1)
    assert barred == rewards(lambda mask: len(mask) - 1 if mask[-1] else int(np.argmax(mask)))


def test_the_same_seed_is_the_same_episode(clocks: TwoClocks) -> None:
    def told(clocks: TwoClocks, seed: int) -> list[tuple[int, dict[str, float]]]:
        return [(step.epoch, step.rewards) for step in episode(clocks, seed, drawn(5))]

    assert told(clocks, 7) == told(alike(clocks, weights=WORK_ALONE), 7)
    assert {clocks.reset(seed) and clocks.run.world.name for seed in range(8)} == {each.name for each in clocks.worlds}


def test_processes_with_seeds_of_their_own_meet_other_episodes(clocks: TwoClocks) -> None:
    def met(seed: int) -> list[tuple[str, object]]:
        own = alike(clocks, seed=seed)
        return [own.reset() and (own.run.world.name, own.run.terms.weights) for _ in range(4)]

    assert met(1) == met(1) != met(2)


def test_room_for_more_domains_changes_nothing_but_the_room(clocks: TwoClocks) -> None:
    wide = alike(clocks, weights=WORK_ALONE, domains=9)
    for step, other in zip(episode(clocks, 4, keeps), episode(wide, 4, keeps), strict=True):
        nodes = other.seen[UPPER]["observations"]["nodes"]
        np.testing.assert_array_equal(nodes[: clocks.size], step.seen[UPPER]["observations"]["nodes"])
        assert not nodes[clocks.size :].any()
        assert step.rewards == other.rewards


def test_preferences_are_drawn_where_none_are_given(clocks: TwoClocks) -> None:
    clocks = alike(clocks)
    weights = [clocks.reset(seed) and clocks.run.terms.weights for seed in range(8)]
    assert WORK_ALONE in weights
    assert len(set(weights)) > 2
    assert all(sum(each) == pytest.approx(1.0) for each in weights)


def test_worlds_without_a_plan_are_passed_over(clocks: TwoClocks) -> None:
    some = alike(clocks)
    assert isinstance(clocks._ready[1], Ready)
    some._ready = {0: None, 1: clocks._ready[1]}
    assert {some.reset(seed) and some.run.world.name for seed in range(6)} == {clocks.worlds[1].name}
    some._ready = {0: None, 1: None}
    with pytest.raises(InputError, match="no world has a plan"):
        some.reset()


def test_a_problem_without_a_plan_is_told(worlds: list[World]) -> None:
    workload = replace(worlds[0].problem.workload, seq=2**20)
    assert ready(replace(worlds[0], problem=replace(worlds[0].problem, workload=workload))) is None


@pytest.mark.parametrize("domains", [None, 0, 2])
def test_no_worlds_or_too_little_room_is_the_users_mistake(worlds: list[World], domains: int | None) -> None:
    with pytest.raises(InputError, match="room for its domains"):
        TwoClocks(worlds if domains is not None else [], domains=domains)


def test_without_rllib_it_says_what_to_install(worlds: list[World]) -> None:
    if find_spec("ray") is not None:
        pytest.skip("RLlib is installed")
    with pytest.raises(InputError, match="RLlib"):
        multi_agent_env(worlds)
