"""Intervals of printed steps: how many rows of sources that were left out they cover, and how wide they are.

Reads ``src/hippo/score/held_out.json``. With ``--fit`` it is made anew (ten minutes of CPU): the constants of the cost
model are fitted without each source (two steps of ``_fit.py``), and its rows predicted with them; rows over several
places and measured pipelines, to which nothing is fitted, are predicted as they are. ``--predict`` keeps the constants
(two minutes). ``--data DIR`` has what is not shipped; of a file that is not there the rows of the last time stay. Runs
in the emulator: ``data/emulated_runs.csv``. In no family: rows of one data centre without RDMA (V100, uncalibrated).
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

from _data import FOLDER, data  # type: ignore[import-not-found]
from _fit import Linear, changed, rows, without  # type: ignore[import-not-found]
from hippo.cost.calibration import CALIBRATION, RANGES, constant
from hippo.score import interval
from hippo.score.cases import PublishedRun, load_cases
from hippo.score.interval import EMULATED, FUSED, NCCL, TOLD, UNFUSED, has_experts, held_out, one_place
from hippo.score.pipelines import MeasuredPipeline
from hippo.score.published import Case, load, predict, problem_of, validate

OUT = Path(interval.__file__).with_name("held_out.json")
MOVES = 0.01
"""A constant moves a row whose step changes by this share of the constant's change."""


def main() -> None:
    """Prints the tables; ``--fit`` and ``--predict`` write the file before."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--predict", action="store_true")
    parser.add_argument("--data", type=Path, default=FOLDER)
    given = parser.parse_args()
    if given.fit or given.predict:
        cases = load_cases(data("training_open.json"))
        known: dict[str, Any] = json.loads(OUT.read_text(encoding="utf-8")) if OUT.exists() else {}
        document = fitted(cases) if given.fit else {name: known[name] for name in ("moves", "without")}
        document["residuals"] = residuals(cases, document["without"], given.data, known.get("residuals", {}))
        OUT.write_text(folded({"made_by": "python benchmarks/intervals.py --fit", **document}), encoding="utf-8")
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
    sources = [row.case.family for row in linear.rows]
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
) -> dict[str, Any]:
    """Logarithms of measured over predicted, by family and source."""
    found: dict[str, dict[str, list[float]]] = {FUSED: {}, UNFUSED: {}}
    for case in cases:
        if case.refusal or case.measured_s is None or case.model is None or has_experts(case.model):
            continue
        there = changed(CALIBRATION, dict(zip(RANGES, constants[case.family], strict=True)))
        row = predict(case, calibration=there)
        if row.predicted_s is None or row.plan is None:
            continue
        found[one_place(problem_of(case))].setdefault(case.family, []).append(
            logarithm(row.measured_s, row.predicted_s)
        )
    found[NCCL] = over_nccl(folder) or known.get(NCCL, {})
    found[EMULATED] = emulated(data("emulated_runs.csv"))
    return found


def over_nccl(folder: Path) -> dict[str, list[float]]:
    """Rows over a WAN that ran Megatron-LM, by network and by the pipelines' GPUs."""
    found: dict[str, list[float]] = {}
    for name in ("geo_open.json", "published/pipemorph_measured_pipelines.csv"):
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


def emulated(path: Path) -> dict[str, list[float]]:
    """Runs of the executor and of torch over emulated links, by links."""
    found: dict[str, list[float]] = {}
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            found.setdefault(row["links"], []).append(logarithm(float(row["measured_s"]), float(row["printed_s"])))
    return found


def logarithm(measured_s: float | None, predicted_s: float | None) -> float:
    """Of measured over predicted, to four places."""
    return round(math.log((measured_s or math.nan) / (predicted_s or math.nan)), 4)


def print_coverage() -> None:
    """Each source left out: whether the interval made of the others holds its rows."""
    print(
        f"{'family':12s} {'sources':>8s} {'rows':>5s} {'covered':>8s} {'half-width, left out':>21s} {'as printed':>11s}"
    )
    every: list[tuple[bool, float, str]] = []
    for name in TOLD:
        found = interval.left_out(name)
        every += [(inside, width, name) for _, inside, width in found]
        sources = len({source for source, _, _ in found})
        width = math.sinh(interval.half_width((name,)))
        print(f"{name:16s} {sources:8d} {line(found)} {width:11.1%}")
    parts = {NCCL: "assumed", EMULATED: "emulated"}
    for told in ("measured", *parts.values()):
        part = [(name, inside, width) for inside, width, name in every if parts.get(name, "measured") == told]
        print(f"{told:16s} {'':8s} {line(part)}")
    print(f"{'all':16s} {'':8s} {line([(name, inside, width) for inside, width, name in every])}")


def line(found: list[tuple[str, bool, float]]) -> str:
    """Rows, share covered, median half-width."""
    inside = sum(held for _, held, _ in found) / len(found)
    return f"{len(found):5d} {inside:8.1%} {float(np.median([width for _, _, width in found])):21.1%}"


if __name__ == "__main__":
    main()
