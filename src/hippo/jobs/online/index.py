"""The index policy for the loop: what like jobs have lasted ranks jobs.

Weights are the networks of ``jobs.learned`` and the jobs of the past that its tables are filled from. The tables go on
by themselves with every job that ends, as in ``hippo jobs replay --policy learned``; an update begins them anew from
recent history alone. ``frozen``: they stand still, for comparison.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hippo.jobs.engine import columns as c
from hippo.jobs.engine.opening import Opening, open_world
from hippo.jobs.engine.play import STRIDE, run
from hippo.jobs.learned.arrays import Learner as Starts
from hippo.jobs.learned.handle import state_of
from hippo.jobs.learned.memory import Memory
from hippo.jobs.learned.past import BINS, EDGES_S
from hippo.jobs.learned.weights import Weights, packed, unpacked, untrained
from hippo.jobs.online.learner import History
from hippo.jobs.policies.learned import LEARNED
from hippo.jobs.settings import Settings
from hippo.jobs.site import Site
from hippo.jobs.workload import Workload
from hippo.learn.weights import Form

Floats = NDArray[np.float64]
INDEX = Form("policy of an online loop", {}, "give one that the loop wrote")
STILL = 1e6  # the past counts so many times, so that what comes does not move it


@dataclass(frozen=True, eq=False)
class Index:
    """What was learned. ``past``: on a clock that ends where it is used; see ``Learner.past`` of ``jobs.learned``."""

    weights: Weights
    past: Workload


@dataclass(frozen=True, eq=False)
class IndexPolicy:
    """The policy of an ``Index`` on a site."""

    index: Index
    site: Site
    settings: Settings
    frozen: bool = False

    def opened(self, workload: Workload) -> Opening:
        """A world under it, before the first arrival."""
        past = self.index.past if len(self.index.past) else None
        starts = Starts(weights=self._weights(), past=past)
        opening = open_world(workload, self.site, LEARNED, self.settings, learner=starts)
        self._still(state_of(opening.world.learned))
        return opening

    def memory(self, workload: Workload) -> Memory:
        """What ranks jobs of a workload, before the first arrival."""
        opening = self.opened(workload)
        return state_of(opening.world.learned)

    def finishes(self, workload: Workload) -> Floats:
        """(n,) when the jobs end; inf where the site refuses one."""
        world = self.opened(workload).world
        while run(world, STRIDE):
            pass
        return np.where(world.mark[:, c.STATUS] == c.DONE, world.job[:, c.FINISH], np.inf)

    def probabilities(self, observation: NDArray[np.float32], mask: NDArray[np.bool_]) -> Floats:
        """Not from a moment: it ranks whole queues (``handover``)."""
        raise NotImplementedError

    def _weights(self) -> Weights:
        weights = self.index.weights
        if not self.frozen:
            return weights
        return weights._replace(keep=np.ones_like(weights.keep), pseudo=STILL * weights.pseudo)

    def _still(self, memory: Memory) -> None:
        if self.frozen:
            memory.history.deaths[:] *= STILL
            memory.history.exposed[:] *= STILL


@dataclass(frozen=True, eq=False)
class IndexLearner:
    """Updates refill the tables from recent history, and the prior of jobs of which nothing is known."""

    site: Site
    settings: Settings
    most_jobs: int = 2000
    frozen: bool = False

    def first(self, past: Workload, networks: Weights | None = None) -> Index:
        """Of jobs whose durations are known. Without ``networks``: the estimate from the tables alone."""
        weights = untrained() if networks is None else networks
        return Index(weights._replace(prior=prior(past.duration_s)), past)

    def policy(self, weights: Index) -> IndexPolicy:
        """As it serves."""
        return IndexPolicy(weights, self.site, self.settings, self.frozen)

    def update(self, weights: Index, history: History) -> Index:
        """From the jobs that came last and have ended."""
        rows = np.flatnonzero(history.ended)[-self.most_jobs :]
        past = history.workload.take(rows)
        past = replace(past, arrival_s=past.arrival_s - past.arrival_s[0], deadline_s=np.full(len(past), np.inf))
        # as if long ago: every one of them has ended, none is a survivor
        span_s = float(past.duration_s.max())
        past = replace(past, arrival_s=np.append(past.arrival_s[:-1], past.arrival_s[-1] + span_s))
        return Index(weights.weights._replace(prior=prior(past.duration_s)), past)

    def packed(self, weights: Index) -> bytes:
        """The bytes of a file: the networks as a file of their own, and the columns of the past."""
        past = weights.past
        columns: dict[str, Any] = {name: getattr(past, name) for name in ("arrival_s", "duration_s", "devices", "user")}
        networks = np.frombuffer(packed(weights.weights), np.uint8)
        return INDEX.packed({"networks": networks, "users": np.array(past.users), **columns})

    def unpacked(self, content: bytes, source: str) -> Index:
        """Raises ``InputError`` when it is something else, damaged, or of another shape."""
        stored, _ = INDEX.unpacked(content, source)
        try:
            networks = stored["networks"].tobytes()
            columns = {name: stored[name] for name in ("arrival_s", "duration_s", "devices", "user")}
            past = Workload.of_columns(columns, users=tuple(stored["users"].tolist()))
        except (KeyError, ValueError, TypeError, IndexError):
            raise INDEX.wrong(source) from None
        return Index(unpacked(networks, source), past)


def prior(duration_s: Floats) -> Floats:
    """Hazards (B,) of jobs of which nothing is known, from durations that are; a tenth of a death in each bin more."""
    ends = np.bincount(np.searchsorted(EDGES_S, duration_s, side="right"), minlength=BINS).astype(np.float64)
    entered = ends[::-1].cumsum()[::-1]
    return (ends + 0.1) / (entered + 1.0)
