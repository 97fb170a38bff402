"""How long decisions take: upper agent at K 8 and K 64, lower agent, the whole coordination.

    hippo bench decisions
    python benchmarks/decisions.py [policy] [worlds]

Milliseconds on one thread, p50, p99 and largest, by the clock of the wall (which counts what else the machine does) and
in CPU time. *Answer*: the policy file's graph for one network and 24 options, inputs drawn. *Lower*: layouts of all
domains of one plan at once, and a domain's share of it. Then whole runs in worlds with 8 and with 64 domains, in which
plans are made anew, by CPU time alone. *View to proposal*: the upper agent end to end. *Whole decision*: coordination,
where something was due, from the trigger to the verified answer that counts; where plans and levers were made first
and the answer was given again, both answers and the thought. *Thoughts*: making plans and levers, by themselves.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import islice
from time import perf_counter, process_time
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

os.environ.setdefault("OMP_NUM_THREADS", "1")

from hippo.dynamics.movements import draw_movement
from hippo.dynamics.processes import congested_latency
from hippo.network.construction.observe import LAYOUTS, MOST_ROWS, PLACES, Rows
from hippo.network.hi_ppo.constructor import ARRANGE, Served
from hippo.network.hi_ppo.coordinator import HiPpo
from hippo.network.hi_ppo.serving import Policy, shipped
from hippo.network.observation.features import CONTEXT, EDGES, MOST_OPTIONS, NODES, OPTIONS, Observation
from hippo.network.plans.candidates import fill
from hippo.network.plans.plan_cache import PlanCache
from hippo.network.worlds.asking import Terms
from hippo.network.worlds.generator import FAMILIES, draw_problem
from hippo.network.worlds.play import steps, usd_per_token
from hippo.network.worlds.world import World
from hippo.problem.links import base_bandwidth, base_latency

Times = NDArray[np.float64]  # (N, 2) seconds by the wall and of CPU
CALLS, WARMED = 2000, 20
WORLDS = 4  # with 8 domains
MOVEMENTS = ("regimes", "transient", "lasting", "outage")
THOUGHT_S = 0.01  # a thought that took less found nothing to do
ASKED_MS = {"upper, K 8": 10.0, "upper, K 64": 100.0, "lower": 1.0, "coordination": 200.0}


def timed(call: Callable[[], object], calls: int = CALLS) -> Times:
    """Seconds of each call, the first ones left out."""
    spent = np.zeros((calls, 2))
    for each in range(-WARMED, calls):
        wall, cpu = perf_counter(), process_time()
        call()
        if each >= 0:
            spent[each] = perf_counter() - wall, process_time() - cpu
    return spent


def line(name: str, spent: Times, asked: float | None = None) -> str:
    """One row."""
    if not len(spent):
        return f"{name:34s}{'never':>8s}"
    figures = [1e3 * float(np.quantile(spent[:, column], q)) for column in (0, 1) for q in (0.5, 0.99)]
    figures.append(1e3 * float(spent[:, 1].max()))
    told = "".join(f"{'-' if np.isnan(figure) else format(figure, '.3f'):>10s}" for figure in figures)
    return f"{name:34s}{len(spent):8d}{told}{'' if asked is None else f'{asked:10g}'}"


def drawn(domains: int) -> Observation:
    """One network of so many domains, every pair linked, and as many options as there can be."""
    rng, shape = np.random.default_rng(domains), (1, MOST_OPTIONS, domains)
    linked = ~np.eye(domains, dtype=bool)
    edges = rng.standard_normal((1, domains, domains, EDGES)) * linked[..., None]
    edges[..., 0] = linked
    return Observation(
        rng.standard_normal((1, domains, NODES)).astype(np.float32),
        edges.astype(np.float32),
        np.ones((1, domains), bool),
        rng.standard_normal((1, CONTEXT)).astype(np.float32),
        rng.standard_normal((1, MOST_OPTIONS, OPTIONS)).astype(np.float32),
        rng.dirichlet(np.ones(domains), shape[:2]).astype(np.float32),
        (rng.random((*shape, domains)) * linked / domains**2).astype(np.float32),
        np.ones(shape[:2], bool),
    )


def lower(policy: Policy, domains: int = 8) -> Times:
    """The lower agent's answer for all domains of a plan."""
    rng, brain = np.random.default_rng(0), Served(policy)
    seen = Rows(
        rng.standard_normal((domains, MOST_ROWS, LAYOUTS)).astype(np.float32),
        rng.standard_normal((domains, PLACES)).astype(np.float32),
        np.ones((domains, MOST_ROWS), bool),
    )
    return timed(lambda: brain.arrange(seen))


def world_of(domains: int, seed: int, epochs: int) -> World:
    """A world of the generator's large family with so many domains."""
    plan = replace(FAMILIES["large"], domains=(domains, domains))
    rng = np.random.default_rng((domains, seed))
    name = f"K {domains}, seed {seed}"
    problem = draw_problem(plan, rng, "test", name)
    time_s = np.arange(epochs, dtype=np.float64) * plan.epoch_s
    moved = draw_movement(MOVEMENTS[seed % len(MOVEMENTS)], problem.cluster, time_s, rng)
    bandwidth = moved.bandwidth * base_bandwidth(problem.cluster)
    latency = congested_latency(base_latency(problem.cluster), moved.bandwidth)
    told = np.ones(bandwidth.shape, dtype=bool)
    return World(name, "large", problem, plan.epoch_s, bandwidth, latency, moved.compute, told, seed)


class Spent(NamedTuple):
    """CPU seconds of one run."""

    decided: list[float]  # decisions at which something was due, thoughts that they waited for included
    quiet: list[float]  # at which nothing was: all stays, or a lever is pulled
    thought: list[float]  # where plans were made
    proposing: list[float]  # the upper agent's part, from the view to its proposal
    verifying: list[float]


def played(policy: Policy, world: World, cache: PlanCache) -> Spent:
    """Every decision of a whole run, plans made anew included."""
    terms, spent = Terms(usd_per_token(world, cache)), Spent([], [], [], [], [])
    for _ in islice(steps(world, cache.copy(), HiPpo(policy), terms), WARMED):
        pass
    method = HiPpo(policy, clock=process_time)
    for epoch in steps(world, cache.copy(), method, terms):
        if epoch.replanning_s > THOUGHT_S:
            spent.thought.append(epoch.replanning_s)
        account = method.account
        if epoch.view.running < 0 or account is None:
            continue
        if not account.due:
            spent.quiet.append(epoch.decision_s)
            continue
        spent.decided.append(epoch.decision_s)
        spent.proposing.append(account.times.proposal_s)
        spent.verifying.append(account.times.verification_s)
    return spent


def in_runs(policy: Policy, domains: int, epochs: int, count: int) -> None:
    """Rows of whole runs."""
    all_of = Spent([], [], [], [], [])
    for seed in range(count):
        world = world_of(domains, seed, epochs)
        cache = PlanCache(world.problem)
        fill(cache)
        for whole, part in zip(all_of, played(policy, world, cache), strict=True):
            whole.extend(part)
    rows = (
        (f"upper, K {domains}", "view to proposal", all_of.proposing, ASKED_MS[f"upper, K {domains}"]),
        (f"upper, K {domains}", "whole decision", all_of.decided, ASKED_MS["coordination"]),
        (f"K {domains}", "of that verification", all_of.verifying, None),
        (f"K {domains}", "nothing due", all_of.quiet, None),
        (f"K {domains}", "thoughts", all_of.thought, None),
    )
    for name, what, spent, asked in rows:
        cpu = np.array(spent)
        print(line(f"{name}: {what}", np.stack([np.full(len(cpu), np.nan), cpu], axis=1), asked))


def main(policy: Policy, each: int) -> None:
    """Graphs alone, then whole runs."""
    head = ("calls", "wall p50", "wall p99", "CPU p50", "CPU p99", "CPU max", "asked p99")
    print(f"{'ms, one thread':34s}{head[0]:>8s}" + "".join(f"{name:>10s}" for name in head[1:]))
    for domains in (8, 64):
        print(line(f"answer of the graph, K {domains}", timed(partial(policy.act, drawn(domains)))))
    if ARRANGE in policy.networks:
        spent = lower(policy)
        print(line("lower, 8 domains at once", spent))
        print(line("lower, a domain's share", spent / 8, ASKED_MS["lower"]))
    in_runs(policy, 8, 240, each)
    in_runs(policy, 64, 60, 1)


if __name__ == "__main__":
    main(
        Policy.load(sys.argv[1]) if len(sys.argv) > 1 else shipped(),
        int(sys.argv[2]) if len(sys.argv) > 2 else WORLDS,
    )
