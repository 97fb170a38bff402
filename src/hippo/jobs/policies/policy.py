"""What a policy is: a key that ranks jobs, and what it may do with the ranking. Data: the engine does the rest."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hippo.jobs.workload import JobWorkload

Column = Callable[[JobWorkload], NDArray[np.float64]]
"""A number (n,) of each job, all of which are known when the job comes."""

LAST = 1e300
"""A key behind all others (infinite ones rank like it)."""


@dataclass(frozen=True)
class Key:
    """The number that ranks a job, smallest first, ties by arrival::

        known + factor x (remaining x work left + expected x work left by the estimate + attained x work done
                          + served x service so far + level x levels crossed
                          + in_turn x turn)

    Work is in seconds on devices of speed 1. While a job waits its key stands still, but for what ``by_user`` and
    ``by_share`` add to the keys of all jobs of a user or a group of pools alike.
    """

    known: Column | None = None  # None: 0
    factor: Column | None = None  # None: 1
    remaining: float = 0.0  # clairvoyant
    expected: float = 0.0  # by the submitter's estimate, else the duration; never below 0
    attained: float = 0.0
    served: float = 0.0  # work that its devices could have done, restarts and waiting for data included
    level: float = 0.0  # see ``QueuePolicy.levels``
    in_turn: float = 0.0  # its turn, of -0.5 to 0.1: who runs, then who has run, each by when it went on in its queue
    # (of ``QueuePolicy.levels``) last, then who has not run there, by when it came; there, too, who comes while it runs
    by_user: bool = False  # plus the device-seconds that its user has had
    by_share: bool = False  # less what it has been entitled to since it came, at an equal share for all jobs


@dataclass(frozen=True)
class QueuePolicy:
    """Ranks the jobs that want to run by its key, and may do the following with the ranking."""

    name: str
    summary: str  # one sentence
    knows: str  # "nothing", "estimates" (the submitters') or "durations" (clairvoyant)
    key: Key = Key()
    source: str = ""  # paper
    preempts: bool = False
    strict: bool = False  # nobody passes a head that does not fit
    rounds: bool = False  # stops jobs at ends of rounds only
    levels: tuple[float, ...] = ()  # of attained service, ascending, at which a running job gets a new key
    per_device: bool = True  # levels count device-seconds, else seconds
    promotes_after: float = math.inf  # a stopped job begins at the first level again after so many times its service
    backfills: bool = False  # EASY: in order of arrival; by their keys (estimates) others may pass a head
    patience_s: float = 0.0  # without an end in sight a head may be passed for so long
    learns: bool = False  # its key is that of ``jobs.learned``, not ``key``
    refresh_s: float = 0.0  # keys of a policy that learns are worked out again this often
    for_deadlines: bool = False  # the learned key is that for jobs with deadlines

    def __post_init__(self) -> None:
        assert self.knows in ("nothing", "estimates", "durations")
        assert list(self.levels) == sorted(self.levels)
