"""The text that is learned: sequences of a small Markov chain, made where they are needed, the same for every plan.

Each of up to 256 words has four followers with chances .6, .2, .15, .05, so that there is something to learn: the
entropy is 1.08 nats a token. Sequence i of step t depends on the seed, t and i alone.
"""

from __future__ import annotations

import numpy as np
import torch

WORDS = 256
CHANCES = (0.6, 0.2, 0.15, 0.05)


def sequences(step: int, start: int, stop: int, *, seq: int, vocab: int, seed: int = 0) -> torch.Tensor:
    """Tokens (stop - start, seq + 1) of sequences [start, stop) of a step; the last is only a target."""
    words = min(WORDS, vocab)
    followers = np.random.default_rng([seed, 0]).integers(0, words, size=(words, len(CHANCES)))
    bounds = np.cumsum(CHANCES)[:-1]
    drawn = np.stack([np.random.default_rng([seed, 1, step, i]).random(seq + 1) for i in range(start, stop)])
    choice = np.searchsorted(bounds, drawn, side="right")
    tokens = np.empty(drawn.shape, dtype=np.int64)
    tokens[:, 0] = (drawn[:, 0] * words).astype(np.int64)
    for place in range(1, seq + 1):
        tokens[:, place] = followers[tokens[:, place - 1], choice[:, place]]
    return torch.from_numpy(tokens)
