"""Methods without learning, tuned on the training networks: share of perfect hindsight's work per setting.

Horizon and margin of the receding horizon, margin and dwell of the hysteresis; mean and least over worlds of the train
split (the test split is never used for this). The rows with a star are what ships.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from hippo.network.methods.hysteresis import Dwell, Hysteresis
from hippo.network.methods.receding_horizon import Horizon, RecedingHorizon
from hippo.network.rules.view import Method
from hippo.network.worlds.generator import make_world
from hippo.network.worlds.judge import Scenario, judge, scenario_of
from hippo.network.worlds.play import play

FAMILIES = ("regimes", "lasting", "day", "halving", "outage", "link_bound", "transient", "stragglers")
SEEDS = range(2)
HORIZONS = tuple(product((32.0, 64.0, 1e9), (0.0, 0.1, 0.2, 0.4, 1.0)))  # epochs, margin
DWELLS = tuple(product((0.1, 0.2, 0.35), (2, 4, 8, 16)))  # margin, epochs


def rivals() -> Iterator[tuple[str, bool, Method]]:
    """Every setting: its name, whether it ships, and a method that has it."""
    for epochs, margin in HORIZONS:
        horizon = Horizon(epochs, margin)
        yield f"receding horizon, {epochs:g} epochs, margin {margin:g}", horizon == Horizon(), RecedingHorizon(horizon)
    for share, epochs_in_a_row in DWELLS:
        dwell = Dwell(share, epochs_in_a_row)
        yield f"hysteresis, margin {share:g}, {epochs_in_a_row} epochs", dwell == Dwell(), Hysteresis(dwell)


def shares(setting: Scenario) -> Iterator[tuple[str, float]]:
    """Work of every setting as a share of hindsight's on one world."""
    for name, ships, method in rivals():
        run = play(setting.world, setting.cache, method, setting.terms, forecasts=setting.forecasts)
        share = judge(setting, [run]).of_hindsight(method.name)
        yield f"{'*' if ships else ' '} {name}", 0.0 if share is None else share


def main() -> None:
    """Prints the table."""
    table: dict[str, list[float]] = {}
    for family, seed in product(FAMILIES, SEEDS):
        for name, share in shares(scenario_of(make_world(family, seed))):
            table.setdefault(name, []).append(share)
    print(f"{'setting':52s} {'mean':>7s} {'least':>7s}")
    for name, found in table.items():
        print(f"{name:52s} {np.mean(found):7.4f} {np.min(found):7.4f}")


if __name__ == "__main__":
    main()
