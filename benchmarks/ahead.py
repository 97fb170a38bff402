"""What agents learn from answers that are played ahead, where links bind: ``hi_ppo.lessons``, then worlds of other
numbers.

    python -m benchmarks.ahead --out DIR [--worlds 175] [--seeds 0,1,2] [--tests 60] [--margin 0.05]

On ``examples/eight-cloud-regions.yaml``, running jobs kept, four families (``philly-like`` leaves nothing to choose),
loads of 0.8, 1 and 1.3. Answers are tried once (and not again where their files lie in DIR); each seed learns from all
of them. Priced time and mean completion over ``srpt`` as it ships, which advises the agents, and over ``srpt`` with the
setting that was searched on such worlds (``TUNED``: the best of 80 on worlds 1000 to 1029), with 95 % intervals over
worlds; several seeds: of their means.
"""

from __future__ import annotations

import argparse
import io
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from hippo.files import write_whole
from hippo.jobs.joint.draws import DrawnScenes, WorldTerms
from hippo.jobs.joint.env import WorldScene, prices
from hippo.jobs.joint.evaluate.evidence import crossed
from hippo.jobs.joint.evaluate.hindsight import HindsightPlayer
from hippo.jobs.joint.evaluate.suite import stays_s
from hippo.jobs.joint.hi_ppo.learner import SiteAgents
from hippo.jobs.joint.hi_ppo.lessons import Lessons, joined, learn, lessons_of
from hippo.jobs.joint.hi_ppo.policy import Agents, HiPpoScheduler
from hippo.jobs.joint.hi_ppo.settings import AheadTerms, DrawnWorlds, WorldLearning
from hippo.jobs.joint.hi_ppo.train import packed
from hippo.jobs.joint.play import play_jointly
from hippo.jobs.joint.rules import Ranked
from hippo.jobs.joint.settings import CRUX, SHORTEST, SLA_MORL, SRPT
from hippo.jobs.placement.offer_plans import offer_table
from hippo.jobs.site import JobSite
from hippo.jobs.traces.elastic import usual_trainings
from hippo.problem.load import load_cluster

from .room import CLUSTER, MODELS

FAMILIES = ("mixed", "steady", "bursty", "large")
LEARNED, TESTED = 1_000, 20_000
"""First numbers of the worlds."""
A_FILE = 25
TUNED = replace(SRPT.kept, name="srpt, tuned", crowd=3.0, busy=1.0, thrift=5.0, slack=0.0)

Floats = NDArray[np.float64]


def drawn() -> DrawnScenes:
    """The worlds, by number."""
    usual, cluster = DrawnWorlds(), load_cluster(CLUSTER)
    terms = WorldTerms(
        JobSite.of(cluster),
        FAMILIES,
        usual.jobs,
        usual.loads,
        moving=usual.moving,
        failing=usual.failing,
        tenants=usual.tenants,
        stops=0.0,
    )
    return DrawnScenes(terms, offer_table(cluster, usual_trainings(tuple(MODELS.split(",")))), 0)


def by_rule(scene: WorldScene, rule: Ranked) -> tuple[float, float]:
    """Priced time and time in the system, seconds, mean of the jobs."""
    player = HindsightPlayer.of(scene, prices(scene))
    cost, ends_s = player.played(player.plain(rule))
    return cost / len(player.price), float(np.mean(ends_s - scene.workload.arrival_s))


def by_agents(scene: WorldScene, agents: Agents) -> tuple[float, float]:
    """The same under agents."""
    scheduler = HiPpoScheduler(agents=agents)
    ledger = play_jointly(
        scene.workload, scene.site, scheduler, scene.settings, offers=scene.offers, tenants=scene.tenants
    )
    stay_s = stays_s(ledger, scene.workload.arrival_s)
    return float(np.mean(stay_s * prices(scene))), float(stay_s.mean())


def told(name: str, ours: Floats, others: Sequence[Floats]) -> str:
    """A row: (S, W, 2) of S training seeds over each of the others' (W, 2); intervals over worlds and seeds."""
    cells = []
    for other in others:
        for at in range(2):
            found = crossed(ours[..., at] / other[..., at])
            assert found is not None
            cells.append(f"{found.mean:.3f} ± {(found.high - found.low) / 2:.3f}")
    return f"| {name} | {' | '.join(cells)} |"


def tried(scenes: DrawnScenes, terms: AheadTerms, out: Path) -> Lessons:
    """Of all worlds, kept in files of some worlds each: what is there is not tried again."""
    every = list[Lessons]()
    for first in range(LEARNED, LEARNED + terms.worlds, A_FILE):
        path, numbers = out / f"lessons-{first}.npz", range(first, min(first + A_FILE, LEARNED + terms.worlds))
        if not path.exists():
            found = [lessons_of(scenes.scene(each), np.random.default_rng([77, each]), terms) for each in numbers]
            content = io.BytesIO()
            np.savez_compressed(content, **joined(each for each in found if each is not None)._asdict())
            write_whole(path, content.getvalue())
        with np.load(path) as stored:
            every.append(Lessons(**stored))
    return joined(every)


def rows(given: argparse.Namespace) -> Iterator[str]:
    """Learn, and play."""
    scenes, terms = drawn(), AheadTerms(worlds=given.worlds, margin=given.margin)
    tests = [scenes.scene(TESTED + number) for number in range(given.tests)]
    rules = [SRPT.kept, TUNED, SLA_MORL.kept, SHORTEST.kept, CRUX.kept]
    paid = [np.array([by_rule(scene, rule) for scene in tests]) for rule in rules]
    yield "| who | priced, over `srpt` | completion | priced, over `srpt` tuned | completion |\n|---|---|---|---|---|"
    yield from (told(f"`{rule.name}`", each[None], paid[:2]) for rule, each in zip(rules[1:], paid[1:], strict=True))
    began = time.process_time()
    lessons, settings, seen = tried(scenes, terms, given.out), WorldLearning(ahead=terms), list[Floats]()
    tried_s = time.process_time() - began
    for seed in map(int, given.seeds.split(",")):
        torch.manual_seed(seed)
        policy = SiteAgents(settings)
        learn(policy.upper, lessons, terms, np.random.default_rng(seed))
        content = packed(policy, settings)
        write_whole(given.out / f"agents-{seed}.npz", content)
        agents = Agents.unpacked(content, f"agents-{seed}")
        seen.append(np.array([by_agents(scene, agents) for scene in tests]))
        yield told(f"agents, seed {seed}", seen[-1][None], paid[:2])
    yield told("agents, mean", np.array(seen), paid[:2])
    yield f"\n{len(lessons.slot):,} moments of {given.worlds} worlds, {tried_s:.0f} s of CPU to try answers"


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/ahead"))
    parser.add_argument("--worlds", type=int, default=175)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--tests", type=int, default=60)
    parser.add_argument("--margin", type=float, default=0.05)
    given = parser.parse_args(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    for row in rows(given):
        print(row, flush=True)


if __name__ == "__main__":
    main()
