"""What the policy says, verified by simulation: never worse than the rule as far as anybody can know, the rule's play
where effort or time is spent, the same from the same numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count

import numpy as np
import pytest
import torch

from hippo.jobs.joint.draws import DrawnScenes
from hippo.jobs.joint.env import WorldScene
from hippo.jobs.joint.hi_ppo.learner import SiteAgents
from hippo.jobs.joint.hi_ppo.policy import FORM, Agents, HiPpoScheduler
from hippo.jobs.joint.hi_ppo.settings import WorldLearning
from hippo.jobs.joint.hi_ppo.train import packed
from hippo.jobs.joint.hi_ppo.verified import VerifiedScheduler
from hippo.jobs.joint.moment import Moment, Scheduler
from hippo.jobs.joint.play import play_jointly
from hippo.jobs.joint.ranked import decide_ranked
from hippo.jobs.joint.receding_horizon import WorldAhead
from hippo.jobs.ledger import Ledger

from .test_agents import scenes


@pytest.fixture(scope="module")
def policy() -> HiPpoScheduler:
    """Agents that say anything: all weights by chance."""
    torch.manual_seed(8)
    settings = replace(WorldLearning(), network=replace(WorldLearning().network, hidden=8, layers=1))
    agents = SiteAgents(settings)
    for each in agents.parameters():
        torch.nn.init.normal_(each, std=0.5)
    return HiPpoScheduler(agents=Agents.of(FORM.unpacked(packed(agents, settings), "here")[0]))


@dataclass
class Watched:
    """A verified scheduler, and what is expected of each of its decisions."""

    inner: VerifiedScheduler
    check: Callable[[WorldAhead, WorldAhead, Moment], None]  # the rule's decision; what stands; the moment
    name: str = "watched"
    counts: Counter[str] = field(default_factory=Counter)

    def decide(self, moment: Moment) -> None:
        ruled = WorldAhead.of(moment)
        ruled.carry_out(self.inner.base.decide)
        self.inner.decide(moment)
        done = WorldAhead.of(moment)
        done.carry_out(lambda _: None)
        self.check(ruled, done, moment)
        self.counts = moment.counts


def played(scene: WorldScene, scheduler: Scheduler | Watched) -> Ledger:
    rest = {"offers": scene.offers, "tenants": scene.tenants}
    return play_jointly(scene.workload, scene.site, scheduler, scene.settings, **rest)  # type: ignore[arg-type]


def drawn() -> Iterator[WorldScene]:
    """Sites that keep running jobs and sites that do not."""
    worlds: list[tuple[DrawnScenes, int]] = [(scenes(stops=0.0), 1), (scenes(stops=0.0), 4), (scenes(stops=1.0), 2)]
    for each, number in worlds:
        yield each.scene(number)


def kept() -> Iterator[WorldScene]:
    """Sites that keep running jobs, whose nodes do not fail: there they end though somebody is left waiting."""
    for number in (1, 4):
        yield scenes(stops=0.0, failing=0.0).scene(number)


@pytest.mark.parametrize("draws", [0, 3])
def test_what_is_done_is_never_worse_than_the_rule_as_far_as_anybody_can_know(policy: HiPpoScheduler, draws: int):
    def check(ruled: WorldAhead, done: WorldAhead, _: Moment) -> None:
        scheduler = watched.inner
        by_rule, ours = (each.cost(scheduler.base.at(each.trial.sight.stops), np.inf)[0] for each in (ruled, done))
        assert ours <= by_rule * (1.0 + 1e-9)

    seen: Counter[str] = Counter()
    for scene in drawn():
        inner = VerifiedScheduler(policy=policy, draws=draws, lead=0.0, effort=np.inf, deadline_s=np.inf)
        watched = Watched(inner, check)
        played(scene, watched)
        seen += watched.counts
    assert seen["verified"] > seen["changed"] > 0
    assert not seen["degraded"]


def test_what_was_said_in_a_copy_is_what_is_done(policy: HiPpoScheduler, monkeypatch: pytest.MonkeyPatch):
    """Even where so few jobs and places are shown that the rule's own have to be put among them."""
    monkeypatch.setattr("hippo.jobs.joint.hi_ppo.policy.JOBS", 3)
    monkeypatch.setattr("hippo.jobs.joint.hi_ppo.policy.PLACES", 2)

    @dataclass
    class Repeated:
        name: str = "repeated"
        said: int = 0

        def decide(self, moment: Moment) -> None:
            ahead, answers = WorldAhead.of(moment), []
            for _ in range(2):  # the second time from the same
                answers.clear()
                ahead.carry_out(lambda there: answers.extend(policy.answers(there)))
            policy.repeat(moment, answers)
            done = WorldAhead.of(moment)
            done.carry_out(lambda _: None)
            assert all(map(np.array_equal, ahead.stands, done.stands))
            self.said += len(answers)
            if not len(moment.running):
                rule = policy.eyes(moment).rule
                decide_ranked(moment.world, rule.sight, rule.terms, rule.room)

    repeated = Repeated()
    played(scenes(stops=0.0).scene(1), repeated)  # type: ignore[arg-type]
    assert repeated.said > 0


def test_without_effort_it_is_the_rules_play(policy: HiPpoScheduler):
    for scene in drawn():
        verified = VerifiedScheduler(policy=policy, effort=0.0)
        np.testing.assert_array_equal(played(scene, verified).finish_s, played(scene, verified.base).finish_s)


def test_after_its_deadline_it_does_as_the_rule_and_counts_that(policy: HiPpoScheduler):
    """By a clock that goes on by a second whenever somebody looks; the first moment has no deadline."""

    def check(ruled: WorldAhead, done: WorldAhead, moment: Moment) -> None:
        if moment.counts["moments"] > 1:
            assert all(map(np.array_equal, ruled.stands, done.stands))

    for scene in drawn():
        clock = count(0.0, 1.0)
        inner = VerifiedScheduler(policy=policy, deadline_s=0.5, clock=lambda clock=clock: next(clock))  # type: ignore[misc]
        watched = Watched(inner, check)
        played(scene, watched)
        assert watched.counts["verified"] <= 1
        assert watched.counts["degraded"] > 0


def test_a_rival_that_leads_by_nothing_leaves_the_policy_as_it_is(policy: HiPpoScheduler):
    """Whatever is tried in copies, what is carried out is what the bare policy does."""
    for scene in kept():
        verified = VerifiedScheduler(policy=policy, lead=1.0, effort=np.inf, deadline_s=np.inf)
        np.testing.assert_array_equal(played(scene, verified).finish_s, played(scene, policy).finish_s)


def test_it_decides_alike_from_equal_numbers(policy: HiPpoScheduler):
    scene, ends = next(drawn()), []
    for _ in range(2):
        verified = VerifiedScheduler(policy=policy, draws=2, deadline_s=np.inf)
        ends.append(played(scene, verified).finish_s)
    np.testing.assert_array_equal(*ends)


def test_one_scheduler_plays_many_worlds_each_as_if_it_were_the_first(policy: HiPpoScheduler):
    for scene in kept():
        fresh = HiPpoScheduler(agents=policy.agents)
        np.testing.assert_array_equal(played(scene, policy).finish_s, played(scene, fresh).finish_s)
