"""The learned policy's key where jobs have deadlines: what a job is worth per device-second, if it can be in time.

What is known of a job's duration is a belief over the bins of ``past``: what the hazards say of jobs like it, times how
often jobs of such durations had such a window (deadline less arrival) or such an estimate, which finished jobs teach.
From the belief and the time that is left comes an index: the best chance per expected second to end before the
deadline (Gittins' index, cut at the deadline). The logarithm of a key is linear in it and in a dozen further features,
plus the answer of a small network. Jobs without a deadline follow, with those whose deadline has passed, in order of
their plain index.

Letters: n jobs, B bins, P priorities told apart, F features, h units, D moments written down.
"""

from __future__ import annotations

import numpy as np

from hippo.compiling import kernel
from hippo.jobs.learned.hazard import LONGEST_S
from hippo.jobs.learned.past import BINS, EDGES_S

FEATURES = (
    *("index", "devices", "priority", "room", "slack", "chance", "window"),
    *("load_room", "load_slack", "running", "load", "attained", "median", "estimated", "one"),
)
"""Logarithms: of seconds divided by 10, of the others by 3."""
BEHIND = 1e3
"""Added to the key's logarithm where no deadline can be met any more, or none is set."""
STALE_S = 1800.0
"""A belief is formed anew after this long, or when the job has passed an edge."""
MOST_PUSH = 3.0
PRIOR_JOBS = 2.0
"""Jobs for which the prior of windows counts."""


@kernel(lean=True)
def bin_at(time_s):  # type: ignore[no-untyped-def]
    """The bin in which a time lies, as ``past.bin_of``."""
    low, high = 0, len(EDGES_S)
    while low < high:
        middle = (low + high) >> 1
        if EDGES_S[middle] <= time_s:
            low = middle + 1
        else:
            high = middle
    return low


@kernel(lean=True)
def arrived(known, job, devices):  # type: ignore[no-untyped-def]
    """A job joins the queue; ``known`` is a ``due.Due``."""
    if known.window[job] >= 0:
        known.live[0] += devices


@kernel(lean=True)
def finished(known, job, devices, worked_s):  # type: ignore[no-untyped-def]
    """A job has ended after ``worked_s`` of work: what its window and its estimate were worth."""
    own = bin_at(worked_s)
    if known.window[job] >= 0:
        if known.over[job] == 0:
            known.live[0] -= devices
        row = known.rank[job]
        for shift in range(-1, 2):
            window, worked = known.window[job] + shift, own + shift
            if 0 <= window < BINS and 0 <= worked < BINS:
                known.seen[row, window, worked] += 1.0 if shift == 0 else 0.5
                known.total[row, worked] += 1.0 if shift == 0 else 0.5
    if known.estimate[job] >= 0:
        known.gap[known.estimate[job] - own + BINS] += 1.0
        known.gap[2 * BINS + 1] += 1.0


@kernel(lean=True)
def rests(known, job):  # type: ignore[no-untyped-def]
    """Whether the job's key stands still while it does nothing: it has no deadline, or none that it can meet."""
    return known.window[job] < 0 or known.over[job] > 0


@kernel(lean=True)
def believe(known, job, hazard, level):  # type: ignore[no-untyped-def]
    """Writes the job's belief (B,) from its hazards (B,), of which those from ``level`` on count."""
    belief, row, window, estimate = known.belief[job], known.rank[job], known.window[job], known.estimate[job]
    alive, total = 1.0, 0.0
    for b in range(BINS):
        belief[b] = 0.0
    for b in range(level, BINS):
        chance = alive * hazard[b] if b < BINS - 1 else alive
        alive -= chance
        if window >= 0:
            seen = known.seen[row, window, b] + PRIOR_JOBS * known.weights.windows[window, b]
            chance *= seen / (known.total[row, b] + PRIOR_JOBS)
        if estimate >= 0:
            chance *= known.gap[estimate - b + BINS] / known.gap[2 * BINS + 1]
        belief[b] = chance
        total += chance
    for b in range(level, BINS):
        belief[b] = belief[b] / total if total > 1e-30 else 1.0 / (BINS - level)


@kernel(lean=True)
def weigh(belief, attained_s, slack_s, found):  # type: ignore[no-untyped-def]
    """What a belief (B,) says of a job that has done ``attained_s``; writes into ``found`` (4,):

    the best chance per expected second to end within a horizon of at most ``slack_s``, the chance to end within
    ``slack_s``, the expected seconds until it ends or the slack is used up, and the median of what is left.
    """
    level = bin_at(attained_s)
    rest = 0.0
    for b in range(level, BINS):
        low, high = _edges(b)
        rest += belief[b] * (high - max(low, attained_s)) / (high - low)
    found[0], found[1], found[2], found[3] = 0.0, 0.0, 1.0, -1.0
    if rest < 1e-9:  # older than anybody thought: as long again as it has run
        age = max(attained_s, 10.0)
        found[1] = 1.0 - np.exp(-slack_s / age)
        found[0], found[2], found[3] = found[1] / age, age, age
        return
    done, work = 0.0, 0.0
    for b in range(level, BINS):
        low, high = _edges(b)
        start = max(low, attained_s)
        chance = belief[b] * (high - start) / (high - low) / rest
        lasts, cut = high - start, high - attained_s >= slack_s
        if cut:
            share = max(slack_s - (start - attained_s), 0.0) / lasts
            chance, lasts = chance * share, lasts * share
        work += (1.0 - done - 0.5 * chance) * lasts
        done += chance
        if work > 0.0:
            found[0] = max(found[0], done / work)
        if found[3] < 0.0 and done >= 0.5:
            found[3] = high - attained_s
        if cut:
            break
    found[1], found[2] = done, max(work, 1.0)
    if found[3] < 0.0:
        found[3] = min(slack_s, LONGEST_S)


@kernel(lean=True)
def _edges(b):  # type: ignore[no-untyped-def]
    low = EDGES_S[b - 1] if b > 0 else 0.0
    return low, EDGES_S[b] if b < BINS - 1 else LONGEST_S


@kernel(lean=True)
def key(known, job, devices, slack_s, attained_s, left_s, running):  # type: ignore[no-untyped-def]
    """The key of a job whose belief is formed, smallest first. ``left_s`` is looked at by clairvoyants only."""
    if known.window[job] >= 0 and slack_s <= 0.0 and known.over[job] == 0:
        known.over[job] = 1
        known.live[0] -= devices
    found = known.found
    ends = known.window[job] >= 0 and known.over[job] == 0
    horizon_s = slack_s if ends else np.inf
    if known.clairvoyant[0] > 0:
        found[0], found[2], found[3] = 1.0 / max(left_s, 1.0), max(left_s, 1.0), max(left_s, 1.0)
        found[1] = 1.0 if left_s <= horizon_s else 0.0
        ends = ends and left_s <= horizon_s
    else:
        weigh(known.belief[job], attained_s, horizon_s, found)
    if not ends:
        return BEHIND - np.log(found[0] + 1e-12) + np.log(devices)
    describe(known, job, devices, slack_s, attained_s, running)
    push = network(known.weights, known.features, known.one)
    return _with_noise(known, job, push)


@kernel(lean=True)
def describe(known, job, devices, slack_s, attained_s, running):  # type: ignore[no-untyped-def]
    """Writes the features (F,) of a job that can be in time, from what ``weigh`` found."""
    found, seen = known.found, known.features
    load = np.log((1.0 + known.live[0]) / known.capacity[0]) / 3.0
    seen[0] = -np.log(found[0] + 1e-12) / 10.0
    seen[1] = np.log(devices) / 3.0
    seen[2] = np.log(known.weight[job]) / 3.0
    seen[3] = np.log(max(slack_s, 1.0) / found[2]) / 3.0
    seen[4] = np.log(max(slack_s, 1.0)) / 10.0
    seen[5] = np.log(found[1] + 1e-3) / 3.0
    seen[6] = known.log_window[job] / 10.0
    seen[7], seen[8] = load * seen[3], load * seen[4]
    seen[9] = 1.0 if running else 0.0
    seen[10] = load
    seen[11] = np.log(1.0 + attained_s) / 10.0
    seen[12] = np.log(1.0 + found[3]) / 10.0
    seen[13] = 1.0 if known.estimate[job] >= 0 else 0.0
    seen[14] = 1.0


@kernel(lean=True, fastmath=True)
def network(weights, features, one):  # type: ignore[no-untyped-def]
    """The logarithm of a key: linear in the features (F,), plus a bounded push; ``one`` (h,) is room."""
    first_bias, first, last, straights = weights.first_bias, weights.first, weights.last, weights.straight
    straight = np.float32(0.0)
    for j in range(len(one)):
        one[j] = first_bias[j]
    for i in range(len(features)):
        value = features[i]
        straight += value * straights[i]
        if value != 0:
            for j in range(len(one)):
                one[j] += value * first[i, j]
    push = weights.last_bias[0]
    for j in range(len(one)):
        push += max(one[j], np.float32(0.0)) * last[j]
    return straight + MOST_PUSH * np.tanh(push / MOST_PUSH)


@kernel(lean=True)
def _with_noise(known, job, push):  # type: ignore[no-untyped-def]
    """The key with the noise of a trial, which holds as long as the belief does; its first moment is written down."""
    trial = known.trial
    if len(trial.noise) == 0 or trial.noise[job] == 0.0:
        return push
    push += trial.noise[job]
    at = trial.used[0]
    if trial.told[job] == 0 and at < len(trial.job):
        trial.told[job] = 1
        for i in range(len(known.features)):
            trial.seen[at, i] = known.features[i]
        trial.job[at], trial.push[at] = job, push
        trial.used[0] += 1
    return push
