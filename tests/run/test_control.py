"""Orders to a running job: numbered, written down before they act, done once, refused with a reason."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from hippo.emulate.emulation import DomainPlace, Emulation
from hippo.errors import InputError
from hippo.front_door.running import checked_then
from hippo.plan.codec import plan_to_document
from hippo.plan.plan import Pipeline, Plan, Sync
from hippo.problem.problem import Problem
from hippo.run import control
from hippo.run import fits as room
from hippo.run.change import Changed, PlanChange, Planned, joined, under, without
from hippo.run.control import MOST_UNREAD, PROTOCOL, Desk, RunClient, StandingOrder, listening, standing
from hippo.run.handover import Hand
from hippo.run.job import RunJob, RunOptions
from hippo.run.journal import Journal, read_journal
from hippo.run.model.reference import losses
from hippo.run.model.stage import settings_of
from hippo.run.run import RunStep, run
from hippo.score.judge import fits

from .test_run import _none_left  # noqa: F401
from .worlds import GPT2, PLANS, pipelines, problem

STAGES = PLANS["stages"][1]
LANES = PLANS["two lanes a domain"][1]
MOVED = Plan(pipelines((4, [("a", 0, 5, 1, 1), ("b", 5, 6, 1, 1)])), 2)


def job(plan: Plan = STAGES, **options: Any) -> RunJob:
    return RunJob(problem(GPT2), plan, RunOptions(**{"steps": 8, "precision": "fp64", "timeout_s": 20.0, **options}))


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(job(), Journal(tmp_path / "journal"))
    yield made
    made.close()


def asked(kind: str, key: str = "one", /, **values: Any) -> dict[str, Any]:
    return {"order": kind, "key": key, **values}


# ------------------------------------------------------------------------------------------------------------- orders
def test_an_order_is_written_down_before_it_is_answered_and_done_once(desk: Desk, tmp_path: Path):
    assert desk.answer(asked("schedule", name="gpipe")) == {"accepted": 1}
    assert desk.answer(asked("schedule", name="gpipe")) == {"accepted": 1}
    assert desk.answer(asked("micro-batch", "two", size=1)) == {"accepted": 2, "follows": 1}
    written = read_journal(tmp_path / "journal")
    assert [line.get("order") for line in written] == [None, 1, 2]
    first = desk.due(0, job())
    assert first is not None
    assert (first.order, first.plan.schedule.name) == (1, "gpipe")
    second = desk.due(0, job(first.plan))
    assert second is not None
    assert (second.plan.micro_batch, second.plan.schedule.name) == (1, "gpipe"), "upon the one before"
    assert desk.due(0, job()) is None


def test_what_became_of_an_order_is_told(desk: Desk, tmp_path: Path):
    desk.answer(asked("schedule", name="gpipe"))
    change = desk.due(3, job())
    assert change is not None
    desk.made(RunStep(3, 0.5, 4.0))
    desk.changed(Changed(1, 3, {}, 0.0, 0.1, 0.2, 0, 0.3), job(change.plan))
    told = desk.status()
    assert (told["step"], told["step_s"], told["orders"][0]["state"]) == (3, 0.5, "done")
    assert [line["kind"] for line in read_journal(tmp_path / "journal")] == ["begun", "order", "step", "done"]


def test_when_a_replica_is_lost_what_comes_next_is_asked_of_who_is_left(tmp_path: Path):
    """The plan of before is no change while all are there; once one is lost it brings it back."""
    whole = job(PLANS["two lanes a domain"][1])
    desk, left = Desk(whole, Journal(tmp_path / "journal")), without(whole, [3])
    assert left is not None
    back = asked("plan", plan=plan_to_document(whole.problem, whole.plan))
    assert "changes nothing" in desk.answer({**back})["refused"]
    lost = Changed(0, 1, {}, 0.0, 0.0, 0.2, 0, 0.2, lost="rank 3 was ended by signal 9")
    desk.changed(lost, under(whole, left))
    assert desk.answer({**back, "key": "two"}) == {"accepted": 1}
    change = desk.due(2, under(whole, left))
    assert change is not None
    assert change.plan == whole.plan
    desk.changed(lost, under(whole, left))  # another one, while that is under way
    assert "changes nothing" in desk.answer({**back, "key": "three"})["refused"], "it is asked for already"
    desk.close()


def test_a_lever_that_waits_when_a_replica_is_lost_brings_it_not_back(tmp_path: Path):
    whole = job(LANES)
    left = without(whole, [2, 3])
    assert left is not None
    desk, now = Desk(whole, Journal(tmp_path / "journal")), under(whole, left)
    assert desk.answer(asked("schedule", "a", name="gpipe")) == {"accepted": 1}
    assert desk.answer(asked("shares", "b", waves=[3, 1])) == {"accepted": 2, "follows": 1}
    first = desk.due(1, whole)
    assert first is not None
    desk.again(first)
    desk.changed(Changed(0, 1, {}, 0.0, 0.0, 0.2, 0, 0.2, lost="rank 3 was ended by signal 9"), now)
    change = desk.due(1, now)
    assert change is not None
    assert change.plan == replace(left, schedule=replace(left.schedule, name="gpipe"))
    now = under(now, change.plan)
    desk.changed(Changed(1, 2, {}, 0.0, 0.0, 0.0, 0, 0.0), now)
    assert desk.due(3, now) is None
    told = desk.status()["orders"]
    assert (told[0]["state"], told[1]["state"]) == ("done", "given up")
    assert "for each of 1 pipelines" in told[1]["why"]
    desk.close()


def test_what_comes_after_an_order_that_is_given_up_is_asked_without_it(tmp_path: Path):
    """Where it is still possible: another size of micro-batches is, their share among replicas was of that size."""
    whole = job(LANES)
    desk = Desk(whole, Journal(tmp_path / "journal"))
    assert desk.answer(asked("schedule", "a", name="gpipe", after_step=4)) == {"accepted": 1}
    alone = plan_to_document(whole.problem, replace(LANES, pipelines=pipelines((4, [("a", 0, 6, 1, 2)]))))
    assert desk.answer(asked("plan", "b", plan=alone)) == {"accepted": 2, "follows": 1}
    assert desk.answer(asked("all-reduce", "c", way="ring")) == {"accepted": 3, "follows": 2}
    assert desk.answer({"order": "give-up", "key": "e", "number": 2}) == {"accepted": 4}
    first = desk.due(4, whole)
    assert first is not None
    now = under(whole, first.plan)
    desk.changed(Changed(1, 4, {}, 0.0, 0.0, 0.0, 0, 0.0), now)
    assert desk.due(4, now) is None, "which is given up"
    left = desk.due(4, now)
    assert left is not None
    assert (left.order, left.plan) == (3, replace(now.plan, sync=Sync(all_reduce="ring")))
    assert [each["state"] for each in desk.status()["orders"]] == ["done", "given up", "accepted", "done"]
    desk.close()


def test_a_key_is_of_one_order(desk: Desk):
    assert desk.answer(asked("schedule", name="gpipe")) == {"accepted": 1}
    told = desk.answer(asked("micro-batch", size=1))["refused"]
    assert "key: is that of another order, 1 (got 'schedule'). To fix: give each order a key of its own" in told
    assert desk.answer({"order": "give-up", "key": "two"}) == {"accepted": 2}
    assert desk.answer({"order": "give-up", "key": "two"}) == {"accepted": 2}
    assert "is that of another order" in desk.answer({"order": "give-up", "key": "two", "number": 7})["refused"]


def test_a_domain_leaves_and_joins(tmp_path: Path):
    """What is left shares out the batch; who joins lies as another one does, on devices that nobody uses."""
    whole = job(LANES)
    desk = Desk(whole, Journal(tmp_path / "journal"))
    assert desk.answer(asked("leave", "a", domain="b")) == {"accepted": 1}
    change = desk.due(1, whole)
    assert change is not None
    assert change.plan.pipelines == (replace(LANES.pipelines[0], num_micro_batches=4),)
    now = under(whole, change.plan)
    desk.changed(Changed(1, 1, {}, 0.0, 0.0, 0.0, 0, 0.0), now)
    assert desk.answer(asked("join", "b", domain="b")) == {"accepted": 2}
    assert desk.answer(asked("join", "c", domain="a", like=1)) == {"accepted": 3, "follows": 2}
    second = desk.due(1, now)
    assert second is not None
    assert second.plan == LANES
    third = desk.due(1, under(whole, second.plan))
    assert third is not None
    lines = third.plan.pipelines
    assert [line.stages[0].devices for line in lines] == [("a/0/0", "a/0/1"), ("b/0/0", "b/0/1"), ("a/0/2", "a/0/3")]
    assert [line.num_micro_batches for line in lines] == [2, 1, 1]
    for order, told in (
        (asked("leave", "d", domain="c"), "unknown domain 'c'"),
        (asked("join", "d", domain="c"), "unknown domain 'c'"),
        (asked("join", "d", domain="b", like=3), "is no pipeline of the plan"),
    ):
        assert told in desk.answer(order)["refused"]
    desk.close()


def test_who_joins_lies_as_tightly_as_it_can():
    """Groups of one and of eight, where one node has eight devices free and another seven."""
    world = problem(GPT2)
    used = replace(LANES.pipelines[0].stages[0], devices=("a/1/0",), dp=1)
    wide = replace(used, domain="b", layers=(3, 6), tp=8, devices=tuple(f"b/0/{each}" for each in range(8)))
    one = replace(used, domain="b", layers=(0, 3), devices=("b/1/0",))
    lines = Pipeline((used,), 1), Pipeline((one, wide), 1)
    found = joined(RunJob(world, replace(LANES, pipelines=lines), RunOptions()), world.cluster.domains[0], 1)
    assert [stage.devices for stage in found.stages] == [("a/1/1",), tuple(f"a/0/{each}" for each in range(8))]


def test_what_has_no_room_does_not_join_and_whose_layers_nobody_else_has_does_not_leave(tmp_path: Path):
    desk = Desk(job(STAGES), Journal(tmp_path / "journal"))
    assert "no replica is whole without it" in desk.answer(asked("leave", domain="b"))["refused"]
    desk.close()
    world = problem(GPT2)
    full = tuple(replace(domain, nodes=1, gpus_per_node=2) for domain in world.cluster.domains)
    small = replace(world, cluster=replace(world.cluster, domains=full))
    desk = Desk(RunJob(small, LANES, RunOptions(steps=8)), Journal(tmp_path / "other"))
    told = desk.answer(asked("join", domain="a"))["refused"]
    assert "has no room for 2 devices" in told
    assert "0 of it are free" in told
    desk.close()
    two = replace(LANES, pipelines=tuple(replace(line, num_micro_batches=1) for line in LANES.pipelines), micro_batch=2)
    desk = Desk(job(two), Journal(tmp_path / "third"))
    assert "cannot share out 4 micro-batches" in desk.answer(asked("join", domain="a"))["refused"]
    desk.close()


def test_an_order_needs_room_for_what_it_adds_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A lever moves nothing, however little is free; who joins needs a process and its layers."""
    monkeypatch.setattr(room, "available_bytes", lambda: 1e6)
    desk = Desk(job(LANES), Journal(tmp_path / "journal"))
    assert desk.answer(asked("schedule", "a", name="gpipe")) == {"accepted": 1}
    assert (
        "needs 0.503 GB on this machine, which has 0.001 GB free"
        in desk.answer(asked("join", "b", domain="a"))["refused"]
    )
    desk.close()


def test_who_comes_to_train_alone_needs_room_for_an_outer_optimizer():
    """Four numbers more of each parameter that stays, and all of one that is handed over."""
    whole = job(replace(LANES, sync=Sync("local_sgd", 2)))
    parameters, wide = 4 * GPT2.parameters, 8  # two lanes in each of two domains, fp64
    assert room.added_bytes(whole, (), 0) == 0.0
    assert room.added_bytes(whole, (), 0, comes_apart=True) == 4 * wide * parameters
    one = Hand(0, (0,), 2)
    layer = GPT2.layers[0].parameters
    assert room.added_bytes(whole, (one,), 0, comes_apart=True) == 4 * wide * parameters + 4 * wide * layer


def test_an_order_keeps_to_the_memory_that_the_plan_kept_to(tmp_path: Path):
    """GPipe holds all 32 micro-batches at once, 1F1B two."""
    world = problem(GPT2, batch=64)
    plan = replace(STAGES, pipelines=tuple(replace(line, num_micro_batches=32) for line in STAGES.pipelines))

    def of(size: float) -> Problem:
        cluster = world.cluster
        return replace(world, cluster=replace(cluster, gpu=replace(cluster.gpu, memory_bytes=size)))

    low, high = 0.0, world.cluster.gpu.memory_bytes
    while high - low > 1:
        middle = (low + high) / 2
        low, high = (low, middle) if fits(of(middle), plan) else (middle, high)
    tight = of(high)
    desk = Desk(RunJob(tight, plan, RunOptions(steps=8)), Journal(tmp_path / "journal"))
    told = desk.answer(asked("schedule", name="gpipe"))["refused"]
    assert "does not fit into the memory of its devices" in told
    assert "accepted" in desk.answer(asked("micro-batch", "two", size=1))
    desk.close()


def test_a_stand_in_has_no_loss(tmp_path: Path):
    desk = Desk(job(stand_in=True), Journal(tmp_path / "journal"))
    desk.made(RunStep(1, 0.5, 0.0))
    assert desk.status()["loss"] is None
    assert "hippo_run_loss{" not in desk.answer({"ask": "metrics"})["metrics"]
    desk.close()


def test_links_are_moved_where_they_are_emulated(desk: Desk):
    asked_ = {"ask": "link", "from": "a", "to": "b", "gbps": 1, "latency_ms": 1}
    assert "this run has none" in desk.answer(asked_)["refused"]


def test_who_goes_on_from_a_checkpoint_carries_out_the_orders_that_stood(tmp_path: Path):
    """Order 1 was done before the checkpoint, 2 after it, 3 given up, 4 only acknowledged before the launcher was
    killed: the run goes on under 1, does 2 after the same step, and 4 as soon as it can."""
    first = Desk(job(), Journal(tmp_path / "journal"))
    now = job()
    for number, (after, size) in enumerate([(1, 1), (4, 4)], 1):
        assert first.answer(asked("micro-batch", f"{number}", size=size, after_step=after)) == {"accepted": number}
        change = first.due(after, now)
        assert change is not None
        now = under(now, change.plan)
        first.changed(Changed(number, after, {}, 0.0, 0.0, 0.0, 0, 0.0), now)
    assert first.answer(asked("schedule", "3", name="gpipe")) == {"accepted": 3}
    third = first.due(4, now)
    assert third is not None
    first.gave_up(third, "somebody died")
    assert first.answer(asked("micro-batch", "4", size=2)) == {"accepted": 4}
    first.close()
    for _ in range(2):  # whoever goes on twice finds the same
        again = Desk(job(first_step=3, resume_from="step-2"), Journal(tmp_path / "journal"))
        assert [each["state"] for each in again.status()["orders"]] == ["done", "accepted", "given up", "accepted"]
        assert again.answer(asked("schedule", "3", name="gpipe")) == {"accepted": 3}, (
            "it is not done though it is asked"
        )
        assert (again.job.plan.micro_batch, again.job.options.resume_from) == (1, "step-2")
        assert again.answer(asked("micro-batch", "1", size=1, after_step=1)) == {"accepted": 1}, "it is known"
        second = again.due(2, again.job)
        assert second is not None
        assert (second.plan.micro_batch, second.after_step) == (4, 4)
        fourth = again.due(4, under(again.job, second.plan))
        assert fourth is not None
        assert (fourth.plan.micro_batch, fourth.after_step) == (2, None)
        again.close()


def test_what_was_given_up_before_a_crash_stays_given_up(tmp_path: Path):
    """Nobody had said yet that it was; and who asks for that again gives up nothing else."""
    first = Desk(job(), Journal(tmp_path / "journal"))
    assert first.answer(asked("micro-batch", "A", size=1, after_step=6)) == {"accepted": 1}
    assert first.answer(asked("give-up", "G")) == {"accepted": 2}
    assert first.answer(asked("micro-batch", "B", size=4, after_step=7)) == {"accepted": 3, "follows": 1}
    first.close()
    again = Desk(job(first_step=3, resume_from="step-2"), Journal(tmp_path / "journal"))
    assert [each["state"] for each in again.status()["orders"]] == ["given up", "done", "accepted"]
    assert again.answer(asked("give-up", "G")) == {"accepted": 2}
    change = again.due(2, again.job)
    assert change is not None
    assert (change.plan.micro_batch, change.after_step) == (4, 7)
    again.close()


def test_a_crash_as_a_run_goes_on_loses_no_order(tmp_path: Path):
    """Of the second run the first line alone is on the disk, and half of the next."""
    path = tmp_path / "journal"
    first = Desk(job(), Journal(path))
    assert first.answer(asked("micro-batch", "A", size=1)) == {"accepted": 1}
    change = first.due(1, job())
    assert change is not None
    first.changed(Changed(1, 1, {}, 0.0, 0.0, 0.0, 0, 0.0), under(job(), change.plan))
    assert first.answer(asked("micro-batch", "B", size=4, after_step=6)) == {"accepted": 2}
    first.close()
    whole = path.read_bytes().count(b"\n")
    Desk(job(first_step=3, resume_from="step-2"), Journal(path)).close()
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[: whole + 1]) + lines[whole + 1][:20])
    again = Desk(job(first_step=3, resume_from="step-2"), Journal(path))
    assert [each["state"] for each in again.status()["orders"]] == ["done", "accepted"]
    assert again.job.plan.micro_batch == 1
    again.close()


def test_an_order_that_is_not_due_in_a_short_run_stands_for_the_next(tmp_path: Path):
    first = Desk(job(steps=20), Journal(tmp_path / "journal"))
    assert first.answer(asked("micro-batch", "A", size=1, after_step=9)) == {"accepted": 1}
    first.close()
    short = Desk(job(first_step=5, steps=3, resume_from="step-4"), Journal(tmp_path / "journal"))
    (told,) = short.status()["orders"]
    assert (told["order"], told["kind"], told["state"]) == (1, "micro-batch", "given up")
    assert "it is not carried out in this run: order: is not within the run" in told["why"]
    short.close()
    again = Desk(job(first_step=8, steps=20, resume_from="step-7"), Journal(tmp_path / "journal"))
    change = again.due(7, again.job)
    assert change is not None
    assert (change.plan.micro_batch, change.after_step) == (1, 9)
    again.close()


def test_who_goes_on_carries_out_in_turn_what_was_done_late_and_what_was_not(tmp_path: Path):
    """The first came late, after the step that the second was for: that one follows it all the same."""
    first = Desk(job(steps=20), Journal(tmp_path / "journal"))
    assert first.answer(asked("schedule", "A", name="gpipe")) == {"accepted": 1}
    assert first.answer(asked("micro-batch", "B", size=1, after_step=12)) == {"accepted": 2, "follows": 1}
    change = first.due(1, job())
    assert change is not None
    first.changed(Changed(1, 13, {}, 0.0, 0.0, 0.0, 0, 0.0), under(job(), change.plan))
    first.close()
    again = Desk(job(first_step=11, steps=10, resume_from="step-10"), Journal(tmp_path / "journal"))
    assert [each["state"] for each in again.status()["orders"]] == ["accepted", "accepted"]
    found = [again.due(10, again.job), again.due(10, again.job)]
    assert [(each.order, each.after_step) for each in found if each is not None] == [(1, 13), (2, None)]
    again.close()


def test_a_key_is_known_to_who_goes_on_whatever_became_of_its_order(tmp_path: Path):
    """Done before the checkpoint, done after it, not done: each answers as it did, and does nothing again."""
    first = Desk(job(steps=20), Journal(tmp_path / "journal"))
    orders = [
        asked("schedule", "A", name="gpipe"),
        asked("micro-batch", "B", size=1, after_step=12),
        asked("schedule", "C", name="1f1b"),
    ]
    for number, order in enumerate(orders, start=1):
        assert first.answer(dict(order))["accepted"] == number
    now = job()
    for number, after in ((1, 4), (2, 12)):
        change = first.due(after, now)
        assert change is not None
        now = under(now, change.plan)
        first.changed(Changed(number, after, {}, 0.0, 0.0, 0.0, 0, 0.0), now)
    first.close()
    for step in (3, 10, 15):
        again = Desk(job(first_step=step + 1, steps=10, resume_from=f"step-{step}"), Journal(tmp_path / "journal"))
        assert [again.answer(dict(order))["accepted"] for order in orders] == [1, 2, 3]
        again.close()


def test_what_was_ordered_to_who_was_left_is_void_where_those_lost_are_there_again(tmp_path: Path):
    """Done or not; what was asked before the loss holds, and what was asked of a plan since."""
    whole = job(LANES, steps=20)
    left = without(whole, [2, 3])
    assert left is not None
    plan = replace(LANES, pipelines=pipelines((4, [("a", 0, 6, 1, 2)])))
    first = Desk(whole, Journal(tmp_path / "journal"))
    assert first.answer(asked("shares", "A", waves=[3, 1], after_step=19 - 1)) == {"accepted": 1}
    lost = Changed(0, 3, {}, 0.0, 0.0, 0.2, 0, 0.2, lost="rank 3 was ended by signal 9")
    first.changed(lost, under(whole, left))
    assert first.answer({"order": "give-up", "key": "B", "number": 1}) == {"accepted": 2}
    assert first.due(4, under(whole, left)) is None
    now = under(whole, left)
    told = []
    for key, order in (
        ("C", asked("join", "C", domain="b")),
        ("D", asked("plan", "D", plan=plan_to_document(whole.problem, plan))),
        ("E", asked("join", "E", domain="b")),
    ):
        number = first.answer(order)["accepted"]
        change = first.due(5, now)
        assert change is not None, key
        now = under(now, change.plan)
        first.changed(Changed(number, 5, {}, 0.0, 0.0, 0.0, 0, 0.0), now)
        told.append(number)
    first.close()
    again = Desk(job(LANES, steps=14, first_step=7, resume_from="step-6"), Journal(tmp_path / "journal"))
    states = {each["order"]: (each["state"], each.get("why")) for each in again.status()["orders"]}
    assert [states[number] for number in told] == [("given up", control.THERE_AGAIN), ("done", None), ("done", None)]
    assert len(again.job.plan.pipelines) == 2
    again.close()


def test_a_run_that_is_refused_after_all_voids_nothing(tmp_path: Path):
    """It was of another plan file, under which orders of before do not hold."""
    first = Desk(job(), Journal(tmp_path / "journal"))
    assert first.answer(asked("micro-batch", "A", size=1)) == {"accepted": 1}
    first.close()
    wrong = Desk(job(LANES, first_step=3, resume_from="step-2"), Journal(tmp_path / "journal"))
    wrong.not_begun("is of 2 replicas that train alone")
    wrong.close()
    again = Desk(job(first_step=3, resume_from="step-2"), Journal(tmp_path / "journal"))
    assert [each["state"] for each in again.status()["orders"]] == ["accepted"]
    again.close()


def test_an_order_that_stands_is_done_in_turn_though_another_was_done_before_it(tmp_path: Path):
    """The first is for step 50, which a short run does not reach; in that one another was done after step 10."""
    first = Desk(job(steps=60), Journal(tmp_path / "journal"))
    assert first.answer(asked("schedule", "A", name="gpipe", after_step=50)) == {"accepted": 1}
    first.close()
    short = Desk(job(steps=19, first_step=2, resume_from="step-1"), Journal(tmp_path / "journal"))
    assert short.answer(asked("micro-batch", "B", size=1)) == {"accepted": 2}
    change = short.due(10, short.job)
    assert change is not None
    short.changed(Changed(2, 10, {}, 0.0, 0.0, 0.0, 0, 0.0), under(short.job, change.plan))
    short.close()
    third = Desk(job(steps=45, first_step=16, resume_from="step-15"), Journal(tmp_path / "journal"))
    assert (third.job.plan.micro_batch, third.job.plan.schedule.name) == (1, "1f1b")
    left = third.due(15, third.job)
    assert left is not None
    assert (left.order, left.after_step, left.plan.schedule.name, left.plan.micro_batch) == (1, 50, "gpipe", 1)
    third.close()


def test_an_order_done_behind_one_that_stands_is_done_after_the_same_step(tmp_path: Path):
    """And keeps its number."""
    first = Desk(job(steps=60), Journal(tmp_path / "journal"))
    assert first.answer(asked("schedule", "A", name="gpipe", after_step=50)) == {"accepted": 1}
    first.close()
    short = Desk(job(steps=19, first_step=2, resume_from="step-1"), Journal(tmp_path / "journal"))
    assert short.answer(asked("micro-batch", "B", size=1)) == {"accepted": 2}
    change = short.due(10, short.job)
    assert change is not None
    short.changed(Changed(2, 10, {}, 0.0, 0.0, 0.0, 0, 0.0), under(short.job, change.plan))
    short.close()
    third = Desk(job(steps=55, first_step=6, resume_from="step-5"), Journal(tmp_path / "journal"))
    found = [third.due(5, third.job), third.due(10, third.job)]
    assert [(each.order, each.after_step) for each in found if each is not None] == [(2, 10), (1, 50)]
    third.close()


def left_after(step: int, journal: Path) -> None:
    """A run of which the replica in b leaves after a step."""
    first = Desk(job(LANES, steps=20), Journal(journal))
    assert first.answer(asked("leave", "A", domain="b", after_step=step)) == {"accepted": 1}
    change = first.due(step - 1, first.job)
    assert change is not None
    first.changed(Changed(1, step, {}, 0.0, 0.0, 0.0, 0, 0.0), under(first.job, change.plan))
    first.close()


def test_what_was_done_at_the_step_of_a_checkpoint_is_done_before_the_first_step(tmp_path: Path):
    """The checkpoint is of the plan before it."""
    left_after(6, tmp_path / "journal")
    again = Desk(job(LANES, steps=14, first_step=7, resume_from="step-6"), Journal(tmp_path / "journal"))
    assert len(again.job.plan.pipelines) == 2
    change = again.due(6, again.job)
    assert change is not None
    assert (change.after_step, len(change.plan.pipelines)) == (6, 1)
    again.changed(Changed(1, 6, {}, 0.0, 0.0, 0.0, 0, 0.0), under(again.job, change.plan))
    again.close()
    later = Desk(job(LANES, steps=13, first_step=8, resume_from="step-7"), Journal(tmp_path / "journal"))
    assert len(later.job.plan.pipelines) == 1
    later.close()


def test_what_is_late_comes_behind_what_holds(tmp_path: Path):
    """The second was done meanwhile, and the checkpoint is of it alone."""
    journal = Journal(tmp_path / "journal")
    carries = [asdict(StandingOrder("A", asked("leave", "A", domain="b"), 5))]
    journal.write(kind="begun", first_step=5, carries=carries)
    journal.write(kind="refused", key="A", why="no room")
    journal.write(kind="order", order=2, key="B", asked=asked("micro-batch", "B", size=1))
    journal.write(kind="done", order=2, after_step=7)
    journal.close()
    again = Desk(job(LANES, steps=9, first_step=11, resume_from="step-10"), Journal(tmp_path / "journal"))
    assert (len(again.job.plan.pipelines), again.job.plan.micro_batch) == (2, 1)
    change = again.due(10, again.job)
    assert change is not None
    assert (change.after_step, len(change.plan.pipelines), change.plan.micro_batch) == (10, 1, 1)
    again.close()


def test_what_was_to_be_done_again_and_was_given_up_stays_so():
    begun = {"kind": "begun", "first_step": 1}
    order = {"kind": "order", "order": 1, "key": "A", "asked": {"order": "leave", "domain": "b"}}
    carries = [asdict(StandingOrder("A", order["asked"], 7))]
    unwanted = {"kind": "order", "order": 2, "key": "G", "asked": {"order": "give-up", "number": 1}}
    lines = [begun, order, {"kind": "done", "order": 1, "after_step": 7}]
    lines += [{"kind": "begun", "first_step": 5, "carries": carries}, order, unwanted]  # killed before it said so
    assert [(each.key, bool(each.over)) for each in standing(lines)] == [("A", True), ("G", True)]
    done = {"kind": "done", "order": 1, "after_step": 7}
    assert [bool(each.over) for each in standing([*lines[:-1], done, unwanted])] == [False, True]


def test_what_was_asked_behind_a_plan_from_before_a_loss_holds_with_it():
    plan = {"kind": "order", "order": 1, "key": "P", "asked": {"order": "plan", "after_step": 20}}
    lost = {"kind": "lost", "processes": 2}
    behind = {"kind": "order", "order": 2, "key": "J", "asked": {"order": "join", "domain": "b"}}
    ends = [{"kind": "done", "order": at, "after_step": 19 + at} for at in (1, 2)]
    found = standing([{"kind": "begun", "first_step": 1}, plan, lost, behind, *ends])
    assert [(each.key, each.done_after, each.over) for each in found] == [("P", 20, ""), ("J", 21, "")]
    given_up = {"kind": "given up", "order": 1, "why": "no room"}
    found = standing([{"kind": "begun", "first_step": 1}, plan, lost, behind, given_up, ends[1]])
    assert [bool(each.over) for each in found] == [True, True]


def test_what_a_run_that_went_on_had_not_done_again_is_done_by_the_next(tmp_path: Path):
    """It came past the step after which the run before had done it, and its checkpoints are of the plan before."""
    left_after(12, tmp_path / "journal")
    again = Desk(job(LANES, steps=10, first_step=11, resume_from="step-10"), Journal(tmp_path / "journal"))
    assert len(again.job.plan.pipelines) == 2
    again.close()  # killed at step 15, before those that leave had left
    for _ in range(2):
        later = Desk(job(LANES, steps=6, first_step=15, resume_from="step-14"), Journal(tmp_path / "journal"))
        assert len(later.job.plan.pipelines) == 2
        change = later.due(14, later.job)
        assert change is not None
        assert (change.after_step, len(change.plan.pipelines)) == (14, 1)
        later.close()


def test_what_was_asked_behind_a_plan_since_a_loss_holds(tmp_path: Path):
    """Though the plan, which names who is there, was done after it was asked; not where the plan was given up."""
    whole = job(LANES, steps=20)
    left = without(whole, [2, 3])
    assert left is not None
    plan = replace(LANES, pipelines=pipelines((4, [("a", 0, 3, 1, 2), ("a", 3, 6, 1, 2)])))
    for gives_up, states in ((False, ["done", "done"]), (True, ["given up", "given up", "done"])):
        journal, now = tmp_path / f"journal {gives_up}", under(whole, left)
        first = Desk(whole, Journal(journal))
        first.changed(Changed(0, 3, {}, 0.0, 0.0, 0.2, 0, 0.2, lost="rank 3 was ended by signal 9"), now)
        assert first.answer(asked("plan", "P", plan=plan_to_document(whole.problem, plan))) == {"accepted": 1}
        assert first.answer(asked("join", "J", domain="b")) == {"accepted": 2, "follows": 1}
        if gives_up:
            assert first.answer({"order": "give-up", "key": "G", "number": 1}) == {"accepted": 3}
            assert first.due(5, now) is None
        for number in (2,) if gives_up else (1, 2):
            change = first.due(4 + number, now)
            assert change is not None
            now = under(now, change.plan)
            first.changed(Changed(number, 4 + number, {}, 0.0, 0.0, 0.0, 0, 0.0), now)
        first.close()
        again = Desk(job(LANES, steps=12, first_step=9, resume_from="step-8"), Journal(journal))
        assert [each["state"] for each in again.status()["orders"]] == states
        assert len(again.job.plan.pipelines) == 2
        again.close()


def test_while_an_order_is_open_others_are_asked_of_who_is_left(tmp_path: Path):
    whole = job(LANES, steps=60)
    left = without(whole, [2, 3])
    assert left is not None
    desk = Desk(whole, Journal(tmp_path / "journal"))
    assert desk.answer(asked("schedule", "A", name="gpipe", after_step=50)) == {"accepted": 1}
    desk.changed(Changed(0, 3, {}, 0.0, 0.0, 0.2, 0, 0.2, lost="rank 3 was ended by signal 9"), under(whole, left))
    assert "unknown domain" in desk.answer(asked("leave", "B", domain="b"))["refused"]
    assert "for each of 1 pipelines" in desk.answer(asked("shares", "C", waves=[2, 2]))["refused"]
    desk.close()


def test_memory_for_an_order_is_what_those_before_it_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Three joins of 500 MB where 1.2 GB are free; and a plan beside the one that a run begins with."""
    whole = job(LANES, steps=60, batch_rule="follow")
    desk = Desk(whole, Journal(tmp_path / "journal"))
    monkeypatch.setattr(room, "available_bytes", lambda: 1.2e9)
    told = [desk.answer(asked("join", key, domain="a")) for key in "ABC"]
    assert [each.get("accepted") for each in told] == [1, 2, None]
    assert "needs 1.51 GB on this machine, which has 1.2 GB free" in told[2]["refused"]
    desk.close()
    monkeypatch.setattr(room, "available_bytes", lambda: room.needed_bytes(job(LANES)) + 1e6)
    lines = tuple(
        replace(
            line,
            stages=tuple(replace(one, devices=tuple(f"{one.domain}/1/{at}" for at in range(2))) for one in line.stages),
        )
        for line in LANES.pipelines
    )
    with pytest.raises(InputError, match="on this machine, which has"):
        checked_then(job(LANES), job(LANES).problem, replace(LANES, pipelines=lines), 3, source="other.json")


def test_a_start_under_another_plan_that_makes_no_step_voids_nothing(tmp_path: Path):
    first = Desk(job(), Journal(tmp_path / "journal"))
    assert first.answer(asked("micro-batch", "A", size=1)) == {"accepted": 1}
    first.close()
    Desk(job(LANES, first_step=3, resume_from="step-2"), Journal(tmp_path / "journal")).close()
    again = Desk(job(first_step=3, resume_from="step-2"), Journal(tmp_path / "journal"))
    assert [each["state"] for each in again.status()["orders"]] == ["accepted"]
    again.close()


def test_fifty_clients_at_once_are_heard(desk: Desk, tmp_path: Path):
    with listening(tmp_path / "run", lambda: desk), ThreadPoolExecutor(50) as many:

        def asks(_: int) -> Any:
            with RunClient(tmp_path / "run") as client:
                return client.ask({"ask": "status"})["step"]

        assert list(many.map(asks, range(50))) == [0] * 50


def test_under_another_plan_file_orders_of_before_are_void_and_known(tmp_path: Path):
    first = Desk(job(), Journal(tmp_path / "journal"))
    document = plan_to_document(job().problem, PLANS["two lanes a domain"][1])
    assert first.answer(asked("plan", "A", plan=document)) == {"accepted": 1}
    change = first.due(1, job())
    assert change is not None
    first.changed(Changed(1, 1, {}, 0.0, 0.0, 0.0, 0, 0.0), under(job(), change.plan))
    first.close()
    alone = Plan(pipelines((4, [("b", 0, 6, 1, 1)])), 2)
    again = Desk(job(alone, first_step=3, resume_from="step-2"), Journal(tmp_path / "journal"))
    assert again.job.plan == alone
    assert [(each["state"], each["why"]) for each in again.status()["orders"]] == [
        ("given up", "the run goes on under another plan file")
    ]
    assert again.answer(asked("plan", "A", plan=document)) == {"accepted": 1}
    again.close()


def test_a_change_that_is_known_before_comes_after_the_orders_that_stood(tmp_path: Path):
    first = Desk(job(), Journal(tmp_path / "journal"))
    assert first.answer(asked("micro-batch", "A", size=1)) == {"accepted": 1}
    change = first.due(1, job())
    assert change is not None
    first.changed(Changed(1, 1, {}, 0.0, 0.0, 0.0, 0, 0.0), under(job(), change.plan))
    first.close()
    planned = PlanChange(replace(change.plan, micro_batch=4), 6)
    again = Desk(job(first_step=3, resume_from="step-2"), Journal(tmp_path / "journal"), planned)
    assert again.job.plan.micro_batch == 1
    assert again.due(2, again.job) == planned
    again.close()


def test_who_goes_on_has_the_batch_and_the_rate_that_were_ordered(tmp_path: Path):
    follows = {"batch_rule": "follow", "rate_rule": "linear", "steps": 8}
    began = job(LANES, **follows)
    twice = Plan(pipelines((4, [("a", 0, 6, 1, 2)]), (4, [("b", 0, 6, 1, 2)])), 1)
    first = Desk(began, Journal(tmp_path / "journal"))
    document = plan_to_document(under(began, twice).problem, twice)
    assert first.answer(asked("plan", plan=document)) == {"accepted": 1}
    change = first.due(1, began)
    assert change is not None
    first.changed(Changed(1, 1, {}, 0.0, 0.0, 0.0, 0, 0.0), under(began, change.plan))
    first.close()
    again = Desk(job(LANES, first_step=3, resume_from="step-2", **follows), Journal(tmp_path / "journal"))
    assert again.job.problem.workload.global_batch == 2 * began.problem.workload.global_batch
    assert again.job.options.learning_rate == 2 * began.options.learning_rate
    again.close()
    fresh = Desk(job(), Journal(tmp_path / "journal"))  # a run from the start has no orders yet
    assert fresh.status()["orders"] == []
    fresh.close()


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        ("no JSON", "needs a key"),
        ({"ask": "nothing"}, "ask: is nothing that a run tells"),
        ({"order": "schedule", "name": "gpipe"}, "needs a key"),
        (asked("dance"), "unknown order 'dance'"),
        (asked("schedule"), "name: is missing"),
        (asked("schedule", name=3), "name: must be a word"),
        (asked("schedule", name="gpipe", speed=3), "speed: is unknown"),
        (asked("schedule", name="tango"), "unknown schedule 'tango'"),
        (asked("schedule", name="1f1b"), "changes nothing"),
        (asked("schedule", name="gpipe", after_step="soon"), "after_step: must be the number of a step"),
        (asked("schedule", name="gpipe", after_step=8), "is not within the run"),
        (asked("schedule", name="gpipe", after_step=0), "has passed"),
        (asked("micro-batch", size=3), "does not share out the 8 sequences"),
        (asked("micro-batch", size=0), "does not share out the 8 sequences"),
        (asked("shares", waves=[3, 5]), "for each of 1 pipelines"),
        (asked("shares", waves=[2**31]), "must be a number of micro-batches from 1 to 100000"),
        (asked("compress", source="a", destination="c", kind="int8"), "unknown domain 'c'"),
        (asked("compress", source="a", destination="b", kind="zip"), "unknown compression 'zip'"),
        (asked("compress", source="a", destination="b", kind="int8"), "is not allowed by the plan's problem"),
        (asked("every", steps=4), "replicas agree every step"),
        (asked("all-reduce", way="bus"), "all_reduce"),
        (asked("all-reduce", way="ring"), "is of replicas, and this plan has one"),
        (asked("plan", plan={}), "order"),
        (asked("schedule", name="1f1b", live_limit=0), "schedule.live_limit: is out of range"),
        (asked("give-up", number=True), "no such order is under way"),
        (None, "needs a key"),
    ],
)
def test_what_cannot_be_done_is_refused_with_the_reason(desk: Desk, tmp_path: Path, request_: Any, told: str):
    answer = desk.answer(request_)
    assert told in answer["refused"]
    assert "To fix: " in answer["refused"]
    assert desk.due(0, job()) is None
    assert len(read_journal(tmp_path / "journal")) == 1


def test_orders_are_carried_out_in_turn(desk: Desk):
    """One that would have to come before another is refused, not done late."""
    assert desk.answer(asked("schedule", "a", name="gpipe", after_step=4)) == {"accepted": 1}
    for after in (2, 4):
        told = desk.answer(asked("micro-batch", "b", size=1, after_step=after))["refused"]
        assert "carried out after step 4. To fix: name a step from 5 on" in told.replace(f" (got {after})", "")
    assert desk.answer(asked("micro-batch", "b", size=1, after_step=5)) == {"accepted": 2, "follows": 1}


def test_a_plan_of_another_model_or_of_other_links_is_refused(desk: Desk):
    other, plan = PLANS["everything"]
    for world, given, told in (
        (problem(other), plan, "is for another model or workload"),
        (problem(GPT2, latency_s=0.5), MOVED, "is for other links"),
    ):
        assert told in desk.answer(asked("plan", plan=plan_to_document(world, given)))["refused"]


def test_replicas_that_train_alone_change_how_often_they_agree_leave_and_are_joined(tmp_path: Path):
    world = replace(problem(GPT2), allow_local_sgd=True)
    alone = replace(LANES, sync=Sync("local_sgd", 4))
    desk = Desk(RunJob(world, alone, RunOptions(steps=8)), Journal(tmp_path / "journal"))
    assert desk.answer(asked("every", steps=2)) == {"accepted": 1}
    agreed = plan_to_document(world, LANES)
    assert "replicas that train alone have come apart" in desk.answer(asked("plan", "two", plan=agreed))["refused"]
    desk.close()
    one = replace(alone, pipelines=pipelines((4, [("a", 0, 6, 1, 2)])))
    for before, after in ((one, alone), (LANES, alone), (alone, one), (alone, replace(one, sync=Sync()))):
        desk = Desk(RunJob(world, before, RunOptions(steps=8)), Journal(tmp_path / "other"))
        assert desk.answer(asked("plan", plan=plan_to_document(world, after))) == {"accepted": 1}
        desk.close()
    desk = Desk(RunJob(world, one, RunOptions(steps=8)), Journal(tmp_path / "third"))
    told = desk.answer(asked("plan", plan=plan_to_document(world, alone), way="background"))["refused"]
    assert "whose weights change by more than gradients (got background). To fix: give way 'stop'" in told.replace(
        "'background'", "background"
    )
    desk.close()


# ------------------------------------------------------------------------------------------------------------ journal
def test_a_torn_last_line_goes_and_a_broken_one_before_it_is_named(tmp_path: Path):
    path = tmp_path / "journal"
    journal = Journal(path)
    journal.write(kind="order", order=1)
    journal.write(kind="step", step=1)
    journal.close()
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        again = Journal(path)
        assert [line["n"] for line in again.lines] == list(range(1, 1 + whole[:cut].count(b"\n")))
        assert again.write(kind="step", step=2)["n"] == len(again.lines)
        again.close()
        assert read_journal(path) == again.lines
    path.write_bytes(b"{}\n" + whole)
    with pytest.raises(InputError, match="journal:1: is no line of a journal"):
        read_journal(path)


def test_a_journal_is_of_one_run_at_a_time(desk: Desk, tmp_path: Path):
    with pytest.raises(InputError, match="another run writes it"):
        Journal(tmp_path / "journal")
    assert desk.answer(asked("schedule", name="gpipe")) == {"accepted": 1}
    assert [line["kind"] for line in read_journal(tmp_path / "journal")] == ["begun", "order"]


def test_where_the_disk_is_full_orders_are_refused_and_training_goes_on(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    whole = os.pwrite

    with monkeypatch.context() as full:
        full.setattr(os, "pwrite", lambda file, words, at: whole(file, words[:9], at))
        desk.made(RunStep(1, 0.5, 4.0))
        assert "cannot write: No space left on device" in desk.answer(asked("schedule", name="gpipe"))["refused"]
        assert desk.due(1, job()) is None
    assert desk.answer(asked("schedule", name="gpipe")) == {"accepted": 1}
    assert [line["kind"] for line in read_journal(tmp_path / "journal")] == ["begun", "order"]


def test_an_order_through_a_domain_that_is_not_emulated_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The cluster of the plan has a third domain, the emulation around has not: nobody could start there."""
    places = {name: DomainPlace(name, "10.0.0.1") for name in "ab"}
    monkeypatch.setattr(control, "emulation", lambda: Emulation("two.yaml", "socket", places, 0.0))
    way = {"source": "a", "destination": "b", "via": "c"}
    three = Desk(replace(job(), problem=problem(GPT2, names="abc")), Journal(tmp_path / "journal"))
    told = three.answer(asked("relay", **way))["refused"]
    assert "relays[0].via: is no domain of the emulation around" in told
    assert "its domains are a, b" in told
    monkeypatch.undo()
    assert three.answer(asked("relay", **way)) == {"accepted": 1}
    three.close()


# ------------------------------------------------------------------------------------------------------------- socket
def test_a_client_asks_over_the_socket(desk: Desk, tmp_path: Path):
    path = tmp_path / "run"
    with listening(path, lambda: desk):
        with RunClient(path) as client:
            assert client.ask(asked("schedule", name="gpipe")) == {"accepted": 1}
            with pytest.raises(InputError, match="unknown order 'dance'"):
                client.ask(asked("dance", "two"))
            assert client.ask({"ask": "status"})["step"] == 0
        with RunClient(path) as client:
            client.ask({"ask": "watch"})
            desk.made(RunStep(1, 0.5, 4.0))
            desk.close()
            assert [each["step"] for each in client.steps()] == [1]
    assert not path.exists()
    assert list(tmp_path.iterdir()) == [tmp_path / "journal"], "neither socket nor token is left"
    with pytest.raises(InputError, match="no run listens"):
        RunClient(path)


def test_another_protocol_a_wrong_token_and_a_client_that_leaves_are_told_apart(desk: Desk, tmp_path: Path):
    path = tmp_path / "run"

    def greeted(*lines: str) -> str:
        with socket.socket(socket.AF_UNIX) as mine:
            mine.settimeout(20.0)
            mine.connect(str(path))
            mine.sendall("".join(lines).encode())
            return mine.makefile().readline()

    with listening(path, lambda: desk):
        token = (tmp_path / "run.token").read_text()
        assert (tmp_path / "run.token").stat().st_mode & 0o777 == 0o600
        assert "speaks protocol 0" in greeted(json.dumps({"hello": 0, "token": token}) + "\n")
        assert "speaks protocol None" in greeted("{\n")
        for wrong in ("x", "\ud800", None, [token]):
            assert "token" in greeted(json.dumps({"hello": PROTOCOL, "token": wrong}) + "\n")
        greeted(json.dumps({"hello": PROTOCOL, "token": token}) + "\n", '{"order": "sche')  # and leaves
        with RunClient(path) as client:
            assert client.ask({"ask": "status"})["orders"] == []


def test_a_run_that_hangs_and_one_that_was_killed_are_told_apart(tmp_path: Path):
    path = tmp_path / "run"
    path.with_name("run.token").write_bytes(b"\xff")
    with socket.socket(socket.AF_UNIX) as hangs:
        hangs.bind(str(path))
        hangs.listen()
        with pytest.raises(InputError, match="does not answer. To fix: look whether its process hangs"):
            RunClient(path, timeout_s=0.05)
    path.unlink()
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(path))
        killed.listen()
        Thread(target=lambda: killed.accept()[0].close()).start()
        with pytest.raises(InputError, match="has ended. To fix: see what 'hippo run' printed"):
            RunClient(path, timeout_s=20.0)


def test_a_socket_that_cannot_be_made_is_refused_before_a_journal_is_begun(tmp_path: Path):
    def never() -> Desk:
        raise AssertionError("nobody can be heard")

    for path in (tmp_path, tmp_path / ("x" * 200), tmp_path / "no" / "run"):
        with pytest.raises(InputError, match="--control: no socket can be made"), listening(path, never):
            pass


def test_who_watches_without_reading_misses_the_oldest_steps_and_hears_the_end(desk: Desk):
    with desk.watching() as unread:
        for number in range(1, MOST_UNREAD + 11):
            desk.made(RunStep(number, 0.5, 4.0))
        desk.close()
        found = [unread.get_nowait() for _ in range(unread.qsize())]
    assert [None if each is None else each[0].number for each in found] == [*range(12, MOST_UNREAD + 11), None]


def test_the_socket_of_a_run_that_was_killed_is_in_nobody_s_way(desk: Desk, tmp_path: Path):
    path = tmp_path / "run"
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(str(path))
    with listening(path, lambda: desk), RunClient(path) as client:
        assert client.ask({"ask": "status"})["orders"] == []
        with pytest.raises(InputError, match="no socket can be made"), listening(path, lambda: desk):
            pass
        assert client.ask({"ask": "status"})["orders"] == [], "one that is listened to stays"


# ----------------------------------------------------------------------------------------------------------------- run
def test_orders_to_a_run_of_processes_keep_its_loss(tmp_path: Path):
    """Levers and moves while it trains: one process that never changes has the same losses."""
    began = job(steps=11)
    desk = Desk(began, Journal(tmp_path / "journal"))
    orders = {
        1: asked("schedule", "1", name="gpipe", after_step=1),
        2: asked("micro-batch", "2", size=1, after_step=2),
        3: asked("plan", "3", plan=plan_to_document(began.problem, MOVED), after_step=4),
        5: asked("plan", "4", plan=plan_to_document(began.problem, LANES), after_step=6),
        7: asked("leave", "5", domain="b", after_step=8),
        8: asked("join", "6", domain="b", after_step=9),
    }

    def watch(step: RunStep) -> None:
        desk.made(step)
        if step.number in orders:
            assert "accepted" in desk.answer(orders[step.number])

    assert desk.answer(asked("micro-batch", "0", size=4)) == {"accepted": 1}, "before the first step"
    found = run(began, watch=watch, changes=desk)
    desk.close()
    expected = list(losses(began.problem, settings_of(began), steps=11, micro_batch=2))
    assert [step.loss for step in found.steps] == pytest.approx(expected, rel=1e-9)
    assert [each.change.order for each in found.stretches if each.change] == [1, 2, 3, 4, 5, 6, 7]
    assert [len(each.workers) for each in found.stretches] == [2, 2, 2, 2, 2, 4, 2, 4]
    assert found.stretches[-1].job.plan == LANES
    assert [each["state"] for each in desk.status()["orders"]] == ["done"] * 7


class Midway(Planned):
    """Asked for while step 3 runs, not at the border before it; to be in force at the border after it."""

    asked_at: tuple[int, ...] = ()

    def due(self, done: int, now: RunJob) -> PlanChange | None:
        self.asked_at = (*self.asked_at, done)
        return super().due(done, now) if self.asked_at.count(2) > 1 else None


def test_what_is_ordered_while_a_step_runs_is_in_force_at_its_border():
    changes = Midway(PlanChange(MOVED, after_step=3))
    found = run(job(), changes=changes)
    assert [(each.change.after_step if each.change else None, len(each.steps)) for each in found.stretches] == [
        (None, 3),
        (3, 5),
    ]
    assert 3 not in changes.asked_at, "it was taken in the step, not after it"
    expected = list(losses(problem(GPT2), settings_of(job()), steps=8, micro_batch=2))
    assert [step.loss for step in found.steps] == pytest.approx(expected, rel=1e-9)
