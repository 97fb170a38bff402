"""Plans of running jobs are kept right: a recorded day told to the service point by point leads to the decisions of
``hippo watch`` on it, one for one; who is asked and when; and what becomes of answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
from benchmarks.steering import measured

from hippo.front_door.networks import method_named, watch
from hippo.jobs.job import TrainingKind
from hippo.jobs.placement.offers import OfferTable
from hippo.network.plans.plan_cache import PlanCache
from hippo.network.rules.move import CONFIGURATION, PHASE, STILL, STOPPED, Rollout, advance
from hippo.network.rules.view import Action, How, Method, View
from hippo.network.worlds.asking import AnswerTold
from hippo.network.worlds.generator import world_from_trace
from hippo.network.worlds.judge import scenario_of
from hippo.network.worlds.play import carry_out, share_arrived, steps
from hippo.network.worlds.world import World, rollout
from hippo.plan.codec import plan_from_document, plan_to_document
from hippo.plan.plan import Plan
from hippo.problem.cluster import Cluster
from hippo.problem.links import Trace
from hippo.problem.load import load_cluster, load_problem, load_trace
from hippo.problem.problem import Problem
from hippo.serve import records as r
from hippo.serve.records import JobOrder, LinkPoint, Receipt, SeenJob
from hippo.serve.steering import Steering, SteeringTerms
from hippo.serve.store import plan_id

from .worlds import Clock, Served, until, url, whole_offer

EPOCH_S = 300.0
BEGINS_S = 1_800_000_000.0  # of the clock of tests
Told = tuple[int, str, str]
"""Epoch, act, id of the plan after."""


# ------------------------------------------------------------------------------------------------------ recorded days
def three_hubs() -> Cluster:
    whole = load_cluster("four-hubs")
    kept = {each.name for each in whole.domains[:3]}
    links = tuple(each for each in whole.links if {each.source, each.destination} <= kept)
    return replace(whole, domains=tuple(replace(each, nodes=1) for each in whole.domains[:3]), links=links)


def collapsing(cluster: Cluster, epochs: int) -> Trace:
    """Every link swings; the first pair of domains carries a fortieth for a third of the day, then another pair."""
    rng = np.random.default_rng(3)
    base = np.array([each.bandwidth_bytes_per_s for each in cluster.links])
    late = np.array([each.latency_s for each in cluster.links])
    rate = base * np.exp(rng.normal(0.0, 0.1, (epochs, len(base))))
    names = [each.name for each in cluster.domains]
    for begins, pair in ((epochs // 6, names[:2]), (epochs // 2, names[1:3])):
        hit = [at for at, each in enumerate(cluster.links) if {each.source, each.destination} == set(pair)]
        rate[begins : begins + epochs // 3, hit] /= 40.0
    return Trace(np.arange(epochs) * EPOCH_S, rate, np.tile(late, (epochs, 1)), "a day")


def job_of(problem: Problem, epochs: int) -> dict[str, Any]:
    work, gpus = problem.workload, problem.cluster.gpus
    spec = {"model": problem.model.name, "batch": work.global_batch, "seq": work.seq, "least": gpus, "most": gpus}
    return {**spec, "tokens": 1e15, "actuator": "recorded"}


def offer_of(problem: Problem) -> OfferTable:
    work, gpus = problem.workload, [each.gpus for each in problem.cluster.domains]
    return whole_offer(TrainingKind(problem.model.name, work.global_batch, work.seq), gpus)


class Recorded:
    """A run that goes as a world says: moves take what the rules of the simulator make of them."""

    name = "recorded"
    tells = True
    steers = True

    def __init__(self, world: World, first: Plan) -> None:
        self.world, self.first, self.cache = world, first, PlanCache(world.problem)
        assert self.cache.add(first, origin="first") == 0
        self.state, self.remaining = np.array([0, -1, STILL]), np.zeros(len(world.problem.cluster.links) + 1)
        self.known: Rollout = rollout(world, self.cache)
        self.epoch, self.key = 0, ""
        self.over: Event | None = None  # of the move under way
        self.orders: list[JobOrder] = []

    def lacks(self, spec: Mapping[str, Any]) -> str:
        return ""

    def carry_out(self, order: JobOrder) -> Receipt:
        self.orders.append(order)
        if order.act == r.BEGIN:
            self.key = order.key
            return Receipt(True, "began", plan_to_document(self.world.problem, self.first))
        if order.act == r.CANCEL:
            self.carry(Action(How.CANCEL))
            assert self.over is not None
            self.over.set()
            return Receipt(True, "given up")
        assert order.plan is not None
        index = self.cache.add(plan_from_document(order.plan, source="order")[1], origin="order")
        assert index is not None
        same = self.cache.configurations[index].place == self.cache.configurations[int(self.state[0])].place
        self.over = None if same else Event()
        self.carry(Action(How.SWITCH if same else How(order.way), index))
        if self.over is not None:
            assert self.over.wait(300.0)
        if int(self.state[CONFIGURATION]) != index:
            return Receipt(False, "the move was given up")
        self.key, self.over = order.key, None
        return Receipt(True, "done", order.plan)

    def carry(self, action: Action) -> None:
        self.known = rollout(self.world, self.cache, known=self.known)
        carry_out(self.known, self.state, self.remaining, action, first=False)

    def go_on(self) -> None:
        """To the begin of the next epoch."""
        advance(self.known, self.epoch, self.state, self.remaining, np.zeros(5))
        self.epoch += 1
        if self.state[PHASE] == STILL and self.over is not None:
            self.over.set()

    def seen(self) -> Sequence[SeenJob]:
        return (self.told,) if self.key else ()

    @property
    def told(self) -> SeenJob:
        left_s = (self.world.epochs - self.epoch) * self.world.epoch_s
        found = SeenJob("j1", self.key, r.RUNNING, self.epoch / self.world.epochs, left_s=left_s)
        if self.state[PHASE] == STILL:
            return found
        arrived = share_arrived(self.known, self.state, self.remaining)
        return replace(found, arrived=arrived, stands=bool(self.state[PHASE] == STOPPED))

    def close(self) -> None:
        if self.over is not None:
            self.over.set()


@dataclass
class Day:
    """A recorded day in a service that is turned by hand."""

    problem: Problem
    wire: Trace  # as a prober tells it
    make: Callable[[str], Method] = method_named

    @property
    def world(self) -> World:
        """What a run gets through of it (``problem.trace_csv``)."""
        goodput, overhead_s = np.array([(each.goodput, each.overhead_s) for each in self.problem.cluster.links]).T
        rate, late = self.wire.bandwidth_bytes_per_s * goodput, self.wire.latency_s + overhead_s
        return world_from_trace(self.problem, Trace(self.wire.time_s, rate, late, "a day"), epoch_s=EPOCH_S)

    def serve(self, folder: Path, name: str, first: Plan, *, mode: str = r.ACT) -> Served:
        """Told to the service point by point."""
        cluster, clock, run = self.problem.cluster, Clock(BEGINS_S), Recorded(self.world, first)
        steering = Steering(SteeringTerms(name, EPOCH_S), cluster, BEGINS_S, make=self.make)
        steering.late_s = None  # no test asks a clock
        terms = {"mode": mode, "stale_s": 1e9, "table": offer_of(self.problem)}
        made = Served.of(url(folder), clock, run, cluster=cluster, steering=steering, **terms)
        made.submit(**job_of(self.problem, self.world.epochs))
        if mode != r.ACT:
            made.turn()
            (begin,) = made.decisions()
            made.approve(begin.number)
        until(made, lambda: "plan" in (made.jobs()["j1"].place or {}))
        for epoch in range(self.world.epochs):
            clock.now_s = max(clock.now_s, BEGINS_S + epoch * EPOCH_S)
            self.push(made, epoch)
            until(made, lambda epoch=epoch: self.asked(made, epoch))  # type: ignore[misc]
            run.go_on()
            until(made, lambda: self.settled(made, run))
        return made

    def push(self, made: Served, epoch: int) -> None:
        links, at_s = self.problem.cluster.links, BEGINS_S + epoch * EPOCH_S
        rate, late = self.wire.bandwidth_bytes_per_s[epoch].tolist(), self.wire.latency_s[epoch].tolist()
        told = [
            LinkPoint(at_s, one.source, one.destination, a, b, "me")
            for one, a, b in zip(links, rate, late, strict=True)
        ]
        made.loop.points(told)

    def asked(self, made: Served, epoch: int) -> bool:
        """The epoch has been answered, and what was ordered is at the actuator."""
        pilot = made.loop.steering.pilots.get("j1") if made.loop.steering else None
        if pilot is None or pilot.asks or pilot.epoch != epoch:
            return False
        run = made.loop.workers["recorded"].actuator
        assert isinstance(run, Recorded)
        return self.settled(made, run)

    def settled(self, made: Served, run: Recorded) -> bool:
        """Whatever has been ordered is under way or answered, and the service has seen how far it is."""
        moves, busy, worker = run.state[PHASE] != STILL, bool(made.loop._open), made.loop.workers["recorded"]
        worker._due.set()  # look now
        return moves == busy and worker.seen == (run.told,)


def replayed(day: Day, name: str) -> tuple[list[Told], Plan]:
    """What ``hippo watch`` decides, and under which plan the run begins."""
    setting, method = scenario_of(day.world), day.make(name)
    cache, told, found = setting.cache.copy(), AnswerTold(method), list[Told]()
    first: Plan | None = None
    for each in steps(day.world, cache, method, setting.terms, forecasts=setting.forecasts):
        entry = told.of(each)
        if entry is not None and entry.changes:
            plan = cache.configurations[entry.after].plan
            found.append((entry.epoch, ACTS[entry.kind], plan_id(plan_to_document(day.problem, plan))))
            first = first or plan
    assert first is not None
    return found, first


ACTS = {"begun": r.BEGIN, "lever": r.LEVER, "stop": r.MOVE, "background": r.MOVE, "cancel": r.CANCEL}


def told_by(made: Served, policy: str) -> list[Told]:
    """What the service decided, by nobody else."""
    rows = [each for each in made.decisions() if each.act in r.STEERED]
    assert {each.policy for each in rows} == {policy}
    return [(int(each.why["epoch"]), each.act, str((each.after or {})["plan"])) for each in rows]


@pytest.fixture(scope="module")
def day() -> Day:
    problem = asked(512)
    return Day(problem, collapsing(problem.cluster, 18))


def asked(seq: int) -> Problem:
    return load_problem(model="llama-3-70b", cluster=three_hubs(), global_batch=128, seq=seq, runtime="hippo:live")


@pytest.mark.parametrize("name", [pytest.param("receding_horizon", marks=pytest.mark.slow), "hi_ppo"])
def test_a_day_told_to_the_service_leads_to_the_decisions_of_watch(day: Day, name: str, tmp_path: Path):
    wanted, first = replayed(day, name)
    made = day.serve(tmp_path, name, first)
    found = told_by(made, name)
    made.close()
    assert len(wanted) > 2
    assert found == wanted[1:]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["receding_horizon", "hi_ppo"])
def test_the_day_of_the_readme_leads_to_the_decisions_of_watch(name: str, tmp_path: Path):
    cluster, file = load_cluster("four-hubs"), Path("examples/four-hubs-moving.csv")
    problem = load_problem(model="gpt3-175b", cluster="four-hubs", global_batch=256)
    story = watch(problem, file, method=name)
    wanted = [
        (each.epoch, ACTS[each.kind], plan_id(plan_to_document(problem, story.cache.configurations[each.after].plan)))
        for each in story.decisions
        if each.changes
    ]
    first = story.cache.configurations[story.decisions[0].after].plan
    made = Day(problem, load_trace(file, cluster)).serve(tmp_path, name, first)
    found = told_by(made, name)
    made.close()
    assert len(found) > 1
    assert found == wanted[1:]


class MovingByScript:
    """Layers move beside the training and are given up, move again and arrive, move while training stands still."""

    name = "scripted"

    def begin(self, view: View) -> int:
        return 0

    def decide(self, view: View) -> Action:
        if view.phase != STILL:
            return Action(How.CANCEL) if view.epoch == 2 else Action()
        ways = {1: How.BACKGROUND, 3: How.STOP, 8: How.BACKGROUND}
        here = view.cache.location(view.running)
        there = next(index for index in range(len(view.cache)) if view.cache.location(index) != here)
        return Action(ways[view.epoch], there) if view.epoch in ways else Action()


@pytest.mark.slow
def test_moves_take_what_the_rules_make_of_them_and_are_given_up(day: Day, tmp_path: Path):
    quick = 4.0 * day.wire.bandwidth_bytes_per_s[:1]
    calm = Trace(day.wire.time_s[:14], np.tile(quick, (14, 1)), day.wire.latency_s[:14], "a calm day")
    scripted = Day(asked(2048), calm, lambda name: MovingByScript())
    wanted, first = replayed(scripted, "hi_ppo")
    made = scripted.serve(tmp_path, "hi_ppo", first)
    assert [act for _, act, _ in wanted] == [r.BEGIN, r.MOVE, r.CANCEL, r.MOVE, r.MOVE]
    found = told_by(made, MovingByScript.name)
    moved = [each.state for each in made.decisions() if each.act == r.MOVE]
    runs = made.jobs()["j1"].place
    made.close()
    assert [each[:2] for each in found] == [each[:2] for each in wanted[1:]]
    assert [found[at][2] for at in (0, 2, 3)] == [wanted[at][2] for at in (1, 3, 4)]
    assert moved == [r.GIVEN_UP, r.CARRIED_OUT, r.CARRIED_OUT]
    assert runs is not None
    assert runs["plan"] == found[-1][2]


# ------------------------------------------------------------------------------------------- modes, kills, broken ones
class LeversByScript:
    """Pulls another lever in every epoch from the second on."""

    name = "scripted"

    def begin(self, view: View) -> int:
        return 0

    def decide(self, view: View) -> Action:
        cache = view.cache
        here = cache.of_place(cache.configurations[view.running].place)
        return Action(How.SWITCH, next(each for each in here if each != view.running))


@dataclass
class Opened:
    """A job that runs in a service that is turned by hand, and is asked about once."""

    day: Day
    folder: Path
    make: Callable[[str], Method]
    mode: str = r.ACT

    def __post_init__(self) -> None:
        first = scenario_of(self.day.world).cache.configurations[0].plan
        self.run, self.clock = Recorded(self.day.world, first), Clock(BEGINS_S)
        self.made = self.again(self.run)
        self.made.submit(**job_of(self.day.problem, self.day.world.epochs))
        if self.mode != r.ACT:
            self.made.turn()
            (begin,) = self.made.decisions()
            self.made.approve(begin.number)
        until(self.made, lambda: "plan" in (self.made.jobs()["j1"].place or {}))

    def again(self, run: Recorded) -> Served:
        """As a service begins again on the same store."""
        steering = Steering(SteeringTerms("hi_ppo", EPOCH_S), self.day.problem.cluster, BEGINS_S, make=self.make)
        steering.late_s = None
        terms = {"mode": self.mode, "stale_s": 1e9, "table": offer_of(self.day.problem)}
        cluster = self.day.problem.cluster
        return Served.of(url(self.folder), self.clock, run, cluster=cluster, steering=steering, **terms)

    def epoch(self, epoch: int) -> None:
        self.clock.now_s = max(self.clock.now_s, BEGINS_S + epoch * EPOCH_S)
        self.day.push(self.made, epoch)
        assert self.made.loop.steering is not None
        pilots = self.made.loop.steering.pilots
        until(self.made, lambda: "j1" in pilots and pilots["j1"].epoch == epoch and not pilots["j1"].asks)
        self.made.turn()

    @property
    def said(self) -> list[tuple[str, str]]:
        return [(each.act, each.state) for each in self.made.decisions() if each.act in r.STEERED]


@pytest.mark.slow
def test_in_advise_a_lever_waits_for_a_yes_and_is_then_pulled(day: Day, tmp_path: Path):
    opened = Opened(day, tmp_path, lambda name: LeversByScript(), r.ADVISE)
    opened.epoch(0)
    opened.epoch(1)
    assert opened.said == [(r.LEVER, r.PROPOSED)]
    opened.epoch(2)
    assert opened.said == [(r.LEVER, r.PROPOSED)], "what stands is not said again"
    assert [each.act for each in opened.run.orders] == [r.BEGIN]
    (proposed,) = [each for each in opened.made.decisions() if each.act == r.LEVER]
    assert "alternatives" in proposed.why
    opened.made.approve(proposed.number)
    until(opened.made, lambda: (r.LEVER, r.CARRIED_OUT) in opened.said and not opened.made.loop._open)
    place = opened.made.jobs()["j1"].place
    opened.made.close()
    assert [each.act for each in opened.run.orders] == [r.BEGIN, r.LEVER]
    assert place is not None
    assert place["plan"] == (proposed.after or {})["plan"]


def test_a_lever_that_was_written_and_not_told_is_told_again_and_pulled_once(day: Day, tmp_path: Path):
    opened = Opened(day, tmp_path, lambda name: LeversByScript())
    opened.epoch(0)
    told: list[JobOrder] = []
    opened.made.loop.workers["recorded"].order = told.append  # type: ignore[method-assign]
    opened.epoch(1)  # killed between the intent and the act: it is on the disk, and nobody was told
    assert opened.said == [(r.LEVER, r.ORDERED)]
    assert len(told) == 1
    opened.made.close()
    opened.made = opened.again(opened.run)
    until(opened.made, lambda: opened.said == [(r.LEVER, r.CARRIED_OUT)])
    opened.made.close()
    opened.made = opened.again(opened.run)
    opened.made.turn()
    opened.made.close()
    levers = [each for each in opened.run.orders if each.act == r.LEVER]
    assert [each.key for each in levers] == [told[0].key]
    assert levers[0].plan == told[0].plan


@pytest.mark.slow
def test_a_method_that_breaks_gives_way_and_one_that_hangs_holds_up_nothing(day: Day, tmp_path: Path):
    goes_on = Event()

    class Breaks(LeversByScript):
        def decide(self, view: View) -> Action:
            raise RuntimeError("a bad policy")

    class Hangs(LeversByScript):
        name = "receding_horizon"

        def decide(self, view: View) -> Action:
            assert goes_on.wait(300.0)
            return super().decide(view)

    opened = Opened(day, tmp_path, lambda name: Hangs() if name == "receding_horizon" else Breaks())
    steering = opened.made.loop.steering
    assert steering is not None
    opened.epoch(0)
    said: list[str] = []
    steering.tell = said.append
    opened.clock.now_s = BEGINS_S + EPOCH_S
    day.push(opened.made, 1)
    until(opened.made, lambda: steering.pilots["j1"].method.name == "receding_horizon" and steering.pilots["j1"].begun)
    opened.clock.now_s = BEGINS_S + 2 * EPOCH_S
    day.push(opened.made, 2)
    until(opened.made, lambda: steering.pilots["j1"].asks and steering.pilots["j1"].begun)
    steering.late_s = 1e-9
    turns = opened.made.loop.state.turns
    for _ in range(5):
        opened.made.turn()
    assert opened.made.loop.state.turns == turns + 5
    assert "broke over the plan of j1" in said[0]
    assert "took more than" in said[1]
    goes_on.set()
    until(opened.made, lambda: len(said) > 2)
    opened.made.close()
    assert "too late, which is dropped" in said[2]
    assert opened.said == []


@pytest.mark.slow
def test_a_link_that_collapses_within_an_epoch_is_not_waited_with(day: Day, tmp_path: Path):
    opened = Opened(day, tmp_path, lambda name: LeversByScript())
    opened.epoch(0)
    pilot = opened.made.loop.steering.pilots["j1"] if opened.made.loop.steering else None
    assert pilot is not None
    opened.clock.now_s += 30.0
    link = day.problem.cluster.links[0]
    wire = day.wire.bandwidth_bytes_per_s[0, 0]
    for share, asked in ((0.8, 0), (0.3, 1)):
        opened.clock.now_s += 1.0
        opened.made.loop.points(
            [LinkPoint(opened.clock.now_s, link.source, link.destination, share * wire, None, "me")]
        )
        opened.made.turn()
        until(opened.made, lambda: not pilot.asks and not opened.made.loop._open)
        assert len(opened.said) == asked
    opened.made.close()


@pytest.mark.slow
def test_a_link_that_collapses_under_a_real_run_is_answered_by_a_lever_that_the_run_pulls():
    found = measured(1)
    collapse, back = found["rows"]
    assert [each["state"] for each in found["rows"]] == ["done", "done"]
    assert (collapse["act"], collapse["lever"]) == (r.LEVER, "relay")
    assert (back["act"], back["lever"]) == (r.LEVER, "")
    assert [each[:3] for each in found["decisions"]] == [[r.LEVER, r.CARRIED_OUT, "hi_ppo"]] * 2
    assert found["said"] == []
    assert found["steps"] == list(range(1, len(found["steps"]) + 1)), "no step is lost or made twice"
    losses = np.array(found["losses"])
    assert np.abs(np.diff(losses)).max() < 0.3
    assert losses[-5:].mean() < losses[:5].mean()
