"""What is seen when something can be decided in a queue of jobs, and what can be chosen.

M candidates (jobs that could start now), F numbers of each, C of the whole queue. An answer is a candidate, or M: none
of them for now.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

MOST_CANDIDATES = 16
"""M, where nobody asks for another number."""
CANDIDATE_FEATURES = (
    *("attained", "waited", "devices", "level", "by_force"),
    *("train", "preprocess", "predict", "deploy", "priority", "has_deadline", "slack"),
    *("estimate", "has_estimate", "data_far", "user_share"),
    *("user_ended", "user_duration", "size_ended", "size_duration", "one"),
)
"""F. Logarithms of 1 + seconds are divided by 10, of counts by 8; the last five but one say what ended jobs have shown,
of the same user and of the same size: how many, and the mean of the logarithm of their durations."""
CONTEXT_FEATURES = (
    *("waiting", "running", "free", "largest_free", "wanted", "stoppable"),
    *("day_sin", "day_cos", "to_come", "one"),
)
"""C. ``free``, ``largest_free`` (of one pool) and ``stoppable`` (held by jobs past their first level) are shares of the
site's devices; ``to_come`` is 1 always (a queue that lives does not know its last job), ``one`` too."""
LARGEST = 20.0
"""No number that is seen is larger, or smaller than minus this."""
F, C = len(CANDIDATE_FEATURES), len(CONTEXT_FEATURES)


class Observation(NamedTuple):
    """Of one moment. Candidates stand in the order of Tiresias' two queues; rows of nobody are zero."""

    candidates: NDArray[np.float32]  # (M, F)
    context: NDArray[np.float32]  # (C,)
    mask: NDArray[np.bool_]  # (M + 1,) what may be answered

    def flat(self) -> NDArray[np.float32]:
        """(M F + C,) all but the mask."""
        return np.concatenate([self.candidates.ravel(), self.context])


def room(candidates: int) -> Observation:
    """An observation of nothing, to be written into."""
    return Observation(
        np.zeros((candidates, F), np.float32), np.zeros(C, np.float32), np.zeros(candidates + 1, np.bool_)
    )
