"""How much of the front between time and egress the agents of a site reach by their preferences alone.

In each of the drawn worlds (``jobs.joint.evaluate.worlds``, where running jobs are kept) the agents play under eleven
weights of egress, rules under every most number of domains for a job, several weights of what GPUs cost and several
prices of egress (so the rules have more ways than they have in ``settings.json``). The front is what nobody undercuts
in both priced time and egress, of all plays. *Covered*: its points that some play of the agents comes within 1 % of in
both, or undercuts; *volume*: what the agents' plays dominate, up to the worst of the front's plays in both, over what
all plays dominate.

    python -m benchmarks.preferences [--policy POLICY.npz] [--domains 4,8] [--worlds 5]
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hippo.decide.pareto import hypervolume, non_dominated
from hippo.intervals import interval
from hippo.jobs.joint import rules
from hippo.jobs.joint.env import WorldScene
from hippo.jobs.joint.evaluate.suite import played
from hippo.jobs.joint.evaluate.worlds import WorldGrid
from hippo.jobs.joint.hi_ppo.policy import Agents, HiPpoScheduler, shipped
from hippo.jobs.joint.moment import Scheduler

from .rivals import ground

WEIGHTS = tuple(each / 10.0 for each in range(10)) + (0.95,)
CLOSE = 0.01

Points = NDArray[np.float64]  # (plays, 2) priced time in s, egress in USD


def by_rules() -> Iterator[Scheduler]:
    """Rules under settings that trade egress for time."""
    for rule in (rules.SRPT, rules.SLA_MORL, rules.MAST, rules.SEPARATE):
        for parts in (1, 2, 3, 4):
            for thrift, egress in product((0.0, 1.0, 3.0), (0.0, 30.0, 300.0, 3000.0)):
                yield replace(rule, most_parts=parts, thrift=thrift, egress=egress)


def points(scene: WorldScene, schedulers: Sequence[Scheduler]) -> Points:
    """What each comes to."""
    rows = [played(scene, each) for each in schedulers]
    return np.array([[row["priced_s"], row["egress_usd"]] for row in rows])


def covered(ours: Points, front: Points) -> float:
    """Share of the front's points that one of ours comes within ``CLOSE`` of, or undercuts."""
    near = np.all(ours[None] <= front[:, None] * (1.0 + CLOSE) + 1e-9, axis=2)
    return float(np.mean(np.any(near, axis=1)))


def volume(ours: Points, every: Points) -> float:
    """What ours dominate over what every play dominates, up to the worst of the front in both."""
    front = every[non_dominated(every)]
    least, most = front.min(axis=0), front.max(axis=0)
    span = np.where(most > least, most - least, 1.0)
    found, whole = (hypervolume((each - least) / span, [1.01, 1.01]) for each in (ours, every))
    return float(found / whole)


def main() -> None:
    """One line a world, then means with their intervals."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--policy", type=Path, help="the one that ships where it is left out")
    asked.add_argument("--domains", default="4,8")
    asked.add_argument("--worlds", type=int, default=5)
    asked.add_argument("--jobs", type=int, default=100)
    given = asked.parse_args()
    agents = Agents.unpacked(given.policy.read_bytes(), str(given.policy)) if given.policy else shipped()
    print("| domains | world | front | covered | volume | egress of ours, USD | priced time of ours, h |")
    print("|---|---|---|---|---|---|---|")
    for domains in map(int, given.domains.split(",")):
        grid = WorldGrid(loads=(1.2,), domains=(domains,), stops=(False,), jobs=given.jobs, first_seed=6_000)
        draws = replace(grid, seeds=-(-given.worlds // len(grid.families))).draws()[: given.worlds]
        found = []
        for draw in draws:
            scene = ground().scene(draw)
            ours = np.concatenate(
                [
                    points(replace(scene, egress_weight=each), [HiPpoScheduler(agents=agents, egress_weight=each)])
                    for each in WEIGHTS
                ]
            )
            every = np.concatenate([ours, points(scene, list(by_rules()))])
            front = every[non_dominated(every)]
            found.append((covered(ours, front), volume(ours, every)))
            spread = [f"{low:,.0f} to {high:,.0f}" for low, high in zip(ours.min(0), ours.max(0), strict=True)]
            hours = f"{ours[:, 0].min() / 3600:.2f} to {ours[:, 0].max() / 3600:.2f}"
            print(
                f"| {domains} | {draw.name} | {len(front)} | {found[-1][0]:.2f} | {found[-1][1]:.3f} "
                f"| {spread[1]} | {hours} |",
                flush=True,
            )
        for name, values in zip(("covered", "volume"), zip(*found, strict=True), strict=True):
            told = interval(list(values))
            assert told is not None
            print(f"{domains} domains, {name}: {told.mean:.3f} ({told.low:.3f} to {told.high:.3f})", flush=True)


if __name__ == "__main__":
    main()
