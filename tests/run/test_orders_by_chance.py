"""Real processes through two hundred steps and twenty orders and losses drawn by chance: losses of one process.

Each sequence is dealt every kind twice, so ten sequences meet each kind twenty times.
"""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hippo.errors import InputError
from hippo.plan.codec import plan_to_document
from hippo.plan.plan import Plan, Stage, Sync
from hippo.run.change import Changed, PlanChange, without
from hippo.run.control import Desk, RefusedError, RunClient, listening
from hippo.run.job import RunJob, RunOptions
from hippo.run.journal import Journal, read_journal
from hippo.run.model.reference import losses
from hippo.run.model.stage import settings_of
from hippo.run.orders import change_of, order_of_document
from hippo.run.run import Crew, RunStep, run

from ..judges.local_sgd_replicas import Left, local_losses
from .test_change import ALONE, LANES, STAGES, TWICE, UNLIKE, packed_losses
from .test_run import _none_left  # noqa: F401
from .worlds import GPT2, PLANS, pipelines, problem

STEPS, BETWEEN = 200, 5
GIVEN = replace(problem(GPT2, names="abc"), runtime="hippo")
"""Plans lie in two domains; through the third messages may go."""
CUT = Plan(pipelines((4, [("a", 0, 5, 1, 1), ("b", 5, 6, 1, 1)])), 2)
THERE = Plan(pipelines((4, [("b", 0, 6, 1, 1)])), 2)
OTHERS = (STAGES, LANES, UNLIKE, ALONE, TWICE, CUT, THERE, PLANS["unlike lanes"][1], PLANS["tensor parallel"][1])
LOST = "a domain is gone"
KINDS = (
    *("order", "in flight", "size", "shares", "sums", "relay"),
    *("move by stopping", "move in the background", "join", "leave", LOST),
)


def asked(kind: str, rng: random.Random, now: RunJob) -> dict[str, Any]:
    """An order of a kind, which the plan of the moment may not allow."""
    if kind == "order":
        return {"order": "schedule", "name": rng.choice(["gpipe", "1f1b", "zb-h1"])}
    if kind == "in flight":
        return {"order": "schedule", "name": "1f1b", "live_limit": rng.randint(1, 4)}
    if kind == "size":
        return {"order": "micro-batch", "size": rng.choice([1, 2])}
    if kind == "shares":
        one = rng.randint(1, 7)
        return {"order": "shares", "waves": rng.choice([[one, 4 - one], [one, 8 - one]])}
    if kind == "sums":
        return {"order": "all-reduce", "way": rng.choice(["ring", "two-level"])}
    if kind == "relay":
        source, destination = rng.choice(["ab", "ba"])
        return {"order": "relay", "source": source, "destination": destination, "via": rng.choice(["c", "c", "none"])}
    width = len(now.plan.pipelines)
    fits = {"join": lambda count: count > width, "leave": lambda count: count < width}
    wanted = fits.get(kind, lambda count: count == width)
    plans = [plan for plan in OTHERS if wanted(len(plan.pipelines))]
    way = "background" if kind == "move in the background" else "stop"
    return {"order": "plan", "plan": plan_to_document(now.problem, rng.choice(plans)), "way": way}


class Dealt:
    """Orders of dealt kinds, one every few steps; where the plan of the moment allows none of them, another plan."""

    def __init__(self, deck: Sequence[str], seed: int) -> None:
        self.deck, self.met = list(deck), Counter[str]()
        self._rng, self._next_at, self._kind = random.Random(seed), BETWEEN, ""
        self._asked_at = 0

    def due(self, done: int, now: RunJob) -> PlanChange | None:
        """The next order, some steps after the one before, at a border or while a step runs; drawn once a step, however
        often it is asked for."""
        if done < self._next_at or done == self._asked_at or not self.deck:
            return None
        self._asked_at = done
        if self._rng.random() < 0.5:
            return None
        self._rng.shuffle(self.deck)
        for kind in (*[each for each in self.deck if each != LOST], "join", "leave", "move by stopping"):
            for _ in range(20):
                with suppress(InputError, IndexError):
                    order = {**asked(kind, self._rng, now), "after_step": done + self._rng.randint(0, 2)}
                    change = change_of(order_of_document(order), now, done=done)
                    self._kind = kind
                    return change
        raise AssertionError("nothing can be ordered")

    def loses(self, done: int, now: RunJob) -> int | None:
        """The pipeline that is to die now, where that is among what is left and another can go on."""
        lost = [worker.rank for worker in now.work.workers if worker.pipeline == 0]
        if LOST not in self.deck or done < self._next_at or self._rng.random() < 0.5 or without(now, lost) is None:
            return None
        self._next_at = done + BETWEEN
        return 0

    def again(self, what: PlanChange) -> None:
        """It is dealt again: its kind is still in the deck."""

    def unwanted(self, what: PlanChange) -> str:
        """All is wanted."""
        return ""

    def changed(self, what: Changed, now: RunJob) -> None:
        """It counts as the kind that it was dealt as."""
        kind = LOST if what.lost else self._kind
        self.met[kind] += 1
        with suppress(ValueError):
            self.deck.remove(kind)
        self._next_at = what.after_step + BETWEEN

    def gave_up(self, what: PlanChange, told: str) -> None:
        """Who was to come died as well: its kind is dealt again."""
        self._next_at += BETWEEN


def played(job: RunJob, dealt: Any) -> list[RunStep]:
    """The steps of a run through what is dealt; domains die as it says."""
    crews: list[Crew] = []
    now = [job]
    changed = dealt.changed

    def keep(*given: Any) -> Crew:
        crews.append(Crew(*given))
        return crews[0]

    def follow(what: Changed, then: RunJob) -> None:
        now[0] = then
        changed(what, then)

    def watch(step: RunStep) -> None:
        crew, dies = crews[0], dealt.loses(step.number, now[0])
        if dies is not None and step.number < STEPS:
            members = [number for number, worker in crew._workers.items() if number in crew.processes]
            for number in members:
                if crew._workers[number].pipeline == dies:
                    os.kill(crew.processes[number].pid, signal.SIGKILL)

    dealt.changed = follow
    return list(run(job, watch=watch, changes=dealt, crew_of=keep).steps)


@pytest.mark.slow  # a minute each; sequences of four orders, whose processes are threads, are quick
@pytest.mark.parametrize(
    ("precision", "seed", "off"),
    [*(("fp64", seed, 1e-9) for seed in range(10)), ("fp32", 10, 1e-6), ("fp32", 11, 1e-6)],
)
def test_losses_at_each_of_two_hundred_steps(precision: str, seed: int, off: float) -> None:
    job = RunJob(GIVEN, LANES, RunOptions(steps=STEPS, precision=precision, timeout_s=60.0))
    dealt = Dealt(KINDS * 2, seed)
    found = [step.loss for step in played(job, dealt)]
    expected = list(losses(job.problem, settings_of(job), steps=STEPS, micro_batch=2))
    assert found == pytest.approx(expected, rel=off, abs=0.0)
    assert {kind: dealt.met[kind] >= 2 for kind in KINDS} == dict.fromkeys(KINDS, True), dealt.met


class Levers(Dealt):
    """Orders of levers, one every few steps, with what is trained under each."""

    def __init__(self, orders: Sequence[tuple[Mapping[str, Any], Any]], first: Any, every: int = BETWEEN) -> None:
        super().__init__([], 0)
        self.left, self.ends, self._every = list(orders), list[int](), every
        self._values = [first, *(value for _, value in orders)]

    def due(self, done: int, now: RunJob) -> PlanChange | None:
        """The next."""
        if done < self._next_at or not self.left:
            return None
        order, _ = self.left.pop(0)
        return change_of(order_of_document({**order, "after_step": done}), now, done=done)

    def changed(self, what: Changed, now: RunJob) -> None:
        """It holds from the next step on."""
        self.ends.append(what.after_step)
        self._next_at = what.after_step + self._every

    @property
    def held(self) -> list[Any]:
        """What was trained under in each step."""
        return [self._values[sum(step > end for end in self.ends)] for step in range(1, STEPS + 1)]


@pytest.mark.slow
def test_what_crosses_packed_is_packed_in_one_process_at_the_same_borders() -> None:
    """Directly, and through a third domain: twenty orders of compression, and as many of relays between them."""
    kinds = [("int8", "none", "bf16", "fp8")[at % 4] for at in range(20)]
    job = RunJob(
        replace(GIVEN, allow_compression=True), STAGES, RunOptions(steps=STEPS, precision="fp64", timeout_s=60.0)
    )
    orders: list[tuple[Mapping[str, Any], str]] = []
    for at, kind in enumerate(kinds):
        orders.append(({"order": "compress", "source": "a", "destination": "b", "kind": kind}, kind))
        orders.append(({"order": "relay", "source": "a", "destination": "b", "via": ("c", "none")[at % 2]}, kind))
    levers = Levers(orders, "none", 3)
    found = [step.loss for step in played(job, levers)]
    assert len(levers.ends) == 40
    assert found == pytest.approx(list(packed_losses(job, levers.held)), rel=1e-9, abs=0.0)


@pytest.mark.slow
def test_replicas_average_as_often_as_is_ordered() -> None:
    every = [(3, 1, 4, 2)[at % 4] for at in range(20)]
    alone = replace(problem(GPT2), allow_local_sgd=True)
    plan = replace(TWICE, sync=Sync("local_sgd", 2))
    job = RunJob(alone, plan, RunOptions(steps=STEPS, precision="fp64", timeout_s=60.0))
    levers = Levers([({"order": "every", "steps": steps}, steps) for steps in every], 2)
    found = [step.loss for step in played(job, levers)]
    assert len(levers.ends) == 20
    expected = list(local_losses(job, settings_of(job), levers.held))
    assert found == pytest.approx(expected, rel=1e-9, abs=0.0)


# --------------------------------------------------------------------------------------------------- a journal replayed
KEPT_APART = replace(problem(GPT2, names="ab"), runtime="hippo", allow_local_sgd=True)


def drawn(rng: random.Random, now: RunJob) -> dict[str, Any]:
    """An order to replicas that train alone, or to the one that is left, which the plan of the moment may not allow."""
    lines = now.plan.pipelines
    if len(lines) == 1 or rng.random() < 0.15:
        return {"order": "join", "domain": rng.choice("ab"), "like": rng.randrange(len(lines))}
    kind = rng.choice(["every", "shares", "schedule", "size", "sums", "leave", "cut", "moved"])
    if kind == "every":
        return {"order": "every", "steps": rng.randint(1, 4)}
    if kind == "leave":
        return {"order": "leave", "domain": rng.choice("ab")}
    if kind in ("cut", "moved"):  # layers go from one process to another, or a replica to other devices
        at = rng.randrange(len(lines))
        others = {device for line in lines for stage in line.stages for device in stage.devices}
        free = {
            place: [f"{place}/1/{each}" for each in range(8) if f"{place}/1/{each}" not in others] for place in "ab"
        }
        border, first, last = rng.randint(1, 5), rng.choice("ab"), rng.choice("ab")
        stages = lines[at].stages
        if kind == "cut" and len(stages) == 2:
            ends = (0, border), (border, 6)
            made = tuple(replace(stage, layers=span) for stage, span in zip(stages, ends, strict=True))
        else:
            made = (
                Stage(first, (0, border), 1, 1, (free[first].pop(0),)),
                Stage(last, (border, 6), 1, 1, (free[last].pop(0),)),
            )
            if {stage.dp for stage in stages} != {1}:
                raise IndexError("lanes share the batch of theirs")
        plan = replace(now.plan, pipelines=(*lines[:at], replace(lines[at], stages=made), *lines[at + 1 :]))
        return {"order": "plan", "plan": plan_to_document(now.problem, plan), "way": "stop"}
    if kind == "shares":
        waves = [line.num_micro_batches for line in lines]
        one, two = rng.sample(range(len(lines)), 2)
        waves[one], waves[two] = waves[one] + 1, waves[two] - 1
        return {"order": "shares", "waves": waves}
    return asked({"schedule": "order"}.get(kind, kind), rng, now)


def continued(before: Plan, after: Plan) -> dict[int, int]:
    """Of which replica each is a copy, by the devices that it keeps: one that keeps none is one that has moved, where
    one has gone from its devices, else a copy of whoever is in its domain, the first of several."""
    devices = [
        [{each for stage in line.stages for each in stage.devices} for line in plan.pipelines]
        for plan in (before, after)
    ]
    same = [[len(new & old) for old in devices[0]] for new in devices[1]]
    found = {number: row.index(max(row)) for number, row in enumerate(same) if max(row)}
    homes = [
        [[stage.domain for stage in line.stages for _ in range(*stage.layers)] for line in plan.pipelines]
        for plan in (before, after)
    ]
    for number in range(len(after.pipelines)):
        if number not in found:
            gone = [old for old in range(len(before.pipelines)) if old not in found.values()]
            far = [sum(a != b for a, b in zip(homes[1][number], home, strict=True)) for home in homes[0]]
            found[number] = min(gone or range(len(far)), key=lambda old: (far[old], old))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_journal_of_orders_over_the_socket_is_replayed_in_one_process(seed: int, tmp_path: Path) -> None:
    """Replicas that train alone, joined, moved, cut, shared out anew, told how often to agree: twenty orders of a
    client, and the losses of one process that reads what the journal says and does it."""
    plan = replace(TWICE, sync=Sync("local_sgd", 3))
    first = RunJob(KEPT_APART, plan, RunOptions(steps=STEPS, precision="fp64", timeout_s=60.0))
    desk, rng, control = Desk(first, Journal(tmp_path / "journal")), random.Random(seed), tmp_path / "run"
    sent = list[int]()

    def watch(step: RunStep) -> None:
        desk.made(step)
        if step.number % 9 or len(sent) == 20:
            return
        for attempt in range(200):
            with RunClient(control) as client, suppress(RefusedError, IndexError, InputError):
                order = {**drawn(rng, desk.asked), "key": f"{step.number}-{attempt}", "after_step": step.number + 3}
                sent.append(client.ask(order)["accepted"])
                return
        raise AssertionError("nothing can be ordered")

    with listening(control, lambda: desk):
        found = run(first, watch=watch, changes=desk)
    lines = read_journal(tmp_path / "journal")
    orders = {line["order"]: line["asked"] for line in lines if line["kind"] == "order"}
    now, changes, every = first, list[Left](), [plan.sync.every] * STEPS
    for line in (each for each in lines if each["kind"] == "done"):
        asked_of = {name: value for name, value in orders[line["order"]].items() if name != "after_step"}
        then = change_of(order_of_document(asked_of), now, done=line["after_step"]).plan
        waves = {number: each.num_micro_batches for number, each in enumerate(then.pipelines)}
        changes.append(Left(line["after_step"] + 1, waves, copies=continued(now.plan, then), plan=then))
        every[line["after_step"] :] = [then.sync.every] * (STEPS - line["after_step"])
        now = replace(now, plan=then)
    assert (len(sent), len(changes)) == (20, 20)
    assert {each["order"] for each in orders.values()} >= {"join", "leave", "plan", "every"}
    expected = list(local_losses(first, settings_of(first), every, left=changes))
    assert [step.loss for step in found.steps] == pytest.approx(expected, rel=1e-9, abs=0.0)
    assert [line["loss"] for line in lines if line["kind"] == "step"] == [step.loss for step in found.steps]
