"""Greedy: at every epoch the configuration that does most now, whatever it costs to get there.

What one does who plans anew whenever the network moves. Levers included; weights are copied while training stands.
Plans and levers are made anew when the network has moved far, as for all who go on looking.
"""

from __future__ import annotations

import numpy as np

from hippo.network.methods.static import start
from hippo.network.rules.move import STILL
from hippo.network.rules.rates import best_of_place, net_now
from hippo.network.rules.renewal import Renewal, replan
from hippo.network.rules.view import Action, How, View


class Greedy:
    """See the module's docstring."""

    name = "greedy"

    def __init__(self) -> None:
        self._renewal = Renewal()

    def begin(self, view: View) -> int:
        """The configuration that does most now."""
        first = start(view)
        self._renewal.begin(view)
        if first >= 0:
            replan(view, first)
        rates = net_now(view)
        return int(np.argmax(rates)) if rates.max(initial=0.0) > 0 else first

    def decide(self, view: View) -> Action:
        """Switch or stop for what does most now; keep while a move is under way."""
        if view.phase != STILL:
            return Action()
        if self._renewal.due(view):
            replan(view, view.running)
        return towards(view, net_now(view), margin=0.0, lever=0.0)


def towards(
    view: View, rates: np.ndarray[tuple[int, ...], np.dtype[np.float64]], *, margin: float, lever: float
) -> Action:
    """Stop for the configuration of the highest rate, (C,), if it is above the best of the present place by the share
    ``margin`` and there is a way; else switch to that best, if it is above what runs by the share ``lever``."""
    cache, place = view.cache, view.cache.configurations[view.running].place
    here, target = best_of_place(cache, rates, place), int(np.argmax(rates))
    if rates[target] > (1.0 + margin) * max(0.0, rates[here]):
        there = cache.configurations[target].place
        if there != place and np.isfinite(cache.move_bytes(place, there)).all():
            return Action(How.STOP, target)
    if rates[here] > (1.0 + lever) * max(0.0, rates[view.running]):
        return Action(How.SWITCH, here)
    return Action()
