"""Epochs of worlds a CPU second of the whole PPO loop passes, graph network and all, and where the time goes.

Four prepared worlds of 240 to 288 epochs (or a dataset named on the command line): the loop does the same
work whatever their tables say. CPU seconds of one process, one thread, compiled kernels loaded beforehand.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from time import process_time

import numpy as np
import torch

from hippo.learn.distributed import Place
from hippo.network.env.dataset import Dataset, load, make_dataset
from hippo.network.train.learner import UpperLearner
from hippo.network.train.rollout import collect
from hippo.network.train.settings import HiPpoSettings
from hippo.network.train.train import begun, network
from hippo.network.train.upper_network import GlobalAgent
from hippo.network.train.worlds import shares

ASKED = 2000
WORLDS = (("transient", 1), ("lasting", 1), ("regimes", 2), ("day", 1))


def dataset() -> Dataset:
    """The dataset named on the command line, or four worlds prepared now."""
    return load(Path(sys.argv[1])) if len(sys.argv) > 1 else make_dataset(WORLDS)


def learner(worlds: Dataset, settings: HiPpoSettings) -> UpperLearner:
    """A learner at its start."""
    torch.manual_seed(0)
    own = shares(worlds, settings, range(settings.run.shares))
    return UpperLearner(begun(GlobalAgent(network(settings))), own, settings, Place())


def main() -> None:
    """Prints the table."""
    torch.set_num_threads(1)
    worlds = dataset()
    print(f"{'PPO loop':34s} {'asked':>10s} {'measured':>10s} {'roll-outs':>10s} {'decisions/update':>17s}")
    for encoder in ("sage", "gatv2", "none"):
        settings = HiPpoSettings(network=replace(HiPpoSettings().network, encoder=encoder))
        mine = learner(worlds, settings)
        mine.learn(0.0)  # loads the compiled kernels
        told = [mine.learn(0.0) for _ in range(3)]
        began = process_time()
        roll = collect(mine.policy, mine.shares[0], mine.steps)
        alone = float(roll.epochs.sum()) / (process_time() - began)
        pace = float(np.median([each.count / each.cpu_s for each in told]))
        asked = f">= {ASKED:,}"
        words = f"{encoder}, {settings.network.hidden} features, epochs/CPU s"
        print(f"{words:34s} {asked:>10s} {pace:10,.0f} {alone:10,.0f} {mine.settings.ppo.steps_per_update:17,d}")


if __name__ == "__main__":
    main()
