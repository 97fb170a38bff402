"""Printed step times against an independent player of messages: whole plans of 40 drawn problems, each runtime.

    python -m benchmarks.judges.messages [--runtime NAME] [PROBLEM ...]

Problems by a committed seed: one to four domains of measured regions (one rate a node) or on random links (one rate a
link), models of 350M to 70B, half of them asked for flat rings, each planned by ``exact`` for its runtime. The player
(``tests/judges/steps.py``) is given the plan and the seconds of its stages. *Apart*: printed over played, less one;
asked within 2 %.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from tests.judges.steps import WholeStep

from hippo.front_door.planning import plan
from hippo.planners.base import Stop
from hippo.problem.cluster_yaml import cluster_from_document
from hippo.problem.model import Model, gpt_model
from hippo.problem.problem import Problem
from hippo.problem.workload import Workload

SEED, COUNT, ASKED, SEQ = 20261123, 40, 0.02, 2048
RUNTIMES = ("hippo", "megatron", "torch", "deepspeed")
GPTS = {  # layers, hidden, heads
    "350M": (24, 1024, 16), "1.3B": (24, 2048, 16), "2.7B": (32, 2560, 32), "7B": (32, 4096, 32),
    "13B": (40, 5120, 40), "30B": (48, 7168, 56), "70B": (80, 8192, 64),
}  # fmt: skip


def problems(seed: int = SEED, count: int = COUNT) -> list[Problem]:
    """Sizes and numbers of domains in turn, all else by chance; hippo's runtime."""
    measured = json.loads((Path(__file__).resolve().parents[2] / "data/wan_regions.json").read_text())
    draw, found = random.Random(seed), list[Problem]()
    for number in range(count):
        size, gpu = list(GPTS)[number % len(GPTS)], draw.choice(("A100-SXM-80GB", "H100-SXM-80GB"))
        domains = number % 4 + 1
        names = draw.sample(range(len(measured["regions"])), domains)
        least = {"30B": 2, "70B": 4}.get(size, 1)
        rows = [
            {"name": measured["regions"][at], "nodes": draw.randint(least, least + 1), "gpus_per_node": 8}
            for at in names
        ]
        regions, links = draw.random() < 0.5, list[dict[str, object]]()
        for a, i in enumerate(names):
            for b, j in enumerate(names):
                if a == b:
                    continue
                ends: dict[str, object] = {"from": rows[a]["name"], "to": rows[b]["name"]}
                if regions:
                    rate, late = measured["bandwidth_gbps"][i][j], measured["rtt_ms"][i][j] / 2
                    links.append({**ends, "per_node_gbps": rate, "latency_ms": late})
                else:
                    rate, late = 10 ** draw.uniform(0.7, 3.3), draw.uniform(1, 40)
                    links.append({**ends, "bandwidth_gbps": rate, "latency_ms": late})
        kind = "regions" if regions else "links"
        document = {"name": f"{domains} {kind}", "gpu": gpu, "domains": rows, "links": links}
        batch = draw.choice((256, 512, 1024, 2048))
        model = _model(size, tied=draw.random() < 0.5)
        cluster = cluster_from_document(document, source="drawn", name="drawn")
        way = draw.choice(("auto", "ring"))
        found.append(Problem(model, cluster, Workload(batch, SEQ), runtime="hippo", all_reduce=way))
    return found


def _model(size: str, *, tied: bool) -> Model:
    layers, hidden, heads = GPTS[size]
    return gpt_model(size, layers=layers, hidden=hidden, heads=heads, vocab=51200, seq=SEQ, tied=tied)


def compared(problem: Problem) -> tuple[str, float, float] | str:
    """What the plan is, its printed seconds and the player's; else why it is not played."""
    found = plan(problem, Stop(8.0), planner="exact", why=False)
    if found.plan is None or found.score is None:
        return "no plan fits"
    line = found.plan.pipelines[0]
    across = len(dict.fromkeys(stage.domain for stage in line.stages))
    told = (
        f"{len(found.plan.pipelines)} x {len(line.stages)} stages over {across}, tp {line.stages[0].tp} dp "
        f"{line.stages[0].dp} x {found.plan.micro_batch}, {line.num_micro_batches} waves, {found.plan.schedule.name}, "
        f"{found.plan.sync.all_reduce}"
    )
    return told, found.score.step_time_s, WholeStep(problem, found.plan).play()


def main(arguments: Sequence[str]) -> None:
    """Prints what the module says, a plan a line as it is done."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runtime", choices=RUNTIMES, help="this one alone")
    parser.add_argument("problems", nargs="*", type=int, help="numbers of problems; all when left out")
    given = parser.parse_args(arguments)
    drawn = problems()
    apart: dict[str, list[float]] = {name: [] for name in RUNTIMES if given.runtime in (None, name)}
    print("| problem | runtime | plan | printed s | player s | apart |\n|---|---|---|---|---|---|")
    for number in given.problems or range(len(drawn)):
        for runtime, shares in apart.items():
            problem = replace(drawn[number], runtime=runtime)
            name = f"{number}: {problem.model.name}, {problem.cluster.name}"
            found = compared(problem)
            if isinstance(found, str):
                print(f"| {name} | {runtime} | {found} | | | |", flush=True)
                continue
            told, printed_s, played_s = found
            shares.append(printed_s / played_s - 1)
            print(f"| {name} | {runtime} | {told} | {printed_s:.3f} | {played_s:.3f} | {shares[-1]:+.1%} |", flush=True)
    for runtime, shares in apart.items():
        if shares:
            within = sum(abs(share) <= ASKED for share in shares)
            worst = max(shares, key=abs)
            mean = fmean(map(abs, shares))
            print(f"\n{runtime}: {within} of {len(shares)} within {ASKED:.0%}, mean {mean:.1%}, worst {worst:+.1%}")


if __name__ == "__main__":
    main(sys.argv[1:])
