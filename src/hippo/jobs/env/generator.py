"""Workloads to learn on: runs of jobs cut from traces, at a drawn load."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hippo.errors import InputError
from hippo.jobs.site import Site
from hippo.jobs.workload import Workload


@dataclass(frozen=True, eq=False)
class Cuts:
    """Draws workloads.

    Parameters
    ----------
    traces
        Cut from, each as often as the others.
    site
        The load is one of this site.
    jobs
        In a row, of every cut.
    load
        Least and most; arrivals are stretched to a load drawn between them. None: as they are.
    """

    traces: tuple[Workload, ...]
    site: Site
    jobs: int = 400
    load: tuple[float, float] | None = (0.6, 1.1)

    def __post_init__(self) -> None:
        if not self.traces or min(len(trace) for trace in self.traces) < self.jobs:
            shortest = min((len(trace) for trace in self.traces), default=0)
            remedy = f"ask for cuts of at most {shortest} jobs, or give a longer trace"
            raise InputError("a trace is shorter than a cut", source="cuts", key="jobs", value=self.jobs, remedy=remedy)

    def draw(self, rng: np.random.Generator) -> Workload:
        """One cut; its clock starts at its first arrival."""
        trace = self.traces[int(rng.integers(len(self.traces)))]
        first = int(rng.integers(len(trace) - self.jobs + 1))
        cut = trace.take(np.arange(first, first + self.jobs)).part(0.0, 1.0)
        found = cut.load(self.site)
        if self.load is None or not np.isfinite(found):
            return cut
        return cut.stretched(found / rng.uniform(*self.load))
