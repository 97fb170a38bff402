"""Schedulers of elastic jobs, without learning: what the time that jobs are in the system costs under each.

Worlds are drawn: families of jobs at loads of 0.7, 1 and 1.2 on four domains of 80 A100, over links that stand still,
move, or fail with nodes. Every rule plays as many settings on the same training worlds; ``--write`` keeps the best of
each where the registry reads them (``src/hippo/jobs/joint/settings.json``). Then all play test worlds, of other seeds.
What jobs can run under was planned once (``data/offers_four_by_eighty.npz``; ``--plan`` plans it anew, minutes of CPU).
Costs are told over those of ``separate`` with its usual setting in the same world.
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
from numpy.typing import NDArray

import hippo.jobs.joint.settings as kept
from hippo.dynamics.movements import HOUR_S, draw_movement
from hippo.jobs.joint import rules
from hippo.jobs.joint.env import WorldScene, prices
from hippo.jobs.joint.figures import world_figures
from hippo.jobs.joint.moment import Moment, Scheduler
from hippo.jobs.joint.play import opened, play_jointly, step
from hippo.jobs.joint.receding_horizon import JointHorizon
from hippo.jobs.joint.record import Recorder
from hippo.jobs.placement.offer_plans import offer_table
from hippo.jobs.placement.offers import OfferTable
from hippo.jobs.settings import Failures, ReplayRules
from hippo.jobs.site import JobSite, LinkHistory
from hippo.jobs.traces.elastic import FAMILIES, ElasticDraw, elastic_workload, usual_trainings
from hippo.machine import shared_out
from hippo.problem.cluster import Cluster
from hippo.problem.links import base_bandwidth
from hippo.problem.load import load_cluster
from hippo.registry import JOB_SCHEDULERS, load

TREE = Path(__file__).parents[1]
CLUSTER, OFFERS = TREE / "examples" / "four-by-eighty.yaml", TREE / "data" / "offers_four_by_eighty.npz"
MODELS = ("llama-3.2-1b", "llama-3-8b", "qwen2.5-32b", "llama-3-70b")
LOADS, TRAIN_LOADS = (0.7, 1.0, 1.2), (1.0, 1.2)
NETWORKS: Mapping[str, tuple[str, ...]] = {"still": (), "moving": ("regimes",), "failing": ("lasting", "outage")}
HOURS, EVERY_S = 240.0, 300.0  # of a network that moves
FAILURES = Failures(mtbf_s=5 * 86400.0)  # of a node, where networks fail
JOBS, PROCESSES = 60, 2
TRAIN, TEST = 1_000, 2_000  # first seeds
Floats = NDArray[np.float64]
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


@dataclass(frozen=True)
class Drawn:
    """What a world is drawn from."""

    family: str
    load: float
    network: str
    seed: int
    jobs: int = JOBS

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.family} {self.load:g} {self.network}"


def drawn(first_seed: int, loads: tuple[float, ...]) -> list[Drawn]:
    """A world of each family and load; networks in turn."""
    cases = list(product(loads, FAMILIES))
    networks = list(NETWORKS)
    return [
        Drawn(family, much, networks[(at + at // len(FAMILIES)) % len(networks)], first_seed + at)
        for at, (much, family) in enumerate(cases)
    ]


@cache
def planned() -> OfferTable:
    """What elastic jobs can run under, as the planner said once."""
    with np.load(OFFERS, allow_pickle=False) as held:
        columns = {name: held[name] for name in held.files}
    raised = float(columns.pop("raised"))
    table = OfferTable(kinds=usual_trainings(MODELS), raised=raised, **columns)
    table.check()
    return table


def plan() -> None:
    """Plans the offers anew, minutes of CPU, and keeps them."""
    table = offer_table(load_cluster(CLUSTER), usual_trainings(MODELS))
    np.savez_compressed(OFFERS, **{name: value for name, value in vars(table).items() if name != "kinds"})


def scene(asked: Drawn) -> WorldScene:
    """A world."""
    rng, cluster, offers = np.random.default_rng(asked.seed), load_cluster(CLUSTER), planned()
    site, rates = JobSite.of(cluster), dict(zip(offers.kinds, offers.tokens_per_s.tolist(), strict=True))
    draw = ElasticDraw(asked.family, asked.jobs, asked.load, MODELS)
    workload = elastic_workload(draw, rng, site, rates).timed(rates)
    movements = NETWORKS[asked.network]
    if movements:
        site = replace(site, history=_history(cluster, movements, rng))
    failures = FAILURES if asked.network == "failing" else None
    return WorldScene(workload, site, offers, ReplayRules(failures=failures, seed=asked.seed))


def _history(cluster: Cluster, movements: tuple[str, ...], rng: np.random.Generator) -> LinkHistory:
    """Movements on top of one another; an instant stands where some link changed by more than a tenth."""
    time_s = np.arange(0.0, HOURS * HOUR_S, EVERY_S)
    factor = np.prod([draw_movement(name, cluster, time_s, rng).bandwidth for name in movements], axis=0)
    links, place = factor * base_bandwidth(cluster), {domain.name: at for at, domain in enumerate(cluster.domains)}
    instants, shown = [0], links[0]
    for at in range(1, len(links)):
        if (np.abs(links[at] - shown) > 0.1 * shown).any():
            instants.append(at)
            shown = links[at]
    table = np.where(np.eye(len(place)), np.inf, np.zeros((len(instants), len(place), len(place))))
    for number, link in enumerate(cluster.links):
        table[:, place[link.source], place[link.destination]] = links[instants, number]
    return LinkHistory(time_s[instants], table)


@dataclass(frozen=True)
class PlayFigures:
    """Of one play."""

    priced: (
        float  # completion times by price, of a mean price of 1, over the jobs; a job never begun counts twice the last
    )
    mean_s: float
    p95_s: float
    goodput: float  # see ``joint.figures``
    missed: float  # share of deadlines
    stops: float  # of a job
    cpu_s: float


def figures(world: WorldScene, scheduler: Scheduler, *, all_of_them: bool = True) -> PlayFigures:
    """A world played under a scheduler; its goodput takes as long as the play of a quick rule."""
    given, recorder = (world.workload, world.site), Recorder() if all_of_them else None
    began = time.process_time()
    ledger = play_jointly(*given, scheduler, world.settings, offers=world.offers, recorder=recorder)
    cpu_s, work = time.process_time() - began, world.workload
    last_s = float(np.nanmax(ledger.finish_s))
    finish_s = np.where(np.isfinite(ledger.finish_s), ledger.finish_s, 2.0 * last_s)
    stays_s = finish_s - work.arrival_s
    promised = np.isfinite(work.deadline_s)
    return PlayFigures(
        priced=float(np.mean(stays_s * prices(world))),
        mean_s=float(stays_s.mean()),
        p95_s=float(np.quantile(stays_s, 0.95)),
        goodput=world_figures(recorder.record(), ledger, *given, world.offers).goodput if recorder else np.nan,
        missed=float((finish_s > work.deadline_s)[promised].mean()) if promised.any() else 0.0,
        stops=float(ledger.preemptions.mean()),
        cpu_s=cpu_s,
    )


# ------------------------------------------------------------------------------------------------------------- settings
@dataclass(frozen=True)
class Task:
    """A world, and which rules play it with every setting; ``base``: the setting of the receding horizon's."""

    drawn: Drawn
    names: tuple[str, ...]
    base: dict[str, Any] = field(default_factory=dict)


def tried(task: Task) -> dict[str, list[float]]:
    """What each setting costs over ``separate``."""
    world = scene(task.drawn)
    usual = figures(world, rules.SEPARATE, all_of_them=False).priced
    found = {}
    for name in task.names:
        rule = USUAL[name]
        if name == "receding_horizon":
            rule = replace(rule, base=replace(rules.SRPT, **task.base))
        plays = (figures(world, replace(rule, **setting), all_of_them=False) for setting in PLAYS[name])
        found[name] = [each.priced / usual for each in plays]
    return found


def searched() -> dict[str, Any]:
    """The document of ``settings.json``: the best setting of each rule by its mean cost over the worlds."""
    worlds, found = drawn(TRAIN, TRAIN_LOADS), dict[str, Any]()
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
    budget = {"settings": TRIED, "first_seed": TRAIN, "families": list(FAMILIES), "loads": TRAIN_LOADS, "jobs": JOBS}
    return {"made_by": "python -m benchmarks.rivals --write", "budget": budget, "rules": found}


# --------------------------------------------------------------------------------------------------------------- worlds
def all_of(world: Drawn) -> dict[str, PlayFigures]:
    """Figures of every scheduler with its setting, and of ``separate`` as it was."""
    made = scene(world)
    everyone = {name: figures(made, load(JOB_SCHEDULERS, "policy", name)) for name in JOB_SCHEDULERS}
    return everyone | {"": figures(made, rules.SEPARATE)}


def rows(worlds: list[dict[str, PlayFigures]], loads: list[float]) -> Iterator[str]:
    """The table: means over the worlds; of the cost over ``separate``'s the half-width of its 95 % interval, too."""
    columns = ["rule", "cost", *(f"at load {each:g}" for each in LOADS), "completion, h", "p95, h", "goodput"]
    columns += ["deadlines missed", "stops a job", "CPU s a play"]
    yield "| " + " | ".join(columns) + " |"
    yield "|---" * len(columns) + "|"
    for name in JOB_SCHEDULERS:
        cost = np.array([each[name].priced / each[""].priced for each in worlds])
        half = 1.96 * cost.std(ddof=1) / np.sqrt(len(cost))
        at = [f"{cost[np.isclose(loads, much)].mean():.3f}" for much in LOADS]
        mean = {key: np.mean([getattr(each[name], key) for each in worlds]) for key in vars(worlds[0][name])}
        more = [f"{mean['mean_s'] / 3600:.2f}", f"{mean['p95_s'] / 3600:.1f}", f"{mean['goodput']:.3f}"]
        more += [f"{100 * mean['missed']:.1f} %", f"{mean['stops']:.2f}", f"{mean['cpu_s']:.2f}"]
        yield f"| `{name}` | {cost.mean():.3f} ± {half:.3f} | " + " | ".join((*at, *more)) + " |"


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
        world = scene(replace(drawn(TEST, LOADS)[5], jobs=jobs))
        work = replace(world.workload, arrival_s=1e-3 * np.arange(jobs, dtype=np.float64))
        opening = opened(work, world.site, world.settings, offers=world.offers)
        timed = Timed(load(JOB_SCHEDULERS, "policy", "receding_horizon"), 9 * jobs // 10)
        moment = Moment.of(opening.world, work, world.site, world.offers)
        while len(timed.cpu_s) < 20 and step(opening.world):
            timed.decide(moment)
        cpu_ms = 1e3 * np.array(timed.cpu_s[1:])  # the first one may be compiled
        yield f"{jobs} jobs: {np.median(cpu_ms):.0f} ms of CPU, at most {cpu_ms.max():.0f}"


def main() -> None:
    """Searches settings with ``--write``; prints the table of the test worlds, or times with ``--decisions``."""
    if "--decisions" in sys.argv:
        print(*decisions(), sep="\n")
        return
    if "--plan" in sys.argv:
        plan()
    if "--write" in sys.argv:
        file = Path(kept.__file__).with_name("settings.json")
        file.write_text(json.dumps(searched(), indent=2) + "\n", encoding="utf-8")
    worlds = drawn(TEST, LOADS)
    played = dict(shared_out(all_of, worlds, PROCESSES))
    print(*rows([played[place] for place in range(len(worlds))], [each.load for each in worlds]), sep="\n")


if __name__ == "__main__":
    main()
