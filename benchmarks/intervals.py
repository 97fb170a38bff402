"""Intervals of printed steps: how many rows of sources that were left out they cover, and how wide they are.

Reads ``src/hippo/score/held_out.json``. With ``--fit`` it is made anew (minutes): the constants of the cost model are
fitted without each source (two steps of ``_fit.py``), and its rows predicted with them; rows over several places and
measured pipelines, to which nothing is fitted, are predicted as they are. ``--data DIR`` has what is not shipped; of a
file that is not there the rows of the last time stay. Runs in the emulator: ``data/emulated_runs.csv``.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from _data import FOLDER, data  # type: ignore[import-not-found]
from _fit import Linear, rows, without  # type: ignore[import-not-found]
from hippo.cost.calibration import CALIBRATION, RANGES, constant
from hippo.score import interval
from hippo.score.cases import PublishedRun, load_cases
from hippo.score.interval import EMULATED, GENERATIONS, NCCL, held_out
from hippo.score.pipelines import MeasuredPipeline
from hippo.score.published import Prediction, load, predict, validate

OUT = Path(interval.__file__).with_name("held_out.json")
MOVES = 0.01
"""A constant moves a row whose step changes by this share of the constant's change."""
EXPERTS = ("deepseek",)

Rows = dict[str, dict[str, list[float]]]


def main() -> None:
    """Prints the tables; ``--fit`` writes the file before."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--data", type=Path, default=FOLDER)
    given = parser.parse_args()
    if given.fit:
        text = json.dumps(fitted(given.data), indent=None, separators=(", ", ": "))
        OUT.write_text(text.replace('}, "', '},\n"').replace('], "', '],\n "') + "\n", encoding="utf-8")
        held_out.cache_clear()
    print_coverage()


def fitted(folder: Path) -> dict[str, Any]:
    """The document: which rows move each constant, the constants without each source, and the residuals."""
    cases = load_cases(data("training_open.json"))
    linear = Linear.around(rows(cases, CALIBRATION), CALIBRATION)
    moved = np.abs(linear.jacobian) >= MOVES
    sources = [row.case.family for row in linear.rows]
    moves = {
        name: {source: count for source in dict.fromkeys(sources) if (count := _count(moved[:, at], sources, source))}
        for at, name in enumerate(RANGES)
    }
    constants, residuals = {}, dict[str, dict[str, list[float]]]()
    for source in dict.fromkeys(sources):
        there = without(linear, source)
        constants[source] = [float(f"{constant(there, name):.4g}") for name in RANGES]
        members = [case for case in cases if case.family == source and source not in EXPERTS]
        _add(residuals, [(case, predict(case, calibration=there)) for case in members])
        print(f"without {source}: {len(members)} rows", flush=True)
    known: Mapping[str, Any] = json.loads(OUT.read_text(encoding="utf-8"))["residuals"] if OUT.exists() else {}
    residuals[NCCL] = over_nccl(folder) or dict(known.get(NCCL, {}))
    residuals[EMULATED] = emulated(data("emulated_runs.csv"))
    return {
        "made_by": "python benchmarks/intervals.py --fit",
        "moves": moves,
        "without": constants,
        "residuals": residuals,
    }


def _count(moved: Any, sources: list[str], source: str) -> int:
    return sum(bool(each) for each, its in zip(moved, sources, strict=True) if its == source)


def _add(residuals: Rows, found: Iterable[tuple[PublishedRun, Prediction]]) -> None:
    for case, row in found:
        if row.error is not None:
            rest = residuals.setdefault(GENERATIONS[case.gpu.family], {})
            rest.setdefault(case.family, []).append(logarithm(row.measured_s, row.predicted_s))


def over_nccl(folder: Path) -> dict[str, list[float]]:
    """Rows over several places that ran Megatron-LM, by network and by the pipelines' GPUs."""
    found: dict[str, list[float]] = {}
    for name in ("geo_open.json", "published/pipemorph_measured_pipelines.csv"):
        path = folder / name
        if not path.is_file():
            path = FOLDER / name
        cases = [case for case in load(path) if _is_megatron(case)] if path.is_file() else []
        for row in validate(cases).rows:
            if row.error is not None:
                found.setdefault(row.family, []).append(logarithm(row.measured_s, row.predicted_s))
    return found


def _is_megatron(case: PublishedRun | MeasuredPipeline) -> bool:
    if isinstance(case, MeasuredPipeline):
        return case.method == "1F1B"
    return case.runtime == "megatron"


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
    for name in held_out()["residuals"]:
        found = interval.left_out(name)
        every += [(inside, width, name) for _, inside, width in found]
        sources = len({source for source, _, _ in found})
        width = math.sinh(interval.half_width((name,)))
        print(f"{name:12s} {sources:8d} {line(found)} {width:11.1%}")
    for told, names in (
        ("measured", (*dict.fromkeys(GENERATIONS.values()),)),
        ("assumed", (NCCL,)),
        ("emulated", (EMULATED,)),
    ):
        part = [(name, inside, width) for inside, width, name in every if name in names]
        print(f"{told:12s} {'':8s} {line(part)}")
    print(f"{'all':12s} {'':8s} {line([(name, inside, width) for inside, width, name in every])}")


def line(found: list[tuple[str, bool, float]]) -> str:
    """Rows, share covered, median half-width."""
    inside = sum(held for _, held, _ in found) / len(found)
    return f"{len(found):5d} {inside:8.1%} {float(np.median([width for _, _, width in found])):21.1%}"


if __name__ == "__main__":
    main()
