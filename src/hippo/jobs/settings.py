"""Rules of a replay that are no policy's: what a stop costs, when data moves, what fails."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hippo.errors import InputError, UnknownNameError

MOST_TIMES_LONGER = 1000.0
"""A job whose nodes fail so often, or are up together so seldom, that it would take longer than this many times its
duration is refused."""

MOST_GROUPS = 6
"""Groups of jobs that may use different pools; beyond, all share alike."""

MOST_SEED = 2**63 - 1
SPANS = ("never", "must", "free")
DATA = ("before", "while")


@dataclass(frozen=True)
class Failures:
    """Nodes fail, each on its own, after an exponential time; what a job did since its last checkpoint is lost."""

    mtbf_s: float  # mean time between failures of one node
    repair_s: float = 3600.0  # a node is away for this long
    checkpoint_every_s: float = 1800.0  # of a job's running time

    def __post_init__(self) -> None:
        for key in ("mtbf_s", "repair_s", "checkpoint_every_s"):
            value = getattr(self, key)
            if not (math.isfinite(value) and value > 0):
                remedy = "write seconds above 0"
                raise InputError("not a time", source="failures", key=key, value=value, remedy=remedy)

    def times_longer(self, work_s: float, nodes: int, restart_s: float) -> float:
        """How many times as long a job on so many nodes is expected to take, for work lost and done again.

        A stretch between checkpoints (and the restart before it) of s seconds takes M (exp(s / M) - 1) on average
        where a failure comes every M (Daly, A higher order estimate of the optimum checkpoint interval, 2006).
        """
        between_s, stretch_s = self.mtbf_s / nodes, min(self.checkpoint_every_s, work_s)
        return between_s * math.expm1(min((stretch_s + restart_s) / between_s, 700.0)) / stretch_s

    def share_up(self, nodes: int, of: int) -> float:
        """Share of the time in which at least ``nodes`` of ``of`` nodes are up, each on its own (binomial)."""
        if nodes > of:
            return 0.0
        up = math.log(self.mtbf_s / (self.mtbf_s + self.repair_s))
        down = math.log(self.repair_s / (self.mtbf_s + self.repair_s))
        ways = (math.lgamma(of + 1) - math.lgamma(n + 1) - math.lgamma(of - n + 1) for n in range(nodes, of + 1))
        return math.fsum(
            math.exp(way + n * up + (of - n) * down) for n, way in zip(range(nodes, of + 1), ways, strict=True)
        )


@dataclass(frozen=True, eq=False)
class Tenants:
    """Who else uses the devices: at each of A instants they take some of a node (negative: give them back).

    Jobs are stopped where there is no other room; more than a node has, or gives back, is not taken.
    """

    time_s: NDArray[np.float64]  # (A,) ascending
    node: NDArray[np.int64]  # (A,) counted through all pools
    devices: NDArray[np.int64]  # (A,)


@dataclass(frozen=True)
class ReplayRules:
    """How a replay runs."""

    restart_s: float = 30.0
    """Seconds that each resumption after a stop takes before work goes on (>= 0)."""
    span: str = "must"
    """Whether a job runs over several domains: never, only if it is larger than each (must), or if that starts it now
    (free)."""
    data: str = "while"
    """Whether a job computes while its data moves, or holds its devices and waits for all of it before."""
    failures: Failures | None = None
    seed: int = 0
    """Draws the failures (0 to ``MOST_SEED``)."""
    stops: bool = True
    """Whether who decides may stop running jobs, or move them; failures and tenants stop them in any case."""
    round_s: float = 360.0
    """Length of a round of policies that decide in rounds (Gavel: 6 minutes)."""

    def __post_init__(self) -> None:
        if self.span not in SPANS:
            raise UnknownNameError("way to span", self.span, SPANS, source="settings", key="span")
        if self.data not in DATA:
            raise UnknownNameError("way to move data", self.data, DATA, source="settings", key="data")
        if not 0 <= self.seed <= MOST_SEED:
            remedy = f"write a whole number from 0 to {MOST_SEED}"
            raise InputError("no seed", source="settings", key="seed", value=self.seed, remedy=remedy)
        if not (math.isfinite(self.restart_s) and self.restart_s >= 0):
            remedy = "write seconds, 0 or more"
            raise InputError("not a time", source="settings", key="restart_s", value=self.restart_s, remedy=remedy)
        if not (math.isfinite(self.round_s) and self.round_s > 0):
            remedy = "write seconds above 0"
            raise InputError("not a time", source="settings", key="round_s", value=self.round_s, remedy=remedy)
