"""Data on their way to where a job runs: a directed link carries one transfer after the other."""

from __future__ import annotations

from hippo.compiling import kernel
from hippo.jobs.engine.columns import GB, HOME, MOVED


@kernel(lean=True)
def is_far(w, job, domain, gb):  # type: ignore[no-untyped-def]
    """Whether some of ``gb`` must still be sent to a domain."""
    home = w.mark[job, HOME]
    return gb > 0.0 and home >= 0 and home != domain and w.there[job, domain, 0] < gb


@kernel(lean=True)
def fetch(w, job, domain, gb, now):  # type: ignore[no-untyped-def]
    """Send what a domain lacks of ``gb``, once the link is free; returns when all is there."""
    home = w.mark[job, HOME]
    if gb <= 0.0 or home < 0 or home == domain:
        return now
    missing = gb - w.there[job, domain, 0]
    if missing > 0.0:
        link = w.link[home, domain]
        begins = max(now, link[2])
        link[2] = begins + missing * 1e9 / link[0]
        w.there[job, domain, 0] = gb
        w.there[job, domain, 1] = link[2] + link[1]
        w.link_gb[home, domain] += missing
        w.job[job, MOVED] += missing
    return max(now, w.there[job, domain, 1])


@kernel(lean=True)
def fetch_to_set(w, job, domains, now):  # type: ignore[no-untyped-def]
    """The same for a set of domains, to each an equal part; returns when the last is there."""
    count, rest, domain, there = 0, domains, 0, now
    while rest > 0:
        count += rest & 1
        rest >>= 1
    rest = domains
    while rest > 0:
        if rest & 1:
            there = max(there, fetch(w, job, domain, w.job[job, GB] / count, now))
        rest >>= 1
        domain += 1
    return there
