"""Deadline misses with mixed priorities, for ``hippo bench jobs``.

Windows of the last 30 % of the Philly trace's time (training: the first 55 %, looking: up to 70 %), stretched to a
load, with deadlines and priorities of ``hippo.jobs.traces.mix`` under several seeds. 4 domains of 80 GPUs, restart
30 s.
Three groups: policies that hippo ships; rules made for this page, which keep jobs whose deadline has passed for the
end (the strongest that were found); and the same rules knowing durations, as a limit. Whoever learns knows the trace
before the window. `python benchmarks/_deadlines.py` plays more cases than the bench.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hippo.intervals import paired
from hippo.jobs.engine.play import play
from hippo.jobs.learned.deadline import linear, shipped
from hippo.jobs.learned.state import LearnedSetup
from hippo.jobs.policies.learned import LEARNED_DEADLINES
from hippo.jobs.site import DevicePool, site
from hippo.jobs.traces.load import load_trace
from hippo.jobs.traces.mix import drawn, missed
from hippo.jobs.workload import JobWorkload
from hippo.registry import job_policy

SITE = site([DevicePool(f"domain-{k}", "gpu", 10, 8) for k in range(4)])
WINDOWS = ((0.7, 0.85), (0.85, 1.0))
PAST = 8000  # jobs before a window that are remembered
SHIPPED = ("two_queue", "deadline", "least_slack")
RULES = {
    "earliest, late last": {"slack": 10.0},
    "window, late last": {"window": 10.0},
    "window x GPUs, late last": {"window": 10.0, "devices": 3.0},
    "window x GPUs / weight": {"window": 10.0, "devices": 3.0, "priority": -3.0},
    "index x GPUs / weight": {"index": 10.0, "devices": 3.0, "priority": -3.0},
}
LIMITS = {
    "limit: earliest": {"slack": 10.0},
    "limit: left x GPUs / weight": {"index": 10.0, "devices": 3.0, "priority": -3.0},
    "limit: mixture": {"index": 10.0, "devices": 3.0, "priority": -1.5, "room": 0.6},
}
LEARNED = "learned"
TOLD = "learned, estimates"


@dataclass(frozen=True)
class Case:
    """A window of the trace with its deadlines."""

    setting: str
    first: float
    last: float
    load: float
    seed: int


@dataclass(frozen=True)
class Row:
    """What a policy missed in a case, percent."""

    case: Case
    policy: str
    late: int
    share: float
    weighted: float

    @property
    def both(self) -> float:
        """Mean of the two shares, percent: what was trained for."""
        return 0.5 * (self.share + self.weighted)


def rows(trace: JobWorkload, cases: Iterator[Case] | list[Case]) -> Iterator[Row]:
    """Every policy on every case."""
    for case in cases:
        window, past = trace.part(case.first, case.last), trace.part(0.0, case.first)
        past = past.take(np.arange(max(0, len(past) - PAST), len(past))).between(-np.inf, np.inf)
        window = window.stretched(window.load(SITE) / case.load)
        blind, told = (drawn(window, case.setting, case.seed, estimates=each) for each in (None, 1.0))
        for name in SHIPPED:
            workload = told if name == "least_slack" else blind
            found = missed(play(workload, SITE, job_policy(name)), workload)
            yield Row(case, name, found.late, 100 * found.share, 100 * found.weighted)
        learners = {name: LearnedSetup(deadlines=linear(**rule), past=past) for name, rule in RULES.items()}
        learners[LEARNED] = learners[TOLD] = LearnedSetup(deadlines=shipped(), past=past)
        learners |= {name: LearnedSetup(deadlines=linear(**rule), clairvoyant=True) for name, rule in LIMITS.items()}
        for name, learner in learners.items():
            workload = told if name == TOLD else blind
            found = missed(play(workload, SITE, LEARNED_DEADLINES, learner=learner), workload)
            yield Row(case, name, found.late, 100 * found.share, 100 * found.weighted)


def usual_cases() -> list[Case]:
    """Those of ``hippo bench jobs``: about a minute."""
    loads = {"gavel": 1.5, "chronus": 1.2, "calendar": 1.2, "best_effort": 1.5}
    return [Case(setting, *WINDOWS[0], load, seed) for setting, load in loads.items() for seed in (1, 2)]


def more_cases() -> list[Case]:
    """Those of ``results/deadlines.md``: both windows at two loads, and both as one at the load that the trace has."""
    return [
        case
        for setting in ("gavel", "chronus", "calendar", "best_effort")
        for case in (
            Case(setting, WINDOWS[0][0], WINDOWS[-1][1], 1.22, 1),
            *(Case(setting, *window, load, seed) for window in WINDOWS for load, seed in ((1.0, 2), (1.5, 3))),
        )
    ]


def table(found: list[Row]) -> list[str]:
    """Lines of text: of each setting, what each policy missed on the mean of its cases, and the learned one against it,
    with 95 % intervals of the differences case by case."""
    lines: list[str] = []
    for setting in dict.fromkeys(row.case.setting for row in found):
        here = [row for row in found if row.case.setting == setting]
        cases = list(dict.fromkeys(row.case for row in here))
        loads = ", ".join(f"{load:g}" for load in dict.fromkeys(case.load for case in cases))
        lines += ["", f"{setting}: {len(cases)} cases, loads {loads}"]
        lines.append(f"  {'policy':28s} {'late':>8s} {'share %':>8s} {'weighted %':>11s}   learned less this, %-points")
        both = {
            name: [row.both for row in here if row.policy == name] for name in dict.fromkeys(r.policy for r in here)
        }
        for name in both:
            own = [row for row in here if row.policy == name]
            less = paired(both[LEARNED], both[name])
            told = "" if less is None else f"   {less.mean:+8.3f}  ({less.low:+.3f} .. {less.high:+.3f})"
            against = "" if name == LEARNED else told
            late, share, weighted = (
                statistics.mean(getattr(r, key) for r in own) for key in ("late", "share", "weighted")
            )
            lines.append(f"  {name:28s} {late:8.1f} {share:8.3f} {weighted:11.3f}{against}")
    return lines


def deadlines(trace: JobWorkload) -> list[str]:
    """The lines that ``hippo bench jobs`` prints."""
    return table(list(rows(trace, usual_cases())))


def main() -> None:
    """More cases, each written as soon as it has been played; of the settings named, all if none is."""
    from _data import data  # type: ignore[import-not-found]

    trace = load_trace(data("traces/philly_open.csv.gz")).workload
    cases = [case for case in more_cases() if not sys.argv[1:] or case.setting in sys.argv[1:]]
    found = []
    for case in cases:
        found += list(rows(trace, [case]))
        told = ", ".join(f"{row.policy} {row.share:.3f}/{row.weighted:.3f}" for row in found if row.case == case)
        sys.stdout.write(f"{case}: {told}\n")
        sys.stdout.flush()
    sys.stdout.write("\n".join(table(found)) + "\n")


if __name__ == "__main__":
    main()
