"""Meeting networks of a kind never seen: a start from which few updates suffice.

Such a start is learned on other kinds of networks, all at once (``learned`` on a dataset of many families: in every
update each family has its part), or by *Reptile* (Nichol, Achiam, Schulman 2018, algorithm 2): over and over, a copy
learns one family for a few updates, and the start moves part of the way towards it::

    theta <- theta + rate (theta' - theta),   rate falling linearly to a tenth

On the new kind the policy learns on from there (``learned`` again). ``benchmarks/adaptation.py`` says what it is worth.

Letters: W worlds.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from hippo.learn.distributed import Place
from hippo.network.env.dataset import Dataset
from hippo.network.train.learner import UpperLearner
from hippo.network.train.rollout import decide
from hippo.network.train.settings import HiPpoSettings
from hippo.network.train.train import begun, network
from hippo.network.train.upper_network import GlobalAgent
from hippo.network.train.worlds import played, shares

LEAST_RATE = 0.1  # of the first, at the last round


@dataclass(frozen=True)
class Reptile:
    """How a start is sought."""

    rounds: int = 12
    inner: int = 4  # updates of a copy on one family
    rate: float = 0.5  # of the way, at first


def beginning(settings: HiPpoSettings, *, prior: bool, seed: int) -> GlobalAgent:
    """A new policy: with the habits of a planner (``train.begun``), or without (``prior`` False), of random weights."""
    torch.manual_seed(seed)
    scale = settings.network.worth_scale if prior else 0.0
    return begun(GlobalAgent(network(replace(settings, network=replace(settings.network, worth_scale=scale)))))


def learned(
    start: GlobalAgent, dataset: Dataset, settings: HiPpoSettings, *, updates: int, seed: int
) -> Iterator[GlobalAgent]:
    """The policy before and after each of so many updates in the worlds of a dataset; ``start`` is left as it is.

    The yielded policy is always the same object: use it before the next is asked for.
    """
    policy = copy.deepcopy(start)
    own = replace(settings, run=replace(settings.run, seed=seed))
    torch.manual_seed(seed)
    learner = UpperLearner(policy, shares(dataset, own, range(own.run.shares)), own, Place())
    yield policy
    for number in range(updates):
        learner.learn(number / updates)
        yield policy


def last(policies: Iterator[GlobalAgent]) -> GlobalAgent:
    """What is left at the end of ``learned``."""
    *_, found = policies
    return found


def reptile(
    start: GlobalAgent, families: Mapping[str, Dataset], settings: HiPpoSettings, how: Reptile, *, seed: int
) -> GlobalAgent:
    """A start for families like these; ``start`` is left as it is."""
    found, names = copy.deepcopy(start), sorted(families)
    rng = np.random.default_rng((seed, 5))
    for number in range(how.rounds):
        name, own = names[int(rng.integers(len(names)))], int(rng.integers(2**31))
        there = last(learned(found, families[name], settings, updates=how.inner, seed=own))
        rate = how.rate * (1.0 - (1.0 - LEAST_RATE) * number / max(1, how.rounds - 1))
        with torch.no_grad():
            for mine, other in zip(found.parameters(), there.parameters(), strict=True):
                mine.lerp_(other, rate)
    return found


def of_hindsight(policy: GlobalAgent, dataset: Dataset) -> NDArray[np.float64]:
    """Share of perfect hindsight's work in every world of a dataset, (W,), its favourite options taken."""
    return played(dataset, lambda seen: np.asarray(decide(policy, seen, None)[0]))


def chosen(dataset: Dataset, rows: Sequence[int] | NDArray[np.int64]) -> Dataset:
    """Some worlds of a dataset; the tables are shared."""
    rows = np.asarray(rows, dtype=np.int64)
    names = ("offset", "shape", "names", "families")
    return dataset._replace(**{name: getattr(dataset, name)[rows] for name in names})
