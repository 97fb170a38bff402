"""Meeting a kind of network never seen: share of perfect hindsight after few updates, from four starts.

    hippo bench adaptation
    python benchmarks/adaptation.py [BANK.npz [SEEDS]]

One family is left out. A policy learns on all others (`met`), beginning as every policy does, with the habits of a
planner (`planner`), or from random weights (`nothing`). Then each learns on some problems of the family left out and is
looked at on others of it. One update is 256 decisions. Told: share of perfect hindsight, mean over held-out problems of
all families and seeds, and the difference of `met` to the start it began from, paired by problem, 95 % interval.
`never changing anything` begins with what does most then. Without a dataset, worlds are prepared first, for one seed.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from _reptile import beginning, chosen, last, learned, of_hindsight  # type: ignore[import-not-found]
from hippo.network.env.dataset import Dataset, Preparation, load, make_dataset, save
from hippo.network.train.settings import HiPpoSettings
from hippo.network.train.worlds import keeping, played
from hippo.network.worlds.generator import FAMILIES

LEFT_OUT = ("transient", "regimes", "outage", "halving", "stragglers")
AFTER = (0, 1, 2, 5, 10, 20)  # updates on the family left out
MEETING = 24  # updates on the others, of four times as many decisions
SUPPORT = 1 / 3  # of a family's problems are learned on, the others looked at
PREPARED, OTHERS, MOVEMENTS = 6, 1, 2  # problems of a family left out, of another one; movements of each
KEEPING = "never changing anything"
STARTS = ("planner", "met", "nothing", "met from nothing")
PAIRS = (("met", "planner"), ("met from nothing", "nothing"), ("met from nothing", "planner"))
Found = dict[str, dict[int, dict[str, float]]]
"""Share of hindsight by start, number of updates, and problem."""


def settings(decisions: int) -> HiPpoSettings:
    """The usual ones, with smaller updates."""
    usual = HiPpoSettings()
    ppo = replace(usual.ppo, steps_per_update=decisions, minibatch=256)
    return replace(usual, ppo=ppo, run=replace(usual.run, parallel=32, shares=1))


def fold(path: str, family: str, seed: int) -> Found:
    """One family left out."""
    torch.set_num_threads(1)
    dataset = load(Path(path))
    own = dataset.families == family
    numbers = np.array([int(name.split("-")[2]) for name in dataset.names])
    there = np.unique(numbers[own])
    known = own & np.isin(numbers, there[: max(1, round(SUPPORT * len(there)))])
    support, tested = chosen(dataset, np.flatnonzero(known)), chosen(dataset, np.flatnonzero(own & ~known))
    others = chosen(dataset, np.flatnonzero(~own))
    starts = {name: beginning(settings(256), prior=name == "planner", seed=seed) for name in ("planner", "nothing")}
    for name, start in (("met", starts["planner"]), ("met from nothing", starts["nothing"])):
        starts[name] = last(learned(start, others, settings(1024), updates=MEETING, seed=seed))
    kept = by_problem(tested, played(tested, keeping))
    found: Found = {KEEPING: dict.fromkeys(AFTER, kept)}
    for name in STARTS:
        policies = learned(starts[name], support, settings(256), updates=max(AFTER), seed=1000 + seed)
        looks = {n: of_hindsight(policy, tested) for n, policy in enumerate(policies) if n in AFTER}
        found[name] = {n: by_problem(tested, shares) for n, shares in looks.items()}
    return found


def by_problem(dataset: Dataset, shares: np.ndarray) -> dict[str, float]:
    """Mean over the movements of each problem."""
    problems = np.array(["-".join(name.split("-")[:3]) for name in dataset.names])
    return {str(problem): float(shares[problems == problem].mean()) for problem in np.unique(problems)}


def pooled(folds: list[Found]) -> Found:
    """Problems of all folds, each the mean over seeds."""
    found: Found = {}
    for name in (*STARTS, KEEPING):
        for n in AFTER:
            parts: dict[str, list[float]] = {}
            for each in folds:
                for problem, share in each[name][n].items():
                    parts.setdefault(problem, []).append(share)
            found.setdefault(name, {})[n] = {problem: float(np.mean(shares)) for problem, shares in parts.items()}
    return found


def table(title: str, found: Found) -> str:
    """The lines of some folds."""
    count = len(found[STARTS[0]][0])
    lines = [f"{title}, {count} problems", f"{'after updates':32s}" + "".join(f"{n:>16d}" for n in AFTER)]
    for name in (*STARTS, KEEPING):
        means = [100 * float(np.mean(list(found[name][n].values()))) for n in AFTER]
        lines.append(f"{name:32s}" + "".join(f"{mean:16.2f}" for mean in means))
    for one, other in PAIRS:
        cells = [told(found[one][n], found[other][n]) for n in AFTER]
        lines.append(f"{one + ' - ' + other:32s}" + "".join(f"{cell:>16s}" for cell in cells))
    return "\n".join(lines)


def told(one: Mapping[str, float], other: Mapping[str, float]) -> str:
    """Paired difference in points with its interval."""
    gain = 100 * np.array([one[problem] - other[problem] for problem in one])
    half = 1.96 * gain.std(ddof=1) / np.sqrt(len(gain)) if len(gain) > 1 else np.nan
    return f"{gain.mean():+.2f}+-{half:.2f}"


def small_bank() -> Dataset:
    """Worlds of the train split, made now."""
    count = {family: PREPARED if family in LEFT_OUT else OTHERS for family in FAMILIES}
    wanted = [(family, seed) for seed in range(PREPARED) for family in FAMILIES if seed < count[family]]
    return make_dataset(wanted, Preparation(movements=MOVEMENTS, preferences=1), processes=2)


def main() -> None:
    """Prints the tables."""
    began = time.monotonic()
    seeds = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    with tempfile.TemporaryDirectory() as folder:
        path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(folder) / "bank.npz"
        if len(sys.argv) == 1:
            save(small_bank(), path)
        tasks = [(str(path), family, seed) for seed in range(seeds) for family in LEFT_OUT]
        with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
            folds = list(pool.map(fold, *zip(*tasks, strict=True)))
    for at, family in enumerate(LEFT_OUT):
        print(table(f"left out: {family}", pooled(folds[at :: len(LEFT_OUT)])))
    print(table(f"all, {seeds} seed(s)", pooled(folds)))
    print(f"{(time.monotonic() - began) / 60:.1f} minutes")


if __name__ == "__main__":
    main()
