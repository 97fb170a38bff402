"""How an answer of the coordinator came about, as data; and what is said of it.

``hippo.network.why.reasons`` makes sentences of the reasons.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from hippo.decide.reasons import Reason
from hippo.decide.wording import listed, number
from hippo.network.hi_ppo.verification import KEEP, Verification, value
from hippo.network.rules.trigger import Due
from hippo.network.rules.view import Action, View
from hippo.network.why import reasons as why
from hippo.network.why.explain import answer_words

PROPOSED, KEPT, QUIET, LATE, STRANDED = "proposed", "kept", "quiet", "late", "stranded"
REFUSED, OVERRULED, AWAITED, LEVERED = "refused", "overruled", "awaited", "levered"
"""How an answer came about: the agents' proposal; it was to keep; nothing was due; it came too late; what runs cannot
run and nobody proposed a way out; simulation refused it; a lever that costs nothing does clearly more than the
proposal; a move waits until plans have been made for this network; a lever that nobody proposed does clearly more."""
UPPER, LOWER, TOGETHER = "between domains", "inside a domain", "coordination"
"""Deadlines."""


@dataclass(frozen=True)
class DecisionTimes:
    """Seconds of the steps of one decision; ``lower_s``: a plan, where the lower agent missed its deadline before."""

    lower_s: float = 0.0
    proposal_s: float = 0.0
    verification_s: float = 0.0
    total_s: float = 0.0


@dataclass(frozen=True)
class Account:
    """How the last answer came about; ``hippo.network.why.reasons`` makes sentences of it."""

    due: Due
    action: Action
    outcome: str
    proposal: Action = KEEP
    probability: float = 1.0  # that the upper agent gave its proposal
    barred: tuple[Action, ...] = ()  # preferred by the agent, but they need what is lost
    verdict: Verification | None = None
    weights: tuple[float, float, float] = (1.0, 0.0, 0.0)
    times: DecisionTimes = DecisionTimes()
    late: str = ""  # which deadline of the decision was missed
    renewed: int = -1  # configurations that were found for this network before the answer; -1: nobody looked
    gain_share: float = 0.0  # what a lever does more now that nobody proposed


class Deadlines(Protocol):
    """What may take how long, seconds."""

    @property
    def upper_s(self) -> float:
        """A decision between domains."""
        ...

    @property
    def lower_s(self) -> float:
        """A plan inside a domain."""
        ...

    @property
    def together_s(self) -> float:
        """From the trigger to the answer."""
        ...


def said(view: View, account: Account, deadlines: Deadlines) -> tuple[Reason, ...]:
    """The account of an answer as reasons: preferences, what was passed over, refused or late, why all stays."""
    found: list[Reason] = []
    if account.weights != view.weights:
        before = listed([number(weight) for weight in view.weights])
        found.append(why.Weighed(before, *account.weights))
    if account.barred:
        told = [answer_words(view, action) for action in account.barred[:2]]
        found.append(why.Barred(listed(told), len(account.barred)))
    if account.renewed >= 0:
        found.append(why.Renewed("network", account.renewed))
    if account.times.lower_s:
        found.append(why.Late(LOWER, account.times.lower_s, deadlines.lower_s, True, waited=False))
    if account.outcome == LATE:
        upper = account.late == UPPER
        taken_s = account.times.proposal_s if upper else account.times.total_s
        allowed_s = deadlines.upper_s if upper else deadlines.together_s
        found.append(why.Late(account.late, taken_s, allowed_s, account.action == KEEP))
    verdict = account.verdict
    if verdict is not None and account.outcome == REFUSED:
        best = max(value(view, verdict.keeping), value(view, verdict.rival))
        share = verdict.loss_tokens / best if best > 0 else 1.0
        words = answer_words(view, account.proposal)
        refused = why.Refused(words, account.probability, share, verdict.loss_tokens, verdict.clear_tokens)
        found.append(refused)
    elif verdict is not None and account.outcome == OVERRULED:
        words = answer_words(view, account.proposal)
        found.append(why.Overruled(words, account.probability, verdict.lever_share))
    elif account.outcome == KEPT and verdict is not None and verdict.rival_action != KEEP:
        found.append(_kept(view, verdict))
    if account.gain_share > 0.0:
        found.append(why.Levered(answer_words(view, account.action), account.gain_share))
    return tuple(found)


def _kept(view: View, verdict: Verification) -> Reason:
    """That everything stays, and what the receding horizon's answer was expected to change."""
    kept, other = value(view, verdict.keeping), value(view, verdict.rival)
    return why.Kept(answer_words(view, verdict.rival_action), other / kept - 1.0 if kept > 0 else None)
