"""Plans and levers made anew when the network has moved far, once a view has been answered.

A re-planning makes the levers of what runs and of the best that is known, then new plans and their levers, as the
receding horizon makes them (``network.plans.candidates.renew``). Only what does clearly more than all that is known
joins the cache.
"""

from __future__ import annotations

from hippo.network.rules.renewal import Renewal, replan
from hippo.network.rules.view import View


class Refresher:
    """Remembers for which network plans were made last.

    Parameters
    ----------
    plans
        Whether plans are made; without, the network is watched alone.
    """

    def __init__(self, *, plans: bool = True) -> None:
        self._plans, self._renewal = plans, Renewal()

    def begin(self, view: View) -> None:
        """Plans for this network are known."""
        self._renewal.begin(view)

    def wanted(self, view: View) -> bool:
        """Whether plans are about to be made for this network."""
        return self._plans and self._renewal.wanted(view)

    def replan(self, view: View, running: int) -> bool:
        """Adds to the cache what is due, some 100 ms, most often nothing; returns whether the network has moved far.

        ``running``: what runs once the answer to this view has been carried out.
        """
        if running < 0 or not self._renewal.due(view):
            return False
        if self._plans:
            replan(view, running)
        return True
