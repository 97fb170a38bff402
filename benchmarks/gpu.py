"""On a machine with a GPU: steps against their prediction, processes that share it, compression's kernels (minutes).

    hippo bench gpu
    python benchmarks/gpu.py --parts codec,shared,steps

*steps*: one process by `hippo run --device cuda`, in bf16, against what `hippo plan` says by formulas and with layers
profiled on the GPU at hand. *shared*: two stages and two replicas as processes on one GPU, whose messages go through
the machine's memory, beside one process. *codec*: packing and unpacking a message, against a plain copy on the GPU and
against the CPU's bytes. `hippo bench layers` holds layers against formulas. Where there is no GPU nothing is measured.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from statistics import median
from time import perf_counter
from types import MappingProxyType
from typing import Any

import torch

import hippo
from hippo.measure.profile.device import device_at_hand
from hippo.measure.profile.measure import profiled
from hippo.measure.profile.rows import ProfileRequest
from hippo.plan.plan import Pipeline, Plan, Stage, Sync
from hippo.problem.catalogue.models import MODELS
from hippo.problem.cluster import Cluster, Domain, Link
from hippo.problem.gpus import gpu
from hippo.problem.problem import Problem
from hippo.problem.workload import Workload
from hippo.run.executor.channels import LARGEST, Codec
from hippo.run.job import RunJob, RunOptions
from hippo.run.run import run

GPU = "H100-SXM-80GB"
STEPS = 6
ALIKE = (("gpt3-350m", 16, 4), ("gpt3-1.3b", 16, 2), ("llama-3.2-1b", 16, 2))
"""Model, sequences a step, sequences a micro-batch; 1,024 tokens each."""
SEQ = 1024


def problem(name: str, batch: int, domains: str = "a") -> Problem:
    """A GPU a domain; between domains what nobody waits for."""
    places = tuple(Domain(each, 1, 1, 1e12, 1e12, 0.0) for each in domains)
    links = tuple(Link(one, two, 1e12, 0.0, 0.0) for one in domains for two in domains if one != two)
    cluster = Cluster("here", gpu(GPU), places, links)
    return Problem(MODELS[name], cluster, Workload(batch, SEQ, "bf16"))


def measured_s(asked: Problem, plan: Plan, device: str) -> float:
    """Seconds of a step of real layers: the median of all but the first two."""
    job = RunJob(asked, plan, RunOptions(steps=STEPS, precision="bf16", device=device, timeout_s=120.0))
    return median(step.seconds for step in run(job).steps[2:])


def one_stage(name: str, batch: int, micro_batch: int) -> Plan:
    """All layers on one GPU."""
    stage = Stage("a", (0, len(MODELS[name].layers)), 1, 1, ("a/0/0",))
    return Plan((Pipeline((stage,), batch // micro_batch),), micro_batch)


def steps() -> None:
    """One process on the GPU, against formulas and against its profile."""
    print(f"{'model':14s} {'micro-batch':>11s} {'measured s':>11s} {'formulas s':>18s} {'profiled s':>18s}")
    for name, batch, micro_batch in ALIKE:
        asked, plan = problem(name, batch), one_stage(name, batch, micro_batch)
        request = ProfileRequest(MODELS[name], (1,), (micro_batch,), SEQ, 1.0)
        known = replace(asked, profile=profiled(request, lambda phase, share: None).profile)
        real = measured_s(asked, plan, "cuda")
        told = (hippo.simulate(each, plan).step_time_s for each in (asked, known))
        cells = "".join(f" {each:9.3f} {100 * (each / real - 1):+6.1f} %" for each in told)
        print(f"{name:14s} {micro_batch:11d} {real:11.3f}{cells}", flush=True)


def shared() -> None:
    """Two processes on one GPU."""
    name, batch, micro_batch = ALIKE[0]
    layers, waves = len(MODELS[name].layers), batch // micro_batch
    half = layers // 2

    def stage(domain: str, start: int, stop: int) -> Stage:
        return Stage(domain, (start, stop), 1, 1, (f"{domain}/0/0",))

    replicas = tuple(Pipeline((stage(each, 0, layers),), waves // 2) for each in "ab")
    ways: Mapping[str, Plan] = {
        "two stages": Plan((Pipeline((stage("a", 0, half), stage("b", half, layers)), waves),), micro_batch),
        "two replicas": Plan(replicas, micro_batch),
        "two replicas, local SGD": Plan(replicas, micro_batch, sync=Sync(method="local_sgd", every=4)),
    }
    alone = measured_s(problem(name, batch), one_stage(name, batch, micro_batch), "cuda")
    print(f"{name}, one process: {alone:.3f} s a step")
    for told, plan in ways.items():
        taken = measured_s(problem(name, batch, "ab"), plan, "shared")
        print(f"{told}: {taken:.3f} s a step, {taken / alone:.2f} of one process", flush=True)


def codec() -> None:
    """Packing on the GPU: gigabytes a second of what is read, and whether its bytes are the CPU's."""
    size = 64 << 20
    values = torch.randn(size, dtype=torch.float32, generator=torch.Generator().manual_seed(1))
    there = values.cuda()
    room = torch.empty_like(there)
    copied = rate(lambda: room.copy_(there), there.nbytes)
    print(f"a message of {there.nbytes >> 20} MiB in fp32; a plain copy on the GPU: {copied:.0f} GB/s")
    for kind in ("bf16", *LARGEST):
        way = Codec(kind)
        message = way.encode(there)
        same = bool(torch.equal(message.cpu(), way.encode(values)))
        packed = rate(partial(way.encode, there), there.nbytes)
        unpacked = rate(partial(way.decode, message, room), there.nbytes)
        print(f"{kind}: packs {packed:.0f} GB/s, unpacks {unpacked:.0f} GB/s, the CPU's bytes: {same}", flush=True)


def rate(do: Callable[[], Any], size: int) -> float:
    """GB/s of so many bytes: the median of 20 times."""
    taken = []
    for _ in range(23):
        torch.cuda.synchronize()
        began = perf_counter()
        do()
        torch.cuda.synchronize()
        taken.append(perf_counter() - began)
    return size / median(taken[3:]) / 1e9


PARTS: Mapping[str, Callable[[], None]] = MappingProxyType({"codec": codec, "shared": shared, "steps": steps})


def main() -> None:
    """Prints the parts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--parts", default=",".join(PARTS), help="of " + ", ".join(PARTS))
    names = parser.parse_args().parts.split(",")
    if device_at_hand().type == "cpu":
        print("No GPU at hand: nothing was measured.")
        return
    print(torch.cuda.get_device_name())
    for name in names:
        PARTS[name]()


if __name__ == "__main__":
    main()
