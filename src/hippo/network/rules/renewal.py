"""When plans and levers are made anew on the way, and how: the network has moved far, not too soon after the last time,
not too often. The same for every method that goes on looking."""

from __future__ import annotations

from dataclasses import dataclass

from hippo.network.plans.candidates import renew
from hippo.network.plans.replan import Net
from hippo.network.rules.trigger import Seen, Standing, Thresholds, moved, seen
from hippo.network.rules.view import View

FAR = Thresholds(link_share=0.4, latency_share=2.0, load_share=0.3)
"""How far any link or domain must have moved since plans were last made."""
APART = 12  # epochs at least between two times
MOST = 12  # times in a run: each takes about 100 ms, and most states have been met before
_ANY = Standing(-1, 1.0)


def replan(view: View, running: int) -> None:
    """Adds to the cache what it lacks on the network of the moment: plans, and levers of theirs, of what is ``running``
    and of the best that is known (``candidates.renew``)."""
    now = view.forecast
    state = Net(now.bandwidth_bytes_per_s[0], now.latency_s[0])
    renew(view.cache, state, running=running, compute=now.compute[0], price=view.usd_per_token)


@dataclass(eq=False)
class Renewal:
    """Counts; one per run."""

    last: Seen | None = None
    times: int = 0

    def begin(self, view: View) -> None:
        """Plans have been made for the state in which the run begins."""
        self.last, self.times = seen(view, _ANY), 0

    def wanted(self, view: View) -> bool:
        """Whether plans are to be made anew now."""
        if self.last is None or self.times >= MOST or view.epoch - self.last.epoch < APART:
            return False
        far = moved(view, self.last, FAR)
        return bool(far or far.latencies or far.loads)

    def due(self, view: View) -> bool:
        """The same; if so, that is taken as done."""
        if not self.wanted(view):
            return False
        self.last, self.times = seen(view, _ANY), self.times + 1
        return True


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
