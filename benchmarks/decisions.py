"""How long decisions take: upper agent at K 8 and K 64, lower agent, the whole coordination.

    hippo bench decisions
    python benchmarks/decisions.py [policy] [worlds]

Milliseconds on one thread, p50 and p99, by the clock of the wall (which counts what else the machine does) and in CPU
time. `answer`: the policy file's graph for one network and 24 options. `observed`: from the view of a world to that
answer. `lower`: layouts of all domains of one plan at once. `coordination`: decisions of `hi_ppo` at which something
was due, from the trigger to the verified answer, over whole runs in unseen worlds; its parts below, by CPU time alone.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from time import perf_counter, process_time

import numpy as np
from numpy.typing import NDArray

os.environ.setdefault("OMP_NUM_THREADS", "1")

from hippo.agents.constructor import ARRANGE, Served
from hippo.agents.coordinator import QUIET, HiPpo
from hippo.agents.serving import Policy, shipped
from hippo.decide.online.candidates import fill
from hippo.decide.online.configuration import Book
from hippo.decide.online.view import View
from hippo.envs.cross_domain.drafting import LAYOUTS, MOST_ROWS, PLACES, Rows
from hippo.envs.cross_domain.generator import make_world
from hippo.envs.cross_domain.observe import observe
from hippo.envs.cross_domain.play import Terms, steps, usd_per_token
from hippo.envs.cross_domain.spaces import CONTEXT, EDGES, MOST_OPTIONS, NODES, OPTIONS, Observation
from hippo.envs.cross_domain.world import World

Times = NDArray[np.float64]  # (N, 2) seconds by the wall and of CPU
CALLS, WARMED = 2000, 20
WORLDS = 1  # of each family: a run takes minutes on a busy machine
FAMILIES = ("regimes", "transient", "large")
FIRST_SEED = 700
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
    told = "".join(f"{figure:10.3f}" for figure in figures)
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


def worlds(each: int) -> Iterator[tuple[World, Book]]:
    """Unseen worlds with the plans that are known before they begin to move."""
    for family in FAMILIES:
        for seed in range(FIRST_SEED, FIRST_SEED + each):
            world = make_world(family, seed, split="test")
            book = Book(world.problem)
            fill(book)
            yield world, book


def observed(policy: Policy, view: View) -> Times:
    """From a view to the upper agent's answer."""
    return timed(lambda: policy.act(observe(view)[0]), calls=20)


def coordinated(policy: Policy, world: World, book: Book) -> tuple[Times, list[tuple[float, ...]], View]:
    """Every decision of a run at which something was due, its parts in CPU seconds, and a view from its middle."""
    terms, own = Terms(usd_per_token(world, book)), book.copy()
    for _ in islice(steps(world, book.copy(), HiPpo(policy), terms), WARMED):
        pass
    method, began = HiPpo(policy, clock=process_time), perf_counter()
    spent: list[tuple[float, float]] = []
    parts: list[tuple[float, ...]] = []
    middle: View | None = None
    for epoch in steps(world, own, method, terms):
        wall = perf_counter() - began
        if epoch.view.epoch == world.epochs // 2:
            middle = epoch.view
        account = method.account
        if account is not None and account.outcome != QUIET and epoch.view.running >= 0:
            spent.append((wall, epoch.decision_s))
            times = account.times
            parts.append((times.candidates_s, times.proposal_s, times.verification_s))
        began = perf_counter()
    assert middle is not None
    return np.array(spent).reshape(-1, 2), parts, middle


def main(policy: Policy, each: int) -> None:
    """Both tables."""
    head = ("calls", "wall p50", "wall p99", "CPU p50", "CPU p99", "asked p99")
    print(f"{'ms, one thread':34s}{head[0]:>8s}" + "".join(f"{name:>10s}" for name in head[1:]))
    for domains in (8, 16, 64):
        seen, name = drawn(domains), f"upper, K {domains}"
        print(line(f"{name}: answer", timed(partial(policy.act, seen)), ASKED_MS.get(name)))
    if ARRANGE in policy.graphs:
        print(line("lower, 8 domains at once", lower(policy), ASKED_MS["lower"]))
    else:
        print(f"{'lower':34s} the policy file holds no lower agent")
    kept = []
    for world, book in worlds(each):
        name = f"{world.name}, K {len(world.problem.cluster.domains)}"
        spent, parts, view = coordinated(policy, world, book)
        kept.append((spent, np.array(parts).reshape(-1, 3)))
        asked = ASKED_MS["upper, K 8"] if len(world.problem.cluster.domains) <= 8 else None
        print(line(f"{name}: observed", observed(policy, view), asked))
        print(line(f"{name}: coordination", spent, ASKED_MS["coordination"]))
    print(line("coordination, all", np.concatenate([spent for spent, _ in kept]), ASKED_MS["coordination"]))
    steps_s = np.concatenate([part for _, part in kept])
    for at, name in enumerate(("plans made anew", "proposal", "verification")):
        print(line(f"  of that {name}", np.repeat(steps_s[:, at : at + 1], 2, axis=1)))


if __name__ == "__main__":
    main(
        Policy.load(sys.argv[1]) if len(sys.argv) > 1 else shipped(),
        int(sys.argv[2]) if len(sys.argv) > 2 else WORLDS,
    )
