"""The loop, turned by hand: jobs come, run, move and end; decisions wait for a yes; nothing is lost or done twice."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Event
from time import sleep

import numpy as np
import pytest
import sqlalchemy as sql

import hippo
from hippo.errors import HippoError, InputError
from hippo.jobs.job import TrainingKind
from hippo.jobs.placement.offer_plans import offer_table
from hippo.jobs.placement.offers import OfferTable
from hippo.plan.plan import Pipeline, Plan, Stage
from hippo.problem.load import load_cluster, load_problem
from hippo.serve import tables as t
from hippo.serve.actuators.placing import held_part, nodes_of, renumbered
from hippo.serve.bounds import least_step_s
from hippo.serve.jobs import answer, let_go
from hippo.serve.records import JobOrder, LinkPoint, Receipt, SeenJob
from hippo.serve.store import StoreError

from .worlds import KIND, Clock, Served, offers, until, url

GANG = {"model": "", "batch": 0, "seq": 0, "tokens": 0.0, "least": 0, "most": 0}
"""Nothing of what elastic training says."""


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def served(tmp_path: Path, clock: Clock) -> Iterator[Served]:
    found = Served.of(url(tmp_path), clock)
    yield found
    found.close()


def test_a_job_comes_runs_and_ends(served: Served):
    name = served.submit()
    served.turn()
    job = served.jobs()[name]
    assert job.state == "running"
    assert job.place is not None
    assert job.place["gpus"] == [16]
    (decision,) = served.decisions()
    assert (decision.act, decision.state, decision.job) == ("begin", "ordered", name)
    assert decision.why["alternatives"]
    assert decision.predicted_step_s == pytest.approx(64 * 2048 / 1e5)
    served.turn(9999.0)  # 1e9 tokens at 1e5 a second
    assert served.jobs()[name].state == "running"
    served.turn(2.0)
    assert served.jobs()[name].state == "done"
    until(served, lambda: served.decisions()[0].state == "carried out")


def test_a_job_that_fits_nowhere_is_refused_with_the_reason(served: Served):
    name = served.submit(least=4096, most=8192)
    served.turn()
    job = served.jobs()[name]
    assert job.state == "refused"
    assert "no plan trains it on 4096 to 8192 devices" in job.why


def test_a_job_is_cancelled(served: Served):
    running, waiting = served.submit(), served.submit(least=16)
    served.turn()
    for name in (running, waiting):
        served.store.write(let_go(name, "me", served.clock())).result()
        served.loop.cancel(name)
    served.turn(1.0)
    assert {each.state for each in served.jobs().values()} == {"cancelled"}
    assert not served.loop.site.standing()


def test_it_goes_on_where_it_was_killed(tmp_path: Path, clock: Clock):
    first = Served.of(url(tmp_path), clock)
    names = [first.submit() for _ in range(5)]
    first.turn()
    first.turn(100.0)
    before, packed = first.jobs(), first.loop.site.live.packed()
    first.close()
    clock.now_s += 10.0
    again = Served.of(url(tmp_path), clock)
    assert again.jobs() == before
    assert again.loop.site.live.packed() == packed
    again.turn(1e6)
    assert {again.jobs()[name].state for name in names} == {"done"}
    again.close()


@pytest.mark.parametrize("yes", [True, False])
def test_a_decision_waits_for_a_yes(tmp_path: Path, clock: Clock, yes: bool):
    served = Served.of(url(tmp_path), clock, mode="advise")
    name = served.submit()
    served.turn()
    served.turn(1.0)
    (decision,) = served.decisions()  # said once, however often it is thought
    assert (decision.state, decision.act) == ("proposed", "begin")
    assert served.jobs()[name].state == "waiting"
    served.store.write(answer(decision.name, "boss", clock(), yes=yes)).result()
    served.turn(1.0)
    assert served.jobs()[name].state == ("running" if yes else "waiting")
    (first,) = served.decisions()  # who is approved becomes the order
    assert first.by == "boss"
    assert first.state in (("ordered", "carried out") if yes else ("denied",))
    assert (first.ordered_s is not None) == yes
    assert served.loop.state.decisions == int(yes)
    if yes:
        until(served, lambda: served.decisions()[0].state == "carried out")
    served.close()


def test_a_decision_about_training_gets_a_bound_that_no_plan_is_under(served: Served):
    """The search's on two domains whose link is slow, and what the step is predicted to take."""
    place = {"domains": ["wuhu", "guian"], "gpus": [8, 8]}
    links = dict.fromkeys([("wuhu", "guian"), ("guian", "wuhu")], (1.5e7, 0.02))
    problem = load_problem(model=KIND.model, cluster="four-hubs", global_batch=KIND.batch, seq=KIND.seq)
    least_s = least_step_s(problem, place, links)
    part = held_part(problem.cluster, place)
    told = tuple(replace(each, bandwidth_bytes_per_s=1.5e7, latency_s=0.02) for each in part.links)
    found = hippo.plan(replace(problem, cluster=replace(part, links=told)), why=False)
    assert least_s is not None
    assert found.score is not None
    assert 0.5 * found.score.step_time_s < least_s <= found.score.step_time_s
    assert least_step_s(problem, place, dict.fromkeys(links, (0.0, 0.02))) is None
    served.submit()
    until(served, lambda: any(each.bound_step_s for each in served.decisions()))
    (decision,) = served.decisions()
    assert decision.after is not None
    assert decision.bound_step_s == least_step_s(problem, decision.after, {})


def test_what_a_run_gets_over_a_link_raises_it_and_lowers_nothing(tmp_path: Path, clock: Clock):
    """Once somebody has measured it, and not before what was measured last."""
    scripted = Scripted()
    served = Served.of(url(tmp_path), clock, scripted, actuator="scripted")
    names = served.loop.site.live.site.domains
    one, two, three = (names.index(each) for each in ("wuhu", "guian", "zhongwei"))

    def carries(source: int, destination: int) -> float:
        return float(served.loop.carried()[0][source, destination])

    name, bought = served.submit(), carries(one, three)
    until(served, lambda: served.decisions() and served.decisions()[0].state == "carried out")
    served.loop.points([LinkPoint(clock(), "wuhu", "guian", 1e6)])
    until(served, lambda: carries(one, two) == 1e6)
    measured_s = clock.now_s

    def got(bytes_per_s: float, time_s: float, to: str = "guian") -> None:
        told = LinkPoint(time_s, "wuhu", to, bytes_per_s, None, name)
        scripted.jobs[name] = SeenJob(name, scripted.orders[0].key, "running", 0.5, links=(told,))
        worker = served.loop.workers["scripted"]
        until(served, lambda: any(each.links == (told,) for each in worker.seen or ()))
        served.turn()
        served.turn()

    got(9e6, measured_s - 1.0)  # a step that began before it was measured
    assert carries(one, two) == 1e6
    got(9e6, measured_s + 0.01)
    assert carries(one, two) == 9e6
    got(1e6, clock.now_s)
    assert carries(one, two) == 9e6
    clock.now_s += 30.0
    served.loop.points([LinkPoint(clock() - 20.0, "wuhu", "guian", 1e6)])  # of a round that lasted, told at its end
    until(served, lambda: carries(one, two) == 1e6)
    got(9e6, clock.now_s - 3.0)  # it began before anybody heard of that
    assert carries(one, two) == 1e6
    got(9e6, clock.now_s)
    assert carries(one, two) == 1e6  # who measures has taken that back
    clock.now_s += 3601.0
    served.loop.points([LinkPoint(clock(), "wuhu", "guian", 1e6)])
    got(9e6, clock.now_s + 0.01)
    assert carries(one, two) == 9e6
    got(1e30, clock.now_s)  # nonsense
    assert carries(one, two) == 9e6
    got(2.0 * bought, clock.now_s, "zhongwei")  # which nobody measures
    assert carries(one, three) == bought
    kept = served.store.read(lambda at: at.execute(sql.select(t.POINTS.c.bytes_per_s, t.POINTS.c.by)).all())
    assert [tuple(each) for each in kept] == [(9e6, name)]  # that of an hour ago is a minute now
    served.close()


class Scripted:
    """Remembers orders, and says what it is told to."""

    name, tells = "scripted", True

    def __init__(self) -> None:
        self.orders: list[JobOrder] = []
        self.jobs: dict[str, SeenJob] = {}

    def carry_out(self, order: JobOrder) -> Receipt:
        self.orders.append(order)
        if order.act == "stop":
            self.jobs.pop(order.job, None)
        else:
            self.jobs[order.job] = SeenJob(order.job, order.key, "running", 0.0)
        return Receipt(True, "as told")

    def seen(self) -> tuple[SeenJob, ...]:
        return tuple(self.jobs.values())

    def close(self) -> None:
        return


def test_what_the_actuator_says_is_true(tmp_path: Path, clock: Clock):
    scripted = Scripted()
    served = Served.of(url(tmp_path), clock, scripted, actuator="scripted")
    name = served.submit()
    until(served, lambda: served.decisions() and served.decisions()[0].state == "carried out")
    served.turn(50000.0)  # by the queue's clock it had ended long ago
    assert served.jobs()[name].state == "running"
    key = scripted.orders[0].key
    scripted.jobs[name] = SeenJob(name, key, "running", 0.5, step_s=2.0)
    until(served, lambda: served.jobs()[name].step_s == 2.0)
    for step_s in (2.1, 2.2, 2.3):  # the first step goes through the change
        scripted.jobs[name] = SeenJob(name, key, "running", 0.5, step_s=step_s)
        until(served, lambda step_s=step_s: served.jobs()[name].step_s == step_s)
    assert served.decisions()[0].measured_after_s == 2.2
    scripted.jobs[name] = SeenJob(name, key, "done", 1.0)
    until(served, lambda: served.jobs()[name].state == "done")
    assert len(scripted.orders) == 1
    served.close()


def test_a_job_that_fails_begins_again_and_is_given_up_at_last(tmp_path: Path, clock: Clock):
    scripted = Scripted()
    served = Served.of(url(tmp_path), clock, scripted, actuator="scripted")
    name = served.submit()
    for times in range(1, 4):
        until(served, lambda times=times: len(scripted.orders) == times and not served.loop._open)
        scripted.jobs[name] = SeenJob(name, scripted.orders[-1].key, "failed", told="out of memory")
        until(served, lambda times=times: len(scripted.orders) > times or served.jobs()[name].state == "failed")
    job = served.jobs()[name]
    assert job.state == "failed"
    assert "out of memory" in job.why
    served.close()


def test_an_order_that_was_not_answered_is_told_again_with_its_key(tmp_path: Path, clock: Clock):
    class Hangs(Scripted):
        def carry_out(self, order: JobOrder) -> Receipt:
            self.orders.append(order)
            raise OSError("the answer was lost")

    hangs = Hangs()
    served = Served.of(url(tmp_path), clock, hangs, actuator="scripted")
    served.submit()
    served.turn()
    served.loop._ends = True  # as killed: whatever it answers is not heard
    for worker in served.loop.workers.values():
        worker.close()
    served.store.close()
    scripted = Scripted()
    again = Served.of(url(tmp_path), clock, scripted, actuator="scripted")
    until(again, lambda: scripted.orders)
    assert {each.key for each in (*hangs.orders, *scripted.orders)} == {scripted.orders[0].key}
    again.close()


def test_steps_are_kept_while_a_move_is_under_way(tmp_path: Path, clock: Clock):
    goes_on = Event()

    class Slow(Scripted):
        def carry_out(self, order: JobOrder) -> Receipt:
            self.orders.append(order)
            if order.act == "resize":
                assert goes_on.wait(60.0)
            self.jobs[order.job] = SeenJob(order.job, order.key, "running", 0.0)
            return Receipt(True)

    slow = Slow()
    served = Served.of(url(tmp_path), clock, slow, actuator="scripted")
    first, *_ = [served.submit(devices=each, duration_s=50.0, **GANG) for each in (64, 64, 64, 56)]
    until(served, lambda: [each.state for each in served.decisions()] == ["carried out"] * 4)
    name = served.submit(tokens=1e10)
    until(served, lambda: [each.state for each in served.decisions()] == ["carried out"] * 5)
    before = slow.orders[-1].key
    slow.jobs[first] = SeenJob(first, slow.orders[0].key, "done", 1.0)
    until(served, lambda: slow.orders[-1].act == "resize")
    for look in (1, 2, 3):
        served.clock.now_s += 1.0
        slow.jobs[name] = SeenJob(name, before, "running", 0.1 * look, step_s=2.0 + 0.1 * look, loss=3.0 - look)
        until(served, lambda look=look: served.jobs()[name].step_s == 2.0 + 0.1 * look)
    asked = sql.select(t.PROGRESS.c.loss).where(t.PROGRESS.c.job == name).order_by(t.PROGRESS.c.time_s)
    assert served.store.read(lambda at: at.execute(asked).scalars().all()) == [2.0, 1.0, 0.0]
    assert served.decisions()[-1].measured_after_s is None  # these are no steps of what was decided
    assert not served.loop.pace()
    goes_on.set()
    until(served, lambda: served.decisions()[-1].state == "carried out")
    served.close()


def test_an_order_that_breaks_for_ever_gives_way_to_the_stop_of_its_job(tmp_path: Path, clock: Clock):
    class Breaks(Scripted):
        def carry_out(self, order: JobOrder) -> Receipt:
            self.orders.append(order)
            if order.act == "begin":
                raise OSError("its engine does not answer")
            return Receipt(True)

    breaks = Breaks()
    served = Served.of(url(tmp_path), clock, breaks, actuator="scripted")
    name = served.submit()
    until(served, lambda: len(breaks.orders) > 1)  # it is told again
    served.store.write(let_go(name, "somebody", clock())).result()
    served.loop.cancel(name)
    until(served, lambda: [each.state for each in served.decisions()] == ["given up", "carried out"])
    assert breaks.orders[-1].act == "stop"
    assert "gave way to a stop" in served.decisions()[0].told
    assert served.jobs()[name].state == "cancelled"
    assert not served.loop.workers["scripted"].trouble
    told = len(breaks.orders)
    served.turn(60.0)
    assert len(breaks.orders) == told
    served.close()


def test_an_order_whose_answers_are_lost_is_never_given_up_for_another(tmp_path: Path, clock: Clock):
    class Forgets(Scripted):
        def carry_out(self, order: JobOrder) -> Receipt:
            receipt = super().carry_out(order)
            if len(self.orders) < 8:
                raise OSError("the answer was lost")
            return receipt

    forgets = Forgets()
    served = Served.of(url(tmp_path), clock, forgets, actuator="scripted")
    served.submit()
    for worker in served.loop.workers.values():
        worker._over.set()  # no pauses between tries
    until(served, lambda: served.decisions() and served.decisions()[0].state == "carried out")
    assert len({each.key for each in forgets.orders}) == 1
    assert len(served.decisions()) == 1
    served.close()


def test_a_gang_begins_where_it_was_approved(tmp_path: Path):
    """The rule would put the second into the first one's place, were it asked again without it."""
    served = Served.of(url(tmp_path), Clock(), mode="advise")
    gang = {"model": "", "batch": 0, "seq": 0, "tokens": 0.0, "least": 0, "most": 0, "duration_s": 600.0}
    sizes = [domain.nodes * domain.gpus_per_node for domain in served.loop.site.cluster.domains]
    names = [served.submit(devices=min(sizes) * 3 // 4, **gang) for _ in range(2)]
    served.turn()
    told = {each.job: each for each in served.decisions() if each.state == "proposed"}
    second = told[names[1]]
    served.store.write(answer(second.name, "me", served.clock(), yes=True)).result()
    served.turn(1.0)
    job = served.jobs()[names[1]]
    assert job.place is not None
    assert second.after is not None
    assert job.place["domains"] == second.after["domains"]
    assert [each.job for each in served.decisions() if each.state == "proposed"] == [names[0]]
    served.close()


def test_a_second_yes_to_the_same_job_changes_nothing(tmp_path: Path):
    """Its first proposal is approved, and before anybody looks another one, too."""
    served = Served.of(url(tmp_path), Clock(), mode="advise")
    name = served.submit()
    served.turn()
    (first,) = served.decisions()
    served.store.write(lambda at: at.execute(sql.update(t.DECISIONS).values(state="approved"))).result()
    served.loop._propose(served.clock())  # the turn in which the first yes came had read approvals already
    served.loop._written()
    second = served.decisions()[-1]
    assert second.number > first.number
    served.store.write(lambda at: at.execute(sql.update(t.DECISIONS).values(state="approved"))).result()
    served.turn(1.0)
    states = {each.number: (each.state, each.told) for each in served.decisions()}
    assert states[first.number][0] in ("ordered", "carried out")
    assert states[second.number] == ("superseded", "the job has changed since")
    assert served.decisions()[-1].number == second.number  # who is approved becomes the order
    assert served.jobs()[name].state == "running"
    served.close()


def test_what_could_not_be_written_is_not_carried_out_and_is_written_later(served: Served):
    write = served.store.write

    def full(function):  # type: ignore[no-untyped-def]
        found: Future[None] = Future()
        found.set_exception(StoreError("the store cannot write: database or disk is full"))
        return found

    name = served.submit()
    served.store.write = full  # type: ignore[method-assign]
    served.turn()
    assert "full" in served.loop.state.unwritten
    assert served.jobs()[name].state == "queued"
    assert not served.decisions()
    served.store.write = write  # type: ignore[method-assign]
    served.turn(1.0)
    assert served.jobs()[name].state == "running"
    assert not served.loop.state.unwritten


def test_a_link_that_collapses_moves_a_job(served: Served):
    for _ in range(4):
        served.submit(devices=56, duration_s=1e6, **GANG)  # eight are left in each domain
    served.turn()
    name = served.submit(least=16, most=16, tokens=1e12)
    served.turn()
    before = served.jobs()[name].place
    assert before is not None
    one, two = before["domains"]
    points = [LinkPoint(served.clock(), a, b, 1e6, 0.02) for a, b in ((one, two), (two, one))]
    served.loop.points(points)
    served.turn(1.0)
    domains = served.loop.site.live.site.domains
    assert served.loop.carried()[0][domains.index(one), domains.index(two)] == 1e6
    after = served.jobs()[name].place
    assert after is not None
    assert {one, two} != set(after["domains"])
    decision = served.decisions()[-1]
    assert (decision.act, decision.job) == ("resize", name)
    assert decision.why["cause"].startswith(f"the link from {one} to {two} carries")


def test_reasons_go_by_the_pace_of_the_job(tmp_path: Path, clock: Clock):
    """A job whose steps take twice what its offer says: what is told of steps before, elsewhere and after is twice."""
    scripted = Scripted()
    served = Served.of(url(tmp_path), clock, scripted, actuator="scripted")
    first, *_ = [served.submit(devices=each, duration_s=50.0, **GANG) for each in (64, 64, 64, 56)]
    until(served, lambda: [each.state for each in served.decisions()] == ["carried out"] * 4)
    name = served.submit(tokens=1e10)  # eight GPUs are left
    until(served, lambda: [each.state for each in served.decisions()] == ["carried out"] * 5)
    place, key = served.jobs()[name].place, scripted.orders[-1].key
    assert place is not None
    for look in range(1, 7):
        scripted.jobs[name] = SeenJob(name, key, "running", 0.01 * look, step_s=2.0 * place["step_s"])
        until(served, lambda look=look: served.jobs()[name].share_done == 0.01 * look)
    scripted.jobs[first] = SeenJob(first, scripted.orders[0].key, "done", 1.0)
    until(served, lambda: len(served.decisions()) == 6)
    decision = served.decisions()[5]
    whole = 2.0 * 64 * 2048 / 1e5  # of 16 GPUs
    assert decision.predicted_step_s == pytest.approx(whole)
    assert decision.measured_before_s == pytest.approx(whole / 0.55)
    assert f"a step would take {whole / 0.55:.3g} s, and takes {whole:.3g} s there" in decision.why["cause"]
    assert whole / 0.55 == pytest.approx(max(each["step_s"] for each in decision.why["alternatives"]))
    served.close()


@pytest.mark.parametrize("name", ["srpt", "hi_ppo"])
def test_links_are_followed_when_the_last_job_has_gone(tmp_path: Path, clock: Clock, name: str):
    served = Served.of(url(tmp_path), clock, scheduler=name)
    job = served.submit()
    served.turn()
    served.store.write(let_go(job, "somebody", clock())).result()
    served.loop.cancel(job)
    served.turn(1.0)
    assert served.jobs()[job].state == "cancelled"
    ends = served.loop.site.live.site.domains[:2]
    for rate in (3e6, 2e6, 1e6):
        served.loop.points([LinkPoint(clock(), *ends, rate, 0.02)])
        served.turn(1.0)
        assert served.loop.carried()[0][0, 1] == rate
    assert not served.loop.degraded
    assert not served.loop.state.counts["turns broken"]
    served.close()


def test_without_telemetry_it_holds_and_says_so(tmp_path: Path, clock: Clock):
    served = Served.of(url(tmp_path), clock, stale_s=0.0)
    served.loop.points([LinkPoint(clock(), *served.loop.site.live.site.domains[:2], 1e9)])
    name = served.submit()
    served.turn()
    assert served.jobs()[name].state == "waiting"
    assert "no telemetry" in served.loop.state.holds
    served.close()


@pytest.mark.slow
def test_training_is_planned_beside_the_service_as_in_it(served: Served):
    site, known = served.loop.site, TrainingKind("gpt2", 8, 128)
    one = tuple(replace(each, nodes=1, gpus_per_node=1) for each in site.cluster.domains[:1])
    site.cluster = replace(site.cluster, domains=one, links=())
    found, here = site.planned(known), offer_table(site.cluster, [known])
    assert found.kinds == (known,)
    assert np.array_equal(found.rate, here.rate)


def test_what_is_wrong_beside_the_service_comes_back_whole_and_what_is_given_up_is_a_failure(
    served: Served, monkeypatch: pytest.MonkeyPatch
):
    site, wrong = served.loop.site, TrainingKind("gpt2", 1, 1_000_000)
    with pytest.raises(InputError) as refused:
        site.planned(wrong)
    assert str(refused.value).startswith("--seq: exceeds the 1024 learned positions of gpt2 (got 1000000). To fix:")
    monkeypatch.setattr("hippo.serve.site._planned", sleep_on)
    with ThreadPoolExecutor(1) as aside:
        given_up = aside.submit(site.planned, wrong)
        until(served, lambda: site._beside and site._beside[0].busy)
        site.close()
        with pytest.raises(HippoError, match=r"planning gpt2: its process died\. To fix: look at") as died:
            given_up.result()
    assert not isinstance(died.value, InputError)  # so it is no fault of the job


def test_a_job_whose_planning_died_is_planned_again_and_at_last_refused(
    served: Served, monkeypatch: pytest.MonkeyPatch
):
    tries = list[int]()

    def planned(self: object, kind: TrainingKind) -> OfferTable:
        tries.append(kind.batch)
        if kind.batch == 32 and len(tries) > 1:
            return replace(offers(), kinds=(kind,))
        raise HippoError("its process died")

    monkeypatch.setattr(type(served.loop.site), "planned", planned)
    once = served.submit(batch=32)
    until(served, lambda: served.jobs()[once].state == "running")
    assert tries == [32, 32]
    never = served.submit(batch=16)
    until(served, lambda: served.jobs()[never].state == "refused")
    assert tries == [32, 32, 16, 16, 16]
    assert served.jobs()[never].why == "its process died"


def test_the_part_of_a_place_has_all_of_its_devices_and_only_those():
    cluster = load_cluster("four-hubs")  # nodes of 8
    assert [nodes_of(count, 8) for count in (6, 8, 12, 24)] == [(1, 6), (1, 8), (3, 4), (3, 8)]
    for held in (1, 6, 8, 12, 16, 20, 24, 9):
        (part,) = held_part(cluster, {"domains": ["wuhu"], "gpus": [held]}).domains
        assert part.nodes * part.gpus_per_node == held
    there = held_part(cluster, {"domains": ["wuhu"], "gpus": [12]})
    assert (there.domains[0].nodes, there.domains[0].gpus_per_node) == (3, 4)
    devices = tuple(f"wuhu/{at // 4}/{at % 4}" for at in range(12))
    plan = Plan((Pipeline((Stage("wuhu", (0, 12), 4, 3, devices),), 4),), 1)
    named = renumbered(plan, there, cluster)
    assert named.pipelines[0].stages[0].devices == tuple(f"wuhu/{at // 8}/{at % 8}" for at in range(12))
    assert renumbered(named, cluster, there) == plan


def sleep_on(cluster: object, kind: object) -> None:
    """What is being planned, and takes long."""
    sleep(600.0)
