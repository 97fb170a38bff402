"""Steps of the environment per CPU second, on worlds of the training split.

    python benchmarks/environment.py [--seeds N] [--runs W] [--seconds S]

An *epoch* is a step of the world; a *decision* is a step of the upper agent, with the whole observation worked out.
"""

from __future__ import annotations

import argparse
from time import perf_counter, process_time

import numpy as np
from numpy.typing import NDArray

from hippo.network.env.dataset import Dataset, Preparation, make_dataset
from hippo.network.env.env import Env
from hippo.network.observation.features import OPTION_FEATURES, Observation
from hippo.network.worlds.generator import FAMILIES

WORTH = OPTION_FEATURES.index("worth_rest")


def main() -> None:
    """Makes a dataset, runs it under three ways to answer, prints a table."""
    parser = argparse.ArgumentParser(description="Steps of the environment per CPU second.")
    parser.add_argument("--seeds", type=int, default=1, help="worlds of each family")
    parser.add_argument("--families", type=int, default=4, help="of which worlds are made")
    parser.add_argument("--runs", type=int, default=128, help="runs side by side")
    parser.add_argument("--seconds", type=float, default=2.0, help="CPU seconds for each row")
    given = parser.parse_args()
    began_s = perf_counter()
    wanted = [(family, seed) for family in list(FAMILIES)[: given.families] for seed in range(given.seeds)]
    dataset = make_dataset(wanted, Preparation(preferences=1), processes=2)
    spent_s = perf_counter() - began_s
    print(f"{dataset.worlds} worlds of up to {dataset.domains} domains prepared in {spent_s:.0f} s on two processes")
    print(f"{'answers':10} {'epochs/CPU s':>14} {'decisions/CPU s':>16} {'epochs/decision':>16}")
    for name in ("keep", "random", "worth"):
        epochs, decisions = measured(dataset, name, given.runs, given.seconds)
        print(f"{name:10} {epochs:14,.0f} {decisions:16,.0f} {epochs / decisions:16.1f}")


def measured(dataset: Dataset, name: str, runs: int, seconds: float) -> tuple[float, float]:
    """Epochs and decisions per CPU second of the environment alone."""
    env, rng = Env(dataset, runs, seed=0), np.random.default_rng(0)
    seen = env.reset()
    seen = env.step(answer(seen, name, rng)).observation  # compiles
    spent_s, epochs, decisions = 0.0, 0, 0
    while spent_s < seconds:
        actions = answer(seen, name, rng)
        began_s = process_time()
        came = env.step(actions)
        spent_s += process_time() - began_s
        epochs, decisions, seen = epochs + int(came.epochs.sum()), decisions + runs, came.observation
    return epochs / spent_s, decisions / spent_s


def answer(seen: Observation, name: str, rng: np.random.Generator) -> NDArray[np.int64]:
    """Always keep, anything, or what is worth most."""
    if name == "keep":
        return np.zeros(len(seen.context), np.int64)
    score = rng.random(seen.option_mask.shape) if name == "random" else seen.options[..., WORTH]
    return np.asarray(np.where(seen.option_mask, score, -np.inf).argmax(axis=1))


if __name__ == "__main__":
    main()
