"""A scheduler that is held: where it breaks, is late or hangs a rule decides in its place, and it says so. Where its
log cannot be written (a full disk) that is for a while.

It decides in a thread of its own, on a copy of the moment that is taken over when it answers in time. What comes late
is dropped with the copy; who has not answered at all is not asked again before it has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from sqlite3 import Error as SqliteError
from threading import Event, Thread
from typing import Self

import numpy as np

from hippo.jobs.joint.copies import WorldCopy
from hippo.jobs.joint.moment import Moment, Scheduler

REST_MOMENTS = 20
"""For so many moments the rule decides after a decision that came late, or a disk that could not be written."""
PASSING = (OSError, SqliteError)


@dataclass(eq=False)
class CopiedMoment:
    """A copy of the moments of one world, and what became of the decision on it."""

    of: Moment
    world: WorldCopy
    moment: Moment  # of the copy
    answered: Event = field(default_factory=Event)
    error: Exception | None = None

    @classmethod
    def of_moment(cls, moment: Moment) -> Self:
        """As it is now."""
        world = WorldCopy.of(moment.world)
        stops = bool(moment.sight.stops)
        own = Moment.of(world.copy, moment.workload, moment.site, moment.offers, stops=stops)
        return cls(moment, world, replace(own, counts=moment.counts.copy()))

    def follow(self) -> None:
        """Be as the moment is now."""
        self.world.restore()
        for mine, theirs in zip(self.moment.sight.past, self.of.sight.past, strict=True):
            mine[...] = theirs
        self.moment.rounds[:] = self.of.rounds[-1:]
        self.answered, self.error = Event(), None

    def take_over(self) -> None:
        """Let the moment be as the copy is."""
        for mine, theirs in self.world.pairs:
            np.copyto(theirs, mine)
        for mine, theirs in zip(self.moment.sight.past, self.of.sight.past, strict=True):
            theirs[...] = mine
        self.of.rounds[:] = self.moment.rounds[-1:]
        self.of.counts.clear()
        self.of.counts.update(self.moment.counts)

    def ask(self, what: Callable[[Moment], None]) -> None:
        """In a thread of its own."""
        try:
            what(self.moment)
        except Exception as error:  # whatever breaks in a policy must not break the site
            self.error = error
        self.answered.set()


@dataclass(eq=False)
class HeldScheduler:
    """``scheduler`` decides; where it breaks ``rule`` does from then on, where it is late for a while.

    ``holds``: nobody decides (no telemetry, or another mode than acting).
    """

    scheduler: Scheduler
    rule: Scheduler
    tell: Callable[[str], None]
    limit_s: float | None = 2.0  # None: it may take as long as it does
    holds: bool = False
    broken: bool = False
    rests: int = 0  # moments for which the rule goes on to decide
    _copied: CopiedMoment | None = None
    _hangs: Event | None = None  # set once the decision that came late has come

    @property
    def name(self) -> str:
        """Of who decides now."""
        return self.rule.name if self.why else self.scheduler.name

    @property
    def why(self) -> str:
        """Why the rule decides, in a sentence; empty: it does not."""
        name, rule = self.scheduler.name, self.rule.name
        if self.broken:
            return f"{name} broke; {rule} decides"
        if self._hangs is not None and not self._hangs.is_set():
            return f"{name} has not answered within {self.limit_s:g} s and hangs; {rule} decides until it answers"
        return f"{name} was late or could not write; {rule} decides for {self.rests} moments" if self.rests else ""

    def decide(self, moment: Moment) -> None:
        """At a moment."""
        if self.holds:
            return
        if self._hangs is not None and self._hangs.is_set():
            self._hangs = None
            self.tell(f"{self.scheduler.name} has answered too late, which is dropped")
        if self.broken or self._hangs is not None:
            self.rests = max(0, self.rests - 1)
        elif not self.rests:
            if (trial := self._asked(moment, "decide")) is not None:
                trial.take_over()
                return
        else:
            self.rests -= 1
            if hasattr(self.scheduler, "watch"):  # who keeps a log hears of what others decide
                self._asked(moment, "watch")
        self.rule.decide(moment)

    def _asked(self, moment: Moment, what: str) -> CopiedMoment | None:
        """The copy on which the scheduler has done what was asked; None: it broke, or has not answered in time."""
        copied, name = self._copied, self.scheduler.name
        if copied is None or copied.of.world is not moment.world or copied.of.sight is not moment.sight:
            if copied is not None:
                copied.follow()  # as that world stood at last, for who compares
            copied = self._copied = CopiedMoment.of_moment(moment)
        copied.follow()
        ask = partial(copied.ask, getattr(self.scheduler, what))
        Thread(target=ask, name=f"policy {name}", daemon=True).start()
        if not copied.answered.wait(self.limit_s):
            self._copied, self._hangs, self.rests = None, copied.answered, REST_MOMENTS
            self.tell(f"{name} took more than {self.limit_s:g} s; {self.rule.name} decides")
            return None
        if (error := copied.error) is not None:
            self._copied, passes = None, isinstance(error, PASSING)
            self.rests, self.broken = (REST_MOMENTS, False) if passes else (0, True)
            self.tell(f"{name} broke ({type(error).__name__}: {error}); {self.rule.name} decides")
            return None
        return copied
