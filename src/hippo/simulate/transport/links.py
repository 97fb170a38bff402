"""Links that move while a message is on its way. T instants."""

from __future__ import annotations

import numpy as np
import simpy
from numpy.typing import NDArray

from hippo.simulate.reference import Link, Steps

Floats = NDArray[np.float64]


class MovingLink(Link):
    """A directed link whose rate and latency follow a trace; a message takes the rates that hold while it leaves.

    What leaves at an instant takes the latency of that instant. The last values hold for ever.
    """

    def __init__(self, env: simpy.Environment, link: Link, states: tuple[Floats, Floats, Floats]) -> None:
        """``states``: instants (T,), bytes/s (T,), one-way seconds (T,). Caps of nodes keep the scale of ``link``."""
        super().__init__(env, link.bandwidth, link.latency, link.nic_scale)
        self._time_s, self._rates, self._latencies = states
        self.is_gone = False  # whether a message waits for ever

    def _state(self) -> int:
        return max(int(np.searchsorted(self._time_s, self.env.now, side="right")) - 1, 0)

    @property
    def latency(self) -> float:
        """One-way seconds now."""
        return float(self._latencies[self._state()])

    @property
    def bandwidth(self) -> float:
        """Bytes/s now."""
        return float(self._rates[self._state()])

    def carry(self, num_bytes: float) -> Steps:
        """Keep the granted link until the last byte has left; for ever where the link stays down."""
        wait_s = self._seconds(num_bytes)
        if wait_s == np.inf:
            self.is_gone = True
            yield self.env.event()
        yield self.env.timeout(wait_s)
        self.release()

    def _seconds(self, num_bytes: float) -> float:
        """How long so many bytes take from now on."""
        state, left, waited_s = self._state(), num_bytes, 0.0
        for upcoming in self._time_s[state + 1 :].tolist():
            holds_s = upcoming - (self.env.now + waited_s)
            if left <= self._rates[state] * holds_s:
                break
            left -= self._rates[state] * holds_s
            waited_s += holds_s
            state += 1
        rate = float(self._rates[state])
        return waited_s + left / rate if rate > 0 else np.inf
