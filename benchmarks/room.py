"""How much there is to win on a site beyond rules, and who could win it.

    python -m benchmarks.room [--cluster examples/eight-cloud-regions.yaml] [--models ..] [--kind kept|stopped]
        [--settings 24] [--plays 200] [--out FILE]

On fifteen training worlds (each family at loads of 0.8, 1 and 1.3, drawn as ``configs/algo/world.yaml`` does, links
moving in all of them) every compiled rule gets so many settings, drawn from its levers (``benchmarks.rivals``): the
usual one, that which ships, and others by chance. Then, over ``srpt`` with the setting found: the cheapest rule of each
world; ``srpt`` told how long jobs truly take; the best of a search with hindsight (so many plays); ``srpt`` whose every
decision is held against others by playing each to the true end (*ahead*: one step of policy iteration with hindsight);
and what nobody can undercut. Test worlds, of other seeds, are not touched.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hippo.jobs.engine import world as c
from hippo.jobs.engine.observe import survey
from hippo.jobs.engine.running import find_pool
from hippo.jobs.engine.world import QueueWorld
from hippo.jobs.joint import rules
from hippo.jobs.joint.copies import WorldCopy
from hippo.jobs.joint.draws import DrawnScenes, WorldTerms
from hippo.jobs.joint.env import WorldScene, prices
from hippo.jobs.joint.evaluate.hindsight import HindsightPlayer, search
from hippo.jobs.joint.evaluate.relaxation import bound
from hippo.jobs.joint.hi_ppo.ahead import begin, played_ahead
from hippo.jobs.joint.hi_ppo.settings import DrawnWorlds
from hippo.jobs.joint.play import step
from hippo.jobs.joint.ranked import best_place, next_begun
from hippo.jobs.joint.rules import Ranked
from hippo.jobs.joint.settings import setting_of
from hippo.jobs.placement.offer_plans import offer_table
from hippo.jobs.site import JobSite
from hippo.jobs.traces.elastic import usual_trainings
from hippo.problem.load import load_cluster

from .rivals import KINDS, LEVERS, SEED, TREE

CLUSTER, MODELS = TREE / "examples" / "eight-cloud-regions.yaml", "llama-3-8b,qwen2.5-14b,qwen2.5-32b,llama-3-70b"
SEARCHED = ("separate", "mast", "sailor", "crosspipe", "hyperion", "shortest", "sla_morl", "srpt", "crux")
WIDER: Mapping[str, tuple[Any, ...]] = {
    "crowd": (0.0, 0.3, 1.0, 2.0, 3.0),
    "thrift": (0.0, 0.3, 1.0, 3.0, 5.0, 8.0),
    "most_parts": (3, 4),
}
"""Levers that go farther here, or less far: where a model fits into no region, jobs that may span two alone wait for
ever."""
TIMES = 4.0
"""A play that costs so many times ``separate``'s is given up: some job of it waits for ever."""
OTHERS, WAIT_S = 3, 7200.0
"""Other jobs that could go first, and a wait, that are played ahead."""

Floats = NDArray[np.float64]
Answer = tuple[int, int, NDArray[np.int64], float]
"""Job, offer (-1: it waits, -2: a gang), domains (M,), and until when it waits."""


def scenes(cluster: str, models: Sequence[str], kind: str) -> list[tuple[str, float, WorldScene]]:
    """The training worlds of a kind of site."""
    drawn, site = DrawnWorlds(), JobSite.of(load_cluster(cluster))
    offers, found = offer_table(load_cluster(cluster), usual_trainings(tuple(models))), []
    for high, load in enumerate(drawn.loads):
        for low, family in enumerate(drawn.families):
            terms = WorldTerms(
                site,
                (family,),
                drawn.jobs,
                (load,),
                moving=1.0,
                failing=drawn.failing,
                tenants=drawn.tenants,
                stops=KINDS[kind],
            )
            found.append((family, load, DrawnScenes(terms, offers, SEED).scene(100 * high + low)))
    return found


def settings(name: str, kind: str, count: int, srpt: Mapping[str, Any], rng: np.random.Generator) -> list[Ranked]:
    """The usual one, that which ships, and others; ``crux`` stands on the ``srpt`` that was found."""
    base: Ranked = getattr(rules, name.upper())
    if name == "crux":
        base = replace(base, **srpt)
        return [base, *(replace(base, levels=levels, times=times) for levels in (2, 8) for times in (2.0, 8.0))]
    found = [base, replace(base, **setting_of(name, kind))]
    for _ in range(count - 2):
        levers = {lever: WIDER.get(lever, values) for lever, values in LEVERS[name][kind].items()}
        some = {lever: values[int(rng.integers(len(values)))] for lever, values in levers.items()}
        found.append(replace(base, **some))
    return found


# ------------------------------------------------------------------------------------------------------- with hindsight
class PlayedAhead:
    """A rule in one world, every decision of which is held against others in the true future."""

    def __init__(self, scene: WorldScene, rule: Ranked) -> None:
        self.player, self.rule, self.scene = HindsightPlayer.of(scene, prices(scene)), rule, scene
        self.trial = HindsightPlayer.of(scene, prices(scene))
        self.decisions = self.changed = 0

    def played(self) -> tuple[float, Floats]:
        """Priced seconds of all jobs, and when each ends."""
        world, room, terms = self.scene.opened(), self.player.room, self.rule.terms
        copy, cost = WorldCopy.of(world), np.zeros(1)
        while step(world):
            now = world.clock[c.NOW]
            while True:
                job, place = map(int, next_begun(world, self.player.seen, terms, room))
                if job < 0:
                    break
                answers, paid = list(self._answers(world, job, place)), list[float]()
                passed = np.where(room.passed >= now, np.nextafter(now, np.inf), -np.inf)
                for each, offer, where, until_s in answers:
                    since = passed.copy()
                    since[each] = max(since[each], until_s)
                    copy.restore()
                    tried = np.array([each, offer])
                    trial = self.trial
                    played_ahead(
                        copy.copy, trial.seen, terms, trial.room, tried, where, since, trial.price, np.zeros(1), cost
                    )
                    paid.append(float(cost[0]))
                best = int(np.argmin(paid))
                self.decisions, self.changed = self.decisions + 1, self.changed + (best > 0)
                each, offer, where, _ = answers[best]
                if offer == -1:
                    room.passed[each] = now
                else:
                    begin(world, each, offer, where)
        ends_s: Floats = np.where(world.mark[:, c.STATUS] == c.DONE, world.job[:, c.FINISH], np.inf)
        return self.player.cost(ends_s), ends_s

    def _answers(self, world: QueueWorld, job: int, place: int) -> Iterator[Answer]:
        """The rule's; the job at the quickest place of every other footprint; others first; a wait."""
        seen, now, nowhere = self.player.seen, float(world.clock[c.NOW]), np.full(c.MOST_PARTS, -1, np.int64)
        if world.mark[job, c.ELASTIC] == 0:
            yield job, -2, nowhere, -np.inf
        else:
            count, own = int(survey(world, seen, job)), (int(seen.offer[place]), seen.where[place].copy())
            yield job, *own, -np.inf
            quickest: dict[tuple[int, int], int] = {}
            for at in range(count):
                if seen.offer[at] >= 0 and not (seen.offer[at] == own[0] and (seen.where[at] == own[1]).all()):
                    form = int(seen.total[seen.offer[at]]), int((seen.where[at] >= 0).sum())
                    if form not in quickest or seen.rate[at] > seen.rate[quickest[form]]:
                        quickest[form] = at
            for at in quickest.values():
                yield job, int(seen.offer[at]), seen.where[at].copy(), -np.inf
        waiting = np.flatnonzero(world.mark[: world.tally[c.ARRIVED], c.STATUS] == c.WAITING).tolist()
        waiting.sort(key=lambda each: float(self.player.room.key[each]))
        for other in [each for each in waiting if each != job][:OTHERS]:
            if world.mark[other, c.ELASTIC] == 0:
                if find_pool(world, other) >= 0:
                    yield other, -2, nowhere, -np.inf
                continue
            at = int(best_place(world, seen, self.rule.terms, self.player.room, other))
            if at >= 0:
                yield other, int(seen.offer[at]), seen.where[at].copy(), -np.inf
        for until_s in (float(np.nextafter(now, np.inf)), now + WAIT_S):
            yield job, -1, nowhere, until_s


def row_of(scene: WorldScene, best: Mapping[str, Ranked], plays: int) -> dict[str, Any]:
    """A world: everything over ``srpt``."""
    player, price = HindsightPlayer.of(scene, prices(scene)), prices(scene)
    usual, ends_s = player.played(player.plain(best["srpt"]))
    told = player.played(replace(player.plain(best["srpt"]), ends=True))[0]
    each = {name: player.played(player.plain(rule), TIMES * usual)[0] / usual for name, rule in best.items()}
    hindsight = search(scene, price, tuple(best.values()), seed=SEED, most=plays)
    ahead = PlayedAhead(scene, best["srpt"])
    found, found_s = ahead.played()
    stays = [float(np.mean(ends - scene.workload.arrival_s)) for ends in (found_s, ends_s)]
    return {
        "srpt_h": usual / len(price) / 3600.0,
        "rules": each,
        "cheapest rule": min(each.values()),
        "told truly": told / usual,
        "search": min(hindsight.cost, found) / usual,
        "ahead": found / usual,
        "ahead, completion": stays[0] / stays[1],
        "bound": bound(scene, price).priced_s * len(price) / usual,
        "decisions": ahead.decisions,
        "changed": ahead.changed,
    }


COLUMNS = ("cheapest rule", "told truly", "ahead", "ahead, completion", "search", "bound")


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cluster", default=str(CLUSTER))
    parser.add_argument("--models", default=MODELS)
    parser.add_argument("--kind", choices=tuple(KINDS), default="kept")
    parser.add_argument("--settings", type=int, default=24)
    parser.add_argument("--plays", type=int, default=200)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(arguments)
    worlds = scenes(given.cluster, given.models.split(","), given.kind)
    players = [HindsightPlayer.of(scene, prices(scene)) for _, _, scene in worlds]
    separate = [player.played(player.plain(rules.SEPARATE))[0] for player in players]
    rng, best = np.random.default_rng(SEED), dict[str, Ranked]()
    print("| rule | over `separate` | usual | setting |\n|---|---|---|---|")
    for name in SEARCHED:
        srpt = {lever: getattr(best["srpt"], lever) for lever in LEVERS["srpt"][given.kind]} if name == "crux" else {}
        tried = settings(name, given.kind, given.settings, srpt, rng)
        mean = [
            np.mean(
                [
                    player.played(player.plain(rule), TIMES * c0)[0] / c0
                    for player, c0 in zip(players, separate, strict=True)
                ]
            )
            for rule in tried
        ]
        best[name] = tried[int(np.argmin(mean))]
        levers = {lever: getattr(best[name], lever) for lever in LEVERS[name][given.kind]}
        print(f"| `{name}` | {min(mean):.3f} | {mean[0]:.3f} | {levers} |", flush=True)
    print(f"\n| world | `srpt`, h | {' | '.join(COLUMNS)} | changed |\n|---|---|{'---|' * len(COLUMNS)}---|")
    rows = []
    for family, load, scene in worlds:
        row = {"family": family, "load": load, **row_of(scene, best, given.plays)}
        rows.append(row)
        cells = " | ".join(f"{row[name]:.3f}" for name in COLUMNS)
        share = f"{row['changed']} of {row['decisions']}"
        print(f"| {family} {load:g} | {row['srpt_h']:.1f} | {cells} | {share} |", flush=True)
        if given.out:
            given.out.write_text(json.dumps(rows), encoding="utf-8")
    for family in (*dict.fromkeys(row["family"] for row in rows), ""):
        some = [row for row in rows if family in ("", row["family"])]
        cells = " | ".join(f"{np.mean([row[name] for row in some]):.3f}" for name in COLUMNS)
        print(f"| **{family or 'all'}** | | {cells} | |")


if __name__ == "__main__":
    main()
