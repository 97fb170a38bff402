"""Orders about plans of running jobs when something comes between: moves, ends, refusals, silence, a yes too late; who
is asked, how many at once, and what a pilot remembers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from queue import SimpleQueue
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from hippo.errors import InputError
from hippo.files import write_files
from hippo.problem.load import load_cluster
from hippo.run.control import RefusedError
from hippo.serve import demo
from hippo.serve import records as r
from hippo.serve import worker as worker_module
from hippo.serve.actuators import own as own_module
from hippo.serve.actuators.base import ActuatorError
from hippo.serve.actuators.own import KeptRun, Own, _keep
from hippo.serve.records import JobOrder, LinkPoint, Receipt, SeenJob
from hippo.serve.site import JobChange
from hippo.serve.steering import BEFORE, MOST_AT_ONCE, LinkEpochs, PlanAnswer, PlanPilot, SteeredRun, Steering
from hippo.serve.store import plan_id
from hippo.serve.worker import ActuatorWorker

from .worlds import Clock, Served, until, url

FIRST, OTHER = {"plan": "first"}, {"plan": "other"}
EPOCH_S = 300.0
HUBS = load_cluster("four-hubs")
NAMES = [each.name for each in HUBS.domains]


# --------------------------------------------------------------------------------------------- who is asked, and when
def steered(*jobs: str, domains: int = 2, **told: Any) -> dict[str, SteeredRun]:
    place = {"domains": NAMES[:domains], "gpus": [8] * domains, "plan": "p1"}
    return {name: SteeredRun(name, place, lambda plan: FIRST, **told) for name in jobs}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Who was asked about which epoch: pilots answer at once that nothing is to be done."""
    found: list[tuple[str, int]] = []

    def answer(self: PlanPilot, run: SteeredRun, epoch: int) -> PlanAnswer:
        self._cache = self._cache or SimpleNamespace()  # type: ignore[assignment]
        found.append((self.job, epoch))
        return PlanAnswer(self.job, "", epoch, "m", False, self.plan)

    monkeypatch.setattr(PlanPilot, "_answer", answer)
    return found


def steering() -> Steering:
    made = Steering(terms(), HUBS, 0.0, make=lambda name: SimpleNamespace(name=name))  # type: ignore[arg-type,return-value]
    made.late_s = None
    return made


def terms() -> Any:
    return SimpleNamespace(method="m", epoch_s=EPOCH_S)


def push(made: Steering, time_s: float, share: float = 1.0, *, but: int = 0) -> None:
    links = HUBS.links[but:]
    made.links.add(LinkPoint(time_s, e.source, e.destination, share * e.bandwidth_bytes_per_s) for e in links)


def turned(made: Steering, now_s: float, runs: dict[str, SteeredRun], **how: Any) -> list[PlanAnswer]:
    found = made.turn(now_s, runs, **how)
    for each in made.pilots.values():
        assert not each.asks or each.done.wait(60.0)
    return found


def test_nobody_is_asked_about_a_job_in_one_domain(asked: list[tuple[str, int]]):
    made = steering()
    push(made, 1.0)
    turned(made, 1.0, steered("j1", domains=1) | steered("j2"))
    assert asked == [("j2", 0)]


def test_few_think_at_once_and_nobody_is_left_out(asked: list[tuple[str, int]]):
    made, runs = steering(), steered(*(f"j{at}" for at in range(5)))
    push(made, 1.0)
    turned(made, 1.0, runs)
    assert len(asked) == MOST_AT_ONCE
    for _ in range(3):
        turned(made, 1.0, runs)
    assert sorted(asked) == [(name, 0) for name in runs]


def test_a_late_one_keeps_nobody_from_thinking(monkeypatch: pytest.MonkeyPatch):
    goes_on, made, runs = Event(), steering(), steered(*(f"j{at}" for at in range(MOST_AT_ONCE + 1)))
    monkeypatch.setattr(PlanPilot, "_answer", lambda self, run, epoch: goes_on.wait(60.0) and None)
    push(made, 1.0)
    made.turn(1.0, runs)
    assert sum(each.asks for each in made.pilots.values()) == MOST_AT_ONCE
    for each in made.pilots.values():
        each.late = True
    made.turn(1.0, runs)
    assert all(each.asks for each in made.pilots.values())
    goes_on.set()


def test_a_link_that_had_not_told_when_it_was_asked_and_collapses_is_not_waited_with(asked: list[tuple[str, int]]):
    made, runs = steering(), steered("j1")
    push(made, 1.0)
    turned(made, 1.0, runs)
    push(made, EPOCH_S + 1.0, but=1)  # one link is slower to tell than a tenth of an epoch
    turned(made, EPOCH_S + 40.0, runs)
    assert asked == [("j1", 0), ("j1", 1)]
    push(made, EPOCH_S + 50.0, 0.9)
    turned(made, EPOCH_S + 50.0, runs)
    assert len(asked) == 2
    first = HUBS.links[0]
    made.links.add([LinkPoint(EPOCH_S + 60.0, first.source, first.destination, 0.02 * first.bandwidth_bytes_per_s)])
    turned(made, EPOCH_S + 60.0, runs)
    turned(made, EPOCH_S + 60.0, runs)
    assert asked[2:] == [("j1", 1)]


def test_what_was_asked_before_it_holds_does_not_count(monkeypatch: pytest.MonkeyPatch):
    made, runs = steering(), steered("j1")
    told = PlanAnswer("j1", r.LEVER, 0, "m", True, "p1", FIRST)
    monkeypatch.setattr(PlanPilot, "_answer", lambda self, run, epoch: told)
    push(made, 1.0)
    turned(made, 1.0, runs)
    assert turned(made, 2.0, runs, holds=True) == []


def test_who_gives_way_or_gives_up_forgets_the_move_and_waits_for_its_end(asked: list[tuple[str, int]]):
    made, runs = steering(), steered("j1")
    push(made, 1.0)
    turned(made, 1.0, runs)
    turned(made, 1.0, runs)
    pilot, moves = made.pilots["j1"], steered("j1", ordered=True, arrived=0.5)
    for forgets in (
        lambda: pilot.give_way(pilot.method),
        lambda: made.ordered("j1", r.CANCEL, "p1", ""),
    ):
        pilot._cache, pilot._ids = SimpleNamespace(), {"p1": 0, "p2": 1}  # type: ignore[assignment]
        made.ordered("j1", r.MOVE, "p2", "background")
        assert pilot.move is not None
        assert made._due(pilot, moves["j1"], EPOCH_S + 40.0)
        forgets()
        assert pilot.move is None
        assert not made._due(pilot, moves["j1"], EPOCH_S + 40.0)


def test_what_is_kept_of_links_does_not_grow_without_end():
    links = LinkEpochs(HUBS, 1.0, 0.0)
    links.most = BEFORE
    first = HUBS.links[0]
    for at in range(3 * BEFORE):
        links.add([LinkPoint(float(at), first.source, first.destination, 1e9)])
    assert len(links._rows) == 2 * BEFORE
    many = SimpleNamespace(links=tuple(SimpleNamespace(source=str(at), destination="x") for at in range(20_000)))
    assert LinkEpochs(many, 1.0, 0.0).most == 2 * BEFORE  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------ between two decisions
class Steers:
    """Runs under a plan, and refuses to go elsewhere."""

    name, tells, steers = "own", True, True

    def __init__(self) -> None:
        self.keys: dict[str, str] = {}
        self.acts: list[str] = []

    def lacks(self, spec: Any) -> str:
        return ""

    def carry_out(self, order: JobOrder) -> Receipt:
        self.acts.append(order.act)
        if order.act == r.RESIZE:
            return Receipt(False, "no room", FIRST)
        if order.act == r.STOP:
            self.keys.pop(order.job, None)
            return Receipt(True, "ended")
        self.keys[order.job] = order.key
        return Receipt(True, "runs", order.plan or FIRST)

    def seen(self) -> Sequence[SeenJob]:
        return tuple(SeenJob(name, key, r.RUNNING, 0.5) for name, key in self.keys.items())

    def close(self) -> None:
        pass


class Says(Steering):
    """Answers what it is told to."""

    says: Callable[[SteeredRun], PlanAnswer | None] = staticmethod(lambda run: None)  # type: ignore[assignment]

    def turn(self, now_s: float, runs: Any, *, holds: bool = False) -> list[PlanAnswer]:
        return [each for run in runs.values() if (each := self.says(run)) is not None]


def lever(run: SteeredRun) -> PlanAnswer | None:
    before = str(run.place["plan"])
    if before == plan_id(OTHER):
        return None
    return PlanAnswer(run.job, r.LEVER, 1, "m", True, before, OTHER, "stop", "relay", {"cause": "a test's"})


def begun(folder: Path, mode: str) -> tuple[Served, Steers, str]:
    run = Steers()
    made = Served.of(url(folder), Clock(), run, actuator="own", mode=mode, steering=Says(terms(), HUBS, 0.0))
    name = made.submit(tokens=1e12)
    made.turn()
    for each in made.decisions():
        if mode != r.ACT:
            made.approve(each.number)
    until(made, lambda: "plan" in (made.jobs()[name].place or {}) and not made.loop._open)
    return made, run, name


def states(made: Served) -> list[tuple[str, str]]:
    return [(each.act, each.state) for each in made.decisions() if each.act in r.STEERED]


@pytest.mark.parametrize("how", ["cancelled", "moved"])
def test_what_was_proposed_of_a_plan_is_superseded_once_the_job_does_not_run_under_it(tmp_path: Path, how: str):
    made, _, name = begun(tmp_path, r.ADVISE)
    says: Any = made.loop.steering
    says.says = lever
    made.turn(0.1)
    made.turn(0.1)
    assert states(made) == [(r.LEVER, r.PROPOSED)]
    says.says = lambda run: None
    if how == "cancelled":
        made.loop.cancel(name)
    else:
        made.loop._goes_by(name, {"plan": "a third"}, made.clock())
    made.turn(0.1)
    made.turn(0.1)
    assert states(made) == [(r.LEVER, r.SUPERSEDED)]
    made.close()


def test_a_yes_that_comes_late_changes_nothing(tmp_path: Path):
    made, run, name = begun(tmp_path, r.ADVISE)
    says: Any = made.loop.steering
    says.says = lever
    made.turn(0.1)
    says.says = lambda run: None
    (proposed,) = [each for each in made.decisions() if each.act == r.LEVER]
    made.loop._goes_by(name, {"plan": "a third"}, made.clock())
    made.approve(proposed.number)
    made.turn(0.1)
    made.turn(0.1)
    assert states(made) == [(r.LEVER, r.SUPERSEDED)]
    assert run.acts == [r.BEGIN]
    made.close()


def test_a_move_that_is_refused_leaves_the_job_under_its_plan(tmp_path: Path):
    made, run, name = begun(tmp_path, r.ADVISE)
    now = made.loop.site.places()[name]
    (there,) = [each for each in NAMES if each not in now["domains"]][:1]
    change = JobChange(name, r.RESIZE, now, now | {"domains": [there]})
    assert made.loop.site.carry_out(change)
    made.loop._order(change, made.clock(), {"cause": "a test's"})
    made.loop._steers["o-9-c"] = r.CANCEL  # not answered yet, and no word of where it runs
    made.loop._open[name].add("o-9-c")
    until(made, lambda: r.RESIZE in run.acts and made.loop._open[name] == {"o-9-c"})
    made.turn(0.1)
    place = made.jobs()[name].place or {}
    assert place["domains"] == now["domains"]
    assert place["plan"] == plan_id(FIRST)
    made.close()


def test_a_service_whose_actuators_take_no_orders_for_plans_remembers_no_links(tmp_path: Path):
    made = Served.of(url(tmp_path), Clock(), steering=steering())
    assert made.loop.steering is None
    made.close()


def test_what_gives_a_move_up_and_comes_before_it_gives_it_up_all_the_same():
    comes, given_up, answered = Event(), Event(), list[tuple[str, bool]]()

    class Streams(Steers):
        moves = False

        def carry_out(self, order: JobOrder) -> Receipt:
            if order.act == r.CANCEL:
                if not self.moves:
                    comes.set()
                    return Receipt(False, "nothing is under way")
                given_up.set()
                return Receipt(True, "given up")
            assert comes.wait(60.0)  # the move is told later than what gives it up
            self.moves = True
            return Receipt(not given_up.wait(60.0), "")

    over = Event()

    def take(order: JobOrder, receipt: Receipt) -> None:
        answered.append((order.act, receipt.ok))
        if len(answered) == 2:
            over.set()

    worker = ActuatorWorker(Streams(), answered=take, news=lambda: None)
    worker.order(JobOrder("o-1", r.MOVE, "j1", {}))
    worker.order(JobOrder("o-2", r.CANCEL, "j1", {}))
    assert over.wait(60.0)
    worker.close()
    assert sorted(answered) == [(r.CANCEL, True), (r.MOVE, False)]


def test_an_order_begins_when_the_answer_of_the_one_before_is_on_the_disk():
    told, answers = list[str](), SimpleQueue[JobOrder]()

    class Refuses(Steers):
        def carry_out(self, order: JobOrder) -> Receipt:
            told.append(order.key)
            return Receipt(order.key != "o-1", "")

    worker = ActuatorWorker(Refuses(), answered=lambda order, _: answers.put(order), news=lambda: None)
    first, second, other = (JobOrder(f"o-{n}", r.LEVER, job, {}) for n, job in ((1, "j1"), (2, "j1"), (3, "j2")))
    for each in (first, second):
        worker.order(each)
    assert answers.get(timeout=60.0) == first
    worker.written(other)  # which says nothing of j1
    worker.order(other)
    assert answers.get(timeout=60.0) == other
    assert told == ["o-1", "o-3"]
    worker.written(first)
    assert answers.get(timeout=60.0) == second
    assert told == ["o-1", "o-3", "o-2"]
    worker.close()


def test_orders_that_break_hold_up_those_of_no_other_job():
    answers = SimpleQueue[JobOrder]()

    class Breaks(Steers):
        def carry_out(self, order: JobOrder) -> Receipt:
            if order.job != "fine":
                raise OSError("its folder cannot be written")
            return Receipt(True, "")

    worker = ActuatorWorker(Breaks(), answered=lambda order, _: answers.put(order), news=lambda: None)
    for number in range(2 * worker_module.MOST_AT_ONCE):
        worker.order(JobOrder(f"o-{number}", r.BEGIN, f"j{number}", {}))
    worker.order(fine := JobOrder("o-fine", r.BEGIN, "fine", {}))
    assert answers.get(timeout=60.0) == fine
    worker.close()


# ----------------------------------------------------------------------------------------------------- the run's words
class Client:
    """A run that answers by script."""

    answers: Callable[[dict[str, Any]], dict[str, Any]]

    def __init__(self, path: Path, timeout_s: float = 60.0) -> None:
        pass

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *rest: object) -> None:
        pass

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        return type(self).answers(request)


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Own:
    write_files(tmp_path, demo.files())
    found = Own(tmp_path / "runs", tmp_path / "demo.yaml")
    (found.folder / "j1").mkdir()
    _keep(found.folder / "j1", KeptRun("o-1", "o-1", 10, 1))
    monkeypatch.setattr(own_module, "_alive", lambda home, state: True)
    monkeypatch.setattr(own_module, "RunClient", Client)
    return found


def test_an_order_that_a_run_may_have_taken_is_told_again_and_not_given_up(own: Own):
    asked: list[dict[str, Any]] = []

    def answers(request: dict[str, Any]) -> dict[str, Any]:
        asked.append(request)
        if request.get("ask") == "status":
            if len(asked) == 2:
                raise InputError("does not answer")
            return {"orders": [{"state": "done", "after_step": 7}]}
        return {"accepted": 1}

    Client.answers = staticmethod(answers)  # type: ignore[assignment]
    order = JobOrder("o-2", r.LEVER, "j1", {}, {}, OTHER, "stop")
    with pytest.raises(ActuatorError, match="says nothing"):
        own.carry_out(order)
    again = own.carry_out(order)
    assert (again.ok, again.plan) == (True, OTHER)
    assert [each["key"] for each in asked if "key" in each] == ["o-2", "o-2"]


def test_a_run_that_says_no_is_believed(own: Own):
    def answers(request: dict[str, Any]) -> dict[str, Any]:
        raise RefusedError("no such domain")

    Client.answers = staticmethod(answers)  # type: ignore[assignment]
    refused = own.carry_out(JobOrder("o-2", r.LEVER, "j1", {}, {}, OTHER, "stop"))
    assert (refused.ok, refused.told) == (False, "no such domain.")


def test_nothing_but_an_order_for_the_plan_is_given_up(own: Own):
    """A move to other devices that the queue has ordered is not."""
    Client.answers = staticmethod(lambda request: pytest.fail(f"asked {request}"))  # type: ignore[assignment]
    assert not own.carry_out(JobOrder("o-3", r.CANCEL, "j1", {})).ok
