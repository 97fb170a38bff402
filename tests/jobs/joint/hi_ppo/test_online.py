"""The agents on a site that lives: logged, judged before they serve, held by a rule, going on after a kill."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hippo.errors import InputError
from hippo.jobs.engine import observe
from hippo.jobs.engine import world as c
from hippo.jobs.joint.draws import DrawnScenes, WorldTerms
from hippo.jobs.joint.env import JOBS, WorldScene
from hippo.jobs.joint.hi_ppo import online
from hippo.jobs.joint.hi_ppo.learner import SiteAgents
from hippo.jobs.joint.hi_ppo.online import (
    BY_RULE,
    AgentsLearner,
    LoggedScenes,
    OnlineScheduler,
    SiteGround,
    SiteHistory,
    SitePolicy,
    answered,
)
from hippo.jobs.joint.hi_ppo.policy import Agents, HiPpoScheduler
from hippo.jobs.joint.hi_ppo.train import packed
from hippo.jobs.joint.moment import Moment
from hippo.jobs.joint.play import opened, play_jointly, step
from hippo.jobs.ledger import Ledger
from hippo.jobs.online.guard import Margins
from hippo.jobs.online.learner import JobHistory
from hippo.jobs.online.log import Log
from hippo.jobs.online.loop import GUARD, LoopSettings
from hippo.jobs.site import JobSite
from hippo.problem.catalogue.clusters import cluster

from .test_agents import small, table

MARGINS = Margins(judged_jobs=20, watched_jobs=20, history_jobs=200)


def scene(jobs: int = 150, seed: int = 5) -> WorldScene:
    """Jobs on a small site whose links move, whose nodes fail, and which others use too; who runs is kept."""
    site = JobSite.of(cluster("four-hubs"))
    site = replace(site, pools=tuple(replace(pool, nodes=2) for pool in site.pools))
    terms = WorldTerms(site, ("mixed",), jobs, (1.1,), stops=0.0)
    return DrawnScenes(terms, table(), seed).scene(1)


def ground(played: WorldScene) -> SiteGround:
    return SiteGround(replace(played.site, history=None), played.offers, played.settings)


def settings(folder: Path, **choices: Any) -> LoopSettings:
    usual = {"review_every_jobs": 10, "margins": MARGINS, "background": "none", "durable": "normal", "by_replay": True}
    return LoopSettings(folder, **(usual | choices))


def networks(seed: int = 0) -> Agents:
    """Agents that know nothing."""
    torch.manual_seed(seed)
    policy = SiteAgents(small(Path()))
    arrays = {name: array.numpy().copy() for name, array in policy.state_dict().items()}
    return Agents.of({**arrays, "upper.heads": np.array(small(Path()).network.heads)})


@dataclass(frozen=True, eq=False)
class Scripted(Agents):
    """Most price per GPU time left first, on the fewest GPUs of the quickest places; but from ``lazy_s`` on nobody is
    chosen in nine of twelve hours; in worlds of ``only`` jobs alone, if that is given: live, but not in replays."""

    lazy_s: float = np.inf
    only: int = 0

    def answer(self, moment: Moment, eyes: Any, rng: object = None) -> tuple[int, int, int] | None:
        seen = eyes.sight
        here = not self.only or len(moment.workload) == self.only
        if here and moment.now_s >= self.lazy_s and moment.now_s % 43200.0 < 32400.0:
            return None
        gpus = moment.offers.gpus.sum(axis=1)
        for slot in np.flatnonzero(seen.may).tolist():
            count = int(observe.places(moment.world, seen, slot))
            if count and seen.offer[0] == -2:
                return slot, 0, -1
            quick = [each for each in range(count) if seen.rate[each] >= 0.98 * seen.rate[:count].max()]
            if quick:
                return slot, min(quick, key=lambda each: (gpus[seen.offer[each]], -seen.rate[each])), -1
        return None


@dataclass(frozen=True)
class Told(AgentsLearner):
    """Policies are what a test says: ``script`` by the number of updates, which is all that is learned."""

    script: tuple[Scripted, ...] = ()

    def policy(self, weights: Agents) -> SitePolicy:
        at = min(int(weights.upper["updates"]), len(self.script) - 1)
        return SitePolicy(HiPpoScheduler(agents=self.script[at]))

    def update(self, weights: Agents, history: JobHistory) -> Agents:
        return Agents({"updates": weights.upper["updates"] + 1.0}, {})


RULE = HiPpoScheduler("rule", agents=Scripted({}, {}))


def told(*script: Scripted) -> tuple[Told, Agents]:
    return Told(small(Path()), script=script), Agents({"updates": np.zeros(())}, {})


def script(lazy_s: float = np.inf, only: int = 0) -> Scripted:
    return Scripted({}, {}, lazy_s=lazy_s, only=only)


def served(
    played: WorldScene, folder: Path, learner: AgentsLearner, first: Agents, guard: Any = None, **choices: Any
) -> Ledger:
    with OnlineScheduler(ground(played), learner, first, guard or RULE, settings(folder, **choices)) as scheduler:
        found = play_jointly(
            played.workload,
            played.site,
            scheduler,
            played.settings,
            offers=played.offers,
            tenants=played.tenants,
        )
        scheduler.finish()
    return found


def by_guard(played: WorldScene) -> Any:
    return SitePolicy(RULE).finishes(played)


def paid(played: WorldScene, finish_s: Any) -> float:
    return float(played.offers.prices(played.workload) @ (finish_s - played.workload.arrival_s))


def log_of(folder: Path, played: WorldScene) -> Log:
    moment = Moment.of(opened(played.workload, played.site, offers=played.offers).world, *_asked(played))
    seen = online._seen(HiPpoScheduler().eyes(moment).sight, None)
    return Log(folder / "log.sqlite", shape=seen[0].shape, actions=len(seen[1]))


def _asked(played: WorldScene) -> tuple[Any, ...]:
    return played.workload, played.site, played.offers


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[WorldScene, Log, SiteHistory]]:
    """A world that was served by agents that do little, its log, and the history in it."""
    played, folder = scene(jobs=50), tmp_path_factory.mktemp("lived")
    served(played, folder, *told(script(0.0)))
    with log_of(folder, played) as log:
        yield played, log, ground(played).history(log.jobs(), {}, now_s=log.last_s, states=log.states())


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[WorldScene, Path, Ledger]:
    """A world that was served to its end by agents as good as the rule, and the folder of its log."""
    played, folder = scene(jobs=60), tmp_path_factory.mktemp("whole")
    return played, folder, served(played, folder, *told(script(), script()))


class Idle(Scripted):
    """Nobody ever begins."""

    def answer(self, moment: Moment, eyes: Any, rng: object = None) -> tuple[int, int, int] | None:
        return None


def test_a_policy_that_replays_worse_never_serves(tmp_path: Path) -> None:
    played = scene(60)
    found = served(played, tmp_path, *told(Idle({}, {})))
    np.testing.assert_array_equal(found.finish_s, by_guard(played))
    with log_of(tmp_path, played) as log:
        assert {version for _, version, _ in log.served[1:]} == {GUARD}


@pytest.mark.slow
def test_the_guard_holds_a_policy_that_is_bad_where_it_serves_and_good_in_replays(tmp_path: Path) -> None:
    played = scene(jobs=240)
    lazy_s = float(played.workload.arrival_s[40])
    bad = SitePolicy(HiPpoScheduler(agents=script(lazy_s))).finishes(played)
    found = served(played, tmp_path, *told(script(lazy_s, 240)))
    with log_of(tmp_path, played) as log:
        rows = log.served
    assert [version for _, version, _ in rows[:3]] == [1, GUARD, 1], "it serves once replays say that it may"
    fell = next(row for row in rows[3:] if row[1] == GUARD)
    assert fell[0] > lazy_s
    assert fell[2].startswith("measured")
    waits = np.diff([time_s for time_s, version, _ in rows if version])[1:]
    assert (np.diff(waits) > 0).all(), "it comes back later each time"
    guard_s = paid(played, by_guard(played))
    lost_alone_s, lost_s = paid(played, bad) - guard_s, paid(played, found.finish_s) - guard_s
    assert lost_alone_s > 0.2 * guard_s
    assert lost_s < lost_alone_s / 3


def test_a_policy_comes_back_once_replays_say_that_it_is_no_worse_each_time_later(tmp_path: Path) -> None:
    played = scene(jobs=120)
    given = (ground(played), *told(script()), RULE, settings(tmp_path))
    opening = opened(*_asked(played)[:2], played.settings, offers=played.offers, tenants=played.tenants)
    moment = Moment.of(opening.world, *_asked(played), stops=False)
    with OnlineScheduler(*given) as scheduler:
        came = []
        while step(opening.world):
            scheduler.decide(moment)
            loop = scheduler.loop
            if loop.version and (not came or loop._told[0] > came[-1] + 5):
                came.append(loop._told[0])
                loop.fall("measured, says the test")
    waits = np.diff([0, *came])
    assert 20 <= waits[0] < 40 <= waits[1] < 80, waits


@pytest.mark.slow
def test_what_replays_no_better_is_not_swapped_in(tmp_path: Path) -> None:
    """Ties keep the present; who is as good as the guard is none that replayed better."""
    played = scene(jobs=100)
    alike = served(played, tmp_path / "alike", *told(script(), script(1e12)))
    np.testing.assert_array_equal(alike.finish_s, by_guard(played))
    with log_of(tmp_path / "alike", played) as log:
        assert {version for _, version, _ in log.served} == {GUARD, 1}, "a tie"
    served(played, tmp_path / "better", *told(script(0.0), script()))
    with log_of(tmp_path / "better", played) as log:
        assert not [why for _, _, why in log.served if why.startswith("replayed better")], "as good as the guard"


def test_what_replays_better_is_swapped_in(tmp_path: Path) -> None:
    played = scene(jobs=60)
    lazy = HiPpoScheduler("lazy", agents=script(0.0))
    served(played, tmp_path, *told(script(0.0), script()), guard=lazy)
    with log_of(tmp_path, played) as log:
        assert [version for _, version, why in log.served if why.startswith("replayed better")] == [2]
        assert [file for _, file, _ in log.versions] == ["policy-1.npz", "policy-2.npz"]


def test_a_kill_in_the_middle_loses_nothing_and_a_new_loop_goes_on_as_the_old_one_would(
    whole: tuple[WorldScene, Path, Ledger], tmp_path: Path
) -> None:
    """The same world, played on by a second scheduler from the same log, as by one."""
    played, _, by_one = whole
    opening = opened(*_asked(played)[:2], played.settings, offers=played.offers, tenants=played.tenants)
    moment = Moment.of(opening.world, *_asked(played), stops=played.settings.stops)
    given = (ground(played), *told(script(), script()), RULE, settings(tmp_path / "cut"))
    first, count = OnlineScheduler(*given), 0
    while count < 75 and step(opening.world):
        first.decide(moment)
        count += 1
    before = (first.loop.version, first.loop._held, first.loop._told, first.loop.log.decisions, first.loop.log.served)
    jobs_before = [(each.job.name, each.finish_s) for each in first.loop.log.jobs()]
    first.loop.close()  # nothing is said at the end: it is as if killed
    with OnlineScheduler(*given) as second:
        second._begin(moment)
        now = (second.loop.version, second.loop._held, second.loop._told, second.loop.log.decisions)
        assert (*now, second.loop.log.served) == before
        assert [(each.job.name, each.finish_s) for each in second.loop.log.jobs()] == jobs_before
        while step(opening.world):
            second.decide(moment)
    np.testing.assert_array_equal(opening.world.job[:, c.FINISH], by_one.finish_s)


def test_a_second_play_in_the_same_folder_goes_on_behind_the_first(tmp_path: Path) -> None:
    played = scene(jobs=40)
    for _ in range(2):
        served(played, tmp_path, *told(script(), script()))
    with log_of(tmp_path, played) as log:
        assert len(log.jobs()) == 80
        arrivals = [each.job.arrival_s for each in log.jobs()]
        assert arrivals == sorted(arrivals)


def test_every_answer_is_logged_before_it_is_carried_out(whole: tuple[WorldScene, Path, Ledger]) -> None:
    played, folder, found = whole
    with log_of(folder, played) as log:
        rows, known = log.transitions(), log.jobs()
    assert {each.policy for each in rows} == {GUARD, 1}
    answers = [answered(each.action) for each in rows if each.policy]
    assert all(each.action == BY_RULE for each in rows if not each.policy)
    assert all(slot == JOBS or mask[slot] for (slot, _, _), mask in zip(answers, _masks(rows), strict=True))
    began = sum(slot < JOBS for slot, _, _ in answers)
    assert 0 < began <= 60 + int(found.preemptions.sum() + found.failures.sum())
    cost = -sum(each.outcome or 0.0 for each in rows)
    assert cost == pytest.approx(paid(played, found.finish_s), rel=1e-6), "rewards sum to what the jobs cost"
    assert [each.finish_s for each in known] == found.finish_s.tolist()
    assert all(each.job.ends_after == 0.0 for each in known), "nobody is told how a job ends"


def _masks(rows: Any) -> list[Any]:
    return [each.mask for each in rows if each.policy]


def test_a_replay_of_the_log_plays_what_happened(tmp_path: Path) -> None:
    """Once all jobs have ended, the guard's replay of the log is the guard's play, but for work lost by failures."""
    played = replace(scene(jobs=30), settings=replace(scene(jobs=30).settings, failures=None))
    served(played, tmp_path, *told(script(0.0)))
    with log_of(tmp_path, played) as log:
        history = ground(played).history(log.jobs(), {}, now_s=log.last_s, states=log.states())
    assert history.ended.all()
    np.testing.assert_allclose(history.finishes(SitePolicy(RULE)), by_guard(played), rtol=1e-6)
    np.testing.assert_allclose(history.price, played.offers.prices(played.workload))


def test_worlds_drawn_from_a_log_are_equal_by_number_and_hold_its_jobs(
    lived: tuple[WorldScene, Log, SiteHistory],
) -> None:
    played, _, history = lived
    one, same, other = (LoggedScenes(history, 20, 3).scene(number).workload for number in (1, 1, 2))
    np.testing.assert_array_equal(one.tokens, same.tokens)
    assert not np.array_equal(one.arrival_s, other.arrival_s) or not np.array_equal(one.tokens, other.tokens)
    assert len(one) == 20
    assert set(one.tokens) <= set(played.workload.tokens)
    assert (np.diff(one.arrival_s) >= 0).all()


def test_an_update_learns_new_weights_from_the_log_and_leaves_the_old_ones(
    lived: tuple[WorldScene, Log, SiteHistory],
) -> None:
    history = lived[2]
    learner, before = AgentsLearner(small(Path()), updates=1, worlds=2, jobs=15), networks()
    kept = before.upper["job_in.0.weight"].copy()
    after, again = (learner.update(before, history) for _ in range(2))
    np.testing.assert_array_equal(before.upper["job_in.0.weight"], kept)
    assert not np.array_equal(after.upper["job_in.0.weight"], kept)
    np.testing.assert_array_equal(after.upper["job_in.0.weight"], again.upper["job_in.0.weight"])
    back = learner.unpacked(learner.packed(after), "file")
    np.testing.assert_array_equal(back.upper["job_in.0.weight"], after.upper["job_in.0.weight"])


def test_a_file_of_another_kind_or_damaged_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "world.npz"
    path.write_bytes(packed(SiteAgents(small(tmp_path)), small(tmp_path)))
    learner, agents = AgentsLearner.read(path)
    assert learner.settings.network.hidden == 8
    broken = dict(agents.upper) | {"job_out.bias": np.array([np.nan], np.float32)}
    with pytest.raises(InputError, match="policy for the jobs of a site"):
        learner.unpacked(learner.packed(Agents(broken, agents.lower)), "file")
    path.write_bytes(b"PK nothing")
    with pytest.raises(InputError, match="broken"):
        AgentsLearner.read(path)


@dataclass(frozen=True, eq=False)
class Broken(Scripted):
    """Breaks where it serves, from ``lazy_s`` on."""

    def answer(self, moment: Moment, eyes: Any, rng: object = None) -> tuple[int, int, int] | None:
        if moment.now_s > self.lazy_s and len(moment.workload) == self.only:
            raise FloatingPointError("no luck")
        return script().answer(moment, eyes)


def test_a_policy_that_breaks_is_out_at_once_and_the_rule_goes_on(tmp_path: Path) -> None:
    played = scene(jobs=80)
    breaks_s = float(played.workload.arrival_s[30])
    found = served(played, tmp_path, *told(Broken({}, {}, lazy_s=breaks_s, only=80)))
    assert found.ran.all()
    with log_of(tmp_path, played) as log:
        assert any("version 1 could not decide: FloatingPointError: no luck" in why for _, _, why in log.served)


class Raising(Scripted):
    """Cannot answer anything."""

    def answer(self, moment: Moment, eyes: Any, rng: object = None) -> tuple[int, int, int] | None:
        raise FloatingPointError("no luck")


def test_a_policy_that_breaks_in_a_replay_does_not_serve(tmp_path: Path) -> None:
    played = scene(jobs=60)
    served(played, tmp_path, *told(Raising({}, {})))
    with log_of(tmp_path, played) as log:
        assert {version for _, version, _ in log.served[1:]} == {GUARD}
        assert len(log.served) == 2, "and no review fails"


def test_history_says_nothing_that_was_not_logged(lived: tuple[WorldScene, Log, SiteHistory]) -> None:
    """Of a job that is still there only what it was told, and has had, is known."""
    played, log, _ = lived
    known = log.jobs()
    cut = tuple(replace(each, finish_s=None, ran_s=None) if at >= 20 else each for at, each in enumerate(known))
    found = ground(played).history(cut, {}, now_s=1e6)
    assert isinstance(found, SiteHistory)
    told_s = played.workload.told_s
    np.testing.assert_allclose(found.workload.told_s, told_s)
    assert (found.workload.duration_s[20:] <= 2.0 * told_s[20:] + 1e-9).all()
    np.testing.assert_allclose(found.workload.duration_s[:20], played.workload.duration_s[:20])
