"""A policy that decides, logs and goes on learning while jobs come, on a replayed queue.

    python examples/jobs_online.py                                   # drawn jobs; half a minute to some minutes
    python examples/jobs_online.py --trace philly.csv --jobs 1500 --out out/online

A queue of drawn jobs (or of the first jobs of a trace) is played moment by moment as if it were live. At every moment
the loop (``hippo.jobs.online``) picks a candidate, writes what it saw, what was allowed, what it chose and how likely
that was to a SQLite log, and only then hands the decision out. Every 100 ended jobs an update searches better scores on
recent history (a live loop does that in another process, ``--background process``; a replay would be over first). One
that replays better than what serves, and is not worse than the guard by more than the margin, is swapped in. Here jobs
are not stopped for others, so the guard is first come first served, past what does not fit. Drawn jobs change half-way:
users whose jobs were short have long ones.

Stop it with Ctrl-C, or kill it, and start it again with the same ``--out``: the log goes on, and so does the policy
that served last (the queue begins anew: it is only played). Printed: who served when and why, and mean completion times
by arrival against the guard alone and against the first policy alone.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from hippo.errors import InputError
from hippo.jobs.env.replayed import Replayed, ScoreLearner
from hippo.jobs.online.guard import Margins, TwoQueueGuard
from hippo.jobs.online.log import Left
from hippo.jobs.online.loop import GUARD, Loop, LoopSettings
from hippo.jobs.settings import ReplayRules
from hippo.jobs.site import DevicePool, site
from hippo.jobs.traces.load import load_trace
from hippo.jobs.workload import JobWorkload

SITE = site([DevicePool(f"domain-{index}", "gpu", 1, 8) for index in range(4)])
CANDIDATES, LOAD, WINDOWS = 12, 1.0, 6


def drawn(jobs: int, seed: int) -> JobWorkload:
    """Jobs of eight users, whose medians turn round half-way."""
    rng = np.random.default_rng(seed)
    user, late = rng.integers(0, 8, jobs), np.arange(jobs) >= jobs // 2
    median_s = np.geomspace(120.0, 20_000.0, 8)
    columns = {
        "arrival_s": np.cumsum(rng.exponential(60.0, jobs)),
        "duration_s": np.where(late, median_s[::-1][user], median_s[user]) * rng.lognormal(0.0, 0.6, jobs),
        "devices": 2 ** rng.choice(4, jobs, p=[0.55, 0.2, 0.15, 0.1]),
        "user": user,
    }
    return JobWorkload.of_columns(columns, users=tuple(f"user-{number}" for number in range(8)))


def loaded(workload: JobWorkload) -> JobWorkload:
    """At the load of the example; gangs that fit into a domain."""
    fits = workload.take(workload.devices <= 8).part(0.0, 1.0)
    return fits.stretched(fits.load(SITE) / LOAD)


def served(
    workload: JobWorkload, folder: Path, rules: ReplayRules, given: argparse.Namespace
) -> tuple[list[tuple[float, int, str]], NDArray[np.float64], int]:
    """Plays the queue under the loop: who served when and why, when jobs ended, and the decisions made."""
    learner, margins = (
        ScoreLearner(SITE, rules, CANDIDATES, False, seed=given.seed),
        Margins(given.margin, 0.01, 200, 300, 800),
    )
    settings = LoopSettings(folder, given.review, margins, background=given.background, durable=given.durable)
    source = Replayed(workload, SITE, rules, candidates=CANDIDATES, force=False)
    with (
        Loop(learner, learner.first(), TwoQueueGuard(SITE, rules, stops=False), settings) as loop,
        Progress(console=Console(stderr=True)) as shown,
    ):
        task = shown.add_task("Serving", total=len(workload))
        first = source.look()
        if first is not None and (last_s := loop.open(first)):  # an old log: go on behind it
            source.begins_s, source.run = last_s + 1.0, f"run at {last_s:.0f}, job "
            there = [each.job.name for each in loop.log.jobs() if each.finish_s is None]
            loop.log.happened(left=[Left(name, last_s) for name in there])  # of a run that was stopped
        while (moment := source.look()) is not None:
            source.carry_out(loop.decide(moment))
            shown.update(task, advance=len(moment.ended))
        loop.told(source.rest())
        loop.finish_review()
        return list(loop.log.served), source.env.ledger().finish_s, loop.log.decisions


def table(workload: JobWorkload, finishes: dict[str, NDArray[np.float64]]) -> Table:
    """Mean completion by arrival, h."""
    shown = Table(title="Mean completion time by arrival, h", title_justify="left")
    for index, head in enumerate(("jobs", *finishes)):
        shown.add_column(head, justify="left" if index == 0 else "right", no_wrap=True)
    edges = np.linspace(0, len(workload), WINDOWS + 1).astype(int)
    for first, last in (*zip(edges[:-1], edges[1:], strict=True), (0, len(workload))):
        took = [f"{np.nanmean((each - workload.arrival_s)[first:last]) / 3600:.2f}" for each in finishes.values()]
        shown.add_row("all" if last - first == len(workload) else f"{first + 1} to {last}", *took)
    return shown


def main(arguments: Sequence[str] | None = None) -> dict[str, float]:
    """The command; mean completion times, s."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trace", default="", help="jobs to serve; default: drawn ones")
    parser.add_argument("--jobs", type=int, default=1200, help="at most so many, the first ones of a trace")
    parser.add_argument("--review", type=int, default=100, help="ended jobs between two reviews")
    parser.add_argument("--margin", type=float, default=0.05, help="share by which the guard may be better")
    parser.add_argument(
        "--background", choices=("none", "process", "thread"), default="none", help="where updates are made"
    )
    parser.add_argument("--durable", choices=("full", "normal"), default="normal")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("out/jobs_online"))
    given = parser.parse_args(arguments)
    for name, least in (("jobs", 1), ("seed", 0)):
        if (number := getattr(given, name)) < least:
            raise InputError(f"must be {least} or more", source=f"--{name}", value=number, remedy="give a whole number")
    jobs = load_trace(given.trace).workload if given.trace else drawn(given.jobs, given.seed)
    jobs = jobs.take(np.arange(len(jobs)) < given.jobs)
    workload, rules, console = loaded(jobs), ReplayRules(), Console(width=None if sys.stdout.isatty() else 110)
    learner = ScoreLearner(SITE, rules, CANDIDATES, False)
    who, finish_s, decisions = served(workload, given.out, rules, given)
    finishes = {"loop": finish_s, "guard": TwoQueueGuard(SITE, rules, stops=False).finishes(workload)}
    finishes["first policy"] = learner.policy(learner.first()).finishes(workload)
    for time_s, version, why in who:
        name = "the guard" if version == GUARD else f"version {version}"
        console.print(f"from {time_s / 3600:.1f} h {name}: {why}", highlight=False)
    console.print(table(workload, finishes))
    console.print(f"{decisions} decisions in {given.out / 'log.sqlite'}", highlight=False)
    return {name: float(np.nanmean(each - workload.arrival_s)) for name, each in finishes.items()}


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)
