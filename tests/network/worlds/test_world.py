"""Courses of a world: the two engines agree, also under load and with a link that is down."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hippo.errors import InputError, UnknownNameError
from hippo.network.plans.plan_cache import PlanCache
from hippo.network.worlds.world import World, rollout
from hippo.planners.base import Stop
from hippo.planners.baselines.single_domain import SingleDomain
from hippo.planners.exact.search import Exact
from hippo.problem.links import base_bandwidth, base_latency
from hippo.problem.load import load_problem


@pytest.fixture(scope="module")
def played() -> tuple[World, PlanCache]:
    problem = load_problem(model="gpt3-175b", cluster="four-hubs", global_batch=64)
    cache = PlanCache(problem)
    for planner in (Exact(), SingleDomain()):
        plan = planner.propose(problem, Stop(10.0)).plan
        assert plan is not None
        cache.add(plan, origin=planner.name)
    rng, links = np.random.default_rng(0), len(problem.cluster.links)
    bandwidth = base_bandwidth(problem.cluster) * rng.uniform(0.4, 1.2, (4, links))
    bandwidth[2] = 0.0
    latency = np.tile(base_latency(problem.cluster), (4, 1))
    load = rng.uniform(1.0, 1.3, (4, len(problem.cluster.domains)))
    told = np.ones((4, links), bool)
    return World("small", "none", problem, 60.0, bandwidth, latency, load, told), cache


def test_the_engines_agree(played: tuple[World, PlanCache]) -> None:
    world, cache = played
    quick, clear = (rollout(world, cache, engine=engine) for engine in ("fast", "reference"))
    np.testing.assert_allclose(quick.tokens_per_s, clear.tokens_per_s, rtol=1e-9)
    assert quick.tokens_per_s[2, 0] == 0.0  # over two hubs, and every link is down
    assert quick.tokens_per_s[2, 1] > 0.0


def test_load_and_weak_links_slow(played: tuple[World, PlanCache]) -> None:
    world, cache = played
    still = rollout(replace(world, compute=np.ones_like(world.compute)), cache)
    loaded = rollout(world, cache)
    assert (loaded.tokens_per_s <= still.tokens_per_s + 1e-9).all()
    assert (loaded.tokens_per_s[:, 1] < still.tokens_per_s[:, 1]).all()


def test_an_engine_of_another_name(played: tuple[World, PlanCache]) -> None:
    with pytest.raises(UnknownNameError, match="astra, fast, reference"):
        rollout(*played, engine="simpy")


def test_astra_judges_too(played: tuple[World, PlanCache], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the small player of traces; a state that comes twice is played once."""
    player = Path(__file__).parents[2] / "simulate" / "astra" / "player.py"
    runs, script = tmp_path / "runs", tmp_path / "astra"
    script.write_text(f'#!/bin/sh\necho >> {runs}\nexec "{sys.executable}" -S "{player}" "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("HIPPO_ASTRA", str(script))
    world, cache = played
    rows = [0, 2, 0]
    few = replace(
        world,
        bandwidth_bytes_per_s=world.bandwidth_bytes_per_s[rows],
        latency_s=world.latency_s[rows],
        compute=world.compute[rows],
        told=world.told[rows],
    )
    known = rollout(few, cache)
    np.testing.assert_allclose(rollout(few, cache, engine="astra").tokens_per_s, known.tokens_per_s, rtol=1e-6)
    assert len(runs.read_text().splitlines()) == 3  # the second epoch has no links: only one of two plans runs


def test_astra_that_is_not_there(
    played: tuple[World, PlanCache], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HIPPO_ASTRA", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="which hippo does not bring"):
        rollout(*played, engine="astra")
