"""What a decision was worth against what was expected: generalised advantages over decisions at unequal distances.

Schulman et al. 2016, equation 16, for a semi-Markov process (Sutton, Precup, Singh 1999): between a decision and the
next one, ``epochs`` epochs later, what comes is discounted by ``gamma ** epochs``. Lambda counts decisions, not epochs.

Letters: T decisions in a row, W worlds, V values (the reward's, then each cost's).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


def advantages(
    rewards: Floats,
    values: Floats,
    *,
    done: NDArray[np.bool_],
    epochs: NDArray[np.int64] | Floats,
    gamma: float,
    lam: float,
) -> tuple[Floats, Floats]:
    """Advantages and returns, both (T, W, V).

    Parameters
    ----------
    rewards
        (T, W, V): reward and costs between a decision and the next, those of later epochs already discounted.
    values
        (T + 1, W, V): what was expected at each decision, and at the one that follows the last.
    done
        (T, W): the run ended after the decision; nothing comes.
    epochs
        (T, W): how many epochs passed until the next decision, whole ones or not.
    """
    found = np.zeros_like(rewards)
    after = np.zeros_like(rewards[0])
    discount = (np.float32(gamma) ** epochs * ~done).astype(np.float32)[..., None]
    for step in reversed(range(len(rewards))):
        surprise = rewards[step] + discount[step] * values[step + 1] - values[step]
        after = surprise + discount[step] * np.float32(lam) * after
        found[step] = after
    return found, found + values[:-1]
