"""Receding horizon: every epoch the answer that is best if the network goes as forecast, and only if it is so clearly.

All levers, both kinds of move and the price of moving are weighed by ``worth`` over one window; an answer must beat
keeping by a margin, because a forecast errs and a move cannot be taken back.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hippo.decide.online.static import start
from hippo.decide.online.view import Action, How, View
from hippo.decide.online.worth import BACKGROUND, STOP, SWITCH, Ahead, Now, ahead, relevered, worth
from hippo.simulate.moving import STILL

Floats = NDArray[np.float64]
KINDS = {SWITCH: How.SWITCH, STOP: How.STOP, BACKGROUND: How.BACKGROUND}


@dataclass(frozen=True)
class Horizon:
    """How far ahead, and by how much an answer must be better, in epochs of the usual work of what runs."""

    window: int = 3  # of ``worth.WINDOWS``; the last is the rest of the run
    margin: float = 0.5  # for a move
    lever: float = 0.002  # for a lever: it costs nothing and can be taken back; share of the net rate


class RecedingHorizon:
    """See the module's docstring."""

    name = "receding_horizon"

    def __init__(self, horizon: Horizon | None = None) -> None:
        self.horizon = horizon or Horizon()

    def begin(self, view: View) -> int:
        """The configuration that does most over the window, if the network goes as forecast."""
        start(view)
        found = worth(relevered(ahead(view)), Now(-1, -1, STILL, 0.0))
        best = int(np.argmax(found.net_tokens[:, SWITCH, self.horizon.window]))
        look = ahead(view)
        return _best_lever(look, best)

    def decide(self, view: View) -> Action:
        """The answer of greatest worth, where it beats keeping by the margin."""
        look = ahead(view)
        now = Now(view.running, view.target, view.phase, view.arrived)
        found = worth(relevered(look), now)
        usual = look.tokens_per_step / view.book.score(view.running).step_time_s * look.epoch_s
        if view.phase != STILL:
            gives_up = found.cancel[self.horizon.window] > self.horizon.margin * usual
            return Action(How.CANCEL) if gives_up else Action()
        moves = found.net_tokens[:, STOP:, self.horizon.window]
        target, kind = np.unravel_index(int(np.argmax(moves)), moves.shape)
        if moves[target, kind] > self.horizon.margin * usual:
            return Action(KINDS[int(kind) + STOP], _best_lever(look, int(target)))
        return self._lever(look, view.running)

    def _lever(self, look: Ahead, running: int) -> Action:
        best = _best_lever(look, running)
        rates = net_rates(look)
        clearly = rates[best] > rates[running] + self.horizon.lever * abs(rates[running])
        return Action(How.SWITCH, best) if clearly else Action()


def net_rates(look: Ahead) -> Floats:
    """Net tokens/s of every configuration now, (C,)."""
    price = 1.0 / look.usd_per_token if look.usd_per_token > 0 else 0.0
    found: Floats = look.tokens_per_s[0] - price * look.egress_usd_per_s[0]
    return found


def _best_lever(look: Ahead, index: int) -> int:
    """The best configuration now of the same place."""
    rates = np.where(look.place == look.place[index], net_rates(look), -np.inf)
    return int(np.argmax(rates))
