"""The agents of a site on Philly's gangs, nothing known of durations, beside the queue's policies.

    python benchmarks/_philly_agents.py [FIRST LAST [POLICY.npz]]

A part of the trace (by default its last 30 %) on four domains of 80 GPUs, once where running jobs may be stopped and
once where they are kept. No job tells how long it takes: the rule that advises the agents, and decides where jobs may
be stopped, which they never learned, knows of a job what ``learned`` does, the past of jobs like it. Mean completion
over FIFO's, and over that of ``learned`` with a 95 % interval (bootstrap over days of arrival, paired). *Told*: the
same where every job tells its true duration (no baseline: how much that is worth).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import process_time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from _data import data  # type: ignore[import-not-found]
from hippo.jobs.joint.hi_ppo.policy import Agents, HiPpoScheduler, shipped
from hippo.jobs.joint.play import play_jointly
from hippo.jobs.joint.settings import SRPT
from hippo.jobs.learned.state import LearnedSetup
from hippo.jobs.ledger import Ledger
from hippo.jobs.placement.offers import OfferTable
from hippo.jobs.settings import ReplayRules
from hippo.jobs.traces.load import load_trace
from hippo.jobs.workload import JobWorkload
from jobs import SITE, completion_s, entrants, ratio, replayed  # type: ignore[import-not-found]

QUEUE = ("fifo", "fair", "two_queue", "learned")
Play = Callable[[], Ledger]


def plays(window: JobWorkload, past: JobWorkload, agents: Agents) -> Iterator[tuple[str, Play]]:
    """Who plays, and how."""
    for each in entrants():
        if each.name in QUEUE:
            yield each.name, partial(replayed, each, window, past, SITE, ReplayRules())
    ours = HiPpoScheduler(agents=agents)
    for where, stops in (("stopped", True), ("kept", False)):
        for what, learner in (("untold", LearnedSetup(past=past)), ("told", None)):
            for who in (ours,) if stops else (SRPT, ours):
                rules, none = ReplayRules(stops=stops), OfferTable.none()
                play = partial(play_jointly, window, SITE, who, rules, offers=none, learner=learner)
                yield f"{who.name}, {what}, {where}", play
    learned = next(each for each in entrants() if each.name == "learned")
    kept = replace(learned, policy=replace(learned.policy, preempts=False))
    yield "learned, kept", partial(replayed, kept, window, past, SITE, ReplayRules(stops=False))


def main(first: float, last: float, file: Path | None) -> None:
    """Prints the table."""
    agents = shipped() if file is None else Agents.unpacked(file.read_bytes(), str(file))
    trace = load_trace(data("traces/philly_open.csv.gz")).workload
    window, past = trace.part(first, last), trace.part(0.0, first)
    print(f"{first:.0%} to {last:.0%}, {len(window):,} jobs, load {window.load(SITE):.2f}")
    print(f"{'policy':24s}{'mean, h':>9s}{'of FIFO':>9s}{'of learned':>12s}{'95 %':>18s}{'stops':>9s}{'CPU s':>8s}")
    took_s = {}
    for name, play in plays(window, past, agents):
        began = process_time()
        ledger = play()
        cpu_s, took_s[name] = process_time() - began, completion_s(ledger, window)
        mean_s, known = float(np.nanmean(took_s[name])), "learned" in took_s
        rng = np.random.default_rng(0)
        beside = (
            "{:12.3f}{:8.3f} .. {:.3f}".format(*ratio(took_s[name], took_s["learned"], window, rng)) if known else ""
        )
        print(
            f"{name:24s}{mean_s / 3600:9.2f}{mean_s / float(np.nanmean(took_s['fifo'])):9.4f}{beside:30s}"
            f"{int(ledger.preemptions.sum()):9,d}{cpu_s:8.1f}",
            flush=True,
        )


if __name__ == "__main__":
    first, last = [float(each) for each in sys.argv[1:3]] or (0.7, 1.0)
    main(first, last, Path(sys.argv[3]) if len(sys.argv) > 3 else None)
