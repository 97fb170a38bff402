"""What the key network sees of a job, and of the queue that it stands in.

Letters: F features, B bins.
"""

from __future__ import annotations

import numpy as np

from hippo.compiling import kernel
from hippo.jobs.learned.past import chance_within, remaining

FEATURES = (
    *("attained", "rank", "mean_left", "median_left", "late_left"),
    *("ends_in_bin", "ends_in_hour", "waited", "devices"),
    *("train", "preprocess", "predict", "deploy", "priority", "has_deadline", "slack"),
    *("jobs", "wanted", "user_share", "behind_batch", "in_batch", "gap", "running", "one"),
)
"""Logarithms of seconds are divided by 10, of counts by 5; about -1 to 1 each."""


@kernel(lean=True)
def describe(memory, job, now_s, attained_s, running, index):  # type: ignore[no-untyped-def]
    """Writes the features (F,) of a job of rank ``index`` whose hazards (B,) lie in ``memory.hazard``."""
    history, hazard, found = memory.history, memory.hazard, memory.features
    own = history.level[job]
    mean_s, median_s = remaining(hazard, own, attained_s, 0.5)
    found[0] = _log(attained_s)
    found[1] = _log(index)
    found[2], found[3] = _log(mean_s), _log(median_s)
    found[4] = _log(remaining(hazard, own, attained_s, 0.9)[1])
    found[5] = hazard[own]
    found[6] = chance_within(hazard, own, attained_s, 3600.0)
    found[7] = _log(now_s - memory.arrival_s[job])
    found[8] = memory.log_devices[job] / 5.0
    for kind in range(4):
        found[9 + kind] = 1.0 if memory.kind[job] == kind else 0.0
    found[13] = min(max(memory.priority[job] / 5.0, -2.0), 2.0)
    slack_s = memory.deadline_s[job] - now_s
    found[14] = 1.0 if np.isfinite(slack_s) else 0.0
    found[15] = np.sign(slack_s) * _log(abs(slack_s)) if np.isfinite(slack_s) else 0.0
    _describe_queue(memory, job, found)
    found[22] = 1.0 if running else 0.0
    found[23] = 1.0


@kernel(lean=True)
def _describe_queue(memory, job, found):  # type: ignore[no-untyped-def]
    """Writes the features of the queue, and of the batch that the job came with."""
    history = memory.history
    found[16] = np.log(1.0 + memory.wanting[0]) / 5.0
    found[17] = np.log(1.0 + memory.wanting[1] / memory.capacity[0]) / 5.0
    found[18] = memory.user_wanting[memory.user[job]] / max(memory.wanting[1], 1.0)
    batch = history.row[job, history.row.shape[1] - 1]
    found[19] = np.log(1.0 + history.exposed[batch, history.level[job]]) / 5.0
    found[20] = history.place[job, 1] / 5.0
    found[21] = history.place[job, 0] / 10.0


@kernel(lean=True)
def _log(value_s):  # type: ignore[no-untyped-def]
    return np.log(1.0 + max(value_s, 0.0)) / 10.0
