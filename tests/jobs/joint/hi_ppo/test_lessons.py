"""What answers save over the rule's, and an agent that leaves the rule where that is learned to save enough."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from hippo.jobs.joint.env import JOBS, PLACES
from hippo.jobs.joint.hi_ppo.learner import SiteAgents, played
from hippo.jobs.joint.hi_ppo.lessons import Lessons, _told, learn, lessons_of, study
from hippo.jobs.joint.hi_ppo.settings import AheadTerms, WorldLearning
from hippo.jobs.joint.hi_ppo.worlds import by_rule

from .test_agents import scenes

TERMS = AheadTerms(worlds=2, hours=6.0, epochs=2)


def agents() -> SiteAgents:
    torch.manual_seed(0)
    settings = WorldLearning()
    return SiteAgents(replace(settings, network=replace(settings.network, hidden=16, layers=1)))


def test_the_rules_own_answer_saves_nothing_and_others_are_tried():
    found = lessons_of(scenes(jobs=30, stops=0.0).scene(1), np.random.default_rng(0), TERMS)
    assert found is not None
    at = np.arange(len(found.slot))
    chosen = found.by_slot[at, found.slot]
    assert (chosen[~np.isnan(chosen)] == 0.0).all()
    assert (found.by_place[at, found.place] == 0.0).all()
    assert (np.abs(np.nan_to_num(found.by_place)) > 0.0).any()
    assert (~np.isnan(found.by_slot)).sum() > len(at)  # not the rule's alone


def test_equal_numbers_give_equal_lessons():
    one, other = (lessons_of(scenes(jobs=20, stops=0.0).scene(2), np.random.default_rng(5), TERMS) for _ in range(2))
    assert one is not None
    assert other is not None
    for mine, theirs in zip(one, other, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_who_never_expects_to_save_enough_pays_as_the_rule():
    drawn, policy = scenes(jobs=30, stops=0.0), agents()
    assert study(policy.upper, drawn, replace(TERMS, margin=1e6), seed=0) > 0
    batch = played(policy, drawn, 3, lower=False)
    assert batch.over
    assert batch.paid == pytest.approx([by_rule(drawn.scene(number)).total_s for number in range(3)], rel=1e-6)


def test_the_rule_is_left_where_another_job_saves_more_than_the_margin():
    rng, n = np.random.default_rng(0), 512
    usual = lessons_of(scenes(jobs=30, stops=0.0).scene(1), rng, TERMS)
    assert usual is not None
    rows = Lessons(*(np.repeat(each[:1], n, axis=0) for each in usual))
    good = rng.random(n) < 0.5
    rows.site[:, 0] = np.where(good, 1.0, -1.0)
    rows.jobs[:, :2, -1], rows.slot[:] = 1.0, 0
    by_slot = np.full((n, JOBS + 1), np.nan, np.float32)
    by_slot[:, 0], by_slot[:, 1] = 0.0, np.where(good, 1.0, -1.0)
    lessons = rows._replace(by_slot=by_slot, by_place=np.full((n, PLACES), np.nan, np.float32))
    network = agents().upper
    terms = replace(TERMS, epochs=60)
    losses = learn(network, lessons, terms, rng)
    assert losses[-1] < 0.1 * losses[0]
    with torch.no_grad():
        told = _told(network, lessons, np.arange(n))[0][:, 1].numpy()  # the margin included
    assert (told[good] > 0.0).all()
    assert (told[~good] < 0.0).all()
