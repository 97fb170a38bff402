"""A family of jobs never seen: what the agents of a site do there at once and after few updates, from two starts.

    python -m benchmarks.site_adaptation --out out/adaptation [--seeds 0,1,2] [--parts memory,no_memory]
    python -m benchmarks.site_adaptation --out out/adaptation --show

The agents are not told what a rule would do (``ablation.no_advice``): with that advice each of them is the rule, on any
family. *Met*: learned on the other four families for as many updates as then follow. *Nothing*: weights by chance. Each
learns on in worlds of the family left out and is looked at on others of it, after 0, 5 and 20 updates, with and without
the memory of the past. Told: share of the best that is known there (what ``srpt`` pays over what they pay), 95 %
intervals over seeds and worlds. Updates are small (``DECISIONS``), the same for all. A run that has its line in
``runs.jsonl`` is not made again.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hippo.jobs.joint.hi_ppo.settings import WorldAblation, WorldLearning
from hippo.jobs.traces.elastic import FAMILIES

from .parts import configured, told_of
from .rivals import ground

LEFT_OUT = "large"
AFTER = (0, 5, 20)
DECISIONS, JOBS, WORLDS, LOOKED = 1024, 60, 32, 12
PARTS: Mapping[str, WorldAblation] = {
    "memory": WorldAblation(no_advice=True),
    "no_memory": WorldAblation(no_advice=True, no_memory=True),
}
STARTS = ("met", "nothing")


def settings(part: str, seed: int, families: Sequence[str]) -> WorldLearning:
    """The shipped configuration in small."""
    usual = configured("full", seed, AFTER[-1])
    return replace(
        usual,
        ppo=replace(usual.ppo, steps_per_update=DECISIONS, minibatch=256),
        worlds=replace(usual.worlds, families=tuple(families), jobs=JOBS),
        run=replace(usual.run, parallel=WORLDS, shares=1, value_updates=1),
        ablation=PARTS[part],
    )


def one(part: str, seed: int) -> dict[str, Any]:
    """Of each start and number of updates what it pays over what the rule pays, in each world that is looked at."""
    import torch

    from hippo.jobs.joint.hi_ppo.learner import SiteAgents, played
    from hippo.jobs.joint.hi_ppo.scenes import drawn_scenes, named_cluster
    from hippo.jobs.joint.hi_ppo.train import WORST, share_learner
    from hippo.jobs.joint.hi_ppo.worlds import by_rule
    from hippo.learn.distributed import Place

    torch.set_num_threads(1)
    began, offers = time.process_time(), ground().offers
    others = settings(part, seed, [family for family in FAMILIES if family != LEFT_OUT])
    own = settings(part, seed, [LEFT_OUT])
    cluster = named_cluster(own)
    held = drawn_scenes(settings(part, 0, [LEFT_OUT]), offers, cluster=cluster, held_out=True)  # the same for all
    rule_s = np.array([by_rule(held.scene(number)).total_s for number in range(LOOKED)])

    def met(policy: SiteAgents, terms: WorldLearning) -> Iterator[int]:
        """Learns with it in place; how many updates it has had."""
        learner = share_learner(policy, terms, drawn_scenes(terms, offers, cluster=cluster), Place())
        for update in range(AFTER[-1]):
            yield update
            learner.learn(update / AFTER[-1])
        yield AFTER[-1]

    torch.manual_seed(seed)
    nothing = SiteAgents(own)
    start = {"nothing": nothing, "met": copy.deepcopy(nothing)}
    for _ in met(start["met"], others):
        pass
    found: dict[str, Any] = {}
    for name in STARTS:
        for update in met(start[name], own):
            if update in AFTER:
                batch = played(start[name], held, LOOKED)
                paid_s = [s if env.done else np.inf for s, env in zip(batch.paid, batch.envs, strict=True)]
                found[f"{name} {update}"] = np.minimum(WORST, np.array(paid_s) / rule_s).tolist()
    return {"part": part, "seed": seed, "cpu_s": time.process_time() - began, **found}


def shown(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The table, and what differs at once."""
    runs = {(row["part"], row["seed"]): row for row in rows}
    yield f"| start | seeds | {' | '.join(f'share of the best after {each}' for each in AFTER)} | CPU s a run |"
    yield f"|---|---|{'---|' * len(AFTER)}---|"
    for part in PARTS:
        of_part = [row for (name, _), row in runs.items() if name == part]
        for name in STARTS if of_part else ():
            cells = [told_of(1.0 / np.array([row[f"{name} {each}"] for row in of_part])) for each in AFTER]
            cpu_s = np.mean([row["cpu_s"] for row in of_part])
            yield f"| {name}, {part} | {len(of_part)} | {' | '.join(cells)} | {cpu_s:.0f} |"
        for each in AFTER if of_part else ():
            pair = [np.array([row[f"{name} {each}"] for row in of_part]) for name in STARTS]
            yield f"met over nothing, {part}, after {each}: priced time {told_of(pair[0] / pair[1])}"
    both = [seed for part, seed in runs if part == "memory" and ("no_memory", seed) in runs]
    for each in AFTER if both else ():
        pair = [np.array([runs[part, seed][f"met {each}"] for seed in both]) for part in PARTS]
        yield f"memory over no_memory, met, after {each}: priced time {told_of(pair[0] / pair[1])}"


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/site_adaptation"))
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--show", action="store_true")
    given = parser.parse_args(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    book = given.out / "runs.jsonl"
    book.touch()
    rows = [json.loads(line) for line in book.read_text(encoding="utf-8").splitlines()]
    for seed in () if given.show else map(int, given.seeds.split(",")):
        for part in given.parts.split(","):
            if (part, seed) not in {(row["part"], row["seed"]) for row in rows}:
                rows.append(one(part, seed))
                with book.open("a", encoding="utf-8") as lines:
                    lines.write(json.dumps(rows[-1]) + "\n")
                print(part, seed, f"{rows[-1]['cpu_s']:.0f} CPU s", flush=True)
    print(*shown(rows), sep="\n")


if __name__ == "__main__":
    main()
