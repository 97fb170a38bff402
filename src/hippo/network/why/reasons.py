"""Why a decision was taken while the network moves, as data: what crossed which threshold, what was changed,
what it is expected to be worth, and what keeping would have cost.

The same shape as ``decide.reasons``: a kind, a subject, figures with their units in their names, a sentence. They are
collected by ``hippo.network.why.explain``; docs/networks.md lists the kinds.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import ClassVar

from hippo.decide.reasons import Reason
from hippo.decide.wording import capital, count, duration, gb, gbps, listed, number, percent, seconds

LEAST_SAID = 0.0005
"""Shares below this one would be printed as 0.0 %."""


@dataclass(frozen=True)
class LinkMoved(Reason):
    """A link's bandwidth or latency moved past a threshold since the last decision; ``subject`` is ``a -> b``."""

    kind: ClassVar[str] = "link_moved"
    quantity: str  # "bandwidth" or "latency"
    before: float  # at the last decision, bytes/s or s
    actual: float
    usual: float  # the link's base
    expected: float  # at the end of the forecast, or of the run where that is before
    expected_in_s: float
    threshold_share: float  # of ``before``
    traffic_share: float  # of what runs now: of the link, 0 where nothing is sent over it

    def _said(self) -> str:
        tell = gbps if self.quantity == "bandwidth" else seconds
        way = "fell" if self.actual < self.before else "rose"
        head = (
            f"{capital(self.quantity)} of {self.subject} {way} from {tell(self.before)} to {tell(self.actual)}, "
            f"past the threshold of {percent(self.threshold_share)}"
        )
        of_usual = f"{percent(self.actual / self.usual)} of its usual {tell(self.usual)}" if self.usual > 0 else ""
        ahead = f"{tell(self.expected)} expected in {duration(self.expected_in_s)}" if self.expected_in_s > 0 else ""
        carries = f"training takes {percent(self.traffic_share)} of it" if self.traffic_share > LEAST_SAID else ""
        return f"{head} ({'; '.join(part for part in (of_usual, carries, ahead) if part)})."


@dataclass(frozen=True)
class LoadMoved(Reason):
    """The load of others in a domain moved past the threshold: its operations take longer, or no longer."""

    kind: ClassVar[str] = "load_moved"
    before: float  # factor on the length of operations
    actual: float
    threshold_share: float

    def _said(self) -> str:
        return (
            f"Operations in {self.subject} take {self._against_usual(self.actual)} (before: "
            f"{self._against_usual(self.before)}), past the threshold of {percent(self.threshold_share)}."
        )

    @staticmethod
    def _against_usual(factor: float) -> str:
        if not isfinite(factor):
            return "for ever: nobody answers"
        if abs(factor - 1.0) < LEAST_SAID:
            return "as long as usual"
        return f"{percent(abs(factor - 1.0))} {'longer' if factor > 1 else 'less'} than usual"


@dataclass(frozen=True)
class FellBehind(Reason):
    """What runs fell behind the best configuration that is known; ``subject`` describes that one."""

    kind: ClassVar[str] = "fell_behind"
    before_share: float  # tokens/s of what runs over those of the best, at the last decision
    actual_share: float
    threshold_share: float  # of ``before_share``

    def _said(self) -> str:
        return (
            f"What runs does {percent(self.actual_share)} of what is best now, {self.subject} (at the last decision: "
            f"{percent(self.before_share)} of what was best then), past the threshold of "
            f"{percent(self.threshold_share)}."
        )


@dataclass(frozen=True)
class Lost(Reason):
    """Links that went down; ``subject`` names them, or the domain that all of them belong to."""

    kind: ClassVar[str] = "lost"
    links: tuple[str, ...]
    domain: bool  # the whole domain
    needed: bool  # by what runs

    def _said(self) -> str:
        who = f"Domain {self.subject}" if self.domain else self.subject
        verb = "is" if self.domain or len(self.links) == 1 else "are"
        need = "what runs needs it and stands still" if self.needed else "what runs does without"
        return f"{who} {verb} down: {need}. Nothing that needs {'it' if verb == 'is' else 'them'} is chosen."


@dataclass(frozen=True)
class Back(Reason):
    """Links that are up again."""

    kind: ClassVar[str] = "back"
    links: tuple[str, ...]

    def _said(self) -> str:
        return f"{self.subject} {'is' if len(self.links) == 1 else 'are'} up again."


@dataclass(frozen=True)
class Stale(Reason):
    """Telemetry that did not arrive: the decision rests on the forecast."""

    kind: ClassVar[str] = "stale"
    links: tuple[str, ...]
    oldest_s: float  # age of the oldest value
    believed_bytes_per_s: tuple[float, ...]  # by the forecast, a link each

    def _said(self) -> str:
        told = [f"{link} {gbps(rate)}" for link, rate in zip(self.links, self.believed_bytes_per_s, strict=True)][:3]
        more = f" and {count(len(self.links) - 3, 'more link')}" if len(self.links) > 3 else ""
        return (
            f"No news of {self.subject} (the oldest value is {duration(self.oldest_s)} old): decided on the forecast, "
            f"{listed(told) if not more else ', '.join(told) + more}."
        )


PROPOSERS = {
    **{"anew": "re-planning", "constructed": "the agents"},
    **{"front": "the search for the front", "lever": "a lever"},
}
"""In words, the origins of configurations that are no planners' names."""


@dataclass(frozen=True)
class Begun(Reason):
    """Where the run begins; ``subject`` describes the plan."""

    kind: ClassVar[str] = "begun"
    origin: str
    step_time_s: float  # on the network of the moment

    def _said(self) -> str:
        proposer = PROPOSERS.get(self.origin, self.origin)
        return f"The run begins with {self.subject}: {seconds(self.step_time_s)} a step now, proposed by {proposer}."


@dataclass(frozen=True)
class LeverPulled(Reason):
    """What was changed without moving weights; ``subject`` lists the changes."""

    kind: ClassVar[str] = "lever_pulled"
    downtime_s: float  # 0: the runtime changes it while it trains
    step_time_before_s: float  # now, of what ran
    step_time_s: float  # now, of what runs from here on

    def _said(self) -> str:
        way = f"by a stop of {duration(self.downtime_s)}" if self.downtime_s > 0 else "at once"
        pace = _pace(self.step_time_before_s, self.step_time_s)
        return f"Changed {way}, no weights move: {self.subject}. {pace}"


@dataclass(frozen=True)
class Moved(Reason):
    """Layers that move between domains; ``subject`` lists the ranges."""

    kind: ClassVar[str] = "moved"
    how: str  # "stop" or "background"
    num_bytes: float
    usd: float
    move_s: float  # as forecast
    downtime_s: float  # as forecast
    step_time_before_s: float
    step_time_s: float
    cuts_before: tuple[int, ...]
    cuts: tuple[int, ...]

    def _said(self) -> str:
        way = (
            f"training stands still for {duration(self.downtime_s)}"
            if self.how == "stop"
            else f"in the background over {duration(self.move_s)}, then {duration(self.downtime_s)} of standstill"
        )
        what = f"Moving {gb(self.num_bytes)}" if self.num_bytes > 0 else "Starting the processes anew"
        cuts = "" if self.cuts == self.cuts_before else f" Cuts {_cuts(self.cuts_before)} become {_cuts(self.cuts)}."
        price = f" ({number(self.usd)} USD)" if self.usd > 0 else ""
        pace = _pace(self.step_time_before_s, self.step_time_s)
        return f"{what}{price}: {self.subject}; {way}.{cuts} {pace}"


@dataclass(frozen=True)
class Cancelled(Reason):
    """A move under way that was given up; what it sent is lost."""

    kind: ClassVar[str] = "cancelled"
    arrived_share: float

    def _said(self) -> str:
        return f"The move to {self.subject} is given up, {percent(self.arrived_share)} of it had arrived."


@dataclass(frozen=True)
class ExpectedWork(Reason):
    """Expected work of the answer against keeping, over what is left of the run, under the forecast."""

    kind: ClassVar[str] = "worth"
    ahead_s: float
    net_tokens: float
    keeping_net_tokens: float
    egress_usd: float
    keeping_egress_usd: float

    @property
    def gain_share(self) -> float:
        """What keeping loses of the answer's work; negative: what the answer loses of keeping's."""
        more, most = self.net_tokens - self.keeping_net_tokens, max(self.net_tokens, self.keeping_net_tokens)
        return more / most if most > 0 else 0.0

    @property
    def figures(self) -> dict[str, object]:
        """With the share that follows from the others."""
        return {**super().figures, "gain_share": self.gain_share}

    def _said(self) -> str:
        ahead = duration(self.ahead_s)
        more = self.net_tokens - self.keeping_net_tokens
        usd = self.egress_usd - self.keeping_egress_usd
        egress = f" and {number(abs(usd))} USD {'more' if usd > 0 else 'less'} egress" if abs(usd) >= 0.01 else ""
        if self.keeping_net_tokens <= 0 and more > 0:
            return f"Keeping would do no work that pays over the next {ahead}; this does {number(more)} tokens{egress}."
        if abs(self.gain_share) < LEAST_SAID:
            return f"Over the next {ahead} keeping would have done the same work, as forecast."
        verb = "cost" if more >= 0 else "saved"
        return (
            f"Over the next {ahead} keeping would have {verb} {percent(abs(self.gain_share))} of the work, "
            f"{number(abs(more))} tokens with egress priced in{egress}, as forecast."
        )


@dataclass(frozen=True)
class Kept(Reason):
    """Nothing was changed although something moved; ``subject`` is the best other answer that was simulated."""

    kind: ClassVar[str] = "kept"
    other_gain_share: float | None  # of its expected work over keeping's; None: no other was simulated

    def _said(self) -> str:
        if self.other_gain_share is None:
            return "Everything stays as it is."
        share = self.other_gain_share
        verb = "lose" if share < 0 else "gain"
        much = percent(abs(share)) if abs(share) >= LEAST_SAID else "nothing that counts"
        return f"Everything stays as it is: to {self.subject} would {verb} {much}, as forecast."


@dataclass(frozen=True)
class Refused(Reason):
    """A proposal that the simulation refused; ``subject`` says what it was."""

    kind: ClassVar[str] = "refused"
    probability: float  # that the agents gave it
    loss_share: float  # of the expected work, against the better of keeping and the receding horizon
    loss_tokens: float
    clear_tokens: float

    def _said(self) -> str:
        return (
            f"The agents proposed (at {percent(self.probability)}) to {self.subject}; played under the forecast it "
            f"loses {percent(self.loss_share)} of the work ({number(self.loss_tokens)} tokens, more than the "
            f"{number(self.clear_tokens)} that are allowed), also on a network that favours it: refused."
        )


@dataclass(frozen=True)
class Overruled(Reason):
    """A lever that was pulled against the agents' proposal, as it costs nothing; ``subject``: what they proposed."""

    kind: ClassVar[str] = "overruled"
    probability: float  # that the agents gave their proposal
    gain_share: float  # what the lever does more now

    def _said(self) -> str:
        return (
            f"The agents proposed (at {percent(self.probability)}) to {self.subject}; a lever that costs nothing and "
            f"can be taken back does {percent(self.gain_share)} more now, and is pulled."
        )


@dataclass(frozen=True)
class Late(Reason):
    """A deadline that was missed; ``subject`` says which: between domains, inside a domain, coordination."""

    kind: ClassVar[str] = "late"
    taken_s: float
    allowed_s: float
    kept: bool
    waited: bool = True  # False: it was worked out after an answer

    def _said(self) -> str:
        answer = "what runs is kept" if self.kept else "the next configuration that can run is taken"
        took, most = seconds(self.taken_s), seconds(self.allowed_s)
        if not self.waited:
            return f"To arrange a plan ({self.subject}) took {took}, more than {most}."
        return f"The decision ({self.subject}) took {took}, more than {most}: {answer}."


@dataclass(frozen=True)
class Barred(Reason):
    """Answers that the agents preferred but that need a lost link or domain; ``subject`` lists them."""

    kind: ClassVar[str] = "barred"
    answers: int

    def _said(self) -> str:
        return f"Passed over, as {'it needs' if self.answers == 1 else 'they need'} what is down: {self.subject}."


@dataclass(frozen=True)
class Stands(Reason):
    """Training stands still: what runs needs what is down; ``subject`` says what becomes of it."""

    kind: ClassVar[str] = "stands"
    others: int  # configurations that could run now

    def _said(self) -> str:
        if not self.others:
            return "Nothing can run: every plan that is known needs a link or a domain that is down."
        return f"Training stands still: {self.subject}, although {count(self.others, 'plan')} could run."


@dataclass(frozen=True)
class Renewed(Reason):
    """Plans and levers that were made for this network before the answer; ``subject``: the network."""

    kind: ClassVar[str] = "renewed"
    joined: int

    def _said(self) -> str:
        verb = "was" if self.joined == 1 else "were"
        what = f"{count(self.joined, 'better one')} {verb} found" if self.joined else "nothing better was found"
        return f"The {self.subject} has moved far: plans and levers were made for it first, and {what}."


@dataclass(frozen=True)
class Levered(Reason):
    """A lever of what runs that was pulled though the agents did not propose it; ``subject``: the lever."""

    kind: ClassVar[str] = "levered"
    gain_share: float  # what it does more now

    def _said(self) -> str:
        more = (
            f"does {percent(self.gain_share)} more" if isfinite(self.gain_share) else "trains, which what runs cannot,"
        )
        return f"To {self.subject} costs nothing, can be taken back, and {more} now."


@dataclass(frozen=True)
class Weighed(Reason):
    """Preferences that were adapted to the network's state; ``subject``: from what."""

    kind: ClassVar[str] = "weighed"
    w_eff: float
    w_util: float
    w_cost: float

    def _said(self) -> str:
        now = ", ".join(number(weight) for weight in (self.w_eff, self.w_util, self.w_cost))
        return f"Links are scarce: the weights on time, utilisation and egress go from {self.subject} to {now}."


def _pace(before_s: float, after_s: float) -> str:
    """What a step takes now, before and after."""
    if not isfinite(before_s):
        return f"A step could not run any more and now takes {seconds(after_s)}."
    if not isfinite(after_s):
        return f"A step takes {seconds(before_s)} until then."
    if before_s == after_s:
        return f"A step takes {seconds(after_s)} now, as before."
    change = after_s / before_s - 1.0
    return (
        f"A step takes {seconds(after_s)} now instead of {seconds(before_s)} "
        f"({percent(abs(change))} {'less' if change < 0 else 'more'})."
    )


def _cuts(cuts: tuple[int, ...]) -> str:
    return listed([str(cut) for cut in cuts]) if cuts else "(none)"
