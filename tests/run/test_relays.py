"""Ways through a third domain whose porter leaves, dies, stops or begins anew: losses are those of one process."""

from __future__ import annotations

import json
import signal
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from hippo.plan.codec import plan_to_document
from hippo.plan.plan import Plan, Sync
from hippo.run import run as launcher
from hippo.run.control import Desk
from hippo.run.executor import sockets
from hippo.run.executor.relaying import RelayPorter, RelayReceiver, RelaySender, relayed
from hippo.run.executor.warming import turns
from hippo.run.job import RunJob, RunOptions
from hippo.run.journal import Journal, read_journal
from hippo.run.model.reference import losses
from hippo.run.model.stage import settings_of
from hippo.run.run import Crew, Result, RunStep, run

from ..judges.local_sgd_replicas import local_losses
from .test_run import _none_left  # noqa: F401
from .worlds import GPT2, PLANS, TWINS, pipelines, problem, relaying

STAGES = PLANS["stages"][1]
EMPTY = relaying(STAGES, "abc", "bac")
"""Through a domain without a stage."""
PORTER = 2


def send_much(sender: RelaySender, told: torch.Tensor) -> None:
    for _ in range(1000):  # the first may still go into the system's buffers
        sender.send([told], 1, 7).wait()


def test_who_waits_where_a_porter_leaves_waits_on_and_who_sends_hears_of_it(tmp_path: Path):
    with ThreadPoolExecutor(3) as pool:
        ends = list(pool.map(lambda me: relayed(tmp_path / "way", (4, 6, 5), me, 20.0), (4, 5, 6)))
    sender, receiver, porter = ends
    assert isinstance(sender, RelaySender)
    assert isinstance(receiver, RelayReceiver)
    assert isinstance(porter, RelayPorter)
    into, told = torch.zeros(3), torch.arange(3.0)
    one = receiver.recv([into], 0, 7)
    sender.send([told], 1, 8).wait()  # comes before it is asked for
    sender.send([told + 1.0], 1, 7).wait()
    one.wait()
    assert into.tolist() == [1.0, 2.0, 3.0]
    receiver.recv([into], 0, 8).wait()
    assert into.tolist() == [0.0, 1.0, 2.0]
    waits = receiver.recv([into], 0, 7)
    porter.close()
    while receiver._connection.fileno() >= 0:
        time.sleep(0.001)
    assert not waits._over.is_set(), "nobody is told of what nobody may need"
    with pytest.raises(RuntimeError, match="the way through a third domain broke"):
        send_much(sender, told)
    for end in (sender, receiver):
        end.close()


def test_strangers_who_say_nothing_or_something_else_are_not_met(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sockets, "HELLO_S", 0.05)
    listening = sockets.Listening(tmp_path / "place", 3, 20.0)
    told = json.loads((tmp_path / "place").read_text())
    silent, wrong = (socket.create_connection((told["address"], told["port"])) for _ in range(2))
    wrong.sendall(bytes(20))
    mine = sockets.connected(tmp_path / "place", 7, 20.0)
    came, number = listening.accept()
    assert (number, came.gettimeout()) == (7, None)
    for each in (silent, wrong, mine, came):
        each.close()
    listening.close()


def test_where_the_system_gives_up_a_connection_it_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """As over a link that is dead: the launcher alone says when it has been too long."""
    listening, tries, connect = sockets.Listening(tmp_path / "place", 1, 20.0), list[int](), socket.create_connection

    def third(*where: Any, **terms: Any) -> socket.socket:
        tries.append(1)
        if len(tries) < 3:
            raise TimeoutError
        return connect(*where, **terms)

    monkeypatch.setattr(socket, "create_connection", third)
    mine = sockets.connected(tmp_path / "place", 7, 20.0)
    came, number = listening.accept()
    assert (len(tries), number) == (3, 7)
    for each in (mine, came, listening):
        each.close()
    tries.clear()
    with pytest.raises(TimeoutError):
        sockets.connected(tmp_path / "place", 7, 20.0, unwanted=lambda: True)


def job(plan: Plan, **options: Any) -> RunJob:
    given = replace(problem(GPT2, names="abc"), runtime="hippo", allow_local_sgd=plan.sync.method == "local_sgd")
    return RunJob(given, plan, RunOptions(**{"steps": 7, "precision": "fp64", "timeout_s": 20.0, **options}))


def order(kind: str, after: int, **values: Any) -> dict[str, Any]:
    return {"order": kind, "key": f"{kind} {after}", "after_step": after, **values}


def relay(via: str, after: int) -> dict[str, Any]:
    return order("relay", after, source="a", destination="b", via=via)


def ran(
    began: RunJob,
    folder: Path,
    *orders: dict[str, Any],
    disturbed: Callable[[int, Crew], None] = lambda step, crew: None,
) -> tuple[Result, list[str], list[Crew]]:
    """A run that was asked for orders before its first step; what became of them."""
    crews: list[Crew] = []
    desk = Desk(began, Journal(folder / "journal"))
    assert [desk.answer(each)["accepted"] for each in orders] == [at + 1 for at in range(len(orders))]

    def watch(step: RunStep) -> None:
        desk.made(step)
        disturbed(step.number, crews[0])

    def crew_of(*terms: Any) -> Crew:
        crews.append(Crew(*terms))
        return crews[0]

    found = run(began, watch=watch, changes=desk, crew_of=crew_of)
    desk.close()
    return found, [each["state"] for each in desk.status()["orders"]], crews


def sent(number: signal.Signals, process: int, *, at: int) -> Callable[[int, Crew], None]:
    """A signal to a process after a step."""
    return lambda step, crew: crew.processes[process].send_signal(number) if step == at else None


def check_losses(began: RunJob, found: Result) -> None:
    expected = list(losses(began.problem, settings_of(began), steps=began.options.steps, micro_batch=2))
    assert [step.loss for step in found.steps] == pytest.approx(expected, rel=1e-9)


def test_new_ways_are_warm_when_they_are_used_and_old_ones_are_kept(tmp_path: Path) -> None:
    """Activations and gradients through c: two connections each."""
    far = replace(problem(GPT2, names="abc", latency_s=0.0025), runtime="hippo")
    began = replace(job(STAGES), problem=far)
    found, states, _ = ran(began, tmp_path, relay("c", 2), relay("none", 3), relay("c", 4))
    assert states == ["done"] * 3
    changes = [each.change for each in found.stretches if each.change is not None]
    assert [each.warmed_bytes for each in changes] == [4 * sum(turns(5e5)), 0, 4 * sum(turns(5e5))]
    assert sum(each["warmed_bytes"] for each in read_journal(tmp_path / "journal") if each["kind"] == "done") > 0
    check_losses(began, found)


@pytest.mark.slow
@pytest.mark.parametrize("after", [2, None])
def test_an_order_through_a_porter_that_hangs_is_given_up_and_the_run_goes_on(
    after: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stops as it starts: the others wait for it, and are asked for something else afterwards."""
    began, crews = job(STAGES, steps=30, timeout_s=4.0), list[Crew]()
    desk = Desk(began, Journal(tmp_path / "journal"))
    assert desk.answer(relay("c", after) if after else _at_once(relay("c", 2))) == {"accepted": 1}

    class Stops(Crew):
        def start(self, number: int, domain: str, worker: Any) -> None:
            super().start(number, domain, worker)
            crews[:] = [self]
            if worker is None:
                self.processes[number].send_signal(signal.SIGSTOP)

    def watch(step: RunStep) -> None:
        desk.made(step)
        monkeypatch.setattr(launcher, "START_S", 1.0)
        time.sleep(0.3)
        if desk.status()["orders"][0]["state"] == "given up" and len(desk.status()["orders"]) == 1:
            desk.answer(_at_once(order("schedule", 0, name="gpipe")))

    found = run(began, watch=watch, changes=desk, crew_of=Stops)
    desk.close()
    told = desk.status()["orders"]
    assert [each["state"] for each in told] == ["given up", "done"]
    assert "make ready" in told[0]["why"]
    assert [each.job.plan.schedule.name for each in found.stretches] == ["1f1b", "gpipe"]
    assert not crews[0].processes
    check_losses(began, found)


def _at_once(asked: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in asked.items() if name != "after_step"}


@pytest.mark.slow
@pytest.mark.parametrize("late", [0, 1])
def test_replicas_that_train_alone_go_through_a_porter_and_no_more(late: int, tmp_path: Path):
    """Sums of local SGD are asked for long before they begin, and may be under way when the porter is to leave."""
    began = job(replace(TWINS, sync=Sync("local_sgd", 3)), steps=9, outer_late=late)
    found, states, crews = ran(began, tmp_path, relay("c", 2), relay("none", 6))
    assert states == ["done", "done"]
    assert [each.change.lost for each in found.stretches if each.change is not None] == ["", ""]
    assert not crews[0].processes
    if not late:
        expected = list(local_losses(began, settings_of(began)))
        assert [step.loss for step in found.steps] == pytest.approx(expected, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("how", "patience_s"), [(signal.SIGKILL, 20.0), (signal.SIGSTOP, 4.0)])
def test_where_a_porter_is_lost_messages_go_directly_and_orders_are_done(
    how: signal.Signals, patience_s: float, tmp_path: Path
):
    began = job(EMPTY, timeout_s=patience_s)
    gpipe = order("schedule", 5, name="gpipe")
    found, states, _ = ran(began, tmp_path, gpipe, disturbed=sent(how, PORTER, at=2))
    plans = [each.job.plan for each in found.stretches]
    assert [(plan.relays, plan.schedule.name) for plan in plans[1:]] == [((), "1f1b"), ((), "gpipe")]
    assert (states, len(plans)) == (["done"], 3)
    check_losses(began, found)


@pytest.mark.slow
def test_a_porter_that_takes_the_place_of_a_lost_replica_is_nobody_else(tmp_path: Path):
    """A replica over b and c is lost, so c has no stage; when it joins again its processes are in their own domains."""
    lines = pipelines((2, [("a", 0, 3, 1, 1), ("b", 3, 6, 1, 1)]), (2, [("b", 0, 3, 1, 1), ("c", 3, 6, 1, 1)]))
    two = Plan(lines, 2)
    began = job(relaying(two, "abc", "bac"))
    back = order("plan", 5, plan=plan_to_document(began.problem, two))
    wrong: list[int] = []

    def disturbed(step: int, crew: Crew) -> None:
        if step == 2:
            crew.processes[2].kill()
        members = dict(crew._workers)
        wrong.extend(
            number for number in crew.processes if number in members and crew._domains[number] != members[number].domain
        )

    found, states, _ = ran(began, tmp_path, back, disturbed=disturbed)
    assert (states, wrong) == (["done"], [])
    check_losses(began, found)
