"""On a machine with a GPU: steps against their prediction, processes that share it, compression's kernels (minutes).

    hippo bench gpu
    python benchmarks/gpu.py --parts codec,shared,steps --seconds 150 --out rows.jsonl

*steps*: one process by `hippo run --device cuda`, in bf16, against what `hippo plan` says by formulas and with layers
profiled on the GPU at hand. *shared*: two stages and two replicas as processes on one GPU, whose messages go through
the machine's memory, beside one process. *codec*: packing and unpacking a message, against a plain copy on the GPU and
against the CPU's bytes. `hippo bench layers` holds layers against formulas. Where there is no GPU nothing is measured.
A part that fails, or takes longer than it may, does not keep the others from being measured.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
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
Row = dict[str, Any]
Part = Callable[[], Iterator[Row]]


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


def steps() -> Iterator[Row]:
    """One process on the GPU, against formulas and against its profile."""
    for name, batch, micro_batch in ALIKE:
        asked, plan = problem(name, batch), one_stage(name, batch, micro_batch)
        request = ProfileRequest(MODELS[name], (1,), (micro_batch,), SEQ, 1.0)
        known = replace(asked, profile=profiled(request, lambda phase, share: None).profile)
        real = measured_s(asked, plan, "cuda")
        formulas, layers = (hippo.simulate(each, plan).step_time_s for each in (asked, known))
        off = {"formulas_off": formulas / real - 1, "profiled_off": layers / real - 1}
        told = {"measured_s": real, "formulas_s": formulas, "profiled_s": layers}
        yield {"model": name, "micro_batch": micro_batch, **told, **off}


def shared() -> Iterator[Row]:
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
    yield {"model": name, "processes": "one", "measured_s": alone}
    for told, plan in ways.items():
        taken = measured_s(problem(name, batch, "ab"), plan, "shared")
        yield {"model": name, "processes": told, "measured_s": taken, "of_one_process": taken / alone}


def codec() -> Iterator[Row]:
    """Packing on the GPU: gigabytes a second of what is read, and whether its bytes are the CPU's."""
    size = 64 << 20
    values = torch.randn(size, dtype=torch.float32, generator=torch.Generator().manual_seed(1))
    there = values.cuda()
    room = torch.empty_like(there)
    yield {
        "kind": "a plain copy",
        "fp32_mib": there.nbytes >> 20,
        "gb_s": rate(lambda: room.copy_(there), there.nbytes),
    }
    for kind in ("bf16", *LARGEST):
        way = Codec(kind)
        message = way.encode(there)
        same = bool(torch.equal(message.cpu(), way.encode(values)))
        packed = rate(partial(way.encode, there), there.nbytes)
        unpacked = rate(partial(way.decode, message, room), there.nbytes)
        yield {"kind": kind, "packs_gb_s": packed, "unpacks_gb_s": unpacked, "the CPU's bytes": same}


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


PARTS: Mapping[str, Part] = MappingProxyType({"codec": codec, "shared": shared, "steps": steps})


def rows(parts: Mapping[str, Part], seconds: int) -> Iterator[Row]:
    """What the parts find, each within so many seconds; a part that fails ends with a row that says why."""

    def over(*_: object) -> None:
        raise TimeoutError(f"took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, over)
    try:
        for name, part in parts.items():
            signal.alarm(seconds)
            try:
                for row in part():
                    yield {"part": name, **row}
            except Exception as error:
                yield {"part": name, "failed": f"{type(error).__name__}: {error}"}
            finally:
                signal.alarm(0)
    finally:
        signal.signal(signal.SIGALRM, before)


def main() -> None:
    """Prints what the parts find; exit code 1 where one failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--parts", default=",".join(PARTS), help="of " + ", ".join(PARTS))
    parser.add_argument("--seconds", type=int, default=300, help="that a part may take")
    parser.add_argument("--out", type=Path, default=Path(os.devnull), help="takes the rows as lines of JSON")
    asked = parser.parse_args()
    if unknown := set(asked.parts.split(",")) - {*PARTS}:
        parser.error(f"--parts: unknown: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    if device_at_hand().type == "cpu":
        print("No GPU at hand: nothing was measured.")
        return
    print(torch.cuda.get_device_name())
    failed = False
    with asked.out.open("w") as lines:
        for row in rows({name: PARTS[name] for name in asked.parts.split(",")}, asked.seconds):
            failed |= "failed" in row
            shown = (f"{key} {each:.4g}" if isinstance(each, float) else f"{key} {each}" for key, each in row.items())
            print(", ".join(shown), flush=True)
            print(json.dumps(row), file=lines, flush=True)
    sys.exit(int(failed))


if __name__ == "__main__":
    main()
