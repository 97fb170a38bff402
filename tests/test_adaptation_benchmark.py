"""Starts that are learned on other families: what is yielded, what is left alone, where Reptile goes."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from hippo.learn.settings import Ppo
from hippo.network.env.dataset import Dataset
from hippo.network.train.settings import HiPpoSettings, TrainingRun
from hippo.network.train.upper_network import GlobalAgent
from hippo.network.train.worlds import played, worth

from .network.drawn import drawn_dataset
from .scripts import script

_reptile = script("benchmarks/_reptile.py")
Reptile, beginning, chosen, last = _reptile.Reptile, _reptile.beginning, _reptile.chosen, _reptile.last
learned, of_hindsight, reptile = _reptile.learned, _reptile.of_hindsight, _reptile.reptile

SMALL = HiPpoSettings(ppo=Ppo(steps_per_update=64, minibatch=32, passes=2), run=TrainingRun(parallel=8, shares=1))


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return drawn_dataset(4, seed=0)


@pytest.fixture
def start() -> GlobalAgent:
    return beginning(SMALL, prior=True, seed=0)


def weights(policy: GlobalAgent) -> torch.Tensor:
    return torch.cat([each.detach().flatten() for each in policy.parameters()])


def test_some_worlds_of_a_bank_are_played_as_in_the_whole(dataset: Dataset) -> None:
    some = chosen(dataset, [2, 0])
    assert some.names.tolist() == [dataset.names[2], dataset.names[0]]
    np.testing.assert_array_equal(played(some, worth), played(dataset, worth)[[2, 0]])


def test_a_start_without_prior_has_no_opinion_of_an_option_by_itself() -> None:
    nothing, planner = (beginning(SMALL, prior=prior, seed=3) for prior in (False, True))
    assert not nothing.prior.weight.any()
    assert planner.prior.weight.any()
    torch.testing.assert_close(nothing.option.weight, planner.option.weight)


def test_learning_yields_the_start_and_every_update_and_repeats_itself(start: GlobalAgent, dataset: Dataset) -> None:
    before = weights(start)
    met = [weights(policy) for policy in learned(start, dataset, SMALL, updates=2, seed=1)]
    assert len(met) == 3
    assert torch.equal(met[0], before)
    assert not torch.equal(met[1], met[2])
    assert torch.equal(weights(start), before)
    assert torch.equal(weights(last(learned(start, dataset, SMALL, updates=2, seed=1))), met[2])
    assert not torch.equal(weights(last(learned(start, dataset, SMALL, updates=2, seed=2))), met[2])


def test_few_updates_help_who_begins_from_nothing(dataset: Dataset) -> None:
    ppo = replace(SMALL.ppo, steps_per_update=512, minibatch=128, learning_rate=1e-2)
    start = beginning(SMALL, prior=False, seed=0)
    before = of_hindsight(start, dataset).mean()
    after = of_hindsight(last(learned(start, dataset, replace(SMALL, ppo=ppo), updates=6, seed=0)), dataset).mean()
    assert after > before + 0.02


def test_reptile_goes_part_of_the_way_that_a_copy_went(start: GlobalAgent, dataset: Dataset) -> None:
    before = weights(start)
    how = Reptile(rounds=1, inner=1, rate=0.25)
    found = reptile(start, {"drawn": dataset}, SMALL, how, seed=0)
    assert torch.equal(weights(start), before)
    rng = np.random.default_rng((0, 5))
    rng.integers(1)
    there = last(learned(copy.deepcopy(start), dataset, SMALL, updates=1, seed=int(rng.integers(2**31))))
    torch.testing.assert_close(weights(found), before + 0.25 * (weights(there) - before))
