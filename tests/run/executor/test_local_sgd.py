"""Replicas that train alone and agree now and then: the losses are those of the same replicas in one process."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch

from hippo.plan.plan import Plan, Sync
from hippo.run.executor.local_sgd import Outer, OuterRates, Within, share
from hippo.run.job import RunJob, RunOptions
from hippo.run.model.reference import losses
from hippo.run.model.stage import Part, settings_of
from hippo.run.work import Work

from ...judges.local_sgd_replicas import local_losses
from ..worlds import GPT2, PLANS, pipelines, problem
from .test_training import trained

TWINS = Plan(pipelines((2, [("a", 0, 3, 1, 1), ("a", 3, 6, 1, 1)]), (2, [("b", 0, 6, 1, 1)])), 2)
REPLICAS = {"twins": (GPT2, TWINS), **{name: PLANS[name] for name in ("unlike shares", "unlike lanes", "everything")}}
QUICK = [
    ("twins", 0, "two-level"),
    ("twins", 1, "two-level"),
    ("unlike lanes", 1, "two-level"),
    ("unlike lanes", 0, "ring"),
]
SLOW = [each for each in product(REPLICAS, [0, 1], ["two-level", "ring"]) if each not in QUICK]
CASES = [*QUICK, *(pytest.param(*each, marks=pytest.mark.slow) for each in SLOW)]


@pytest.mark.parametrize(("name", "late", "all_reduce"), CASES)
def test_the_loss_is_that_of_the_same_replicas_in_one_process(name: str, late: int, all_reduce: str, tmp_path: Path):
    model, plan = REPLICAS[name]
    plan = replace(plan, sync=Sync("local_sgd", 2, all_reduce))
    job = RunJob(problem(model), plan, RunOptions(steps=5, precision="fp64", timeout_s=20.0, outer_late=late))
    expected = list(local_losses(job, settings_of(job)))
    assert trained(job, tmp_path) == pytest.approx(expected, abs=1e-9)
    plain = list(losses(job.problem, settings_of(job), steps=5, micro_batch=2))
    assert plain[0] == pytest.approx(expected[0], abs=1e-9)
    assert plain[-1] != pytest.approx(expected[-1], abs=1e-6)


def test_a_single_replica_and_a_plain_mean_are_plain_training():
    job = RunJob(problem(GPT2), Plan(pipelines((4, [("a", 0, 6, 1, 1)])), 2))
    part = Part.new(GPT2, [(0, 6)], settings_of(job))
    outer = Outer.new(part, OuterRates(1.0, 0.0))
    before = {at: master.clone() for at, master in outer.masters()}
    for _, master in outer.masters():
        master.add_(0.25)
    outer.tell()
    outer.step(dict(outer.differences()))
    for at, master in outer.masters():
        assert torch.allclose(master, before[at] + 0.25)


def test_the_outer_step_is_torchs_sgd_with_nesterov_momentum():
    job = RunJob(problem(GPT2), Plan(pipelines((4, [("a", 0, 6, 1, 1)])), 2), RunOptions(precision="fp64"))
    outer = Outer.new(Part.new(GPT2, [(0, 6)], settings_of(job)))
    held = {at: torch.nn.Parameter(master.clone()) for at, master in outer.masters()}
    judge = torch.optim.SGD(held.values(), lr=0.7, momentum=0.9, nesterov=True)
    generator = torch.Generator().manual_seed(1)
    for _ in range(4):
        for _, master in outer.masters():
            master.add_(torch.randn(master.shape, generator=generator, dtype=master.dtype))
        outer.tell()
        mean = dict(outer.differences())
        for at, weight in held.items():
            weight.grad = mean[at].clone()
        judge.step()
        outer.step(mean)
        for at, master in outer.masters():
            assert torch.allclose(master, held[at], rtol=0.0, atol=1e-12), at


def test_what_is_done_while_the_sum_goes_round_is_kept():
    job = RunJob(problem(GPT2), Plan(pipelines((4, [("a", 0, 6, 1, 1)])), 2))
    outer = Outer.new(Part.new(GPT2, [(0, 6)], settings_of(job)), OuterRates(0.5, 0.0))
    before = {at: master.clone() for at, master in outer.masters()}
    for _, master in outer.masters():
        master.add_(1.0)
    outer.tell()
    mean = dict(outer.differences())
    for _, master in outer.masters():
        master.add_(0.25)
    outer.step(mean)
    for at, master in outer.masters():
        assert torch.allclose(master, before[at] + 0.5 + 0.25)


def test_gradients_stay_in_a_pipeline_and_shares_sum_to_the_batch():
    work = Work(GPT2, replace(PLANS["unlike shares"][1], sync=Sync("local_sgd", 2)))
    for pipeline in (0, 1):
        within = Within(work.model, work.plan, pipeline=pipeline)
        for agreement in within.agreements:
            assert {work.workers[rank].pipeline for rank in agreement.ranks} == {pipeline}
    leaders = {worker.pipeline: worker for worker in work.workers}
    assert sum(share(work, worker) for worker in leaders.values()) == pytest.approx(1.0)
