"""Layers that move beside the training: the loss is that of one process, and a move can be given up."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hippo.errors import InputError
from hippo.plan.codec import plan_to_document
from hippo.plan.plan import Plan
from hippo.run.change import PlanChange, Planned
from hippo.run.control import Desk
from hippo.run.job import RunJob, RunOptions
from hippo.run.journal import Journal
from hippo.run.model.reference import losses
from hippo.run.model.stage import settings_of
from hippo.run.move import MOST_STEPS, Streamed, moved, streamed, streaming
from hippo.run.network import RunNetwork
from hippo.run.orders import change_of, order_of_document
from hippo.run.run import Crew, Result, RunStep, run
from hippo.run.version import Version

from .test_run import _none_left  # noqa: F401
from .worlds import GPT2, PLANS, TWINS, pipelines, problem

STAGES = PLANS["stages"][1]
MOVED = Plan(pipelines((4, [("a", 0, 5, 1, 1), ("b", 5, 6, 1, 1)])), 2)
ALONE = Plan(pipelines((4, [("a", 0, 6, 1, 1)])), 2)


def job(plan: Plan = STAGES, **options: Any) -> RunJob:
    return RunJob(problem(GPT2), plan, RunOptions(**{"steps": 8, "precision": "fp64", "timeout_s": 20.0, **options}))


def expected(job: RunJob) -> list[float]:
    return list(losses(job.problem, settings_of(job), steps=job.options.steps, micro_batch=2))


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every border waits until all have made ready, so that what happens does not hang on how quick they are."""
    said = Crew.said

    def waits(crew: Crew, key: str, whom: Sequence[int], *, number: int | None = None) -> bool:
        while not said(crew, key, whom, number=number):
            time.sleep(0.01)
        return True

    monkeypatch.setattr(Crew, "said", waits)


def test_a_move_beside_the_training_goes_over_by_itself(patient: None):
    """It is begun after the first step, which says what steps leave, and ends at a border after it."""
    began = job(steps=6)
    found = run(began, changes=Planned(PlanChange(MOVED, background=True)))
    assert [step.loss for step in found.steps] == pytest.approx(expected(began), rel=1e-9)
    (change,) = [each.change for each in found.stretches if each.change is not None]
    assert change.background
    assert change.after_step >= 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("one", "two"),
    [
        (STAGES, MOVED),
        (ALONE, TWINS),
        (STAGES, PLANS["tensor parallel"][1]),
        (PLANS["unlike shares"][1], ALONE),
    ],
)
def test_a_move_beside_the_training_keeps_the_loss(one: Plan, two: Plan):
    """Layers arrive at once here and are kept in step by the gradients of what follows, until after step 5."""
    began = job(one)
    moved = run(began, changes=Planned(PlanChange(two, 5, background=True)))
    assert [step.loss for step in moved.steps] == pytest.approx(expected(began), rel=1e-9)
    (change,) = [each.change for each in moved.stretches if each.change is not None]
    assert (change.after_step, change.background) == (5, True)
    stopped = run(began, changes=Planned(PlanChange(two, 5)))
    assert [step.loss for step in moved.steps] == [step.loss for step in stopped.steps], "bit for bit"
    assert change.sent_bytes > stopped.stretches[-1].change.sent_bytes, "gradients, too"  # type: ignore[union-attr]


def given_up(began: RunJob, folder: Path, *, at: int) -> tuple[Desk, Result]:
    """A run whose move, which waits for step 6, is given up after step ``at``, and which then moves by stopping."""
    desk = Desk(began, Journal(folder / "journal"))
    plan = plan_to_document(began.problem, TWINS)

    def watch(step: RunStep) -> None:
        desk.made(step)
        if step.number == 1:
            order = {"order": "plan", "key": "move", "plan": plan, "way": "background", "after_step": 6}
            assert desk.answer(order) == {"accepted": 1}
        if step.number == at:
            assert desk.answer({"order": "give-up", "key": "stop"}) == {"accepted": 2}
            assert desk.answer({"order": "give-up", "key": "stop"}) == {"accepted": 2}
        if step.number == 6:
            assert desk.answer({"order": "plan", "key": "again", "plan": plan}) == {"accepted": 3}

    found = run(began, watch=watch, changes=desk)
    desk.close()
    return desk, found


def test_a_move_that_is_given_up_leaves_the_run_as_it_was(patient: None, tmp_path: Path):
    began = job(ALONE, steps=12)
    desk, found = given_up(began, tmp_path, at=4)
    assert [step.loss for step in found.steps] == pytest.approx(expected(began), rel=1e-9)
    orders = desk.status()["orders"]
    assert [each["state"] for each in orders] == ["given up", "done", "done"]
    assert orders[0]["why"] == "order 2 asked for it"
    assert [each.job.plan for each in found.stretches] == [ALONE, TWINS], "and moves later all the same"


class Fickle(Planned):
    """Asks for the same change again and again, and gives it up as often but once."""

    def __init__(self, change: PlanChange, times: int) -> None:
        super().__init__(*[change] * (times + 1))
        self.left = times

    def unwanted(self, what: PlanChange) -> str:
        return "it is not wanted" if self.left else ""

    def gave_up(self, what: PlanChange, told: str) -> None:
        self.left -= 1


def test_a_move_that_was_given_up_twice_is_made_where_nobody_hears_what_was_given_up(patient: None):
    """Receives of layers that were posted for each of the two are still there."""
    began = job()
    found = run(began, changes=Fickle(PlanChange(MOVED), 2))
    assert [step.loss for step in found.steps] == pytest.approx(expected(began), rel=1e-9)
    assert [each.job.plan for each in found.stretches] == [STAGES, MOVED]


def test_what_streams_is_kept_in_step_at_the_rate_of_the_plan_before(patient: None):
    """The plan after has twice the batch, and its learning rate follows."""
    began = job(steps=5, batch_rule="follow", rate_rule="linear")
    twice = replace(MOVED, pipelines=tuple(replace(line, num_micro_batches=8) for line in MOVED.pipelines))
    moved, stopped = (run(began, changes=Planned(PlanChange(twice, 4, background=way))) for way in (True, False))
    assert [step.loss for step in moved.steps] == [step.loss for step in stopped.steps], "bit for bit"


THREE = Plan(pipelines((2, [("a", 0, 6, 1, 1)]), (2, [("b", 0, 3, 1, 1), ("b", 3, 6, 1, 1)])), 2)


@pytest.mark.slow
@pytest.mark.parametrize(("one", "two", "who"), [(ALONE, TWINS, "taker"), (TWINS, THREE, "giver")])
def test_a_death_while_layers_stream_gives_the_move_up(
    one: Plan, two: Plan, who: str, patient: None, monkeypatch: pytest.MonkeyPatch
):
    """Who was to come: the run goes on as it was; who gives: whole replicas go on, and are asked for the plan again."""
    began, streams, killed = job(one, steps=10), Crew.streams, []

    def watched(crew: Crew, whom: Sequence[int], number: int) -> list[dict[str, Any]]:
        told = streams(crew, whom, number)
        if told and not killed:
            killed.append(max(crew.processes) if who == "taker" else 1)
            crew.processes[killed[0]].kill()
        return told

    monkeypatch.setattr(Crew, "streams", watched)
    found = run(began, changes=Planned(PlanChange(two, 6, background=True)))
    assert killed
    assert [step.loss for step in found.steps] == pytest.approx(expected(began), rel=1e-9)
    plans = [each.job.plan for each in found.stretches]
    if who == "taker":
        assert set(plans) == {ALONE}
    else:
        assert [len(each.pipelines) for each in plans] == [2, 1, 2]


def test_what_cannot_be_given_up_is_refused(tmp_path: Path):
    desk = Desk(job(), Journal(tmp_path / "journal"))
    move = {"order": "plan", "key": "move", "plan": plan_to_document(problem(GPT2), MOVED), "way": "background"}
    for request, told in (
        ({"order": "give-up", "key": "1"}, "no such order is under way"),
        ({"order": "give-up", "key": "1", "number": 7}, "no such order is under way"),
        ({"order": "give-up", "key": "1", "number": True}, "no such order is under way"),
        ({"order": "give-up", "key": "1", "speed": 7}, "speed: is unknown"),
        ({**move, "way": "by ship"}, "unknown way 'by ship'"),
        ({**move, "way": 3}, "way: must be a word"),
    ):
        assert told in desk.answer(request)["refused"]
    assert desk.answer(move) == {"accepted": 1}
    assert desk.answer({"order": "give-up", "key": "2", "number": 1}) == {"accepted": 2}
    assert desk.due(0, job()) is None, "it was given up before it was begun"
    assert [each["state"] for each in desk.status()["orders"]] == ["given up", "done"]
    desk.close()


def test_a_move_is_forecast_when_it_is_ordered_and_refused_where_it_never_arrives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(RunNetwork, "around", lambda cluster: RunNetwork())
    move = {"order": "plan", "plan": plan_to_document(problem(GPT2), MOVED), "way": "background"}
    desk = Desk(job(), Journal(tmp_path / "journal"))
    desk.made(RunStep(1, 0.5, 4.0))
    told = desk.answer({**move, "key": "1"})["move"]
    assert (told["background"], told["steps"]) == (True, 1)
    assert told["predicted_s"] == pytest.approx(0.5 + told["predicted_stopped_s"])
    assert told["sent_bytes"] == pytest.approx(told["wan_bytes"] * 4 / 3), "the gradients of a step, too"
    desk.close()
    links = tuple(replace(link, bandwidth_bytes_per_s=1e5) for link in job().problem.cluster.links)
    slow = replace(job().problem, cluster=replace(job().problem.cluster, links=links))
    desk = Desk(replace(job(), problem=slow), Journal(tmp_path / "other"))
    desk.made(RunStep(1, 0.5, 4.0))
    move["plan"] = plan_to_document(slow, MOVED)
    assert "never arrives beside the training" in desk.answer({**move, "key": "1"})["refused"]
    assert desk.answer({**move, "key": "2", "after_step": 3})["move"]["steps"] == 2, "the rest is sent then"
    assert desk.answer({**move, "key": "2", "after_step": 3})["move"]["steps"] == 2, "a key that came before"
    desk.close()


def test_what_is_left_of_a_stream_after_each_step():
    """30 bytes over 12 to spare in a step; what has come by a border owes a third of it there."""
    # landed, owed: 12, 4; 20, 20 / 3; 25 1/3, 8 4/9
    assert streamed(30.0, 12.0, most_left=0.0, steps=1).left_bytes == pytest.approx(18 + 4)
    assert streamed(30.0, 12.0, most_left=0.0, steps=2).left_bytes == pytest.approx(10 + 20 / 3)
    assert streamed(30.0, 12.0, most_left=0.0, steps=3).left_bytes == pytest.approx(30 - 76 / 3 + 76 / 9)
    assert streamed(30.0, 12.0, most_left=17.0) == streamed(30.0, 12.0, most_left=0.0, steps=2)
    assert streamed(9.0, 12.0, most_left=3.0) == Streamed(1, 9.0, 3.0)
    assert streamed(30.0, 5.0, most_left=10.0).steps == MOST_STEPS, "it never arrives"
    assert streamed(30.0, 12.0, most_left=0.0, steps=1, first=0.5) == Streamed(1, 6.0, 24 + 2)
    assert streamed(30.0, 5.0, most_left=10.0, steps=400).left_bytes <= 30.0, "as much as stopping sends, at most"


def test_a_process_that_starts_is_ready_in_the_middle_of_a_step():
    """Its replica's state crosses a link that training leaves alone; the first step is as long as is left of it."""
    alone, joined = replace(job(), plan=ALONE), replace(job(), plan=TWINS)
    old = Version.first(alone)
    new = old.following(joined, fresh=len(old.members))
    ((pair, state),) = moved(old, new).items()
    cluster = alone.problem.cluster.under(RunNetwork().transport)
    rate = cluster.links[cluster.link_index[pair]].rate_bytes_per_s(1)
    step_s = 2 * state / rate  # in half a step it comes, and owes a third: less than half a step
    known = streaming(old, new, RunNetwork(), step_s=step_s, first=0.75)
    assert known.seconds == pytest.approx(0.75 * step_s + known.stopped_s)
    unknown = streaming(old, new, RunNetwork(), step_s=step_s)
    assert unknown == streaming(old, new, RunNetwork(), step_s=step_s, first=0.5)
    assert known.stopped_s == pytest.approx(state / 3 / rate + 2 * alone.problem.cluster.links[0].latency_s, rel=0.02)


def test_torchs_runtime_moves_by_stopping():
    order = order_of_document({"order": "plan", "plan": plan_to_document(problem(GPT2), MOVED), "way": "background"})
    torchs = job()
    torchs = replace(torchs, options=replace(torchs.options, runtime="torch"))
    with pytest.raises(InputError, match="is not for torch's runtime"):
        change_of(order, torchs, done=0)
