"""PPO, A2C, A3C and REINFORCE on one queue: what each makes of equally many decisions.

60 jobs of one user come within an hour to 2 x 4 devices. The kind tells how long a job runs (preprocess: a minute,
predict: six, train: an hour, deploy: four; log-normal, spread 0.5), which the estimate from the past does not look at:
the key network has to learn it from the reward. Every algorithm sees the same windows of a seed. Writes a line per look
to results/curves/jobs_algorithms.jsonl and prints mean completion over the clairvoyant's on windows of other seeds.
Steps of 0.003 (PPO) and 0.01 (the others): of these two, what served each better on the same windows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from hippo.jobs.learned.weights import KeyWeights, shipped
from hippo.jobs.site import DevicePool, site
from hippo.jobs.train.policy import KeyPolicy
from hippo.jobs.train.settings import ALGORITHMS, Gradient, KeyTraining
from hippo.jobs.train.train import optimizer, step
from hippo.jobs.train.windows import Window
from hippo.jobs.workload import JobWorkload

CURVES = Path(__file__).resolve().parents[1] / "results" / "curves" / "jobs_algorithms.jsonl"
SITE = site([DevicePool("one", "gpu", 1, 4), DevicePool("two", "gpu", 1, 4)])
USUAL_S = np.array([3600.0, 60.0, 360.0, 14_400.0])  # by kind: train, preprocess, predict, deploy
JOBS, UPDATES, ROLLS, SEEDS, LOOKS = 60, 30, 4, 3, 8


def window(generator: np.random.Generator) -> Window:
    """Jobs of four kinds."""
    kind = generator.integers(0, 4, JOBS)
    columns = {
        "arrival_s": np.sort(generator.uniform(0.0, 3600.0, JOBS)),
        "duration_s": USUAL_S[kind] * np.exp(0.5 * generator.normal(size=JOBS)),
        "devices": generator.choice([1, 1, 1, 2, 4], JOBS),
        "kind": kind,
    }
    return Window(JobWorkload.of_columns(columns), None, SITE)


def of_limit(looks: list[tuple[Window, float]], weights: KeyWeights) -> float:
    """Mean completion over the clairvoyant's, geometric mean over windows."""
    return float(np.exp(np.mean([np.log(each.mean_completion_s(weights) / limit) for each, limit in looks])))


def learned(algorithm: str, seed: int, looks: list[tuple[Window, float]]) -> Iterator[dict[str, float | str]]:
    """One run, a line per look."""
    torch.manual_seed(seed)
    gradient = Gradient(algorithm=algorithm, learning_rate=0.01, share=0.3, noise=0.4, horizon_s=43_200.0, rolls=ROLLS)
    chosen = KeyTraining(gradient=gradient)
    chosen = replace(chosen, run=replace(chosen.run, seed=seed), ppo=replace(chosen.ppo, minibatch=1024))
    policy = KeyPolicy(gradient.noise)
    ways, seen = optimizer(policy, chosen), 0.0
    for update in range(UPDATES + 1):
        if update:
            seen += step(policy, ways, window, shipped(), chosen, update)["moments"]
        if update % 5 == 0:
            yield {
                "algorithm": algorithm,
                "seed": seed,
                "update": update,
                "decisions": seen,
                "of_limit": round(of_limit(looks, policy.into(shipped())), 4),
            }


def lines() -> list[dict[str, float | str]]:
    """All runs."""
    torch.set_num_threads(1)
    windows = [window(np.random.default_rng([999, number])) for number in range(LOOKS)]
    looks = [(each, each.limit_s()) for each in windows]
    return [line for name in ALGORITHMS for seed in range(SEEDS) for line in learned(name, seed, looks)]


def main() -> None:
    """Writes the curves and prints the table."""
    found = lines()
    CURVES.write_text("".join(f"{json.dumps(line)}\n" for line in found), encoding="utf-8")
    updates = sorted({int(line["update"]) for line in found})
    print(f"{'algorithm':12s}" + "".join(f"{f'after {update}':>12s}" for update in updates) + "   (mean, seeds)")
    for name in ALGORITHMS:
        row = [
            np.mean([line["of_limit"] for line in found if line["algorithm"] == name and line["update"] == update])
            for update in updates
        ]
        last = [line["of_limit"] for line in found if line["algorithm"] == name and line["update"] == updates[-1]]
        print(f"{name:12s}" + "".join(f"{each:12.3f}" for each in row) + f"   {last}")


if __name__ == "__main__":
    main()
