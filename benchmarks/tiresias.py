"""``two_queue`` and ``srtf`` on the traces of Muri's simulator, against the completion times that its authors publish.

data/traces/muri.csv.gz: four virtual clusters of Philly on 8 nodes of 8 GPUs, and the same jobs all at once; figures:
data/muri_jct.csv. As the simulator has it: borders of 3,250 and 7,200 device-seconds, nobody is promoted, a job takes
1.015 times its iterations' time, and any free GPUs do. A resumption takes 10 s (there: 4 to 46 s by model, charged to
all running jobs at every event). What promotion and the border that hippo ships make of it stands beside. Then borders
and promotion on the first 55 % of philly_open.csv, from which the setting that ships comes.
"""

from __future__ import annotations

import csv
import gzip
import statistics
from dataclasses import replace

import numpy as np

from _data import data  # type: ignore[import-not-found]
from hippo.jobs.engine.play import play
from hippo.jobs.policies.heuristics import SRTF, TWO_QUEUE
from hippo.jobs.settings import ReplayRules
from hippo.jobs.site import DevicePool, site
from hippo.jobs.traces.load import load_trace
from hippo.jobs.workload import JobWorkload

SITE = site([DevicePool("cluster", "gpu", 8, 8)])
RULES = ReplayRules(restart_s=10.0)
SLOWER = 1.015  # than its iterations alone, jobs.py of the simulator
PUBLISHED = replace(TWO_QUEUE, levels=(3250.0, 7200.0))
ALLOWED = 0.05
BORDERS = ((3250.0, 7200.0), *((border,) for border in (3.6e3, 2e4, 5e4, 1e5, 2e5, 4e5, 8e5)))
LOADS = (1.22, 1.0, 0.85)
PHILLY_SITE = site([DevicePool(f"domain-{k}", "gpu", 10, 8) for k in range(4)])


def traces() -> dict[str, JobWorkload]:
    """Each trace, and the same jobs all at once (``_pr``)."""
    with gzip.open(data("traces/muri.csv.gz"), "rt", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    found = {}
    for name in dict.fromkeys(row["trace"] for row in rows):
        mine = [row for row in rows if row["trace"] == name]
        columns = {
            "arrival_s": np.array([float(row["submit_ms"]) / 1000 for row in mine]),
            "duration_s": np.array([int(row["iterations"]) * int(row["iteration_ms"]) * SLOWER / 1000 for row in mine]),
            "devices": np.array([int(row["gpus"]) for row in mine]),
        }
        found[name] = JobWorkload.of_columns(columns)
        found[f"{name}_pr"] = JobWorkload.of_columns({**columns, "arrival_s": np.zeros(len(mine))})
    return found


def figures() -> dict[tuple[str, str], tuple[float, float]]:
    """Mean and 99th percentile of completion, seconds, as published: by trace and policy."""
    with data("muri_jct.csv").open(encoding="utf-8", newline="") as file:
        return {
            (row["trace"], row["policy"]): (float(row["mean_jct_s"]), float(row["p99_jct_s"]))
            for row in csv.DictReader(file)
        }


def searched() -> None:
    """Mean completion (h) by border and promotion on the part of Philly's trace that is learned from."""
    part = load_trace(data("traces/philly_open.csv.gz")).workload.part(0.0, 0.55)
    print(f"\nPhilly, first 55 %, mean completion in h, never promoted / after 8 times\n{'borders':>12s}", end="")
    print("".join(f"{f'load {load:g}':>17s}" for load in LOADS))
    for borders in BORDERS:
        told = f"{', '.join(f'{each:g}' for each in borders):>12s}"
        for load in LOADS:
            jobs = part.stretched(part.load(PHILLY_SITE) / load)
            means = []
            for after in (float("inf"), 8.0):
                policy = replace(TWO_QUEUE, levels=borders, promotes_after=after)
                means.append(float(np.nanmean(play(jobs, PHILLY_SITE, policy).finish_s - jobs.arrival_s)) / 3600)
            told += f"{f'{means[0]:.2f} / {means[1]:.2f}':>17s}"
        print(told, flush=True)


def main() -> None:
    """Prints the tables."""
    known, entrants = figures(), {"tiresias": PUBLISHED, "srtf": SRTF}
    print(
        f"{'trace':12s} {'jobs':>6s} {'policy':>9s} {'published, s':>13s} {'ours':>12s} {'ratio':>7s} {'p99 ratio':>9s}"
    )
    ratios: dict[str, list[float]] = {name: [] for name in entrants}
    for trace, workload in traces().items():
        for name, policy in entrants.items():
            took = play(workload, SITE, policy, RULES).finish_s - workload.arrival_s
            mean_s, p99_s = known[trace, name]
            ratios[name].append(float(took.mean()) / mean_s)
            p99 = float(np.sort(took)[int(0.99 * len(took))]) / p99_s
            told = f"{trace:12s} {len(workload):6,d} {name:>9s} {mean_s:13,.0f} {took.mean():12,.0f}"
            print(f"{told} {ratios[name][-1]:7.3f} {p99:9.3f}")
        variants = {"promoted after 8 times": replace(PUBLISHED, promotes_after=8.0), "as it ships": TWO_QUEUE}
        for name, policy in variants.items():
            took = play(workload, SITE, policy, RULES).finish_s - workload.arrival_s
            print(f"{'':19s} {name:>22s} {took.mean():13,.0f} {took.mean() / known[trace, 'tiresias'][0]:7.3f}")
    for name, found in ratios.items():
        within = sum(abs(each - 1) <= ALLOWED for each in found)
        print(
            f"{name}: mean completion {min(found):.3f} to {max(found):.3f} of the published one, median "
            f"{statistics.median(found):.3f}; within 5 % in {within} of {len(found)}"
        )
    searched()


if __name__ == "__main__":
    main()
