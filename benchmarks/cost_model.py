"""How well the cost model predicts published runs: step time, order, memory, families left out of the fit.

Rows: `data/training_open.json`; its families: `data/README.md`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

from _data import data  # type: ignore[import-not-found]
from _fit import changed  # type: ignore[import-not-found]
from hippo.cost.calibration import CALIBRATION, RANGES
from hippo.score.cases import PublishedRun, load_cases
from hippo.score.interval import held_out
from hippo.score.published import Errors, Prediction, comparison_key, errors, predict, validate

BY_ALL_THREE = ("korthikanti", "megatron-sc21-t1", "megatron-sc21-t2", "mt-nlg", "bigscience", "vtrain-multi")
CHOSEN = """\
The 147 rows that Calculon, llm-analysis and constant efficiency can all run: every row with
a step time of korthikanti 6, megatron-sc21-t1 6, megatron-sc21-t2 without its ZeRO-3 rows 3, mt-nlg 2, bigscience 62
and vtrain-multi 65; and 3 of the 5 megatron-h100 rows that state tp: which 3 is not said, the worst choice is given."""


def main() -> None:
    """Prints the tables."""
    cases = load_cases(data("training_open.json"))
    report = validate(cases)
    known = {case.id: case for case in cases}
    print_families(report.families.items(), report.overall)
    print_asked(report.rows, known, report.families)
    print_left_out(cases)


def print_families(families: Iterable[tuple[str, Errors]], overall: Errors) -> None:
    """Errors by family."""
    head = f"{'family':18s} {'rows':>5s} {'refused':>8s} {'MAPE':>7s} {'median':>7s} {'bias':>7s}"
    print(f"{head} {'pairs in right order':>24s}")
    for name, each in (*families, ("overall", overall)):
        pairs = f"{percent(each.pairs_right)} of {each.pairs}" if each.pairs else "-"
        figures = " ".join(f"{percent(figure):>7s}" for figure in (each.mape, each.median, each.bias))
        print(f"{name:18s} {each.n:5d} {each.refused:8d} {figures} {pairs:>24s}")


def print_asked(
    predictions: Sequence[Prediction], known: Mapping[str, PublishedRun], families: Mapping[str, Errors]
) -> None:
    """What is asked and what is measured."""
    keys = {name: comparison_key(case) for name, case in known.items()}
    timed = [row for row in predictions if row.error is not None]
    several = [row for row in timed if row.family != "vtrain-single"]
    three = errors(rows_of_all_three(timed, known), keys)
    most_refused = max(each.refused / (each.n + each.refused) for each in families.values() if each.n + each.refused)
    lines = [
        ("147 rows that all three can run: MAPE", "<= 8 %", percent(three.mape)),
        ("   median", "<= 6 %", percent(three.median)),
        ("all rows but single-node vTrain: MAPE", "<= 8 %", percent(errors(several, keys).mape)),
        ("   median", "<= 6 %", percent(errors(several, keys).median)),
        ("refused, worst family", "<= 5 %", percent(most_refused)),
        ("all rows: MAPE", "<= 14 %", percent(errors(timed, keys).mape)),
        ("   median", "<= 9 %", percent(errors(timed, keys).median)),
        *pair_lines("vtrain-multi", ">= 88 %", families["vtrain-multi"]),
        *pair_lines("bigscience", ">= 80 %", families["bigscience"]),
        *memory_lines(predictions, known),
    ]
    print(f"\n{'figure':66s} {'asked':>8s} {'measured':>9s}")
    for what, asked, measured in lines:
        print(f"{what:66s} {asked:>8s} {measured:>9s}")
    print(f"\n{CHOSEN}")


def rows_of_all_three(timed: Sequence[Prediction], known: Mapping[str, PublishedRun]) -> list[Prediction]:
    """The 147 rows; of the ten choices that the facts leave open, the one with the largest error."""
    sure = [row for row in timed if row.family in BY_ALL_THREE and known[row.id].sharding != "full"]
    open_ones = [row for row in timed if row.family == "megatron-h100" and known[row.id].tp is not None]
    worst = max(combinations(open_ones, 3), key=lambda chosen: sum(abs(row.error or 0.0) for row in chosen))
    return [*sure, *worst]


def pair_lines(family: str, asked: str, each: Errors) -> list[tuple[str, str, str]]:
    """The share of pairs in the right order, and with repeated measurements of one run counted as wrong."""
    right = (each.pairs_right or 0.0) * each.pairs
    counted = right / max(each.pairs + each.repeats, 1)
    lines = [(f"pairs of the same model and batch in the right order, {family}", asked, percent(each.pairs_right))]
    if each.repeats:
        lines.append((f"   {each.repeats} repeats of one and the same run counted as wrong", "", percent(counted)))
    return lines


def memory_lines(predictions: Sequence[Prediction], known: Mapping[str, PublishedRun]) -> list[tuple[str, str, str]]:
    """Memory of the BigScience rows."""
    ours = [(row, known[row.id]) for row in predictions if row.family == "bigscience"]
    gaps = [abs((row.predicted_memory_gb or 0.0) / case.memory_gb - 1) for row, case in ours if case.memory_gb]
    lost = [row.out_of_memory for row, case in ours if case.out_of_memory]
    wrong = sum(bool(row.out_of_memory) for row, case in ours if not case.out_of_memory)
    return [
        (f"memory, {len(gaps)} bigscience rows: MAPE", "<= 10 %", percent(sum(gaps) / len(gaps))),
        (f"   out-of-memory rows flagged, of {len(lost)}", "all", str(sum(map(bool, lost)))),
        (f"   rows that ran flagged, of {len(ours) - len(lost)}", "", str(wrong)),
    ]


def print_left_out(cases: Sequence[PublishedRun]) -> None:
    """Each family predicted with constants that were fitted without it."""
    keys = {case.id: comparison_key(case) for case in cases}
    print("\nleft out: its rows predicted with constants fitted without the family (benchmarks/intervals.py --fit)")
    print(f"{'family':18s} {'rows':>5s} {'MAPE':>7s} {'median':>7s} {'bias':>7s} {'MAPE with it':>13s}")
    together = []
    for family, values in held_out()["without"].items():
        constants = changed(CALIBRATION, dict(zip(RANGES, values, strict=True)))
        members = [case for case in cases if case.family == family]
        found = [predict(case, calibration=constants) for case in members]
        together += found
        out = errors(found, keys)
        into = errors([predict(case) for case in members], keys)
        figures = " ".join(f"{percent(figure):>7s}" for figure in (out.mape, out.median, out.bias))
        print(f"{family:18s} {out.n:5d} {figures} {percent(into.mape):>13s}", flush=True)
    out = errors(together, keys)
    figures = " ".join(f"{percent(figure):>7s}" for figure in (out.mape, out.median, out.bias))
    print(f"{'each left out':18s} {out.n:5d} {figures}")


def percent(share: float | None) -> str:
    """A share as per cent, one digit."""
    return "-" if share is None else f"{100 * share:.1f} %"


if __name__ == "__main__":
    main()
