"""Limits that bind: whether each is held, at which price, and what that costs.

    python -m benchmarks.limits --out out/limits [--cases egress,stops] [--seeds 0,1,2] [--updates 20] [--unseen 800]
    python -m benchmarks.limits --out out/limits --show
    python -m benchmarks.limits --survey 20
    python -m benchmarks.limits --out out/limits --cases egress --tried 24

Worlds are those of ``configs/algo/world.yaml``; each seed has its own training worlds, networks and unseen worlds. Of
each case and seed:

1. *the rule alone* (``srpt``, which advises the agents): dual ascent on training worlds, then the multipliers that were
   found on unseen ones, beside the rule without charges and with ``DEAR`` times as large ones (the least that can be
   had by these prices);
2. *agents*: they begin with those multipliers, learn for so many updates while the ascent goes on (a step each time
   ``LEARNED`` worlds have ended, by as many that are played as they would serve), and are served from their policy
   file on the first of the unseen worlds, beside the rule there, which pays what they pay.

``--survey``: what is used of each, and what it costs, on so many training worlds as one price after another is paid.
``--tried``: what agents that never learned use in so many worlds at the multipliers that the rule alone came to, while
they try answers, by the log odds at which they follow the rule.
What was done has its line in ``runs.jsonl`` and is not done again. Used / limit is a ratio of sums over worlds, with
95 % intervals by its linear approximation, all seeds' worlds together and of each seed; cost is priced time over that
without charges, mean of the worlds.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from hippo.intervals import interval
from hippo.jobs.joint.advice import NO_CHARGES, Charges
from hippo.jobs.joint.draws import DrawnScenes
from hippo.jobs.joint.env import COSTS, PAID, WorldScene, account, add_up, pass_time, prices, used
from hippo.jobs.joint.hi_ppo.limits import ascent_by_rule
from hippo.jobs.joint.hi_ppo.policy import Agents, HiPpoScheduler
from hippo.jobs.joint.hi_ppo.scenes import drawn_scenes, named_cluster
from hippo.jobs.joint.hi_ppo.settings import Limits, WorldLearning, parse_settings
from hippo.jobs.joint.hi_ppo.worlds import WorldBatch, by_rule
from hippo.jobs.joint.moment import Moment, Scheduler

from .rivals import CLUSTER, TREE, ground

Floats = NDArray[np.float64]

CASES: Mapping[str, Mapping[str, float]] = MappingProxyType(
    {
        "egress": {"egress_usd_per_hour": 32.0},
        "unfairness": {"unfairness": 0.19},
        "stops": {"stops_per_job": 0.6},
        "floor": {"floor_gbit_per_s": 5.0, "below_gb_per_hour": 180.0},
        "egress and unfairness": {"egress_usd_per_hour": 32.0, "unfairness": 0.19},
    }
)
"""About half way between what is used without charges and the least, see the table. ``stops``: where jobs may be
stopped, the others where they are kept."""
STEPS, WORLDS = 16, 48
LEARNED = 16
"""Worlds that end from one step of the ascent to the next while agents learn."""
DEAR = 100.0
TRIED, FOLLOWS = 2000, (4.0, 6.0, 8.0)
"""Number of the first world of ``--tried``, and log odds of what the rule says over anything else."""
FEWER = 4
"""Of so many unseen worlds one is played without charges and with dear ones."""
PRICES: Mapping[str, Sequence[float]] = MappingProxyType(
    {
        "egress": (30.0, 300.0, 3000.0, 30000.0),
        "unfairness": (1.0, 10.0, 30.0, 100.0, 1000.0),
        "stops": (300.0, 1000.0, 3000.0, 1e4, 3e4, 1e5, 1e7),
        "floor": (1.0, 10.0, 100.0, 1000.0),
    }
)
"""Of a survey, in ``UNITS``."""
UNITS = ("s of a job a USD", "s a second of the whole site", "s of a job a stop", "s of a job a GB below the floor")


def configured(case: str, updates: int = 0, seed: int = 0) -> WorldLearning:
    """The shipped configuration with limits, in fewer worlds at once."""
    document = yaml.safe_load((TREE / "configs" / "algo" / "world.yaml").read_text(encoding="utf-8"))
    found = parse_settings({key: value for key, value in document.items() if key != "learner"})
    worlds = replace(found.worlds, cluster=str(CLUSTER), stops=float(case == "stops"), validation=0)
    return replace(
        found,
        worlds=worlds,
        limits=Limits(**CASES[case], by_rule=STEPS, worlds=WORLDS),  # type: ignore[arg-type]
        ppo=replace(found.ppo, steps_per_update=4096),
        run=replace(found.run, updates=updates, seed=seed, parallel=32),
    )


def scenes(settings: WorldLearning, *, unseen: bool) -> DrawnScenes:
    """Worlds to learn in, or others."""
    return drawn_scenes(settings, ground().offers, cluster=named_cluster(settings), held_out=unseen)


def ruled(scene: WorldScene, charges: Charges) -> list[float]:
    """Priced seconds without charges, what was used (COSTS), hours and jobs of a world under the rule."""
    curve = by_rule(replace(scene, charges=charges))
    priced_s = curve.total_s - float(curve.used @ charges[: len(COSTS)])
    return [priced_s, *curve.used, (curve.time_s[-1] - curve.time_s[0]) / 3600.0, len(scene.workload)]


def played(scene: WorldScene, scheduler: Scheduler, floor_bytes_per_s: float) -> list[float]:
    """The same under anybody."""
    world, price = scene.opened(), prices(scene)
    state = account(world, floor_bytes_per_s)
    moment = Moment.of(world, scene.workload, scene.site, scene.offers, stops=scene.settings.stops)
    began_s = moment.now_s
    while pass_time(world, price, state):
        scheduler.decide(moment)
    add_up(world, state)
    return [state[PAID], *used(state), (moment.now_s - began_s) / 3600.0, len(scene.workload)]


def surveyed(worlds: int) -> Iterator[str]:
    """What limits can ask for."""
    yield "| price of | | priced time over free | in all | egress, USD/h | unfairness | stops a job | GB/h below |"
    yield "|---|---|---|---|---|---|---|---|"
    for at, (case, several) in enumerate(PRICES.items()):
        settings = configured(case)
        drawn = scenes(settings, unseen=False)
        free = NO_CHARGES._replace(floor=1.25e8 * settings.limits.floor_gbit_per_s)
        base = None
        for price in (0.0, *several):
            charges = free._replace(**{free._fields[at]: price})
            rows = np.array([ruled(drawn.scene(number), charges) for number in range(worlds)])
            base = rows if base is None else base
            priced_s, egress, unfair, stops, below, hours, jobs = rows.sum(axis=0)
            cells = [f"{(rows[:, 0] / base[:, 0]).mean():.4f}", f"{priced_s / base[:, 0].sum():.4f}"]
            cells += [f"{egress / hours:.2f}", f"{unfair / 3600.0 / hours:.4f}", f"{stops / jobs:.3f}"]
            yield f"| {case} | {price:g} {UNITS[at]} | {' | '.join(cells)} | {below / hours:.1f} |"


def of_rule(case: str, seed: int, unseen: int) -> dict[str, Any]:
    """The rule alone."""
    settings = configured(case, seed=seed)
    limits, other = settings.limits, scenes(settings, unseen=True)
    ascent = ascent_by_rule(scenes(settings, unseen=False), limits)
    charges = limits.charges(ascent.found.tolist())
    worlds = [other.scene(number) for number in range(unseen)]
    free = NO_CHARGES._replace(floor=charges.floor)
    dear = charges._replace(**{name: DEAR * getattr(charges, name) for name in charges._fields[: len(COSTS)]})
    return {
        "multipliers": ascent.found.tolist(),
        "steps": ascent.multipliers.tolist(),
        "training": ascent.over.tolist(),
        "charges": charges,
        **{
            name: [ruled(world, each) for world in some]
            for name, each, some in (
                ("free", free, worlds[: unseen // FEWER]),
                ("found", charges, worlds),
                ("dear", dear, worlds[: unseen // FEWER]),
            )
        },
    }


def of_agents(settings: WorldLearning, start: Sequence[float], count: int, folder: Path) -> dict[str, Any]:
    """Agents that begin with those multipliers."""
    import torch

    from hippo.jobs.joint.hi_ppo.train import CURVE, POLICY, learned

    torch.set_num_threads(1)  # as ``hippo train`` does
    limits = replace(settings.limits, start=(start[0], start[1], start[2], start[3]), worlds=LEARNED)
    settings = replace(settings, limits=limits)
    other = scenes(settings, unseen=True)
    learned(settings, ground().offers, folder, cluster=named_cluster(settings))
    agents = Agents.unpacked((folder / POLICY).read_bytes(), POLICY)
    curve = [json.loads(line) for line in (folder / CURVE).read_text(encoding="utf-8").splitlines()]
    worlds, floor = [other.scene(number) for number in range(count)], agents.charges.floor
    return {
        "multipliers": agents.multipliers.tolist(),
        "charges": agents.charges,
        "training": [[row[f"limits/{name}"] for name in COSTS] for row in curve if "limits/egress" in row],
        "found": [played(world, HiPpoScheduler(agents=agents), floor) for world in worlds],
        "ruled": [ruled(world, agents.charges) for world in worlds],
    }


def tried(case: str, multipliers: Sequence[float], worlds: int) -> Iterator[str]:
    """What agents use while they draw their answers, beside the rule that they follow, in the same worlds."""
    import torch

    from hippo.jobs.joint.hi_ppo.learner import SiteAgents, decide
    from hippo.jobs.joint.hi_ppo.limits import over_limits

    settings = configured(case)
    limits, drawn = settings.limits, scenes(settings, unseen=False)
    charges, bound = limits.charges(multipliers), [at for at in range(len(COSTS)) if np.isfinite(limits.each[at])]
    rows = np.array([ruled(drawn.scene(TRIED + number), charges) for number in range(worlds)])
    yield "| log odds | used / limit | priced time over the rule's |"
    yield "|---|---|---|"
    yield f"| (the rule) | {', '.join(f'{over_limit(limits, at, rows)[0]:.3f}' for at in bound)} | 1 |"
    for follows in FOLLOWS:
        torch.manual_seed(0)
        policy = SiteAgents(replace(settings, network=replace(settings.network, follows=follows)))
        batch = WorldBatch(drawn, worlds, len(drawn.domains), TRIED, regret=True, endless=False, charges=charges)
        rng = np.random.default_rng(0)
        while not batch.over:
            batch.answer(decide(policy, batch, rng).action)
        used_up, paid = over_limits(limits, batch.ended), np.mean([each.of_rule for each in batch.ended])
        yield f"| {follows:g} | {', '.join(f'{used_up[at]:.3f}' for at in bound)} | {paid:.3f} |"


def over_limit(limits: Limits, at: int, rows: Floats) -> tuple[float, float]:
    """Use over limit of worlds (N, COSTS + 3) together, and half of its 95 % interval."""
    hours, jobs = rows[:, -2], rows[:, -1]
    spent = rows[:, 1 + at]
    allowed = limits.each[at] * (
        hours * 3600.0 if COSTS[at] == "unfairness" else jobs if COSTS[at] == "stops" else hours
    )
    ratio = float(spent.sum() / allowed.sum())
    rest = spent - ratio * allowed
    return ratio, 1.96 * float(np.sqrt((rest**2).sum() * len(rows) / (len(rows) - 1))) / float(allowed.sum())


def shown(runs: Mapping[tuple[str, str, int], Mapping[str, Any]]) -> Iterator[str]:
    """The table."""
    head = ("limit", "who", "worlds", "free", "least", "training", "unseen", "each seed", "price")
    yield f"| {' | '.join((*head, 'priced time over free', 'in all'))} |"
    yield "|" + "---|" * (len(head) + 2)
    for case, who in product(CASES, ("rule", "agents")):
        several = {seed: run for (name, other, seed), run in runs.items() if (name, other) == (case, who)}
        if not several:
            continue
        limits, rows = configured(case).limits, {name: together(several, name) for name in PLAYED}
        free = [np.array(runs[case, "rule", seed]["free"])[: len(run["found"])] for seed, run in several.items()]
        ours = [np.array(run["found"])[: len(each)] for each, run in zip(free, several.values(), strict=True)]
        mine, theirs = np.concatenate(ours)[:, 0], np.concatenate(free)[:, 0]
        cost, halves = interval(list(mine / theirs)), [np.array(run["training"]) for run in several.values()]
        assert cost is not None
        half = np.concatenate([each[len(each) // 2 :] for each in halves])
        for at, name in enumerate(COSTS):
            if not np.isfinite(limits.each[at]):
                continue
            told = {each: over_limit(limits, at, found) for each, found in rows.items() if len(found)}
            held = _told(*told["found"]) + (f" (the rule there {told['ruled'][0]:.3f})" if "ruled" in told else "")
            cells = [f"{name} {limits.each[at]:g}" + (f" ({case})" if case != name else ""), who]
            cells += [str(len(rows["found"])), _told(*over_limit(limits, at, np.concatenate(free)))]
            cells += [_told(*told["dear"]) if "dear" in told else ""]
            cells += [f"{half[:, at].mean():.3f}" if len(half) else "", held]
            cells += [_each(over_limit(limits, at, np.array(run["found"]))[0] for run in several.values())]
            cells += [f"{_each(run['charges'][at] for run in several.values())} {UNITS[at]}"]
            cells += [_told(cost.mean, cost.high - cost.mean), f"{mine.sum() / theirs.sum():.4f}"]
            yield f"| {' | '.join(cells)} |"


PLAYED = ("found", "dear", "ruled")
"""Of a run, beside what it is held against."""


def together(runs: Mapping[int, Mapping[str, Any]], name: str) -> Floats:
    """Rows (N, COSTS + 3) of all seeds; none: they have none of that name."""
    return np.concatenate([np.array(run.get(name, np.zeros((0, len(COSTS) + 3)))) for run in runs.values()])


def _each(values: Iterable[float]) -> str:
    return ", ".join(f"{value:.3g}" for value in values)


def _told(mean: float, half: float) -> str:
    return f"{mean:.3f} ± {half:.3f}"


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/limits"))
    parser.add_argument("--survey", type=int, default=0)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--seeds", default="0", help="of training worlds, networks and unseen worlds")
    parser.add_argument("--updates", type=int, default=20, help="of the agents; 0: the rule alone")
    parser.add_argument("--unseen", type=int, default=800)
    parser.add_argument("--served", type=int, default=24)
    parser.add_argument("--tried", type=int, default=0)
    parser.add_argument("--show", action="store_true")
    given = parser.parse_args(arguments)
    if given.survey:
        for line in surveyed(given.survey):
            print(line, flush=True)
        return
    given.out.mkdir(parents=True, exist_ok=True)
    book = given.out / "runs.jsonl"
    book.touch()
    runs = {tuple(row.pop("run")): row for row in map(json.loads, book.read_text(encoding="utf-8").splitlines())}
    if given.tried:
        for case in given.cases.split(","):
            for line in tried(case, runs[case, "rule", 0]["multipliers"], given.tried):
                print(line, flush=True)
        return
    every = product(given.cases.split(","), map(int, given.seeds.split(",")), ("rule", "agents"))
    for case, seed, who in () if given.show else every:
        if (case, who, seed) in runs or (who == "agents" and not given.updates):
            continue
        if who == "rule":
            found = of_rule(case, seed, given.unseen)
        else:
            settings, folder = configured(case, given.updates, seed), given.out / f"{case.replace(' ', '_')}_{seed}"
            found = of_agents(settings, runs[case, "rule", seed]["multipliers"], given.served, folder)
        runs[case, who, seed] = found
        with book.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps({"run": [case, who, seed], **found}) + "\n")
        print(f"{case}, {who}, seed {seed}: done", flush=True)
    print(*shown(runs), sep="\n")


if __name__ == "__main__":
    main()
