"""On a GPU: losses are those of one process on the CPU, whether a GPU is a process's own or shared by all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hippo.plan.plan import Compression, Plan, Sync
from hippo.run.executor.channels import LARGEST, Codec, Meeting
from hippo.run.job import RunJob, RunOptions
from hippo.run.model.reference import losses
from hippo.run.model.stage import settings_of
from hippo.run.run import run

from .test_torch_runtime import RUNS
from .worlds import GPT2, PLANS, pipelines, problem

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no GPU")

ALONE = Plan(pipelines((4, [("a", 0, 6, 1, 1)])), 2)


def job(plan: Plan, device: str, *, model=GPT2, steps: int = 4, precision: str = "fp64") -> RunJob:
    return RunJob(problem(model), plan, RunOptions(steps=steps, precision=precision, device=device, timeout_s=60.0))


def by_one_process(asked: RunJob) -> list[float]:
    on_a_cpu = replace(asked, options=replace(asked.options, device="cpu"))
    return list(losses(asked.problem, settings_of(on_a_cpu), steps=asked.options.steps, micro_batch=1))


@pytest.mark.parametrize(("precision", "near"), [("fp64", 1e-9), ("fp32", 1e-5)])
def test_one_process_with_a_gpu_of_its_own(precision: str, near: float):
    asked = job(ALONE, "cuda", precision=precision)
    assert [step.loss for step in run(asked).steps] == pytest.approx(by_one_process(asked), rel=near)


@pytest.mark.parametrize("name", list(PLANS))
def test_processes_that_share_a_gpu(name: str):
    model, plan = PLANS[name]
    asked = job(plan, "shared", model=model)
    assert [step.loss for step in run(asked).steps] == pytest.approx(by_one_process(asked), rel=1e-9)


@pytest.mark.parametrize("name", list(RUNS))
def test_torchs_runtime_on_a_shared_gpu(name: str):
    model, plan = RUNS[name]
    options = RunOptions(steps=2, precision="fp64", device="shared", timeout_s=60.0, runtime="torch")
    asked = RunJob(problem(model), plan, options)
    assert [step.loss for step in run(asked).steps] == pytest.approx(by_one_process(asked), rel=1e-9)


def test_torchs_runtime_with_a_gpu_of_its_own():
    asked = job(ALONE, "cuda", steps=2)
    asked = replace(asked, options=replace(asked.options, runtime="torch"))
    assert [step.loss for step in run(asked).steps] == pytest.approx(by_one_process(asked), rel=1e-9)


def test_local_sgd_on_a_shared_gpu_learns_what_it_learns_on_the_cpu():
    plan = replace(PLANS["two lanes a domain"][1], sync=Sync(method="local_sgd", every=2))
    found = [[step.loss for step in run(job(plan, device)).steps] for device in ("shared", "cpu")]
    assert found[0] == pytest.approx(found[1], rel=1e-9)


@pytest.mark.parametrize("kind", ["bf16", *LARGEST])
def test_compressed_messages_of_a_shared_gpu_are_those_of_the_cpu(kind: str):
    plan = replace(PLANS["stages"][1], compression=tuple(Compression(a, b, kind) for a, b in ("ab", "ba")))
    found = [[step.loss for step in run(job(plan, device, precision="fp32")).steps] for device in ("shared", "cpu")]
    assert found[0] == pytest.approx(found[1], rel=1e-3)
    values = torch.randn(1000, generator=torch.Generator().manual_seed(1))
    one, two, codec = torch.empty(1000), torch.empty(1000), Codec(kind)
    codec.decode(codec.encode(values), one)
    codec.decode(codec.encode(values.cuda()).cpu(), two)
    assert torch.allclose(one, two, rtol=1e-6, atol=0.0)  # a GPU divides to another last bit of the scale


def test_a_group_of_nccl(tmp_path):
    torch.cuda.set_device(0)
    group = Meeting(tmp_path, 0, talks_on="cuda").group("one", [0])
    told = torch.arange(3.0, device="cuda")
    group.allreduce([told]).wait()
    torch.cuda.synchronize()
    assert told.tolist() == [0.0, 1.0, 2.0]
