"""Receding horizon: every epoch the answer that is best if the network goes as forecast, and only if it is so clearly.

All levers, both kinds of move, ways back and the price of moving are weighed by dynamic programming over the forecast
(``lookahead``). A move must beat keeping by a margin, because a forecast errs and a move cannot be taken back. When the
network has moved far, plans and levers are made anew for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.network.methods.static import start
from hippo.network.rules.lookahead import best_start, first_moves
from hippo.network.rules.move import STILL
from hippo.network.rules.renewal import Renewal, replan
from hippo.network.rules.view import Action, How, View
from hippo.network.rules.worth import Ahead, Now, ahead, worth

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Horizon:
    """How far ahead, and how clearly. Found on the training networks (``benchmarks/heuristics.py``)."""

    epochs: float = 64.0  # ahead that count; at most the rest of the run
    margin: float = 0.1  # by which a move must be better, in epochs of the usual work of what runs
    lever: float = 0.0  # share by which a lever must do more now: it costs nothing and can be taken back
    fresh: bool = True  # plans are made anew when the network has moved far


class RecedingHorizon:
    """See the module's docstring."""

    name = "receding_horizon"

    def __init__(self, horizon: Horizon | None = None) -> None:
        self.horizon = horizon or Horizon()
        self._renewal = Renewal()

    def begin(self, view: View) -> int:
        """The place from which most can be done over the horizon; -1: nothing can run now."""
        first = start(view)
        if first < 0:
            return first
        self._renewal.begin(view)
        if self.horizon.fresh:
            replan(view, first)
        look = self._ahead(view)
        leads, rates = _leads(look), net_rates(look)
        runs = rates[leads] > 0.0
        return int(leads[np.argmax(np.where(runs, best_start(look, leads), -np.inf))]) if runs.any() else first

    def decide(self, view: View) -> Action:
        """The first step of the best sequence, where it beats keeping by the margin; else the best lever."""
        if view.phase != STILL:
            return self._moving(view)
        if self.horizon.fresh and self._renewal.due(view):
            replan(view, view.running)
        return first_step(view, first_steps(self._ahead(view), view.running), self.horizon)

    def _moving(self, view: View) -> Action:
        """Give up a move under way where that is clearly better."""
        return given_up(view, self.horizon)

    def _ahead(self, view: View) -> Ahead:
        return _within(ahead(view), self.horizon)


class Firsts(NamedTuple):
    """What can be done first, followed by the best sequence of moves, against keeping."""

    rates: Floats  # (C,) net tokens/s now
    leads: Ints  # (P,) best configuration now of every place
    gains: Floats  # (P, 2) net tokens of moving there, by stopping and in the background; -inf: impossible


def first_steps(look: Ahead, running: int) -> Firsts:
    """The first steps of the best sequences, if the network goes as ``look`` has it."""
    leads = _leads(look)
    return Firsts(net_rates(look), leads, first_moves(look, Now(running, -1, STILL, 0.0), leads))


def first_step(view: View, firsts: Firsts, horizon: Horizon) -> Action:
    """The best first move where it beats keeping by the margin; else the best lever where it does more; else keep."""
    gains, rates, leads = firsts.gains, firsts.rates, firsts.leads
    place, kind = np.unravel_index(int(np.argmax(gains)), gains.shape)
    if gains[place, kind] > horizon.margin * usual_work(view):
        return Action(How.STOP if kind == 0 else How.BACKGROUND, int(leads[place]))
    here = int(leads[view.cache.configurations[view.running].place])
    clearly = rates[here] > rates[view.running] + horizon.lever * abs(rates[view.running])
    return Action(How.SWITCH, here) if clearly else Action()


def given_up(view: View, horizon: Horizon) -> Action:
    """Give up the move under way where that is clearly better; else keep."""
    look = _within(ahead(view, [view.running, view.target]), horizon)
    found = worth(look, Now(0, 1, view.phase, view.arrived))
    return Action(How.CANCEL) if found.cancel[-1] > horizon.margin * usual_work(view) else Action()


def _within(look: Ahead, horizon: Horizon) -> Ahead:
    return look._replace(epochs_left=min(look.epochs_left, horizon.epochs))


def usual_work(view: View) -> float:
    """Tokens of an epoch of what runs in the base state."""
    return view.cache.tokens_per_step / view.cache.score(view.running).step_time_s * view.epoch_s


def net_rates(look: Ahead) -> Floats:
    """Net tokens/s of every configuration now, (C,)."""
    price = 1.0 / look.usd_per_token if look.usd_per_token > 0 else 0.0
    found: Floats = look.tokens_per_s[0] - price * look.egress_usd_per_s[0]
    return found


def _leads(look: Ahead) -> Ints:
    """The best configuration now of every place, (P,)."""
    rates = net_rates(look)
    return np.array([np.argmax(np.where(look.place == place, rates, -np.inf)) for place in range(len(look.move_bytes))])
