"""Decisions a CPU second while the agents of a site learn, by one process and by 1, 2 and 4 workers of a Ray cluster.

Equal updates for all: the same four shares of 64 worlds on four hubs and 16,384 decisions an update, as configured,
nobody looks at other worlds. CPU seconds are those of all workers and of the process that drives them; one
update more comes first. *Rolling*: of the first worker in its roll-outs alone. *Whole*: everybody waits for everybody;
*cut*: as ``hippo train --ray`` does it, once 60 % of the workers are done with their roll-outs the others give what
they have; *slow*: one worker waits 20 ms at each of its answers. Clock times mean little where workers are more than
cores. Needs the extra ``ray``.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from hippo.jobs.joint.draws import DrawnScenes
from hippo.jobs.joint.hi_ppo.learner import SiteAgents
from hippo.jobs.joint.hi_ppo.scenes import drawn_scenes
from hippo.jobs.joint.hi_ppo.settings import WorldLearning, parse_settings
from hippo.jobs.joint.hi_ppo.train import share_learner
from hippo.learn.distributed import Place
from hippo.learn.on_ray import RayLearner
from hippo.learn.session import Learner
from hippo.machine import ray_cluster

WORKERS = (1, 2, 4)
UPDATES = 2
LATE_S = 0.02
SETTINGS = parse_settings(
    {
        "worlds": {"models": ["llama-3.2-1b", "llama-3-8b"], "jobs": 60},
        "run": {"shares": 4, "value_updates": 0},
    }
)


@dataclass(frozen=True)
class Run:
    """What updates came to."""

    decisions: int  # an update
    cpu_s: float
    wall_s: float
    rolling: float  # decisions per CPU second


def late(policy: SiteAgents, settings: WorldLearning, scenes: DrawnScenes, place: Place) -> Learner:
    """The learner of a process; the last one's waits at each of its answers."""
    learner = share_learner(policy, settings, scenes, place)
    if place.rank == place.size - 1:
        for share in learner.shares:
            answer = share.batch.answer

            def slowly(action: Any, answer: Any = answer) -> Any:
                time.sleep(LATE_S)
                return answer(action)

            share.batch.answer = slowly  # type: ignore[method-assign]
    return learner


def measured(scenes: DrawnScenes, *, workers: int, cut_off: float = 0.0, slow: bool = False) -> Run:
    """Updates of so many workers, 0: of this process alone."""
    torch.manual_seed(0)
    policy = SiteAgents(SETTINGS)
    make = partial(late if slow else share_learner, policy, SETTINGS, scenes)
    with ExitStack() as stack:
        learner: Learner
        if workers:
            ray = stack.enter_context(ray_cluster(workers))
            learner = RayLearner(ray, make, workers=workers, policy=policy, cut_off=cut_off)
            stack.callback(learner.leave)
        else:
            learner = make(Place())
        learner.learn(0.0)
        began = time.monotonic()
        told = [learner.learn(0.0) for _ in range(UPDATES)]
        wall_s = (time.monotonic() - began) / UPDATES
    count, cpu_s, rolling = (
        float(np.mean(each))
        for each in zip(*((t.count, t.cpu_s, t.figures["decisions_per_cpu_s_rolling"]) for t in told), strict=True)
    )
    return Run(int(count), cpu_s, wall_s, rolling)


def table(rows: Sequence[tuple[str, Run]]) -> str:
    """As text."""
    base = rows[0][1].decisions / rows[0][1].cpu_s
    heads = ("decisions/update", "per CPU s", "of one process", "rolling", "s/update")
    lines = [f"{'who learns':26s}" + "".join(f"{head:>18s}" for head in heads)]
    for name, run in rows:
        pace = run.decisions / run.cpu_s
        cells = (
            f"{run.decisions:,d}",
            f"{pace:,.0f}",
            f"{pace / base:.2f}",
            f"{run.rolling:,.0f}",
            f"{run.wall_s:.1f}",
        )
        lines.append(f"{name:26s}" + "".join(f"{cell:>18s}" for cell in cells))
    return "\n".join(lines)


def main() -> None:
    """Prints the table."""
    torch.set_num_threads(1)
    scenes = drawn_scenes(SETTINGS)
    rows = [("one process", measured(scenes, workers=0))]
    with ray_cluster(max(WORKERS)):
        rows += [(f"{count} workers, whole", measured(scenes, workers=count)) for count in WORKERS]
        rows += [
            (f"4 workers, {name}", measured(scenes, workers=4, cut_off=share, slow=slow))
            for name, share, slow in (("cut", 0.6, False), ("one slow, whole", 0.0, True), ("one slow, cut", 0.6, True))
        ]
    print(table(rows))


if __name__ == "__main__":
    main()
