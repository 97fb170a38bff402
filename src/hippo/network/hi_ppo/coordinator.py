"""Hi-PPO at work: when to decide, what both agents propose, and whether it holds against a simulation.

One decision goes through four steps, each with its share of the deadline:

1. *Due?* The rule of the environment (``hippo.network.rules.trigger``): where nothing that matters has moved, all
   stays.
2. *Proposal.* The upper agent weighs at most 24 options; what needs a lost link or domain is passed over.
3. *Verification.* The proposal, keeping, and what a receding-horizon planner would do are played to the end of the run
   under the forecast. The proposal is refused where its loss is clear (``verification.verify``). Under a preference
   other than work alone the rival is what comes closest to it (``hippo.network.rules.preferences``); the start is
   judged by it too, and plans of the front are among its candidates.
4. *Deadline.* A step begins only while there is time for it, and an answer that comes too late is not taken: what runs
   is kept, or, where it cannot run, the next configuration that can.

After an answer it *thinks* (``HiPpo.replan``): where the network has moved far, plans and levers are made anew (a move
waits for them) and the agents construct plans of their own: the upper one cuts, the lower one arranges. What the lower
one made of it (its played step time, memory, traffic) comes back to the upper one as features of that option:
s_high(t+1) = f(s_high(t), a_high(t), {R_low_k}). Where something was found the decision is made once more, a fraction
of a second into an epoch of minutes. Where no decision is due, a live lever of what runs may still be pulled.

torch is not imported: the policy is served by numpy (``hippo.learn.serving``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hippo.decide.reasons import Reason
from hippo.errors import InfeasibleError
from hippo.network.hi_ppo.account import (
    AWAITED,
    KEPT,
    LATE,
    LEVERED,
    OVERRULED,
    PROPOSED,
    QUIET,
    REFUSED,
    STRANDED,
    TOGETHER,
    UPPER,
    Account,
    DecisionTimes,
    said,
)
from hippo.network.hi_ppo.constructor import CONSTRUCTING, construct
from hippo.network.hi_ppo.observation import Observed, observed
from hippo.network.hi_ppo.verification import (
    CLEARLY,
    KEEP,
    Clearly,
    allowed,
    degraded,
    quickest,
    rival_of,
    value,
    verify,
)
from hippo.network.methods.receding_horizon import Firsts, Horizon, RecedingHorizon
from hippo.network.observation.features import Observation
from hippo.network.observation.scene import CONSTRUCTED, figures
from hippo.network.plans.step_times import fits
from hippo.network.rules import preferences
from hippo.network.rules.move import STILL
from hippo.network.rules.rates import best_lever
from hippo.network.rules.renewal import Refresher
from hippo.network.rules.trigger import Due, Seen, Standing, Thresholds, due, runs, seen, standing
from hippo.network.rules.view import Action, How, View

Floats = NDArray[np.float64]
See = Callable[..., Observed]
"""``see(view, quiet=epochs since the last change)``."""
CLEAR_LEVER = 0.001
"""Share by which a lever must do more now to be pulled though the agents did not propose it."""
CLOSE = 0.002
"""Of the way from a front's best to its worst: a start that falls short of the preference by so little more holds."""
EGRESS_ON_SCARCE_LINKS = 2.0
"""How much more egress weighs when links have nothing left, in the mode that adapts the preferences: a judgement."""


@dataclass(frozen=True)
class CoordinatorSettings:
    """How the coordinator works. Seconds are of CPU, so that a busy machine decides as a quiet one."""

    thresholds: Thresholds = Thresholds()
    upper_s: float = 1.0  # decision between domains
    lower_s: float = 0.1  # inside a domain, for each plan that is arranged
    together_s: float = 2.0  # from the trigger to the answer
    verify: bool = True
    clearly: Clearly = CLEARLY
    construct: int = 2  # plans of the agents' own when the network has moved far; 0: none
    fresh: bool = True  # plans and levers are made anew when the network has moved far
    levers: bool = True  # the best live lever of what runs is pulled at every epoch: it is free
    adapt: bool = False  # preferences follow the network's state


class Judging(Protocol):
    """What the coordinator needs of a policy (``hippo.network.hi_ppo.serving.Policy``)."""

    def act(self, observation: Observation) -> Any:
        """An answer with ``log_probs`` (W, M)."""
        ...

    def run(self, name: str, inputs: Mapping[str, NDArray[Any]]) -> tuple[NDArray[np.float32], ...]:
        """What one network answers."""
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
        From a view to what the upper agent sees and the answers it may give (``hippo.network.observation.observe``).
    clock
        Seconds of whatever the deadlines are measured in.
    """

    name = "hi_ppo"

    def __init__(
        self,
        policy: Judging | None = None,
        *,
        settings: CoordinatorSettings = CoordinatorSettings(),
        see: See | None = None,
        clock: Callable[[], float] = time.process_time,
    ) -> None:
        self.policy = _shipped() if policy is None else policy
        self.settings, self.clock = settings, clock
        self.account: Account | None = None
        self._see = observed if see is None else see
        self._last: Seen | None = None
        self._changed = 0  # epoch of the last answer that changed something
        self._refresher = Refresher(plans=settings.fresh)
        self._slow_s = 0.0  # a plan, of the lower agent's last answers, where they missed their deadline
        self._before: tuple[Seen | None, int] = (None, 0)  # what was last seen and changed before this view's answer
        self._renewed = -1

    def begin(self, view: View) -> int:
        """Where the run begins; raises ``InfeasibleError`` when nothing that is known can run now."""
        self._last, self._changed, self._renewed = None, view.epoch, -1
        RecedingHorizon(replace(Horizon(), fresh=self.settings.fresh)).begin(view)  # fills the cache
        self._refresher.begin(view)
        self._construct(view)
        if not any(runs(view, index) for index in range(len(view.cache))):
            raise InfeasibleError(["No plan can run: each of them needs a link or a domain that is down."])
        compromise = not preferences.work_alone(view.weights)
        if compromise:
            preferences.propose(view)
        found = self._see(view, quiet=0.0)
        actions = found.answers
        order, log_probs = self._preferred(found.observation)
        able = [option for option in order if runs(view, actions[option].target)]
        if not able:
            chosen, probability = Action(How.SWITCH, quickest(view)), 0.0
        else:
            chosen, probability = actions[able[0]], float(np.exp(log_probs[able[0]]))
        chosen = replace(chosen, how=How.SWITCH)
        account = Account(Due(started=True), chosen, PROPOSED, chosen, probability, weights=view.weights)
        if compromise and self.settings.verify:
            account = self._compromise(view, account)
        self._note(view, account)
        return account.action.target

    def _compromise(self, view: View, account: Account) -> Account:
        """The account of a start under a preference other than work alone: the proposal holds where it comes about as
        close to the preference as any configuration does (``CLOSE``); else the closest one is taken."""
        best, behind = preferences.wanted(view, levers=self.settings.fresh)
        if behind[account.proposal.target] <= behind[best] + CLOSE:
            return account
        return replace(account, action=Action(How.SWITCH, best), outcome=REFUSED)

    def decide(self, view: View) -> Action:
        """The answer to this view; never one that needs a link or a domain that is down."""
        began = self.clock()
        view = replace(view, weights=adapted(view)) if self.settings.adapt else view
        self._before = self._last, self._changed
        stands = standing(view)
        happened = due(view, self._last, self.settings.thresholds, now=stands)
        if self.account is not None and self.account.outcome == AWAITED:
            happened = replace(happened, found=True)
        if not happened:
            self.account = self._quiet(view, happened, stands)
            return self.account.action
        account = self._levered(view, self._decided(view, happened, began), stands)
        total_s = self.clock() - began
        times = replace(account.times, total_s=total_s)
        account = replace(account, times=times, weights=view.weights, renewed=self._renewed)
        if total_s > self.settings.together_s and account.outcome != LATE:
            account = replace(account, action=degraded(view), outcome=LATE, late=TOGETHER)
        self._slow_s, self._renewed = 0.0, -1
        return self._note(view, account, stands).action

    def replan(self, view: View) -> bool:
        """What is due is made anew, and the tables of what is new; whether the answer is to be given again, because
        something was found or because it waited for this."""
        action = KEEP if self.account is None else self.account.action
        running, known = view.running if action.target < 0 else action.target, len(view.cache)
        replanned = self._refresher.replan(view, running)
        if replanned:
            self._construct(view)
        figures(view.cache, view.usd_per_token)
        fits(view.cache)
        if not replanned:
            return False
        self._renewed = len(view.cache) - known
        if self._renewed == 0 and (self.account is None or self.account.outcome != AWAITED):
            return False
        self._last, self._changed = self._before
        return True

    def _quiet(self, view: View, happened: Due, stands: Standing) -> Account:
        """No decision is due: all stays, but for a lever of what runs that does clearly more now."""
        account = Account(happened, KEEP, QUIET, weights=view.weights)
        return self._levered(view, account, stands)

    def _levered(self, view: View, account: Account, stands: Standing) -> Account:
        """The account with the lever of what runs that does most now, where that is clear and nothing is moved."""
        free = self.settings.levers and view.phase == STILL and preferences.work_alone(view.weights)
        if not free or account.action.how not in (How.KEEP, How.SWITCH) or account.outcome in (LATE, AWAITED):
            return account
        chosen = account.action.target if account.action.how is How.SWITCH else view.running
        lever, more = best_lever(view, stands.levers, chosen)
        if more <= CLEAR_LEVER or not runs(view, lever):
            return account
        action = KEEP if lever == view.running else Action(How.SWITCH, lever)
        outcome = LEVERED if account.outcome in (QUIET, KEPT, PROPOSED) else account.outcome
        return replace(account, action=action, outcome=outcome, gain_share=more)

    def reasons(self, view: View) -> tuple[Reason, ...]:
        """What the coordinator says of its last answer, given to this view."""
        return () if self.account is None else said(view, self.account, self.settings)

    def _note(self, view: View, account: Account, stands: Standing | None = None) -> Account:
        self.account, self._last = account, seen(view, stands)
        if account.action.how is not How.KEEP:
            self._changed = view.epoch
        return account

    # -------------------------------------------------------------------------------------------------------- steps
    def _decided(self, view: View, happened: Due, began: float) -> Account:
        """Proposal and verification, as far as there is time."""
        found = self._see(view, quiet=float(view.epoch - self._changed))
        proposal, probability, barred = self._proposed(view, found)
        proposed = self.clock()
        times = DecisionTimes(self._slow_s, proposed - began)
        account = Account(happened, proposal, PROPOSED, proposal, probability, barred, times=times)
        if times.proposal_s > self.settings.upper_s:
            return replace(account, action=degraded(view), outcome=LATE, late=UPPER)
        if self.settings.verify and (view.phase == STILL or proposal.how is How.CANCEL):
            account = self._verified(view, account, found.firsts)
        account = self._awaited(view, _settled(view, account))
        return replace(account, times=replace(times, verification_s=self.clock() - proposed))

    def _construct(self, view: View) -> None:
        """Adds plans of the agents' own to the cache; a missed deadline is told."""
        tries, began = self.settings.construct, self.clock()
        if not (tries and can_construct(self.policy)):
            return
        now = view.forecast
        state = now.bandwidth_bytes_per_s[0], now.latency_s[0]
        lost = ~np.isfinite(now.compute[0])
        compute = np.where(lost, 1.0, now.compute[0])
        plans = construct(self.policy, view.cache.problem, *state, tries=tries, compute=compute, orders=False)
        taken_s = (self.clock() - began) / tries
        self._slow_s = taken_s if taken_s > self.settings.lower_s else 0.0
        names = {domain.name for domain, gone in zip(view.cache.problem.cluster.domains, lost, strict=True) if gone}
        for plan in plans:
            if not names & set(plan.domains):
                view.cache.add(plan, origin=CONSTRUCTED)

    def _proposed(self, view: View, found: Observed) -> tuple[Action, float, tuple[Action, ...]]:
        """The upper agent's most probable answer that is allowed, its probability, and those that it liked better."""
        order, log_probs = self._preferred(found.observation)
        barred: list[Action] = []
        for option in order:
            action = found.answers[option]
            if allowed(view, action):
                return action, float(np.exp(log_probs[option])), tuple(barred)
            barred.append(action)
        return KEEP, 0.0, ()

    def _preferred(self, observation: Observation) -> tuple[list[int], Floats]:
        """Options that may be chosen, best first, and the logarithms of their probabilities."""
        log_probs = np.asarray(self.policy.act(observation).log_probs[0], dtype=np.float64)
        mask = observation.option_mask[0]
        order = [int(option) for option in np.argsort(-log_probs, kind="stable") if mask[option]]
        return order, log_probs

    def _awaited(self, view: View, account: Account) -> Account:
        """The account without its move where plans for this network are about to be made: a move that cannot be taken
        back waits for them."""
        moves = account.action.how in (How.STOP, How.BACKGROUND)
        if not (moves and self._refresher.wanted(view)):
            return account
        return replace(account, action=KEEP, outcome=AWAITED)

    def _verified(self, view: View, account: Account, firsts: Firsts | None) -> Account:
        """The account with the simulation's verdict, and another answer where the loss is clear."""
        rival = rival_of(view, firsts)
        rival = rival if allowed(view, rival) else KEEP
        verdict = verify(view, account.proposal, rival, self.settings.clearly, firsts=firsts)
        if verdict.lever_share > 0.0:
            return replace(account, action=rival, outcome=OVERRULED, verdict=verdict)
        if not verdict.refused:
            return replace(account, verdict=verdict)
        better = rival if value(view, verdict.rival) > value(view, verdict.keeping) else KEEP
        return replace(account, action=better, outcome=REFUSED, verdict=verdict)


def _settled(view: View, account: Account) -> Account:
    """The account with a way out where nothing else is answered and what runs cannot run."""
    if account.action.how is not How.KEEP:
        return account
    way_out = degraded(view) if account.due.stands else KEEP
    if way_out != KEEP:
        return replace(account, action=way_out, outcome=STRANDED)
    return replace(account, outcome=KEPT) if account.outcome == PROPOSED else account


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


# ------------------------------------------------------------------------------------------- what is loaded when needed
def _shipped() -> Judging:
    """The policy of the package."""
    from hippo.network.hi_ppo.serving import shipped

    found: Judging = shipped()
    return found


def can_construct(policy: object) -> bool:
    """Whether a policy holds the graphs that plans are constructed with."""
    return set(CONSTRUCTING) <= set(getattr(policy, "networks", ()))
