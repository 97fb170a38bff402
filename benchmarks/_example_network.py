"""Writes ``examples/four-by-eighty-moving.csv``: three days of the links of ``examples/four-by-eighty.yaml``.

    python -m benchmarks._example_network

Pairs jump between a free, a busy and a crowded level, a pair or two lose most of their bandwidth for hours, and domains
cannot be reached for a while: ``network.worlds.movements`` on top of one another. A state every five minutes; a link's
row is written where it changed by more than ``STEP``.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hippo.dynamics.movements import HOUR_S, draw_movement
from hippo.problem.links import base_bandwidth
from hippo.problem.load import load_cluster
from hippo.problem.trace_csv import HEADER
from hippo.units import gbps_from_bytes_per_s, ms_from_s

EXAMPLES = Path(__file__).parents[1] / "examples"
HOURS, EVERY_S, SEED, STEP = 72.0, 300.0, 3, 0.15
MOVEMENTS = ("regimes", "lasting", "outage")


def network_csv() -> str:
    """The text of the file."""
    cluster, rng = load_cluster(EXAMPLES / "four-by-eighty.yaml"), np.random.default_rng(SEED)
    time_s = np.arange(0.0, HOURS * HOUR_S, EVERY_S)
    factor = np.prod([draw_movement(name, cluster, time_s, rng).bandwidth for name in MOVEMENTS], axis=0)
    gbps = gbps_from_bytes_per_s(1.0) * factor * base_bandwidth(cluster)
    lines, written = [",".join(HEADER)], np.full(len(cluster.links), np.nan)
    for instant, now_s in enumerate(time_s):
        for link, edge in enumerate(cluster.links):
            pair, ms = f"{edge.source},{edge.destination}", ms_from_s(edge.latency_s)
            now, before = gbps[instant, link], written[link]
            if not abs(now - before) <= STEP * before:
                lines.append(f"{now_s:.0f},{pair},{now:.2f},{ms:g}")
                written[link] = now
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    (EXAMPLES / "four-by-eighty-moving.csv").write_text(network_csv())
