"""The inner loop of Alpa's inter-operator pass (Zheng et al., OSDI'22, Eq. 3), compiled.

Letters: L clustered layers, J submesh shapes, S most stages, D devices of the cluster (in units).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel


@kernel
def slice_stages(
    latency_s: NDArray[np.float64], sizes: NDArray[np.int64], devices: int, slowest_s: float
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """F(s, k, d; t_max): least total latency of layers k.. in s stages on d devices, none slower than ``slowest_s``.

    ``latency_s`` (L, L, J, S + 1): t_intra of layers [k, i] on shape j with s stages from here on; ``sizes`` (J,).
    Returns F (S + 1, L + 1, D + 1) and choices, of the same shape: i J + j of the first stage's last layer i and shape
    j. Ties: the shorter stage, then the shape that comes first.
    """
    layers, shapes, most = latency_s.shape[0], latency_s.shape[2], latency_s.shape[3] - 1
    total = np.full((most + 1, layers + 1, devices + 1), np.inf)
    choice = np.full((most + 1, layers + 1, devices + 1), -1, dtype=np.int64)
    total[0, layers, 0] = 0.0
    for s in range(1, most + 1):
        for k in range(layers - s, -1, -1):
            here, chosen = total[s, k], choice[s, k]
            for i in range(k, layers - s + 1):
                rest = total[s - 1, i + 1]
                for j in range(shapes):
                    latency, size, code = latency_s[k, i, j, s], sizes[j], i * shapes + j
                    if latency > slowest_s:
                        continue
                    for d in range(devices + 1 - size):  # without a branch: several at once
                        sum_s = rest[d] + latency
                        better = sum_s < here[d + size]
                        chosen[d + size] = code if better else chosen[d + size]
                        here[d + size] = sum_s if better else here[d + size]
    return total, choice
