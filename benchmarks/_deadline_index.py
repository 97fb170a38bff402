"""Writes src/hippo/jobs/learned/deadlines.npz: the index for deadlines, of which ``hippo.jobs.learned.deadline`` tells.

Its coefficients, and how often a duration has a window, counted as ``hippo.jobs.traces.mix`` draws deadlines.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hippo.jobs.learned import deadline
from hippo.jobs.learned.past import BINS, EDGES_S
from hippo.jobs.traces.mix import drawn
from hippo.jobs.workload import JobWorkload

LINE = {
    **{"index": 5.8, "devices": 2.6, "priority": -1.05, "room": 0.75, "slack": 5.4, "window": -0.7},
    **{"load_room": 1.55, "load_slack": -2.65},
}
SETTINGS = ("gavel", "chronus", "calendar")
DRAWN = 60_000  # durations from which windows are counted


def made() -> deadline.DueWeights:
    """The weights."""
    rng = np.random.default_rng(0)
    edges = np.concatenate([[EDGES_S[0] / 2], EDGES_S, [EDGES_S[-1] * 1.4]])
    duration_s = np.exp(rng.uniform(np.log(edges[0]), np.log(edges[-1]), DRAWN))
    jobs = JobWorkload.of_columns({"arrival_s": np.zeros(DRAWN), "duration_s": duration_s})
    counted = np.full((BINS, BINS), 1e-3)
    for place, setting in enumerate(SETTINGS):
        each = drawn(jobs, setting, place)
        ends = np.isfinite(each.deadline_s)
        window = np.searchsorted(EDGES_S, (each.deadline_s - each.arrival_s)[ends], side="right")
        np.add.at(counted, (window, np.searchsorted(EDGES_S, each.duration_s[ends], side="right")), 1.0)
    return deadline.linear(**LINE)._replace(windows=(counted / counted.sum(axis=0)).astype(np.float32))


if __name__ == "__main__":
    (Path(deadline.__file__).parent / deadline.SHIPPED).write_bytes(deadline.packed(made()))
