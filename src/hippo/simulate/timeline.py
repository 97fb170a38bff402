"""What would happen: when each operation and message starts and ends in one step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Timeline:
    """One played step. N operations, X messages, G ranks, E links; seconds from the start of the step.

    Operation kinds: 0 F, 1 B (input gradient, or fused), 2 W, 3 synchronisation, 4 optimizer.
    """

    step_time_s: float
    op_rank: NDArray[np.int64]  # (N,)
    op_kind: NDArray[np.int64]  # (N,)
    op_chunk: NDArray[np.int64]  # (N,)
    op_micro_batch: NDArray[np.int64]  # (N,) -1 for synchronisation and optimizer
    op_start_s: NDArray[np.float64]  # (N,)
    op_end_s: NDArray[np.float64]  # (N,)
    message_link: NDArray[np.int64]  # (X,) link crossed (a relayed message appears once per hop)
    message_rank: NDArray[np.int64]  # (X,) sending rank
    message_kind: NDArray[np.int64]  # (X,) 0 activations, 1 gradients of activations, 3 synchronisation
    message_micro_batch: NDArray[np.int64]  # (X,)
    message_start_s: NDArray[np.float64]  # (X,) first byte leaves
    message_end_s: NDArray[np.float64]  # (X,) last byte has arrived
    message_bytes: NDArray[np.float64]  # (X,)
    rank_busy_s: NDArray[np.float64]  # (G,) sum of F, B, W
    link_bytes: NDArray[np.float64]  # (E,) bytes per step
