"""Methods without learning, each with its best setting on the training networks: share of perfect hindsight's work.

Every method that has settings plays as many of them, on the same worlds of the train split (the test split is never
used for this), for hippo's executor: the receding horizon, the hysteresis and the planners in motion; ``diloco`` where
local SGD is allowed. ``--write`` keeps the best of each where `hippo evaluate` and `hippo watch` read it
(``src/hippo/network/methods/settings.json``).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import hippo.network.methods.settings as kept
from hippo import first_use
from hippo.errors import InfeasibleError
from hippo.machine import shared_out
from hippo.network.evaluate.entrants import Entrant, run_of
from hippo.network.methods.hysteresis import Dwell, Hysteresis
from hippo.network.methods.in_motion import InMotion, Motion
from hippo.network.methods.receding_horizon import Horizon, RecedingHorizon
from hippo.network.plans.replan import Replanner
from hippo.network.rules.view import Method
from hippo.network.worlds.generator import DrawnTerms, make_world
from hippo.network.worlds.judge import HINDSIGHT, judge, scenario_of
from hippo.planners.baselines.crosspipe import CrossPipe
from hippo.planners.baselines.diloco import Diloco
from hippo.planners.baselines.mast import Mast
from hippo.planners.baselines.sailor import Sailor

FAMILIES = ("regimes", "stragglers", "halving", "outage")
SEED, PROCESSES = 0, 2
HORIZONS = [Horizon(*each) for each in product((16.0, 64.0), (0.0, 0.1, 0.4, 1.0))]
DWELLS = [Dwell(*each) for each in product((0.1, 0.2), (2, 4, 8, 16))]
MOTIONS = [
    Motion(epochs, margin, link_share, expected)
    for epochs, margin, link_share, expected in product((16.0, 64.0), (0.1, 1.0), (0.4, 0.2), (False, True))
    if ((epochs > 16.0) + (margin > 0.1) + (link_share < 0.4) + expected) % 2
]
"""Half of all combinations: each value of each field with each of every other field as often."""
RIVALS = {"mast": Mast, "sailor": Sailor, "crosspipe": CrossPipe, "diloco": Diloco}
PLAYS: Mapping[str, list[Any]] = {
    "receding_horizon": HORIZONS,
    "hysteresis": DWELLS,
    **dict.fromkeys(RIVALS, MOTIONS),
}
"""Of each method the settings that are tried, as many for all."""
assert len({len(settings) for settings in PLAYS.values()}) == 1


@dataclass(frozen=True)
class Task:
    """One world and who plays it."""

    family: str
    methods: tuple[str, ...]
    local_sgd: bool = False


def tasks() -> list[Task]:
    """Each world twice: without local SGD all but DiLoCo, with it DiLoCo."""
    others = tuple(name for name in PLAYS if name != "diloco")
    plain = [Task(family, others) for family in FAMILIES]
    return plain + [Task(family, ("diloco",), local_sgd=True) for family in FAMILIES]


def made(name: str, setting: Any) -> Method:
    """A method with a setting."""
    if name in RIVALS:
        return InMotion(RIVALS[name], setting)
    return RecedingHorizon(setting) if name == "receding_horizon" else Hysteresis(setting)


def shares(task: Task) -> dict[str, list[float]]:
    """Work of every setting as a share of hindsight's on one world; nothing where no plan fits."""
    world = make_world(task.family, SEED, terms=DrawnTerms("hippo", allow_local_sgd=task.local_sgd))
    try:
        setting = scenario_of(world)
    except InfeasibleError:
        return {}
    with Replanner.of(world.problem).remembering():
        work = {name: [_work(setting, name, each) for each in PLAYS[name]] for name in task.methods}
        best = judge(setting, []).runs[HINDSIGHT].work
    return {name: [each / best for each in found] for name, found in work.items()}


def _work(setting: Any, name: str, each: Any) -> float:
    return run_of(setting, Entrant(name, partial(made, name, each)), timed=False).work


def searched(found: Mapping[str, list[list[float]]]) -> dict[str, Any]:
    """The document of ``settings.json``: the best setting of each method by its mean share, (worlds, settings)."""
    methods = {}
    for name, rows in found.items():
        mean = np.mean(rows, axis=0)
        usual = PLAYS[name].index(type(PLAYS[name][0])())
        best = usual if mean[usual] == mean.max() else int(np.argmax(mean))  # of equal ones what a method does anyway
        methods[name] = {
            "setting": asdict(PLAYS[name][best]),
            "of_hindsight": round(float(mean[best]), 4),
            "usual_of_hindsight": round(float(mean[usual]), 4),
            "worst_of_hindsight": round(float(mean.min()), 4),
            "worlds": len(rows),
        }
    budget = {"settings": len(HORIZONS), "families": FAMILIES, "seed": SEED, "split": "train", "runtime": "hippo"}
    return {"made_by": "python -m benchmarks.heuristics --write", "budget": budget, "methods": methods}


def rows(found: Mapping[str, list[list[float]]]) -> Iterator[str]:
    """The table: the best setting has a star."""
    yield f"{'method':17s} {'setting':62s} {'mean':>7s} {'least':>7s}"
    for name, worlds in found.items():
        mean, least = np.mean(worlds, axis=0), np.min(worlds, axis=0)
        for at, each in enumerate(PLAYS[name]):
            told = ", ".join(f"{key} {value:g}" for key, value in asdict(each).items())
            yield f"{name:17s} {told:60s} {'*' if at == np.argmax(mean) else ' '} {mean[at]:7.4f} {least[at]:7.4f}"


def main() -> None:
    """Prints the table; with ``--write`` keeps the best settings."""
    first_use.prepare_moving()
    todo = tasks()
    played: dict[int, dict[str, list[float]]] = {}
    for place, shared in shared_out(shares, todo, PROCESSES):
        played[place] = shared
        print(f"{todo[place].family}, {', '.join(shared)}", file=sys.stderr, flush=True)
    worlds = [played[place] for place in range(len(todo))]
    found = {name: [each[name] for each in worlds if name in each] for name in PLAYS}
    print(*rows(found), sep="\n")
    if "--write" in sys.argv:
        file = Path(kept.__file__).with_name("settings.json")
        file.write_text(json.dumps(searched(found), indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
