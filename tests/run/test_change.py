"""A run that goes over to other plans at the borders of steps: every loss is that of one process."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
import torch

from hippo.errors import InputError
from hippo.plan.codec import plan_to_document
from hippo.plan.plan import Compression, Plan, ScheduleChoice, Sync
from hippo.run.change import PlanChange, Planned, cut_off, under, without
from hippo.run.executor.channels import Codec
from hippo.run.handover import hands
from hippo.run.job import RunJob, RunOptions
from hippo.run.model.reference import losses
from hippo.run.model.stage import Part, sequences, settings_of
from hippo.run.orders import change_of, order_of_document
from hippo.run.run import run
from hippo.run.seat import Seat
from hippo.run.version import Version

from ..judges.local_sgd_replicas import local_losses
from .worlds import GPT2, PLANS, SPREAD, pipelines, problem, relaying

Tensor = torch.Tensor

STAGES = PLANS["stages"][1]
LANES = PLANS["two lanes a domain"][1]
UNLIKE = PLANS["unlike shares"][1]
ALONE = Plan(pipelines((4, [("a", 0, 6, 1, 1)])), 2)
TWICE = Plan(pipelines((2, [("a", 0, 6, 1, 1)]), (2, [("b", 0, 6, 1, 1)])), 2)


def in_order(plan: Plan, name: str) -> Plan:
    return replace(plan, schedule=ScheduleChoice(name))


def sharing(plan: Plan, *waves: int) -> Plan:
    shared = zip(plan.pipelines, waves, strict=True)
    return replace(plan, pipelines=tuple(replace(line, num_micro_batches=each) for line, each in shared))


def in_threads(jobs: list[RunJob], folder: Path, steps: int) -> list[float]:
    """The losses of a run of ``steps`` under each job in turn, its processes as threads."""
    versions = [Version.first(jobs[0])]
    for job in jobs[1:]:
        versions.append(versions[-1].following(job, fresh=1 + max(max(each.everybody) for each in versions)))
    for version in versions:
        version.write(folder)
    everybody = sorted({process for version in versions for process in version.everybody})
    border, losses_of = Barrier(len(everybody)), {}

    def process(me: int) -> None:
        seat, found = Seat(folder, me, lambda _: None), {}
        for number, version in enumerate(versions):
            before = versions[max(0, number - 1)]
            here, was = me in version.members, me in before.members
            if here or was or me in version.everybody:
                seat.prepare(number, number - 1 if number else None)
            border.wait(60.0)
            old, new = before.job.work, version.job.work
            if number and (here or was) and hands(old, new, version.job.problem.cluster, before.kept(version)):
                seat.hand()
            if here:
                if number:
                    seat.enter()
                for step in range(number * steps + 1, (number + 1) * steps + 1):
                    assert seat.runner is not None
                    seat.runner.post()
                    seat.runner.run(step, 0.0)
                    seat.runner.update(step, 0.0)
                    seat.use()
                    found[step] = seat.runner.compute.loss()
            border.wait(60.0)
        seat.close()
        losses_of[me] = found

    with ThreadPoolExecutor(len(everybody)) as pool:
        for done in [pool.submit(process, me) for me in everybody]:
            done.result()
    return [sum(each.get(step, 0.0) for each in losses_of.values()) for step in range(1, len(jobs) * steps + 1)]


CHANGES = {
    "order": (STAGES, in_order(STAGES, "gpipe")),
    "split backwards": (STAGES, in_order(STAGES, "zb-h1"), STAGES),
    "smaller micro-batches": (STAGES, replace(sharing(STAGES, 8), micro_batch=1)),
    "shares": (LANES, sharing(LANES, 3, 1), sharing(LANES, 1, 3)),
    "a flat ring": (LANES, replace(LANES, sync=Sync(all_reduce="ring")), LANES),
    "layers move": (STAGES, Plan(pipelines((4, [("a", 0, 5, 1, 1), ("b", 5, 6, 1, 1)])), 2), STAGES),
    "tensor parallel": (STAGES, PLANS["tensor parallel"][1], STAGES),
    "a replica joins and leaves": (ALONE, TWICE, ALONE),
    "a domain leaves": (UNLIKE, ALONE, UNLIKE),
    "relays": (SPREAD, relaying(SPREAD, "acb", "cab", "bac"), relaying(SPREAD, "acb"), SPREAD),
    "relays through who has no stage": (STAGES, relaying(STAGES, "abc", "bac"), STAGES),
}


QUICK = ("relays", "relays through who has no stage", "shares", "layers move", "a replica joins and leaves")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in CHANGES]
)
def test_the_loss_through_changes_is_that_of_one_process(name: str, tmp_path: Path):
    options = RunOptions(precision="fp64", timeout_s=20.0)
    names = "abc" if "relays" in name else "ab"
    first = RunJob(problem(GPT2, names=names), CHANGES[name][0], options)
    jobs = [first, *(under(first, plan) for plan in CHANGES[name][1:])]
    expected = list(losses(first.problem, settings_of(first), steps=2 * len(jobs), micro_batch=2))
    assert in_threads(jobs, tmp_path, 2) == pytest.approx(expected, rel=1e-9)


def packed_losses(job: RunJob, kinds: Sequence[str]) -> Iterator[float]:
    """The loss of each step in one process that packs what crosses the border of two stages as ``kinds`` says."""
    (line,), workload, settings = job.plan.pipelines, job.problem.workload, settings_of(job)
    part = Part.new(job.problem.model, [stage.layers for stage in line.stages], settings)
    for step, kind in enumerate(kinds):

        def packed(tensor: Tensor, kind: str = kind) -> Tensor:
            if kind == "none":
                return tensor
            into = torch.empty_like(tensor)
            Codec(kind).decode(Codec(kind).encode(tensor), into)
            return into

        total = 0.0
        for at in range(0, workload.global_batch, job.plan.micro_batch):
            stop = at + job.plan.micro_batch
            tokens = sequences(step, at, stop, seq=workload.seq, vocab=job.problem.model.vocab, seed=settings.seed)
            given = packed(part.forward((0, at), None, tokens))
            total += float(part.forward((1, at), given, tokens))
            gradient = part.backward((1, at), None)
            assert gradient is not None
            part.backward((0, at), packed(gradient))
            part.weight((0, at))
            part.weight((1, at))
        part.finish(step + 1)
        yield total


@pytest.mark.parametrize(
    "kind", ["int8", pytest.param("bf16", marks=pytest.mark.slow), pytest.param("fp8", marks=pytest.mark.slow)]
)
def test_what_crosses_is_packed_from_a_border_on_and_then_no_more(kind: str, tmp_path: Path):
    packed = replace(STAGES, compression=tuple(Compression(*pair, kind) for pair in ("ab", "ba")))
    first = RunJob(problem(GPT2), STAGES, RunOptions(precision="fp64", timeout_s=20.0))
    jobs = [first, under(first, packed), first]
    found = in_threads(jobs, tmp_path, 2)
    assert found == pytest.approx(list(packed_losses(first, ["none"] * 2 + [kind] * 2 + ["none"] * 2)), rel=1e-9)
    assert found[3] != pytest.approx(list(packed_losses(first, ["none"] * 4))[3], rel=1e-9)


def test_replicas_that_train_alone_agree_as_often_as_is_ordered(tmp_path: Path):
    plans = [replace(TWICE, sync=Sync("local_sgd", every)) for every in (2, 3, 1)]
    first = RunJob(problem(GPT2), plans[0], RunOptions(steps=9, precision="fp64", timeout_s=20.0))
    jobs = [first, *(under(first, plan) for plan in plans[1:])]
    expected = list(local_losses(first, settings_of(first), [2] * 3 + [3] * 3 + [1] * 3))
    assert in_threads(jobs, tmp_path, 3) == pytest.approx(expected, rel=1e-9)
    assert list(local_losses(first, settings_of(first)))[-1] != pytest.approx(expected[-1], rel=1e-9)


MORE = Plan(pipelines((4, [("a", 0, 6, 1, 1)]), (4, [("b", 0, 6, 1, 1)])), 2)


def losses_by_batch(job: RunJob, batches: Sequence[int], rates: Sequence[float]) -> Iterator[float]:
    """The loss of each step in one process whose batch and learning rate change."""
    workload, settings = job.problem.workload, settings_of(job)
    part = Part.new(job.problem.model, [(0, job.problem.model.num_layers)], settings)
    for step, (batch, rate) in enumerate(zip(batches, rates, strict=True)):
        adam = replace(settings.rates, learning=rate)
        part = replace(part, settings=replace(settings, tokens_per_step=batch * workload.seq, rates=adam))
        total = 0.0
        for at in range(batch):
            tokens = sequences(step, at, at + 1, seq=workload.seq, vocab=job.problem.model.vocab, seed=settings.seed)
            total += float(part.forward((0, at), None, tokens))
            part.backward((0, at), None)
            part.weight((0, at))
        part.finish(step + 1)
        yield total


@pytest.mark.parametrize(
    ("rule", "power"),
    [("linear", 1.0), *[pytest.param(*each, marks=pytest.mark.slow) for each in (("sqrt", 0.5), ("keep", 0.0))]],
)
def test_replicas_that_bring_their_batch_and_take_it_away(rule: str, power: float, tmp_path: Path):
    options = RunOptions(precision="fp64", timeout_s=20.0, batch_rule="follow", rate_rule=rule)
    first = RunJob(problem(GPT2), ALONE, options)
    more = under(first, MORE)
    assert more.problem.workload.global_batch == 16
    rate, much = options.learning_rate, options.learning_rate * 2.0**power
    expected = losses_by_batch(first, [8] * 2 + [16] * 2 + [8] * 2, [rate] * 2 + [much] * 2 + [rate] * 2)
    assert in_threads([first, more, under(more, ALONE)], tmp_path, 2) == pytest.approx(list(expected), rel=1e-9)


def test_a_lost_replica_takes_its_batch_along_where_the_batch_follows():
    options = RunOptions(batch_rule="follow", rate_rule="linear")
    left = without(RunJob(problem(GPT2, batch=16), MORE, options), [1])
    assert left is not None
    assert (left.global_batch, left.pipelines) == (8, MORE.pipelines[:1])
    kept = without(RunJob(problem(GPT2, batch=16), MORE, RunOptions()), [1])
    assert kept is not None
    assert kept.global_batch == 16


def test_another_batch_may_be_ordered_where_the_batch_follows():
    document = plan_to_document(problem(GPT2, batch=16), MORE)
    order = order_of_document({"order": "plan", "plan": document})
    first = RunJob(problem(GPT2), ALONE, RunOptions(batch_rule="follow"))
    assert change_of(order, first, done=1).plan == MORE
    with pytest.raises(InputError, match="makes another batch than the 8 sequences that run.*--batch-rule follow"):
        change_of(order, replace(first, options=RunOptions()), done=1)


def test_a_relay_is_ordered_both_ways_and_back_and_goes_with_its_domain():
    job = RunJob(replace(problem(GPT2, names="abc"), runtime="hippo"), SPREAD, RunOptions())

    def ordered(job: RunJob, one: str, two: str, via: str) -> RunJob:
        document = {"order": "relay", "source": one, "destination": two, "via": via}
        return under(job, change_of(order_of_document(document), job, done=0).plan)

    through = ordered(job, "a", "c", "b")
    assert through.plan == relaying(SPREAD, "acb", "cab")
    assert ordered(through, "c", "a", "none").plan == SPREAD
    lost = {worker.rank for worker in through.work.workers if worker.domain == "b"}
    left = without(through, lost)
    assert left is not None
    assert (len(left.pipelines), left.relays) == (1, ())
    assert Version.first(through).porters == {}
    empty = ordered(replace(job, plan=STAGES), "a", "b", "c")
    assert Version.first(empty).porters == {"c": len(empty.work.workers)}
    for way, told in (("acd", "unknown domain 'd'"), ("aca", "three domains"), ("axb", "unknown domain 'x'")):
        with pytest.raises(InputError, match=told):
            ordered(job, *way)
    with pytest.raises(InputError, match="changes nothing"):
        ordered(job, "a", "c", "none")


def test_where_links_are_dead_the_side_with_most_of_the_batch_goes_on():
    """By hand: replicas a, b and one over b and c, of 2, 1 and 2 micro-batches: b and c hold three of five."""
    lines = pipelines((2, [("a", 0, 6, 1, 1)]), (1, [("b", 0, 6, 1, 1)]), (2, [("b", 0, 3, 1, 1), ("a", 3, 6, 1, 1)]))
    three = replace(lines[2], stages=(lines[2].stages[0], replace(lines[2].stages[1], domain="c")))
    first = RunJob(problem(GPT2), Plan((*lines[:2], three), 1))
    assert cut_off(first, []) == {0}
    assert cut_off(first, [2]) == {1}, "of what is left, one against one: the first"
    assert cut_off(RunJob(problem(GPT2), STAGES), []) == set(), "both hang together"
    assert cut_off(RunJob(problem(GPT2), TWICE), []) == {1}


def by_chance(rng: random.Random) -> dict[str, Any]:
    """An order of any kind but those that change what is trained."""
    kind = rng.choice(["schedule", "micro-batch", "shares", "all-reduce", "plan", "plan"])
    if kind == "schedule":
        return {"order": kind, "name": rng.choice(["gpipe", "1f1b", "zb-h1"])}
    if kind == "micro-batch":
        return {"order": kind, "size": rng.choice([1, 2])}
    if kind == "shares":
        one = rng.randint(1, 7)
        return {"order": kind, "waves": rng.choice([[one, 4 - one], [one, 8 - one]])}
    if kind == "all-reduce":
        return {"order": kind, "way": rng.choice(["ring", "two-level"])}
    plan = rng.choice([STAGES, LANES, UNLIKE, ALONE, TWICE, PLANS["tensor parallel"][1], PLANS["unlike lanes"][1]])
    return {"order": kind, "plan": plan_to_document(problem(GPT2), plan)}


@pytest.mark.parametrize(
    ("seed", "orders"), [(1, 4), *(pytest.param(seed, 20, marks=pytest.mark.slow) for seed in range(2, 7))]
)
def test_the_loss_through_orders_by_chance_is_that_of_one_process(seed: int, orders: int, tmp_path: Path):
    rng = random.Random(seed)
    jobs = [RunJob(problem(GPT2), LANES, RunOptions(steps=1000, precision="fp64", timeout_s=60.0))]
    while len(jobs) <= orders:
        with suppress(InputError):  # what the plan of the moment does not allow
            jobs.append(under(jobs[-1], change_of(order_of_document(by_chance(rng)), jobs[-1], done=1).plan))
    expected = list(losses(jobs[0].problem, settings_of(jobs[0]), steps=2 * len(jobs), micro_batch=2))
    assert in_threads(jobs, tmp_path, 2) == pytest.approx(expected, rel=1e-9)


def test_where_a_disk_is_full_an_order_is_given_up_and_the_run_goes_on(monkeypatch: pytest.MonkeyPatch):
    """Nobody can be told of the next plan: training goes on under this one."""
    write = Version.write

    def full(version: Version, folder: Path) -> None:
        if version.number:
            raise InputError("cannot write: No space left on device", source=str(folder))
        write(version, folder)

    monkeypatch.setattr(Version, "write", full)
    job, told = RunJob(problem(GPT2), STAGES, RunOptions(steps=3, precision="fp64", timeout_s=20.0)), list[str]()
    found = run(job, changes=Planned(PlanChange(TWICE, 1), tell=told.append))
    expected = list(losses(job.problem, settings_of(job), steps=3, micro_batch=2))
    assert [step.loss for step in found.steps] == pytest.approx(expected)
    assert "processes cannot make ready" in told[0]
    assert [stretch.change for stretch in found.stretches] == [None]
