"""Constructing agents: networks begin as the closed form, learn, are exported as they are, and build what may run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from hippo.network.construction.draft import site
from hippo.network.construction.observe import ConstructionState, observe_domains, observe_layouts, observe_recipes
from hippo.network.hi_ppo.constructor import ClosedForm, Served, construct, draft_all, key, tried
from hippo.network.hi_ppo.lower_agent import pick
from hippo.network.hi_ppo.serving import Policy
from hippo.network.train.construction import Construction, Spot, TorchBrain, learn, sites, step_times
from hippo.network.train.construction_networks import Builders
from hippo.network.train.export import builders_arrays, save
from hippo.network.train.upper_network import GlobalAgent
from hippo.network.worlds.generator import make_world
from hippo.plan.check import check
from hippo.problem.links import base_bandwidth, base_latency
from hippo.score.judge import evaluate, fits

SMALL = Construction(families=("ou3", "regimes"), problems=1, states=1, first_seed=3, sites=2, drafts=6)


@pytest.fixture(scope="module")
def spots() -> list[Spot]:
    return list(sites(SMALL, 0))


@pytest.fixture(scope="module")
def shaken() -> Builders:
    """Networks that have learned something, whatever it is."""
    torch.manual_seed(1)
    builders = Builders()
    with torch.no_grad():
        for each in builders.parameters():
            each.add_(0.05 * torch.randn_like(each))
    return builders


def test_a_masked_row_is_never_picked_and_probabilities_are_those_of_the_softmax() -> None:
    logits = np.array([[0.0, 50.0, 1.0]] * 200, np.float32)
    mask = np.array([[True, False, True]] * 200)
    actions, log_probs = pick(logits, mask, np.random.default_rng(0), np.zeros(200, bool))
    assert set(actions.tolist()) == {0, 2}
    assert np.exp(log_probs[actions == 2]) == pytest.approx(np.e / (1 + np.e))
    sure, _ = pick(logits, mask, np.random.default_rng(0), np.ones(200, bool))
    assert (sure == 2).all()


def test_networks_begin_as_the_closed_form(spots: list[Spot]) -> None:
    sure, places = np.ones(len(spots), bool), [spot.site for spot in spots]
    ours = draft_all(TorchBrain(Builders()), places, np.random.default_rng(0), greedy=sure).drafts
    plain = draft_all(ClosedForm(), places, np.random.default_rng(0), greedy=sure).drafts
    assert [key(draft) for draft in ours] == [key(draft) for draft in plain]


def test_numpy_answers_as_the_networks_that_were_trained(shaken: Builders, spots: list[Spot], tmp_path: Path) -> None:
    path = tmp_path / "some.policy"
    save(path, GlobalAgent(), others=builders_arrays(shaken))
    assert path.stat().st_size < 500_000
    served, torches = Served(Policy.load(path)), TorchBrain(shaken)
    drafts = [ConstructionState(spot.site) for spot in spots]
    drafts[0].add(2)
    seen = observe_domains(drafts)
    np.testing.assert_allclose(served.construct(seen), torches.construct(seen), atol=1e-4)
    while not np.isfinite(drafts[0].step_s):
        drafts[0].add(int(np.flatnonzero(observe_domains(drafts[:1]).mask[0])[0]))
    recipes = observe_recipes(drafts[:1])
    np.testing.assert_allclose(served.recipe(recipes), torches.recipe(recipes), atol=1e-4)
    drafts[0].choose_recipe(0)
    layouts, _ = observe_layouts(drafts[0])
    np.testing.assert_allclose(served.arrange(layouts), torches.arrange(layouts), atol=1e-4)


@pytest.mark.parametrize("orders", [False, True])
def test_constructed_plans_may_run_and_come_quickest_first(shaken: Builders, orders: bool) -> None:
    problem = make_world("regimes", 5).problem
    state = base_bandwidth(problem.cluster), base_latency(problem.cluster)
    plans = construct(TorchBrain(shaken), problem, *state, tries=6, orders=orders)
    assert plans
    for plan in plans:
        assert not check(problem, plan)
        assert fits(problem, plan)
    steps = [evaluate(problem, plan).step_time_s for plan in plans]
    assert steps == sorted(steps)
    assert len(set(plans)) == len(plans)


def test_where_no_link_is_up_only_single_domains_come_of_it() -> None:
    problem = make_world("compute_bound", 1).problem
    rates = np.zeros(len(problem.cluster.links))
    plans = construct(ClosedForm(), problem, rates, base_latency(problem.cluster), tries=4)
    assert all(len(plan.domains) == 1 for plan in plans)


def test_learning_repeats_itself_and_stays_near_the_best_known() -> None:
    world = make_world("large", 4)
    learned: list[Builders] = []
    for _ in range(2):  # each on a site of its own: what was played is remembered there, the best of it too
        spot = Spot(site(world.problem, world.bandwidth_bytes_per_s[9], world.latency_s[9]))
        torch.manual_seed(0)
        learned.append(Builders())
        learn(learned[-1], [spot], replace(SMALL, drafts=16, updates=3), seed=0, minutes=0.0)
    for one, other, new in zip(*(each.parameters() for each in (*learned, Builders())), strict=True):
        assert torch.equal(one, other)
        assert one.shape == new.shape
    assert step_times(learned[0], [spot])[0] <= 1.05 * spot.best_s


def test_one_draft_is_the_closed_forms_whatever_the_policy_thinks(shaken: Builders, spots: list[Spot]) -> None:
    where = spots[0].site
    plain = draft_all(ClosedForm(), [where], np.random.default_rng(0), greedy=np.ones(1, bool)).drafts[0]
    drafts = tried(TorchBrain(shaken), where, 4, seed=0)
    assert len(drafts) == 4
    assert key(drafts[1]) == key(plain)
    assert len(tried(TorchBrain(shaken), where, 1, seed=0)) == 1
    assert len(tried(ClosedForm(), where, 3, seed=0)) == 3
