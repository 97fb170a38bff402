"""Whether an answer holds: what it gives against keeping and a rival's answer, and what can run at all.

Every judgement plays answers under the forecast with the rules of the run itself (``hippo.network.rules.outlook``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hippo.network.methods.receding_horizon import Firsts, Horizon, first_step, first_steps, given_up
from hippo.network.rules.move import STILL
from hippo.network.rules.outlook import Expected, Outlook, outlook
from hippo.network.rules.preferences import shortfalls, tokens_worth, work_alone
from hippo.network.rules.trigger import runs
from hippo.network.rules.view import Action, How, View
from hippo.network.rules.worth import ahead as ahead_of
from hippo.network.why.explain import step_now_s

KEEP = Action()


@dataclass(frozen=True)
class Clearly:
    """From which loss on a proposal is refused: both must be passed."""

    epochs: float = 1.0  # of the usual work of what runs
    share: float = 0.01  # of the work expected from keeping


CLEARLY = Clearly()


@dataclass(frozen=True)
class Verification:
    """What the simulation says of an answer, of keeping and of what a receding horizon would do."""

    proposal: Expected
    keeping: Expected
    rival: Expected
    rival_action: Action
    loss_tokens: float  # of the proposal against the better of the other two
    clear_tokens: float  # from which on a loss is clear
    refused: bool
    lever_share: float = 0.0  # what the rival's lever does more now than the proposal; 0: that is not the case


def rival_of(view: View, firsts: Firsts | None = None) -> Action:
    """What a planner that does not learn would answer: the receding horizon's first step under work alone, else what
    comes closest to the preference. ``firsts``: first steps, where somebody has looked ahead."""
    if not work_alone(view.weights):
        return preferred(view)
    if view.phase != STILL:
        return given_up(view, Horizon())
    return first_step(view, _looked(view) if firsts is None else firsts, Horizon())


def _looked(view: View) -> Firsts:
    look = ahead_of(view)
    return first_steps(look._replace(epochs_left=min(look.epochs_left, Horizon().epochs)), view.running)


def verify(
    view: View, proposal: Action, rival: Action, clearly: Clearly = CLEARLY, *, firsts: Firsts | None = None
) -> Verification:
    """Plays the proposal, keeping, and the rival's answer to the end under the forecast.

    The proposal is refused when it is neither of the other two and all of this holds: it loses more than
    ``clearly.epochs`` of usual work and more than ``clearly.share`` of what keeping gives; it loses as much when the
    best moves follow it and its rivals (``lookahead``: an excursion is counted with its way back; a lever, which can be
    taken back, by what it does now); and it loses still when every link that it uses does one standard deviation better
    than forecast, and every other one worse.

    Under a preference other than work alone the rival is what comes closest to it (``preferred``). Then to keep is
    refused like any other answer, so that a run follows a preference that changes, and nothing is counted that may
    follow: that would be counted in work.

    A live lever costs nothing and can be taken back. So where the rival's does clearly more now than keeping (or than
    the lever proposed), and not less in the end, it is pulled: ``lever_share``.
    """
    indices = [action.target for action in (proposal, rival) if action.target >= 0]
    ahead = outlook(view, indices)
    mine, kept, others = ahead.play(proposal), ahead.play(KEEP), ahead.play(rival)
    loss = max(value(view, kept), value(view, others)) - value(view, mine)
    clear = max(clearly.epochs * usual_work(view), clearly.share * abs(value(view, kept)))
    if not work_alone(view.weights):
        refused = proposal != rival and loss > clear and _loses_at_best(view, proposal, rival)
        return Verification(mine, kept, others, rival, loss, clear, refused)
    refused = (
        proposal not in (KEEP, rival)
        and loss > clear
        and _loses_now(view, proposal, rival, clearly, firsts)
        and _loses_at_best(view, proposal, rival)
    )
    more = _lever_gain(ahead, proposal, rival) if value(view, others) > value(view, mine) else 0.0
    return Verification(mine, kept, others, rival, loss, clear, refused, more if more > clearly.share else 0.0)


def _lever_gain(ahead: Outlook, proposal: Action, rival: Action) -> float:
    """What the rival's lever does more now than keeping, or than the proposed lever; 0: other answers."""
    free = proposal.how in (How.KEEP, How.SWITCH) and rival.how is How.SWITCH
    if not free or ahead.view.phase != STILL or proposal == rival:
        return 0.0
    stays = ahead.net_now(proposal.target if proposal.how is How.SWITCH else ahead.view.running)
    better = ahead.net_now(rival.target)
    return better / stays - 1.0 if stays > 0 else float(better > 0)


def _loses_now(view: View, proposal: Action, rival: Action, clearly: Clearly, firsts: Firsts | None) -> bool:
    """Whether the loss is clear also when more may be changed later."""
    if view.phase != STILL:
        return True
    rates, _, gains = _looked(view) if firsts is None else firsts
    if proposal.how is How.SWITCH:
        return bool(rates[proposal.target] < (1.0 - clearly.share) * rates[view.running])
    known = view.cache.configurations

    def gain(action: Action) -> float:
        if action.how not in (How.STOP, How.BACKGROUND):
            return 0.0
        return float(gains[known[action.target].place, int(action.how is How.BACKGROUND)])

    return max(0.0, gain(rival)) - gain(proposal) > clearly.epochs * usual_work(view)


def _loses_at_best(view: View, proposal: Action, rival: Action) -> bool:
    """Whether the proposal loses even on a network that favours it."""
    used = np.zeros(view.forecast.sd.shape[1], dtype=bool)
    if proposal.target >= 0:
        used = view.cache.bytes_per_step(proposal.target) > 0
    ahead = outlook(view, [a.target for a in (proposal, rival) if a.target >= 0], tilt=np.where(used, 1.0, -1.0))
    return max(value(view, ahead.play(KEEP)), value(view, ahead.play(rival))) > value(view, ahead.play(proposal))


def value(view: View, expected: Expected) -> float:
    """What the expected future is worth under the view's preference, in tokens.

    Work alone, egress priced in, or under any other preference usual work less what falls short of it
    (``hippo.network.rules.preferences``).
    """
    if work_alone(view.weights):
        return view.weights[0] * expected.net_tokens
    usual = usual_work(view) * expected.seconds / view.epoch_s
    return tokens_worth(view, expected.tokens, expected.busy_s, expected.egress_usd, expected.seconds, usual)


def preferred(view: View, clearly: Clearly = CLEARLY) -> Action:
    """The answer that brings a run closest to the view's preference: of the best lever and the ways to the best place,
    where that is clearly worth more than to keep."""
    if view.phase != STILL:
        return KEEP
    behind, here = shortfalls(view), view.cache.configurations[view.running].place
    best = int(np.argmin(behind))
    lever = min(view.cache.of_place(here), key=lambda index: float(behind[index]))
    answers = [Action(How.SWITCH, lever)] if lever != view.running else []
    if view.cache.configurations[best].place != here:
        answers += [Action(How.STOP, best), Action(How.BACKGROUND, best)]
    answers = [action for action in answers if allowed(view, action)]
    ahead = outlook(view, [action.target for action in answers])
    kept = value(view, ahead.play(KEEP))
    clear = max(clearly.epochs * usual_work(view), clearly.share * abs(kept))
    worth = [value(view, ahead.play(action)) for action in answers]
    return answers[int(np.argmax(worth))] if worth and max(worth) > kept + clear else KEEP


def usual_work(view: View) -> float:
    """Net tokens that what runs gives in an epoch on the network's base state."""
    index = max(view.running, 0)
    score = view.cache.score(index)
    steps = view.epoch_s / score.step_time_s
    usd = score.egress_usd_per_step / view.usd_per_token if view.usd_per_token > 0 else 0.0
    return float(steps * max(view.cache.tokens_per_step - usd, 0.05 * view.cache.tokens_per_step))


# ------------------------------------------------------------------------------------------------- what can run at all
def allowed(view: View, action: Action) -> bool:
    """Whether an answer does without links and domains that are down: where it leads to, and the way there."""
    if action.how in (How.KEEP, How.CANCEL):
        return True
    if not runs(view, action.target):
        return False
    if action.how is How.SWITCH or view.running < 0:
        return True
    cache, down = view.cache, view.forecast.bandwidth_bytes_per_s[0] <= 0
    moved = cache.move_bytes(*(cache.configurations[index].place for index in (view.running, action.target)))
    return bool(np.isfinite(moved).all()) and not bool((moved[down] > 0).any())


def degraded(view: View) -> Action:
    """The answer when there is no time for a better one: keep; where that cannot run, what can run and, as far as is
    forecast, does most work (to wait for a link that is soon back counts as an answer too).

    Ties: levers before moves, then the order of the cache.
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
    able = [index for index in range(len(view.cache)) if runs(view, index)]
    return min(able, key=lambda index: step_now_s(view, index))


def _ways_out(view: View, most: int = 8) -> Iterator[Action]:
    """Levers of the same place first, then moves to the quickest configurations that can run now."""
    cache = view.cache
    here = cache.configurations[view.running].place
    able = [index for index in range(len(cache)) if index != view.running and runs(view, index)]
    able.sort(key=lambda index: (cache.configurations[index].place != here, step_now_s(view, index)))
    for index in able[:most]:
        yield Action(How.SWITCH if cache.configurations[index].place == here else How.STOP, index)
