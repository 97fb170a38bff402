"""The figures of README: the plans of its table asked anew, and the intervals of printed steps.

Prints the blocks between the marks ``<!-- figures: NAME -->`` of README as ``results/readme.json`` has them. With
``--plan`` the plans are asked anew (a minute) and that file is written; with ``--write`` README's blocks are, too.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import hippo
from hippo.decide.wording import number, percent, usd
from hippo.problem.load import load_problem
from hippo.problem.runtimes import runtime_of
from hippo.score.interval import NCCL, coverage

ROOT = Path(__file__).resolve().parents[1]
README, RESULTS = ROOT / "README.md", ROOT / "results" / "readme.json"
ASKED: Mapping[str, Any] = {"model": "llama-3-70b", "cluster": "four-hubs"}
RUNTIMES = ("hippo", "torch", "deepspeed", "megatron", "ideal")
TOLD = {
    "torch": "torch.distributed.pipelining on gloo",
    "single_domain": "`single_domain`: do not cross",
    "even": "`even`: every layer alike over all domains",
    "zero": "`zero`: ZeRO over the links",
}
RIVALS = ("crosspipe", "single_domain", "sailor", "mast", "dtfm", "alpa", "even", "zero")


def main() -> None:
    """Prints the blocks; plans anew and writes where it is asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plan", action="store_true")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    if given.plan:
        RESULTS.write_text(json.dumps({"plans": planned()}, indent=1) + "\n", encoding="utf-8")
    blocks = written(json.loads(RESULTS.read_text(encoding="utf-8")))
    if given.write:
        README.write_text(filled(README.read_text(encoding="utf-8"), blocks), encoding="utf-8")
    print("\n\n".join(blocks.values()))


def planned() -> list[dict[str, Any]]:
    """A row per plan: the exact search under each runtime, then the rivals under hippo's executor."""
    rows = []
    for runtime in RUNTIMES:
        problem = load_problem(**ASKED, runtime=runtime)
        rows.append(row("exact", hippo.plan(problem, planner="exact", why=False).judged))
    found = hippo.compare(load_problem(**ASKED, runtime="hippo"), planner=",".join(RIVALS))
    return rows + [row(each.planner, each.best) for each in found.rows if each.best is not None]


def row(planner: str, best: Any) -> dict[str, Any]:
    """A plan as the results have it."""
    around = best.interval
    return {
        "planner": planner,
        "runtime": best.problem.runtime,
        "step_time_s": round(best.step_time_s, 3),
        "interval_s": None if around is None else [round(around.low_s, 3), round(around.high_s, 3)],
        "domains": len(best.plan.domains),
        "gpus": best.plan.gpus,
        "usd_per_step": round(best.score.usd_per_step, 3),
        "egress_usd_per_step": round(best.score.egress_usd_per_step, 3),
    }


def written(results: Mapping[str, Any]) -> dict[str, str]:
    """The blocks of README by name."""
    rows = results["plans"]
    head = "| planned by | to be run by | step | 90 % | domains in use | GPUs | price a step (of it egress) |"
    table = "\n".join([head, "|---|---|---|---|---|---|---|", *map(_line, rows)])
    best = {(row["planner"], row["runtime"]): row for row in rows}
    crossing, alone = best["exact", "hippo"], best["single_domain", "hippo"]
    less = 1 - crossing["step_time_s"] / alone["step_time_s"]
    times, dearer = (crossing[key] / alone[key] for key in ("gpus", "usd_per_step"))
    seconds = f"{number(crossing['step_time_s'], 4)} against {number(alone['step_time_s'], 4)} s"
    crosses = (
        f"Crossing takes {percent(less)} off a step under hippo's executor ({seconds}), with {number(times, 2)} times "
        f"the GPUs and {number(dearer, 2)} times the money."
    )
    told = coverage()
    rest = [each for name, each in told.items() if name != NCCL]
    rows_held = sum(_int(each["rows"]) for each in told.values())
    covered = sum(_int(each["rows"]) * _float(each["covered"]) for each in told.values()) / rows_held
    widths = sorted(_float(each["half_width"]) for each in rest)
    nccl = percent(_float(told[NCCL]["half_width"]))
    intervals = (
        f"The interval beside a step holds nine of ten measured steps by rows like it: of {rows_held} rows, each "
        f"predicted without its own source, {percent(covered)} lie in theirs (`hippo bench intervals`). It is "
        f"the step and {percent(widths[0])} to {percent(widths[-1])} either way; {nccl} over a WAN under NCCL, "
        "which nobody measured alone. What no runtime does has none."
    )
    return {"plans": table, "crossing": crosses, "intervals": intervals}


def _int(value: object) -> int:
    return int(str(value))


def _float(value: object) -> float:
    return float(str(value))


def _line(row: Mapping[str, Any]) -> str:
    name, runtime = row["planner"], row["runtime"]
    option = "" if runtime == "hippo" or name != "exact" else f", `--runtime {runtime}`"
    around = row["interval_s"]
    price = usd(row["usd_per_step"])
    cells = (
        TOLD.get(name, f"`{name}`") + option,
        TOLD.get(runtime, runtime_of(runtime).told.replace("hippo's executor", "hippo's own executor")),
        f"{number(row['step_time_s'], 4)} s",
        "–" if around is None else f"{number(around[0])} to {number(around[1])} s",
        str(row["domains"]),
        str(row["gpus"]),
        f"{price} ({usd(row['egress_usd_per_step'])})" if row["egress_usd_per_step"] else price,
    )
    return f"| {' | '.join(cells)} |"


def filled(page: str, blocks: Mapping[str, str]) -> str:
    """The page with these blocks between its marks."""
    for name, text in blocks.items():
        mark = rf"(<!-- figures: {name} -->\n).*?(\n<!-- end -->)"
        page, times = re.subn(mark, lambda found, text=text: f"{found[1]}{text}{found[2]}", page, flags=re.DOTALL)  # type: ignore[misc]
        assert times == 1, f"README has {times} blocks named {name}"
    return page


if __name__ == "__main__":
    main()
