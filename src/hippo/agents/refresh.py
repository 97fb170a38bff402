"""Plans and levers made anew when the network has moved far, spread over decisions so that none is late.

At the decision that notices it, a plan is made for the network of the moment; at the next one the levers of what runs
are pulled, then those of the new plan. Only what does clearly more than all that is known joins the book.
"""

from __future__ import annotations

import numpy as np

from hippo.decide.online.candidates import WORTH_KNOWING, plan_under
from hippo.decide.online.configuration import Book
from hippo.decide.online.explain import step_now_s
from hippo.decide.online.levers import pull
from hippo.decide.online.renewal import Renewal
from hippo.decide.online.view import View
from hippo.simulate.moving import STILL


class Refresher:
    """Remembers for which network plans were made last, and what is still to be done."""

    def __init__(self) -> None:
        self._renewal = Renewal()
        self._running: int | None = None  # whose levers are still to be pulled, then those of the new plan
        self._next: int | None = None

    def begin(self, view: View) -> None:
        """Plans for this network are known."""
        self._renewal.begin(view)
        self._running = self._next = None

    def refresh(self, view: View) -> bool:
        """Adds to the book what is due; some tens of milliseconds, most often nothing. Returns whether it was due."""
        if view.phase != STILL:
            return False
        if self._renewal.due(view):
            self._next, self._running = _planned(view), view.running
            return True
        if self._running is not None:
            _levers(view, self._running)
            self._running = None
            return True
        if self._next is not None:
            _levers(view, self._next)
            self._next = None
            return True
        return False


def _planned(view: View) -> int | None:
    """The index of a plan for the network of the moment, if it does clearly more than what is known."""
    now, trial = view.forecast, Book(view.book.problem)
    lost = frozenset(int(domain) for domain in np.flatnonzero(~np.isfinite(now.compute[0])))
    found = plan_under(trial, now.bandwidth_bytes_per_s[0], now.latency_s[0], without=lost)
    if found is None:
        return None
    known = min((step_now_s(view, index) for index in range(len(view.book))), default=np.inf)
    step = float(trial.step_time_s(found, *_state(view))[0])
    return view.book.adopt(trial, found) if step * (1.0 + WORTH_KNOWING) < known else None


def _levers(view: View, index: int) -> None:
    """Levers of one configuration, pulled for the network of the moment."""
    bandwidth, latency, compute = (each[0] for each in _state(view))
    if np.isfinite(compute).all() and np.isfinite(step_now_s(view, index)):
        pull(view.book, index, bandwidth, latency, compute=compute, usd_per_token=view.usd_per_token)


def _state(view: View) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    now = view.forecast
    return now.bandwidth_bytes_per_s[:1], now.latency_s[:1], now.compute[:1]
