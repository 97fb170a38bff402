"""How likely a job ends in each bin to come, and the Gittins rank of that.

The classes of the past are chained: what the wider one says counts as ``pseudo`` further jobs of the narrower one
(shrinkage), from the prior over all jobs to the job's own batch. A small network, the same for every bin, looks at
what each class says and at how many jobs stand behind it, and corrects the last word of the chain; it never sees a
name, so it serves users whom it has not met. Trained by likelihood, censored jobs as survivors
(``hippo.jobs.train.hazards``).

The rank of a job is the least, over all horizons, of expected time given to it per chance that it ends by then: the
index of Gittins (1979) turned over, as Scully, Grosof and Harchol-Balter (2020) and Tiresias (2019) use it.

Letters: n jobs, S classes, B bins, V what the network sees of a bin, h units.
"""

from __future__ import annotations

import numpy as np

from hippo.compiling import kernel
from hippo.jobs.learned.past import EDGES_S, SOURCES

SEEN = (
    "prior",
    *(f"said_{source}" for source in SOURCES),
    *(f"behind_{source}" for source in SOURCES),
    *("bin", "ahead", "gap", "in_batch", "devices", "waited", "one"),
)
"""What the network sees of a bin, V numbers."""
LONGEST_S = float(EDGES_S[-1] * 1.4)  # where the last bin ends


@kernel(lean=True, fastmath=True)
def look(history, weights, job, log_devices, waited_s, seen):  # type: ignore[no-untyped-def]
    """Writes what is seen of the bins (B, V) from the job's on."""
    rows, own, place = history.row[job], history.level[job], history.place[job]
    exposed, deaths, prior, pseudo = history.exposed, history.deaths, weights.prior, weights.pseudo
    sources, waited = len(rows), np.log(1.0 + waited_s) / 14.0
    for b in range(own, seen.shape[0]):
        hazard = prior[b]
        seen[b, 0] = np.log(hazard / (1.0 - hazard))
        for source in range(sources):
            row = rows[source]
            behind = exposed[row, b]
            hazard = (deaths[row, b] + pseudo[source] * hazard) / (behind + pseudo[source])
            hazard = min(max(hazard, 1e-4), 0.9999)
            seen[b, 1 + source] = np.log(hazard / (1.0 - hazard))
            seen[b, 1 + sources + source] = 0.3 * np.log(1.0 + behind)
        last = 1 + 2 * sources
        seen[b, last] = 2.0 * b / seen.shape[0] - 1.0
        seen[b, last + 1] = (b - own) / 10.0
        seen[b, last + 2] = place[0] / 14.0
        seen[b, last + 3] = place[1] / 8.0
        seen[b, last + 4] = log_devices / 5.0
        seen[b, last + 5] = waited
        seen[b, last + 6] = 1.0


@kernel(lean=True, fastmath=True)
def judge(weights, seen, own, room, hazard):  # type: ignore[no-untyped-def]
    """Writes the hazards (B,) of the bins from ``own`` on; ``room`` (h,) float32."""
    base = len(SOURCES)
    bias, first, last, last_bias = (  # read once, not in every round of a loop
        weights.hazard_first_bias,
        weights.hazard_first,
        weights.hazard_last,
        weights.hazard_last_bias,
    )
    for b in range(own, len(hazard)):
        for j in range(len(room)):
            room[j] = bias[j]
        for i in range(seen.shape[1]):
            value = seen[b, i]
            for j in range(len(room)):
                room[j] += value * first[i, j]
        logit = seen[b, base] + last_bias[0]
        for j in range(len(room)):
            logit += max(room[j], np.float32(0.0)) * last[j]
        hazard[b] = 1.0 / (1.0 + np.exp(-logit))


@kernel(lean=True)
def rank(hazard, own, attained_s):  # type: ignore[no-untyped-def]
    """Expected seconds per completion at the best horizon, for a job in bin ``own``; at least 1 s.

    Whoever ends in a bin ends in its middle, and of the bin that the job is in only the rest is left.
    """
    alive, spent_s, best = 1.0, 0.0, np.inf
    for b in range(own, len(hazard)):
        left_s, chance = _rest(hazard, b, own, attained_s)
        ending = alive * chance
        spent_s += (alive - 0.5 * ending) * left_s
        alive -= ending
        if alive < 1.0 - 1e-9:
            best = min(best, spent_s / (1.0 - alive))
    return max(best, 1.0)


@kernel(lean=True)
def chance_within(hazard, own, attained_s, horizon_s):  # type: ignore[no-untyped-def]
    """Chance that a job in bin ``own`` ends within ``horizon_s`` of work (>= 0), uniform inside a bin."""
    alive, ahead_s = 1.0, 0.0
    for b in range(own, len(hazard)):
        left_s, chance = _rest(hazard, b, own, attained_s)
        if ahead_s + left_s >= horizon_s:
            return 1.0 - alive * (1.0 - chance * (horizon_s - ahead_s) / max(left_s, 1e-9))
        alive *= 1.0 - chance
        ahead_s += left_s
    return 1.0 - alive


@kernel(lean=True)
def remaining(hazard, own, attained_s, share):  # type: ignore[no-untyped-def]
    """Mean seconds left, and the time within which the job ends with chance ``share``."""
    alive, ahead_s, mean_s, quantile_s = 1.0, 0.0, 0.0, -1.0
    for b in range(own, len(hazard)):
        left_s, chance = _rest(hazard, b, own, attained_s)
        after = alive * (1.0 - chance)
        if quantile_s < 0 and 1.0 - after >= share:
            quantile_s = ahead_s + left_s * (share - (1.0 - alive)) / max(alive - after, 1e-12)
        mean_s += 0.5 * (alive + after) * left_s
        alive, ahead_s = after, ahead_s + left_s
    return mean_s, quantile_s if quantile_s >= 0 else ahead_s


@kernel(lean=True)
def _rest(hazard, b, own, attained_s):  # type: ignore[no-untyped-def]
    """Seconds of bin ``b`` that lie ahead, and the chance to end in them."""
    top_s = EDGES_S[b] if b < len(EDGES_S) else LONGEST_S
    if b > own:
        return top_s - EDGES_S[b - 1], hazard[b]
    bottom_s = EDGES_S[b - 1] if b > 0 else 0.0
    left_s = min(max(top_s - attained_s, 0.0), top_s - bottom_s)
    return left_s, 1.0 - (1.0 - hazard[b]) ** (left_s / (top_s - bottom_s))
