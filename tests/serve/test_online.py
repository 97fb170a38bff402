"""Agents that learn while they serve a site that lives: what they are told, who decides, and how they come back."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sql
from tests.jobs.joint.hi_ppo.test_online import script, told

from hippo.errors import InputError
from hippo.jobs.joint.hi_ppo.online import OnlineScheduler, SiteGround, SitePolicy, live_agents
from hippo.jobs.joint.hi_ppo.policy import HiPpoScheduler
from hippo.jobs.online.guard import Margins
from hippo.jobs.online.loop import LoopSettings
from hippo.jobs.placement.offers import OfferTable
from hippo.jobs.settings import ReplayRules
from hippo.jobs.site import JobSite
from hippo.problem.load import load_cluster
from hippo.serve import tables as t
from hippo.serve.jobs import let_go
from hippo.serve.records import DONE, RUNNING, JobOrder, LinkPoint, Receipt, SeenJob
from hippo.serve.server import Service, ServiceTerms

from .servers import until
from .worlds import KIND, Clock, Served, offers, url

RULES = ReplayRules(stops=False)
MARGINS = Margins(judged_jobs=6, watched_jobs=6, history_jobs=100)
LAZY = HiPpoScheduler("lazy", agents=script(0.0))


def online(folder: Path, guard: Any, *scripts: Any) -> OnlineScheduler:
    """Agents of a test on four hubs, reviewed every five jobs, at once."""
    site = JobSite.of(load_cluster("four-hubs"))
    settings = LoopSettings(folder, 5, MARGINS, background="none", durable="normal", by_replay=True)
    ground = SiteGround(site, OfferTable.none(), RULES)
    return OnlineScheduler(ground, *told(*scripts), guard, settings, name="hi_ppo", lives=True)


def begun(tmp_path: Path, clock: Clock, scheduler: OnlineScheduler, *actuators: Any, **terms: Any) -> Served:
    served = Served.of(url(tmp_path), clock, *actuators, scheduler=scheduler, rules=RULES, **terms)
    scheduler.tell = served.loop.tell
    return served


def day(served: Served, jobs: int, seed: int) -> None:
    """Jobs come, links move, time passes."""
    rng = np.random.default_rng(seed)
    for number in range(jobs):
        served.submit(tokens=float(rng.integers(4, 40)) * 1e7, least=int(rng.choice([8, 16])))
        if number % 5 == 4:
            served.submit(
                **{"model": "", "batch": 0, "seq": 0, "tokens": 0.0, "least": 0, "most": 0},
                **{"devices": 8, "duration_s": float(rng.integers(60, 900))},
            )
        served.turn(float(rng.integers(1, 400)))
        if number % 3 == 2:
            rate = 1.25e9 * float(rng.uniform(0.1, 1.0))
            served.loop.points([LinkPoint(served.clock(), "wuhu", "zhongwei", rate)])
            served.turn(1.0)


def test_what_is_logged_is_what_came_about(tmp_path: Path):
    scheduler = online(tmp_path, LAZY, script(0.0))
    served = begun(tmp_path, Clock(), scheduler)
    day(served, 20, 3)
    for _ in range(40):
        served.turn(4000.0)
    jobs = served.jobs()
    assert {each.state for each in jobs.values()} == {"done"}
    scheduler.finish()
    known = {each.job.name: each for each in scheduler.loop.log.jobs()}
    assert known.keys() == jobs.keys()
    pace = dict(zip(offers().kinds, offers().tokens_per_s.tolist(), strict=True))
    for name, job in jobs.items():
        found = known[name]
        assert found.finish_s == pytest.approx((job.ended_s or 0.0) - served.loop.site.epoch_s, abs=1e-3)
        lasts_s = job.spec["tokens"] / pace[KIND] if job.spec["tokens"] else job.spec["duration_s"]
        assert found.ran_s == pytest.approx(lasts_s, rel=1e-6), name
        assert "run at" not in name
    served.close()
    scheduler.close()


def test_who_replays_better_decides_is_told_and_comes_back_after_a_restart(tmp_path: Path):
    clock, first = Clock(), online(tmp_path, LAZY, script(0.0), script())
    served = begun(tmp_path, clock, first)
    day(served, 30, 5)
    named = [each.policy for each in served.decisions()]
    assert named[0] == "lazy"
    assert named[-1] == "hi_ppo 2"
    told_ = [each for each in events(served) if "decides: replayed better" in each]
    assert len(told_) == 1
    assert "version 2 of hi_ppo decides" in told_[0]
    counts = len(first.loop.log.jobs()), first.loop.log.decisions
    served.close()
    first.close()
    second = online(tmp_path, LAZY, script(0.0), script())
    again = begun(tmp_path, clock, second)
    again.submit(tokens=1e7)
    again.turn(1.0)
    assert again.decisions()[-1].policy == "hi_ppo 2"
    assert len(second.loop.log.jobs()) == counts[0] + 1
    assert second.loop.log.decisions > counts[1]
    assert all(each.job.name.startswith("j") for each in second.loop.log.jobs())
    again.close()
    second.close()


class Slow:
    """Runs jobs at half the pace that was planned for them."""

    name, tells = "slow", True

    def __init__(self, clock: Clock) -> None:
        self.clock, self.runs = clock, dict[str, tuple[str, float, float]]()

    def lacks(self, spec: Any) -> str:
        return ""

    def carry_out(self, order: JobOrder) -> Receipt:
        lasts_s = 2.0 * order.spec["tokens"] / float(offers().tokens_per_s[0])
        self.runs[order.job] = order.key, self.clock(), lasts_s
        return Receipt(True)

    def seen(self) -> Sequence[SeenJob]:
        found = []
        for job, (key, begun_s, lasts_s) in list(self.runs.items()):
            share = min(1.0, (self.clock() - begun_s) / lasts_s)
            found.append(SeenJob(job, key, DONE if share == 1.0 else RUNNING, share))
        return found

    def close(self) -> None:
        pass


def test_work_is_what_jobs_were_measured_to_take(tmp_path: Path):
    clock = Clock()
    scheduler = online(tmp_path, LAZY, script(0.0))
    slow = Slow(clock)
    served = begun(tmp_path, clock, scheduler, slow, actuator="slow")
    name = served.submit(tokens=1e8)  # a thousand seconds, as planned
    worker = served.loop.workers["slow"]
    served.turn()
    until(lambda: name in slow.runs)  # its order is carried out beside the turns
    while served.jobs()[name].state != "done":
        clock.now_s += 10.0
        worker._look()
        served.turn()
    scheduler.finish()
    (known,) = scheduler.loop.log.jobs()
    assert known.ran_s == pytest.approx(2000.0, abs=25.0)
    history = scheduler.loop.read((known,), {}, now_s=clock() - served.loop.site.epoch_s)
    assert history.workload.duration_s[0] == pytest.approx(known.ran_s)
    assert history.finishes(SitePolicy(LAZY))[0] == pytest.approx(known.finish_s, abs=40.0)
    assert not len(replace(scheduler._ground, offers=OfferTable.none()).history((known,), {}, now_s=1.0).workload)
    served.close()
    scheduler.close()


def test_who_left_a_world_in_which_nobody_was_asked_is_told(tmp_path: Path):
    """A job comes, another is cancelled and links move in one turn, which opens the world twice; then a rule decides
    for a while, as after an answer that was late."""
    clock = Clock()
    scheduler = online(tmp_path, LAZY, script(0.0))
    served = begun(tmp_path, clock, scheduler)
    first, second = served.submit(tokens=1e10), served.submit(tokens=1e8)
    served.turn(1.0)
    served.submit(tokens=1e10)
    served.store.write(let_go(first, "me", clock())).result()
    served.loop.cancel(first)
    served.loop.points([LinkPoint(clock(), "wuhu", "zhongwei", 1.25e8)])
    served.turn(1.0)
    served.turn(1.0)
    assert gone(scheduler) == {first}
    served.loop._held.rests = 2
    served.submit(tokens=1e10)
    served.turn(1.0)
    served.turn(3000.0)
    assert served.jobs()[second].state == "done"
    for _ in range(3):
        served.submit(tokens=1e10)
        served.turn(1.0)
    assert not served.loop._held.rests
    assert gone(scheduler) == {first, second}
    known = {each.job.name: each for each in scheduler.loop.log.jobs()}
    assert known.keys() == served.jobs().keys()
    assert known[second].ran_s is not None  # it ended while the rule decided, and is told as it ended
    served.close()
    scheduler.close()


def test_a_disk_that_is_full_for_a_while_is_no_end_of_the_agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    clock = Clock()
    scheduler = online(tmp_path, LAZY, script(0.0))
    served = begun(tmp_path, clock, scheduler)
    first = served.submit(tokens=1e8)
    served.turn(1.0)
    log = scheduler.loop.log
    with monkeypatch.context() as full:

        def happened(**told: Any) -> None:
            raise sqlite3.OperationalError("database or disk is full")

        full.setattr(log, "happened", happened)
        second = served.submit(tokens=1e8)
        served.turn(1.0)
    assert "srpt decides for 20 moments" in served.loop.degraded
    while served.loop.degraded:
        served.submit(tokens=1e7)
        served.turn(2000.0)
    served.submit(tokens=1e7)
    served.turn(1.0)
    assert served.decisions()[-1].policy != "srpt"
    known = {each.job.name: each for each in log.jobs()}
    assert known.keys() == served.jobs().keys()
    assert known[first].finish_s is not None
    assert known[second].ran_s is not None
    served.close()
    scheduler.close()


def test_a_job_that_ended_while_nobody_served_took_what_was_told(tmp_path: Path):
    """The first that is heard after the start is its end."""
    clock, first = Clock(), online(tmp_path, LAZY, script(0.0))
    served = begun(tmp_path, clock, first)
    served.submit(tokens=1e8)
    served.submit(tokens=1e10)
    served.turn(1.0)
    served.close()
    first.close()
    second = online(tmp_path, LAZY, script(0.0))
    again = begun(tmp_path, clock, second)
    again.turn(3000.0)
    ended = [(each.job.name, each.ran_s) for each in second.loop.log.jobs() if each.ran_s is not None]
    assert ended == [("j1", pytest.approx(1000.0))]
    again.close()
    second.close()


def gone(scheduler: OnlineScheduler) -> set[str]:
    return {each.job.name for each in scheduler.loop.log.jobs() if each.finish_s is not None}


def test_a_folder_of_another_service_store_or_site_is_refused_at_the_start(tmp_path: Path):
    site, folder = JobSite.of(load_cluster("four-hubs")), tmp_path / "agents"
    first = live_agents(site, OfferTable.none(), RULES, folder, epoch_s=1.0)
    store = f"sqlite:///{tmp_path / 'store.db'}"
    terms = ServiceTerms(store=store, online=str(folder), mode="act", keeps_running=True, port=0)
    for _ in range(2):  # port, store and folder were given back
        with pytest.raises(InputError, match="another loop writes this log"):
            Service.of(load_cluster("four-hubs"), terms)
    first.close()
    with pytest.raises(InputError, match="made for another store, begun at 1.000 instead of"):
        Service.of(load_cluster("four-hubs"), terms)
    smaller = replace(site, pools=tuple(replace(each, nodes=2) for each in site.pools))
    with pytest.raises(InputError, match="made for another site, zhangjiakou 8, wuhu 8"):
        live_agents(smaller, OfferTable.none(), RULES, folder, epoch_s=1.0)
    live_agents(site, OfferTable.none(), RULES, folder, epoch_s=1.0).close()


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        ({"mode": "advise", "keeps_running": True}, "--mode act"),
        ({"mode": "act"}, "--keep-running"),
        ({"mode": "act", "keeps_running": True, "policy": "srpt"}, "does not learn"),
    ],
)
def test_terms_under_which_nothing_is_learned_are_refused(tmp_path: Path, terms: dict[str, Any], said: str):
    with pytest.raises(InputError, match=said):
        ServiceTerms(online=str(tmp_path), **terms)


def events(served: Served) -> list[str]:
    rows = served.store.read(lambda at: at.execute(sql.select(t.EVENTS.c.told).order_by("number")).scalars().all())
    return [str(row) for row in rows]
