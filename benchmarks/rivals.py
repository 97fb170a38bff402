"""Settings of the schedulers of elastic jobs, searched on training worlds, as many for each.

Worlds are drawn as those that the agents learn in (``jobs.joint.draws``, ``configs/algo/world.yaml``): each family of
jobs at each load on four domains of at most 80 A100, over links that may move, with nodes that may fail and other
tenants; once where running jobs may be stopped, once where they are kept. A setting is drawn by chance from the levers
of its rule. ``--write`` keeps the best of each where the registry reads them (``src/hippo/jobs/joint/settings.json``);
names of kinds and rules after it: of these alone. ``--lift`` searches nothing: whose setting lets a job span fewer
domains than it could plays once more without that cap, and goes on without it where that costs less. Test worlds, of
other seeds, models and sites, are for ``hippo evaluate --world``. What jobs can run under was planned once
(``data/offers_four_by_eighty.npz``; ``--plan`` plans it anew, minutes of CPU). Costs are told over those of
``separate`` with its usual setting in the same world.
``--decisions``: how long decisions take.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import hippo.jobs.joint.settings as kept
from hippo.jobs.joint import rules
from hippo.jobs.joint.draws import DrawnScenes, WorldTerms
from hippo.jobs.joint.env import WorldScene
from hippo.jobs.joint.evaluate.suite import priced_s
from hippo.jobs.joint.evaluate.worlds import WorldGrid, WorldGround
from hippo.jobs.joint.hi_ppo.settings import DrawnWorlds
from hippo.jobs.joint.moment import Moment, Scheduler
from hippo.jobs.joint.play import opened, step
from hippo.jobs.joint.receding_horizon import JointHorizon
from hippo.jobs.placement.offer_plans import offer_table
from hippo.jobs.placement.offers import MOST_PARTS, OfferTable
from hippo.jobs.site import JobSite
from hippo.jobs.traces.elastic import usual_trainings
from hippo.machine import shared_out
from hippo.problem.load import load_cluster
from hippo.registry import JOB_SCHEDULERS, load

TREE = Path(__file__).parents[1]
CLUSTER, OFFERS = TREE / "examples" / "four-by-eighty.yaml", TREE / "data" / "offers_four_by_eighty.npz"
MODELS = ("llama-3.2-1b", "llama-3-8b", "qwen2.5-32b", "llama-3-70b")
PROCESSES = 2
SEED = 4_242
"""Of the worlds: another than that of those to learn from, or to look at while learning."""
KINDS: Mapping[str, float] = {"kept": 0.0, "stopped": 1.0}
"""Of sites, and the share of the worlds in which running jobs may be stopped."""

Levers = Mapping[str, tuple[Any, ...]]
PLACE: Levers = {
    "slack": (0.0, 0.02, 0.05, 0.1, 0.2, 0.4),
    "crowd": (0.0, 0.3, 1.0, 3.0),
    "busy": (0.0, 0.1, 0.3, 1.0),
}
PARTS: Levers = {"most_parts": (1, 2, 3, 4)}
MARGIN: Levers = {"margin": (0.02, 0.05, 0.1, 0.2, 0.3, 0.5)}
FORCE: Levers = {"ahead": (0.0, 0.1, 0.3, 1.0), "grows": (False, True), "margin": (0.05, 0.1, 0.2, 0.3, 1.0)}
WAIT: Levers = {"patience": (0.0, 0.05, 0.1, 0.2, 0.4, 1.0), "reserves": (0, 1, 2, 4)}
THRIFT: Levers = {"thrift": (0.0, 0.3, 1.0, 3.0)}
URGENCY: Levers = {"urgency": (0.0, 1.0, 4.0, 16.0)}
REGIONS: Levers = {"regions": (False, True)}
LEVERS: Mapping[str, Mapping[str, Levers]] = {
    "separate": {"stopped": {**PLACE, **PARTS, **FORCE}, "kept": {**PLACE, **PARTS}},
    "mast": {"stopped": PLACE, "kept": PLACE},
    "sailor": {"stopped": {**PLACE, **PARTS, **MARGIN}, "kept": {**PLACE, **PARTS}},
    "crosspipe": {"stopped": {**PLACE, **PARTS, **MARGIN}, "kept": {**PLACE, **PARTS}},
    "goodput": dict.fromkeys(KINDS, {"round_s": (120.0, 300.0, 900.0), "power": (-0.5, 0.5, 1.0)}),
    "crux": dict.fromkeys(KINDS, {"levels": (2, 4, 8), "times": (2.0, 8.0)}),
    "hyperion": {
        "stopped": {**PLACE, **PARTS, **THRIFT, **WAIT},
        "kept": {**PLACE, **PARTS, **THRIFT, **WAIT, **REGIONS},
    },
    "sla_morl": {
        "stopped": {**PLACE, **PARTS, **THRIFT, **URGENCY, **FORCE},
        "kept": {**PLACE, **PARTS, **THRIFT, **URGENCY, **WAIT, **REGIONS},
    },
    **dict.fromkeys(
        ("shortest", "srpt"),
        {
            "stopped": {**PLACE, **PARTS, **THRIFT, **FORCE},
            "kept": {**PLACE, **PARTS, **THRIFT, **WAIT, **REGIONS},
        },
    ),
    "receding_horizon": dict.fromkeys(KINDS, {"changes": (6, 24), "horizon_s": (6 * 3600.0, 1e9)}),
}
"""Of each rule, where running jobs may be stopped and where they are kept, what is tried of each lever. Who knows
nothing of durations waits for nobody to end; ``mast`` spans no regions, and who goes first stays as the rule says."""
SETTINGS = 40
"""That are drawn, the usual one first."""
ON_SRPT = ("crux", "receding_horizon")
"""They stand on the best ``srpt``, so what is searched of them is only what they add, later."""
DEAR = ("goodput", "receding_horizon")
"""A play of these takes seconds: two settings each, on four worlds."""
DEAR_SETTINGS, DEAR_WORLDS = 2, 4
USUAL: Mapping[str, Any] = {
    name: JointHorizon() if name == "receding_horizon" else getattr(rules, name.upper()) for name in LEVERS
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
class TrainingWorld:
    """Of a kind of site, by its numbers."""

    kind: str
    family: str
    load: float

    @property
    def scene(self) -> WorldScene:
        """As the agents' configuration draws it."""
        drawn = DrawnWorlds()
        terms = WorldTerms(
            JobSite.of(load_cluster(CLUSTER)),
            (self.family,),
            drawn.jobs,
            (self.load,),
            moving=drawn.moving,
            failing=drawn.failing,
            tenants=drawn.tenants,
            stops=KINDS[self.kind],
        )
        number = len(drawn.families) * drawn.loads.index(self.load) + drawn.families.index(self.family)
        return DrawnScenes(terms, ground().offers, SEED).scene(number)


def worlds(kind: str) -> list[TrainingWorld]:
    """Every family at every load; those that the dear ones play come first."""
    drawn = DrawnWorlds()
    loads = (drawn.loads[1], drawn.loads[2], drawn.loads[0])
    return [TrainingWorld(kind, family, load) for load in loads for family in drawn.families]


@dataclass(frozen=True)
class Task:
    """A world, and who plays it."""

    world: TrainingWorld
    rules: Mapping[str, list[Scheduler]]


def costs(task: Task) -> dict[str, list[float]]:
    """What each setting of the rules costs over ``separate``."""
    scene = task.world.scene
    usual = priced_s(scene, rules.SEPARATE)
    return {name: [priced_s(scene, rule) / usual for rule in some] for name, some in task.rules.items()}


def drawn_settings(name: str, kind: str, base: Any) -> list[dict[str, Any]]:
    """What is tried of a rule on a kind of site: the usual setting first."""
    levers, tried = LEVERS[name][kind], list[dict[str, Any]]()
    rng = np.random.default_rng([SEED, list(LEVERS).index(name), list(KINDS).index(kind)])
    for _ in range(1000):
        if len(tried) == (DEAR_SETTINGS if name in DEAR else SETTINGS):
            break
        setting = {lever: values[int(rng.integers(len(values)))] for lever, values in levers.items()}
        if not tried:
            setting = {lever: getattr(base, lever) for lever in levers}
        if setting not in tried:
            tried.append(setting)
    return tried


def best_settings(
    kind: str, bases: Mapping[str, Any], settings: Mapping[str, Sequence[dict[str, Any]]]
) -> dict[str, dict[str, Any]]:
    """Of each rule the best of its settings on a kind of site by its mean cost over the worlds, and what it costs."""
    played = {name: worlds(kind)[: DEAR_WORLDS if name in DEAR else None] for name in bases}
    tasks, rows = [], {name: list[list[float]]() for name in bases}
    for world in worlds(kind):
        who = [name for name in bases if world in played[name]]
        if who:
            tasks.append(Task(world, {name: [replace(bases[name], **some) for some in settings[name]] for name in who}))
    for place, found in shared_out(costs, tasks, PROCESSES):
        print(tasks[place].world, file=sys.stderr, flush=True)
        for name, row in found.items():
            rows[name].append(row)
    told = {}
    for name, each in rows.items():
        mean = np.array(each).mean(axis=0)
        over = {"over_separate": mean.min(), "usual": mean[0], "worst": mean.max()}
        told[name] = {
            "setting": settings[name][int(np.argmin(mean))],
            **{key: round(float(value), 4) for key, value in over.items()},
            **{"settings": len(mean), "worlds": len(each)},
        }
    return told


def best_drawn(kind: str, bases: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The best of the settings that are drawn for each rule."""
    return best_settings(kind, bases, {name: drawn_settings(name, kind, base) for name, base in bases.items()})


def lifted(names: Sequence[str], kinds: Sequence[str]) -> dict[str, Any]:
    """The document of ``settings.json``, without the caps on domains that a job may span that cost more than they
    save, the rest of each setting as it is."""
    found: dict[str, Any] = json.loads(json.dumps(kept.searched()))
    for kind in kinds:
        rows = {name: found["rules"][name][kind] for name in names if kind in found["rules"].get(name, {})}
        capped = {
            name: row["setting"]
            for name, row in rows.items()
            if row["setting"].get("most_parts", MOST_PARTS) < MOST_PARTS
        }
        tried = {name: [setting, {**setting, "most_parts": MOST_PARTS}] for name, setting in capped.items()}
        for name, row in best_settings(kind, {name: USUAL[name] for name in tried}, tried).items():
            without = row["worst"] if row["setting"] == capped[name] else row["over_separate"]
            print(f"{kind} {name}: {row['usual']} with its cap, {without} without", file=sys.stderr)
            rows[name] |= {key: row[key] for key in ("setting", "over_separate")}
    return found


def searched(names: Sequence[str], kinds: Sequence[str]) -> dict[str, Any]:
    """The document of ``settings.json``: the best setting of each rule by its mean cost over the worlds of a kind;
    rules that are not named stay as they are."""
    found: dict[str, Any] = json.loads(json.dumps(kept.searched()["rules"]))
    for kind in kinds:
        free = {name: USUAL[name] for name in names if name not in ON_SRPT}
        best = best_drawn(kind, free)
        srpt = (best | {name: row[kind] for name, row in found.items() if name not in best})["srpt"]["setting"]
        on_srpt = {
            "crux": replace(rules.CRUX, **srpt),
            "receding_horizon": JointHorizon(base=replace(rules.SRPT, **srpt)),
        }
        best |= best_drawn(kind, {name: rule for name, rule in on_srpt.items() if name in names})
        for name, row in best.items():
            found[name] = {**found.get(name, {}), kind: row}
    drawn = DrawnWorlds()
    told = {"families": list(drawn.families), "loads": list(drawn.loads), "jobs": drawn.jobs, "seed": SEED}
    made_by = "python -m benchmarks.rivals --write"
    return {"made_by": made_by, "budget": told, "rules": {name: found[name] for name in LEVERS}}


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


def main(arguments: Sequence[str] | None = None) -> None:
    """Searches settings, and keeps them with ``--write``; or times with ``--decisions``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("only", nargs="*", metavar="KIND|RULE", help=f"of {', '.join([*KINDS, *LEVERS])}; all")
    parser.add_argument("--write", action="store_true", help="keep the best of each")
    parser.add_argument("--lift", action="store_true", help="no search: caps on domains that cost more go")
    parser.add_argument("--plan", action="store_true", help="plan offers anew, first")
    parser.add_argument("--decisions", action="store_true", help="how long decisions take, and no more")
    given = parser.parse_args(arguments)
    for each in given.only:
        if each not in {*KINDS, *LEVERS}:
            parser.error(f"{each} is no kind and no rule")
    if given.decisions:
        print(*decisions(), sep="\n")
        return
    if given.plan:
        plan()
    names, kinds = ([each for each in known if each in given.only] or list(known) for known in (LEVERS, KINDS))
    text = json.dumps((lifted if given.lift else searched)(names, kinds), indent=2) + "\n"
    if given.write:
        Path(kept.__file__).with_name("settings.json").write_text(text, encoding="utf-8")
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
