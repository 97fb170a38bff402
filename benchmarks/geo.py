"""All planners side by side over several networks and models: step, utilisation, egress, planning time, gap.

Networks: four hubs at 2-5 Gbit/s and ten times that, three AWS regions (a cap per node), twelve cloud regions. ``over
exact`` is how much longer the planner's step takes than that of the exact search. CPU seconds of planning, compiled
code loaded and the cost model empty. DiLoCo changes the optimizer, so it stands apart: its step counts no penalty.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from time import process_time

from hippo.planners.base import Proposal, Stop
from hippo.problem.catalogue.clusters import cluster
from hippo.problem.cluster import Cluster
from hippo.problem.load import load_problem
from hippo.problem.problem import Problem
from hippo.registry import PLANNERS, planner

STOP = Stop(10.0)
COMPETING = tuple(name for name in PLANNERS if name not in ("brute", "diloco"))


def faster(name: str, times: float) -> Cluster:
    """A cluster of the catalogue with every link ``times`` as fast."""
    slow = cluster(name)
    links = tuple(
        replace(link, bandwidth_bytes_per_s=(link.bandwidth_bytes_per_s or 0.0) * times) for link in slow.links
    )
    return replace(slow, name=f"{name}-x{times:g}", links=links)


@dataclass(frozen=True)
class Network:
    """A network and the models that are planned over it."""

    name: str
    make: Callable[[], Cluster]
    models: tuple[str, ...]


NETWORKS = (
    Network("four-hubs", lambda: cluster("four-hubs"), ("llama-3-8b", "llama-3-70b", "gpt3-175b")),
    Network("four-hubs, links x 10", lambda: faster("four-hubs", 10.0), ("llama-3-8b", "llama-3-70b", "gpt3-175b")),
    Network("three-aws-regions", lambda: cluster("three-aws-regions"), ("llama-3-8b", "llama-3-70b", "mixtral-8x7b")),
    Network("twelve-cloud-regions", lambda: cluster("twelve-cloud-regions"), ("llama-3-70b", "deepseek-v3")),
)


def asked(name: str, problem: Problem) -> tuple[Proposal, float]:
    """What a planner proposes for a fresh copy of the problem, and the CPU seconds that took."""
    start = process_time()
    proposal = planner(name).propose(replace(problem), STOP, seed=0)
    return proposal, process_time() - start


def line(name: str, proposal: Proposal, seconds: float, best_s: float | None) -> str:
    """One row."""
    score, plan = proposal.score, proposal.plan
    if score is None or plan is None:
        return f"  {name:14s} {'-':>9s}  {proposal.notes[0][:95]}"
    over = "" if best_s is None else f"{100 * (score.step_time_s / best_s - 1):+8.1f}"
    gap = "" if proposal.gap is None else f"{100 * proposal.gap:6.2f}"
    domains = f"{len(plan.domains)} domains, {plan.gpus} GPUs"
    return (
        f"  {name:14s} {score.step_time_s:9.2f} {over:>8s} {100 * score.utilization:6.1f} "
        f"{score.egress_usd_per_step:9.2f} {score.usd_per_step:9.2f} {seconds:8.2f} {gap:>6s}  {domains}"
    )


def table(problem: Problem) -> list[str]:
    """Rows of all planners on one problem."""
    answers = {name: asked(name, problem) for name in COMPETING}
    answers["diloco"] = asked("diloco", replace(problem, allow_local_sgd=True))
    exact = answers["exact"][0].score
    best_s = None if exact is None else exact.step_time_s
    return [line(name, proposal, seconds, best_s) for name, (proposal, seconds) in answers.items()]


def together(problem: Problem) -> str:
    """CPU seconds of the baselines one after the other on one problem (they share its cost model)."""
    shared, spent = replace(problem), dict[str, float]()
    for name in COMPETING:
        if name != "exact":
            start = process_time()
            planner(name).propose(shared, STOP, seed=0)
            spent[name] = process_time() - start
    parts = ", ".join(f"{name} {seconds:.2f}" for name, seconds in spent.items())
    return f"  {sum(spent.values()):.2f} s: {parts}"


def warm_up() -> None:
    """Loads compiled code and imports, so that no planner pays for the others."""
    problem = load_problem(model="gpt2", cluster="four-hubs", global_batch=64, allow_local_sgd=True)
    for name in (*COMPETING, "diloco"):
        planner(name).propose(problem, Stop(1.0), seed=0)


def main() -> None:
    """Prints a table for every network and model."""
    warm_up()
    print("all baselines that auto may ask, one after the other: llama-3-70b over four-hubs, CPU seconds (aim: 0.6)")
    rounds = [together(load_problem(model="llama-3-70b", cluster="four-hubs")) for _ in range(3)]
    print(min(rounds) + "\n")
    columns = ("step s", "over %", "util %", "egress $", "all $", "plan s", "gap %")
    for network in NETWORKS:
        for model in network.models:
            problem = load_problem(model=model, cluster=network.make())
            widths = (9, 8, 6, 9, 9, 8, 6)
            print(f"{model} over {network.name}")
            print(
                f"  {'planner':14s} "
                + " ".join(f"{text:>{width}s}" for text, width in zip(columns, widths, strict=True))
            )
            for row in table(problem):
                print(row)
            print()
            sys.stdout.flush()


if __name__ == "__main__":
    main()
