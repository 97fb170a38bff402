"""Layers that move lose nothing: every loss is that of one process that was never moved."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from hippo.errors import InputError
from hippo.plan.plan import Plan
from hippo.problem.transport import HIPPO
from hippo.run import checkpoint
from hippo.run.change import PlanChange, Planned, check_change
from hippo.run.executor.channels import Meeting
from hippo.run.executor.handing import Both, Handing
from hippo.run.handover import hands, predicted_s, wan_bytes
from hippo.run.job import RunJob, RunOptions
from hippo.run.lost import RunError
from hippo.run.model.reference import losses
from hippo.run.model.stage import Part, settings_of
from hippo.run.model.weights import TensorSplit, forms
from hippo.run.run import Crew, run
from hippo.run.saving import Saving
from hippo.run.version import Version
from hippo.run.work import Work

from .worlds import GPT2, PLANS, pipelines, problem

LEFT = Plan(pipelines((4, [("a", 0, 3, 1, 1), ("b", 3, 6, 1, 1)])), 2)
RIGHT = Plan(pipelines((2, [("b", 0, 2, 2, 1), ("a", 2, 6, 1, 2)])), 4)


def parts(job: RunJob) -> dict[int, Part]:
    """What each process of a plan holds, by rank; every number of the state is its own."""
    work = Work(job.problem.model, job.plan)
    found = {}
    for worker in work.workers:
        split = TensorSplit(work.widths(work.stage(worker))[0], worker.tp_index, work.parts)
        found[worker.rank] = Part.new(job.problem.model, work.chunks(worker), settings_of(job), split)
    return found


def grown(job: RunJob, held: dict[int, Part], factor: float) -> None:
    """Moments that follow from the weights, so that whole tensors can be compared."""
    for part in held.values():
        for states in part.states.values():
            for state in states.values():
                state.master.mul_(factor)
                state.first.copy_(state.master * 2)
                state.second.copy_(state.master * 3)


@pytest.mark.parametrize(
    ("name", "one", "two"),
    [
        ("tp and cuts", *(LEFT, RIGHT)),
        ("back", *(RIGHT, LEFT)),
        ("replicas", PLANS["unlike shares"][1], PLANS["unlike dp"][1]),
        ("chunks", PLANS["chunks"][1], PLANS["tensor parallel"][1]),
    ],
)
def test_every_number_of_the_state_arrives(name: str, one: Plan, two: Plan, tmp_path: Path):
    options = RunOptions(timeout_s=20.0)
    before, after = RunJob(problem(GPT2), one, options), RunJob(problem(GPT2), two, options)
    held, empty, wanted = parts(before), parts(after), parts(after)
    grown(before, held, 1.5)
    grown(after, wanted, 1.5)

    old = Version(0, before, tuple(range(len(held))))
    new = Version(1, after, tuple(range(len(held), len(held) + len(empty))))

    def hand(process: int) -> None:
        mine = held.get(process), empty.get(process - len(held))
        Handing(old, new, process, Meeting(tmp_path, process), mine).do()

    with ThreadPoolExecutor(len(held) + len(empty)) as pool:
        for done in [pool.submit(hand, process) for process in (*old.members, *new.members)]:
            done.result()
    for rank, part in empty.items():
        for layer, states in part.states.items():
            for key, state in states.items():
                for field in ("master", "first", "second"):
                    want = getattr(wanted[rank].states[layer][key], field)
                    assert torch.equal(getattr(state, field), want), (rank, layer, key, field)


class _Posts:
    """Groups that note what is to be received."""

    def __init__(self, *given: object, **named: object) -> None:
        self.posted: list[torch.Tensor] = []

    def groups(self, wanted: Mapping[str, tuple[int, ...]]) -> dict[str, _Posts]:
        return dict.fromkeys(wanted, self)

    def recv(self, tensors: list[torch.Tensor], source: int, tag: int) -> None:
        self.posted += tensors


def test_what_comes_lands_on_the_device_of_the_layers():
    old, new = Version(0, RunJob(problem(GPT2), LEFT), (0, 1)), Version(1, RunJob(problem(GPT2), RIGHT), (2, 3, 4, 5))
    work = new.job.work
    worker = work.workers[-1]
    part = Part.new(GPT2, work.chunks(worker), replace(settings_of(new.job), device="meta"))
    posts = _Posts()
    Handing(old, new, 2 + worker.rank, posts, (None, part))  # type: ignore[arg-type]
    assert posts.posted
    assert {one.device.type for one in posts.posted} == {"meta"}


@pytest.mark.parametrize(("name", "tp"), [("few key-value heads", 1), ("split backwards", 2)])
def test_heads_that_are_split_in_one_plan_only_arrive_whole(name: str, tp: int):
    model, two = PLANS[name]
    one = Plan(pipelines((4, [("a", 0, model.num_layers, tp, 1)])), 2)
    for first, second in ((one, two), (two, one)):
        both = Both(Work(model, first), Work(model, second), problem(model).cluster)
        covered: dict[tuple[int, int, str], float] = defaultdict(float)
        for (_, destination), layers in both.messages().items():
            for piece in (piece for pieces in layers.values() for piece in pieces):
                covered[destination, piece.layer, piece.name] += 1 / piece.parts
        for worker in both.new.workers:
            tp = both.new.widths(both.new.stage(worker))[0]
            for start, stop in both.new.chunks(worker):
                for layer in range(start, stop):
                    for form in forms(model, layer, both.new.parts):
                        share = 1 / tp if form.split is not None else 1.0
                        assert covered[worker.rank, layer, form.name] == pytest.approx(share)


def test_layers_that_stay_in_their_domain_do_not_cross_the_wan():
    cluster = problem(GPT2).cluster
    old, new = Work(GPT2, LEFT), Work(GPT2, Plan(pipelines((4, [("a", 0, 2, 1, 1), ("b", 2, 6, 1, 1)])), 2))
    moved = wan_bytes(old, new, hands(old, new, cluster), number_bytes=4)
    assert moved == {("a", "b"): 3 * 4 * GPT2.layers[2].parameters}
    assert predicted_s(cluster, moved) == pytest.approx(moved["a", "b"] / (HIPPO.goodput * 1e8))
    slow = replace(cluster, links=tuple(replace(link, latency_s=0.02) for link in cluster.links))
    assert 0.02 < predicted_s(slow, moved) - predicted_s(cluster, moved) < 0.3


def test_a_replica_nearby_gives():
    two = Plan(pipelines((4, [("a", 0, 6, 1, 1)]), (4, [("b", 0, 6, 1, 1)])), 1)
    cluster = problem(GPT2).cluster
    old, new = Work(GPT2, two), Work(GPT2, LEFT)
    assert wan_bytes(old, new, hands(old, new, cluster), number_bytes=4) == {}


def test_a_step_outside_the_run_is_refused():
    job = RunJob(problem(GPT2), LEFT, RunOptions(steps=4))
    for step in (0, 4):
        with pytest.raises(InputError, match="step from 1 to 3"):
            check_change(job, PlanChange(RIGHT, step), source="--then")


def test_a_domain_without_a_way_there_is_refused():
    world = problem(GPT2)
    lonely = replace(world, cluster=replace(world.cluster, links=world.cluster.links[:1]))
    with pytest.raises(InputError, match="no link leads there"):
        check_change(RunJob(lonely, LEFT, RunOptions(steps=4)), PlanChange(RIGHT, 2), source="--then")


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp64", "fp32", "bf16"])
def test_the_loss_after_a_move_is_that_of_one_process(precision: str):
    job = RunJob(problem(GPT2), LEFT, RunOptions(steps=5, precision=precision, timeout_s=60.0))
    steps = run(job, changes=Planned(PlanChange(RIGHT, 2))).steps
    expected = list(losses(job.problem, settings_of(job), steps=5, micro_batch=2))
    assert [step.number for step in steps] == [1, 2, 3, 4, 5]
    near = {"fp64": 1e-9, "fp32": 1e-5, "bf16": 3e-2}[precision]
    assert [step.loss for step in steps] == pytest.approx(expected, abs=near)


@pytest.mark.slow
@pytest.mark.parametrize("who", ["old", "new"])
def test_a_death_in_the_middle_leaves_what_was_before(who: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A process that was to come: the run goes on as it was; one that trains: it ends, its last checkpoint whole."""
    job = RunJob(problem(GPT2), LEFT, RunOptions(steps=4, precision="fp64", timeout_s=30.0))
    gather = Crew.gather

    def killed(crew: Crew, key: str, whom: tuple[int, ...], **told: int) -> list[dict[str, object]]:
        if key == "handed":
            crew.processes[whom[-1 if who == "new" else 0]].kill()
        return gather(crew, key, whom, **told)

    monkeypatch.setattr(Crew, "gather", killed)
    if who == "old":
        with pytest.raises(RunError, match="signal 9"):
            run(job, changes=Planned(PlanChange(RIGHT, 2)), saving=Saving(tmp_path, every=1))
        assert checkpoint.last(tmp_path, GPT2).step == 2
    else:
        found = run(job, changes=Planned(PlanChange(RIGHT, 2)), saving=Saving(tmp_path, every=1))
        expected = list(losses(job.problem, settings_of(job), steps=4, micro_batch=2))
        assert [step.loss for step in found.steps] == pytest.approx(expected, rel=1e-9)
        assert {each.job.plan for each in found.stretches} == {LEFT}
    assert not list(tmp_path.glob(".step-*"))
