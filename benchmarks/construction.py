"""Construction by the agents against the exact planner: step times on problems and networks not learned from.

    hippo bench construction
    python benchmarks/construction.py [policy] [problems per size]

Problems of the test split of every family at a random state of their links, K 3 to 16. Ratio: step time of the best
plan of so many tries over that of `exact` with a limit of 2 s. `closed form`: what the networks begin as.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

os.environ.setdefault("OMP_NUM_THREADS", "1")

from hippo.network.construction.draft import Site, site
from hippo.network.hi_ppo.constructor import Brain, ClosedForm, Served, finished, key, tried
from hippo.network.hi_ppo.serving import Policy, shipped
from hippo.network.plans.replan import Net, under
from hippo.network.worlds.generator import FAMILIES, make_world
from hippo.planners.base import Stop
from hippo.planners.exact.search import Exact

TRIES = (1, 4, 16)
LIMIT_S = 2.0
SIZES = ((3, 4), (5, 6), (7, 10), (11, 16))
EACH = 14
FIRST_SEED = 500


@dataclass(frozen=True, eq=False)
class Case:
    """A site, and what `exact` found there."""

    name: str
    site: Site
    exact_s: float
    planning_s: float


def cases(each: int) -> Iterator[tuple[tuple[int, int], Case]]:
    """So many for every range of K, families in turn."""
    counts = dict.fromkeys(SIZES, 0)
    rng = np.random.default_rng(5)
    for seed in range(FIRST_SEED, FIRST_SEED + 40 * each):
        for family in FAMILIES:
            if all(count >= each for count in counts.values()):
                return
            if family != "large" and all(counts[size] >= each for size in SIZES[:2]):
                continue
            world = make_world(family, seed, split="test")
            count = len(world.problem.cluster.domains)
            size = next((size for size in SIZES if size[0] <= count <= size[1]), None)
            if size is None or counts[size] >= each:
                continue
            epoch = int(rng.integers(world.epochs))
            state = world.bandwidth_bytes_per_s[epoch], world.latency_s[epoch]
            began = time.process_time()
            score = Exact().propose(under(world.problem, Net(*state)), Stop(time_limit_s=LIMIT_S)).score
            if score is not None:
                counts[size] += 1
                spent = time.process_time() - began
                yield size, Case(world.name, site(world.problem, *state), score.step_time_s, spent)


def ratios(brain: Brain, case: Case) -> tuple[dict[int, float], float]:
    """Ratio of the best plan of so many tries, and CPU seconds of the last number of them."""
    began, most = time.process_time(), max(TRIES)
    known: dict[object, float] = {}
    steps = []
    for draft in tried(brain, case.site, most, seed=1):
        if key(draft) not in known:
            made = finished(case.site, draft, orders=True)
            known[key(draft)] = np.inf if made is None else made.step_time_s
        steps.append(known[key(draft)])
    return {tries: min(steps[:tries]) / case.exact_s for tries in TRIES}, time.process_time() - began


def lower_ms(policy: Policy, domains: int = 8) -> tuple[float, float]:
    """p50 and p99 of the lower agent's answer for all domains at once, ms of wall clock on one thread."""
    from hippo.network.construction.observe import LAYOUTS, MOST_ROWS, PLACES, Rows

    rng, brain = np.random.default_rng(0), Served(policy)
    seen = Rows(
        rng.standard_normal((domains, MOST_ROWS, LAYOUTS)).astype(np.float32),
        rng.standard_normal((domains, PLACES)).astype(np.float32),
        np.ones((domains, MOST_ROWS), bool),
    )
    spent = []
    for _ in range(3000):
        began = time.perf_counter()
        brain.arrange(seen)
        spent.append(time.perf_counter() - began)
    return float(np.median(spent[500:]) * 1e3), float(np.quantile(spent[500:], 0.99) * 1e3)


def told(name: str, found: Sequence[dict[int, float]]) -> str:
    """A line of the table."""
    cells = []
    for tries in TRIES:
        values = np.array([each[tries] for each in found])
        values = values[np.isfinite(values)]
        cells.append(f"{values.mean():6.3f} {np.quantile(values, 0.95):6.3f}")
    missing = sum(not np.isfinite(each[max(TRIES)]) for each in found)
    return f"{name:24s} {len(found):4d}   " + "   ".join(cells) + (f"   {missing} without a plan" if missing else "")


def main() -> None:
    """Prints the tables."""
    policy = Policy.load(sys.argv[1]) if len(sys.argv) > 1 else shipped()
    each = int(sys.argv[2]) if len(sys.argv) > 2 else EACH
    brains: dict[str, Brain] = {"learned": Served(policy), "closed form": ClosedForm()}
    found: dict[str, dict[tuple[int, int], list[dict[int, float]]]] = {name: {} for name in brains}
    spent: list[float] = []
    planning: list[float] = []
    for size, case in cases(each):
        planning.append(case.planning_s)
        for name, brain in brains.items():
            values, seconds = ratios(brain, case)
            found[name].setdefault(size, []).append(values)
            spent.append(seconds)
    print("Step time over that of exact (2 s): mean and 95th percentile of the best of so many tries")
    print(f"{'':24s} {'n':>4s}   " + "   ".join(f"{'best of ' + str(tries):^13s}" for tries in TRIES))
    for name, of in found.items():
        for size, rows in sorted(of.items()):
            print(told(f"{name}, K {size[0]}-{size[1]}", rows))
        print(told(f"{name}, all", [each for rows in of.values() for each in rows]))
    print(
        f"CPU ms: exact {np.mean(planning) * 1e3:.0f}; {max(TRIES)} tries, orders included {np.median(spent) * 1e3:.0f}"
    )
    print("lower agent, all domains of a chain of 8 at once: p50 {:.3f} ms, p99 {:.3f} ms".format(*lower_ms(policy)))


if __name__ == "__main__":
    main()
