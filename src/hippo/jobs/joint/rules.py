"""Schedulers by rule: what is published, and today's two halves glued together.

Each decides at every moment with the same offers, prices and telemetry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from hippo.jobs.engine import world as c
from hippo.jobs.joint.moment import Moment, Place

Order = Callable[[Moment, int], float]


def by_arrival(moment: Moment, job: int) -> float:
    """First come, first served."""
    return float(moment.workload.arrival_s[job])


def by_attained(moment: Moment, job: int) -> float:
    """Least GPU time had, in powers of two (Tiresias' queues, coarsely): what knows nothing of durations can do."""
    row = moment.world.job[job]
    had = (row[c.HELD] + 60.0) * moment.workload.devices[job]
    return float(int(had).bit_length())


@dataclass(frozen=True)
class Greedy:
    """Jobs in order; each begins where it is quickest now, never to be touched again."""

    name: str
    order: Order
    most_parts: int = c.MOST_PARTS
    least_share: float = 0.0  # a job waits unless it gets so much of the quickest that its sizes allow on an empty site

    def decide(self, moment: Moment) -> None:
        """Begin who can."""
        for job in sorted(moment.waiting.tolist(), key=lambda job: (-moment.workload.priority[job], self.order(moment, job), job)):
            begin(moment, job, self.most_parts)


def begin(moment: Moment, job: int, most_parts: int = c.MOST_PARTS) -> bool:
    """Begin a job where it is quickest now; False: nowhere."""
    if moment.world.mark[job, c.ELASTIC] == 0:
        return moment.start(job)
    return any(moment.begin(job, place) for place in moment.places(job, most_parts)[:1])


def cheapest(places: Iterable[Place], within: float) -> Place | None:
    """The one of fewest GPUs whose rate is within a share of the quickest."""
    found = list(places)
    if not found:
        return None
    most = max(each.rate for each in found)
    return min((each for each in found if each.rate >= within * most), key=lambda each: (each.gpus, -each.rate))
