"""A scheduler that is held: where it breaks or takes too long a rule decides in its place, and it says so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

from hippo.jobs.joint.moment import Moment, Scheduler

REST_MOMENTS = 20
"""For so many moments the rule decides after a decision that came late."""


@dataclass(eq=False)
class HeldScheduler:
    """``scheduler`` decides; where it breaks ``rule`` does from then on, where it is late for a while.

    ``holds``: nobody decides (no telemetry, or another mode than acting).
    """

    scheduler: Scheduler
    rule: Scheduler
    tell: Callable[[str], None]
    limit_s: float = 2.0
    holds: bool = False
    broken: bool = False
    rests: int = 0  # moments for which the rule goes on to decide

    @property
    def name(self) -> str:
        """Of who decides now."""
        return self.rule.name if self.broken or self.rests else self.scheduler.name

    def decide(self, moment: Moment) -> None:
        """At a moment."""
        if self.holds:
            return
        if self.broken or self.rests:
            self.rests = max(0, self.rests - 1)
            self.rule.decide(moment)
            return
        began_s = monotonic()
        try:
            self.scheduler.decide(moment)
        except Exception as error:  # whatever breaks in a policy must not break the site
            self.broken = True
            self.tell(f"{self.scheduler.name} broke ({type(error).__name__}: {error}); {self.rule.name} decides")
            self.rule.decide(moment)
            return
        if (took_s := monotonic() - began_s) > self.limit_s:
            self.rests = REST_MOMENTS
            self.tell(f"{self.scheduler.name} took {took_s:.1f} s; {self.rule.name} decides for {REST_MOMENTS} moments")
