"""Intervals of printed steps: how many rows of sources that were left out they cover, and how wide they are.

Reads ``src/hippo/score/held_out.json``. With ``--fit`` it is made anew (ten minutes of CPU): the constants of the cost
model are fitted without each source (two steps of ``_fit.py``), and its rows predicted with them; so is how large their
errors are expected to be. Rows over several places and measured pipelines, to which nothing is fitted, are predicted as
they are. ``--predict`` keeps the constants (a minute), ``--emulated`` reads ``data/emulated_runs.csv`` again alone.
``--data DIR`` has what is not shipped; of a file that is not there the rows of the last time stay. In no family: rows
of one data centre without RDMA (V100, uncalibrated).
"""

from __future__ import annotations

import argparse
import csv
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from _data import FOLDER, data, fitted_rows  # type: ignore[import-not-found]
from _fit import (  # type: ignore[import-not-found]
    Linear,
    changed,
    expected_sizes,
    rows,
    source_of,
    without,
)
from hippo.cost.calibration import CALIBRATION, RANGES, constant
from hippo.score import interval
from hippo.score.cases import PublishedRun
from hippo.score.interval import (
    EMULATED,
    EXPERTS,
    IN_ONE_PLACE,
    NCCL,
    NCCL_LINKS,
    RESTS_ON,
    RUN,
    TOLD,
    has_experts,
    held_out,
    left_out,
    one_place,
    shares_slowed,
    usual_half_width,
)
from hippo.score.pipelines import MeasuredPipeline
from hippo.score.published import Case, load, predict, problem_of, reaching, validate

OUT = Path(interval.__file__).with_name("held_out.json")
FILES = {NCCL: "geo_open.json", NCCL_LINKS: "published/pipemorph_measured_pipelines.csv"}
COLUMNS = {EMULATED: "printed_s", RUN: "run_s"}
MOVES = 0.01
"""A constant moves a row whose step changes by this share of the constant's change."""


def main() -> None:
    """Prints the tables; ``--fit``, ``--predict`` and ``--emulated`` write the file before."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--predict", action="store_true")
    parser.add_argument("--emulated", action="store_true")
    parser.add_argument("--data", type=Path, default=FOLDER)
    given = parser.parse_args()
    if given.fit or given.predict or given.emulated:
        cases = fitted_rows()
        known: dict[str, Any] = json.loads(OUT.read_text(encoding="utf-8")) if OUT.exists() else {}
        document = known | {"made_by": "python benchmarks/intervals.py --fit"} | (fitted(cases) if given.fit else {})
        if given.fit or given.predict:
            found = residuals(cases, document["without"], given.data, known.get("residuals", {}))
            document |= {"sizes": expected_sizes(found), "residuals": found}
        document["residuals"] |= {name: emulated(data("emulated_runs.csv"), column) for name, column in COLUMNS.items()}
        OUT.write_text(folded(document), encoding="utf-8")
        held_out.cache_clear()
    print_coverage()


def folded(document: Mapping[str, Any]) -> str:
    """JSON with a line for each source."""
    text = json.dumps(document, separators=(", ", ": "))
    return text.replace('], "', '],\n "').replace('}, "', '},\n"') + "\n"


def fitted(cases: Sequence[PublishedRun]) -> dict[str, Any]:
    """Which rows move each constant, and the constants without each source."""
    linear = Linear.around(rows(cases, CALIBRATION), CALIBRATION)
    moved = np.abs(linear.jacobian) >= MOVES
    sources = [source_of(row.case) for row in linear.rows]
    moves = {
        name: {
            source: count
            for source in dict.fromkeys(sources)
            if (count := sum(bool(moved[row, at]) for row, its in enumerate(sources) if its == source))
        }
        for at, name in enumerate(RANGES)
    }
    constants = {}
    for source in dict.fromkeys(sources):
        there = without(linear, source)
        constants[source] = [float(f"{constant(there, name):.4g}") for name in RANGES]
        print(f"fitted without {source}", flush=True)
    return {"moves": moves, "without": constants}


def residuals(
    cases: Sequence[PublishedRun], constants: Mapping[str, list[float]], folder: Path, known: Mapping[str, Any]
) -> dict[str, dict[str, list[Any]]]:
    """Logarithms of measured over predicted, by family and source; in one place with the shares of the step."""
    found: dict[str, dict[str, list[Any]]] = {name: {} for name in (*IN_ONE_PLACE, EXPERTS)}
    for case in cases:
        if case.refusal or case.measured_s is None or case.model is None:
            continue
        seen = constants.get(source_of(case))  # None: no fit has seen this source, nor has that in use
        there = CALIBRATION if seen is None else changed(CALIBRATION, dict(zip(RANGES, seen, strict=True)))
        row, problem = predict(case, calibration=there), problem_of(case)
        if row.predicted_s is None or row.plan is None:
            continue
        if has_experts(case.model):
            found[EXPERTS].setdefault(source_of(case), []).append(logarithm(row.measured_s, row.predicted_s))
            continue
        shares = shares_slowed(problem, row.plan, reaching(case, there))
        told = [logarithm(row.measured_s, row.predicted_s), *(round(share, 4) for share in shares)]
        found[one_place(problem)].setdefault(case.family, []).append(told)
    for name, file in FILES.items():
        found[name] = over_nccl(folder, file) or known.get(name, {})
    return found


def over_nccl(folder: Path, name: str) -> dict[str, list[float]]:
    """Rows of a file over a WAN that ran Megatron-LM, by network or by the pipelines' GPUs."""
    found: dict[str, list[float]] = {}
    path = folder / name if (folder / name).is_file() else FOLDER / name
    cases = [case for case in load(path) if _is_megatron(case)] if path.is_file() else []
    for row in validate(cases).rows:
        if row.error is not None:
            found.setdefault(row.family, []).append(logarithm(row.measured_s, row.predicted_s))
    return found


def _is_megatron(case: Case) -> bool:
    if isinstance(case, MeasuredPipeline):
        return case.method == "1F1B"
    if not isinstance(case, PublishedRun):
        return False
    far = case.cluster is not None and any(link.latency_s > 0 for link in case.cluster.links)
    return far and case.runtime == "megatron"


def emulated(path: Path, column: str) -> dict[str, list[float]]:
    """Runs of the executor and of torch over emulated links against what was said of them, by links."""
    found: dict[str, list[float]] = {}
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            found.setdefault(row["links"], []).append(logarithm(float(row["measured_s"]), float(row[column])))
    return found


def logarithm(measured_s: float | None, predicted_s: float | None) -> float:
    """Of measured over predicted, to four places."""
    return round(math.log((measured_s or math.nan) / (predicted_s or math.nan)), 4)


def print_coverage() -> None:
    """Each source left out: whether the interval made of the others holds its rows."""
    print(
        f"{'family':12s} {'sources':>8s} {'rows':>5s} {'covered':>8s} {'half-width, left out':>21s} {'as printed':>11s}"
    )
    every: list[tuple[str, float, float]] = []
    for name in TOLD:
        found = left_out(name)
        every += [(name, inside, width) for _, inside, width in found]
        print(f"{name:16s} {len({source for source, _, _ in found}):8d} {line(found)} {usual_half_width(name):11.1%}")
    once = [row for row in every if row[0] != RUN]  # its runs are those of the emulated links
    for told in ("measured", "assumed", "emulated"):
        print(f"{told:16s} {'':8s} {line([row for row in once if RESTS_ON.get(row[0], 'measured') == told])}")
    print(f"{'all':16s} {'':8s} {line(once)}")


def line(found: Sequence[tuple[str, float, float]]) -> str:
    """Rows, share covered, median half-width."""
    inside = sum(held for _, held, _ in found) / len(found)
    return f"{len(found):5d} {inside:8.1%} {float(np.median([width for _, _, width in found])):21.1%}"


if __name__ == "__main__":
    main()
