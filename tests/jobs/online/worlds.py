"""A learner that learns nothing but to count, and a site that always has something to decide."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from hippo.errors import InputError
from hippo.jobs.job import Job
from hippo.jobs.online.learner import JobHistory
from hippo.jobs.online.log import Ended
from hippo.jobs.online.loop import LiveMoment, News
from hippo.jobs.workload import JobWorkload

SHAPE, ACTIONS = (3,), 3


@dataclass(frozen=True)
class Fixed:
    """Takes one action, and claims that every job ends so many seconds after it came."""

    takes_s: float
    action: int = 0

    def probabilities(self, observation: np.ndarray, mask: np.ndarray) -> np.ndarray:
        chances: np.ndarray = np.where(mask, 0.1, 0.0)
        chances[self.action if mask[self.action] else np.argmax(mask)] += 1.0
        return chances / chances.sum()

    def finishes(self, workload: JobWorkload) -> np.ndarray:
        return workload.arrival_s + self.takes_s


@dataclass(frozen=True)
class Counting:
    """Weights: one number, the seconds that a job takes. An update makes it ``step_s`` less."""

    step_s: float = 10.0
    breaks: bool = False
    sleeps_s: float = 0.0
    size: int = 1

    def policy(self, weights: np.ndarray) -> Fixed:
        return Fixed(float(weights[0]), action=1)

    def update(self, weights: np.ndarray, history: JobHistory) -> np.ndarray:
        time.sleep(self.sleeps_s)
        if self.breaks:
            raise ZeroDivisionError("no luck")
        return weights - self.step_s

    def packed(self, weights: np.ndarray) -> bytes:
        stream = io.BytesIO()
        np.save(stream, weights)
        return stream.getvalue()

    def unpacked(self, content: bytes, source: str) -> np.ndarray:
        found: np.ndarray = np.load(io.BytesIO(content))
        if found.shape != (self.size,):
            raise InputError(f"weights of another shape: {found.shape}", source=source, remedy="give another file")
        return found


@dataclass
class Steady:
    """A job comes every 1000 s and ends ``takes_s`` later; a decision at every arrival."""

    moments: int
    first: int = 0
    takes_s: float = 50.0
    ends: bool = True
    actions: list[int] = field(default_factory=list)
    watch: Callable[[int], None] = lambda number: None

    def look(self) -> LiveMoment | None:
        number = self.first + len(self.actions)
        if len(self.actions) == self.moments:
            return None
        self.watch(number)
        now = 1000.0 * number
        came = (Job(f"job {number}", now, 1e9),)
        ended = (Ended(f"job {number - 1}", now - 1000.0 + self.takes_s, 5.0),) if number and self.ends else ()
        seen = np.full(SHAPE, number, np.float32)
        return LiveMoment(now, seen, np.array([True, number % 2 == 0, True]), -1.0, came, ended)

    def carry_out(self, action: int) -> None:
        self.actions.append(action)

    def rest(self) -> News:
        """The last job, a while later."""
        number = self.first + len(self.actions) - 1
        return News(1000.0 * number + 900.0, -2.0, (), (Ended(f"job {number}", 1000.0 * number + self.takes_s, 5.0),))
