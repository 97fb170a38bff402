"""The front of `hippo pareto`: against the front of all plans on small problems, and how long it takes on large ones.

Small: two data centres, every plan enumerated and scored. *met*: the share of its front's plans that one of ours meets
in time, egress and utilisation within 1 %; *volume*: hypervolume of ours over that of the true front. *shapes alone*:
the search over the shapes of `exact`; *all planners*: their plans, too, as `hippo pareto` takes them. Large: CPU
seconds of the search (numba compiled before), points, and whether it came to its end.
"""

from __future__ import annotations

from dataclasses import replace
from time import process_time

import numpy as np

from hippo.decide.pareto import Front, front_of, hypervolume, pareto_front
from hippo.planners.base import Stop
from hippo.planners.brute.brute import every_plan
from hippo.planners.exact.front import front_candidates
from hippo.problem.cluster import Cluster, Domain, Link
from hippo.problem.load import load_model, load_problem
from hippo.problem.problem import Problem
from hippo.registry import AUTO, USUAL, planners

STOP = Stop(time_limit_s=120.0)
CLOSE = 0.01


def small(*, gpus: int, batch: int, blocks: int, gbps: float, latency_ms: float, price: float = 0.02) -> Problem:
    """Two data centres of so many A100, gpt2's blocks, sequences of 1024 tokens."""
    gpu = load_problem(model="gpt2", cluster="toy").cluster.gpu
    domains = tuple(Domain(name, 1, gpus, 300e9, 25e9, 5e-6) for name in ("east", "west"))
    ends = (("east", "west"), ("west", "east"))
    links = tuple(Link(source, to, gbps * 1e9 / 8, latency_ms * 1e-3, price) for source, to in ends)
    whole = load_model("gpt2")
    model = replace(whole, name=f"gpt2, {blocks} blocks", layers=(*whole.layers[: blocks + 1], whole.layers[-1]))
    problem = load_problem(model=model, cluster=Cluster("pair", gpu, domains, links), global_batch=batch, seq=1024)
    return problem


def figures(front: Front) -> np.ndarray:
    """Seconds, egress and idle share of every point, (P, 3)."""
    return np.array([[s.step_time_s, s.egress_usd_per_step, 1 - s.utilization] for _, s in front.points])


def met_and_volume(ours: Front, true: Front) -> tuple[float, float]:
    """Share of the true front's plans that ours meets, and the ratio of the hypervolumes."""
    mine, theirs = figures(ours), figures(true)
    reach = theirs[:, None, :] * [1 + CLOSE, 1 + CLOSE, 1] + [0, 0, CLOSE]
    met = np.all(mine[None, :, :] <= reach, axis=2).any(axis=1).mean()
    corner = np.maximum(mine.max(axis=0), theirs.max(axis=0)) * 1.01 + 1e-9
    volumes = [hypervolume(each / corner, np.ones(3)) for each in (mine, theirs)]
    return float(met), volumes[0] / volumes[1]


def compare(problem: Problem, words: str) -> None:
    """A row for one small problem."""
    plans = [(each.plan, each.score) for each in every_plan(problem)]
    true = front_of(problem, plans, None)
    alone = front_of(problem, [(each.plan, each.score) for each in front_candidates(problem, [], STOP)[0]], None)
    panel = planners(AUTO)
    whole = pareto_front(problem, panel, STOP, search=front_candidates, baseline=planners(USUAL))
    (met, volume), (met_all, volume_all) = met_and_volume(alone, true), met_and_volume(whole, true)
    print(
        f"{words:<44} {len(plans):>7,} plans, front {len(true.points):>2} | {met:>5.0%} {volume:.4f} | "
        f"{met_all:>5.0%} {volume_all:.4f}"
    )


def measure(model: str, cluster: str) -> None:
    """A row for one large problem."""
    problem = load_problem(model=model, cluster=cluster)
    began = process_time()
    found, closed = front_candidates(problem, [], STOP)
    spent = process_time() - began
    points = len(front_of(problem, [(each.plan, each.score) for each in found], None).points)
    print(f"{model + ' on ' + cluster:<44} {spent:6.1f} s CPU, {points:>3} points{'' if closed else ', not closed'}")


if __name__ == "__main__":
    front_candidates(load_problem(model="gpt2", cluster="toy"), [], STOP)  # kernels are compiled
    print("small problem                                                      shapes alone: met, volume | all planners")
    for gbps in (1.0, 20.0, 400.0):
        near = small(gpus=1, batch=4, blocks=3, gbps=gbps, latency_ms=0.01)
        compare(near, f"1 + 1 GPUs, batch 4, 3 blocks, {gbps:g} Gbit/s")
    far = small(gpus=1, batch=8, blocks=2, gbps=20.0, latency_ms=1.0)
    compare(far, "1 + 1 GPUs, batch 8, 2 blocks, 20 Gbit/s, 1 ms")
    wide = small(gpus=2, batch=2, blocks=2, gbps=100.0, latency_ms=0.01)
    compare(wide, "2 + 2 GPUs, batch 2, 2 blocks, 100 Gbit/s")
    print("large problem")
    for question in (("llama-3-70b", "four-hubs"), ("llama-3-8b", "three-aws-regions"), ("gpt3-175b", "four-hubs")):
        measure(*question)
