"""What agents remember, expect, prefer and have to keep to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from hippo.jobs.engine import observe
from hippo.jobs.engine import world as c
from hippo.jobs.joint.advice import NO_CHARGES, Charges
from hippo.jobs.joint.draws import DrawnScenes, WorldTerms, repeated
from hippo.jobs.joint.env import COSTS, JOBS, WorldEnv, WorldScene, prices
from hippo.jobs.joint.hi_ppo.learner import SiteAgents, WorldLearner, WorldShare, decide, tensors
from hippo.jobs.joint.hi_ppo.limits import ascent_by_rule, over_limits, played_by_rule
from hippo.jobs.joint.hi_ppo.policy import Agents, HiPpoScheduler
from hippo.jobs.joint.hi_ppo.settings import BEGIN, Limits, WorldLearning
from hippo.jobs.joint.hi_ppo.train import packed
from hippo.jobs.joint.hi_ppo.worlds import WorldBatch, WorldEnd
from hippo.jobs.joint.hi_ppo.worlds import by_rule as rule_curve
from hippo.jobs.joint.moment import Scheduler
from hippo.jobs.joint.play import play_jointly
from hippo.jobs.joint.settings import SRPT
from hippo.jobs.settings import ReplayRules
from hippo.jobs.site import JobSite
from hippo.jobs.workload import JobWorkload
from hippo.learn.distributed import Place
from hippo.problem.catalogue.clusters import cluster

from ..test_play import TWO
from ..test_rules import LINEAR
from ..test_rules import job as asked
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
    scene = replace(scene, charges=Charges(floor=1e18))
    env = by_rule(WorldEnv(scene, prices(scene)))
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


def ended(used: tuple[float, ...], hours: float, jobs: int = 1) -> WorldEnd:
    return WorldEnd(1.0, np.array(used), hours, jobs)


def test_charges_are_hours_of_a_job_at_the_limit():
    """Multipliers of 2: at its limit a site pays as for two more jobs, a job that stops so often for two hours."""
    limits = Limits(egress_usd_per_hour=10.0, unfairness=0.1, stops_per_job=2.0, floor_gbit_per_s=8.0, big_m=0.5)
    found = limits.charges([2.0, 2.0, 2.0, 2.0])
    assert found.egress * 10.0 == pytest.approx(2 * 3600.0)
    assert found.unfairness * 0.1 * 3600.0 == pytest.approx(2 * 3600.0)
    assert found.stop * 2.0 == pytest.approx(2 * 3600.0)
    assert (found.below, found.floor) == (1800.0, 1e9)  # no limit of its own: big-M
    assert replace(limits, below_gb_per_hour=9.0).charges([0.0, 0.0, 0.0, 2.0]).below * 9.0 == pytest.approx(7200.0)
    assert Limits(big_m=0.5).charges([0.0] * 4) == NO_CHARGES


def test_what_is_used_is_told_over_what_is_allowed():
    limits = Limits(egress_usd_per_hour=10.0, unfairness=0.1, stops_per_job=2.0)
    two = [ended((30.0, 180.0, 1.0, 7.0), 1.0, 3), ended((30.0, 180.0, 2.0, 7.0), 1.0)]
    assert over_limits(limits, two) == pytest.approx([60.0 / 20.0, 360.0 / 720.0, 3.0 / 8.0, 0.0])


class AtHomeOrAway:
    """Worlds that are all the same: 50 GB of a job lie where another one runs for 99 s still, in the other domain it
    would begin now, for $1. ``thrift`` of the rule counts its GPUs as much as itself."""

    domains = ("d0", "d1")

    def scene(self, number: int) -> WorldScene:
        first = asked("a", 100, least=4, data_gb=200, data_at="d0")
        jobs = [first, asked("b", 20, 1.0, least=4, data_gb=50, data_at="d0")]
        return WorldScene(JobWorkload.of(jobs), TWO, LINEAR, ReplayRules(stops=False))


def test_dual_ascent_comes_to_the_price_at_which_it_is_all_the_same():
    """Away it costs 2 x 50 s and $1, at home 99 s and 2 x 20 s: the same at 39 s a dollar. Half of what is used without
    a price is allowed, and neither is half of it."""
    one = played_by_rule(AtHomeOrAway(), 0, NO_CHARGES)
    assert (one.used[0], one.hours) == (pytest.approx(1.0), pytest.approx(100.0 / 3600.0))
    used = [played_by_rule(AtHomeOrAway(), 0, Charges(egress=price)).used[0] for price in (38.0, 40.0)]
    assert used == pytest.approx([1.0, 0.0])
    limits = Limits(egress_usd_per_hour=18.0, by_rule=200, worlds=1)
    found = ascent_by_rule(AtHomeOrAway(), limits)
    assert limits.charges(found.found.tolist()).egress == pytest.approx(39.0, rel=0.1)
    assert not found.found[1:].any()


def ascending(follows: float = 4.0, begin: float = BEGIN, worlds: int = 2) -> WorldLearner:
    """Agents in such worlds, with half of what is used without a price allowed."""
    limits = Limits(egress_usd_per_hour=18.0, by_rule=0, worlds=worlds)
    settings = replace(small(Path()), limits=limits, network=replace(small(Path()).network, follows=follows))
    torch.manual_seed(0)
    policy = SiteAgents(settings)
    policy.multipliers[0] = begin
    return WorldLearner(
        policy, [WorldShare(WorldBatch(AtHomeOrAway(), 1, 2), np.random.default_rng(0))], settings, Place()
    )


def test_a_multiplier_rises_while_its_limit_is_broken():
    """A step once two worlds have ended; worlds that are opened then pay it, and it stands in the policy."""
    learner = ascending(begin=0.05)
    share = learner.shares[0]
    assert learner._ascend(1) == {}
    figures, risen = learner._ascend(1), 0.05 * np.e  # the first step is the rate, whatever its sign is found from
    assert (figures["limits/egress"], figures["multipliers/egress"]) == (pytest.approx(2.0), pytest.approx(risen))
    assert learner.policy.multipliers.tolist() == pytest.approx([risen, 0.0, 0.0, 0.0])
    assert share.batch.charges.egress == pytest.approx(200.0 * risen)
    assert share.batch.envs[0].scene.charges == NO_CHARGES  # it was open
    numbers, _ = learner.state()
    for _ in range(10):
        learner._ascend(2)
    assert learner.ascent.step == 11
    learner.restore(numbers, [share.state()])
    assert (learner.ascent.step, learner.ascent.value[0], learner.since) == (1, pytest.approx(risen), 0.0)


@pytest.mark.parametrize("follows", [4.0, 0.5])
def test_multipliers_ascend_by_what_serves_and_not_by_what_is_tried(follows: float):
    """Agents whose likeliest answers are the rule's come to its multipliers, however much they try."""
    learner, steps = ascending(follows), 30
    values = []
    for _ in range(steps):
        values.append(learner.policy.multipliers[0].item())
        learner._ascend(2)
    limits = replace(learner.settings.limits, by_rule=steps)
    assert values == pytest.approx(ascent_by_rule(AtHomeOrAway(), limits).multipliers[:, 0])


def test_who_does_as_the_rule_pays_and_uses_as_the_rule_whatever_is_charged():
    """Agents see what the rule says at their charges, and are rewarded for what it pays."""
    charges = Charges(egress=3.0, unfairness=20.0, stop=100.0, below=1.0, floor=1e9)
    for number in range(3):
        scene = replace(scenes(jobs=40, stops=0.0).scene(number), charges=charges)
        env, curve = WorldEnv(scene, prices(scene)), rule_curve(scene)
        paid_s = env.paid_s
        while not env.done:
            env.answer(*env.advised())
            paid_s += env.paid_s
        assert env.costs() == pytest.approx(curve.used, rel=1e-6)
        assert paid_s + env.costs() @ charges[:4] == pytest.approx(curve.total_s, rel=1e-6)


def test_beside_the_rule_the_rule_regrets_nothing_whatever_is_charged():
    charges = Charges(egress=3.0, unfairness=20.0)
    batch, found = WorldBatch(scenes(), 1, 4, regret=True, endless=False, charges=charges), np.zeros(2, np.int64)
    earned = 0.0
    while not batch.over:
        found[:] = batch.envs[0].advised()
        slot = found[:1] if found[0] >= 0 else np.array([JOBS])
        batch.ask(slot)
        earned += float(batch.answer(np.array([[slot[0], found[1], 0]]))[0][0])
    assert earned == pytest.approx(0.0, abs=1e-3)
    assert batch.ended[0].of_rule == pytest.approx(1.0, abs=1e-6)


def test_worlds_go_on_at_the_charges_that_they_began_with():
    one, other = WorldBatch(scenes(), 2, 4, charges=Charges(egress=50.0)), WorldBatch(scenes(), 2, 4)
    torch.manual_seed(0)
    policy, rng = SiteAgents(WorldLearning()), np.random.default_rng(1)
    for step in range(30):
        one.charges = Charges(egress=50.0 + step)
        one.answer(decide(policy, one, rng).action)
    other.restore(one.state())
    assert [env.scene.charges for env in other.envs] == [env.scene.charges for env in one.envs]
    assert other.paid == pytest.approx(one.paid, rel=1e-6)


def test_a_policy_serves_at_the_charges_that_it_learned():
    """The agents follow the rule, so they play as the rule does at these charges, and otherwise than without."""
    settings = replace(WorldLearning(), limits=Limits(egress_usd_per_hour=1.0))
    policy = SiteAgents(settings)
    policy.multipliers[0] = 30.0
    agents = Agents.unpacked(packed(policy, settings), "here")
    assert agents.charges == Charges(egress=30.0 * 3600.0)

    def usd(scheduler: Scheduler, number: int) -> float:
        scene = scenes(jobs=30, tenants=0.0, failing=0.0, stops=0.0).scene(number)
        found = play_jointly(scene.workload, scene.site, scheduler, scene.settings, offers=scene.offers)
        return float((np.array(scene.site.usd_per_gb) * found.link_gb).sum())

    dear = replace(SRPT.kept, egress=30.0 * 3600.0)
    ours, ruled, free = (
        [usd(each, number) for number in range(4)] for each in (HiPpoScheduler(agents=agents), dear, SRPT)
    )
    assert ours == pytest.approx(ruled, rel=1e-6)
    assert sum(ours) < sum(free)


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
