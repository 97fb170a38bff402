"""The agents of a site on Philly's gangs, nothing known of durations, beside the queue's policies.

    python benchmarks/_philly_agents.py POLICY.npz [FIRST LAST]

A part of the trace (by default 70 to 72 % of its time) on four domains of 80 GPUs. *Untold*: every job is told to take
as long as jobs took in the mean before the part begins; *told*: its true duration (no baseline: how much that is
worth). Mean completion over FIFO's. Agents never stop a gang: an answer is to start one that waits, or nobody.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from time import process_time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from _data import data  # type: ignore[import-not-found]
from hippo.jobs.joint.hi_ppo.policy import Agents, HiPpoScheduler
from hippo.jobs.joint.play import play_jointly
from hippo.jobs.settings import ReplayRules
from hippo.jobs.traces.load import load_trace
from jobs import SITE, completion_s, entrants, replayed  # type: ignore[import-not-found]
from rivals import ground  # type: ignore[import-not-found]

QUEUE = ("fifo", "backfill", "two_queue", "learned")


def main(file: Path, first: float, last: float) -> None:
    """Prints the table."""
    agents = Agents.unpacked(file.read_bytes(), str(file))
    trace = load_trace(data("traces/philly_open.csv.gz")).workload
    window, past = trace.part(first, last), trace.part(0.0, first)
    print(f"{first:.0%} to {last:.0%}, {len(window):,} jobs, load {window.load(SITE):.2f}")
    mean_s, cpu_s = {}, {}
    for each in entrants():
        if each.name in QUEUE:
            replayed(each, window.part(0.0, 0.1), past, SITE, ReplayRules())  # compiled
            began = process_time()
            ledger = replayed(each, window, past, SITE, ReplayRules())
            mean_s[each.name] = float(np.nanmean(completion_s(ledger, window)))
            cpu_s[each.name] = process_time() - began
    untold = replace(window, estimate_s=np.full(len(window), float(past.duration_s.mean())))
    for name, told in (("hi_ppo, untold", untold), ("hi_ppo, told", replace(window, estimate_s=window.duration_s))):
        began, rules = process_time(), ReplayRules(stops=agents.stops)
        ledger = play_jointly(told, SITE, HiPpoScheduler(agents=agents), rules, offers=ground().offers)
        mean_s[name], cpu_s[name] = float(np.nanmean(completion_s(ledger, window))), process_time() - began
    print(f"{'policy':20s}{'mean, h':>10s}{'of FIFO':>10s}{'CPU s':>10s}")
    for name, value in mean_s.items():
        print(f"{name:20s}{value / 3600:10.2f}{value / mean_s['fifo']:10.3f}{cpu_s[name]:10.1f}")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("name a policy, the file that hippo train --config world wrote")
    part = [float(each) for each in sys.argv[2:4]] or [0.7, 0.72]
    main(Path(sys.argv[1]), *part)
