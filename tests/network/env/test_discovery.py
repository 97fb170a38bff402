"""What is not known yet is not on offer; what is found along a world is known from then on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hippo.network.env.dataset import dataset_of, discovered, prepare
from hippo.network.env.env import DecisionRules, Env
from hippo.network.observation.foresight import foresight
from hippo.network.observation.options import RunState, empty_options, find_options
from hippo.network.observation.scene import Scene
from hippo.network.plans.plan_cache import PlanCache
from hippo.network.rules.move import STILL
from hippo.network.worlds.generator import make_world
from hippo.network.worlds.world import World

from ..drawn import drawn_world

WORK = np.array([1.0, 0.0, 0.0])
BY_CONFIGURATION = ("place", "usd", "busy", "base_tokens", "constructed", "sent", "layers", "memory", "domain_busy")
AT_THE_END = ("tokens", "low", "high", "met")


def without(scene: Scene, gone: set[int]) -> Scene:
    """The scene of a cache that lacks some configurations; places and their order stay."""
    left = [each for each in range(len(scene.usd)) if each not in gone]
    cut = {name: np.ascontiguousarray(getattr(scene, name)[left]) for name in BY_CONFIGURATION}
    cut |= {name: np.ascontiguousarray(getattr(scene, name)[..., left]) for name in AT_THE_END}
    places = np.arange(len(scene.first))
    found = scene._replace(
        **cut,
        member=np.argsort(cut["place"], kind="stable"),
        first=np.searchsorted(np.sort(cut["place"]), places),
        since=np.zeros(len(left), np.int64),
    )
    return found._replace(ahead=foresight(found, np.arange(len(scene.tokens), 0, -1.0), WORK[None]))


def options_at(scene: Scene, instant: int, running: int) -> tuple[list[tuple[int, int]], np.ndarray]:
    found = empty_options()
    now = RunState(instant, float(len(scene.tokens) - instant), running, -1, STILL, 0.0, 3.0, instant)
    count = find_options(scene, now, WORK, found)
    return [(int(found.how[each]), int(found.target[each])) for each in range(count)], found.features[:count]


@pytest.mark.parametrize("seed", range(4))
def test_what_is_unknown_is_as_if_it_were_not_there(seed: int) -> None:
    scene, rng = drawn_world(seed, configurations=12).scene, np.random.default_rng(seed)
    first = set(np.unique(scene.place, return_index=True)[1].tolist())  # every place keeps one
    later = {int(each) for each in rng.permutation(12)[:7] if int(each) not in first}
    since = np.array([20 if each in later else 0 for each in range(12)])
    scene = scene._replace(since=since)
    scene = scene._replace(ahead=foresight(scene, np.arange(30, 0, -1.0), WORK[None]))
    less = without(scene, later)
    known = [each for each in range(12) if each not in later]
    for instant in (0, 7, 19):
        for running in (-1, 0, len(known) - 1):
            ours, figures = options_at(scene, instant, known[running] if running >= 0 else -1)
            theirs, same = options_at(less, instant, running)
            assert ours == [(how, known[each] if each >= 0 else -1) for how, each in theirs]
            np.testing.assert_allclose(figures, same, rtol=1e-5, atol=1e-5)
    offered = {target for running in known for _, target in options_at(scene, 20, running)[0]}
    assert offered & later


def test_a_place_of_which_nothing_is_known_is_not_on_offer() -> None:
    scene = drawn_world(1).scene
    hidden = set(np.flatnonzero(scene.place == 2).tolist())
    scene = scene._replace(since=np.where(scene.place == 2, 10, 0))
    scene = scene._replace(ahead=foresight(scene, np.arange(30, 0, -1.0), WORK[None]))
    for running in (-1, 0):
        options, figures = options_at(scene, 9, running)
        assert not hidden & {target for _, target in options}
        assert np.isfinite(figures).all()
        assert hidden & {target for _, target in options_at(scene, 10, running)[0]}


def test_runs_of_a_bank_take_only_what_is_known() -> None:
    world = drawn_world(2)
    since = np.where(np.arange(len(world.scene.usd)) % 3 == 1, 12, 0)
    dataset = dataset_of([world._replace(scene=world.scene._replace(since=since))])
    env, rng = Env(dataset, 8, seed=5, rules=DecisionRules(every=2)), np.random.default_rng(5)
    seen, over, epoch = env.reset_in(np.zeros(8, np.int64), np.zeros(8, np.int64)), np.zeros(8, bool), np.zeros(8, int)
    late = False
    while not over.all():
        came = env.step(np.where(seen.option_mask, rng.random(seen.option_mask.shape), -1.0).argmax(axis=1))
        over |= came.done
        epoch += came.epochs
        for run in np.flatnonzero(~over):
            assert since[env.running[run]] <= epoch[run]
            late |= since[env.running[run]] > 0
        seen = came.observation
    assert late


@pytest.fixture(scope="module")
def world() -> World:
    whole = make_world("transient", 1)
    cut = {name: getattr(whole, name)[:40] for name in ("bandwidth_bytes_per_s", "latency_s", "compute", "told")}
    cut["bandwidth_bytes_per_s"] = cut["bandwidth_bytes_per_s"].copy()
    cut["bandwidth_bytes_per_s"][20:, ::2] *= 0.15  # far from all that was planned for
    return replace(whole, **cut)


def test_what_is_found_on_the_way_is_known_from_then_on(world: World) -> None:
    cache, since = discovered(world)
    assert len(since) == len(cache)
    assert (np.diff(since) >= 0).all()
    assert since[0] == 0
    assert 20 <= since[-1] < 40
    again, same = discovered(world)
    assert [each.plan for each in again.configurations] == [each.plan for each in cache.configurations]
    assert (same == since).all()
    ready = prepare(world, cache, since=since, preferences=2)
    assert (ready.scene.since == since).all()
    assert (since[ready.truth.best] <= np.arange(40)).all()


def test_an_empty_book_where_nothing_can_run(world: World) -> None:
    down = np.zeros_like(world.bandwidth_bytes_per_s)
    cache, since = discovered(replace(world, bandwidth_bytes_per_s=down), PlanCache(world.problem))
    assert len(cache) == len(since) == 0


def test_the_same_problem_moves_in_other_ways() -> None:
    one, other, third = (make_world("regimes", 4, movement=each) for each in range(3))
    assert one.problem == other.problem == third.problem
    assert len({each.name for each in (one, other, third)}) == 3
    assert not np.allclose(one.bandwidth_bytes_per_s, other.bandwidth_bytes_per_s)
    assert not np.allclose(other.bandwidth_bytes_per_s, third.bandwidth_bytes_per_s)
