"""The agents of a site that serve live and go on learning, beside the same agents frozen, and the rule that holds them.

    python -m benchmarks.online_site --policy out/four/world.npz --family large [--worlds 10] [--jobs 240]

Each world is a stream of jobs of one family at a load of 1.2 on four domains of 80 A100 (``DrawnScenes``; half to all
of the nodes, links that move, nodes that fail, other tenants; jobs that run are kept), of seeds that nobody learned
from. *Online*: ``joint.hi_ppo.online``, reviewed every 60 jobs, everything learned in the instant in which it is due,
under the rule until replays allow the policy (``--begin policy``: not so). *Frozen*: the same policy from the first job
on. *Rule*: ``srpt``. Priced time in the system of all jobs over the rule's in the same world; 95 % intervals over
worlds. ``--write FILE``: a row a world (JSON lines).
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from hippo.intervals import interval
from hippo.jobs.joint.draws import DrawnScenes, WorldTerms
from hippo.jobs.joint.env import WorldScene, prices
from hippo.jobs.joint.hi_ppo.online import MARGINS, REVIEW, AgentsLearner, OnlineScheduler, SiteGround, SitePolicy
from hippo.jobs.joint.hi_ppo.policy import Agents
from hippo.jobs.joint.play import play_jointly
from hippo.jobs.joint.settings import SRPT
from hippo.jobs.online.loop import GUARD, LoopSettings
from hippo.jobs.site import JobSite
from hippo.problem.load import load_cluster

from .rivals import ground

SEED, LOAD = 77_000_001, 1.2


def paid(scene: WorldScene, finish_s: Any) -> float:
    """Priced seconds in the system."""
    return float(prices(scene) @ (finish_s - scene.workload.arrival_s))


def one(scene: WorldScene, learner: AgentsLearner, first: Agents, *, by_replay: bool = True) -> dict[str, Any]:
    """A world under each of the three."""
    rule_s = paid(scene, SitePolicy(SRPT).finishes(scene))
    frozen_s = paid(scene, learner.policy(first).finishes(scene))
    place = SiteGround(replace(scene.site, history=None), scene.offers, scene.settings)
    began = time.process_time()
    with TemporaryDirectory() as folder:
        settings = LoopSettings(Path(folder), REVIEW, MARGINS, background="none", durable="normal", by_replay=by_replay)
        with OnlineScheduler(place, learner, first, SRPT, settings) as scheduler:
            asked = (scene.workload, scene.site, scheduler, scene.settings)
            found = play_jointly(*asked, offers=scene.offers, tenants=scene.tenants)
            scheduler.finish()
            served = scheduler.loop.log.served
    return {
        "frozen": frozen_s / rule_s,
        "online": paid(scene, found.finish_s) / rule_s,
        "swaps": len({version for _, version, _ in served} - {GUARD}) - 1,
        "falls": sum(version == GUARD for _, version, _ in served[1 + by_replay :]),
        "by_rule": _share(served, float(scene.workload.arrival_s[-1])),
        "cpu_s": time.process_time() - began,
    }


def _share(served: Sequence[tuple[float, int, str]], until_s: float) -> float:
    """Share of the time of arrivals in which the rule decided."""
    begins = np.array([time_s for time_s, _, _ in served] + [until_s]).clip(max=until_s)
    return float(np.diff(begins)[[version == GUARD for _, version, _ in served]].sum() / until_s)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--policy", type=Path, required=True)
    parser.add_argument("--family", required=True)
    parser.add_argument("--worlds", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=240)
    parser.add_argument("--begin", choices=("rule", "policy"), default="rule")
    parser.add_argument("--write", type=Path)
    given = parser.parse_args(arguments)
    learner, first = AgentsLearner.read(given.policy)
    terms = WorldTerms(JobSite.of(load_cluster(ground().cluster)), (given.family,), given.jobs, (LOAD,), stops=0.0)
    scenes = DrawnScenes(terms, ground().offers, SEED)
    rows = []
    for number in range(given.worlds):
        rows.append({"world": number, **one(scenes.scene(number), learner, first, by_replay=given.begin == "rule")})
        print(json.dumps(rows[-1]), flush=True)
        if given.write:
            given.write.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name in ("frozen", "online"):
        found = interval([row[name] for row in rows])
        assert found is not None
        worst = max(row[name] for row in rows)
        print(f"{name} over the rule: {found.mean:.3f} ± {found.high - found.mean:.3f}, worst {worst:.3f}")
    found = interval([row["online"] / row["frozen"] for row in rows])
    assert found is not None
    print(f"online over frozen: {found.mean:.3f} ± {found.high - found.mean:.3f}")


if __name__ == "__main__":
    main()
