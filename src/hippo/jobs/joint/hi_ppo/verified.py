"""The policy, verified by simulation: what it says at a moment is done in a copy of what is known and played ahead by a
rule, and so is what the rule says; the cheaper is carried out (a roll-out of the rule with the policy as prior:
Bertsekas, Tsitsiklis and Wu 1997). Where effort or time is spent before both are known the rule decides: the degraded
strategy.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from hippo.jobs.joint.hi_ppo.policy import HI_PPO, Answer, HiPpoScheduler
from hippo.jobs.joint.moment import Moment
from hippo.jobs.joint.receding_horizon import WorldAhead
from hippo.jobs.joint.rules import Ranked
from hippo.jobs.joint.settings import SLA_MORL, Tuned

ANSWER_EFFORT = 250.0
"""Of one answer of the policy, in moments that are played x jobs: 1 ms."""


@dataclass(frozen=True, eq=False)
class VerifiedScheduler:
    """The policy where, as far as anybody can know, it costs at most a share of ``lead`` more than the rule."""

    name: str = "hi_ppo_verified"
    summary: str = "hi_ppo's whole answer played ahead beside a rule's; the cheaper is done"
    source: str = "docs/theory.md, Verified by simulation"
    knows: str = "durations"
    preempts: bool = True
    learns: bool = True
    policy: HiPpoScheduler = field(default_factory=HiPpoScheduler)
    base: Tuned[Ranked] = SLA_MORL
    """Plays ahead; its own answer is the other candidate, and the degraded strategy."""
    draws: int = 0
    """Other answers of the policy that are tried, too, drawn as it thinks them likely."""
    lead: float = 0.01
    """Another answer must cost less than the policy's likeliest by more than this share (0 or more)."""
    horizon_s: float = 1e9
    """So far is played; what is left then counts as if undisturbed."""
    effort: float = 1e5
    """Moments that are played x jobs in the system, for all candidates: 3 to 5 us each."""
    deadline_s: float = 2.0
    """CPU seconds from the moment to what is carried out; none at the first moment of a play, which may compile."""
    clock: Callable[[], float] = time.process_time
    seed: int = 0  # of the draws

    def decide(self, moment: Moment) -> None:
        """Verify the policy's answer; do it, or as the rule says."""
        if not self.policy.has_learned(moment):
            self.policy.decide(moment)
            return
        counts, ends_s = moment.counts, self.clock() + self.deadline_s
        counts["moments"] += 1
        first = counts["moments"] == 1
        answers = self._verified(moment, lambda: first or self.clock() < ends_s)
        if answers is None:
            self.base.decide(moment)
        self.policy.repeat(moment, answers or ())

    def _verified(self, moment: Moment, on_time: Callable[[], bool]) -> list[Answer] | None:
        """What the policy says and is to be done; None: what the rule says is."""
        ahead, counts, base = WorldAhead.of(moment), moment.counts, self.base.at(moment.sight.stops)
        ahead.carry_out(self.base.decide)
        ruled = [each.copy() for each in ahead.stands]
        if counts["moments"] == 1:
            ahead.cost(base, 1.0)  # has it loaded before time counts
        said, left = self._said(ahead, None, on_time), self.effort
        if not self.draws and all(map(np.array_equal, ahead.stands, ruled)):
            return said
        usual, spent = ahead.cost(base, left, horizon_s=self.horizon_s, on_time=on_time)
        left -= spent + ANSWER_EFFORT * len(said)
        ahead.carry_out(self.base.decide)
        ruled_cost, spent = ahead.cost(base, left, horizon_s=self.horizon_s, on_time=on_time)
        left -= spent
        if left <= 0.0:
            counts["degraded"] += 1
            return None
        counts["verified"] += 1
        best: list[Answer] | None = said
        least = usual
        if ruled_cost < usual * (1.0 - self.lead):
            best, least = None, ruled_cost
        for draw in range(self.draws):
            rng = np.random.default_rng([self.seed, counts["moments"], draw])
            tried = self._said(ahead, rng, on_time)
            cost, spent = ahead.cost(base, left, horizon_s=self.horizon_s, on_time=on_time)
            left -= spent + ANSWER_EFFORT * len(tried)
            if left <= 0.0:
                break
            if cost < min(least, usual * (1.0 - self.lead)):
                best, least = tried, cost
        counts["changed"] += best is not said
        return best

    def _said(self, ahead: WorldAhead, rng: np.random.Generator | None, on_time: Callable[[], bool]) -> list[Answer]:
        """The policy's answer, done in the copy; where it is late, a part of it."""
        found = list[Answer]()

        def decide(moment: Moment) -> None:
            for answer in self.policy.answers(moment, rng):
                found.append(answer)
                if not on_time():
                    break

        ahead.carry_out(decide)
        return found


HI_PPO_VERIFIED = VerifiedScheduler(policy=HI_PPO)
