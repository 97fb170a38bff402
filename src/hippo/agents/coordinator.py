"""Hi-PPO at work: when to decide, what both agents propose, and whether it holds against a simulation (spec A6-A9).

One decision goes through five steps, each with its share of the deadline:

1. *Due?* Nothing has moved by more than ``Thresholds``, and it has not been long: the run goes on.
2. *Candidates.* Fresh plans under the forecast, levers of what runs, and plans that the agents construct: the upper one
   cuts, the lower one arranges. What the lower one made of it (its played step time, memory, traffic) comes back to the
   upper one as features of that option: s_high(t+1) = f(s_high(t), a_high(t), {R_low_k}).
3. *Proposal.* The upper agent weighs at most 24 options; what needs a lost link or domain is passed over.
4. *Verification.* The proposal, keeping, and what a receding-horizon planner would do are played to the end of the run
   under the forecast. The proposal is refused where its loss is clear (``Settings``): under the forecast, and still
   when the links turn out as the proposal would like them.
5. *Deadline.* A step begins only while there is time for it, and an answer that comes too late is not taken: what runs
   is kept, or, where it cannot run, the next configuration that can.

torch is not imported: the policy is served by onnxruntime.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hippo.decide.online import reasons as why
from hippo.decide.online.candidates import fill, plan_under
from hippo.decide.online.explain import answer_words, step_now_s
from hippo.decide.online.outlook import Expected, outlook
from hippo.decide.online.receding_horizon import RecedingHorizon
from hippo.decide.online.trigger import Due, Seen, Thresholds, due, runs, seen
from hippo.decide.online.view import Action, How, View
from hippo.decide.reasons import Reason
from hippo.decide.wording import listed, number
from hippo.envs.cross_domain.spaces import Observation
from hippo.errors import InfeasibleError
from hippo.simulate.moving import STILL

Floats = NDArray[np.float64]
See = Callable[..., tuple[Observation, tuple[Action, ...]]]
"""``see(view, quiet=epochs since the last change)``."""
KEEP = Action()
PROPOSED, KEPT, QUIET, REFUSED, LATE, STRANDED = "proposed", "kept", "quiet", "refused", "late", "stranded"
"""How an answer came about: the agents' proposal; it was to keep; nothing was due; simulation refused it; it came too
late; what runs cannot run and nobody proposed a way out."""
ANOTHER_NETWORK = Thresholds(link_share=0.3, latency_share=np.inf, load_share=np.inf)
"""From where on plans are made anew: that costs tens of milliseconds."""
EGRESS_ON_SCARCE_LINKS = 2.0
"""How much more egress weighs when links have nothing left, in the mode that adapts the preferences: a judgement."""


@dataclass(frozen=True)
class Settings:
    """How the coordinator works. Seconds are wall time of one thread."""

    thresholds: Thresholds = Thresholds()
    upper_s: float = 1.0  # decision between domains (spec A18)
    lower_s: float = 0.1  # inside a domain, for each plan that is arranged
    together_s: float = 2.0  # from the trigger to the answer (spec A9)
    verify: bool = True
    clear_epochs: float = 1.0  # a loss of less than this much usual work is not clear
    clear_share: float = 0.01  # of the work expected from keeping
    construct: int = 2  # plans of the agents' own at a decision
    fresh: bool = True  # plans and levers made for the forecast at hand
    adapt: bool = False  # preferences follow the network's state


@dataclass(frozen=True)
class Times:
    """Seconds of the steps of one decision."""

    candidates_s: float = 0.0
    lower_s: float = 0.0
    proposal_s: float = 0.0
    verification_s: float = 0.0
    total_s: float = 0.0


@dataclass(frozen=True)
class Verdict:
    """What the simulation says of an answer, of keeping and of what a receding horizon would do."""

    proposal: Expected
    keeping: Expected
    rival: Expected
    rival_action: Action
    loss_tokens: float  # of the proposal against the better of the other two
    clear_tokens: float  # from which on a loss is clear
    refused: bool


@dataclass(frozen=True)
class Account:
    """How the last answer came about; ``decide.online.reasons`` makes sentences of it."""

    due: Due
    action: Action
    outcome: str
    proposal: Action = KEEP
    probability: float = 1.0  # that the upper agent gave its proposal
    barred: tuple[Action, ...] = ()  # preferred by the agent, but they need what is lost
    verdict: Verdict | None = None
    weights: tuple[float, float, float] = (1.0, 0.0, 0.0)
    times: Times = Times()
    late: str = ""  # which deadline was missed


class Judging(Protocol):
    """What the coordinator needs of a policy (``agents.serving.Policy``)."""

    def act(self, observation: Observation) -> Any:
        """An answer with ``log_probs`` (W, M)."""
        ...


class HiPpo:
    """The method ``hi_ppo``: both agents, verified. ``account`` says how the last answer came about.

    Parameters
    ----------
    policy
        Who proposes; None: the policy that ships with the package.
    settings
        Thresholds, deadlines and what is verified.
    see
        From a view to what the upper agent sees and the answers it may give (``envs.cross_domain.observe``).
    clock
        Seconds of whatever the deadlines are measured in.
    """

    name = "hi_ppo"

    def __init__(
        self,
        policy: Judging | None = None,
        *,
        settings: Settings = Settings(),
        see: See | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.policy = _shipped() if policy is None else policy
        self.settings, self.clock = settings, clock
        self.account: Account | None = None
        self._see = _observe() if see is None else see
        self._last: Seen | None = None
        self._planned: Seen | None = None
        self._changed = 0  # epoch of the last answer that changed something
        self._rival = RecedingHorizon()

    def begin(self, view: View) -> int:
        """Where the run begins; raises ``InfeasibleError`` when nothing that is known can run now."""
        self._last = self._planned = None
        self._changed = view.epoch
        if len(view.book) == 0:
            fill(view.book)
        self._candidates(view, self.clock())
        if not any(runs(view, index) for index in range(len(view.book))):
            raise InfeasibleError(["No plan can run: each of them needs a link or a domain that is down."])
        observation, actions = self._see(view, quiet=0.0)
        order, log_probs = self._preferred(observation)
        able = [option for option in order if runs(view, actions[option].target)]
        if not able:
            chosen, probability = Action(How.SWITCH, quickest(view)), 0.0
        else:
            chosen, probability = actions[able[0]], float(np.exp(log_probs[able[0]]))
        chosen = replace(chosen, how=How.SWITCH)
        self._note(view, Account(Due(started=True), chosen, PROPOSED, chosen, probability, weights=view.weights))
        return chosen.target

    def decide(self, view: View) -> Action:
        """The answer to this view; never one that needs a link or a domain that is down."""
        began = self.clock()
        view = replace(view, weights=adapted(view)) if self.settings.adapt else view
        happened = due(view, self._last, self.settings.thresholds)
        if not happened:
            self.account = Account(happened, KEEP, QUIET, weights=view.weights)
            return KEEP
        account = self._decided(view, happened, began)
        total_s = self.clock() - began
        account = replace(account, times=replace(account.times, total_s=total_s), weights=view.weights)
        if total_s > self.settings.together_s and account.outcome != LATE:
            account = replace(account, action=degraded(view), outcome=LATE, late="coordination")
        return self._note(view, account).action

    def reasons(self, view: View) -> tuple[Reason, ...]:
        """What the coordinator says of its last answer, given to this view."""
        return () if self.account is None else said(view, self.account, self.settings)

    def _note(self, view: View, account: Account) -> Account:
        self.account, self._last = account, seen(view)
        if account.action.how is not How.KEEP:
            self._changed = view.epoch
        return account

    # -------------------------------------------------------------------------------------------------------- steps
    def _decided(self, view: View, happened: Due, began: float) -> Account:
        """Candidates, proposal and verification, as far as there is time."""
        lower_s = self._candidates(view, began)
        ready = self.clock()
        observation, actions = self._see(view, quiet=float(view.epoch - self._changed))
        order, log_probs = self._preferred(observation)
        able = [option for option in order if allowed(view, actions[option])]
        barred = [actions[option] for option in order[: order.index(able[0])]] if able else []
        proposal = actions[able[0]] if able else KEEP
        probability = float(np.exp(log_probs[able[0]])) if able else 0.0
        proposed = self.clock()
        times = Times(ready - began, lower_s, proposed - ready)
        account = Account(happened, proposal, PROPOSED, proposal, probability, tuple(barred), times=times)
        if proposed - ready > self.settings.upper_s or lower_s > self.settings.lower_s * max(
            1, self.settings.construct
        ):
            missed = "between domains" if proposed - ready > self.settings.upper_s else "inside a domain"
            return replace(account, action=degraded(view), outcome=LATE, late=missed)
        if self.settings.verify and (view.phase == STILL or proposal.how is How.CANCEL):
            account = self._verified(view, account)
        if account.action.how is How.KEEP and happened.stands:
            way_out = degraded(view)
            outcome = STRANDED if way_out != KEEP else account.outcome
            account = replace(account, action=way_out, outcome=outcome)
        elif account.action.how is How.KEEP and account.outcome == PROPOSED:
            account = replace(account, outcome=KEPT)
        verification_s = self.clock() - proposed
        return replace(account, times=replace(times, verification_s=verification_s))

    def _candidates(self, view: View, began: float) -> float:
        """Adds plans for the network at hand to the book; the seconds that the lower agent took."""
        now = view.forecast
        other = due(view, self._planned, ANOTHER_NETWORK)
        another = other.started or other.links or other.lost or other.back
        if self.settings.fresh and another and view.phase == STILL and self.clock() - began < self.settings.upper_s:
            plan_under(view.book, now.bandwidth_bytes_per_s[0], now.latency_s[0])
            self._planned = seen(view)
        return 0.0

    def _preferred(self, observation: Observation) -> tuple[list[int], Floats]:
        """Options that may be chosen, best first, and the logarithms of their probabilities."""
        log_probs = np.asarray(self.policy.act(observation).log_probs[0], dtype=np.float64)
        mask = observation.option_mask[0]
        order = [int(option) for option in np.argsort(-log_probs, kind="stable") if mask[option]]
        return order, log_probs

    def _verified(self, view: View, account: Account) -> Account:
        """The account with the simulation's verdict, and another answer where the loss is clear."""
        rival = self._rival.decide(view)
        rival = rival if allowed(view, rival) else KEEP
        verdict = verify(view, account.proposal, rival, self.settings)
        if not verdict.refused:
            return replace(account, verdict=verdict)
        better = rival if value(view, verdict.rival) > value(view, verdict.keeping) else KEEP
        return replace(account, action=better, outcome=REFUSED, verdict=verdict)


# ------------------------------------------------------------------------------------------------------- verification
def verify(view: View, proposal: Action, rival: Action, settings: Settings) -> Verdict:
    """Plays the proposal, keeping, and the rival's answer to the end under the forecast.

    The proposal is refused when it loses more than ``clear_epochs`` of usual work and more than ``clear_share`` of what
    keeping gives, and loses still when every link that only the proposal uses does one standard deviation better than
    forecast, and every link that it does without one worse.
    """
    indices = [action.target for action in (proposal, rival) if action.target >= 0]
    ahead = outlook(view, indices)
    mine, kept, others = ahead.play(proposal), ahead.play(KEEP), ahead.play(rival)
    loss = max(value(view, kept), value(view, others)) - value(view, mine)
    clear = max(settings.clear_epochs * usual_work(view), settings.clear_share * abs(value(view, kept)))
    refused = proposal not in (KEEP, rival) and loss > clear and _loses_at_best(view, proposal, rival)
    return Verdict(mine, kept, others, rival, loss, clear, refused)


def _loses_at_best(view: View, proposal: Action, rival: Action) -> bool:
    """Whether the proposal loses even on a network that favours it."""
    used = np.zeros(view.forecast.sd.shape[1], dtype=bool)
    if proposal.target >= 0:
        used = view.book.bytes_per_step(proposal.target) > 0
    ahead = outlook(view, [a.target for a in (proposal, rival) if a.target >= 0], tilt=np.where(used, 1.0, -1.0))
    return max(value(view, ahead.play(KEEP)), value(view, ahead.play(rival))) > value(view, ahead.play(proposal))


def value(view: View, expected: Expected) -> float:
    """What the expected future is worth under the view's preferences, in tokens.

    With (1, 0, 0) it is work, egress priced in. Weight on egress counts its price again that many times, weight on
    utilisation counts tokens at the usual pace for the time that GPUs are busy; both relative to the weight on time.
    """
    w_eff, w_util, w_cost = view.weights
    egress = expected.net_tokens - expected.tokens  # negative
    busy = usual_work(view) / view.epoch_s * expected.busy_s
    return w_eff * expected.net_tokens + w_util * busy + w_cost * egress


def usual_work(view: View) -> float:
    """Net tokens that what runs gives in an epoch on the network's base state."""
    index = max(view.running, 0)
    score = view.book.score(index)
    steps = view.epoch_s / score.step_time_s
    usd = score.egress_usd_per_step / view.usd_per_token if view.usd_per_token > 0 else 0.0
    return float(steps * max(view.book.tokens_per_step - usd, 0.05 * view.book.tokens_per_step))


# ------------------------------------------------------------------------------------------------- what can run at all
def allowed(view: View, action: Action) -> bool:
    """Whether an answer does without links and domains that are down: where it leads to, and the way there."""
    if action.how in (How.KEEP, How.CANCEL):
        return True
    if not runs(view, action.target):
        return False
    if action.how is How.SWITCH or view.running < 0:
        return True
    book, down = view.book, view.forecast.bandwidth_bytes_per_s[0] <= 0
    moved = book.move_bytes(*(book.configurations[index].place for index in (view.running, action.target)))
    return bool(np.isfinite(moved).all()) and not bool((moved[down] > 0).any())


def degraded(view: View) -> Action:
    """The answer when there is no time for a better one: keep; where that cannot run, what can run and, as far as is
    forecast, does most work (to wait for a link that is soon back counts as an answer too).

    Ties: levers before moves, then the order of the book.
    """
    if view.phase != STILL or runs(view, view.running):
        return KEEP
    answers = [action for action in _ways_out(view) if allowed(view, action)]
    if not answers:
        return KEEP
    ahead = outlook(view, [action.target for action in answers])
    return max((*answers, KEEP), key=lambda action: value(view, ahead.play(action)))


def quickest(view: View) -> int:
    """The configuration that trains most on the network of the moment, of those that can run; ties: the first."""
    able = [index for index in range(len(view.book)) if runs(view, index)]
    return min(able, key=lambda index: step_now_s(view, index))


def _ways_out(view: View, most: int = 8) -> Iterator[Action]:
    """Levers of the same place first, then moves to the quickest configurations that can run now."""
    book = view.book
    here = book.configurations[view.running].place
    able = [index for index in range(len(book)) if index != view.running and runs(view, index)]
    able.sort(key=lambda index: (book.configurations[index].place != here, step_now_s(view, index)))
    for index in able[:most]:
        yield Action(How.SWITCH if book.configurations[index].place == here else How.STOP, index)


# --------------------------------------------------------------------------------------------------------- preferences
def adapted(view: View) -> tuple[float, float, float]:
    """Preferences that follow the network: what links have lost of their usual rate makes egress weigh more.

    ``scarcity`` is the share of the bandwidth over all links that is expected to be missing at the forecast's longest
    horizon, against the most that has been measured; the weight on egress grows by up to ``EGRESS_ON_SCARCE_LINKS``
    times, and all are scaled so that their sum stays.
    """
    usual = view.telemetry.bandwidth_bytes_per_s.max(axis=0)
    expected = np.minimum(view.forecast.bandwidth_bytes_per_s[-1], usual)
    scarcity = 1.0 - float(expected.sum() / usual.sum()) if usual.sum() > 0 else 0.0
    w_eff, w_util, w_cost = view.weights
    raised = w_cost * (1.0 + EGRESS_ON_SCARCE_LINKS * scarcity)
    scale = (w_eff + w_util + w_cost) / (w_eff + w_util + raised) if w_eff + w_util + raised > 0 else 1.0
    return w_eff * scale, w_util * scale, raised * scale


# -------------------------------------------------------------------------------------------------------- what is said
def said(view: View, account: Account, settings: Settings) -> tuple[Reason, ...]:
    """The account of an answer as reasons: preferences, what was passed over, refused or late, why all stays."""
    found: list[Reason] = []
    if account.weights != view.weights:
        before = listed([number(weight) for weight in view.weights])
        found.append(why.Weighed(before, *account.weights))
    if account.barred:
        told = [answer_words(view, action) for action in account.barred[:2]]
        found.append(why.Barred(listed(told), len(account.barred)))
    if account.outcome == LATE:
        taken_s, allowed_s = {
            "between domains": (account.times.proposal_s, settings.upper_s),
            "inside a domain": (account.times.lower_s, settings.lower_s * max(1, settings.construct)),
        }.get(account.late, (account.times.total_s, settings.together_s))
        found.append(why.Late(account.late, taken_s, allowed_s, account.action == KEEP))
    verdict = account.verdict
    if verdict is not None and account.outcome == REFUSED:
        best = max(value(view, verdict.keeping), value(view, verdict.rival))
        share = verdict.loss_tokens / best if best > 0 else 1.0
        words = answer_words(view, account.proposal)
        refused = why.Refused(words, account.probability, share, verdict.loss_tokens, verdict.clear_tokens)
        found.append(refused)
    elif account.outcome == KEPT and verdict is not None and verdict.rival_action != KEEP:
        found.append(_kept(view, verdict))
    return tuple(found)


def _kept(view: View, verdict: Verdict) -> Reason:
    """That everything stays, and what the receding horizon's answer was expected to change."""
    kept, other = value(view, verdict.keeping), value(view, verdict.rival)
    return why.Kept(answer_words(view, verdict.rival_action), other / kept - 1.0 if kept > 0 else None)


# ------------------------------------------------------------------------------------------- what is loaded when needed
def _shipped() -> Judging:
    """The policy of the package."""
    from hippo.agents.serving import shipped

    found: Judging = shipped()
    return found


def _observe() -> See:
    from hippo.envs.cross_domain.observe import observe

    return observe
