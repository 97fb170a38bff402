"""How long the agents of a site take to decide: with 8 domains and 30 jobs in the system, 64 domains and 500 jobs.

    hippo bench world_decisions
    python benchmarks/world_decisions.py POLICY.npz

Milliseconds of CPU on one thread. *Upper*: one answer, look, thought, job and place, and what it takes to carry it out.
*Lower*: the shapes of that place and the choice of one. *Moment*: from the trigger (something came or ended) to the
executed change, all answers together (T_coord); *verified*: with what was said played ahead beside the rule. All jobs
come within a second, and nobody decides before. Without a file networks of the configured size play, their weights as
training begins. Then decisions per CPU second as roll-outs
collect them (worlds of 8 domains, as configured, then so crowded that about 30 jobs are there): world, observation and
policy together, and the opening of the worlds that follow those that end, with the rule's play beside each.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import process_time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

from hippo.jobs.engine import world as c
from hippo.jobs.joint.env import WorldScene
from hippo.jobs.joint.evaluate.worlds import WorldDraw
from hippo.jobs.joint.hi_ppo.learner import SiteAgents, collect
from hippo.jobs.joint.hi_ppo.policy import Agents, Eyes, HiPpoScheduler
from hippo.jobs.joint.hi_ppo.scenes import drawn_scenes
from hippo.jobs.joint.hi_ppo.settings import WorldLearning
from hippo.jobs.joint.hi_ppo.train import packed, share_learner
from hippo.jobs.joint.hi_ppo.verified import VerifiedScheduler
from hippo.jobs.joint.moment import Moment
from hippo.jobs.joint.play import opened, step
from hippo.learn.distributed import Place
from hippo.problem.load import load_cluster
from rivals import CLUSTER, ground  # type: ignore[import-not-found]

SITES = ((8, 30, 12), (64, 500, 2))  # domains, jobs in the system at least, worlds
ASKED_MS = {("upper", 8): 50, ("upper", 64): 1000, ("lower", 8): 5, ("lower", 64): 100}
ASKED_PER_S = 3000
WORLDS, STEPS = 64, 320  # of a roll-out
CROWDED = 3.0  # load


@dataclass(frozen=True, eq=False)
class Timed(Agents):
    """Agents whose lower one is timed."""

    lower_s: list[float] = field(default_factory=list)

    def shape(self, moment: Moment, eyes: Eyes, slot: int, place: int, rng: np.random.Generator | None) -> int:
        """As theirs."""
        began = process_time()
        found = super().shape(moment, eyes, slot, place, rng)
        self.lower_s.append(process_time() - began)
        return found


def moments(scene: WorldScene, jobs: int) -> Iterator[Moment]:
    """The moment at which all jobs have come, and those that follow while so many are in the system, for whoever takes
    them to decide."""
    opening = opened(scene.workload, scene.site, scene.settings, offers=scene.offers)
    moment = Moment.of(opening.world, scene.workload, scene.site, scene.offers, stops=scene.settings.stops)
    while step(opening.world):
        if opening.world.tally[c.ARRIVED] == len(scene.workload):
            if len(moment.waiting) + len(moment.running) < jobs:
                return
            yield moment


def crowded(domains: int, jobs: int, seed: int, *, stops: bool) -> WorldScene:
    """All jobs come within a second, a quarter more than are to be there."""
    scene: WorldScene = ground().scene(WorldDraw("mixed", 1.0, "still", domains, jobs * 5 // 4, seed, stops))
    arrival_s = np.linspace(0.0, 1.0, len(scene.workload))
    return replace(scene, workload=replace(scene.workload, arrival_s=arrival_s))


def line(name: str, spent_s: list[float], asked: int | None = None) -> str:
    """One row, milliseconds."""
    if not spent_s:
        return f"{name:34s}{0:8d}"
    ms = 1e3 * np.array(spent_s)
    told = f"{name:34s}{len(ms):8d}" + "".join(f"{each:10.2f}" for each in (*np.quantile(ms, (0.5, 0.99)), ms.max()))
    return told if asked is None else f"{told}{asked:10d}"


def decisions(agents: Agents, domains: int, jobs: int, worlds: int) -> Iterator[str]:
    """Rows of one size of site; the first world is not timed."""
    timed = Timed(agents.upper, agents.lower, agents.stops)
    for seed in range(-1, worlds):
        if seed <= 0:
            upper, whole, verified, degraded = list[float](), list[float](), list[float](), 0
            timed.lower_s.clear()
        scene = crowded(domains, jobs, 1 + seed, stops=agents.stops and seed % 2 == 0)
        bare = HiPpoScheduler(agents=timed)
        for moment in moments(scene, jobs):
            began = at_s = process_time()
            at = len(timed.lower_s)
            for _ in bare.answers(moment):
                now_s = process_time()
                upper.append(now_s - at_s - sum(timed.lower_s[at:]))
                at, at_s = len(timed.lower_s), now_s
            ends_s = process_time()
            upper.append(ends_s - at_s)  # nobody
            whole.append(ends_s - began)
        checked = VerifiedScheduler(policy=HiPpoScheduler(agents=agents))
        for moment in moments(scene, jobs):
            began = process_time()
            checked.decide(moment)
            verified.append(process_time() - began)
            degraded += moment.counts.pop("degraded", 0)
    where = f"K {domains}, {jobs} jobs"
    yield line(f"{where}: upper, one answer", upper, ASKED_MS["upper", domains])
    yield line(f"{where}: lower, one answer", timed.lower_s, ASKED_MS["lower", domains])
    yield line(f"{where}: moment", whole)
    yield line(f"{where}: moment, verified", verified) + f", {degraded} left to the rule"


def rolled(loads: tuple[float, ...]) -> str:
    """A row of roll-outs in worlds of 8 domains."""
    usual = WorldLearning()
    settings = replace(
        usual,
        worlds=replace(usual.worlds, cluster=str(CLUSTER), domains=(8,), loads=loads),
        run=replace(usual.run, parallel=WORLDS, shares=1),
    )
    scenes = drawn_scenes(settings, ground().offers, cluster=load_cluster(str(CLUSTER)))
    torch.manual_seed(0)
    policy = SiteAgents(settings)
    (share,) = share_learner(policy, settings, scenes, Place()).shares
    collect(policy, share, 2, settings)
    began, first = process_time(), share.batch.first
    roll = collect(policy, share, STEPS, settings)
    pace, worlds = roll.decisions / (process_time() - began), share.batch.first - first
    there = np.expm1(roll.seen.site[..., :2].astype(np.float64) * 4.0).sum(axis=-1)  # who waits and who runs
    said = f"decisions per CPU second in roll-outs, K 8, {there.mean():.0f} jobs: {pace:,.0f} (asked {ASKED_PER_S:,d})"
    return f"{said}, {roll.decisions:,d} decisions, {worlds} worlds opened"


def main(file: Path | None) -> None:
    """Decisions, then roll-outs."""
    torch.set_num_threads(1)
    if file is None:
        torch.manual_seed(0)
        agents = Agents.unpacked(packed(SiteAgents(WorldLearning()), WorldLearning()), "as training begins")
    else:
        agents = Agents.unpacked(file.read_bytes(), str(file))
    heads = ("calls", "p50", "p99", "max", "asked p99")
    print(f"{'ms of CPU, one thread':34s}{heads[0]:>8s}" + "".join(f"{head:>10s}" for head in heads[1:]))
    for each in SITES:
        print(*decisions(agents, *each), sep="\n", flush=True)
    for loads in (WorldLearning().worlds.loads, (CROWDED,)):
        print(rolled(loads), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
