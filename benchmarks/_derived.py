"""Figures derived again from raw rows, by sums of their own that use nothing of hippo, beside what hippo printed.

    hippo evaluate --world .. --bounds relaxation --out DIR
    python benchmarks/_derived.py worlds DIR hi_ppo srpt
    hippo jobs replay .. --out DIR
    python benchmarks/_derived.py replay DIR CLUSTER.yaml

*Worlds*: of two methods the ratio of priced time and its 95 % interval over worlds, the ratio of mean completion, and
the share of the bound, from when each job came (``jobs.jsonl``) and ended (``worlds.jsonl``). *Replay*: of the first
scheduler mean and priority-weighted completion, goodput and egress, from a row a job (``replayed.jsonl``) and what went
over each link (``jobs.json``).
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import yaml

STUDENT = {
    2: 12.7062,
    3: 4.30265,
    4: 3.18245,
    5: 2.77645,
    6: 2.57058,
    8: 2.36462,
    10: 2.26216,
    20: 2.09302,
    40: 2.02269,
}
"""Student's t at 97.5 % for so many worlds, one degree of freedom less (any table of it)."""


def rows(path: Path) -> list[dict[str, Any]]:
    """A row a line."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def told(name: str, mine: float, theirs: float) -> None:
    """A figure beside what hippo said, and to how many digits they agree."""
    apart = abs(mine - theirs) / max(abs(theirs), 1e-300)
    digits = "all" if apart == 0.0 else f"{max(0, math.floor(-math.log10(apart)))}"
    print(f"{name:34s}{mine:18.10g}{theirs:18.10g}{digits:>8s}")


def worlds(folder: Path, ours: str, rival: str) -> None:
    """See the file."""
    jobs: dict[str, list[dict[str, Any]]] = {}
    for job in rows(folder / "jobs.jsonl"):
        jobs.setdefault(job["world"], []).append(job)
    priced, took, shares = {}, {}, []
    for row in rows(folder / "worlds.jsonl"):
        asked = jobs[row["world"]]
        ends = [float("nan") if end is None else end for end in row["finish_s"]]
        last = max(end for end in ends if end == end)
        stays = [(end if end == end else 2 * last) - job["arrival_s"] for end, job in zip(ends, asked, strict=True)]
        weights = [1 + max(0, job["priority"]) for job in asked]
        key = row["world"], row["method"]
        priced[key] = sum(w * s for w, s in zip(weights, stays, strict=True)) / sum(weights)
        took[key] = sum(stays) / len(stays)
        if row["method"] == ours:
            shares.append(row["bound_priced_s"] / priced[key])
    said = json.loads((folder / "evaluation.json").read_text(encoding="utf-8"))
    print(f"{len(jobs)} worlds, {ours} over {rival}{'derived':>23s}{'hippo':>18s}{'digits':>8s}")
    for name, figure in (("priced_s", priced), ("mean_completion_s", took)):
        ratios = np.array([figure[world, ours] / figure[world, rival] for world in jobs])
        half = STUDENT[len(ratios)] * float(ratios.std(ddof=1)) / math.sqrt(len(ratios))
        known, mean = said["ratios"][ours][rival][name], float(ratios.mean())
        for what, value in (("mean", mean), ("low", mean - half), ("high", mean + half)):
            told(f"{name} ratio, {what}", value, known[what])
    told("of_bound", sum(shares) / len(shares), said["methods"][ours]["of_bound"]["mean"])


def replay(folder: Path, file: Path) -> None:
    """See the file."""
    jobs, said = rows(folder / "replayed.jsonl"), json.loads((folder / "jobs.json").read_text(encoding="utf-8"))
    cluster = yaml.safe_load(file.read_text(encoding="utf-8"))
    price: dict[tuple[str, str], float] = {}
    for link in cluster["links"]:
        price[link["from"], link["to"]] = link["price_usd_per_gb"]
        if link.get("both"):
            price[link["to"], link["from"]] = link["price_usd_per_gb"]
    devices = sum(each["nodes"] * each["gpus_per_node"] for each in cluster["domains"])
    ended = [job for job in jobs if job["finish_s"] is not None]
    took, weight = (
        [job["finish_s"] - job["arrival_s"] for job in ended],
        [1 + max(0, job["priority"]) for job in ended],
    )
    crossed = [link for link in said["links"] if link["from"] != link["to"]]
    print(f"{said['policy']}, {len(jobs)} jobs{'derived':>31s}{'hippo':>18s}{'digits':>8s}")
    told("mean_completion_s", sum(took) / len(took), said["mean_completion_s"])
    weighted = sum(s * w for s, w in zip(took, weight, strict=True)) / sum(weight)
    told("weighted_completion_s", weighted, said["weighted_completion_s"])
    lasts_s = max(job["arrival_s"] for job in jobs) - min(job["arrival_s"] for job in jobs)
    done = sum((1 + max(0, job["priority"])) * job["work_device_s"] for job in jobs)
    told("goodput", done / (lasts_s * devices), said["goodput"])
    told("egress_gb", sum(link["gb"] for link in crossed), said["egress_gb"])
    told("egress_usd", sum(link["gb"] * price[link["from"], link["to"]] for link in crossed), said["egress_usd"])
    held = sum(job["run_s"] for job in ended)
    told("mean_queueing_s", (sum(took) - held) / len(took), said["mean_queueing_s"])
    told("preemptions", sum(job["stops"] for job in jobs), said["preemptions"])


if __name__ == "__main__":
    if len(sys.argv) == 5 and sys.argv[1] == "worlds":
        worlds(Path(sys.argv[2]), *sys.argv[3:])
    elif len(sys.argv) == 4 and sys.argv[1] == "replay":
        replay(Path(sys.argv[2]), Path(sys.argv[3]))
    else:
        sys.exit(__doc__)
