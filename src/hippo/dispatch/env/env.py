"""Dispatch decision by decision: the kernels of ``dispatch.play``, asked from outside.

The same problem, draws and choices give the same play as a compiled roll-out. No Gymnasium here (``gym_vector``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.dispatch.base import base_of
from hippo.dispatch.dispatch import Draws, one_play
from hippo.dispatch.env.generator import DispatchWorld, drawn_world
from hippo.dispatch.env.reward import reward
from hippo.dispatch.features import CHOICES
from hippo.dispatch.network import follower
from hippo.dispatch.noise.fluctuation import drawn
from hippo.dispatch.play import ENDED, act, following, room
from hippo.dispatch.state import begin, new_state
from hippo.engine.events import vary
from hippo.errors import InputError

_NOWHERE = np.empty((0, 0, 0))


class DispatchObservation(NamedTuple):
    """What the rank sees that decides now; zeros after the end."""

    seen: NDArray[np.float32]  # (FEATURES,)
    mask: NDArray[np.bool_]  # (4,) of F, B, W, WAIT
    says: int  # what the base hint would do


class Came(NamedTuple):
    """What came of a choice. The reward comes at the end of the play: percent by which it is shorter than the base."""

    observation: DispatchObservation
    reward: float
    done: bool


class DispatchEnv:
    """One play after another; a new world for each, or the one given.

    ``world``: what draws a world, for instance ``generator.drawn_world``.
    """

    def __init__(self, world: Callable[[np.random.Generator], DispatchWorld] = drawn_world, *, seed: int = 0) -> None:
        self._world, self._rng = world, np.random.default_rng(seed)
        self._asked, self._rank = room(len(follower().first_bias)), ENDED

    def begin(self, *, seed: int | None = None) -> DispatchObservation:
        """A new play, of a world and of draws from the generator."""
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        while True:
            world = self._world(self._rng)
            factors = next(drawn(world.problem, world.fluctuation, samples=1, rng=self._rng))
            found = self.play(world, (factors.operations[0], factors.messages[0], factors.ranks[0]))
            if found is not None:
                return found

    def play(self, world: DispatchWorld, draws: Draws) -> DispatchObservation | None:
        """A new play of that world under those draws; None when no rank ever has a choice."""
        problem = world.problem
        self._base = base_of(problem, world.fluctuation.deviation)
        self.usual = one_play(problem, self._base, follower(), draws, _NOWHERE)
        self.state = new_state(problem)
        vary(self.state.pipe, *draws)
        begin(self.state)
        return self._next()

    def act(self, choice: int) -> Came:
        """What follows from a choice; one that is masked counts as what the base would do.

        Raises ``InputError`` for what is no choice, and where no play is under way.
        """
        if not 0 <= int(choice) < CHOICES:
            raise InputError("is no choice", key="choice", value=choice, remedy="give 0, 1, 2 or 3: F, B, W, WAIT")
        if self._rank == ENDED:
            raise InputError("no play is under way", remedy="begin one")
        asked = self._asked
        chosen = int(choice) if asked.mask[int(choice)] else int(asked.says[0])
        act(self.state, self._base, self._rank, asked.until[0], chosen, asked.until[1])
        found = self._next()
        if found is not None:
            return Came(found, 0.0, False)
        nothing = DispatchObservation(np.zeros_like(asked.seen), np.zeros_like(asked.mask), 0)
        return Came(nothing, reward(self.makespan, self.usual), True)

    @property
    def makespan(self) -> float:
        """Of what runs so far."""
        return float((self.state.board.free + self.state.pipe.rest).max())

    def _next(self) -> DispatchObservation | None:
        asked = self._asked
        self._rank = following(self.state, self._base, asked)
        if self._rank == ENDED:
            return None
        return DispatchObservation(asked.seen.copy(), asked.mask.copy(), int(asked.says[0]))
