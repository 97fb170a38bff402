"""What agents remember, expect, prefer and have to keep to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from hippo.jobs.engine import observe
from hippo.jobs.engine import world as c
from hippo.jobs.joint.draws import DrawnScenes, WorldTerms, repeated
from hippo.jobs.joint.env import COSTS, JOBS, WorldEnv, prices
from hippo.jobs.joint.hi_ppo.learner import Roll, SiteAgents, WorldLearner, WorldShare, decide, limited, tensors
from hippo.jobs.joint.hi_ppo.policy import Agents, HiPpoScheduler
from hippo.jobs.joint.hi_ppo.settings import Limits, WorldLearning
from hippo.jobs.joint.hi_ppo.train import packed
from hippo.jobs.joint.hi_ppo.worlds import WorldBatch
from hippo.jobs.joint.moment import Scheduler
from hippo.jobs.joint.play import play_jointly
from hippo.jobs.joint.settings import SRPT
from hippo.jobs.site import JobSite
from hippo.learn.distributed import Place
from hippo.problem.catalogue.clusters import cluster

from .test_agents import scenes, small, table


def opened(number: int = 1, **terms: object) -> WorldEnv:
    scene = scenes(**terms).scene(number)
    return WorldEnv(scene, prices(scene))


def by_rule(env: WorldEnv) -> WorldEnv:
    """Played to its end by the rule."""
    found = np.zeros(2, np.int64)
    while not env.done:
        found[:] = env.advised()
        env.answer(int(found[0]), int(found[1]))
    return env


def test_a_link_is_expected_to_go_back_to_what_it_was():
    """Against the same sums over the whole past, weighed at the end."""
    env, rng = opened(moving=0.0), np.random.default_rng(3)
    world, seen = env.world, env.sight
    seen.seen_at[:] = -np.inf  # nothing was seen before
    passed, carried, sampled = [], [], []
    for _ in range(60):
        world.clock[c.NOW] += float(rng.uniform(60.0, 4000.0))
        world.links.capacity[0, 1] = 1.25e8 * float(rng.uniform(0.1, 20.0))
        observe.look(world, seen)
        passed.append(float(world.clock[c.NOW]))
        carried.append(np.log(1.0 + world.links.capacity[0, 1] / 1.25e8) / 4.0)
        if not sampled or passed[-1] - sampled[-1][0] >= observe.SAMPLE_S:
            sampled.append((passed[-1], carried[-1]))
        now, time_s, value = passed[-1], np.array(passed), np.array(carried)
        weight = np.exp((time_s[1:] - now) / observe.PAST_S) - np.exp((time_s[:-1] - now) / observe.PAST_S)
        first = np.exp((time_s[0] - now) / observe.PAST_S)
        mean = first * value[0] + weight @ value[:-1]
        varies = first * value[0] ** 2 + weight @ value[:-1] ** 2 - mean**2
        at, of = np.array(sampled).T
        last = sampled[-1][0]
        steps = np.exp((at[1:] - last) / observe.PAST_S) - np.exp((at[:-1] - last) / observe.PAST_S)
        stays = min(1.0, max(0.0, 1.0 - float(steps @ np.diff(of) ** 2) / (2.0 * varies))) if varies > 1e-9 else 1.0
        powers = stays ** np.arange(1, observe.AHEAD + 1)
        numbers = seen.links[0, 1]
        assert numbers[6] == pytest.approx(mean, rel=1e-4)
        assert numbers[4] == pytest.approx(mean + (value[-1] - mean) * powers.mean(), rel=1e-4, abs=1e-5)
        assert numbers[5] == pytest.approx(np.sqrt(max(0.0, varies * (1.0 - powers[-1] ** 2))), rel=1e-3, abs=1e-4)


def test_a_link_that_stands_still_is_expected_to_stand_still():
    env = by_rule(opened(moving=0.0))
    apart = ~np.eye(4, dtype=bool)
    assert env.sight.links[apart][:, 4] == pytest.approx(env.sight.links[apart][:, 0], rel=1e-5)
    assert env.sight.links[apart][:, 5] == pytest.approx(0.0, abs=1e-3)


def test_a_site_of_fewer_domains_is_seen_as_it_is_beside_larger_ones():
    two = DrawnScenes(WorldTerms(JobSite.of(repeated(cluster("four-hubs"), 2)), ("mixed",), 12, (1.0,)), table(), 3)
    narrow, wide = WorldBatch(two, 3, 2), WorldBatch(two, 3, 4)
    torch.manual_seed(0)
    policy, rng = SiteAgents(WorldLearning()), np.random.default_rng(1)
    for each in policy.parameters():
        torch.nn.init.normal_(each, std=0.3)
    for _ in range(30):
        with torch.no_grad():
            scores = [policy.upper.whom(policy.upper.think(tensors(each.sights))) for each in (narrow, wide)]
        assert torch.allclose(*scores, atol=1e-5)
        action = decide(policy, narrow, rng).action
        wide.ask(action[:, 0])
        wide.hand_down(action[:, 0], action[:, 1])
        assert np.allclose(narrow.answer(action)[0], wide.answer(action)[0])


def test_a_curriculum_begins_with_small_sites_and_low_loads():
    small_site, site = (JobSite.of(repeated(cluster("four-hubs"), count)) for count in (2, 4))
    terms = WorldTerms(site, ("mixed",), 6, (0.5, 1.0), smaller=(small_site,), curriculum=20)
    drawn = [DrawnScenes(terms, table(), 3).scene(number) for number in range(40)]
    assert {len(scene.site.domains) for scene in drawn[:10]} == {2}
    assert {len(scene.site.domains) for scene in drawn[20:]} == {2, 4}
    assert DrawnScenes(terms, table(), 3).domains == site.domains


def test_costs_are_those_of_the_world():
    """All exchange goes below a floor that no link reaches; who lacks nothing of an equal share is not wronged."""
    scene = scenes(jobs=30).scene(4)
    env = by_rule(WorldEnv(scene, prices(scene), floor_bytes_per_s=1e18))
    links, price = env.world.links, np.array(scene.site.usd_per_gb or np.zeros((4, 4)))
    apart = ~np.eye(4, dtype=bool)
    usd, unfair, stops, below = env.costs()
    assert usd == pytest.approx(float((price * (links.moved_gb + links.exchanged_gb))[apart].sum()), rel=1e-6)
    assert stops == env.world.mark[:, c.STOPS].sum()
    assert below == pytest.approx(float(links.exchanged_gb[apart].sum()), rel=1e-6)
    span_s = env.world.clock[c.NOW] - env.world.clock[c.STARTED_AT]
    assert 0.0 <= unfair <= span_s


def test_who_holds_all_wrongs_who_waits():
    """Two owners: one has the whole site, the other could use half of it and has nothing."""
    env = opened(moving=0.0, failing=0.0, tenants=0.0)
    world = env.world
    world.mark[:, c.STATUS] = c.ABSENT
    devices = int(world.bin[:, c.BIN_SIZE].sum())
    world.tally[c.ARRIVED] = max(2, world.tally[c.ARRIVED])
    for job, (status, user) in enumerate(((c.RUNNING, 0), (c.WAITING, 1))):
        world.mark[job, [c.STATUS, c.USER, c.DEVICES, c.HOLDS]] = status, user, devices, devices
    from hippo.jobs.joint.env import _lacking

    assert _lacking(world, env.state) == pytest.approx(0.5)
    world.mark[1, c.DEVICES] = devices // 4
    assert _lacking(world, env.state) == pytest.approx(0.25, abs=0.01)


def rolled(spent: tuple[float, ...], jobs: float, hours: float) -> Roll:
    one = np.zeros((1, 1), np.float32)
    many = np.array([[[*spent, jobs]]], np.float32)
    epochs = np.full((1, 1), hours * 12.0, np.float32)
    return Roll(None, one, one, one, np.full((1, 1, 1), 2.0, np.float32), many, one, one > 0, epochs)  # type: ignore[arg-type]


def test_what_is_over_a_limit_is_paid_for():
    limits = Limits(egress_usd_per_hour=10.0, unfairness=0.1, stops_per_job=2.0, big_m=0.5)
    found = limited(rolled((60.0, 1800.0, 5.0, 3.0), 4.0, 2.0), np.array([1.0, 0.1, 0.01]), limits, 300.0)
    egress, unfair, stops = 60.0 / 10.0 - 2.0, 1800.0 / 360.0 - 2.0, 5.0 / 2.0 - 4.0
    assert found.rewards == pytest.approx(2.0 - egress - 0.1 * unfair - 0.01 * stops - 0.5 * 3.0, rel=1e-5)


def test_a_multiplier_rises_while_its_limit_is_broken_and_falls_to_nothing_after():
    settings = replace(small(Path()), limits=Limits(egress_usd_per_hour=10.0, rate=0.5))
    learner = WorldLearner(
        SiteAgents(settings), [WorldShare(WorldBatch(scenes(), 1, 4), np.random.default_rng(0))], settings, Place()
    )
    figures = learner._ascend([rolled((60.0, 0.0, 0.0, 0.0), 1.0, 2.0)])
    assert figures == {"limits/egress": pytest.approx(3.0), "multipliers/egress": pytest.approx(1.0)}
    assert learner.multipliers == pytest.approx([1.0, 0.0, 0.0])
    for _ in range(9):
        learner._ascend([rolled((0.0, 0.0, 0.0, 0.0), 1.0, 2.0)])
    assert learner.multipliers == pytest.approx(0.0)
    numbers, states = learner.state()
    learner.restore([numbers[0], 0.5, 0.25, 0.0], states)
    assert learner.multipliers == pytest.approx([0.5, 0.25, 0.0])


def test_who_prefers_no_egress_earns_by_egress_alone():
    drawn = scenes(jobs=30, preferences=1.0)
    batch, found = WorldBatch(drawn, 1, 4, regret=True, endless=False, usd_per_job=7.0), np.zeros(2, np.int64)
    env = batch.envs[0]
    env.scene = replace(env.scene, egress_weight=1.0)
    assert env.sight.site[11] == pytest.approx(drawn.scene(0).egress_weight)
    earned = env.costs()[0] / -7.0
    while not batch.over:
        found[:] = env.advised()
        batch.ask(found[:1] if found[0] >= 0 else np.array([JOBS]))
        earned += float(batch.answer(np.array([[found[0] if found[0] >= 0 else JOBS, found[1], 0]]))[0][0])
    assert earned == pytest.approx(env.costs()[0] / -7.0, rel=1e-4, abs=1e-6)
    assert len(COSTS) == 4


def test_one_agent_answers_as_likely_as_both_together():
    torch.manual_seed(0)
    policy, batch = SiteAgents(WorldLearning()), WorldBatch(scenes(), 4, 4)
    found = decide(policy, batch, np.random.default_rng(0))
    whole = policy.evaluate(tensors(batch.sights), torch.from_numpy(found.action))
    assert whole.log_prob.detach().numpy() == pytest.approx(found.upper + found.lower, abs=1e-5)


def test_what_is_left_out_changes_nothing():
    settings = WorldLearning()
    for name, part in (("no_memory", "domains"), ("no_forecast", "links")):
        torch.manual_seed(0)
        blind = SiteAgents(replace(settings, ablation=replace(settings.ablation, **{name: True})))
        batch = WorldBatch(scenes(), 2, 4)
        seen, other = tensors(batch.sights), tensors(batch.sights)
        left = (observe.PAST if part == "domains" else observe.FORECAST,)
        changed = getattr(seen, part).clone()
        changed[..., list(left[0])] += 1.0
        other = other._replace(**{part: changed})
        with torch.no_grad():
            here, there = (blind.upper.think(each).around for each in (seen, other))
        assert torch.equal(here, there)


def test_the_upper_agent_learns_every_so_many_updates():
    settings = small(Path(), upper_every=2)
    policy = SiteAgents(settings)
    learner = WorldLearner(
        policy, [WorldShare(WorldBatch(scenes(), 4, 4, regret=True), np.random.default_rng(0))], settings, Place()
    )
    said = ["ppo/kl" in learner.learn(0.0).figures for _ in range(4)]
    assert said == [True, False, True, False]


def test_agents_that_never_learned_where_jobs_are_stopped_leave_that_to_a_rule():
    settings = WorldLearning()
    torch.manual_seed(3)
    contrary = SiteAgents(settings)
    torch.nn.init.constant_(contrary.upper.follows, -5.0)  # does anything but what the rule says
    blind = HiPpoScheduler(agents=Agents.unpacked(packed(contrary, settings), "here"))
    wise = replace(settings, worlds=replace(settings.worlds, stops=0.5))
    knows = HiPpoScheduler(agents=Agents.unpacked(packed(contrary, wise), "here"))
    assert blind.agents is not None
    assert knows.agents is not None
    assert (blind.agents.stops, knows.agents.stops) == (False, True)

    def ends(scheduler: Scheduler, number: int, stops: float) -> np.ndarray:
        scene = scenes(stops=stops).scene(number)
        return play_jointly(
            scene.workload, scene.site, scheduler, scene.settings, offers=scene.offers, tenants=scene.tenants
        ).finish_s

    assert np.array_equal(ends(blind, 3, 1.0), ends(SRPT, 3, 1.0), equal_nan=True)
    assert not all(np.array_equal(ends(blind, each, 0.0), ends(SRPT, each, 0.0), equal_nan=True) for each in (3, 4, 5))
    assert not all(np.array_equal(ends(knows, each, 1.0), ends(SRPT, each, 1.0), equal_nan=True) for each in (3, 4, 5))
