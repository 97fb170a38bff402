"""Adaptation of the constructing agents to a family of networks never met: few updates from a start (spec A17).

    hippo bench adaptation
    python benchmarks/adaptation.py [family ...]

One family is left out while a start is learned on all others (jointly, or by Reptile; as many updates each); then the
start learns on the family left out. Told: mean step time of the surest plan on other sites of that family (test split),
over the best plan that anyone met there, with a 95 % interval of the paired difference to learning from scratch
(`scratch` begins as the closed form, so it is no straw man).
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace

import numpy as np

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from hippo.agents.adapt import Reptile, adapting, reptile, step_times
from hippo.agents.construction_networks import Builders
from hippo.agents.train_construct import Construction, Spot, learn, sites
from hippo.envs.cross_domain.generator import FAMILIES

LEFT_OUT = ("large", "regimes", "link_bound")
AFTER = (0, 1, 2, 5, 10)  # updates on the family left out
PLAN = Construction(problems=4, states=2, sites=12, drafts=8)
JOINT = 80  # updates; Reptile's rounds x inner as many
TESTED = 20  # problems of the family left out


def starts(left_out: str) -> dict[str, Builders]:
    """Networks by how they begin."""
    torch.manual_seed(0)
    scratch = Builders()
    known = {family: family_sites(family, PLAN.problems) for family in FAMILIES if family != left_out}
    torch.manual_seed(0)
    joint = Builders()
    every = [spot for spots in known.values() for spot in spots]
    learn(joint, every, replace(PLAN, updates=JOINT), seed=0, minutes=0.0)
    met = reptile(scratch, known, PLAN, Reptile(rounds=JOINT // 4, inner=4), seed=0)
    return {"scratch": scratch, "joint": joint, "reptile": met}


def family_sites(family: str, problems: int, *, split: str = "train", first_seed: int = 10_000) -> list[Spot]:
    """Sites of one family."""
    plan = replace(PLAN, families=(family,), problems=problems, first_seed=first_seed)
    return list(sites(plan, 0, split=split))


def main() -> None:
    """Prints the tables."""
    torch.set_num_threads(1)
    for left_out in sys.argv[1:] or LEFT_OUT:
        began = time.process_time()
        support = family_sites(left_out, PLAN.problems, first_seed=20_000)
        tested = family_sites(left_out, TESTED, split="test", first_seed=500)
        found: dict[str, dict[int, np.ndarray]] = {}
        for name, start in starts(left_out).items():
            policies = adapting(start, support, PLAN, updates=max(AFTER), seed=1)
            found[name] = {n: step_times(each, tested) for n, each in enumerate(policies) if n in AFTER}
        best = np.array([spot.best_s for spot in tested])
        print(f"left out: {left_out}; {len(tested)} sites; CPU {time.process_time() - began:.0f} s")
        print(f"{'start':10s}" + "".join(f"{f'{n} updates':>22s}" for n in AFTER))
        for name, each in found.items():
            print(f"{name:10s}" + "".join(cell(each[n], found["scratch"][n], best, name) for n in AFTER))


def cell(steps: np.ndarray, scratch: np.ndarray, best: np.ndarray, name: str) -> str:
    """Mean ratio, and the difference to scratch with its interval."""
    ratio, other = np.minimum(steps / best, 4.0), np.minimum(scratch / best, 4.0)
    if name == "scratch":
        return f"{ratio.mean():22.3f}"
    gain = ratio - other
    half = 1.96 * gain.std(ddof=1) / np.sqrt(len(gain))
    return f"{f'{ratio.mean():.3f} ({gain.mean():+.3f}+-{half:.3f})':>22s}"


if __name__ == "__main__":
    main()
