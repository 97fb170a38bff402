"""What each part of the agents of a site is worth: equal runs without it, of several training seeds, one at a time.

    python -m benchmarks.parts --out out/parts [--updates 20] [--seeds 0,1,2,3,4] [--parts no_gnn,no_lower]
    python -m benchmarks.parts --out out/parts --show

Every run learns ``configs/algo/world.yaml`` for as many updates, in worlds of its seed, then plays worlds that nobody
learned in (running jobs are kept, load 1.2), once by the weights that were best where it looked while it learned, as
they would be served, and once by its last ones. A run that has its line in ``runs.jsonl`` is not made again; one that
was cut off goes on. ``--show``: priced time of each over the full agents of the same seed, with 95 % intervals over
seeds and worlds (``evaluate.evidence.crossed``), and over the rule that advises them.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
import yaml

from hippo.jobs.joint.env import WorldScene
from hippo.jobs.joint.evaluate.evidence import crossed
from hippo.jobs.joint.evaluate.suite import priced_s
from hippo.jobs.joint.evaluate.worlds import WorldGrid
from hippo.jobs.joint.hi_ppo.policy import Agents, HiPpoScheduler
from hippo.jobs.joint.hi_ppo.settings import WorldAblation, WorldLearning, parse_settings
from hippo.jobs.joint.settings import SRPT

from .rivals import CLUSTER, TREE, ground

FULL = "full"
PARTS: Mapping[str, WorldAblation] = MappingProxyType(
    {FULL: WorldAblation()} | {name: WorldAblation(**{name: True}) for name in WorldAblation.__dataclass_fields__}
)
GRID = WorldGrid(loads=(1.2,), stops=(False,), jobs=100, seeds=4, first_seed=2_000)
WEIGHTS = ("best", "last")


def configured(part: str, seed: int, updates: int) -> WorldLearning:
    """The shipped configuration without a part, ended by its updates alone."""
    document = yaml.safe_load((TREE / "configs" / "algo" / "world.yaml").read_text(encoding="utf-8"))
    found = parse_settings({key: value for key, value in document.items() if key != "learner"})
    run = replace(found.run, seed=seed, updates=updates, minutes=0.0)
    worlds = replace(found.worlds, cluster=str(CLUSTER))
    return replace(found, run=run, worlds=worlds, ablation=PARTS[part])


@cache
def scenes() -> tuple[WorldScene, ...]:
    """Worlds to be judged on."""
    return tuple(ground().scene(draw) for draw in GRID.draws())


def one(part: str, seed: int, updates: int, out: Path) -> dict[str, Any]:
    """A run, or the rest of it, and its plays."""
    from hippo.jobs.joint.hi_ppo.scenes import named_cluster
    from hippo.jobs.joint.hi_ppo.train import POLICY, learned, packed
    from hippo.learn.checkpoint import NAME, load

    settings, folder = configured(part, seed, updates), out / f"{part}-{seed}"
    began = time.process_time()
    resumed = (folder / NAME).exists()
    found = learned(settings, ground().offers, folder, cluster=named_cluster(settings), resume=resumed)
    cpu_s = time.process_time() - began
    found.policy.load_state_dict(load(folder).policy)
    contents = {"best": (folder / POLICY).read_bytes(), "last": packed(found.policy, settings)}
    paid = {
        name: [priced_s(scene, HiPpoScheduler(agents=Agents.unpacked(content, name))) for scene in scenes()]
        for name, content in contents.items()
    }
    looks = {"start": found.first, "looked": found.best, "best_update": found.best_update}
    return {"part": part, "seed": seed, "updates": found.updates, "cpu_s": cpu_s, **looks, **paid}


def shown(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The table; every part over the seeds that have the full agents, too."""
    runs = {(row["part"], row["seed"]): row for row in rows}
    rule_s = np.array([priced_s(scene, SRPT) for scene in scenes()])
    yield "| agents | seeds | of `srpt`, best | last | of the full agents, best | last | CPU s a run |"
    yield "|---|---|---|---|---|---|---|"
    for part in PARTS:
        seeds = [seed for name, seed in runs if name == part and (FULL, seed) in runs]
        if not seeds:
            continue
        cells = []
        for other in (None, FULL):
            for name in WEIGHTS:
                ours = np.array([runs[part, seed][name] for seed in seeds])
                base = rule_s if other is None else np.array([runs[other, seed][name] for seed in seeds])
                cells.append(told_of(ours / base))
        cpu_s = np.mean([runs[part, seed]["cpu_s"] for seed in seeds])
        yield f"| {part} | {len(seeds)} | {' | '.join(cells)} | {cpu_s:.0f} |"


def told_of(ratios: Any) -> str:
    """Mean and half of the 95 % interval of (seeds, worlds)."""
    found = crossed(ratios)
    assert found is not None
    return f"{found.mean:.3f} ± {found.high - found.mean:.3f}"


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/parts"))
    parser.add_argument("--updates", type=int, default=20)
    parser.add_argument("--seeds", default="0,1,2,3,4")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--show", action="store_true")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)  # as ``hippo train`` does
    given.out.mkdir(parents=True, exist_ok=True)
    book = given.out / "runs.jsonl"
    book.touch()
    if not given.show:
        for seed in map(int, given.seeds.split(",")):
            for part in given.parts.split(","):
                done = {(row["part"], row["seed"]) for row in _rows(book)}
                if (part, seed) in done:
                    continue
                row = one(part, seed, given.updates, given.out)
                with book.open("a", encoding="utf-8") as lines:
                    lines.write(json.dumps(row) + "\n")
                print(part, seed, f"{row['looked']:.4f} of the rule where it looked", flush=True)
    print(*shown(_rows(book)), sep="\n")


def _rows(book: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in book.read_text(encoding="utf-8").splitlines()]


if __name__ == "__main__":
    main()
