"""Replicas that train alone, of which one is lost: the others go on as if it had never told what not all had used."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hippo.front_door.running import Checkpoints, job_of, trained
from hippo.plan.codec import plan_to_document
from hippo.plan.plan import Plan, ScheduleChoice, Sync
from hippo.problem.model import LayerKind
from hippo.run import checkpoint
from hippo.run import run as launcher
from hippo.run.change import PlanChange, Planned, check_change, dealt
from hippo.run.control import Desk, journal_of
from hippo.run.job import RunJob, RunOptions
from hippo.run.journal import Journal
from hippo.run.model.stage import settings_of
from hippo.run.run import Crew, Here, Result, RunStep, run
from hippo.run.saving import Saving

from ..judges.local_sgd_replicas import Left, local_losses
from .worlds import GPT2, TWINS, pipelines, problem

THREE = Plan(
    pipelines((2, [("a", 0, 6, 1, 1)]), (1, [("b", 0, 3, 1, 1), ("b", 3, 6, 1, 1)]), (1, [("b", 0, 6, 1, 1)])), 2
)
TWO = Plan(pipelines((2, [("a", 0, 3, 1, 1), ("a", 3, 6, 1, 1)]), (2, [("b", 0, 6, 1, 1)])), 2)
SECOND, LAST = {0: 3, 1: 1}, {0: 3, 2: 1}  # waves, where the last one is lost, or the second
CASES = {  # the plan, who dies at which word of which step, how late sums are used, and who is left from when
    "before all agreed": (THREE, 3, "go", 3, 0, Left(3, SECOND)),
    "as weights change": (THREE, 3, "update", 3, 0, Left(3, SECOND, updating=True)),
    "as they are summed": (THREE, 3, "update", 2, 0, Left(2, SECOND, updating=True)),
    "a stage, as they are summed": (THREE, 2, "update", 4, 0, Left(4, LAST, updating=True)),
    "the first, as they are summed": (THREE, 0, "update", 2, 0, Left(2, {1: 2, 2: 2}, updating=True)),
    "when all have the sum": (THREE, 3, "use", 2, 0, Left(3, SECOND)),
    "while a sum goes round": (THREE, 1, "go", 3, 1, Left(3, LAST)),
    "as it is to be used": (THREE, 3, "update", 3, 1, Left(3, SECOND, updating=True)),
    "of two": (TWO, 2, "update", 2, 0, Left(2, {0: 4}, updating=True)),
}
QUICK = ("as they are summed", "while a sum goes round")


@pytest.mark.parametrize(
    "name", [each if each in QUICK else pytest.param(each, marks=pytest.mark.slow) for each in CASES]
)
def test_the_others_go_on(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """And from their checkpoint, as if they had never ended."""
    plan, process, word, step, late, left = CASES[name]
    plan, say = replace(plan, sync=Sync("local_sgd", 2)), Crew.say
    options = RunOptions(steps=6, precision="fp64", timeout_s=20.0, outer_late=late)
    asked = RunJob(replace(problem(GPT2), allow_local_sgd=True), plan, options)

    def killing(crew: Crew, whom: Iterable[int], **told: Any) -> None:
        if told.get(word) == step and process in crew.processes:
            crew.processes[process].kill()
            crew.processes[process].wait()
        say(crew, whom, **told)

    monkeypatch.setattr(Crew, "say", killing)
    saving = None if late else Saving(tmp_path, 4)
    found = run(asked if late else replace(asked, options=replace(options, steps=4)), saving=saving)
    plan, steps = found.stretches[-1].job.plan, found.steps
    if saving is not None:
        saved = checkpoint.last(tmp_path, GPT2)
        assert (saved.step, saved.replicas) == (4, len(left.waves))
        resumed = replace(options, steps=2, first_step=5, resume_from=str(saved.folder))
        steps += run(replace(asked, plan=plan, options=resumed)).steps
    expected = list(local_losses(asked, settings_of(asked), left=[left]))
    assert [each.loss for each in steps] == pytest.approx(expected, rel=1e-9)
    assert [each.num_micro_batches for each in plan.pipelines] == list(left.waves.values())
    whole = list(local_losses(asked, settings_of(asked)))
    assert whole[-1] != pytest.approx(expected[-1], rel=1e-9)


@pytest.mark.parametrize("late", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_some_leave_by_an_order(late: int):
    """A sum that goes round is used before, by all."""
    plan = replace(THREE, sync=Sync("local_sgd", 2))
    options = RunOptions(steps=6, precision="fp64", timeout_s=20.0, outer_late=late)
    asked = RunJob(replace(problem(GPT2), allow_local_sgd=True), plan, options)
    lines = plan.pipelines[0], plan.pipelines[2]
    fewer = replace(plan, pipelines=tuple(dealt(line, count) for line, count in zip(lines, (3, 1), strict=True)))
    order = PlanChange(fewer, after_step=4)
    check_change(asked, order, source="plan.json")
    found = run(asked, changes=Planned(order))
    left = [Left(5, {0: 3, 2: 1})]
    expected = list(local_losses(replace(asked, options=replace(options, outer_late=0)), settings_of(asked), left=left))
    if not late:
        assert [each.loss for each in found.steps] == pytest.approx(expected, rel=1e-9)
    assert [len(each.workers) for each in found.stretches] == [4, 2]


SPLIT = Plan(pipelines((2, [("a", 0, 6, 1, 1)]), (1, [("b", 0, 6, 2, 1)]), (1, [("b", 0, 6, 1, 1)])), 2)


@pytest.mark.parametrize("process", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_who_shares_layers_with_one_who_is_lost_is_lost_too(process: int, monkeypatch: pytest.MonkeyPatch):
    """Of a tensor-parallel group one dies as weights are summed, and the other one fails for it: the rest goes on."""
    asked, found = _struck(SPLIT, process, signal.SIGKILL, monkeypatch)
    expected = list(local_losses(asked, settings_of(asked), left=[Left(2, LAST, updating=True)]))
    assert [each.loss for each in found.steps] == pytest.approx(expected, rel=1e-9)


def test_who_is_silent_while_weights_are_summed_is_lost(monkeypatch: pytest.MonkeyPatch):
    """Who waits for it says so."""
    asked, found = _struck(THREE, 3, signal.SIGSTOP, monkeypatch)
    expected = list(local_losses(asked, settings_of(asked), left=[Left(2, SECOND, updating=True)]))
    assert [each.loss for each in found.steps] == pytest.approx(expected, rel=1e-9)
    (change,) = (each.change for each in found.stretches if each.change is not None)
    assert "waits for replicas to agree on parameters" in change.lost
    assert "rank 3 (pipeline 2, stage 0, b) said nothing" in change.lost


@pytest.mark.parametrize(
    ("plan", "breaks", "times"),
    [
        (TWO, {"2": [0]}, 1),
        pytest.param(SPLIT, {"2": [0]}, 1, marks=pytest.mark.slow),
        pytest.param(TWINS, {"1": [0, 1], "0": [2]}, 3, marks=pytest.mark.slow),  # who had a sum of before lacks it
    ],
    ids=["two", "teams", "again and again"],
)
def test_a_sum_that_a_broken_connection_took_from_one_is_used_by_nobody(
    plan: Plan, breaks: Mapping[str, list[int]], times: int, monkeypatch: pytest.MonkeyPatch
):
    """Nobody dies, and all sum anew over new connections."""
    monkeypatch.setattr(launcher, "PROGRAM", "tests.run.broken_connection")
    monkeypatch.setenv("BREAKS", json.dumps(breaks))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    options = RunOptions(steps=5, precision="fp64", timeout_s=8.0 if times == 1 else 4.0)
    asked = RunJob(replace(problem(GPT2), allow_local_sgd=True), replace(plan, sync=Sync("local_sgd", 2)), options)
    found = run(asked)
    assert [each.loss for each in found.steps] == pytest.approx(list(local_losses(asked, settings_of(asked))), rel=1e-9)
    told = [each.change.lost for each in found.stretches if each.change is not None]
    assert len(told) == times
    assert "on parameters" in told[0]  # of several others who wait for its part may be silent first
    assert len(found.workers) == len(asked.work.workers)


@pytest.mark.slow
def test_a_plan_of_before_brings_a_lost_replica_back(monkeypatch: pytest.MonkeyPatch):
    """As a copy of the nearest that is left."""
    then = replace(THREE, sync=Sync("local_sgd", 2), schedule=ScheduleChoice("gpipe"))
    asked, found = _struck(THREE, 3, signal.SIGKILL, monkeypatch, PlanChange(then, after_step=5))
    whole = Left(6, {0: 2, 1: 1, 2: 1}, copies={0: 0, 1: 1, 2: 1}, plan=then)
    expected = list(local_losses(asked, settings_of(asked), left=[Left(2, SECOND, updating=True), whole]))
    assert [each.loss for each in found.steps] == pytest.approx(expected, rel=1e-9)


def _struck(
    plan: Plan, process: int, by: signal.Signals, monkeypatch: pytest.MonkeyPatch, *planned: PlanChange
) -> tuple[RunJob, Result]:
    """A run of nine steps, of which one process gets a signal as it is to sum after the second."""
    plan, say = replace(plan, sync=Sync("local_sgd", 2)), Crew.say
    options = RunOptions(steps=9, precision="fp64", timeout_s=6.0 if by == signal.SIGSTOP else 20.0)
    asked = RunJob(replace(problem(GPT2), allow_local_sgd=True), plan, options)

    def striking(crew: Crew, whom: Iterable[int], **told: Any) -> None:
        if told.get("update") == 2:
            os.kill(crew.processes[process].pid, by)
            if by == signal.SIGKILL:
                crew.processes[process].wait()
        say(crew, whom, **told)

    monkeypatch.setattr(Crew, "say", striking)
    return asked, run(asked, changes=Planned(*planned))


TEAMS = Plan(pipelines((2, [("a", 0, 6, 2, 1)]), (1, [("b", 0, 6, 2, 1)]), (1, [("b", 0, 6, 1, 1)])), 2)


@pytest.mark.parametrize("process", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_team_that_has_its_sums_waits_for_nobody(process: int, monkeypatch: pytest.MonkeyPatch):
    """Of a tensor-parallel group one has all its sums, the other does not come to them: both go on."""
    asked, found = _struck(TEAMS, process, signal.SIGKILL, monkeypatch)
    expected = list(local_losses(asked, settings_of(asked), left=[Left(2, {1: 2, 2: 2}, updating=True)]))
    assert [each.loss for each in found.steps] == pytest.approx(expected, rel=1e-9)


@pytest.mark.slow
def test_more_replicas_than_were_saved_begin_as_copies_of_the_first(tmp_path: Path):
    """So a run that has lost one goes on by its own command."""
    two, three = (replace(plan, sync=Sync("local_sgd", 2)) for plan in (PAIR, THREE))
    options = RunOptions(steps=3, precision="fp64", timeout_s=20.0)
    first = RunJob(replace(problem(GPT2), allow_local_sgd=True), two, options)
    steps = run(first, saving=Saving(tmp_path, 3)).steps
    wanted = replace(options, steps=4)
    then = job_of(first.problem, three, wanted, checkpoints=Checkpoints(tmp_path, resume=True))
    steps += run(then).steps
    joined = Left(4, _waves(three), copies={0: 0, 1: 1, 2: 0}, plan=three)
    all_ = replace(first, options=replace(options, steps=7))
    assert [each.loss for each in steps] == pytest.approx(
        list(local_losses(all_, settings_of(all_), left=[joined])), rel=1e-9
    )


IN_A, IN_B = [("a", 0, 6, 1, 1)], [("b", 0, 3, 1, 1), ("b", 3, 6, 1, 1)]
ONE = Plan(pipelines((4, IN_A)), 2)
PAIR = Plan(pipelines((2, IN_A), (2, IN_B)), 2)
WIDE = Plan(pipelines((2, [("a", 0, 6, 2, 1)]), (2, [("b", 0, 6, 1, 1)])), 2)
MOVED = Plan(pipelines((2, IN_A), (2, IN_A)), 2)
CUT = Plan(pipelines((2, IN_A), (2, [("b", 0, 2, 1, 1), ("b", 2, 6, 1, 1)])), 2)
LANES = Plan(pipelines((2, IN_A), (1, [("b", 0, 6, 1, 2)])), 2)
CHANGES = {  # plans one after another, and of which replica before each of them goes on
    "one joins and leaves": ((ONE, PAIR, ONE), ((0, 0), (0,))),
    "a third joins": ((PAIR, THREE), ((0, 1, 1),)),
    "one moves": ((PAIR, MOVED, PAIR), ((0, 1), (0, 1))),
    "layers move": ((PAIR, CUT, PAIR), ((0, 1), (0, 1))),
    "cut otherwise": ((PAIR, WIDE, PAIR), ((0, 1), (0, 1))),
    "lanes": ((PAIR, LANES, PAIR), ((0, 1), (0, 1))),
    "they change numbers": ((PAIR, Plan(PAIR.pipelines[::-1], 2)), ((1, 0),)),
    "one leaves and its layers move": ((CUT, Plan(pipelines((4, IN_B)), 2)), ((1,),)),
    "one leaves, then layers move": (
        (CUT, Plan(pipelines((4, [("b", 0, 2, 1, 1), ("b", 2, 6, 1, 1)])), 2), Plan(pipelines((4, IN_B)), 2), PAIR),
        ((1,), (0,), (0, 0)),
    ),
    "one leaves for another": ((PAIR, Plan(pipelines((4, IN_B)), 2), PAIR), ((1,), (0, 0))),
}
QUICK_CHANGES = ("one joins and leaves", "cut otherwise")


@pytest.mark.parametrize(
    "name", [each if each in QUICK_CHANGES else pytest.param(each, marks=pytest.mark.slow) for each in CHANGES]
)
@pytest.mark.parametrize("steps", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_they_move_and_are_joined(name: str, steps: int):
    """At the border after a sum, and after a step that each has made alone: who joins is a copy of one that is there,
    outer momentum and all."""
    plans, copies = CHANGES[name]
    plans = tuple(replace(each, sync=Sync("local_sgd", 2)) for each in plans)
    options = RunOptions(steps=steps * len(plans), precision="fp64", timeout_s=20.0)
    first = RunJob(replace(problem(GPT2), allow_local_sgd=True), plans[0], options)
    orders = [PlanChange(plan, after_step=steps * number) for number, plan in enumerate(plans[1:], start=1)]
    for before, order in zip(plans, orders, strict=False):
        check_change(replace(first, plan=before), order, source="plan.json")
    changed = [
        Left(1 + steps * number, _waves(plan), copies=dict(enumerate(of)), plan=plan)
        for number, (plan, of) in enumerate(zip(plans[1:], copies, strict=True), start=1)
    ]
    expected = list(local_losses(first, settings_of(first), left=changed))
    found = run(first, changes=Planned(*orders))
    assert [each.loss for each in found.steps] == pytest.approx(expected, rel=1e-9)
    assert [one.change.lost for one in found.stretches if one.change is not None] == ["" for _ in orders]


@pytest.mark.slow
def test_who_was_left_alone_is_joined_by_copies_as_it_goes_on(tmp_path: Path):
    """Of two one is lost; saved as one set of weights, from which both begin by the run's own plan."""
    plan = replace(PAIR, sync=Sync("local_sgd", 2))
    options = RunOptions(steps=4, precision="fp64", timeout_s=20.0)
    first = RunJob(replace(problem(GPT2), allow_local_sgd=True), plan, options)
    one = replace(plan, pipelines=(dealt(plan.pipelines[0], 4),))
    steps = run(first, saving=Saving(tmp_path, 4), changes=Planned(PlanChange(one, after_step=2))).steps
    then = job_of(first.problem, plan, replace(options, steps=4), checkpoints=Checkpoints(tmp_path, resume=True))
    steps += run(then).steps
    changes = [Left(3, {0: 4}, copies={0: 0}, plan=one), Left(5, {0: 2, 1: 2}, copies={0: 0, 1: 0}, plan=plan)]
    whole = replace(first, options=replace(options, steps=8))
    expected = list(local_losses(whole, settings_of(whole), left=changes))
    assert [each.loss for each in steps] == pytest.approx(expected, rel=1e-9)


def _waves(plan: Plan) -> dict[int, int]:
    return {number: line.num_micro_batches for number, line in enumerate(plan.pipelines)}


@pytest.mark.slow
@pytest.mark.parametrize("leaves", [False, True])
def test_an_order_done_at_the_step_of_a_checkpoint_is_done_again_as_it_was(leaves: bool, tmp_path: Path):
    """The checkpoint is of the plan before: whoever joined is a copy of the same replica as without the crash."""
    two = pipelines((2, [("a", 0, 6, 1, 1)]), (2, [("b", 0, 6, 1, 1)]))
    three = pipelines((2, [("a", 0, 6, 1, 1)]), (1, [("b", 0, 6, 1, 1)]), (1, [("b", 0, 6, 1, 1)]))
    one, then = (Plan(lines, 2, sync=Sync("local_sgd", 2)) for lines in ((three, two) if leaves else (two, three)))
    world, options = replace(problem(GPT2), allow_local_sgd=True), RunOptions(steps=8, precision="fp64", timeout_s=30.0)
    saves, socket = Checkpoints(tmp_path / "c", every=3), tmp_path / "run.sock"
    desk = Desk(job_of(world, one, options, saves), Journal(journal_of(socket)))
    order = {"order": "plan", "key": "a", "plan": plan_to_document(world, then), "after_step": 3}
    assert desk.answer(order) == {"accepted": 1}
    first: list[float] = []

    def made(step: RunStep) -> None:
        desk.made(step)
        first.append(step.loss)
        if step.number == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(desk.job, changes=desk, watch=made, saving=Saving(tmp_path / "c", 3))
    desk.close()
    assert checkpoint.last(tmp_path / "c", GPT2).step == 3
    resumed = Checkpoints(tmp_path / "c", every=3, resume=True)
    again = job_of(world, one, replace(options, steps=5), resumed)
    found = trained(again, place=Here(), checkpoints=resumed, control=socket)
    waves = {at: line.num_micro_batches for at, line in enumerate(then.pipelines)}
    left = Left(4, waves, copies={0: 0, 1: 1} if leaves else {0: 0, 1: 1, 2: 1}, plan=then)
    expected = list(local_losses(RunJob(world, one, options), settings_of(again), left=[left]))
    assert first == pytest.approx(expected[:5], rel=1e-9)
    assert found["loss"] == pytest.approx(expected[3:], rel=1e-9)


@pytest.mark.slow
def test_stand_ins_of_blocks_without_feed_forward_go_on_without_a_replica(monkeypatch: pytest.MonkeyPatch):
    """Models as Nemotron-H, whose layers nobody can train here; one is lost as they are summed."""
    layers = tuple(replace(one, feed_forward=None) if one.kind is LayerKind.BLOCK else one for one in GPT2.layers)
    plan = replace(THREE, sync=Sync("local_sgd", 2))
    world = replace(problem(replace(GPT2, layers=layers)), allow_local_sgd=True)
    say = Crew.say

    def killing(crew: Crew, whom: Iterable[int], **told: Any) -> None:
        if told.get("update") == 2 and 3 in crew.processes:
            crew.processes[3].kill()
            crew.processes[3].wait()
        say(crew, whom, **told)

    monkeypatch.setattr(Crew, "say", killing)
    found = run(RunJob(world, plan, RunOptions(steps=4, stand_in=True, timeout_s=8.0)))
    assert len(found.steps) == 4
    assert len(found.workers) == 3
