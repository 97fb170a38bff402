"""The lower agent: tensor and data width and number of stages of every domain, under what the upper agent settled.

Its weights are shared by all domains, and it answers for all of them at once. It sees at most 24 layouts of each that
have room for the domain's layers (``construction.observe``); devices follow by ``planners.placement``.
Fragmentation and the rest of its reward are defined in ``hippo.network.construction.draft``. No torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hippo.network.construction.observe import ConstructionState, Rows, observe_layouts

Floats = NDArray[np.float32]
Masks = NDArray[np.bool_]
Wide = NDArray[np.float64]
Ints = NDArray[np.int64]


class Arranging(Protocol):
    """Who chooses layouts."""

    def arrange(self, seen: Rows) -> Floats:
        """Logits (n, M) of the layouts of n domains."""
        ...


@dataclass(frozen=True, eq=False)
class Arrangement:
    """Layouts of the domains of one chain."""

    seen: Rows  # (n, M, ..)
    actions: Ints  # (n,) rows of ``seen``
    log_probs: Wide  # (n,)
    rows: Ints  # (n,) rows of the table
    argmax: Ints  # (n,) rows of the table of the argmax answer, drawn or not


def answer(
    brain: Arranging, drafts: Sequence[ConstructionState], rng: np.random.Generator, sure: Masks
) -> list[Arrangement]:
    """The layouts of every domain of every draft; ``sure`` (W,): the argmax of each instead of a draw."""
    if not drafts:
        return []
    shown = [observe_layouts(draft) for draft in drafts]
    parts = zip(*(seen for seen, _ in shown), strict=True)
    together = Rows(*(np.concatenate(part) for part in parts))
    counts = [len(draft.chain) for draft in drafts]
    logits = brain.arrange(together)
    actions, log_probs = pick(logits, together.mask, rng, np.repeat(sure, counts))
    argmax = np.where(together.mask, logits, -np.inf).argmax(axis=1)
    found, start = [], 0
    for (seen, told), count in zip(shown, counts, strict=True):
        part, at = slice(start, start + count), np.arange(count)
        found.append(Arrangement(seen, actions[part], log_probs[part], told[at, actions[part]], told[at, argmax[part]]))
        start += count
    return found


def pick(logits: Floats, mask: Masks, rng: np.random.Generator, sure: Masks) -> tuple[Ints, Wide]:
    """A draw from each row of masked logits (the argmax where ``sure``), and the logarithm of its probability."""
    masked = np.where(mask, logits.astype(np.float64), -np.inf)
    log_probs = masked - masked.max(axis=1, keepdims=True)
    log_probs -= np.log(np.exp(log_probs).sum(axis=1, keepdims=True))
    noise = np.where(sure[:, None], 0.0, rng.gumbel(size=masked.shape))
    actions = (log_probs + noise).argmax(axis=1)
    return actions, log_probs[np.arange(len(actions)), actions]
