"""Sums over an emulated WAN, measured: ring against two-level, the bytes of each link, and what was predicted.

    hippo bench sums
    python benchmarks/sums.py [steps] [cubic|bbr] [ranks a domain ...]

Two domains, 100 Mbit/s and 10 ms between them, replicas of 55 MB of gradients, a process per data-parallel rank that
stands in for it. *Agree*: of a step, less what the last one did beside the longest wait for sums. *Wire*: bytes that
the link carried per step, frames, acknowledgements and retransmissions included, over those that the plan counts on it
(1518 / 1448 = 1.048 of them are frames). Medians of the steps after the first. Asked: two-level at most 1.08 times the
ratio of the bytes, n / (2 (n - 1)) with n ranks in all.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hippo.emulate.emulate import emulate, setting_of
from hippo.errors import InputError
from hippo.plan.codec import save_plan
from hippo.plan.plan import Pipeline, Plan, Stage, Sync
from hippo.problem.cluster import Cluster, Domain, Link
from hippo.problem.gpus import gpu
from hippo.problem.model import gpt_model
from hippo.problem.problem import Problem
from hippo.problem.workload import Workload
from hippo.simulate.lower import lower
from hippo.simulate.timeline import link_bytes

NAMES, RATE_BYTES_PER_S, LATENCY_S, SEQ = ("a", "b"), 12.5e6, 0.01, 128
LAYERS = 8
RUN = (sys.executable, "-c", "from hippo.cli.main import main; main()", "run")


def asked(ranks: int, all_reduce: str) -> tuple[Problem, Plan]:
    """A replica of so many lanes in each domain."""
    model = gpt_model("eight layers", layers=LAYERS, hidden=512, heads=8, vocab=2000, seq=SEQ, tied=False)
    domains = tuple(Domain(name, 1, 8, 1e11, 1e11, 1e-6) for name in NAMES)
    links = tuple(Link(one, two, RATE_BYTES_PER_S, LATENCY_S, 0.0) for one, two in (NAMES, NAMES[::-1]))
    cluster = Cluster("two domains", gpu("A100-SXM-80GB"), domains, links)
    pipelines = tuple(
        Pipeline((Stage(name, (0, LAYERS + 2), 1, ranks, tuple(f"{name}/0/{i}" for i in range(ranks))),), 1)
        for name in NAMES
    )
    plan = Plan(pipelines, 1, sync=Sync(all_reduce=all_reduce))
    return Problem(model, cluster, Workload(ranks * len(NAMES), SEQ, "bf16")), plan


@dataclass(frozen=True)
class Found:
    """What a run took and sent."""

    step_s: float
    predicted_s: float
    agree_s: float
    wire: float  # the link's bytes over the plan's


def measured(ranks: int, all_reduce: str, steps: int, congestion: str) -> Found:
    """One run."""
    problem, plan = asked(ranks, all_reduce)
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder, "plan.json"), Path(folder, "out.json")
        save_plan(problem, plan, path)
        command = [*RUN, str(path), "--stand-in", "--lanes", "--steps", str(steps), "--quiet", "--json"]
        with out.open("w") as stream:
            setting = setting_of(problem.cluster, command, source=str(path), congestion=congestion)
            outcome = emulate(setting, stdout=stream.fileno())
        assert outcome.exit_code == 0, f"{all_reduce} with {ranks} ranks a domain failed"
        told: dict[str, Any] = json.loads(out.read_text())
    rows = [row for each in told["timeline"] for row in each["operations"]]
    waited_s = max(end - start for kind, _, _, start, end in rows if kind == 3)
    agree_s = told["median_step_s"] - (told["measured_step_s"][-1] - waited_s)
    carried = sum(link.carried_bytes for link in outcome.run.links) / steps
    wire = carried / float(link_bytes(lower(problem, plan)).sum())
    return Found(told["median_step_s"], told["predicted_step_s"], agree_s, wire)


def main(steps: int, congestion: str, ranks: list[int]) -> None:
    """Prints what the module says."""
    print(
        f"{congestion}: ranks a domain, way | step s | predicted s | agree s | wire / plan | ratio of agree s (asked)"
    )
    for each in ranks:
        steps_s: dict[str, float] = {}
        for way in ("ring", "two-level"):
            try:
                found = measured(each, way, steps, congestion)
            except InputError as error:
                print(f"not on this machine: {error}")
                return
            steps_s[way] = found.agree_s
            most = 1.08 * each / (2 * each - 1)
            ratio = "" if way == "ring" else f" | {steps_s['two-level'] / steps_s['ring']:.3f} ({most:.3f})"
            figures = f"{found.step_s:.2f} | {found.predicted_s:.2f} | {found.agree_s:.2f} | {found.wire:.3f}"
            print(f"{each} {way:9s} | {figures}{ratio}", flush=True)


if __name__ == "__main__":
    given = sys.argv[1:]
    main(
        int(given[0]) if given else 5,
        given[1] if len(given) > 1 else "bbr",
        [int(each) for each in given[2:]] or [1, 2, 4, 8],
    )
