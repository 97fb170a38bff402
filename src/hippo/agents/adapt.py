"""Meeting a network of a kind never seen: a start from which few updates suffice (spec A17).

Two ways to such a start, compared in ``benchmarks/adaptation.py``. *Joint*: one policy learns all known families at
once (``train_construct.learn``), then learns on. *Reptile* (Nichol, Achiam, Schulman 2018, algorithm 2): over and over,
a copy learns one family for a few updates, and the start moves part of the way towards it::

    theta <- theta + rate (theta' - theta),   rate falling linearly to a tenth

so the start ends near where every family's own optimum is within reach.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from hippo.agents.construction_networks import Builders
from hippo.agents.constructor import draft_all
from hippo.agents.train_construct import Construction, Spot, TorchBrain, learn, one_update, optimizers_of

LEAST_RATE = 0.1  # of the first, at the last round


@dataclass(frozen=True)
class Reptile:
    """How a start is sought."""

    rounds: int = 40
    inner: int = 4  # updates of a copy on one family
    rate: float = 0.5  # of the way, at first


def reptile(
    start: Builders, families: Mapping[str, Sequence[Spot]], construction: Construction, how: Reptile, *, seed: int
) -> Builders:
    """A start for families like these; ``start`` is left as it is."""
    found, names = copy.deepcopy(start), sorted(families)
    rng, plan = np.random.default_rng((seed, 5)), replace(construction, updates=how.inner)
    for number in range(how.rounds):
        name = names[int(rng.integers(len(names)))]
        learned = copy.deepcopy(found)
        learn(learned, families[name], plan, seed=int(rng.integers(2**31)), minutes=0.0)
        rate = how.rate * (1.0 - (1.0 - LEAST_RATE) * number / max(1, how.rounds - 1))
        with torch.no_grad():
            for here, there in zip(found.parameters(), learned.parameters(), strict=True):
                here.lerp_(there, rate)
    return found


def adapting(
    start: Builders, spots: Sequence[Spot], construction: Construction, *, updates: int, seed: int
) -> Iterator[Builders]:
    """The policy before and after each of so many updates on sites of a new family; ``start`` is left as it is."""
    found, rng = copy.deepcopy(start), np.random.default_rng((seed, 6))
    optimizers = optimizers_of(found, construction)
    yield found
    for _ in range(updates):
        chosen = rng.choice(len(spots), size=min(construction.sites, len(spots)), replace=False)
        one_update(found, optimizers, [spots[at] for at in chosen], construction, rng)
        yield found


def step_times(builders: Builders, spots: Sequence[Spot]) -> NDArray[np.float64]:
    """Step times, (sites,), of the plans that the policy is surest of; inf: none came of it."""
    sure = np.ones(len(spots), dtype=bool)
    drafted = draft_all(TorchBrain(builders), [spot.site for spot in spots], np.random.default_rng(0), greedy=sure)
    return np.array([spot.step_time_s(draft) for spot, draft in zip(spots, drafted.drafts, strict=True)])
