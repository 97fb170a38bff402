"""Settings of the schedulers of elastic jobs, searched on training worlds, as many for each.

Worlds are drawn (``jobs.joint.evaluate.worlds``): families of jobs at loads of 1 and 1.2 on four domains of 80 A100,
over links that stand still, move, or fail with nodes. ``--write`` keeps the best setting of each where the registry
reads them (``src/hippo/jobs/joint/settings.json``); test worlds, of other seeds, models and sites, are for ``hippo
evaluate --world``. What jobs can run under was planned once (``data/offers_four_by_eighty.npz``; ``--plan`` plans it
anew, minutes of CPU). Costs are told over those of ``separate`` with its usual setting in the same world.
``--decisions``: how long decisions take.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import hippo.jobs.joint.settings as kept
from hippo.jobs.joint import rules
from hippo.jobs.joint.evaluate.suite import priced_s
from hippo.jobs.joint.evaluate.worlds import WorldDraw, WorldGrid, WorldGround
from hippo.jobs.joint.moment import Moment, Scheduler
from hippo.jobs.joint.play import opened, step
from hippo.jobs.joint.receding_horizon import JointHorizon
from hippo.jobs.placement.offer_plans import offer_table
from hippo.jobs.placement.offers import OfferTable
from hippo.jobs.traces.elastic import usual_trainings
from hippo.machine import shared_out
from hippo.problem.load import load_cluster
from hippo.registry import JOB_SCHEDULERS, load

TREE = Path(__file__).parents[1]
CLUSTER, OFFERS = TREE / "examples" / "four-by-eighty.yaml", TREE / "data" / "offers_four_by_eighty.npz"
MODELS = ("llama-3.2-1b", "llama-3-8b", "qwen2.5-32b", "llama-3-70b")
PROCESSES = 2
TRAIN = WorldGrid(loads=(1.0, 1.2), first_seed=1_000)
SLACKS = [{"slack": each} for each in (0.0, 0.02, 0.05, 0.1, 0.2, 0.4)]


def _grid(**values: tuple[float, ...]) -> list[dict[str, Any]]:
    return [dict(zip(values, each, strict=True)) for each in product(*values.values())]


PLAYS: Mapping[str, list[dict[str, Any]]] = {
    "separate": _grid(ahead=(0.0, 0.3), slack=(0.02, 0.1, 0.3)),
    "mast": SLACKS,
    "sailor": _grid(margin=(0.05, 0.1, 0.3), slack=(0.02, 0.1)),
    "crosspipe": _grid(margin=(0.02, 0.05, 0.1, 0.2, 0.3, 0.5)),
    "goodput": _grid(round_s=(120.0, 300.0, 600.0, 900.0, 1200.0, 1800.0)),
    "crux": _grid(levels=(2, 4, 8), times=(2.0, 8.0)),
    "hyperion": SLACKS,
    "sla_morl": _grid(urgency=(1.0, 4.0, 16.0), ahead=(0.0, 1.0)),
    "shortest": _grid(ahead=(0.0, 0.3, 1.0), grows=(False, True)),
    "srpt": _grid(crowd=(0.0, 1.0), ahead=(0.0, 0.3, 1.0)),
    "receding_horizon": _grid(changes=(6, 24), horizon_s=(6 * 3600.0, 24 * 3600.0, 1e9)),
}
"""Of each rule the settings that are tried, as many for all."""
TRIED = 6
assert {len(settings) for settings in PLAYS.values()} == {TRIED}
USUAL: Mapping[str, Any] = {
    name: JointHorizon() if name == "receding_horizon" else getattr(rules, name.upper()) for name in PLAYS
}


@cache
def ground() -> WorldGround:
    """Where the worlds lie; what elastic jobs can run under there, as the planner said once."""
    with np.load(OFFERS, allow_pickle=False) as held:
        columns = {name: held[name] for name in held.files}
    raised = float(columns.pop("raised"))
    table = OfferTable(kinds=usual_trainings(MODELS), raised=raised, **columns)
    table.check()
    return WorldGround(str(CLUSTER), table)


def plan() -> None:
    """Plans the offers anew, minutes of CPU, and keeps them."""
    table = offer_table(load_cluster(CLUSTER), usual_trainings(MODELS))
    np.savez_compressed(OFFERS, **{name: value for name, value in vars(table).items() if name != "kinds"})


# ------------------------------------------------------------------------------------------------------------- settings
@dataclass(frozen=True)
class Task:
    """A world, and which rules play it with every setting; ``base``: the setting of the receding horizon's."""

    drawn: WorldDraw
    names: tuple[str, ...]
    base: dict[str, Any] = field(default_factory=dict)


def tried(task: Task) -> dict[str, list[float]]:
    """What each setting costs over ``separate``."""
    world = ground().scene(task.drawn)
    usual = priced_s(world, rules.SEPARATE)
    found = {}
    for name in task.names:
        rule = USUAL[name]
        if name == "receding_horizon":
            rule = replace(rule, base=replace(rules.SRPT, **task.base))
        found[name] = [priced_s(world, replace(rule, **setting)) / usual for setting in PLAYS[name]]
    return found


def searched() -> dict[str, Any]:
    """The document of ``settings.json``: the best setting of each rule by its mean cost over the worlds."""
    worlds, found = TRAIN.draws(), dict[str, Any]()
    rest = tuple(name for name in PLAYS if name != "receding_horizon")
    for names in (rest, ("receding_horizon",)):
        base = found["srpt"]["setting"] if "srpt" in found else {}
        costs: dict[str, list[list[float]]] = {name: [] for name in names}
        for place, each in shared_out(tried, [Task(world, names, base) for world in worlds], PROCESSES):
            print(f"{worlds[place].name}, {len(names)} rules", file=sys.stderr, flush=True)
            for name, row in each.items():
                costs[name].append(row)
        for name, rows in costs.items():
            mean = np.mean(rows, axis=0)
            best = int(np.argmin(mean))
            told = {"setting": PLAYS[name][best], "over_separate": round(float(mean[best]), 4)}
            found[name] = told | {"worst": round(float(mean.max()), 4), "worlds": len(rows)}
    told = {"families": list(TRAIN.families), "loads": list(TRAIN.loads), "jobs": worlds[0].jobs}
    budget = {"settings": TRIED, "first_seed": TRAIN.first_seed, **told}
    return {"made_by": "python -m benchmarks.rivals --write", "budget": budget, "rules": found}


# ------------------------------------------------------------------------------------------------------------ decisions
@dataclass(eq=False)
class Timed:
    """A scheduler whose decisions are timed where so many jobs wait and run."""

    inner: Scheduler
    jobs: int
    cpu_s: list[float] = field(default_factory=list)

    def decide(self, moment: Moment) -> None:
        """As the inner one, or as ``srpt`` while there are too few jobs."""
        if len(moment.waiting) + len(moment.running) < self.jobs or not len(moment.waiting):
            rules.SRPT.decide(moment)
            return
        began = time.process_time()
        self.inner.decide(moment)
        self.cpu_s.append(time.process_time() - began)


def decisions() -> Iterator[str]:
    """How long the receding horizon takes for so many jobs that come at once."""
    for jobs in (30, 60, 200, 500):
        world = ground().scene(replace(WorldGrid().draws()[5], jobs=jobs))
        work = replace(world.workload, arrival_s=1e-3 * np.arange(jobs, dtype=np.float64))
        opening = opened(work, world.site, world.settings, offers=world.offers)
        timed = Timed(load(JOB_SCHEDULERS, "policy", "receding_horizon"), 9 * jobs // 10)
        moment = Moment.of(opening.world, work, world.site, world.offers)
        while len(timed.cpu_s) < 20 and step(opening.world):
            timed.decide(moment)
        cpu_ms = 1e3 * np.array(timed.cpu_s[1:])  # the first one may be compiled
        yield f"{jobs} jobs: {np.median(cpu_ms):.0f} ms of CPU, at most {cpu_ms.max():.0f}"


def main() -> None:
    """Searches settings, and keeps them with ``--write``; or times with ``--decisions``."""
    if "--decisions" in sys.argv:
        print(*decisions(), sep="\n")
        return
    if "--plan" in sys.argv:
        plan()
    text = json.dumps(searched(), indent=2) + "\n"
    if "--write" in sys.argv:
        Path(kept.__file__).with_name("settings.json").write_text(text, encoding="utf-8")
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
