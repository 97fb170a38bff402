"""What goes wrong around a service: a full disk, clocks that jump, actuators that lie or hang, another owner, a site
that has changed; and ten thousand jobs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sql

from hippo.errors import InputError
from hippo.jobs.engine import world as engine
from hippo.jobs.job import TrainingKind
from hippo.jobs.placement.offers import OfferTable
from hippo.problem.load import load_cluster, load_problem
from hippo.serve import loop as loop_module
from hippo.serve import server, telemetry
from hippo.serve import tables as t
from hippo.serve.actuators.paper import Paper
from hippo.serve.jobs import NotThereError, answer, let_go, take_in
from hippo.serve.loop import QUEUE
from hippo.serve.records import DONE, PROPOSED, RUNNING, JobOrder, LinkPoint, Receipt, SeenJob
from hippo.serve.server import ServiceClock
from hippo.serve.site import JobChange, ServedSite
from hippo.serve.store import OWNER, Store, StoreError, keep, plan_kept, set_jobs
from hippo.serve.telemetry import checked, rolled
from hippo.serve.watching import metrics_text

from .servers import until as beside
from .worlds import JOB, KIND, Clock, Served, offers, until, url

GANG = {"model": "", "batch": 0, "seq": 0, "tokens": 0.0, "least": 0, "most": 0, "duration_s": 600.0}


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    found = Served.of(url(tmp_path), Clock())
    yield found
    found.close()


# ------------------------------------------------------------------------------------------------------------ the store
def test_a_disk_that_is_full_holds_everything_and_nothing_is_lost(tmp_path: Path):
    """SQLite's own limit on its pages stands for the disk's: the same error, in the same places."""
    store = Store(f"sqlite:///{tmp_path / 'store.db'}")

    def limit(pages: int) -> None:
        store.write(lambda at: at.exec_driver_sql(f"PRAGMA max_page_count={pages}").all()).result()

    store.engine.pool.dispose()
    limit(1)  # as many as it has
    taken = list[int]()

    def fill() -> None:
        for number in range(10_000):
            taken.append(store.write(take_in({"devices": 8}, f"k{number}", "me", 0.0)).result()[0].number)

    with pytest.raises(StoreError, match="full"):
        fill()
    for row in store.read(lambda at: at.execute(sql.select(t.JOBS.c.number).order_by("number")).scalars().all()):
        assert row == taken.pop(0)
    assert not taken  # what was acknowledged is there, what was refused is not
    limit(100_000)
    assert store.write(take_in({"devices": 8}, "later", "me", 0.0)).result()[1]
    store.close()


def test_who_has_been_succeeded_writes_no_more(served: Served):
    """As where PostgreSQL lost the session that held the lock, and another service began."""
    name = served.submit()
    with served.store.engine.begin() as at:
        keep(at, OWNER, b"somebody else", 0.0)
    served.turn()
    assert "another service owns" in served.loop.state.unwritten
    assert served.jobs()[name].state == "queued"
    assert not served.decisions()
    with pytest.raises(StoreError, match="another service owns"):
        served.submit()


def test_a_slow_store_delays_and_orders_nothing_before_it_has_written(tmp_path: Path):
    told: list[float] = []

    class Times(Paper):
        def carry_out(self, order: JobOrder) -> Receipt:
            told.append(time.monotonic())
            return super().carry_out(order)

    served = Served.of(url(tmp_path), Clock(), Times())
    write, written = served.store._write_together, list[float]()

    def slow(asked: list[Any]) -> None:
        time.sleep(0.3)
        write(asked)
        written.append(time.monotonic())

    served.submit()
    served.store._write_together = slow  # type: ignore[method-assign]
    served.turn()
    until(served, lambda: told)
    assert told[0] >= written[0]
    served.close()


# --------------------------------------------------------------------------------------------------------------- clocks
def test_the_clock_neither_goes_back_nor_jumps(monkeypatch: pytest.MonkeyPatch):
    clock = ServiceClock(1000.0)
    before = clock()
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert before <= clock() < before + 1e6
    monkeypatch.setattr(time, "time", lambda: 1e10)
    assert clock() < before + 1e6


def test_who_measures_goes_by_the_machines_clock(tmp_path: Path):
    """The machine's was set back by a day, the service's was not."""
    served = Served.of(url(tmp_path), Clock())
    served.loop._wall = lambda: served.clock() - 86_400.0
    site, day_ago = served.loop.site.live.site, served.clock() - 86_400.0
    point = LinkPoint(served.loop.of_wall_s(day_ago), "wuhu", "guian", 1e6, None, "me")
    assert checked(site, point, "links.0", served.clock()).time_s == served.clock()
    served.close()


# ------------------------------------------------------------------------------------------------------------- the size
@pytest.mark.parametrize("count", [300, pytest.param(1000, marks=pytest.mark.slow)])
def test_many_domains_are_served_and_their_probes_heard(tmp_path: Path, count: int):
    """More than a plan is sought over; four links each, all told at once."""
    names = [f"d{at}" for at in range(count)]
    ends = [(names[at], names[(at + by) % count]) for at in range(count) for by in (1, 2, -1, -2)]
    links = [{"from": one, "to": other, "bandwidth_gbps": 10, "latency_ms": 10} for one, other in ends]
    domains = [{"name": name, "nodes": 1, "gpus_per_node": 8} for name in names]
    cluster = load_cluster({"gpu": "A100-SXM-80GB", "domains": domains, "links": links})
    with pytest.raises(InputError, match="over which no job is planned"):
        load_problem(model="gpt3-2.7b", cluster=cluster)
    served = Served.of(url(tmp_path), Clock(), cluster=cluster)
    jobs = [served.submit(), served.submit(**{**GANG, "devices": 8})]
    site = served.loop.site.live.site
    points = [
        checked(site, LinkPoint(served.clock(), *each, 1e9, 0.02, "me"), "links", served.clock()) for each in ends
    ]
    served.store.write(telemetry.written(points)).result()
    served.loop.points(points)
    served.turn(1.0)
    assert [served.jobs()[name].state for name in jobs] == ["running", "running"]
    carried, late = served.loop.carried()
    there = np.array(site.bandwidth_bytes_per_s) > 0
    np.fill_diagonal(there, False)
    assert there.sum() == len(ends)
    assert (carried[there] == 1e9).all()
    assert (late[there] == 0.02).all()
    served.close()


# ------------------------------------------------------------------------------------------------------------ actuators
class Told(Paper):
    """Says what it is told to say."""

    tells = True

    def __init__(self) -> None:
        self.says: Sequence[Any] = ()
        self.orders: list[JobOrder] = []

    def carry_out(self, order: JobOrder) -> Receipt:
        self.orders.append(order)
        return Receipt(True, "done")

    def seen(self) -> Sequence[SeenJob]:
        return self.says


@pytest.mark.parametrize(
    "lie",
    [
        SeenJob("j1", "", "flying"),
        SeenJob("j1", "", RUNNING, float("nan")),
        SeenJob("j1", "", RUNNING, 7.0),
        SeenJob("j1", "", RUNNING, 0.5, float("inf")),
        SeenJob("j1", "", RUNNING, 0.5, -1.0),
        "nothing of the kind",
    ],
)
def test_an_actuator_that_says_nonsense_is_not_believed(tmp_path: Path, lie: Any):
    liar = Told()
    served = Served.of(url(tmp_path), Clock(), liar)
    name = served.submit()
    served.turn()
    until(served, lambda: liar.orders)
    liar.says = [lie]
    until(served, lambda: served.loop.workers["paper"].fault)
    served.turn(100.0)
    assert served.jobs()[name].state == "running"  # nobody knows: it goes on
    liar.says = [SeenJob(name, liar.orders[0].key, DONE, 1.0)]
    until(served, lambda: served.jobs()[name].state == "done")
    assert len(liar.orders) == 1
    served.close()


def test_an_actuator_that_denies_what_it_was_told_is_told_anew_and_given_up_at_last(tmp_path: Path):
    liar = Told()
    served = Served.of(url(tmp_path), Clock(), liar, gone_after_s=0.0)
    name = served.submit()
    until(served, lambda: served.jobs()[name].state == "failed")
    assert "has it no more" in served.jobs()[name].why
    assert len({each.key for each in liar.orders}) == 3
    served.close()


def test_an_order_that_breaks_its_actuator_is_told_while_it_does(tmp_path: Path):
    class Breaks(Told):
        broken = True

        def carry_out(self, order: JobOrder) -> Receipt:
            if self.broken:
                raise KeyError("batch")
            return super().carry_out(order)

    breaks = Breaks()
    served = Served.of(url(tmp_path), Clock(), breaks)
    name, worker = served.submit(), served.loop.workers["paper"]
    served.turn()
    until(served, lambda: worker.trouble)
    looked_s = worker.seen_s
    until(served, lambda: worker.seen_s > looked_s)  # which it answers
    assert worker.trouble == f"begin {name}: KeyError: 'batch'"
    assert 'hippo_actuator_up{actuator="paper"} 0.0' in metrics_text(served.store, served.loop)
    breaks.broken = False
    until(served, lambda: served.decisions()[0].state == "carried out")
    assert not worker.trouble
    served.close()


def test_an_order_that_hangs_holds_up_no_other_job(tmp_path: Path):
    hangs, done = Event(), list[str]()

    class Hangs(Paper):
        def carry_out(self, order: JobOrder) -> Receipt:
            if order.job == "j1":
                hangs.wait(600.0)
            done.append(order.job)
            return super().carry_out(order)

    served = Served.of(url(tmp_path), Clock(), Hangs())
    first, second = (served.submit(**{**GANG, "devices": 8}) for _ in range(2))
    served.turn()
    until(served, lambda: second in done)
    assert first not in done
    hangs.set()
    until(served, lambda: first in done)
    served.close()


# ------------------------------------------------------------------------------------------------------------- the site
def test_a_site_that_has_lost_a_domain_begins_its_jobs_elsewhere(tmp_path: Path):
    served = Served.of(url(tmp_path), Clock())
    names = [served.submit(**{**GANG, "devices": 8}) for _ in range(3)]
    served.turn()
    assert {served.jobs()[name].state for name in names} == {"running"}
    lost = (served.jobs()[names[0]].place or {})["domains"][0]
    served.close()
    whole = load_cluster("four-hubs")
    again = Served.of(url(tmp_path), served.clock, without=lost)
    again.turn(1.0)
    for name in names:
        job = again.jobs()[name]
        assert job.state == "running"
        assert lost not in (job.place or {})["domains"]
    assert len(whole.domains) == 1 + len(again.loop.site.live.site.domains)
    again.close()


@pytest.mark.parametrize("mode", ["act", "advise"])
def test_who_runs_in_domains_that_are_left_runs_on_without_an_order(tmp_path: Path, mode: str):
    """Six fill three domains of four; one domain is gone. Their actuator is asked to begin none of the four again."""
    stubborn = Stubborn(0)
    served = Served.of(url(tmp_path), Clock(), stubborn, actuator="stubborn")
    names = [served.submit(**{**GANG, "devices": 32, "duration_s": 1e6}) for _ in range(5)] + [
        served.submit(tokens=1e12)
    ]
    until(served, lambda: len(stubborn.jobs) == 6 and not served.loop._open)
    places = {name: job.place or {} for name, job in served.jobs().items()}
    lost = places[names[0]]["domains"][0]
    stay = {name for name, place in places.items() if lost not in place["domains"]}
    assert len(stay) == 4
    keys = {name: stubborn.jobs[name].key for name in stay}
    served.close()
    again = Served.of(url(tmp_path), served.clock, stubborn, actuator="stubborn", mode=mode, without=lost)
    for _ in range(20):
        again.turn(1.0)
        time.sleep(0.02)
    assert {name: stubborn.jobs[name].key for name in stay} == keys
    for name in stay:
        assert again.jobs()[name].state == "running"
        assert again.jobs()[name].place == places[name]
    rest = [each for each in again.decisions() if each.job not in stay][2:]
    assert {each.job for each in rest} == set(names) - stay
    assert {lost in (each.after or {"domains": ()})["domains"] for each in rest} == {False}
    again.close()


@pytest.mark.parametrize("measured", [False, True])
def test_a_site_whose_domains_have_other_names_is_another_site(tmp_path: Path, measured: bool):
    """Of equal shape: the packed queue would fit, and lead to places that are not there."""
    served = Served.of(url(tmp_path), Clock())
    name = served.submit(**{**GANG, "devices": 8})
    if measured:
        served.loop.points([LinkPoint(served.clock(), "wuhu", "guian", 1e6, 0.02, "me")])
    served.turn()
    place = served.jobs()[name].place or {}
    other = place["domains"][0]
    served.close()
    again = Served.of(url(tmp_path), served.clock, renamed=(other, "elsewhere"))
    again.turn(1.0)
    assert again.jobs()[name].state == "running"
    assert other not in (again.jobs()[name].place or {})["domains"]
    told = again.store.read(lambda at: at.execute(sql.select(t.EVENTS.c.told)).scalars().all())
    assert any("packed for another site" in each for each in told)
    again.close()


def test_a_domain_that_is_gone_after_links_were_measured(tmp_path: Path):
    served = Served.of(url(tmp_path), Clock())
    name = served.submit(**{**GANG, "devices": 8})
    served.loop.points([LinkPoint(served.clock(), "wuhu", "guian", 1e6, 0.02, "me")])
    served.turn()
    lost = (served.jobs()[name].place or {})["domains"][0]
    served.close()
    again = Served.of(url(tmp_path), served.clock, without=lost)
    again.turn(1.0)
    assert again.jobs()[name].state == "running"
    assert lost not in (again.jobs()[name].place or {})["domains"]
    again.close()


def test_a_yes_before_a_change_of_mode_is_carried_out_and_what_was_proposed_is_not(tmp_path: Path):
    served = Served.of(url(tmp_path), Clock(), mode="advise")
    names = [served.submit(**{**GANG, "devices": 8}) for _ in range(2)]
    served.turn()
    first = next(each for each in served.decisions() if each.job == names[0])
    served.store.write(answer(first.name, "boss", served.clock(), yes=True)).result()
    served.close()
    again = Served.of(url(tmp_path), served.clock, mode="act")
    again.turn(1.0)
    states = {each.number: each.state for each in again.decisions()}
    assert states[first.number] in ("ordered", "carried out")
    assert not {"approved", "proposed"} & set(states.values())
    assert {again.jobs()[name].state for name in names} == {"running"}  # looked at, though nothing was due
    again.close()


def test_a_restart_does_not_forget_that_somebody_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    served = Served.of(url(tmp_path), Clock(), stale_s=60.0)
    served.submit()
    served.loop.points([LinkPoint(served.clock(), "wuhu", "guian", 1e8, 0.02, "me")])
    served.turn()
    served.close()
    again = Served.of(url(tmp_path), served.clock, stale_s=60.0)
    again.turn(1.0)
    assert not again.loop.state.holds
    assert again.loop._heard_s is not None
    again.loop._heard_s -= 61.0
    again.turn(1.0)
    assert "no telemetry" in again.loop.state.holds
    again.close()


def test_a_measurement_of_long_ago_says_nothing_of_now(served: Served):
    served.loop.points([LinkPoint(0.0, "wuhu", "guian", 1e6, None, "me")])
    assert not served.loop.measured.last_s
    assert served.loop._heard_s is None
    assert served.loop.state.points == 1


def test_jobs_of_an_actuator_that_is_not_served_now_are_left_as_they_are(tmp_path: Path):
    """Served again with paper alone, a real run is no run on paper."""

    class Real(Told):
        name = "real"

    real = Real()
    served = Served.of(url(tmp_path), Clock(), real, actuator="real")
    taken = served.store.write(
        take_in({"devices": 8, "duration_s": 60.0}, "k", "me", served.clock(), {"actuator": "real"})
    ).result()
    served.loop.come(*taken)
    served.turn()
    until(served, lambda: real.orders)
    served.close()
    again = Served.of(url(tmp_path), served.clock)
    again.turn(10_000.0)
    assert again.jobs()["j1"].state == "running"
    assert "jobs of real" in again.loop.state.notice
    again.store.write(let_go("j1", "me", again.clock())).result()
    again.loop.cancel("j1")
    again.turn(1.0)
    again.close()
    back = Served.of(url(tmp_path), again.clock, real, actuator="real")
    until(back, lambda: real.orders[-1].act == "stop")
    back.close()


def test_a_policy_that_breaks_is_held_while_it_only_proposes(tmp_path: Path):
    served = Served.of(url(tmp_path), Clock(), mode="observe")

    class Breaks:
        name = "breaks"

        def decide(self, moment: Any) -> None:
            raise ZeroDivisionError

    served.loop._held.scheduler = Breaks()
    served.submit()
    served.turn()
    (decision,) = served.decisions()
    assert (decision.state, decision.policy) == ("proposed", "srpt")
    assert served.loop._held.broken
    served.close()


class Hangs:
    """Does not answer before it is let go, and then begins all who wait."""

    name = "hangs"

    def __init__(self) -> None:
        self.asked, self.watched, self.goes_on, self.answered = 0, 0, Event(), Event()

    def decide(self, moment: Any) -> None:
        self.asked += 1
        self.goes_on.wait()
        for job in moment.waiting.tolist():
            moment.start(job)
        self.answered.set()

    def watch(self, moment: Any) -> None:
        self.watched += 1


@pytest.mark.parametrize("mode", ["act", "observe"])
def test_a_policy_that_hangs_does_not_stop_the_loop(tmp_path: Path, mode: str):
    hangs = Hangs()
    scheduler: Any = hangs
    served = Served.of(url(tmp_path), Clock(), scheduler=scheduler, mode=mode)
    served.loop._held.limit_s = 0.0
    names = [served.submit(**{**GANG, "devices": 32}) for _ in range(9)]  # one more than there is room for
    for _ in range(3):
        served.turn(1.0)
    assert hangs.asked == 1  # and not again before it has answered
    assert {each.policy for each in served.decisions()} == {"srpt"}
    assert [each.job for each in served.decisions()] == names[:8]
    assert served.loop.degraded == "hangs has not answered within 0 s and hangs; srpt decides until it answers"
    assert "hippo_policy_up 0.0" in metrics_text(served.store, served.loop)
    stands = served.loop.site.standing()
    hangs.goes_on.set()
    assert hangs.answered.wait(60.0)
    assert served.loop.site.standing() == stands  # its answer is dropped
    assert "hangs was late or could not write" in served.loop.degraded
    served.loop._held.limit_s = None
    rest = served.loop._held.rests
    for _ in range(rest):
        assert served.loop.degraded
        served.loop._looks = mode == "act"
        served.turn(1.0)
    assert (hangs.asked, hangs.watched) == (1, rest)  # it hears of what the rule decides meanwhile
    assert not served.loop.degraded
    served.loop._looks = mode == "act"
    served.turn(1.0)
    assert hangs.asked == 2
    assert "hippo_policy_up 1.0" in metrics_text(served.store, served.loop)
    served.close()


def test_a_cluster_file_that_changes_is_told(tmp_path: Path):
    path = tmp_path / "site.yaml"
    path.write_text("one")
    changed = server._changed(str(path))
    assert not changed()
    path.write_text("other")
    assert "start the service again" in changed()
    path.unlink()
    assert changed()
    assert not server._changed("")()


def test_a_job_that_breaks_the_queue_is_refused_alone(served: Served, monkeypatch: pytest.MonkeyPatch):
    whole = served.loop.site.submit

    def submit(jobs: Any) -> Any:
        told = list(jobs)
        if any(each.name == "j2" for each in told):
            raise ZeroDivisionError("of the queue")
        return whole(told)

    monkeypatch.setattr(served.loop.site, "submit", submit)
    names = [served.submit(**{**GANG, "devices": 8}) for _ in range(3)]
    served.turn()
    assert [served.jobs()[name].state for name in names] == ["running", "refused", "running"]
    assert "of the queue" in served.jobs()[names[1]].why


def test_a_queue_that_another_version_packed_is_begun_anew(tmp_path: Path):
    served = Served.of(url(tmp_path), Clock())
    names = [served.submit(), served.submit(**{**GANG, "devices": 8})]
    served.turn()
    served.store.write(lambda at: keep(at, QUEUE, b"PK: of long ago", 0.0)).result()
    served.close()
    again = Served.of(url(tmp_path), served.clock)
    again.turn(1.0)
    assert [again.jobs()[name].state for name in names] == ["running", "running"]
    told = again.store.read(lambda at: at.execute(sql.select(t.EVENTS.c.told)).scalars().all())
    assert any("begun anew" in each for each in told)
    again.close()


@pytest.mark.slow
def test_ten_thousand_jobs_queued(served: Served):
    spec = {"devices": 64, "duration_s": 6e3}
    for number in range(10_000):
        served.loop.come(*served.store.write(take_in(spec, f"k{number}", "me", 0.0)).result())
    served.turn()
    states = [each.state for each in served.jobs().values()]
    assert states.count("running") + states.count("waiting") == 10_000
    assert states.count("waiting") > 9_900
    name = served.submit(**{**GANG, "devices": 8})
    served.turn(1.0)
    assert served.jobs()[name].state in ("running", "waiting")


# ------------------------------------------------------------------------------------------------------- what is left
class Stubborn:
    """Refuses the first stops that it is told of."""

    name, tells = "stubborn", True

    def __init__(self, refusals: int) -> None:
        self.left, self.acts = refusals, list[str]()
        self.jobs: dict[str, SeenJob] = {}

    def lacks(self, spec: Any) -> str:
        return ""

    def carry_out(self, order: JobOrder) -> Receipt:
        self.acts.append(order.act)
        if order.act != "stop":
            self.jobs[order.job] = SeenJob(order.job, order.key, RUNNING, 0.0)
        elif self.left:
            self.left -= 1
            return Receipt(False, "a node does not answer")
        else:
            self.jobs.pop(order.job, None)
        return Receipt(True, "as told")

    def seen(self) -> Sequence[SeenJob]:
        return tuple(self.jobs.values())

    def close(self) -> None:
        pass


def test_a_stop_that_was_refused_is_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(loop_module, "STOP_AGAIN_S", 0.05)
    stubborn = Stubborn(2)
    served = Served.of(url(tmp_path), Clock(), stubborn, actuator="stubborn")
    name = served.submit()
    until(served, lambda: stubborn.jobs)
    served.store.write(let_go(name, "me", served.clock())).result()
    served.loop.cancel(name)
    until(served, lambda: not stubborn.jobs)
    assert stubborn.acts == ["begin", "stop", "stop", "stop"]
    assert served.jobs()[name].state == "cancelled"
    assert [each.why["cause"] for each in served.decisions()][1:] == [
        "cancelled",
        *2 * ["it runs still, and should not"],
    ]
    assert not served.loop._keys
    served.close()


def test_a_run_of_another_store_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(loop_module, "STOP_AGAIN_S", 0.0)
    stubborn = Stubborn(0)
    stubborn.jobs["j7"] = SeenJob("j7", "o-1-j7-another", RUNNING, 0.0)
    served = Served.of(url(tmp_path), Clock(), stubborn, actuator="stubborn")
    name = served.submit()
    until(served, lambda: name in stubborn.jobs)
    for _ in range(20):
        served.turn(1.0)
    assert stubborn.acts == ["begin"]
    served.close()


# ------------------------------------------------------------------------------------------------------ what is asked
def test_failures_of_long_ago_are_forgotten(served: Served):
    name = served.submit(tokens=1e12)
    served.turn()
    for _ in range(5):
        served.loop._lost(name, "a node went", served.clock())
        served.turn(1.0)
        served.clock.now_s += loop_module.FADED_S
        assert served.jobs()[name].state == "running"
    for _ in range(loop_module.MOST_FAILURES):
        served.loop._lost(name, "a node went", served.clock())
    served.turn(1.0)
    assert served.jobs()[name].state == "failed"


def test_what_is_very_old_is_forgotten_and_who_runs_keeps_its_orders(served: Served):
    names = [served.submit(tokens=1e12), served.submit()]
    served.turn()
    until(served, lambda: {each.state for each in served.decisions()} == {"carried out"})
    served.turn(2e4)
    assert [served.jobs()[name].state for name in names] == ["running", "done"]
    count = sql.select(sql.func.count()).select_from(t.EVENTS)
    before = served.store.read(lambda at: at.execute(count).scalar())
    served.store.write(rolled(served.clock() + 367 * 86_400.0)).result()
    asked = sql.select(t.ORDERS.c.job)
    assert served.store.read(lambda at: at.execute(asked).scalars().all()) == names[:1]
    assert [each.job for each in served.decisions()] == names[:1]
    assert before
    assert served.store.read(lambda at: at.execute(count).scalar()) == 0


def test_plans_that_nobody_goes_by_are_forgotten_after_a_year(served: Served):
    """One that a job went by until lately stays for another year; one that somebody may still approve stays."""
    name, year_s, now_s = served.submit(tokens=1e12), 367 * 86_400.0, served.clock()
    served.turn()
    ids = {}
    for which in ("left", "gone by again", "runs", "waits"):
        ids[which], write = plan_kept({"which": which}, now_s)
        served.store.write(write).result()
    number = served.decisions()[0].number
    waits = sql.update(t.DECISIONS).where(t.DECISIONS.c.number == number)
    waits = waits.values(state=PROPOSED, after=json.dumps({"plan": ids["waits"]}))
    served.store.write(lambda at: at.execute(waits) and None).result()
    served.store.write(plan_kept({"which": "gone by again"}, now_s + year_s)[1]).result()
    served.store.write(partial(set_jobs, names=[name], place={"plan": ids["runs"]})).result()

    def left(at_s: float) -> set[str]:
        served.store.write(rolled(at_s)).result()
        there = served.store.read(lambda at: at.execute(sql.select(t.PLANS.c.id)).scalars().all())
        return {which for which, each in ids.items() if each in there}

    assert left(now_s + year_s) == {"gone by again", "runs", "waits"}
    served.store.write(partial(set_jobs, names=[name], place={"plan": ids["gone by again"]})).result()
    assert left(now_s + year_s + 1.0) == {"gone by again", "runs", "waits"}
    assert left(now_s + 3 * year_s) == {"gone by again", "waits"}


class Refuses(Stubborn):
    """Begins nothing."""

    def carry_out(self, order: JobOrder) -> Receipt:
        self.acts.append(order.act)
        return Receipt(order.act == "stop", "no such domain")


def killed(served: Served) -> None:
    """Whatever its actuators answer from now on is not heard."""
    served.loop._ends = True
    for worker in served.loop.workers.values():
        worker.close()
    served.store.close()


def test_answers_to_a_queue_that_is_begun_anew_lose_nobody(tmp_path: Path):
    """Three orders are open when it is killed; then a domain has another name, and all three are refused at once."""
    first = Stubborn(0)
    first.carry_out = lambda order: time.sleep(3600.0)  # type: ignore[method-assign,assignment,return-value]
    served = Served.of(url(tmp_path), Clock(), first, actuator="stubborn")
    names = [served.submit(**{**GANG, "devices": 8}) for _ in range(3)]
    served.turn()
    killed(served)
    refuses = Refuses(0)
    again = Served.of(url(tmp_path), served.clock, refuses, actuator="stubborn", renamed=("wuhu", "elsewhere"))
    beside(lambda: again.loop._answers.qsize() == len(names))  # all have been refused before the first turn
    again.turn(1.0)
    assert "turns broken" not in again.loop.state.counts
    until(again, lambda: not again.loop._open)
    assert set(again.jobs()) == set(names)
    again.close()


def test_who_is_being_planned_or_waits_for_a_yes_is_not_stopped(tmp_path: Path):
    stubborn = Stubborn(0)
    served = Served.of(url(tmp_path), Clock(), stubborn, actuator="stubborn")
    name = served.submit(**{**GANG, "devices": 8})
    until(served, lambda: stubborn.jobs and not served.loop._open)
    served.close()
    again = Served.of(
        url(tmp_path), served.clock, stubborn, actuator="stubborn", mode="advise", renamed=("wuhu", "elsewhere")
    )
    for _ in range(10):
        again.turn(1.0)
        time.sleep(0.05)
    assert stubborn.acts == ["begin"]
    assert name in stubborn.jobs
    assert {each.state for each in again.decisions()} <= {"carried out", "proposed", "superseded"}
    again.close()


def test_what_ended_while_the_queue_was_begun_anew_is_done(tmp_path: Path):
    stubborn = Stubborn(0)
    served = Served.of(url(tmp_path), Clock(), stubborn, actuator="stubborn")
    name = served.submit(**{**GANG, "devices": 8})
    until(served, lambda: stubborn.jobs and not served.loop._open)
    served.close()
    stubborn.jobs[name] = SeenJob(name, stubborn.jobs[name].key, DONE, 1.0)
    again = Served.of(
        url(tmp_path), served.clock, stubborn, actuator="stubborn", mode="advise", renamed=("wuhu", "elsewhere")
    )
    until(again, lambda: again.jobs()[name].state == "done")
    assert stubborn.acts == ["begin"]
    again.close()


def test_a_yes_that_names_a_domain_that_is_gone_is_superseded(tmp_path: Path):
    served = Served.of(url(tmp_path), Clock(), mode="advise")
    served.submit(**{**GANG, "devices": 8})
    served.turn()
    (proposed,) = served.decisions()
    lost = (proposed.after or {})["domains"][0]
    served.store.write(answer(proposed.name, "boss", served.clock(), yes=True)).result()
    served.close()
    again = Served.of(url(tmp_path), served.clock, mode="advise", renamed=(lost, "elsewhere"))
    again.turn(1.0)
    first = again.decisions()[0]
    assert (first.state, first.told) == ("superseded", "what it names is not there any more")
    assert "turns broken" not in again.loop.state.counts
    again.close()


def test_a_look_that_takes_long_says_nothing_of_what_came_since(tmp_path: Path):
    """The first begins before the job does, and is over when it has long run; then another takes its time."""
    slow, looks = Stubborn(0), list[int]()
    seen = slow.seen

    def late() -> Sequence[SeenJob]:
        found = seen()
        beside(lambda: slow.jobs)
        time.sleep(0.3)
        looks.append(len(found))
        return found

    slow.seen = late  # type: ignore[method-assign]
    served = Served.of(url(tmp_path), Clock(), slow, actuator="stubborn", gone_after_s=0.1)
    served.submit(**{**GANG, "devices": 8})
    until(served, lambda: len(looks) > 2)
    assert looks[:3] == [0, 1, 1]
    assert slow.acts == ["begin"]
    served.close()


def test_who_runs_where_nobody_can_stop_it_is_not_preempted(tmp_path: Path):
    """The whole site is held, half of it by an actuator that is not served now, and who comes is far more urgent."""

    class Real(Told):
        name = "real"

    real, clock = Real(), Clock()
    served = Served.of(url(tmp_path), clock, Paper(), real)
    gang = {**GANG, "devices": 32, "duration_s": 1e6}
    names = [served.submit(**gang, **({"actuator": "real"} if at % 2 else {})) for at in range(8)]
    served.turn()
    until(served, lambda: len(real.orders) == 4 and not served.loop._open)
    served.close()
    again = Served.of(url(tmp_path), clock)
    urgent = again.submit(**{**gang, "duration_s": 60.0, "priority": 9})
    again.turn(1.0)
    assert {again.jobs()[name].state for name in names} == {"running"}
    assert again.jobs()[urgent].state == "waiting"
    again.close()
    back = Served.of(url(tmp_path), clock, Paper(), real)
    real.says = [SeenJob(each.job, each.key, RUNNING, 0.0) for each in real.orders]
    until(back, lambda: back.jobs()[urgent].state == "running")
    back.close()


class Stays(Stubborn):
    """Begins and stops, and moves nobody; ``ends``: once it has ended what ran."""

    ends = False

    def carry_out(self, order: JobOrder) -> Receipt:
        if order.act != "resize":
            return super().carry_out(order)
        self.acts.append(order.act)
        if self.ends:
            self.jobs.pop(order.job)
        return Receipt(False, "the state does not fit there", ended=self.ends)


def moved(served: Served, name: str) -> dict[str, Any]:
    """Orders a job to a domain that it does not hold; where it was."""
    here: dict[str, Any] = served.loop.site.places()[name]
    free = next(each for each in served.loop.site.live.site.domains if each not in here["domains"])
    change = JobChange(name, "resize", here, here | {"domains": [free]})
    assert served.loop.site.carry_out(change)
    served.loop._order(change, served.clock(), {"cause": "a test's"})
    served.loop._written()
    return here


def test_a_move_that_is_refused_when_the_job_has_ended_is_no_failure_of_the_job(tmp_path: Path):
    ends = Stays(0)
    ends.ends = True
    served = Served.of(url(tmp_path), Clock(), ends, actuator="stubborn")
    name = served.submit(tokens=1e12)
    served.turn()
    until(served, lambda: ends.jobs and not served.loop._open)
    moved(served, name)
    until(served, lambda: len(ends.acts) > 2 and not served.loop._open)
    assert ends.acts == ["begin", "resize", "begin"]
    assert served.jobs()[name].state == "running"
    assert not served.loop._failures
    served.close()


def test_a_move_that_is_refused_is_told_again_where_the_store_cannot_be_read(tmp_path: Path):
    stays = Stays(0)
    served = Served.of(url(tmp_path), Clock(), stays, actuator="stubborn")
    name = served.submit(tokens=1e12)
    served.turn()
    until(served, lambda: stays.jobs and not served.loop._open)
    here, read = moved(served, name), served.store.read

    def broken(function: Any) -> Any:
        served.store.read = read  # type: ignore[method-assign]
        raise StoreError("the store cannot be read: it is restarted")

    beside(lambda: stays.acts[-1] == "resize" and not served.loop._answers.empty())
    served.store.read = broken  # type: ignore[method-assign]
    with pytest.raises(StoreError):
        served.loop._take_answers(served.clock())
    until(served, lambda: not served.loop._open)
    assert served.loop.site.places()[name]["domains"] == here["domains"]
    assert (served.jobs()[name].place or {})["domains"] == here["domains"]
    served.close()


def test_who_came_to_the_queue_out_of_turn_keeps_its_name_through_a_restart(tmp_path: Path):
    """As does training that was still being planned while others came."""
    clock = Clock()
    served = Served.of(url(tmp_path), clock)
    spec = {**JOB, **GANG, "devices": 8}
    late, _ = served.store.write(take_in(spec, "late", "me", clock())).result()
    clock.now_s += 10.0
    names = [served.submit(**{**GANG, "devices": devices}) for devices in (16, 24)]
    served.turn()
    served.loop.come(late)
    served.turn(5.0)
    places, rows = served.loop.site.places(), [each.name for each in served.loop.site.live.jobs]
    held = {late.name: 8, names[0]: 16, names[1]: 24}
    assert {name: sum((places[name] or {})["gpus"]) for name in held} == held
    assert rows == [*names, late.name]
    served.close()
    again = Served.of(url(tmp_path), clock)
    assert again.loop.site.places() == places
    again.turn(1.0)
    assert again.loop.site.places() == places
    assert not again.loop.state.notice
    again.close()


def test_a_queue_knows_its_offers_by_their_order_through_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The job of one kind of training has gone, and that of the next runs under an offer of its own kind."""
    kinds = [TrainingKind(KIND.model, KIND.batch * times, KIND.seq) for times in (2, 4)]
    planned = {each: replace(offers(), kinds=(each,)) for each in kinds}
    clock = Clock()
    served = Served.of(url(tmp_path), clock)
    for each in kinds:
        served.loop.site.learn(planned[each])
    first, second = (served.submit(tokens=1e12, batch=each.batch) for each in kinds)
    served.turn()
    served.store.write(let_go(first, "me", clock())).result()
    served.loop.cancel(first)
    served.turn(1.0)
    served.submit(**{**GANG, "devices": 8})  # who has gone is forgotten when somebody comes
    served.turn(1.0)
    places = served.loop.site.places()
    assert first not in places
    assert places[second] is not None
    served.close()
    asked = list[TrainingKind]()

    def found(site: ServedSite, kind: TrainingKind) -> OfferTable:
        asked.append(kind)
        return planned[kind]

    monkeypatch.setattr(ServedSite, "planned", found)
    again = Served.of(url(tmp_path), clock)
    assert asked == kinds
    assert again.loop.site.places() == places
    again.close()


def test_a_turn_that_breaks_between_decision_and_order_leaves_nobody_standing(tmp_path: Path):
    stubborn = Stubborn(0)
    served = Served.of(url(tmp_path), Clock(), stubborn, actuator="stubborn")
    reasons = served.loop._reasons

    def once(*_: Any) -> Any:
        served.loop._reasons = reasons  # type: ignore[method-assign]
        raise MemoryError

    served.loop._reasons = once  # type: ignore[method-assign]
    name = served.submit(tokens=1e12)
    with pytest.raises(MemoryError):
        served.turn()
    assert name in served.loop.site.standing()
    served.loop._missed()  # as the next turn does
    assert name not in served.loop.site.standing()
    until(served, lambda: stubborn.jobs and not served.loop._open)
    assert stubborn.acts == ["begin"]
    assert served.jobs()[name].state == "running"
    served.close()


def test_an_answer_that_is_no_receipt_is_none(tmp_path: Path):
    class Forgets(Stubborn):
        def carry_out(self, order: JobOrder) -> Receipt:
            told = super().carry_out(order)
            return told if len(self.acts) > 1 else None  # type: ignore[return-value]

    forgets = Forgets(0)
    served = Served.of(url(tmp_path), Clock(), forgets, actuator="stubborn")
    name = served.submit(tokens=1e12)
    served.turn()
    until(served, lambda: "not a receipt" in served.loop.workers["stubborn"].trouble)
    until(served, lambda: not served.loop._open)
    assert forgets.acts == ["begin", "begin"]
    assert [each.state for each in served.decisions()] == ["carried out"]
    assert served.jobs()[name].state == "running"
    served.close()


def test_decisions_tell_what_they_went_by_apart(tmp_path: Path):
    """One hash for all of a turn, another one where a link carries something else."""
    clock = Clock()
    served = Served.of(url(tmp_path), clock)
    gang = {**GANG, "devices": 8}
    served.submit(**gang)
    served.submit(**gang)
    served.turn()
    point = LinkPoint(clock(), *served.loop.site.live.site.domains[:2], 1e6)
    hashes = [[each.why["sha256"] for each in served.decisions()]]
    for told in ([], [point]):
        (home := tmp_path / str(len(told))).mkdir()
        again = Served.of(url(home), clock)
        again.loop.points(told)
        again.turn()
        again.submit(**gang)
        again.turn(1.0)
        hashes.append([each.why["sha256"] for each in again.decisions()])
        again.close()
    assert hashes[0][0] == hashes[0][1]
    assert hashes[1] != hashes[2]
    served.close()


def test_words_that_no_store_takes(tmp_path: Path):
    class Mumbles(Stubborn):
        def seen(self) -> Sequence[SeenJob]:
            told = "its command ended: \x00\x00 \ud800 lost"
            return [replace(each, state="failed", told=told) for each in super().seen()]

    mumbles = Mumbles(0)
    served = Served.of(url(tmp_path), Clock(), mumbles, actuator="stubborn")
    name = served.submit(tokens=1e12)
    until(served, lambda: served.jobs()[name].state == "failed")
    assert "its command ended:      lost" in served.jobs()[name].why
    assert not served.loop.state.unwritten
    served.close()


def test_a_turn_that_was_committed_and_the_word_of_it_lost(tmp_path: Path):
    served = Served.of(url(tmp_path), Clock())
    name = served.submit(tokens=1e12)
    commits, lost = served.store.engine.dialect.do_commit, list[str]()

    def cut(connection: Any) -> None:
        commits(connection)
        if served.loop._turn is not None and not lost:
            lost.append("once")
            raise served.store.engine.dialect.loaded_dbapi.OperationalError("the server has gone")

    served.store.engine.dialect.do_commit = cut  # type: ignore[method-assign]
    until(served, lambda: served.jobs()[name].state == "running" and not served.loop._open)
    assert lost
    assert [(each.act, each.state) for each in served.decisions()] == [("begin", "carried out")]
    served.close()


def test_a_job_of_an_actuator_that_is_not_served_waits_for_it(tmp_path: Path):
    served = Served.of(url(tmp_path), Clock())
    name = served.submit(**{**GANG, "devices": 8}, actuator="stubborn")
    for _ in range(3):
        served.turn(1.0)
    assert served.jobs()[name].state == "queued"
    served.close()
    stubborn = Stubborn(0)
    again = Served.of(url(tmp_path), served.clock, stubborn)
    until(again, lambda: name in stubborn.jobs)
    again.close()


def test_the_id_of_a_job_is_none_of_a_decision(tmp_path: Path):
    served = Served.of(url(tmp_path), Clock(), mode="advise")
    served.submit(**{**GANG, "devices": 8})
    served.turn()
    with pytest.raises(NotThereError):
        served.store.write(answer("j1", "boss", served.clock(), yes=True)).result()
    assert [each.state for each in served.decisions()] == ["proposed"]
    served.close()


@pytest.mark.parametrize("taken", [False, True])
def test_a_move_that_is_refused_leaves_the_job_where_it_was(tmp_path: Path, taken: bool):
    stays = Stays(0)
    served = Served.of(url(tmp_path), Clock(), stays, actuator="stubborn", mode="advise")
    name = served.submit(tokens=1e12)
    served.turn()
    served.store.write(answer("d1", "boss", served.clock(), yes=True)).result()
    until(served, lambda: stays.jobs and not served.loop._open)
    here = moved(served, name)
    if taken:  # by others meanwhile, all of it
        served.loop.site.live.moment.world.pool[:, engine.POOL_FREE] = 0
        served.loop.site.live.moment.world.bin[:, engine.BIN_FREE] = 0
    until(served, lambda: served.jobs()[name].why.startswith("its move was refused"))
    found = served.jobs()[name]
    assert found.state == ("waiting" if taken else "running")
    assert not served.loop._failures
    if not taken:
        assert (found.place or {})["domains"] == here["domains"]
        assert served.loop.site.places()[name]["domains"] == here["domains"]
    assert stays.acts == ["begin", "resize"]
    served.close()


def test_two_moves_that_are_refused_leave_the_job_where_it_was(tmp_path: Path):
    """The second began where the first had not led."""
    stays = Stays(0)
    served = Served.of(url(tmp_path), Clock(), stays, actuator="stubborn", mode="advise")
    name = served.submit(tokens=1e12)
    served.turn()
    served.store.write(answer("d1", "boss", served.clock(), yes=True)).result()
    until(served, lambda: stays.jobs and not served.loop._open)
    (here,) = served.loop.site.places()[name]["domains"]
    for there in [each for each in served.loop.site.live.site.domains if each != here][:2]:
        now = served.loop.site.places()[name]
        change = JobChange(name, "resize", now, now | {"domains": [there]})
        assert served.loop.site.carry_out(change)
        served.loop._order(change, served.clock(), {"cause": "a test's"})
    served.loop._written()
    until(served, lambda: not served.loop._open)
    served.turn(0.1)
    assert stays.acts == ["begin", "resize", "resize"]
    assert served.loop.site.places()[name]["domains"] == [here]
    assert (served.jobs()[name].place or {})["domains"] == [here]
    assert served.jobs()[name].state == "running"
    served.close()


class Restless:
    """Moves who runs to the last domain, once it is told to."""

    name, on = "restless", False

    def decide(self, moment: Any) -> None:
        for job in moment.waiting.tolist():
            moment.begin(job, moment.places(job)[0])
        for job in moment.running.tolist() if self.on else ():
            there = next((each for each in moment.places(job, 1) if each.domains == (3,)), None)
            if there is not None and moment.running_at(job).domains != (3,):
                moment.resize(job, there)


def test_who_wants_what_was_refused_is_not_asked_in_every_turn(tmp_path: Path):
    stays, restless = Stays(0), Restless()
    scheduler: Any = restless
    served = Served.of(url(tmp_path), Clock(), stays, actuator="stubborn", scheduler=scheduler)
    name = served.submit(tokens=1e12)
    served.turn()
    until(served, lambda: stays.jobs and not served.loop._open)
    restless.on = served.loop._looks = True
    served.turn(0.1)
    for _ in range(20):
        until(served, lambda: not served.loop._open)
        served.turn(0.1)
    assert 1 < stays.acts.count("resize") < 5
    assert served.jobs()[name].state == "running"
    assert not served.loop._failures
    served.close()


def test_who_was_denied_keeps_nobody_from_its_devices(tmp_path: Path):
    served = Served.of(url(tmp_path), Clock(), mode="advise")
    names = [served.submit(**{**GANG, "devices": 32}) for _ in range(8)]  # the whole site
    served.turn()
    for each in served.decisions():
        served.store.write(answer(each.name, "boss", served.clock(), yes=False)).result()
    served.turn(1.0)
    assert [(each.job, each.state) for each in served.decisions()] == [(name, "denied") for name in names]
    later = served.submit(**{**GANG, "devices": 32})
    served.turn(1.0)
    assert [(each.job, each.state) for each in served.decisions()][8:] == [(later, "proposed")]
    assert served.jobs()[names[0]].state == "waiting"
    served.close()


def test_what_was_denied_is_not_proposed_again_for_a_day(tmp_path: Path):
    served = Served.of(url(tmp_path), Clock(), mode="advise")
    served.submit()
    served.turn()
    served.store.write(answer("d1", "boss", served.clock(), yes=False)).result()
    for _ in range(5):
        served.turn(3600.0)
    assert [each.state for each in served.decisions()] == ["denied"]
    served.turn(loop_module.DENIED_S)
    assert [each.state for each in served.decisions()] == ["denied", "proposed"]
    served.close()


def test_a_yes_to_an_offer_that_means_another_one_now_is_superseded(tmp_path: Path):
    served = Served.of(url(tmp_path), Clock(), mode="advise")
    served.submit()
    served.turn()
    served.store.write(answer("d1", "boss", served.clock(), yes=True)).result()
    table = served.loop.site.offers
    other = replace(table, layout=table.layout[:, ::-1].copy())
    served.loop.site.offers = served.loop.site.live.offers = other
    served.loop.site.live.tell()  # the world is opened again, with this table
    served.turn(1.0)
    first = served.decisions()[0]
    assert (first.state, first.told) == ("superseded", "what it names is not there any more")
    served.close()


def test_who_is_not_over_holds_up_nothing_that_is_forgotten(served: Served, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(telemetry, "FORGOTTEN_AT_ONCE", 1)
    names = [served.submit(tokens=1e12), served.submit(), served.submit()]
    served.turn()
    until(served, lambda: {each.state for each in served.decisions()} == {"carried out"})
    served.turn(2e4)
    assert [served.jobs()[name].state for name in names] == ["running", "done", "done"]
    for left in (2, 1, 1):
        served.store.write(rolled(served.clock() + 367 * 86_400.0)).result()
        assert len(served.decisions()) == left
    assert [each.job for each in served.decisions()] == names[:1]


def test_the_last_order_of_a_job_is_the_one_that_was_made_last(tmp_path: Path):
    """A proposal that is approved late has an early number: after a restart its order is still the job's last."""
    served = Served.of(url(tmp_path), Clock(), mode="advise")
    name = served.submit(**{**GANG, "devices": 8})
    served.turn()
    (begin,) = served.decisions()
    served.approve(begin.number)
    until(served, lambda: served.decisions()[0].state == "carried out")
    old = {"key": f"o-9-{name}-{served.loop._mark}", "decision": 9, "job": name, "actuator": "paper"}
    old |= {"body": json.dumps(asdict(JobOrder("o-9", "lever", name, {}))), "state": "done", "told": ""}
    row = {**old, "made_s": begin.time_s - 1.0}  # it came earlier
    served.store.write(lambda at: at.execute(sql.insert(t.ORDERS).values(**row))).result()
    key = served.loop._keys[name][0]
    served.close()
    again = Served.of(url(tmp_path), served.clock, mode="advise")
    assert again.loop._keys[name][0] == key
    again.close()
