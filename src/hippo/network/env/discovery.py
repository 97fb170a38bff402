"""What whoever follows a world comes to know: plans and levers at hand at the start, and those found on the way.

Plans are made anew when the network has moved far, as production and the receding horizon do. So worlds that are
learned in hold the configurations that will be met in use, each known from the epoch at which it was found.

Letters: C configurations.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hippo.errors import InfeasibleError
from hippo.network.env.judge import prepare
from hippo.network.env.play import steps
from hippo.network.env.world import World
from hippo.network.methods.receding_horizon import RecedingHorizon
from hippo.network.rules.configuration import Book
from hippo.network.rules.renewal import Renewal, look_anew
from hippo.network.rules.view import Action, View


class _Follower:
    """Stays where the receding horizon begins, and makes plans anew when it would."""

    name = "follower"

    def __init__(self) -> None:
        self._renewal = Renewal()

    def begin(self, view: View) -> int:
        """Where the receding horizon begins."""
        self._renewal.begin(view)
        return RecedingHorizon().begin(view)

    def decide(self, view: View) -> Action:
        """Keep."""
        if self._renewal.due(view):
            look_anew(view, view.running)
        return Action()


def discovered(world: World, book: Book | None = None) -> tuple[Book, NDArray[np.int64]]:
    """A book with everything that was found along the world, and from which epoch on each was known, (C,).

    ``book``: one that is filled for this problem; it stays as it is. Some seconds; deterministic. Empty where no plan
    can run.
    """
    try:
        setting = prepare(world, book=None if book is None else book.copy(share=True))
        own, since = setting.book.copy(share=True), list[int]()
        for at, _ in enumerate(steps(world, own, _Follower(), setting.terms, forecasts=setting.forecasts)):
            since += [at] * (len(own) - len(since))
    except InfeasibleError:
        return Book(world.problem), np.zeros(0, dtype=np.int64)
    return own, np.array(since, dtype=np.int64)
