"""Hysteresis: move only to what has been clearly better for several epochs in a row.

The usual remedy against greed, without a forecast and without the price of moving. Levers are pulled as they gain;
plans and levers are made anew when the network has moved far, as for all who go on looking.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hippo.network.methods.greedy import towards
from hippo.network.methods.static import start
from hippo.network.rules.move import STILL
from hippo.network.rules.rates import best_of_place, net_now
from hippo.network.rules.renewal import Renewal, replan
from hippo.network.rules.view import Action, View


@dataclass(frozen=True)
class Dwell:
    """When to move."""

    margin: float = 0.2  # share by which the better place must do more than the present one,
    epochs: int = 4  # so many epochs in a row
    lever: float = 0.01  # share by which a lever must do more

    def __post_init__(self) -> None:
        assert self.margin >= 0.0
        assert self.epochs >= 1


class Hysteresis:
    """See the module's docstring."""

    name = "hysteresis"

    def __init__(self, dwell: Dwell | None = None) -> None:
        self.dwell = dwell or Dwell()
        self._renewal = Renewal()
        self._better = 0  # epochs in a row in which another place was clearly better

    def begin(self, view: View) -> int:
        """The configuration that does most now."""
        first = start(view)
        self._renewal.begin(view)
        if first >= 0:
            replan(view, first)
        self._better = 0
        rates = net_now(view)
        return int(np.argmax(rates)) if rates.max(initial=0.0) > 0 else first

    def decide(self, view: View) -> Action:
        """Stop for what has been better long enough; levers at once; keep while a move is under way."""
        if view.phase != STILL:
            self._better = 0
            return Action()
        if self._renewal.due(view):
            replan(view, view.running)
        rates = net_now(view)
        here = best_of_place(view.cache, rates, view.cache.configurations[view.running].place)
        better = rates.max() > (1.0 + self.dwell.margin) * max(0.0, rates[here])
        self._better = self._better + 1 if better else 0
        margin = self.dwell.margin if self._better >= self.dwell.epochs else np.inf
        return towards(view, rates, margin=margin, lever=self.dwell.lever)
