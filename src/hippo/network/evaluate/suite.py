"""The standard suite: worlds of every family that no policy has learned from, played by everybody.

A *task* is one world (or one problem of the front) and gives *rows*, plain values that any process can send back; what
the rows say together is ``hippo.network.evaluate.evidence``. Parts:

* ``main``: every family, all methods; with ``held`` the plans of planners kept fixed, and the ablations;
* ``large``: 4, 8 and 16 domains;
* ``movement``: one world at rest and with its movement, of some weaker and stronger, too; ``load``: load of others
  slows domains, or takes them, links do not move;
* ``front``: preferences against the exact Pareto front of a still network.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from time import process_time
from typing import Any

import numpy as np

from hippo.dynamics.processes import SWING, fluctuating
from hippo.errors import InfeasibleError
from hippo.machine import shared_out
from hippo.network.evaluate.coverage import front_row
from hippo.network.evaluate.entrants import Entrant, compete, held, run_of
from hippo.network.evaluate.figures import figures, kpis
from hippo.network.rules.move import TOKENS
from hippo.network.worlds.asking import Weights
from hippo.network.worlds.generator import FAMILIES, DrawnTerms, make_world, scaled
from hippo.network.worlds.judge import STATIC, Comparison, Scenario, scenario_of
from hippo.network.worlds.play import DEFAULT_FORECAST, MethodRun
from hippo.network.worlds.world import World
from hippo.planners.base import Planner, Progress, Stop
from hippo.problem.links import base_bandwidth, base_latency

Row = dict[str, Any]
SPLIT = "test"
MAIN = tuple(name for name in FAMILIES if name != "large")
LARGE = (4, 8, 16)
LARGE_FAMILIES = ("transient", "lasting", "regimes", "outage")  # what ``large`` is drawn from, with fewer domains
MOVEMENTS = (0.0, 0.1, 0.2, 0.3, 0.5)  # swing of the links
USUAL_SWING = 0.3  # of the family ``ou3``
PLANNING = Stop(time_limit_s=10.0)  # for a planner whose plan is kept: ten times what it takes


@dataclass(frozen=True)
class Suite:
    """What is played. Counts are worlds: of each family, of each size, of each movement."""

    entrants: tuple[Entrant, ...]
    ablations: tuple[Entrant, ...] = ()
    planners: tuple[Planner, ...] = ()
    families: tuple[str, ...] = MAIN
    seeds: int = 20
    timed: int = 1
    held: int = 3
    ablated: int = 3
    large: int = 5
    movement: int = 16  # worlds at rest and with the usual swing,
    swings: int = 4  # and these with every swing
    load: int = 6
    fronts: int = 5
    first_seed: int = 0
    forecast: str = DEFAULT_FORECAST
    terms: DrawnTerms = DrawnTerms("hippo")  # of every world's problem
    preference: Weights = (1.0, 0.0, 0.0)  # of the comparison with plans that are kept
    ours: str = "hi_ppo"


@dataclass(frozen=True)
class Task:
    """One world to play."""

    part: str
    family: str
    seed: int
    extras: tuple[str, ...] = field(default=())  # of "held", "ablated", "timed", "swings"
    domains: int = 0


def tasks(suite: Suite) -> list[Task]:
    """All tasks, those that take longest first."""
    found = [Task("front", "ou3", seed) for seed in _priced(suite)]
    found += [task for count in reversed(LARGE) for task in _large(count, suite)]
    for at in range(suite.movement):
        found.append(Task("movement", "ou3", suite.first_seed + at, ("swings",) * (at < suite.swings)))
    for at in range(suite.seeds):
        extras = ("held",) * (at < suite.held) + ("ablated",) * (at < suite.ablated) + ("timed",) * (at < suite.timed)
        found += [Task("main", family, suite.first_seed + at, extras) for family in suite.families]
    return found + [Task("load", "ou3", suite.first_seed + at) for at in range(suite.load)]


def _priced(suite: Suite) -> Iterator[int]:
    """The first seeds of worlds whose links have a price: without one the front has no third side."""
    left, seed = suite.fronts, suite.first_seed
    while left > 0:
        if any(link.price_usd_per_gb > 0 for link in make_world("ou3", seed, split=SPLIT).problem.cluster.links):
            yield seed
            left -= 1
        seed += 1


def _large(domains: int, suite: Suite) -> Iterator[Task]:
    """Worlds with exactly so many domains: the first seeds that draw them."""
    families = ("large",) if domains >= FAMILIES["large"].domains[0] else LARGE_FAMILIES
    left, seed = suite.large, suite.first_seed
    while left > 0 and seed < suite.first_seed + 100 * suite.large:
        for family in families:
            if left > 0 and len(make_world(family, seed, split=SPLIT).problem.cluster.domains) == domains:
                yield Task("large", family, seed, domains=domains)
                left -= 1
        seed += 1


def play_suite(suite: Suite, *, processes: int = 1, ray: bool = False, watch: Progress | None = None) -> list[Row]:
    """The rows of all tasks, in the order of the tasks whatever the number of processes; ``ray``: or of workers of a
    Ray cluster."""
    todo = tasks(suite)
    rows: dict[int, list[Row]] = {}
    for place, found in shared_out(partial(rows_of, suite=suite), todo, processes, ray=ray):
        rows[place] = found
        if watch is not None:
            watch(f"{todo[place].part}, {todo[place].family} {todo[place].seed}", len(rows) / len(todo))
    return [row for place in range(len(todo)) for row in rows[place]]


def rows_of(task: Task, suite: Suite) -> list[Row]:
    """Plays one task; a world in which nothing can begin is a row of the part ``skipped``."""
    began_s = process_time()
    about: Row = {"part": task.part, "family": task.family, "seed": task.seed}
    try:
        found = _played(task, suite)
    except InfeasibleError as error:
        about, found = about | {"part": "skipped", "of": task.part, "why": str(error)}, [{}]
    about["cpu_s"] = (process_time() - began_s) / len(found)
    return [about | row for row in found]


def _played(task: Task, suite: Suite) -> list[Row]:
    if task.part == "front":
        return [front_row(_drawn(task, suite), _ours(suite))]
    if task.part == "movement":
        return _movement(task, suite)
    return _load(task, suite) if task.part == "load" else [_world(task, suite)]


def _drawn(task: Task, suite: Suite) -> World:
    return make_world(task.family, task.seed, split=SPLIT, terms=suite.terms)


def _ours(suite: Suite) -> Entrant:
    return next(each for each in suite.entrants if each.name == suite.ours)


def _world(task: Task, suite: Suite) -> Row:
    """Everybody on one world; plans that are kept stand beside them, under the preference of that comparison."""
    setting = scenario_of(_drawn(task, suite), forecast=suite.forecast)
    entrants = list(suite.entrants)
    if "ablated" in task.extras:
        entrants += suite.ablations
    judged = compete(setting, entrants, timed="timed" in task.extras)
    row = _row(judged) | {"timed": "timed" in task.extras}
    if "held" in task.extras:
        row["held"] = _against_held(setting, judged, suite)
    return row


def _row(judged: Comparison) -> Row:
    base = judged.runs[STATIC]
    return {
        "world": judged.world.name,
        "domains": len(judged.world.problem.cluster.domains),
        "model": judged.world.problem.model.name,
        "gain": None if judged.gain is None or not np.isfinite(judged.gain) else judged.gain,
        "worth_capturing": judged.captured(STATIC) is not None,
        "methods": {name: _figures(judged, name, base) for name in judged.runs},
    }


def _figures(judged: Comparison, name: str, base: MethodRun) -> Row:
    return figures(judged, name, base) | {
        "of_static": judged.runs[name].work / base.work if base.work > 0 else None,
        "interrupted": judged.runs[name].downtime_share,
        "t_coord_s": [round(float(each), 4) for each in judged.runs[name].coordination_s],
        "tokens": float(judged.runs[name].gave[:, TOKENS].sum()),
        "thinking_ms": [round(1e3 * float(each), 4) for each in judged.runs[name].replanning_s],
        "times_ms": [round(1e3 * float(each), 4) for each in judged.runs[name].decision_s[1:]],
    }


def _against_held(setting: Scenario, judged: Comparison, suite: Suite) -> Row:
    """Requirements against every planner's plan kept, from ours at one preference."""
    ours = replace(setting, terms=replace(setting.terms, weights=suite.preference))
    same = suite.preference == setting.terms.weights
    run = judged.runs[suite.ours] if same else run_of(ours, _ours(suite), timed=False)
    kept = [run_of(setting, each, timed=False) for each in held(setting.world.problem, suite.planners, PLANNING)]
    return {each.method: kpis(run, each) for each in kept} | {"static": kpis(run, judged.runs[STATIC])}


def _movement(task: Task, suite: Suite) -> list[Row]:
    """The same world with its links at rest and moving; with the extra "swings" by less and by more, too."""
    swings = MOVEMENTS if "swings" in task.extras else (0.0, USUAL_SWING)
    world, few = _drawn(task, suite), _few(suite)
    rows, first = [], None
    for swing in swings:
        moved = scaled(world, swing / USUAL_SWING)
        setting = scenario_of(moved, forecast=suite.forecast, cache=None if first is None else first.cache)
        first = first or setting
        setting = replace(setting, terms=first.terms)
        judged = compete(setting, few, timed=False)
        work = {name: run.work for name, run in judged.runs.items()}
        rows.append({"swing": swing, "world": world.name, "work": work})
    return rows


def _load(task: Task, suite: Suite) -> list[Row]:
    """The same world without load of others, with load that slows and with load that also evicts; links stand still."""
    world, rows, first = _drawn(task, suite), [], None
    for load in LOADS:
        moved = loaded(world, load)
        setting = scenario_of(moved, forecast=suite.forecast, cache=None if first is None else first.cache)
        first = first or setting
        judged = compete(replace(setting, terms=first.terms), _few(suite), timed=False)
        runs = judged.runs.items()
        told = {"work": {name: run.work for name, run in runs}, "interrupted": {n: r.downtime_share for n, r in runs}}
        rows.append({"load": load, "world": world.name} | told)
    return rows


def _few(suite: Suite) -> list[Entrant]:
    return [each for each in suite.entrants if each.name in (suite.ours, STATIC, "receding_horizon")]


LOADS = ("none", "slows", "evicts")
EVICTED = 50.0
"""Times as long as alone that operations take in a domain whose GPUs others took: next to nothing is left of it."""
EVICTED_SHARE = 0.05  # of the run, in one stretch, in each of the domains in turn of half of them


def loaded(world: World, load: str = "slows") -> World:
    """The world with links at rest and load of others: none, compute that swings by +-20 %, or that and domains that
    are lost to others one after the other."""
    cluster, epochs = world.problem.cluster, world.epochs
    rng = np.random.default_rng((world.seed, epochs))
    time_s = np.arange(epochs, dtype=np.float64) * world.epoch_s
    compute = fluctuating(time_s, len(cluster.domains), rng, swing=SWING if load != "none" else 0.0)
    lost = rng.permutation(len(cluster.domains))[: -(-len(cluster.domains) // 2)] if load == "evicts" else ()
    for turn, domain in enumerate(lost):
        begin = int((turn + rng.uniform(0.2, 0.8)) * epochs / len(lost))
        compute[begin : begin + max(1, round(EVICTED_SHARE * epochs)), domain] = EVICTED
    return replace(
        world,
        name=f"{world.name} under load" if load != "none" else f"{world.name} at rest",
        bandwidth_bytes_per_s=np.tile(base_bandwidth(cluster), (epochs, 1)),
        latency_s=np.tile(base_latency(cluster), (epochs, 1)),
        compute=compute,
        told=np.ones_like(world.told),
    )
